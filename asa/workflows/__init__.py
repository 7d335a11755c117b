"""Workflows: stages, how they are put together, and how they are run."""
