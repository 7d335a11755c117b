"""Constraint programming: the dispatchers PCP'20, PCP'19 and HCP'19."""
