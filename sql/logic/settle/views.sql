-- What follows an attempt?

-- Which policy speaks of this attempt? That of its step, if it has one, or else that of
-- its task: as it is now, not as it was when the job was enqueued.
create view litejobs__judge as
select attempt.id as attempt_id, policy.id as policy_id, policy.otherwise
from litejobs_attempt as attempt
cross join litejobs_job as job on job.id = attempt.job_id
cross join litejobs_policy as policy on policy.task = job.task
where policy.replaced_at is null and policy.purpose = 'retry'
and (
    policy.step = attempt.step
    or policy.step = '' and not exists (
        select 1 from litejobs_policy as own
        where own.task = job.task and own.step = attempt.step
        and own.purpose = 'retry' and own.replaced_at is null
    )
);

-- Which rule of which policy decides? The first one of which a term holds, a term being
-- conditions that all hold.
--
-- A rule without any holds always, but `fail` and `retry` then speak only of attempts
-- that did not succeed.
--
-- The operands of a condition are read first, each once, then compared; `limit -1`
-- keeps SQLite from putting their text in place of each mention. Numbers compare with
-- numbers and texts with texts, anything else does not hold. `in` looks among the
-- elements of an array, the keys of an object, or into a text. lower() is SQLite's,
-- which knows only the letters of ASCII.
--
-- This is done while everybody waits, with documents that a task or a server has
-- written. So whatever they hold, a condition costs no more than to read them: `in`
-- looks at the first 10,000 elements or keys, and so far into a text that no more than
-- 2^26 bytes are compared (1 MiB for what has up to 64 bytes). A long text is looked
-- for among elements by an index of these, since each comparison would copy it.
create view litejobs__match as
select
    attempt.id as attempt_id,
    policy.id as policy_id,
    (
        select rule.id
        from litejobs_rule as rule
        where rule.policy_id = policy.id
        and (attempt.status <> 'crashed' or rule.on_crash)
        and (
            not exists (select 1 from litejobs_condition where rule_id = rule.id)
            and not (
                attempt.status = 'ok'
                and (rule.action = 'fail' or rule.action = 'retry')
            )
            or exists (
                select 1
                from (
                    select distinct term from litejobs_condition
                    where rule_id = rule.id
                ) as any
                where not exists (
                    select 1
                    from (
                        select
                            negated, op, kind, other_kind, other_document, other_path,
                            other_lowered,
                            case
                                when lowered and kind = 'text' then lower(subject)
                                else subject
                            end as subject,
                            case
                                when other_lowered and other_kind = 'text'
                                    then lower(other)
                                else other
                            end as other
                        from (
                            select
                                negated, op, lowered, other_lowered, other_path,
                                other_document,
                                document ->> path as subject,
                                json_type(document, path) as kind,
                                other_document ->> other_path as other,
                                json_type(other_document, other_path) as other_kind
                            from (
                                select
                                    negated, op, path, lowered, other_path,
                                    other_lowered,
                                    case source
                                        when 'outcome' then attempt.outcome
                                        when 'literal' then value
                                        when 'ctx' then case
                                            when json_valid(job.ctx) then job.ctx
                                        end
                                        when 'iter' then case
                                            when json_valid(job.iter) then job.iter
                                        end
                                        when 'attempt' then attempt.attempt
                                        when 'step' then json_quote(attempt.step)
                                    end as document,
                                    case other_source
                                        when 'literal' then other_value
                                        when 'outcome' then attempt.outcome
                                        when 'ctx' then case
                                            when json_valid(job.ctx) then job.ctx
                                        end
                                        when 'iter' then case
                                            when json_valid(job.iter) then job.iter
                                        end
                                        when 'attempt' then attempt.attempt
                                        when 'step' then json_quote(attempt.step)
                                    end as other_document
                                from litejobs_condition
                                where rule_id = rule.id and term = any.term
                                limit -1
                            )
                            limit -1
                        )
                        limit -1
                    )
                    where negated = coalesce(
                        case op
                            when 'eq' then subject is other
                                and coalesce(kind in ('array', 'object'), 0)
                                = coalesce(other_kind in ('array', 'object'), 0)
                            when 'truthy' then case kind
                                when 'text' then subject <> ''
                                when 'array' then subject <> '[]'
                                when 'object' then subject <> '{}'
                                else subject <> 0
                            end
                            when 'in' then case
                                when other_kind = 'text' then kind = 'text' and instr(
                                    case
                                        when length(cast(other as blob))
                                            * length(cast(subject as blob)) <= 67108864
                                            then other
                                        else cast(
                                            substr(
                                                cast(other as blob),
                                                1,
                                                67108864 / length(cast(subject as blob))
                                            ) as text
                                        )
                                    end,
                                    subject
                                ) > 0
                                when other_kind = 'object' then kind = 'text'
                                    and subject in (
                                        select case
                                            when other_lowered then lower(key)
                                            else key
                                        end
                                        from (
                                            select key
                                            from json_each(other_document, other_path)
                                            limit 10000
                                        )
                                    )
                                when other_kind <> 'array' or kind = 'array'
                                    or kind = 'object'
                                    then 0
                                when length(other) <= 20000
                                    and coalesce(length(cast(subject as blob)), 0)
                                        <= 1000
                                    then exists (
                                        select 1
                                        from json_each(other_document, other_path)
                                            as each
                                        where each.type not in ('array', 'object')
                                        and case
                                            when other_lowered and each.type = 'text'
                                                then lower(each.value)
                                            else each.value
                                        end is subject
                                    )
                                when subject is null then exists (
                                    select 1
                                    from (
                                        select type
                                        from json_each(other_document, other_path)
                                        limit 10000
                                    )
                                    where type = 'null'
                                )
                                else subject in (
                                    select case
                                        when other_lowered and type = 'text'
                                            then lower(value)
                                        else value
                                    end
                                    from (
                                        select type, value
                                        from json_each(other_document, other_path)
                                        limit 10000
                                    )
                                    where type <> 'array' and type <> 'object'
                                )
                            end
                            else case
                                when kind = 'text' and other_kind = 'text'
                                    or typeof(subject) in ('integer', 'real')
                                    and typeof(other) in ('integer', 'real')
                                    then case op
                                        when 'lt' then subject < other
                                        when 'le' then subject <= other
                                        when 'gt' then subject > other
                                        when 'ge' then subject >= other
                                    end
                            end
                        end,
                        0
                    )
                )
            )
        )
        order by rule.position
        limit 1
    ) as rule_id
from litejobs_attempt as attempt
cross join litejobs_job as job on job.id = attempt.job_id
cross join litejobs_policy as policy;

-- What does the rule of an open attempt write, as JSON? All of it is read from ctx and
-- iter as they were before. What is not there is null, and so is a sum with something
-- that is not a number, or that is none any more. What is nested too deep does not fit:
-- wrapped in enough brackets, it is not JSON to SQLite any more.
create view litejobs__written as
select
    attempt_id, target, position, path,
    case
        when plus is null then value
        when typeof(number) in ('integer', 'real') and abs(0.0 + number) < 1e308
            then json_quote(number)
    end as value,
    value is null or plus is not null or json_valid(
        replace(hex(zeroblob(940)), '00', '[') || value
        || replace(hex(zeroblob(940)), '00', ']')
    ) as fits
from (
    select
        attempt_id, target, position, path, plus,
        document -> source_path as value,
        case
            when plus is not null
                and typeof(document ->> source_path) in ('integer', 'real')
                then (document ->> source_path) + (plus ->> '$')
        end as number
    from (
        select
            attempt.id as attempt_id,
            change.target,
            change.position,
            change.path,
            change.source_path,
            change.plus,
            case change.source
                when 'literal' then change.value
                when 'outcome' then attempt.outcome
                when 'ctx' then case when json_valid(job.ctx) then job.ctx end
                when 'iter' then case when json_valid(job.iter) then job.iter end
                when 'attempt' then attempt.attempt
            end as document
        from litejobs_attempt as attempt
        cross join litejobs_job as job on job.id = attempt.job_id
        cross join litejobs_rule_change as change on change.rule_id = attempt.rule_id
    )
);

-- The job's ctx and iter after that, NULL where nothing is written. It ends where one
-- has become too large, since then the job is stopped.
create view litejobs__remembered as
select
    attempt.id as attempt_id,
    case when exists (
        select 1 from litejobs_rule_change
        where rule_id = attempt.rule_id and target = 'ctx'
    ) then (
        with recursive result (position, document) as (
            select 0, case when json_valid(job.ctx) then job.ctx else '{}' end
            union all
            select
                written.position,
                case
                    when length(result.document) > 1048576 then result.document
                    when written.fits then json_set(
                        result.document, written.path, json(written.value)
                    )
                    else result.document
                end
            from result
            cross join litejobs__written as written
                on written.attempt_id = attempt.id and written.target = 'ctx'
            where written.position = (
                select min(position) from litejobs_rule_change
                where rule_id = attempt.rule_id and target = 'ctx'
                and position > result.position
            )
        )
        select document from result order by position desc limit 1
    ) end as ctx,
    case when exists (
        select 1 from litejobs_rule_change
        where rule_id = attempt.rule_id and target = 'iter'
    ) then (
        with recursive result (position, document) as (
            select 0, case when json_valid(job.iter) then job.iter else '{}' end
            union all
            select
                written.position,
                case
                    when length(result.document) > 1048576 then result.document
                    when written.fits then json_set(
                        result.document, written.path, json(written.value)
                    )
                    else result.document
                end
            from result
            cross join litejobs__written as written
                on written.attempt_id = attempt.id and written.target = 'iter'
            where written.position = (
                select min(position) from litejobs_rule_change
                where rule_id = attempt.rule_id and target = 'iter'
                and position > result.position
            )
        )
        select document from result order by position desc limit 1
    ) end as iter
from litejobs_attempt as attempt
cross join litejobs_job as job on job.id = attempt.job_id;

-- How long is waited for the next attempt, before jitter, and how long at most with it?
--
-- The first crash is not the task's failure: `crash_delay_ms` is waited then, without
-- jitter (`of_crash`), unless its rule says by itself how long. So it is, where no
-- delay is said, when a coroutine was cancelled, and not by us: that ended it, not its
-- work.
-- Any other wait is that of the attempt's number.
--
-- Powers are by repeated squaring, which saturates instead of failing: anything beyond
-- max_delay, or beyond ten years where there is none, is cut to it.
create view litejobs__backoff as
select
    attempt_id,
    cast(
        min(
            case when of_crash then coalesce(crash_delay_ms, 1000) else wait_ms end,
            most_ms
        ) as integer
    ) as base_ms,
    most_ms,
    of_crash
from (
    select
        attempt.id as attempt_id,
        coalesce(
            case
                when attempt.action = 'jump' then told.delay_ms
                when attempt.action = 'snooze'
                    then coalesce(told.delay_ms, nullif(spec.delay_ms, 0), 60000)
                when told.intervals is not null
                    then max(0, cast(told.intervals ->> (
                        '$[' || (min(
                            attempt.attempt, json_array_length(told.intervals)
                        ) - 1) || ']'
                    ) as integer))
                when spec.intervals is not null
                    and told.backoff is null and told.delay_ms is null
                    then max(0, cast(spec.intervals ->> (
                        '$[' || (min(
                            attempt.attempt, json_array_length(spec.intervals)
                        ) - 1) || ']'
                    ) as integer))
                else coalesce(told.delay_ms, spec.delay_ms, 60000)
                    * case coalesce(told.backoff, spec.backoff, 'exponential')
                        when 'none' then 1.0
                        when 'linear' then attempt.attempt * 1.0
                        else case when attempt.attempt = 1 then 1.0 else (
                            with recursive power (exponent, base, value) as (
                                select
                                    attempt.attempt - 1,
                                    coalesce(told.factor, spec.factor, 2.0),
                                    1.0
                                union all
                                select
                                    exponent >> 1,
                                    base * base,
                                    case
                                        when exponent & 1 then value * base
                                        else value
                                    end
                                from power
                                where exponent > 0
                            )
                            select value from power where exponent = 0
                        ) end
                    end
            end,
            0.0
        ) as wait_ms,
        attempt.action = 'retry' and (
            attempt.status = 'crashed' and job.crashes = 0
            and (
                told.crash_delay_ms is not null
                or told.delay_ms is null and told.backoff is null
                    and told.intervals is null
            )
            or coalesce(
                told.delay_ms, told.backoff, told.intervals,
                spec.delay_ms, spec.backoff, spec.intervals
            ) is null
            and attempt.outcome ->> '$.error.code' = 'cancelled_within'
        ) as of_crash,
        coalesce(told.crash_delay_ms, spec.crash_delay_ms) as crash_delay_ms,
        min(
            case
                when attempt.action = 'retry'
                    then coalesce(told.max_delay_ms, spec.max_delay_ms, 86400000)
                else coalesce(told.max_delay_ms, 315360000000)
            end,
            315360000000
        ) as most_ms
    from litejobs_attempt as attempt
    cross join litejobs_job as job on job.id = attempt.job_id
    left join litejobs_spec as spec on spec.id = job.spec_id
    left join litejobs_rule as rule on rule.id = attempt.rule_id
    left join litejobs_spec as told on told.id = rule.spec_id
);

-- Where between its bounds does the jitter of each attempt fall? `part` is in [0, 1).
--
-- A hash of the file's salt, the job and the number of the start: the same again in a
-- replay, different between attempts, jobs and files. Mixed in 32 bits, so that nothing
-- overflows; exclusive or is (a | b) - (a & b), whose text `limit -1` keeps SQLite from
-- writing four times over. A snooze or a jump has no jitter but that of its rule.
create view litejobs__spread as
select
    attempt.id as attempt_id,
    coalesce(
        told.jitter,
        case attempt.action
            when 'retry' then coalesce(spec.jitter, 0.25)
            else 0.0
        end
    ) as jitter,
    (
        select ((x | (x >> 16)) - (x & (x >> 16))) / 4294967296.0
        from (
            select
                ((((x | (x >> 16)) - (x & (x >> 16))) * 73244475) & 4294967295) as x
            from (
                select
                    ((((x | (x >> 16)) - (x & (x >> 16))) * 73244475) & 4294967295)
                        as x
                from (
                    select
                        (
                            (job.id & 4294967295) * 73244475
                            + (job.id >> 32) * 40503
                            + attempt.start_no * 1540483477
                            + meta.salt
                        ) & 4294967295 as x
                    limit -1
                )
                limit -1
            )
            limit -1
        )
    ) as part
from litejobs_attempt as attempt
cross join litejobs_job as job on job.id = attempt.job_id
cross join litejobs_meta as meta
left join litejobs_spec as spec on spec.id = job.spec_id
left join litejobs_rule as rule on rule.id = attempt.rule_id
left join litejobs_spec as told on told.id = rule.spec_id;

-- What stops an attempt's action, NULL if nothing does, and to which step does it lead?
--
-- Of several reasons the nearest is named: a crash before the limits, retryable before
-- a number of attempts, since it is the stricter, a rule's number before the job's, and
-- attempts before the budget. Only where a crash or another process came between does
-- the budget's instant count; else its sum alone. Runners of one process have the same
-- token.
create view litejobs__verdict as
select
    attempt.id as attempt_id,
    case
        when attempt.status = 'crashed'
            and job.crashes + 1 >= coalesce(spec.max_crashes, 3)
            and (
                attempt.action = 'retry' or attempt.action = 'snooze'
                or attempt.action = 'jump'
            )
            then 'max_crashes'
        when attempt.action = 'fail'
            then case when attempt.rule_id is null then 'no_rule' else 'rule_fail' end
        when length(cast(attempt.ctx as blob)) > 1048576
            or length(cast(attempt.iter as blob)) > 1048576
            or (attempt.ctx is not null or attempt.iter is not null) and exists (
                select 1 from litejobs__written
                where attempt_id = attempt.id and not fits
            )
            then 'ctx_too_large'
        when attempt.action = 'snooze'
            and attempt.outcome ->> '$.retryable' = cast(0 as integer)
            then 'not_retryable'
        when attempt.action = 'retry' then case
            when not coalesce(job.retryable, 1)
                or attempt.outcome ->> '$.retryable' = cast(0 as integer)
                then 'not_retryable'
            when attempt.attempt >= rule.attempts then 'rule_attempts'
            when job.attempts >= coalesce(job.max_attempts, 3) then 'max_attempts'
            when job.retry_budget_expires_at <= (select now from litejobs_clock)
                and (
                    attempt.status = 'crashed'
                    or (
                        select token from litejobs_runner
                        where id = attempt.runner_id
                    ) is not (
                        select token from litejobs_runner
                        where id = job.retry_budget_runner_id
                    )
                )
                then 'retry_budget_expired'
            when job.delayed_ms + attempt.delay_ms > spec.retry_budget_ms
                then 'retry_budget'
        end
        when attempt.action = 'jump' then case
            when job.jumps >= coalesce(spec.max_jumps, 10000) then 'max_jumps'
            when not exists (
                select 1 from litejobs_step
                where task = job.task and label = rule.next_step
            ) then 'unknown_step'
        end
        when attempt.action = 'continue' and attempt.step is not null
            and not exists (
                select 1 from litejobs_step
                where task = job.task and label = attempt.step
            )
            then 'unknown_step'
    end as stopped_by,
    case attempt.action
        when 'jump' then rule.next_step
        when 'continue' then (
            select later.label
            from litejobs_step as here
            cross join litejobs_step as later
                on later.task = here.task and later.position > here.position
            where here.task = job.task and here.label = attempt.step
            order by later.position
            limit 1
        )
    end as next_step
from litejobs_attempt as attempt
cross join litejobs_job as job on job.id = attempt.job_id
left join litejobs_spec as spec on spec.id = job.spec_id
left join litejobs_rule as rule on rule.id = attempt.rule_id;

-- For how long is a job put off whose attempt was given back once more? NULL for most.
--
-- An attempt that was not begun, or that Ctrl-C or a stop of its runner has ended, uses
-- up nothing, so nothing else would end it where that happens each time: the job may be
-- what stops its program, which a service manager starts again. `in_row` counts it, and
-- those just before it: after two the job waits, so that its starts come ever less
-- often. One that has run for as long waits a second, so that it is said. What was
-- claimed ahead, and not begun, is in line again at once.
create view litejobs__left_alone as
select
    attempt.id as attempt_id,
    (
        select max(
            1000,
            (1000 << (in_row - 3))
                - max(0, (select now from litejobs_clock) - attempt.claimed_at)
        )
        from (
            select min(9, attempt.start_no - coalesce(
                (
                    select max(earlier.start_no) from litejobs_attempt as earlier
                    where earlier.job_id = attempt.job_id
                    and earlier.start_no between attempt.start_no - 9
                        and attempt.start_no - 1
                    and earlier.status <> 'interrupted'
                ),
                (
                    select used_no from litejobs_carried
                    where job_id = attempt.job_id
                ),
                0
            )) as in_row
            limit -1
        )
        where in_row > 2
    ) as wait_ms
from litejobs_attempt as attempt
where attempt.status = 'interrupted'
and attempt.outcome ->> '$.error.code' in ('given_back', 'stopped');
