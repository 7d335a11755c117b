"""Nouns of the field, as frozen dataclasses, and the ports. Pure: no I/O, only the standard library and numpy."""
