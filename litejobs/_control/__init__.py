"""Handles on what is in the file, and what is done to it.

May import _definitions and what is below.
"""
