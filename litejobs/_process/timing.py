"""How long several modules wait between two looks or tries: seconds of real time."""

POLL = 0.05  # between two looks for commits of others while something runs
HELD_POLL = 0.01  # the same while the clock is held, and may be moved at any time
LONGEST_PAUSE = 60.0  # between two tries that fail, however often it was doubled
REMIND_AFTER = 60.0  # after which the log has the same problem again
DEFAULT_GRACE = 10.0  # that tasks have to end when their runner is stopped
