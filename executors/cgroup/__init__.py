"""CPU quotas and memory limits for groups of processes, by the best means that a machine offers."""
