"""Strategies: when to ask for which allocation. Pure functions of a `WorkflowView`."""
