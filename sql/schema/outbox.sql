-- What has been taken over from an application's outbox?

-- A row of an application's outbox that became a job. It stands in the same transaction
-- as the job, so that no row is delivered twice, whatever dies in between.
-- `removed_at` says that the row is surely gone from the application's table; a week
-- later the key may be forgotten too. Without it, it is kept.
create table litejobs_outbox_delivery (
    key text not null primary key,
    job_id integer not null,
    delivered_at integer not null,
    removed_at integer,
    constraint litejobs_outbox_delivery_key_length check (length(key) between 1 and 200)
) strict, without rowid;

-- Which keys may be forgotten first?
create index litejobs_outbox_delivery_removed
on litejobs_outbox_delivery (removed_at)
where removed_at is not null;
