-- How far has who reads the log come?

-- How the cursors stand: how many `lines` of the log come after each, those that it is
-- not told of included, and whether some of them have been deleted (`lost`). Process
-- `pid` has read it last, and may have ended.
create view litejobs_cursor_report as
select
    cursor.name,
    cursor.log_id,
    cast(mark.births + mark.claims + mark.others - cursor.log_id as integer) as lines,
    cast(
        exists (
            select 1 from litejobs_horizon as horizon
            where horizon.log_id > max(cursor.log_id, cursor.lost_id)
        )
        as integer
    ) as lost,
    cursor.pid,
    cursor.host,
    cursor.made_at,
    cursor.seen_at,
    cursor.since_at
from litejobs_cursor as cursor
cross join litejobs__mark as mark;
