"""Nodes for the real world: agents of a pool."""
