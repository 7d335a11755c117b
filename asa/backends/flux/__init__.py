"""Flux, through its commands. Not verified on a live system: ``docs/howto/pbs-flux.md``."""
