"""Batch systems behind one port: this machine, Slurm."""
