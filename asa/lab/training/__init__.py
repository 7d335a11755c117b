"""Learning by reinforcement: environments, networks, and how they are trained. Needs the extra `learn`."""
