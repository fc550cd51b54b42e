"""Texts, durations and the states of a job; imports nothing of litejobs."""
