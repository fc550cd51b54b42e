"""The loop, its threads and one attempt.

May import _schedules, _outbox and what is below.
"""
