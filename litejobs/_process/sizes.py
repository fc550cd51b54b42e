"""How much is done at once, and how much is looked at: numbers of things, and bytes."""

from __future__ import annotations

from litejobs._process.adjustable import Adjustable

MIB = 2**20


class Sizes(Adjustable):
    """What keeps transactions and readings short, however large the file is."""

    # Of a runner.
    wal_limit = 4 * MIB  # bytes above which it cuts the write-ahead log when idle
    given_back_pages = 64  # that nothing uses, in one transaction
    wal_warning = 64 * MIB  # bytes above which somebody is holding it open
    tail_events = 4000  # of the log, that are kept for the streams of a process
    contexts = 10_000  # of attempts, that are kept for who is yet to be told of them
    retention_percent = 5  # of the time, at most, for what was kept long enough

    most_inline = 10_000  # attempts that follow from one commit, within inline()

    # Of what is done to many jobs, or to a whole file.
    most_at_once = 500  # things in one transaction, however fast it is
    fewest_at_once = 25  # the same, however slow
    found_at_once = 5_000  # that a purge looks for before it deletes them
    stored_at_once = 1_000  # jobs in one transaction, where many coroutines ask for one
    replayed_jobs = 2_000  # in one reading, of some 15 ms
    spare_readers = 4  # connections that are kept open between two readings
    spare_databases = 4  # in memory, that are kept for the next to be opened there
    spare_bytes = 8 * MIB  # that one of these may have come to
    copied_bytes = MIB  # of a file that is backed up or restored, in one step

    # Of the command line.
    steps = 20_000  # of SQLite's machine between two looks at the clock
    much_unused = 16 * MIB  # bytes of free pages that are worth a word
    log_lines = 300_000  # the newest of the log, for figures: about 100,000 attempts
    counted_jobs = 1_000_000  # the newest, that are counted whatever their state is
    counted_at_once = 100_000  # of these in one reading
    shown_count = 100_000  # jobs of a kind: 30 ms of work, if the file is in memory
    searched_moves = 100_000  # in one reading
    followed_moves = 5_000  # that are shown from one reading
    exported_rows = 500  # that are looked at in one reading
    simulated_in_memory = 256 * MIB  # bytes of all copies; larger ones are on a disk
    simulated_turns = 100_000  # at one instant; more are a circle
    simulated_untold = 50_000  # attempts above which it is told that it takes long


SIZES = Sizes()
"""Those of this process."""

other_sizes = SIZES.instead
