"""The parsers of all commands, their help, and shell completion made from them."""
