"""The command-line commands of the co-scheduler."""
