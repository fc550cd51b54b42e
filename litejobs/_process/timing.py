"""How long several modules wait between two looks or tries: seconds of real time."""

from __future__ import annotations

from litejobs._process.adjustable import Adjustable

POLL = 0.05  # between two looks for commits of others while something runs
HELD_POLL = 0.01  # the same while the clock is held, and may be moved at any time
LONGEST_PAUSE = 5.0  # between two tries that fail, however often it was doubled
REMIND_AFTER = 60.0  # after which the log has the same problem again
DEFAULT_GRACE = 10.0  # that tasks have to end when their runner is stopped


class Times(Adjustable):
    """How long they wait, and what that depends on: seconds of real time."""

    # Of a runner, and what belongs to it.
    longest_wait = 5.0  # between two looks at the clock
    lock_pause = 5.0  # between two looks at the runner's lock
    first_pause = 1.0  # between two tries while the file cannot be written
    longest_pause = LONGEST_PAUSE  # the same, however often it was doubled
    give_back_pause = 0.05  # between two lots of unused pages that go back to the disk
    standby_pause = 0.2  # of a standby, between two tries to take the lock
    loop_start_patience = 0.1  # of an event loop, for a runner to have begun
    lasting = 5.0  # of a standby, until it asks for the place of older code
    lost_patience = 2.5  # for a runner that lives to take again a lock that it lost
    successor_patience = 1.0  # of who asks for a runner, for a standby to take over
    size_pause = 1.0  # between two transactions that tell how large the file is
    statistics_pause = 60.0  # between two looks for what an `analyze` has counted
    sign_pause = 1.0  # between two looks whether all is well, for others to see
    late = 8.0  # in one turn, after which the loop counts as held up
    last_patience = 6.0  # for the last transaction, longer than for a lock
    prefetch_patience = 0.1  # after which work not begun is given back
    cancel_patience = 1.0  # for a cancelled task, which is then interrupted
    begin_patience = 10.0  # for threads to begin what they were handed
    stuck_patience = 1.0  # for an interrupted task, whose slot is then replaced
    end_patience = 0.5  # for an interrupted task in a process, which is then ended
    connect_patience = 5.0  # for one try to reach the scheduler of a cluster
    ask_pause = 1.0  # after a word of such a scheduler, until it is asked for another
    silence_patience = 30.0  # until one that does not answer counts as away
    short = 0.02  # of a task there, which sends no news, or that begins without asking
    in_step_patience = 0.2  # for a test, task or callback that waits for what is next
    aside_patience = 5.0  # until a thread beside an event loop ends that does nothing
    loop_patience = 2.0  # for an event loop that is to begin a coroutine
    coroutine_patience = 1.0  # for cancelled coroutines, when a block is left
    reading_patience = 1.0  # for threads that read, when the file is closed
    close_patience = 5.0  # for callbacks, when the runner stops
    answer_patience = 0.5  # for the loop to say that there is nothing to be done
    polls_within = 5.0  # of each other looks at a job count as a wait for it
    slow = 10.0  # after which a callback counts as one that does not return
    outbox_patience = 0.5  # for the application, when an outbox stops
    retention_pause = LONGEST_PAUSE  # after a step of retention that has failed
    retention_least = 0.05  # that a drain has in any case for what was kept long enough
    turn_patience = 5.0  # of the loop, for a transaction of its own process

    poll = POLL
    held_poll = HELD_POLL
    idle_poll = 0.1  # between two looks for commits of others while nothing runs
    safe_poll = 1.0  # the same while we are told of them: that is a hint, no promise
    brisk_poll = 0.001  # the same just after something was done: more may follow
    other_clock = 0.5  # by which the clock may differ from the time that has passed
    turns_unseen = 0.005  # of the loop itself, after which it looks what is to be done
    listening = 0.02  # after so long a hint is asked for, which is cheaper from then on
    hint_holds = 0.05  # for the commit that a hint tells of to be seen
    ear_poll = 0.02  # between two looks of a process that hears of commits
    ear_patience = 0.2  # for somebody else to listen, before its thread ends
    cursor_soon = 1.0  # until a place is stored, while there is more to be told
    cursor_seldom = 60.0  # the same for what has only been passed by
    without_ear = 0.005  # for a result of this process, before others are listened to

    # Of whoever writes.
    busy_timeout = 5.0  # for a lock that another process has on the file
    wal_pause = 0.02  # between two tries to begin a write-ahead log
    longest_turn = 10.0  # for one transaction of this process, by others of it
    longest_rewrite = 600.0  # the same while the whole file is written anew
    own_turn = 1.0  # the same where that waits, as a rule, for who waits
    step = 0.008  # that the work of one of many transactions should take
    cut_pause = 0.1  # between two tries to cut the log behind what was purged

    fork_patience = 1.0  # for all connections to be closed before a fork

    # Of a child that was forked: its parent may have locked a stream at that moment,
    # and then the child never gets the lock.
    last_words_patience = 5.0

    # Of the command line.
    settle_patience = 10.0  # for source to be left alone, before it is taken as it is
    reloader_patience = 30.0  # for a child to end, until that is said, or it is killed
    write_patience = 10.0  # for others who write
    whole_lock_patience = 1.0  # of `doctor`, for who keeps the whole file locked
    probe_pause = 1.5  # until what the file says is wrong is asked again
    completion_patience = 0.5  # until Tab offers nothing
    same_file_pause = 1.0  # between two looks whether it is the one that is followed
    interrupt_patience = 1.0  # for an interrupt to be heard by a look at the file
    interrupt_pause = 0.1  # between two interrupts of the same


TIMES = Times()
"""Those of this process."""

other_times = TIMES.instead
