-- What has happened, in one order?
--
-- Most of what happens is in a row already: a job is born when its row comes, an
-- attempt begins when its row comes, and ends when that is closed. Only what is in no
-- such row is a line of its own (litejobs_line). The log is all of these together.
--
-- Its order needs no row that counts births, so that an enqueue writes nothing for it.
-- A number is the sum of three counts, each of which grows by one with each event of
-- its kind: the last job, the last attempt, and all else (`litejobs_meta.logged`). A
-- job and an attempt know one of them, their own id, and store the sum of the other
-- two; an end and a line are found by their whole number. So each event has a higher
-- number than those before it, also of those that one statement inserts. What an
-- application's own trigger does between two rows of one statement may have the number
-- of the next row; both come with the same commit.
--
-- Ids of jobs and attempts grow with their numbers, and at least as slowly: after the
-- number n there are no more than `number - n` of them. By that, and by halving, a
-- reader finds the first that it does not know.

-- What the log has up to now: the births, the claims, and the others. (A last id is
-- found so in two thirds of the time that `max` takes.)
create view litejobs__mark as
select
    coalesce(
        (select id from litejobs_job where id > 0 order by id desc limit 1), 0
    ) as births,
    coalesce(
        (select id from litejobs_attempt where id > 0 order by id desc limit 1), 0
    ) as claims,
    logged as others
from litejobs_meta
where id = 1;

-- What the log says of who made the jobs of a schedule.
create view litejobs__schedule_origin as
select id as schedule_id, substr('schedule ' || name, 1, 200) as origin
from litejobs_schedule;

-- Attempts that have ended, each with the state in which that left its job.
create view litejobs__attempt_end as
select
    id,
    job_id,
    start_no,
    ended,
    finished_at,
    status,
    action,
    rule_id,
    stopped_by,
    step,
    decision,
    cast(case decision
        when 'complete' then 'completed'
        when 'retry' then 'failed'
        when 'dead_letter' then 'dead_lettered'
        when 'cancel' then 'cancelled'
        when 'snooze' then 'scheduled'
        when 'jump' then case when delay_ms > 0 then 'scheduled' else 'pending' end
        when 'interrupt' then case
            when attempt > 1 and retry_budget_expires_at is not null then 'failed'
            else 'pending'
        end
        else 'pending'
    end as text) as new_state
from litejobs_attempt
where ended is not null;

-- The log, one row per event. `place` is where it is found: by the id of its job or its
-- attempt in the streams of that name, else by its number. To read on from a number,
-- ask for places, each stream for its own (log_span); to read about a job, ask for it.
create view litejobs__logged as
select
    cast(id + (birth >> 2) as integer) as id,
    created_at as at,
    id as job_id,
    cast(null as integer) as attempt_id,
    cast(null as text) as old_state,
    cast(case birth & 1 when 1 then 'scheduled' else 'pending' end as text)
        as new_state,
    cast(null as text) as subject,
    cast(null as text) as note,
    birth_origin as origin,
    cast('job' as text) as stream,
    id as place
from litejobs_job
where birth & 2 = 0
union all
select
    cast(id + claimed_after as integer),
    claimed_at,
    job_id,
    id,
    cast('pending' as text),
    cast('processing' as text),
    cast(null as text),
    cast(null as text),
    cast(null as text),
    cast('attempt' as text),
    id
from litejobs_attempt
union all
select
    ended,
    finished_at,
    job_id,
    id,
    cast('processing' as text),
    new_state,
    cast(null as text),
    cast(null as text),
    cast(null as text),
    cast('other' as text),
    ended
from litejobs__attempt_end
union all
select
    id,
    at,
    job_id,
    attempt_id,
    old_state,
    new_state,
    subject,
    note,
    origin,
    cast('other' as text),
    id
from litejobs_line;

-- The same, for whoever asks about one job or looks through all: every move of a job
-- from state to state, and every operation of a person, in the order in which they
-- happened: by id, since clocks step back and milliseconds tie. What is inserted here
-- becomes a line.
create view litejobs__transition as
select
    id, at, job_id, attempt_id, old_state, new_state, subject, note, origin
from litejobs__logged;

-- What was logged since an operation began, which is not long ago, each with the state
-- that it led from; to which one, an end does not say here, but that it did.
create view litejobs__operation_log as
select
    operation.id as operation_id,
    job.id + (job.birth >> 2) as id,
    job.id as job_id,
    null as old_state,
    'pending' as new_state,
    null as note
from litejobs_operation as operation
cross join litejobs__mark as mark
cross join litejobs_job as job on job.id > operation.log_id - mark.claims - mark.others
where job.birth & 2 = 0 and job.id + (job.birth >> 2) > operation.log_id
union all
select
    operation.id,
    attempt.id + attempt.claimed_after,
    attempt.job_id,
    'pending',
    'processing',
    null
from litejobs_operation as operation
cross join litejobs__mark as mark
cross join litejobs_attempt as attempt
    on attempt.id > operation.log_id - mark.births - mark.others
where attempt.id + attempt.claimed_after > operation.log_id
union all
select operation.id, attempt.ended, attempt.job_id, 'processing', 'ended', null
from litejobs_operation as operation
cross join litejobs_attempt as attempt on attempt.ended > operation.log_id
union all
select operation.id, line.id, line.job_id, line.old_state, line.new_state, line.note
from litejobs_operation as operation
cross join litejobs_line as line on line.id > operation.log_id;
