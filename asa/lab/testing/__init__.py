"""A simulated cluster, as a fixture for tests of workflows."""
