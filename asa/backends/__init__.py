"""Batch systems behind one port: this machine, Slurm."""

import logging

# Outside of a run, where no handler is, Python would print warnings on standard error: the error itself says the same.
logging.getLogger(__name__).addHandler(logging.NullHandler())
