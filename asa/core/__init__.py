"""Nouns of the field: frozen, validated dataclasses, and the ports. Pure: no I/O, only the standard library and numpy."""
