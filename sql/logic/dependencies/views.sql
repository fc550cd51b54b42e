-- How many hear of an end at once?

-- So many of those that wait for a job or batch hear at once that it has ended: within
-- its statement, or with each tick. In an operation it is all of them, so that they are
-- undone with it.
create view litejobs__notified_at_once as
select case
    when exists (select 1 from litejobs_operation where state = 'open')
        then 9007199254740992
    else 500
end as most;
