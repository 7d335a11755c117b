"""On which nodes jobs run."""
