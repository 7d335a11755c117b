"""A simulated queue as a batch system, in virtual time."""
