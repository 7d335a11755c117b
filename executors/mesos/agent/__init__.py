"""The agent: what runs on one node, in which container, and what became of it."""
