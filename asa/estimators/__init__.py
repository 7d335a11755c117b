"""Estimators of queue waits: one object per geometry or, pooled, per queue, taught one started job at a time."""
