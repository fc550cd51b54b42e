"""What would happen up to some later instant: a copy of a file, and a clock of its own.

May import _schedules and what is below.
"""
