"""Experts: from the state of a job to a distribution over the share of its cores that others may have."""
