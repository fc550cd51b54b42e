"""What is written on a command line, as values.

May import `cli.file` and what is below.
"""
