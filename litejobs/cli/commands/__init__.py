"""The commands, each imported when it is run.

May import all other parts of the command line.
"""
