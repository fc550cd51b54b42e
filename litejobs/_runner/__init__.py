"""The loop, its threads and one attempt.

May import _executors, _schedules, _outbox and what is below.
"""
