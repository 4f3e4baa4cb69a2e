"""The commands: each parses its flags, calls the program and turns failures into a line and an exit code."""
