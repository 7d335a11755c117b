"""The real world: gangs of containers that share the cores of nodes."""
