"""Whole experiments: each runs from a seed and returns a result object."""
