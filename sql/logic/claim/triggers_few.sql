-- Is each job in line looked at, or each lane?

-- Where few jobs are in line beside the lanes, each of them is looked at.
create trigger litejobs__claim_line_looks_at_jobs
instead of insert on litejobs__claim_line
when new.few is not null
begin
    insert into litejobs__claim_if_open (runner, slots, last, job)
    select new.runner, new.slots, new.last, id
    from litejobs__ready
    order by priority desc, run_at, id;
end;

-- Else each lane is. That reads much, and is in a trigger of its own: the room for it
-- is not cleared where it does nothing.
create trigger litejobs__claim_line_looks_at_lanes
instead of insert on litejobs__claim_line
when new.few is null
begin
    insert into litejobs__claim_lanes (runner, slots, last)
    values (new.runner, new.slots, new.last);
end;

-- In the order of the line, up to the first job that is not ungated and then on.
create trigger litejobs__claim_lanes_finds_first
instead of insert on litejobs__claim_lanes
begin
    insert into litejobs__claim_before (runner, slots, ungated_end, last)
    values (
        new.runner, new.slots, (select job_id from litejobs__ungated_end), new.last
    );
end;

-- One of few: it starts if nothing holds it back, as those before it left the gates.
create trigger litejobs__claim_if_open_starts_it
instead of insert on litejobs__claim_if_open
when new.slots > (select count(*) from litejobs_attempt where id > new.last)
and exists (select 1 from litejobs__open_job where job_id = new.job)
begin
    insert into litejobs__claim_job (runner, job) values (new.runner, new.job);
end;
