"""The algorithms: losses as functions on tensors."""
