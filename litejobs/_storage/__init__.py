"""One jobs file, opened safely and written in turn.

May import _process and what is below.
"""
