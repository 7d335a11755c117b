"""Who shares a node, and with what CPU quota."""

PART_OF = "asa-hpc"
"""By which `asa.core.registry.check_packages` knows this package from others of this name."""
