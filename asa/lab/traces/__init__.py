"""Workloads from logs of real machines, from workflow instances, and made up."""
