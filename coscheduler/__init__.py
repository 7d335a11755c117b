"""Who shares a node, and with what CPU quota."""
