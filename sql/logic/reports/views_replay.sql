-- Is each job what is recorded of it?
--
-- Its state and its counts are worked out again: from its birth, from what an attempt
-- was begun with and how it ended, and from the moves that are lines of the log. Each
-- is compared with what was before it, and the row with what comes last. Of a job that
-- was deleted there is nothing left to compare.

-- In which state, and with which counts, does each attempt leave its job? One that is
-- open has not left it yet.
create view litejobs__attempt_leaves as
select
    attempt.id,
    attempt.job_id,
    attempt.start_no,
    attempt.id + attempt.claimed_after as number,
    attempt.ended,
    attempt.finished_at,
    attempt.decision,
    attempt.stopped_by,
    min(attempt.finished_at + coalesce(attempt.delay_ms, 0), 253402300799999) as run_at,
    case
        when attempt.ended is null then 'processing'
        else (select new_state from litejobs__attempt_end where id = attempt.id)
    end as state,
    case
        when attempt.decision = 'continue' or attempt.decision = 'jump' then 0
        when attempt.decision = 'interrupt' or attempt.decision = 'snooze'
            then attempt.attempt - 1
        else attempt.attempt
    end as attempts,
    case
        when attempt.status = 'crashed' then min(attempt.crashes + 1, 1000000000)
        when attempt.decision = 'continue' or attempt.decision = 'jump' then 0
        else attempt.crashes
    end as crashes,
    case
        when attempt.decision = 'continue' or attempt.decision = 'jump' then 0
        when attempt.decision = 'retry' then min(
            attempt.delayed_ms + coalesce(attempt.delay_ms, 0), 9007199254740992
        )
        else attempt.delayed_ms
    end as delayed_ms,
    attempt.jumps + coalesce(attempt.decision = 'jump', 0) as jumps,
    case
        when attempt.decision = 'continue' or attempt.decision = 'jump'
            then attempt.next_step
        else attempt.step
    end as step
from litejobs_attempt as attempt;

-- Each move that is a line of its own, with the state before it as what came before it
-- has left it.
create view litejobs__replayed_line as
select
    line.id as log_id,
    line.at,
    line.job_id,
    line.old_state,
    line.new_state,
    line.note,
    case
        when attempt.ended is null and attempt.id is not null
            or attempt.ended > line.id
            then 'processing'
        when before.id > coalesce(attempt.ended, 0) then before.new_state
        when attempt.id is not null then attempt.state
        when job.birth & 2 = 0
            then case job.birth & 1 when 1 then 'scheduled' else 'pending' end
    end as was
from litejobs_line as line
cross join litejobs_job as job on job.id = line.job_id
left join litejobs__attempt_leaves as attempt on attempt.id = (
    select id from litejobs_attempt
    where job_id = line.job_id and id + claimed_after < line.id
    order by start_no desc limit 1
)
left join litejobs_line as before on before.id = (
    select id from litejobs_line
    where job_id = line.job_id and id < line.id and new_state is not null
    order by id desc limit 1
)
where line.new_state is not null;

-- Each attempt, with what the one before it, and what came between, has left. `reset`
-- says that the counts begin anew since, or that nobody knows. Where older attempts
-- have gone, the first that was kept is where the job begins.
create view litejobs__replayed_attempt as
select
    attempt.id + attempt.claimed_after as log_id,
    attempt.claimed_at as at,
    attempt.job_id,
    attempt.id as attempt_id,
    attempt.start_no,
    attempt.attempt,
    attempt.crashes,
    attempt.delayed_ms,
    attempt.jumps,
    attempt.step,
    prev.id as prev_id,
    prev.ended as prev_ended,
    prev.attempts as was_attempts,
    prev.crashes as was_crashes,
    prev.delayed_ms as was_delayed_ms,
    prev.jumps as was_jumps,
    prev.step as was_step,
    coalesce(
        line.new_state,
        prev.state,
        case
            when job.birth & 2 = 0
                then case job.birth & 1 when 1 then 'scheduled' else 'pending' end
        end
    ) as was,
    (
        select case note when 'by_hand' then 'requeued' else 'unknown' end
        from litejobs_line
        where job_id = attempt.job_id and id > coalesce(prev.number, 0)
        and id < attempt.id + attempt.claimed_after
        and (
            note = 'by_hand'
            and old_state in ('completed', 'dead_lettered', 'cancelled')
            or note = 'undone'
            or note = 'changed' and substr(subject, 1, 6) in (
                -- attempts, crashes, delayed_ms, jumps
                'attemp', 'crashe', 'delaye', 'jumps '
            )
        )
        order by id desc limit 1
    ) as reset
from litejobs_attempt as attempt
cross join litejobs_job as job on job.id = attempt.job_id
left join litejobs__attempt_leaves as prev
    on prev.job_id = attempt.job_id and prev.start_no = attempt.start_no - 1
left join litejobs_line as line on line.id = (
    select id from litejobs_line
    where job_id = attempt.job_id and id > coalesce(prev.ended, 0)
    and id < attempt.id + attempt.claimed_after and new_state is not null
    order by id desc limit 1
)
where not exists (
    select 1 from litejobs_carried
    where job_id = attempt.job_id and start_no >= attempt.start_no
);

-- Each job, with what its last attempt, and what came after that, has left.
create view litejobs__replayed_job as
select
    job.id as job_id,
    max(
        job.id + (job.birth >> 2), coalesce(last.ended, last.number, 0),
        coalesce(line.id, 0)
    ) as log_id,
    job.state,
    job.starts,
    job.attempt_id,
    job.attempts,
    job.crashes,
    job.delayed_ms,
    job.jumps,
    job.step,
    job.finished_at,
    job.stopped_by,
    job.cancel_requested_at,
    job.run_at,
    last.id as last_id,
    coalesce(last.start_no, 0) as was_starts,
    coalesce(last.attempts, 0) as was_attempts,
    coalesce(last.crashes, 0) as was_crashes,
    coalesce(last.delayed_ms, 0) as was_delayed_ms,
    coalesce(last.jumps, 0) as was_jumps,
    last.step as was_step,
    case
        when line.id > coalesce(last.ended, last.number, 0) then line.new_state
        when last.id is not null then last.state
        when job.birth & 2 = 0
            then case job.birth & 1 when 1 then 'scheduled' else 'pending' end
    end as was,
    case when line.id > coalesce(last.ended, last.number, 0) then line.note
        when last.id is not null and last.ended is not null then 'ended'
    end as by,
    case when line.id > coalesce(last.ended, last.number, 0) then line.at
        when last.id is not null then coalesce(last.finished_at, job.created_at)
        else job.created_at
    end as at,
    last.stopped_by as was_stopped_by,
    case when last.decision = 'retry' then last.run_at end as was_run_at,
    last.number as last_number,
    (
        select case note when 'by_hand' then 'requeued' else 'unknown' end
        from litejobs_line
        where job_id = job.id and id > coalesce(last.number, 0)
        and (
            note = 'by_hand'
            and old_state in ('completed', 'dead_lettered', 'cancelled')
            or note = 'undone'
            or note = 'changed' and substr(subject, 1, 6) in (
                -- attempts, crashes, delayed_ms, jumps
                'attemp', 'crashe', 'delaye', 'jumps '
            )
        )
        order by id desc limit 1
    ) as reset
from litejobs_job as job
left join litejobs__attempt_leaves as last on last.id = (
    select id from litejobs_attempt
    where job_id = job.id
    order by start_no desc limit 1
)
left join litejobs_line as line on line.id = (
    select id from litejobs_line
    where job_id = job.id and new_state is not null
    order by id desc limit 1
)
where job.created_at is not null;

-- What is not as it follows from what is recorded before it? The first row of a job, by
-- `log_id`, is where it begins; those after it may only be what follows. `event_id` is
-- the number of that event in litejobs_event, and of a row that differs the last one of
-- its job. It is asked for some jobs after the other, as doctor does.
create view litejobs__replay_difference as
select
    job_id,
    log_id,
    log_id * 4 as event_id,
    at,
    code,
    'job ' || job_id || ' ' || case code
        when 'does_not_follow' then 'was ' || coalesce(was, 'not there yet')
            || ' before event ' || (log_id * 4) || ', by which it goes from '
            || coalesce(old_state, 'nothing') || ' to ' || new_state
            || ': what came between is missing, or was changed'
        when 'no_such_move' then 'goes from ' || coalesce(old_state, 'nothing')
            || ' to ' || new_state || ' by event ' || (log_id * 4)
            || ', and there is no such move'
    end as sentence
from (
    select
        job_id, log_id, at, old_state, new_state, was,
        case
            when old_state is not was then 'does_not_follow'
            when note is not 'undone' and not exists (
                select 1 from litejobs__move as move
                where move.old_state is line.old_state
                and move.new_state = line.new_state
            )
                then 'no_such_move'
        end as code
    from litejobs__replayed_line as line
)
where code is not null
union all
select
    job_id,
    log_id,
    log_id * 4,
    at,
    code,
    'job ' || job_id || ' ' || case code
        when 'attempt_missing' then 'has attempt ' || attempt_id || ' (event '
            || (log_id * 4) || ') as its start ' || start_no || ', and its start '
            || (start_no - 1) || ' is missing'
        when 'attempts_overlap' then 'begins attempt ' || attempt_id || ' with event '
            || (log_id * 4) || ', before attempt ' || prev_id || ' has ended'
        when 'does_not_follow' then 'was ' || was || ' before event ' || (log_id * 4)
            || ', by which its attempt ' || attempt_id
            || ' begins: what came between is missing, or was changed'
        when 'counts_differ' then 'begins attempt ' || attempt_id || ' with event '
            || (log_id * 4) || ' as number ' || attempt || ' of its step'
            || coalesce(' ' || step, '') || ', after ' || crashes || ' crashes, '
            || jumps || ' jumps and ' || delayed_ms
            || ' ms of waiting, and what came before it leads to another count'
    end
from (
    select
        job_id, log_id, at, attempt_id, start_no, prev_id, was, attempt, step, crashes,
        jumps, delayed_ms,
        case
            when start_no > 1 and prev_id is null then 'attempt_missing'
            when prev_id is not null and coalesce(prev_ended > log_id, 1)
                then 'attempts_overlap'
            when was is not 'pending' then 'does_not_follow'
            when reset is 'unknown' then null
            when reset is 'requeued' and (
                attempt <> 1 or crashes <> 0 or delayed_ms <> 0 or jumps <> 0
            )
                then 'counts_differ'
            when reset is null and (
                attempt <> coalesce(was_attempts, 0) + 1
                or crashes <> coalesce(was_crashes, 0)
                or delayed_ms <> coalesce(was_delayed_ms, 0)
                or jumps <> coalesce(was_jumps, 0)
                or was_step is not null and step is not was_step
            )
                then 'counts_differ'
        end as code
    from litejobs__replayed_attempt
)
where code is not null
union all
select
    job_id,
    log_id,
    log_id * 4,
    at,
    'row_differs',
    'job ' || job_id || ' ' || case differs
        when 'state' then 'is ' || state
        when 'starts' then 'has ' || starts || ' starts'
        when 'attempt_id' then 'has '
            || coalesce('attempt ' || attempt_id, 'no attempt') || ' as its last one'
        when 'attempts' then 'has ' || attempts || ' attempts'
        when 'crashes' then 'has ' || crashes || ' crashes'
        when 'delayed_ms' then 'has waited for ' || delayed_ms || ' ms'
        when 'jumps' then 'has ' || jumps || ' jumps'
        when 'step' then 'has ' || coalesce('step ' || step, 'no step')
        when 'finished_at' then coalesce(
            'ended at ' || strftime(
                '%Y-%m-%dT%H:%M:%fZ', finished_at / 1000.0, 'unixepoch'
            ),
            'has no end'
        )
        when 'stopped_by' then 'was stopped by ' || coalesce(stopped_by, 'nothing')
        when 'run_at' then 'is tried again at ' || strftime(
            '%Y-%m-%dT%H:%M:%fZ', run_at / 1000.0, 'unixepoch'
        )
        when 'cancel_requested_at' then 'was '
            || case when cancel_requested_at is null then 'not ' else '' end
            || 'asked to end'
    end || ', and what is recorded up to event ' || (log_id * 4) || ' says '
        || case differs
        when 'state' then coalesce(was, 'nothing')
        when 'starts' then was_starts
        when 'attempt_id' then coalesce('attempt ' || last_id, 'none')
        when 'step' then coalesce(was_step, 'none')
        when 'finished_at' then case
            when was in ('completed', 'dead_lettered', 'cancelled')
                then strftime('%Y-%m-%dT%H:%M:%fZ', at / 1000.0, 'unixepoch')
            else 'none'
        end
        when 'stopped_by' then coalesce(
            case
                when was not in ('completed', 'dead_lettered', 'cancelled') then null
                when by = 'ended' then was_stopped_by
                when by <> 'by_hand' then by
            end,
            'nothing'
        )
        when 'run_at' then strftime(
            '%Y-%m-%dT%H:%M:%fZ', was_run_at / 1000.0, 'unixepoch'
        )
        when 'cancel_requested_at'
            then case when cancel_requested_at is null then 'that it was' else 'no' end
        else case reset when 'requeued' then 0 else case differs
            when 'attempts' then was_attempts
            when 'crashes' then was_crashes
            when 'delayed_ms' then was_delayed_ms
            else was_jumps
        end end
    end
from (
    select
        job_id, log_id, at, state, starts, attempt_id, attempts, crashes, delayed_ms,
        jumps, step, finished_at, stopped_by, run_at, cancel_requested_at, was,
        was_starts, last_id, was_step, by, was_stopped_by, was_run_at, reset,
        was_attempts, was_crashes, was_delayed_ms, was_jumps,
        case
            when state is not was then 'state'
            when starts <> was_starts then 'starts'
            when attempt_id is not last_id then 'attempt_id'
            when reset is null and attempts <> was_attempts
                or reset is 'requeued' and attempts <> 0
                then 'attempts'
            when reset is null and crashes <> was_crashes
                or reset is 'requeued' and crashes <> 0
                then 'crashes'
            when reset is null and delayed_ms <> was_delayed_ms
                or reset is 'requeued' and delayed_ms <> 0
                then 'delayed_ms'
            when reset is null and jumps <> was_jumps
                or reset is 'requeued' and jumps <> 0
                then 'jumps'
            when reset is null and was_step is not null and step is not was_step
                then 'step'
            when by is not 'undone' and finished_at is not case
                when was in ('completed', 'dead_lettered', 'cancelled') then at
            end
                then 'finished_at'
            when was in ('completed', 'dead_lettered', 'cancelled')
                and by is not 'undone'
                and not (was = 'dead_lettered' and by is not 'ended')
                and stopped_by is not case by when 'ended' then was_stopped_by
                    when 'by_hand' then null else by end
                or was not in ('completed', 'dead_lettered', 'cancelled')
                and stopped_by is not null
                then 'stopped_by'
            when state = 'failed' and by = 'ended' and run_at <> was_run_at
                and not exists (
                    select 1 from litejobs_line
                    where job_id = replayed.job_id
                    and note = 'changed' and substr(subject, 1, 4) = 'due '
                )
                then 'run_at'
            when state = 'processing' and (cancel_requested_at is not null) <> (
                (
                    select note from litejobs_line
                    where job_id = replayed.job_id and id > last_number
                    and (note = 'cancel_requested' or note = 'undone')
                    order by id desc limit 1
                ) is 'cancel_requested'
            )
                then 'cancel_requested_at'
        end as differs
    from litejobs__replayed_job as replayed
)
where differs is not null
union all
select
    attempt.job_id, attempt.id + attempt.claimed_after,
    (attempt.id + attempt.claimed_after) * 4, attempt.claimed_at, 'job_missing',
    'job ' || attempt.job_id || ' is missing, and its attempt ' || attempt.id
        || ' is there'
from litejobs_attempt as attempt
where attempt.job_id >= 1
and not exists (select 1 from litejobs_job where id = attempt.job_id)
union all
select
    job_id,
    ended,
    ended * 4,
    coalesce(finished_at, claimed_at),
    'end_differs',
    'job ' || job_id || ' has attempt ' || id || ', which ended with event '
        || (ended * 4) || case differs
        when 'finished_at' then ', and when that was is missing'
        when 'status' then ' as ' || coalesce(status, 'nothing')
            || ', and its outcome says '
            || coalesce(outcome_status, 'nothing')
        when 'decision' then ', and what was decided then is missing'
        when 'will_retry' then ' in ' || decision || ', and is said to be tried again: '
            || case will_retry when 1 then 'yes' when 0 then 'no' else 'unknown' end
        when 'stopped_by' then ' in ' || decision || ', and is said to be stopped by '
            || stopped_by
    end
from (
    select
        id, job_id, ended, finished_at, claimed_at, status, outcome_status, decision,
        will_retry, stopped_by,
        case
            when finished_at is null then 'finished_at'
            when status is not outcome_status then 'status'
            when decision is null then 'decision'
            when will_retry is not (
                decision = 'retry' or decision = 'interrupt' or decision = 'snooze'
            )
                then 'will_retry'
            when stopped_by is not null and (
                decision = 'complete' or decision = 'continue' or decision = 'jump'
                or will_retry
            )
                then 'stopped_by'
        end as differs
    from (
        select
            id, job_id, ended, finished_at, claimed_at, status, decision, will_retry,
            stopped_by,
            case when json_valid(outcome) then outcome ->> '$.status' end
                as outcome_status
        from litejobs_attempt
        where +ended is not null
    )
)
where differs is not null;

-- The same, plain enough for any reader of the file.
create view litejobs_replay_difference as
select
    difference.job_id,
    cast(difference.log_id as integer) as log_id,
    cast(difference.event_id as integer) as event_id,
    cast(difference.at as integer) as at,
    cast(difference.code as text) as code,
    cast(difference.sentence as text) as sentence
from litejobs__replay_difference as difference;

-- Do the counts of the whole file agree with its rows? Each of them is one question.
create view litejobs__replay_count as
select
    null as job_id,
    null as event_id,
    null as at,
    'tally_differs' as code,
    'the file counts ' || tally.jobs || ' jobs up to job ' || tally.upto_id
        || ', and there are ' || found.jobs as sentence
from litejobs_tally as tally
cross join (
    select count(*) as jobs from litejobs_job
    where id <= (select upto_id from litejobs_tally)
) as found
where tally.jobs <> found.jobs
union all
select
    null, last.log_id * 4, null, 'log_runs_ahead',
    'the log has come to event ' || (last.log_id * 4) || ', and the file counts only '
        || (births + claims + others) || ' moves (' || ((births + claims + others) * 4)
        || '): the next ones would have numbers that are given'
from litejobs__mark
cross join (
    select max(
        coalesce((select max(id) from litejobs_line), 0),
        coalesce((select max(ended) from litejobs_attempt where ended is not null), 0)
    ) as log_id
) as last
where last.log_id > births + claims + others;
