"""What outlives a process: a run's event log, its values, and what was learned."""
