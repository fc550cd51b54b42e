"""Tasks as functions: called, run, and what came of it.

May import _control and what is below.
"""
