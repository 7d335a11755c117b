"""Nodes for all jobs of a window at once, so that each job's nodes are near to one another in the network."""
