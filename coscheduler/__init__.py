"""Who shares a node, and with what CPU quota."""

PART_OF = "asa-hpc"  # so that `asa.core.registry.check_packages` tells it from others of this name
