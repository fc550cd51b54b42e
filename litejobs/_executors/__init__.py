"""Where tasks run but in the threads of the runner: executors that code registers.

What an executor is and how it is reached is known here alone; the file knows its name
and how many slots it has.

May import _tasks and what is below.
"""
