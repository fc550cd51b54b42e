-- What have people done, and how is it undone?

-- name: begin_act
-- Where all acts of the command have been forgotten, another one begins.
insert into litejobs_act (name, origin, undoable, command)
values (
    :name,
    :origin,
    :undoable,
    coalesce(
        (select coalesce(command, id) from litejobs_act where id = :command),
        (
            select command from litejobs_act
            where coalesce(command, id) = :command
            limit 1
        ),
        case
            when not exists (
                select 1 from sqlite_sequence
                where name = 'litejobs_act' and seq >= :command
            )
                then :command
        end
    )
)
returning id;

-- name: end_act
update litejobs_act set state = 'done', detail = :detail
where id = :id and state = 'open';

-- name: count_changes
select count(*) from litejobs_change where act_id = :id;

-- name: last_act
-- Which one is undone if none is named?
select max(id) as id from litejobs_act where state = 'done';

-- name: undo
insert into litejobs_undo (act, origin) values (:act, :origin);

-- name: list_acts
-- The last ones first; `in_the_way` is why one can never be undone.
select
    id, command, name, detail, origin, state, at, undone_at, changes,
    refusal as in_the_way
from litejobs__act_line
order by id desc
limit :limit;

-- name: read_act
select
    id, command, name, detail, origin, state, at, undone_at, changes,
    refusal as in_the_way
from litejobs__act_line where id = :id;

-- name: acts_to_undo
-- Those of the same command that are done and not undone, the last one first, and which
-- of them can never be. The first one may have been forgotten, and names it still.
select line.id, line.changes, line.refusal as in_the_way
from litejobs_act as act
cross join litejobs__act_line as line on line.id = act.id
where coalesce(act.command, act.id) = coalesce(
    (select coalesce(command, id) from litejobs_act where id = :act), :act
)
and act.state = 'done'
order by act.id desc;

-- name: act_obstacles
-- Which things are in the way of undoing an act that could be undone but for them?
-- Later acts of the same command are undone before: those in :undone, or all, if that
-- is null. What they have changed again, or are the cause of, is not in the way then.
select distinct found.object, found.reason, found.sentence
from litejobs_act as act
cross join litejobs__act_trouble as found on found.act_id = :id
cross join litejobs_change as change on change.id = found.change_id
where act.id = :id and act.state = 'done' and act.undoable and act.obstacle is null
and not exists (
    select 1
    from litejobs_act as later
    cross join litejobs_change as again
        on again.act_id = later.id and again.kind = change.kind
        and (
            again.key = change.key
            or again.key in (select value from json_each(found.causes))
        )
    where coalesce(later.command, later.id) = coalesce(act.command, act.id)
    and later.id > act.id and later.state = 'done'
    and (:undone is null or later.id in (select value from json_each(:undone)))
)
order by found.change_id
limit :limit;

-- name: schedules_of_act
select cast(key as integer) from litejobs_change
where act_id = :id and kind = 'schedule';
