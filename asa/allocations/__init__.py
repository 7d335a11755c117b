"""The pool: one view of all allocations that a run holds."""
