"""Nouns of the laboratory: machines, workloads and schedules as columns, and how functions are compiled."""
