"""Dispatchers whose rule was learned: what they see, how they decide, and the models that they read."""
