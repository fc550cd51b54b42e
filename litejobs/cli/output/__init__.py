"""What is shown, as lines, tables and screens.

May import `cli.file` and what is below.
"""
