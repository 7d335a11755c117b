"""What outlives a process: a run's event log, and what was learned."""
