-- What is refused of what is kept?

-- Without its row no pass would begin, and what has ended would stay for ever.
create trigger litejobs_retaining_delete_guard
before delete on litejobs_retaining
begin
    select raise(
        abort,
        'immutable_retaining: this row says how far a pass has come; leave it, and say in litejobs_retention what is kept for ever'
    );
end;

-- NULL is not said of a purge.
create trigger litejobs_purge_insert_guard
before insert on litejobs_purge
when new.states is null or new.name is null or new.jobs is null
begin
    insert into litejobs__take_null (value) values (null);
end;

-- What is carried of attempts that go is what retention finds, and these are then not
-- among the newest.
create trigger litejobs_carried_insert_guard
before insert on litejobs_carried
when not exists (
    select 1 from litejobs__to_carry
    where job_id = new.job_id and start_no = new.start_no and log_id = new.log_id
)
begin
    select raise(
        abort,
        'immutable_attempt: older attempts of a job go by themselves; a row of litejobs_retention of the kind attempt says how many are kept'
    );
end;

-- Nor does it change otherwise.
create trigger litejobs_carried_update_guard
before update on litejobs_carried
when new.job_id <> old.job_id or not exists (
    select 1 from litejobs__to_carry
    where job_id = new.job_id and start_no = new.start_no and log_id = new.log_id
)
begin
    select raise(
        abort,
        'immutable_attempt: older attempts of a job go by themselves; a row of litejobs_retention of the kind attempt says how many are kept'
    );
end;

-- It goes with its job.
create trigger litejobs_carried_delete_guard
before delete on litejobs_carried
when exists (select 1 from litejobs_job where id = old.job_id)
begin
    select raise(
        abort,
        'immutable_attempt: older attempts of a job go by themselves; a row of litejobs_retention of the kind attempt says how many are kept'
    );
end;
