-- What happens when something outside is broken?

-- An attempt of a job with a circuit has ended: does it count? With rules, what they
-- say; without, an error or a timeout does, and success speaks for the circuit. Being
-- interrupted, cancelled or taken down with its process says nothing, unless a rule
-- names the crash.
create trigger litejobs__circuit_outcome_is_judged
instead of insert on litejobs__circuit_outcome
begin
    insert into litejobs_circuit (name)
    select job.circuit
    from litejobs_attempt as attempt
    cross join litejobs_job as job on job.id = attempt.job_id
    where attempt.id = new.attempt and job.circuit is not null
    and not exists (select 1 from litejobs_circuit where name = job.circuit);
    insert into litejobs__circuit_count (
        circuit, attempt, failed, threshold, window_ms, cooldown_ms, factor,
        max_cooldown_ms
    )
    select
        job.circuit,
        attempt.id,
        case
            when attempt.status = 'interrupted' or attempt.status = 'cancelled'
                or coalesce(attempt.outcome ->> '$.error.type', '') = 'BadJob'
                then null
            when breaker.policy_id is not null then coalesce(
                (
                    select rule.action = 'fail'
                    from litejobs__match as match
                    cross join litejobs_rule as rule on rule.id = match.rule_id
                    where match.attempt_id = attempt.id
                    and match.policy_id = breaker.policy_id
                ),
                case when attempt.status <> 'crashed' then 0 end
            )
            when attempt.status = 'error' or attempt.status = 'timeout' then 1
            when attempt.status = 'ok' then 0
        end,
        coalesce(breaker.threshold, 5),
        breaker.window_ms,
        coalesce(breaker.cooldown_ms, 30000),
        coalesce(breaker.factor, 2.0),
        coalesce(breaker.max_cooldown_ms, 3600000)
    from litejobs_attempt as attempt
    cross join litejobs_job as job on job.id = attempt.job_id
    left join litejobs_breaker as breaker on breaker.task = job.task
    where attempt.id = new.attempt and job.circuit is not null;
end;

-- A closed circuit counts: in a row, so that success starts again at nothing, or within
-- a time. While it is not closed, only its probe counts.
create trigger litejobs__circuit_count_may_open
instead of insert on litejobs__circuit_count
begin
    delete from litejobs_circuit_failure
    where circuit = new.circuit
    and exists (
        select 1 from litejobs_circuit where name = new.circuit and state = 'closed'
    )
    and (
        new.failed = 0 and new.window_ms is null
        or at <= (select now from litejobs_clock) - new.window_ms
    );
    insert into litejobs_circuit_failure (circuit, attempt_id, at)
    select new.circuit, new.attempt, now
    from litejobs_clock
    where new.failed = 1
    and exists (
        select 1 from litejobs_circuit where name = new.circuit and state = 'closed'
    );
    update litejobs_circuit
    set
        state = 'open',
        opened_at = (select now from litejobs_clock),
        opens = opens + 1,
        cooldown_ms = new.cooldown_ms,
        open_until = min(
            (select now from litejobs_clock) + new.cooldown_ms, 253402300799999
        )
    where name = new.circuit and state = 'closed' and new.failed = 1
    and new.threshold <= (
        select count(*) from litejobs_circuit_failure where circuit = new.circuit
    );
    update litejobs_circuit
    set
        state = case new.failed
            when 1 then 'open'
            when 0 then 'closed'
            else state
        end,
        opened_at = case new.failed
            when 1 then (select now from litejobs_clock)
            else opened_at
        end,
        opens = opens + (new.failed is 1),
        cooldown_ms = case new.failed
            when 1 then cast(min(
                1.0 * coalesce(cooldown_ms, new.cooldown_ms) * new.factor,
                new.max_cooldown_ms
            ) as integer)
            else cooldown_ms
        end,
        open_until = case new.failed
            when 1 then min(
                (select now from litejobs_clock) + cast(min(
                    1.0 * coalesce(cooldown_ms, new.cooldown_ms) * new.factor,
                    new.max_cooldown_ms
                ) as integer),
                253402300799999
            )
            else open_until
        end,
        probe_attempt_id = null
    where name = new.circuit and state <> 'closed' and probe_attempt_id = new.attempt;
end;

-- The state of a circuit has changed, or its probe: its lanes follow. Closed, by a
-- probe or by hand, it has forgotten everything; open, it has no failures to count, and
-- a probe that is still under way does not count any more.
create trigger litejobs_circuit_update_follows
after update of state, open_until, probe_attempt_id on litejobs_circuit
when new.state <> old.state or new.state = 'closed'
or new.open_until is not old.open_until
or new.probe_attempt_id is not old.probe_attempt_id
begin
    select raise(
        abort,
        'invalid_instant: instants are milliseconds since 1970, and open_until would be before March 1973; multiply seconds by a thousand, or give 0 for long ago'
    )
    from litejobs__seconds
    where new.open_until is not old.open_until and new.open_until between 1 and upto
    and coalesce(old.open_until, 0) not between 1 and upto
    and new.origin is not 'clock' and not exists (select 1 from litejobs_undoing);
    delete from litejobs_circuit_failure
    where circuit = new.name and (new.state <> old.state or new.state = 'closed');
    insert into litejobs__transition (at, subject, old_state, new_state, note, origin)
    select now, 'circuit ' || new.name, old.state, new.state, 'circuit', new.origin
    from litejobs_clock
    where new.state <> old.state;
    update litejobs_circuit
    set
        origin = null,
        opened_at = case
            when new.state = 'closed' then null
            when new.state = 'open' then coalesce(
                case when new.opened_at is not old.opened_at then new.opened_at end,
                (select now from litejobs_clock)
            )
            else opened_at
        end,
        open_until = case
            when new.state = 'closed' then null
            when new.state = 'open' and new.open_until is old.open_until then null
            else open_until
        end,
        cooldown_ms = case when new.state <> 'closed' then cooldown_ms end,
        opens = case when new.state <> 'closed' then opens else 0 end,
        probe_attempt_id = case when new.state = 'half_open' then probe_attempt_id end
    where name = new.name and new.state <> old.state;
    insert into litejobs__reopen (circuit)
    select new.name
    where new.state <> old.state or new.open_until is not old.open_until
    or new.probe_attempt_id is not old.probe_attempt_id;
end;

-- The same of one that is made in another state than closed, or whose row is written
-- anew (`insert or replace`): it has forgotten everything.
create trigger litejobs_circuit_insert_follows
after insert on litejobs_circuit
when new.state is not 'closed' or exists (
    select 1 from litejobs_circuit_failure where circuit = new.name
)
or exists (
    select 1 from litejobs_lane
    where circuit = new.name and circuit <> '' and parked and head_id is not null
)
begin
    select raise(
        abort,
        'invalid_instant: instants are milliseconds since 1970, and open_until would be before March 1973; multiply seconds by a thousand, or give 0 for long ago'
    )
    from litejobs__seconds where new.open_until between 1 and upto;
    update litejobs_circuit set state = 'closed'
    where name = new.name and state is null;
    delete from litejobs_circuit_failure where circuit = new.name;
    insert into litejobs__transition (at, subject, old_state, new_state, note, origin)
    select now, 'circuit ' || new.name, 'closed', new.state, 'circuit', new.origin
    from litejobs_clock
    where new.state <> 'closed';
    update litejobs_circuit
    set opened_at = (select now from litejobs_clock), origin = null
    where name = new.name and new.state <> 'closed';
    insert into litejobs__reopen (circuit) values (new.name);
end;

-- One whose row is deleted is forgotten: closed, with nothing counted.
create trigger litejobs_circuit_delete_forgets
after delete on litejobs_circuit
begin
    delete from litejobs_circuit_failure where circuit = old.name;
    insert into litejobs__reopen (circuit) values (old.name);
end;

-- What is so has changed, as somebody says.
create trigger litejobs_fact_insert_is_logged
after insert on litejobs_fact
begin
    insert into litejobs__transition (at, subject, new_state, note, origin)
    select
        now,
        'fact ' || new.name,
        case new.value when 1 then 'true' else 'false' end,
        'fact',
        coalesce(new.origin, 'sql')
    from litejobs_clock;
    update litejobs_fact set origin = null
    where name = new.name and origin is not null;
end;

-- Or it has changed back.
create trigger litejobs_fact_update_is_logged
after update of value on litejobs_fact
when new.value <> old.value
begin
    insert into litejobs__transition (at, subject, old_state, new_state, note, origin)
    select
        now,
        'fact ' || new.name,
        case old.value when 1 then 'true' else 'false' end,
        case new.value when 1 then 'true' else 'false' end,
        'fact',
        coalesce(new.origin, 'sql')
    from litejobs_clock;
    update litejobs_fact set origin = null
    where name = new.name and origin is not null;
end;
