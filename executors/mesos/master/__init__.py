"""The master: who has what, who is offered what, and what became of each task."""
