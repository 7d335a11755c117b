"""Rules by which jobs share cores."""
