"""The file that a command reads or writes, and care with it.

May import the printing and failures of the command line.
"""
