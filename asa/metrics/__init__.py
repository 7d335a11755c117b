"""Numbers from what happened: pure functions, events or arrays in, frozen results out."""
