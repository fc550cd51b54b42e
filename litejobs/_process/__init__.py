"""This process: its clock, log, forks and end; may import _values and errors."""
