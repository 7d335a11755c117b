"""Estimators that run the simulator forward from the queue as it can be seen."""
