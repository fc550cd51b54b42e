-- What has happened that is in no other row?

-- What the log tells and no other row does: a move of a job without an attempt, and an
-- operation of a person. Births, claims and ends are read from jobs and attempts; the
-- log with all of them in their order is litejobs__transition, by whose numbers
-- (litejobs__mark) these rows go.
create table litejobs_line (
    id integer not null primary key,
    at integer not null,
    job_id integer,
    attempt_id integer,
    old_state text,
    new_state text,
    subject text,
    note text,
    origin text,
    constraint litejobs_line_at_in_range check (at between 0 and 253402300799999)
) strict;

-- What happened to this job?
create index litejobs_line_of_job
on litejobs_line (job_id)
where job_id is not null;

-- Which line comes next in it, by the id that readers know (litejobs_event)?
create index litejobs_line_event
on litejobs_line (cast(4 * id as integer));

-- What does the log say of this circuit, or of what this operation did?
create index litejobs_line_of_subject
on litejobs_line (subject)
where job_id is null;

-- What a job was before something happened after which no other row says so: a person
-- has moved it or changed its settings; a retry has written over its first due instant.
-- `image` has the columns that were kept, as JSON; `log_id` is the number of what has
-- happened, or of the first of several things that one statement did. By these the past
-- is read backwards (litejobs_job_past).
create table litejobs_before_image (
    job_id integer not null,
    log_id integer not null,
    image text not null,
    primary key (job_id, log_id),
    constraint litejobs_before_image_is_json check (json_valid(image))
) strict, without rowid;

-- Up to where something of the log has been deleted: of the jobs of a task, or, with
-- the task '', of what is about no job and of jobs whose task nobody knows. `log_id` is
-- the last number that has gone, `at` when that was. It only grows.
create table litejobs_horizon (
    task text not null,
    log_id integer not null,
    at integer not null,
    primary key (task),
    constraint litejobs_horizon_task_length check (length(task) <= 200),
    constraint litejobs_horizon_place_in_range check (
        log_id between 0 and 1152921504606846976 and at between 0 and 253402300799999
    )
) strict, without rowid;
