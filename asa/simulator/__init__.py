"""The queue in virtual time: one engine that runs to the next decision, and takes it."""
