-- What happens when a runner has room for more work?

-- Open an attempt for up to `slots` jobs, in the order of the line.
--
-- A runner that has stopped, or that a later one has replaced, is told so instead of
-- being given work; while the disk is full nothing is begun. What is done seldom is in
-- triggers of its own, since whatever a trigger might do takes up room, which is
-- cleared each time it is begun. Slots are made a number: some clients say text, which
-- is more than any number.
create trigger litejobs_claim_opens_attempts
instead of insert on litejobs_claim
begin
    select raise(
        abort,
        'runner_stopped: this runner has stopped or was replaced by a later one; start a new runner'
    )
    where not exists (
        select 1 from litejobs_runner where id = new.runner and stopped_at is null
    );
    select raise(
        abort,
        'invalid_claim: slots is the room for more attempts, as a whole number; correct it'
    )
    where new.slots <> cast(cast(new.slots as numeric) as integer);
    update litejobs_runner
    set seen_at = (select now from litejobs_clock)
    where id = new.runner and seen_at < (select now from litejobs_clock);
    insert into litejobs__wake (runner) values (new.runner);
    insert into litejobs__claim_line (runner, slots, last, few)
    values (
        new.runner,
        case
            when exists (select 1 from litejobs_space where disk_full_at is not null)
                then 0
            else max(coalesce(cast(cast(new.slots as numeric) as integer), 0), 0)
        end,
        (select coalesce(max(id), 0) from litejobs_attempt),
        (
            select few.jobs
            from litejobs__few as few
            where few.jobs is not null and coalesce(
                (select threads from litejobs_runner where id = new.runner)
                    - (select attempts from litejobs__in_threads)
                    >= min(cast(cast(new.slots as numeric) as integer), few.jobs),
                1
            )
        )
    );
    insert into litejobs__close_tiers (runner) values (new.runner);
end;

-- A runner with executors tells the room of each, which counts: more of its slots may
-- be taken than there are attempts open, by what was settled and does not end. Of those
-- that it does not name nothing is known, and none is claimed.
--
-- Where no job of an executor may start, that is a claim as any other, ahead and all.
create trigger litejobs__claim_room_is_told
instead of insert on litejobs__claim_room
begin
    select raise(
        abort,
        'runner_stopped: this runner has stopped or was replaced by a later one; start a new runner'
    )
    where not exists (
        select 1 from litejobs_runner where id = new.runner and stopped_at is null
    );
    select raise(
        abort,
        'invalid_room: executors is the room of each by name, as a JSON object of whole numbers'
    )
    where case
        when json_valid(new.executors)
            then json_type(new.executors) <> 'object' or exists (
                select 1 from json_each(new.executors) where type <> 'integer'
            )
        else 1
    end;
    update litejobs_runner
    set seen_at = (select now from litejobs_clock)
    where id = new.runner and seen_at < (select now from litejobs_clock);
    insert into litejobs__wake (runner) select new.runner from litejobs__waking;
    update litejobs_executor
    set held = slots - told.room - told.running
    from (
        select
            gate.name, gate.running,
            max(0, min(coalesce(room.value, 0), 1000000)) as room
        from litejobs__executor_gate as gate
        left join json_each(new.executors) as room on room.key = gate.name
    ) as told
    where litejobs_executor.name = told.name
    and held <> slots - told.room - told.running;
    insert into litejobs__claim_apart (runner, slots, most, last)
    values (
        new.runner,
        case
            when exists (select 1 from litejobs_space where disk_full_at is not null)
                then 0
            else max(coalesce(new.slots, 0), 0)
        end,
        case
            when exists (select 1 from litejobs_space where disk_full_at is not null)
                then 0
            else max(cast(new.most as integer), 0)
        end,
        (select coalesce(max(id), 0) from litejobs_attempt)
    );
end;

-- First what can be claimed many at a time, and then what may still start: that is a
-- claim as any other, if no more jobs of executors are among it. Where none without an
-- executor may start, no slot is free for one, and the rest of that claim is spared.
create trigger litejobs__claim_apart_goes_on
instead of insert on litejobs__claim_apart
begin
    insert into litejobs__claim_apart_many (
        runner, slots, most, room, may_be_more, last
    )
    select
        new.runner,
        new.slots,
        coalesce(new.most, room.sum),
        coalesce(min(room.most, new.most), room.most),
        coalesce(new.most < room.sum + new.slots, 0),
        new.last
    from (
        select sum(room) as sum, max(room) as most
        from litejobs__executor_gate where is_open
    ) as room
    where room.sum > 0 and new.most is not 0;
    insert into litejobs__claim_told (runner, slots, most, is_mixed)
    select
        new.runner,
        case
            when exists (select 1 from litejobs__candidate where job_id is not null)
                then coalesce(min(new.slots, most.left), new.slots)
            else 0
        end,
        most.left,
        coalesce(most.left > 0, 1)
        and exists (select 1 from litejobs__candidate_apart where job_id is not null)
    from (
        select
            new.most - (select count(*) from litejobs_attempt where id > new.last)
                as left
    ) as most;
end;

-- Of each executor all of whose jobs in line are ungated, as many start as it has room
-- for, in the order of the line: that closes no gate but its own, so they are those
-- that would start one by one. Where there is room for more than `most`, no other job
-- may be among these in the line.
create trigger litejobs__claim_apart_many_takes_them
instead of insert on litejobs__claim_apart_many
when not new.may_be_more
or not (
    exists (select 1 from litejobs__apart_gated)
    or new.slots > 0
    and exists (select 1 from litejobs__candidate where job_id is not null)
)
begin
    insert into litejobs_attempt (
        job_id, start_no, attempt, step, runner_id, claimed_at, deadline_at,
        crashes, delayed_ms, jumps, retry_budget_expires_at, first_ctx, first_iter,
        claimed_after
    )
    select
        start.job_id, start.start_no, start.attempt, start.step, new.runner,
        start.claimed_at, start.deadline_at, start.crashes, start.delayed_ms,
        start.jumps, start.retry_budget_expires_at, start.first_ctx, start.first_iter,
        (select births + others from litejobs__mark)
    from (
        select
            job.id,
            gate.room,
            row_number() over (
                partition by gate.name order by job.priority desc, job.run_at, job.id
            ) as n
        from litejobs__executor_gate as gate
        cross join litejobs__apart_gate as base on base.executor = gate.name
        cross join litejobs__queue_gate as queue on queue.queue = base.queue
        cross join litejobs_job as job
        where gate.is_open
        and not exists (
            select 1 from litejobs__apart_gated where executor = gate.name
        )
        and exists (select 1 from litejobs__ready where lane_id = base.lane_id)
        and queue.is_open and base.is_open
        and job.id in (
            select first.id
            from litejobs__ready as first
            where first.lane_id = base.lane_id
            order by first.priority desc, first.run_at, first.id
            limit new.room
        )
        and coalesce(job.expires_at > (select now from litejobs_clock), 1)
    ) as next
    cross join litejobs__start as start on start.job_id = next.id
    where next.n <= next.room
    order by start.priority desc, start.run_at, start.job_id
    limit new.most;
    insert into litejobs_placement (attempt_id, executor)
    select attempt.id, lane.executor
    from litejobs_attempt as attempt
    cross join litejobs_job as job on job.id = attempt.job_id
    cross join litejobs_lane as lane on lane.id = job.lane_id
    where attempt.id > new.last;
end;

-- No job of an executor may start any more.
create trigger litejobs__claim_told_claims
instead of insert on litejobs__claim_told
when not new.is_mixed and new.slots > 0
begin
    insert into litejobs_claim (runner, slots) values (new.runner, new.slots);
end;

-- Nor any other, since there is no thread for one.
create trigger litejobs__claim_told_closes_tiers
instead of insert on litejobs__claim_told
when not new.is_mixed and new.slots <= 0
begin
    insert into litejobs__close_tiers (runner) values (new.runner);
end;

-- One of an executor may: all are claimed one by one, in the order of the line, as long
-- as there is room for any; without an executor no more than there are threads free.
create trigger litejobs__claim_told_goes_one_by_one
instead of insert on litejobs__claim_told
when new.is_mixed
begin
    insert into litejobs__claim_mixed (runner, n, last, slots)
    select
        new.runner, slot.n, (select coalesce(max(id), 0) from litejobs_attempt),
        slot.threads
    from (
        with recursive numbers (n, threads, executors) as (
            select
                1,
                max(0, min(
                    new.slots,
                    coalesce(
                        (select threads from litejobs_runner where id = new.runner)
                            - (select attempts from litejobs__in_threads),
                        new.slots
                    )
                )),
                (select sum(max(room, 0)) from litejobs__executor_gate)
            union all
            select n + 1, threads, executors from numbers
            where n < threads + executors and n < coalesce(new.most, n + 1)
        )
        select n, threads from numbers
        where n <= threads + executors and n <= coalesce(new.most, n)
    ) as slot;
    insert into litejobs__close_tiers (runner)
    select new.runner
    where exists (select 1 from litejobs_tier where taken > 0 and taken < at_most);
end;

-- One more, for a thread or an executor. Once nothing was found, the rest stays free.
create trigger litejobs__claim_mixed_takes_the_next
instead of insert on litejobs__claim_mixed
when new.n = 1
or (select coalesce(max(id), 0) from litejobs_attempt) >= new.last + new.n - 1
begin
    insert into litejobs__claim_job (runner, job)
    select new.runner, next.job_id
    from litejobs__next_mixed as next
    where next.with_threads = (
        new.slots > (
            select count(*)
            from litejobs_attempt
            where id > new.last
            and id not in (select attempt_id from litejobs_placement)
        )
    );
    insert into litejobs_placement (attempt_id, executor)
    select attempt.id, lane.executor
    from (select max(id) as id from litejobs_attempt) as newest
    cross join litejobs_attempt as attempt on attempt.id = newest.id
    cross join litejobs_job as job on job.id = attempt.job_id
    cross join litejobs_lane as lane on lane.id = job.lane_id
    where attempt.id > new.last and lane.executor <> ''
    and not exists (select 1 from litejobs_placement where attempt_id = newest.id);
end;

-- A claim of n is n claims of one. But ungated jobs that come before the first
-- other one are claimed in one statement: their starts close no gate. What has been
-- claimed so far are the attempts behind the last one; their numbers have gaps where
-- the newest were deleted. Whatever looks through the line is in a trigger of its own,
-- or all that it reads would stay open while the rest is claimed.
create trigger litejobs__claim_before_takes_many
instead of insert on litejobs__claim_before
begin
    insert into litejobs__claim_ungated (runner, slots, ungated_end)
    values (new.runner, new.slots, new.ungated_end);
    insert into litejobs__claim_behind (runner, slots, ungated_end)
    values (
        new.runner,
        new.slots - (select count(*) from litejobs_attempt where id > new.last),
        new.ungated_end
    );
end;

-- The first job that is not ungated is the first gated one, too, if it is not counted:
-- then that is not looked for.
create trigger litejobs__claim_behind_finds_gated
instead of insert on litejobs__claim_behind
when new.slots > 0 and new.ungated_end is not null
begin
    insert into litejobs__claim_counted (
        runner, slots, ungated_end, first_gated, last
    )
    values (
        new.runner,
        new.slots,
        new.ungated_end,
        case
            when exists (
                select 1
                from litejobs_job as job
                cross join litejobs_lane as lane on lane.id = job.lane_id
                cross join litejobs__queue_gate as queue on queue.queue = lane.queue
                cross join litejobs__own_gate as own on own.lane_id = lane.id
                where job.id = new.ungated_end
                and queue.ungated and lane.tier_id = 0 and lane.base_id is not null
                and own.counted
            )
                then (select job_id from litejobs__first_gated)
            else new.ungated_end
        end,
        (select coalesce(max(id), 0) from litejobs_attempt)
    );
end;

-- Each of their lanes offers its first `slots` jobs from the index, so the cost follows
-- the slots and the lanes, not the jobs in line. A lane whose first job has expired
-- waits for the tick that removes it.
create trigger litejobs__claim_ungated_takes_many
instead of insert on litejobs__claim_ungated
begin
    insert into litejobs_attempt (
        job_id, start_no, attempt, step, runner_id, claimed_at, deadline_at,
        crashes, delayed_ms, jumps, retry_budget_expires_at, first_ctx, first_iter,
        claimed_after
    )
    select
        start.job_id, start.start_no, start.attempt, start.step, new.runner,
        start.claimed_at, start.deadline_at, start.crashes, start.delayed_ms,
        start.jumps, start.retry_budget_expires_at, start.first_ctx, start.first_iter,
        (select births + others from litejobs__mark)
    from (select 1) as one
    left join litejobs_job as other on other.id = new.ungated_end
    left join litejobs_queue as behind on behind.name = other.queue
    cross join litejobs__queue_gate as queue
    cross join litejobs__base_gate as base on base.queue = queue.queue
    cross join litejobs__start as start
    where queue.ungated and queue.is_open
    and base.tier_id = 0
    and exists (select 1 from litejobs__ready where lane_id = base.lane_id)
    and base.is_open
    and start.job_id in (
        select first.id
        from litejobs__ready as first
        where first.lane_id = base.lane_id
        order by first.priority desc, first.run_at, first.id
        limit new.slots
    )
    and coalesce(start.expires_at > start.claimed_at, 1)
    and (
        new.ungated_end is null
        or (-start.priority, start.run_at, start.job_id) < (
            -(
                other.priority + coalesce(
                    1.0 * (start.claimed_at - other.run_at) / behind.aging_ms, 0
                )
            ),
            other.run_at,
            other.id
        )
    )
    order by start.priority desc, start.run_at, start.job_id
    limit new.slots;
end;

-- Next come jobs whose start closes no gate but the limit of their key, and then what
-- is left, one by one. Where none was counted, the first of those is known.
create trigger litejobs__claim_counted_goes_on
instead of insert on litejobs__claim_counted
begin
    insert into litejobs__claim_merged (runner, slots, ungated_end, first_gated)
    values (new.runner, new.slots, new.ungated_end, new.first_gated);
    insert into litejobs__claim_rest (runner, slots, first)
    values (
        new.runner,
        new.slots - (select count(*) from litejobs_attempt where id > new.last),
        case when new.first_gated is new.ungated_end then new.first_gated end
    );
end;

-- Lanes are merged, one job after the other, in the order of the line: of those below a
-- base lane no more than there are slots; of a key, with all its lanes, no more jobs
-- than it has room for. The first job that is neither ungated nor counted ends it,
-- below a base lane or as `first_gated`.
create trigger litejobs__claim_merged_takes_many
instead of insert on litejobs__claim_merged
when new.first_gated is not new.ungated_end
begin
    insert into litejobs_attempt (
        job_id, start_no, attempt, step, runner_id, claimed_at, deadline_at,
        crashes, delayed_ms, jumps, retry_budget_expires_at, first_ctx, first_iter,
        claimed_after
    )
    select
        start.job_id, start.start_no, start.attempt, start.step, new.runner,
        start.claimed_at, start.deadline_at, start.crashes, start.delayed_ms,
        start.jumps, start.retry_budget_expires_at, start.first_ctx, start.first_iter,
        (select births + others from litejobs__mark)
    from (
        select
            job_id,
            room,
            row_number() over (
                partition by key order by priority desc, run_at, job_id
            ) as n,
            sum(not many) over (
                order by priority desc, run_at, job_id
                rows between unbounded preceding and current row
            ) as ended
        from (
            with recursive merged (job_id, priority, run_at, key, many, room, n) as (
                select
                    job.id, job.priority, job.run_at, lane.concurrency_key,
                    lane.base_id is null
                    or (select counted from litejobs__own_gate where lane_id = lane.id),
                    (select room from litejobs__own_gate where lane_id = lane.id),
                    1
                from litejobs__queue_gate as queue
                cross join litejobs__base_gate as base on base.queue = queue.queue
                cross join litejobs_lane as lane on lane.id in (
                    select base.lane_id
                    union all
                    select id
                    from (
                        select below.id
                        from litejobs_lane as below
                        where below.base_id = base.lane_id
                        and below.head_id is not null and below.parked = 0
                        and (
                            select is_open from litejobs__own_gate
                            where lane_id = below.id
                        )
                        order by
                            below.head_priority desc, below.turn, below.head_at,
                            below.head_id
                        limit new.slots
                    )
                )
                cross join litejobs_job as job on job.id = case
                    when lane.base_id is not null then lane.head_id
                    else (select head_id from litejobs__head where lane_id = lane.id)
                end
                where queue.ungated and queue.is_open
                and base.tier_id = 0
                and (
                    exists (select 1 from litejobs__ready where lane_id = base.lane_id)
                    or exists (
                        select 1 from litejobs_lane
                        where base_id = base.lane_id and head_id is not null
                        and parked = 0
                    )
                )
                and base.is_open
                union all
                select
                    next.id, next.priority, next.run_at, merged.key, merged.many,
                    merged.room, merged.n + 1
                from merged
                cross join litejobs__follower as follower
                    on follower.job_id = merged.job_id
                cross join litejobs_job as next on next.id = follower.next_id
                where coalesce(merged.n < merged.room, 1)
                order by 2 desc, 3, 1
                limit new.slots
            )
            select job_id, priority, run_at, key, many, room from merged
        )
    ) as merged
    cross join litejobs__start as start on start.job_id = merged.job_id
    left join litejobs_job as first_gated on first_gated.id = new.first_gated
    left join litejobs_queue as behind on behind.name = first_gated.queue
    where merged.ended = 0 and coalesce(merged.n <= merged.room, 1)
    and coalesce(start.expires_at > start.claimed_at, 1)
    and (
        new.first_gated is null
        or (-start.priority, start.run_at, start.job_id) < (
            -(
                first_gated.priority + coalesce(
                    1.0 * (start.claimed_at - first_gated.run_at) / behind.aging_ms, 0
                )
            ),
            first_gated.run_at,
            first_gated.id
        )
    )
    order by start.priority desc, start.run_at, start.job_id;
end;

-- A runner that has more slots than threads claims ahead. What uses up a rate, a tier
-- or a circuit's patience is claimed only if a thread is free for it.
create trigger litejobs__claim_rest_goes_one_by_one
instead of insert on litejobs__claim_rest
when new.slots > 0
begin
    insert into litejobs__claim_one (runner, n, last, first)
    select
        new.runner, slot.n, (select coalesce(max(id), 0) from litejobs_attempt),
        new.first
    from (
        with recursive numbers (n) as (
            select 1
            union all
            select n + 1 from numbers where n < new.slots
        )
        select n from numbers
        where n <= new.slots
    ) as slot
    where slot.n <= coalesce(
        (select threads from litejobs_runner where id = new.runner)
            - (select attempts from litejobs__in_threads),
        new.slots
    );
end;

-- A tier of which nothing more can start has had its share. Seldom is there one: what
-- looks for that is in a trigger of its own.
create trigger litejobs__close_tiers_where_there_are
instead of insert on litejobs__close_tiers
when exists (select 1 from litejobs_tier where taken > 0 and taken < at_most)
begin
    insert into litejobs__close_begun_tiers (runner) values (new.runner);
end;

-- The work of it.
create trigger litejobs__close_begun_tiers_that_are_through
instead of insert on litejobs__close_begun_tiers
begin
    update litejobs_tier
    set taken = at_most
    where taken > 0 and taken < at_most
    and next_at > (select now from litejobs_clock)
    and not exists (
        select 1 from litejobs__candidate as candidate
        where candidate.tier_id = litejobs_tier.id and candidate.job_id is not null
    )
    and not exists (
        select 1 from litejobs__candidate_apart as candidate
        where candidate.tier_id = litejobs_tier.id and candidate.job_id is not null
    );
end;

-- One more. Once nothing was found, the rest of the slots stay free: then the number of
-- the last attempt lags behind.
create trigger litejobs__claim_one_takes_the_next
instead of insert on litejobs__claim_one
when new.n = 1
or (select coalesce(max(id), 0) from litejobs_attempt) >= new.last + new.n - 1
begin
    insert into litejobs__claim_job (runner, job)
    values (
        new.runner,
        case
            when new.n = 1 and new.first is not null then new.first
            else (select job_id from litejobs__next)
        end
    );
end;
