"""OpenPBS and PBS Professional, through their commands. Not verified on a live system: ``docs/howto/pbs-flux.md``."""
