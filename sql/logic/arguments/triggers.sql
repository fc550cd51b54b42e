-- What happens when arguments do not fit a task, and when they do again?

-- The code of a task takes other arguments than before.
create trigger litejobs_task_update_of_signature_looks
after update of signature on litejobs_task
when new.signature is not old.signature and new.signature is not null
begin
    insert into litejobs__find_misfits (task) values (new.name);
end;

-- The first in line that do not fit are held before any of them is claimed, be it that
-- they were held because of another signature before.
create trigger litejobs__find_misfits_holds_them
instead of insert on litejobs__find_misfits
begin
    insert into litejobs__hold (job)
    select job_id from litejobs__misfit_in_line where task = new.task;
    update litejobs_task set has_misfits = 0 where name = new.task and has_misfits;
end;

-- Whoever ran it has found out. Others in line may be like it, of which each would take
-- an attempt to be found: so they are looked at before the next claim, once for all
-- that have ended so by then.
create trigger litejobs__does_not_fit_holds_it
instead of insert on litejobs__does_not_fit
begin
    insert into litejobs__hold (job) values (new.job);
    update litejobs_task
    set has_misfits = 1
    where name = (select task from litejobs_job where id = new.job) and not has_misfits;
end;

-- A job is held by the signature that it does not fit; `?` is that of a task of which
-- nobody has said it.
create trigger litejobs__hold_remembers_signature
instead of insert on litejobs__hold
begin
    update litejobs_misfit
    set signature = coalesce(
        (
            select task.signature ->> '$.id'
            from litejobs_job as job
            cross join litejobs_task as task on task.name = job.task
            where job.id = new.job
        ),
        '?'
    )
    where job_id = new.job;
    insert into litejobs_misfit (job_id, signature)
    select
        job.id,
        coalesce(
            (select signature ->> '$.id' from litejobs_task where name = job.task), '?'
        )
    from litejobs_job as job
    where job.id = new.job
    and not exists (select 1 from litejobs_misfit where job_id = new.job);
end;

-- A job that is held is in a lane of those that are.
create trigger litejobs_misfit_insert_changes_lane
after insert on litejobs_misfit
begin
    select raise(
        abort, 'invalid_misfit: there is no such job; name one that is there'
    )
    where not exists (select 1 from litejobs_job where id = new.job_id);
    insert into litejobs__change_lane (
        id, attempt_id, old_queue, queue, old_circuit, circuit, left_lane
    )
    select id, attempt_id, queue, queue, circuit, circuit, lane_id
    from litejobs_job where id = new.job_id;
end;

-- The same when it is held for another signature.
create trigger litejobs_misfit_update_changes_lane
after update on litejobs_misfit
when new.signature <> old.signature or new.job_id <> old.job_id
begin
    select raise(
        abort, 'invalid_misfit: a row is of one job; delete it and insert another one'
    )
    where new.job_id <> old.job_id;
    insert into litejobs__change_lane (
        id, attempt_id, old_queue, queue, old_circuit, circuit, left_lane
    )
    select id, attempt_id, queue, queue, circuit, circuit, lane_id
    from litejobs_job where id = new.job_id;
end;

-- And when it is let go.
create trigger litejobs_misfit_delete_changes_lane
after delete on litejobs_misfit
begin
    insert into litejobs__change_lane (
        id, attempt_id, old_queue, queue, old_circuit, circuit, left_lane
    )
    select id, attempt_id, queue, queue, circuit, circuit, lane_id
    from litejobs_job where id = old.job_id;
end;

-- Other arguments may fit: whoever runs the job will see.
create trigger litejobs_job_update_of_args_lets_go
after update of args on litejobs_job
when new.args <> old.args
and exists (select 1 from litejobs_misfit where job_id = new.id)
begin
    delete from litejobs_misfit where job_id = new.id;
end;
