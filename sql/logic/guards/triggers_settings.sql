-- What is refused of all that stands beside the jobs?

-- NULL is not said, and the default holds, but for a statement with an `or` clause.
create trigger litejobs__take_null_tries
instead of insert on litejobs__take_null
begin
    insert into litejobs_null (
        name, is_refused_with_an_or_clause_give_it_or_leave_it_out
    )
    values ('a column', new.value);
    select raise(
        abort,
        'null_refused: with an or clause SQLite drops a row that has NULL where there must be a value; give it, leave out what has a default, or insert without the clause'
    )
    where not exists (select 1 from litejobs_null);
    delete from litejobs_null;
end;

-- Options are what they are: jobs point at them. Only their text is made, once.
create trigger litejobs_spec_update_guard
before update on litejobs_spec
when old.text is not null or new.id <> old.id
or exists (select 1 from litejobs_spec where text = new.text and id <> old.id)
begin
    select raise(
        abort,
        'immutable_spec: options that are in use do not change; set the options of the job, the task or the schedule'
    );
end;

-- And it says what the columns say.
create trigger litejobs_spec_text_guard
after update on litejobs_spec
when new.text is not (select doc from litejobs__spec_text where spec_id = new.id)
begin
    select raise(
        abort,
        'immutable_spec: the text of options is made by the database; leave it out'
    );
end;

-- It is so from the beginning: `insert or replace` would write over another one.
create trigger litejobs_spec_insert_guard
before insert on litejobs_spec
when new.text is not null or new.id is null or new.id > 9007199254740992
or exists (select 1 from litejobs_spec where id = new.id)
begin
    select raise(
        abort,
        'immutable_spec: options are numbered by the database, and their text is made by it; set the options of the job, the task or the schedule'
    );
end;

-- What words lead to is found once, and does not change. It is what they say over what
-- was said before: else a row of another client would change what jobs are asked for.
create trigger litejobs_wording_insert_guard
before insert on litejobs_wording
when exists (
    select 1 from litejobs_wording where base_id = new.base_id and said = new.said
)
or new.base_id <> 0
    and not exists (select 1 from litejobs_spec where id = new.base_id)
or new.spec_id is not null
    and not exists (select 1 from litejobs_spec where id = new.spec_id)
or case when json_valid(new.said) then exists (
    select 1
    from (
        select json_patch(
            case
                when coalesce(new.said ->> '$.backoff', new.said ->> '$.delay_ms')
                    is not null
                    then json_remove(base.text, '$.intervals')
                else base.text
            end,
            (
                select json_group_object(key, json(plain)) from litejobs__json_number
                where document = new.said
            )
        ) as merged
        from (
            select coalesce(
                (select text from litejobs_spec where id = new.base_id), '{}'
            ) as text
        ) as base
        limit -1
    ) as words
    cross join litejobs__option as option
    where words.merged ->> option.name is not (
        select doc ->> option.name from litejobs__spec_text
        where spec_id = new.spec_id
    )
) else 1 end
begin
    select raise(
        abort,
        'immutable_spec: what words lead to is found by the database; set the options of a job, task or schedule'
    );
end;

-- Nor later.
create trigger litejobs_wording_update_guard
before update on litejobs_wording
begin
    select raise(
        abort,
        'immutable_spec: what words lead to is found by the database; set the options of a job, task or schedule'
    );
end;

-- A lane that is there is not made again; `insert or replace` would renumber it. A new
-- one is empty, and a base lane, or below the one that it belongs to; and its queue is
-- there, since a new job goes into a lane without a look at it.
create trigger litejobs_lane_insert_guard
before insert on litejobs_lane
begin
    select raise(ignore)
    where exists (
        select 1 from litejobs_lane where id = new.id
    )
    or exists (
        select 1 from litejobs_lane
        where queue = new.queue and task = new.task and requires = new.requires
        and tier_id = new.tier_id and retries = new.retries
        and concurrency_key = new.concurrency_key
        and concurrency_limit = new.concurrency_limit and circuit = new.circuit
        and misfit = new.misfit
    );
    select raise(abort, 'immutable_lane: lanes are kept by the database')
    where new.head_id is not null or new.parked <> 0 or new.id > 9007199254740992
    or not exists (select 1 from litejobs_queue where name = new.queue)
    or new.executor <> coalesce(
        (select nullif(executor, 'asyncio') from litejobs_task where name = new.task),
        (select executor from litejobs_queue where name = new.queue),
        (select executor from litejobs_task where name = new.task),
        ''
    )
    or new.concurrency_key = '' and new.circuit = ''
        and (new.base_id is not null or new.concurrency_limit <> 0)
    or (new.concurrency_key <> '' or new.circuit <> '') and not exists (
        select 1 from litejobs_lane
        where id = new.base_id and base_id is null
        and queue = new.queue and task = new.task and requires = new.requires
        and tier_id = new.tier_id and retries = new.retries and misfit = new.misfit
    );
end;

-- A lane does not change: its jobs lie in it by its number. Its first job is its first
-- job, and it is parked only while its rate or its circuit is closed.
create trigger litejobs_lane_update_guard
before update on litejobs_lane
when new.id <> old.id or new.queue <> old.queue or new.task <> old.task
or new.requires <> old.requires or new.tier_id <> old.tier_id
or new.retries <> old.retries or new.concurrency_key <> old.concurrency_key
or new.concurrency_limit <> old.concurrency_limit or new.circuit <> old.circuit
or new.base_id is not old.base_id or new.misfit <> old.misfit
or new.head_id is not old.head_id and new.head_id is not (
    select head_id from litejobs__head where lane_id = old.id
)
or new.parked <> old.parked and new.parked is not (
    select parked from litejobs__parking where lane_id = old.id
)
begin
    select raise(abort, 'immutable_lane: lanes are kept by the database');
end;

-- Its executor is that of its task, or else of its queue.
create trigger litejobs_lane_update_of_executor_guard
before update of executor on litejobs_lane
when new.executor <> old.executor and new.executor <> (
    select executor from litejobs__lane_executor where lane_id = old.id
)
begin
    select raise(abort, 'immutable_lane: lanes are kept by the database');
end;

-- A lane goes only when no job is in it, and a base lane after those below it. Those of
-- a queue and a task alone are not indexed; but a queue that has gone has no jobs.
create trigger litejobs_lane_delete_guard
before delete on litejobs_lane
when case
    when old.misfit <> '' then exists (
        select 1 from litejobs_misfit as held
        cross join litejobs_job as job on job.id = held.job_id
        where held.signature = old.misfit and job.lane_id = old.id
    )
    when old.concurrency_key = '' and old.circuit = '' and old.requires = ''
        then exists (select 1 from litejobs_queue where name = old.queue)
            and exists (select 1 from litejobs_job where lane_id = old.id)
    else exists (
        select 1 from litejobs_job
        where lane_id = old.id
        and (
            concurrency_key is not null or circuit is not null or requires is not null
        )
    )
end
or old.base_id is null and exists (
    select 1 from litejobs_lane
    where queue = old.queue and task = old.task and requires = old.requires
    and tier_id = old.tier_id and retries = old.retries and misfit = old.misfit
    and base_id = old.id
)
begin
    select raise(abort, 'immutable_lane: lanes are kept by the database');
end;

-- Runners are numbered by the database.
create trigger litejobs_runner_insert_guard
before insert on litejobs_runner
when new.token is null or new.plans is null or new.stuck is null
or new.id > 9007199254740992
or exists (select 1 from litejobs_runner where id = new.id)
begin
    insert into litejobs__take_null (value)
    select null where new.token is null or new.plans is null or new.stuck is null;
    select raise(
        abort,
        'immutable_runner: runners are numbered by the database; leave the id out'
    )
    where new.id > 9007199254740992
    or exists (select 1 from litejobs_runner where id = new.id);
end;

-- The last instant that a runner saw is an instant, and one that has stopped is over:
-- its attempts have been settled, and another one may run. Its number is also called
-- rowid, so no column is named here.
create trigger litejobs_runner_update_guard
before update on litejobs_runner
when new.id <> old.id or new.seen_at not between 0 and 253402300799999
or new.token is not old.token
or old.stopped_at is not null and new.stopped_at is null
begin
    select raise(
        abort,
        'immutable_runner: id and seen_at are kept by the database, and a runner that has stopped stays so; leave them out'
    );
end;

-- A runner that lives is stopped, not deleted.
create trigger litejobs_runner_delete_guard
before delete on litejobs_runner
when old.stopped_at is null
begin
    select raise(
        abort,
        'immutable_runner: a living runner cannot be deleted; set its stopped_at, or end its process'
    );
end;

-- So are standbys: by its number each has a lock.
create trigger litejobs_standby_insert_guard
before insert on litejobs_standby
when new.id > 9007199254740992
or exists (select 1 from litejobs_standby where id = new.id)
begin
    select raise(
        abort,
        'immutable_standby: standbys are numbered by the database; leave the id out'
    );
end;

-- And they keep their numbers, by all their names.
create trigger litejobs_standby_update_guard
before update on litejobs_standby
when new.id <> old.id
begin
    select raise(
        abort,
        'immutable_standby: a standby keeps its number; delete it if its process has ended'
    );
end;

-- Without its row about itself a file could not be opened again.
create trigger litejobs_meta_delete_guard
before delete on litejobs_meta
begin
    select raise(
        abort,
        'immutable_meta: this row says what the file is; leave it'
    );
end;

-- Without its row no clock would be believed, and nothing would go by its age.
create trigger litejobs_clock_watch_delete_guard
before delete on litejobs_clock_watch
begin
    select raise(
        abort,
        'immutable_clock_watch: this row says whether the clock is believed; leave it, and say in litejobs_retention what is kept for ever'
    );
end;

-- A queue is the one that jobs and tasks name.
create trigger litejobs_queue_update_guard
before update of name on litejobs_queue
when new.name <> old.name
begin
    select raise(
        abort,
        'immutable_queue: a queue keeps its name; set the queue of its waiting jobs and its tasks to another one'
    );
end;

-- Where jobs lie, also such that have ended, their queue stays: without it they would
-- wait for ever. That walks through all jobs; who removes a queue is a person.
create trigger litejobs_queue_delete_guard
before delete on litejobs_queue
when exists (select 1 from litejobs_job where queue = old.name)
begin
    select raise(
        abort,
        'immutable_queue: a queue that has jobs is kept, also if they have ended; update what is to be changed, or purge its jobs first'
    );
end;

-- A key is what its jobs name.
create trigger litejobs_key_update_guard
before update of key on litejobs_key
when new.key <> old.key
begin
    select raise(
        abort,
        'immutable_key: a key keeps its name; set the concurrency_key of its waiting jobs to another one'
    );
end;

-- So is a circuit, and it is open or closed.
create trigger litejobs_circuit_update_guard
before update of name, state on litejobs_circuit
when new.name <> old.name or new.state is null and old.state is not null
begin
    select raise(
        abort,
        'immutable_circuit: a circuit keeps its name; set the circuit of its waiting jobs to another one'
    )
    where new.name <> old.name;
    select raise(
        abort, 'unknown_state: a circuit is closed, open or half_open; name one'
    );
end;

-- And a fact.
create trigger litejobs_fact_update_guard
before update of name on litejobs_fact
when new.name <> old.name
begin
    select raise(
        abort,
        'immutable_fact: a fact keeps its name; insert another one, and delete this one'
    );
end;

-- Lanes name a tier by its number (also under the name rowid, so no column is named
-- here).
create trigger litejobs_tier_update_guard
before update on litejobs_tier
when new.id <> old.id
begin
    select raise(
        abort,
        'immutable_tier: a tier keeps its number; insert another one, and delete this one'
    );
end;

-- NULL is not said of a breaker,
create trigger litejobs_breaker_insert_guard
before insert on litejobs_breaker
when new.task is null or new.threshold is null or new.cooldown_ms is null
or new.factor is null
or new.max_cooldown_ms is null
begin
    insert into litejobs__take_null (value) values (null);
end;

-- of a step of a flow, all of which is needed,
create trigger litejobs_step_insert_guard
before insert on litejobs_step
when new.task is null or new.position is null or new.label is null
begin
    insert into litejobs__take_null (value) values (null);
end;

-- nor of a task's old name.
create trigger litejobs_rename_insert_guard
before insert on litejobs_rename
when new.old_name is null or new.new_name is null
begin
    insert into litejobs__take_null (value) values (null);
end;
