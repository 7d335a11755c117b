"""Estimators of queue waits: one object per geometry, taught one started job at a time."""
