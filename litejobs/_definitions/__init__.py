"""What code says of tasks, calls and policies, as checked values.

May import _storage and what is below.
"""
