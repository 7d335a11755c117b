"""Conformance suites, builders and fakes, for our own tests and for those of third parties."""
