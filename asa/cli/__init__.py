"""The command line: `asa run`, `asa report` and the others. Each command is a module of its name."""
