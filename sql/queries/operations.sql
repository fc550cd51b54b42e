-- What have people done, and how is it undone?

-- name: begin_operation
-- Where all operations of the command have been forgotten, another one begins.
insert into litejobs_operation (name, origin, undoable, command)
values (
    :name,
    :origin,
    :undoable,
    coalesce(
        (select coalesce(command, id) from litejobs_operation where id = :command),
        (
            select command from litejobs_operation
            where coalesce(command, id) = :command
            limit 1
        ),
        case
            when not exists (
                select 1 from sqlite_sequence
                where name = 'litejobs_operation' and seq >= :command
            )
                then :command
        end
    )
)
returning id;

-- name: end_operation
update litejobs_operation set state = 'done', detail = :detail
where id = :id and state = 'open';

-- name: count_changes
select count(*) from litejobs_change where operation_id = :id;

-- name: last_operation
-- Which one is undone if none is named?
select max(id) as id from litejobs_operation where state = 'done';

-- name: undo
insert into litejobs_undo (operation, origin) values (:operation, :origin);

-- name: list_operations
-- The last ones first; `in_the_way` is why one can never be undone.
select
    id, command, name, detail, origin, state, at, undone_at, changes,
    refusal as in_the_way
from litejobs__operation_line
order by id desc
limit :limit;

-- name: read_operation
select
    id, command, name, detail, origin, state, at, undone_at, changes,
    refusal as in_the_way
from litejobs__operation_line where id = :id;

-- name: operations_to_undo
-- Those of the same command that are done and not undone, the last one first, and which
-- of them can never be. The first one may have been forgotten, and names it still.
select line.id, line.changes, line.refusal as in_the_way
from litejobs_operation as operation
cross join litejobs__operation_line as line on line.id = operation.id
where coalesce(operation.command, operation.id) = coalesce(
    (select coalesce(command, id) from litejobs_operation where id = :operation),
    :operation
)
and operation.state = 'done'
order by operation.id desc;

-- name: operation_obstacles
-- Which things are in the way of undoing an operation that could be undone but for
-- them? Later operations of the same command are undone before: those in :undone, or
-- all, if that is null. What they have changed again, or are the cause of, is not in
-- the way then.
select distinct found.object, found.reason, found.sentence
from litejobs_operation as operation
cross join litejobs__operation_trouble as found on found.operation_id = :id
cross join litejobs_change as change on change.id = found.change_id
where operation.id = :id and operation.state = 'done' and operation.undoable
and operation.obstacle is null
and not exists (
    select 1
    from litejobs_operation as later
    cross join litejobs_change as again
        on again.operation_id = later.id and again.kind = change.kind
        and (
            again.key = change.key
            or again.key in (select value from json_each(found.causes))
        )
    where coalesce(later.command, later.id) = coalesce(operation.command, operation.id)
    and later.id > operation.id and later.state = 'done'
    and (:undone is null or later.id in (select value from json_each(:undone)))
)
order by found.change_id
limit :limit;

-- name: schedules_of_operation
select cast(key as integer) from litejobs_change
where operation_id = :id and kind = 'schedule';
