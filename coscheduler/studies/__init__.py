"""Whole experiments: rules side by side on the paper's queue, as tables and pictures."""
