"""Schedules as pictures, tables and text."""
