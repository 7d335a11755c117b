"""Numbers from a schedule."""
