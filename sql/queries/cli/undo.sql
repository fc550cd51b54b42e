-- What does the command line show of what people did?

-- name: list_commands
-- The last ones first.
select
    id, name, detail, origin, state, at, undone_at, operations, left, changes,
    refusal as in_the_way
from litejobs__command
order by id desc
limit :limit;

-- name: read_command
-- The one of which this operation is.
select
    id, name, detail, origin, state, at, undone_at, operations, left, changes,
    refusal as in_the_way
from litejobs__command
where began = coalesce(
    (select coalesce(command, id) from litejobs_operation where id = :operation),
    :operation
);

-- name: operation_changes
-- What undoing operations takes back of so many things, the last change first: a row
-- for each `field` that was something else `after` than `before`; or one without a
-- field for a thing that was not there before, or not afterwards.
select
    change.object,
    field.key as field,
    field.value as after,
    coalesce(own.before, own.plain) ->> ('$.' || field.key) as before,
    coalesce(own.before, own.plain) is not null as was_there,
    coalesce(own.after, own.plain) is not null as is_there
from (
    select id, object from litejobs__change_object
    where operation_id in (select value from json_each(:operations))
    and kind <> 'ledger'
    order by id desc
    limit :limit
) as change
cross join litejobs__change_now as own on own.id = change.id
left join json_each(
    case when coalesce(own.before, own.plain) is not null
        then coalesce(own.after, own.plain)
    end
) as field
    on field.value is not coalesce(own.before, own.plain) ->> ('$.' || field.key)
order by change.id desc, field.id;
