-- Which words does the database use, and what do they mean?
--
-- Each of them is a row here, and nowhere else: the views and the command line read
-- these rows, and tests/sql/test_words.py compares the documents with them.

-- Why may a job not run? What `code` means in words, what can be done about it, and
-- which kind of `object` stands in the way. Where a view knows more than is said here
-- (which attempt has failed, say), it says that instead. What keeps a whole queue from
-- running may be a `finding`, too: what litejobs_doctor says of it while jobs wait,
-- behind `queue NAME`, without an instant.
create view litejobs__reason as
with reason (code, object, detail, remedy, finding) as (
    values
    (
        'due', 'job', 'its time has not come', 'wait for its time, or run it now', null
    ),
    (
        'dependency', 'job', 'it waits for the end of another job',
        'wait for the other to end and a runner to pass that on, requeue it if it has failed, or delete the row in litejobs_dependency',
        null
    ),
    (
        'attempts_used', 'job', 'its limits allow no further attempt',
        'raise its max_attempts or set retryable, or cancel it', null
    ),
    (
        'expired', 'job', 'it is not worth running any more',
        'it is cancelled with the next tick; enqueue it again with a later expires_at',
        null
    ),
    (
        'queue_paused', 'queue', 'its queue is paused', 'resume the queue', 'is paused'
    ),
    (
        'queue_unserved', 'queue', 'the runner does not run the jobs of its queue',
        'start the runner with this queue among its queues, or without any to run all',
        'is none of those that the runner runs'
    ),
    (
        'queue_full', 'queue', 'as many jobs of its queue run as may',
        'wait for one to end, or raise max_running of the queue', null
    ),
    (
        'queue_rate', 'queue', 'its queue has used up its rate',
        'wait, or raise the rate of the queue', null
    ),
    (
        'unknown_task', 'task', 'no living runner has registered its task',
        'start a runner whose code has the task, or tell it the new name with renames',
        null
    ),
    (
        'fact', 'fact', 'it needs something that is not so',
        'set the fact to true when it is so', null
    ),
    (
        'tier', 'tier', 'its tier has had its share',
        'wait for the tier to open, or raise the priority of the job', null
    ),
    (
        'arguments_do_not_fit', 'task', 'its arguments do not fit its task',
        'start a runner whose code takes them, set other args, or cancel the job', null
    ),
    (
        'no_executor', 'executor', 'the runner does not have its executor',
        'start a runner whose code has it, LiteJobs(executors=...), or name another one',
        null
    ),
    (
        'executor_away', 'executor', 'its executor cannot be reached',
        'wait for it to come back, or name another one', null
    ),
    (
        'executor_full', 'executor', 'as many jobs run on its executor as may',
        'wait for one to end, or register it with more slots', null
    ),
    (
        'key_full', 'key', 'as many jobs with its key run as may',
        'wait for one to end, or raise max_running of the key', null
    ),
    (
        'key_rate', 'key', 'its key has used up its rate',
        'wait, or raise the rate of the key', null
    ),
    (
        'circuit_open', 'circuit', 'its circuit is open',
        'wait for it to be tried again, or reset the circuit', null
    ),
    (
        'circuit_probing', 'circuit', 'its circuit is tried out by another job',
        'wait for that job to end, or reset the circuit', null
    ),
    (
        'no_runner', 'task', 'no runner is running',
        'start a runner whose code has the task', null
    ),
    (
        'runner_gone', 'runner', 'its runner is gone without a word', 'start a runner',
        null
    ),
    (
        'disk_full', 'runner', 'the disk is full, and no job is begun until there is room',
        'make room: delete what is not needed, or litejobs purge', null
    ),
    (
        'no_slot', 'runner', 'all threads of the runner are busy',
        'wait for one to be free, or start the runner with more threads', null
    ),
    (
        'turn', 'runner', 'it may run, and waits for its turn',
        'wait, or raise its priority', null
    ),
    (
        'running', 'attempt', 'an attempt of it is running',
        'wait for it to end, or cancel the job', null
    ),
    ('ended', 'job', 'it has done its work', 'requeue it to run it again', null)
)
select code, object, detail, remedy, finding from reason;

-- What has stopped a job? The word in `stopped_by`, the state in which it has left the
-- job, and why: of a dead letter what follows `it failed for good: `.
create view litejobs__stop_reason as
with reason (stopped_by, state, detail) as (
    values
    ('max_attempts', 'dead_lettered', 'all its attempts are used'),
    ('not_retryable', 'dead_lettered', 'what failed is not to be retried'),
    ('rule_attempts', 'dead_lettered', 'its rule allows no more attempts'),
    ('rule_fail', 'dead_lettered', 'a rule says so'),
    ('no_rule', 'dead_lettered', 'no rule says to retry'),
    (
        'retry_budget', 'dead_lettered', 'its next delay is beyond its retry budget'
    ),
    ('retry_budget_expired', 'dead_lettered', 'its retry budget is over'),
    ('max_crashes', 'dead_lettered', 'it crashed too often'),
    ('max_jumps', 'dead_lettered', 'it jumped too often'),
    ('unknown_step', 'dead_lettered', 'its flow has no such step'),
    ('ctx_too_large', 'dead_lettered', 'what it keeps became too large'),
    (
        'parent_failed', 'cancelled',
        'it was cancelled because one that it waited for has failed'
    ),
    (
        'parents_succeeded', 'cancelled',
        'it was for the case that others fail, and they have not'
    ),
    (
        'expired', 'cancelled',
        'it was cancelled because it was not worth running any more'
    )
)
select stopped_by, state, detail from reason;

-- From which state to which can a job go? Besides, an undo puts it back to what it was.
create view litejobs__move as
with move (old_state, new_state) as (
    values
    (null, 'scheduled'), (null, 'pending'),
    ('scheduled', 'pending'), ('scheduled', 'blocked'), ('scheduled', 'cancelled'),
    ('blocked', 'pending'), ('blocked', 'scheduled'), ('blocked', 'cancelled'),
    ('pending', 'scheduled'), ('pending', 'blocked'), ('pending', 'processing'),
    ('pending', 'cancelled'), ('pending', 'dead_lettered'),
    ('processing', 'completed'), ('processing', 'failed'),
    ('processing', 'dead_lettered'), ('processing', 'cancelled'),
    ('processing', 'pending'), ('processing', 'scheduled'),
    ('failed', 'pending'), ('failed', 'cancelled'), ('failed', 'dead_lettered'),
    ('completed', 'pending'), ('dead_lettered', 'pending'), ('cancelled', 'pending'),
    ('cancelled', 'blocked')
)
select old_state, new_state from move;

-- What can happen? The names in litejobs_event.
create view litejobs__event_name as
with event (name, about) as (
    values
    ('task.enqueued', 'stored'),
    ('task.scheduled', 'waits for its time'),
    ('task.blocked', 'waits for other jobs'),
    ('task.pending', 'in line'),
    ('task.attempt.started', 'an attempt has begun'),
    ('task.attempt.done', 'an attempt went well'),
    ('task.attempt.failed', 'an attempt failed'),
    ('policy.task.evaluated', 'what was decided after an attempt'),
    ('task.done', 'completed'),
    ('task.failed', 'dead-lettered'),
    ('task.cancelled', 'cancelled'),
    ('task.cancel_requested', 'asked to stop'),
    ('task.run_now', 'put in line by hand'),
    ('task.requeued', 'put in line again after its end'),
    ('task.late_report', 'its end was reported too late'),
    ('task.outcome_unread', 'a number in its outcome is none, and counts as not said'),
    ('task.undone', 'moved back by an undo'),
    ('task.changed', 'due at another time, or otherwise queued or limited'),
    ('batch.succeeded', 'all of its jobs are completed'),
    ('batch.failed', 'it has ended, and not all of its jobs are completed'),
    ('batch.resumed', 'a job of it that had failed is back in line'),
    ('queue.paused', 'starts no further job'),
    ('queue.open', 'starts jobs again'),
    ('schedule.created', 'runs from now on'),
    ('schedule.changed', 'runs as it says now'),
    ('schedule.paused', 'fires no further instant'),
    ('schedule.resumed', 'fires again'),
    ('schedule.removed', 'runs no more'),
    ('schedule.run_now', 'fired by hand'),
    ('circuit.open', 'lets no attempt through'),
    ('circuit.half_open', 'is tried out'),
    ('circuit.closed', 'lets attempts through again'),
    ('fact.true', 'is so'),
    ('fact.false', 'is not so'),
    ('policy.in_force', 'decides about attempts from now on'),
    ('policy.replaced', 'decides no more'),
    ('jobs.purged', 'deleted by a purge'),
    ('operation.done', 'done by a person'),
    ('operation.undone', 'and undone')
)
select name, about from event;

-- What may be said in `options`: the columns of a specification.
create view litejobs__option as
with option (name) as (
    values
    ('backoff'), ('delay_ms'), ('factor'), ('max_delay_ms'), ('jitter'), ('intervals'),
    ('retry_budget_ms'), ('timeout_ms'), ('max_crashes'), ('max_jumps'),
    ('crash_delay_ms')
)
select name from option;

-- Which numbers does a JSON document say? The one place where they are read: a number
-- may also be a text, since many clients know no other way, and a whole one may have a
-- point. `number` and `whole` are NULL where it says something else: what is asked for
-- is refused then, and what is said of something that has happened counts as not said.
-- `plain` is each element as JSON with its number read; if it is a list, it is one of
-- whole numbers.
--
-- What a client binds is read alike: x = cast(cast(x as numeric) as integer) holds for
-- whole numbers alone, since beside a cast SQLite takes a text for a number.
create view litejobs__json_number as
select
    json as document,
    key,
    type,
    case
        when type = 'integer' or type = 'real' then atom
        when type = 'text' and atom = cast(atom as numeric)
            and abs(cast(atom as numeric)) < 1e308
            then cast(atom as numeric)
    end as number,
    case
        when (type = 'integer' or type = 'real' or type = 'text')
            and atom = cast(cast(atom as numeric) as integer)
            then cast(cast(atom as numeric) as integer)
    end as whole,
    case type
        when 'integer' then atom
        when 'real' then atom
        when 'text' then case
            when atom = cast(atom as numeric) and abs(cast(atom as numeric)) < 1e308
                then cast(atom as numeric)
            else json_quote(atom)
        end
        when 'array' then (
            select json_group_array(
                case
                    when (
                        each.type = 'integer' or each.type = 'real'
                        or each.type = 'text'
                    )
                        and each.atom = cast(cast(each.atom as numeric) as integer)
                        then cast(cast(each.atom as numeric) as integer)
                end
            )
            from json_each(said.value) as each
        )
        when 'object' then value
        else type
    end as plain
from json_each as said;
