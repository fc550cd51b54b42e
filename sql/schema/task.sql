-- What does the code say of its tasks?

-- A registered function that jobs name. Its columns are the defaults of its jobs,
-- copied to each when it is inserted. `parameters` are those of its function as it was
-- declared: which have `places`, in order, and what JSON has of their `defaults`; keys
-- are filled in with them (litejobs__filled). `runner_id` is the runner that has it in
-- its code, and `signature` which arguments that takes (litejobs__misfit): JSON whose
-- `id` is another one for any other signature. A task `has_misfits` if a job was found
-- whose arguments do not fit, and those in line are to be looked at.
create table litejobs_task (
    name text not null primary key,
    queue text,
    priority integer,
    max_attempts integer,
    retryable integer,
    options text,
    spec_id integer,
    runner_id integer,
    concurrency_key text constraint litejobs_task_concurrency_key_length
        check (length(concurrency_key) between 1 and 500),
    concurrency_limit integer constraint litejobs_task_concurrency_limit_in_range
        check (concurrency_limit between 1 and 1000000000),
    rate_count integer constraint litejobs_task_rate_count_in_range
        check (rate_count between 1 and 1000000000),
    rate_ms integer constraint litejobs_task_rate_ms_in_range
        check (rate_ms between 1 and 31622400000),
    rate_burst integer constraint litejobs_task_rate_burst_in_range
        check (rate_burst between 1 and 1000000),
    circuit text constraint litejobs_task_circuit_length
        check (length(circuit) between 1 and 500),
    requires text constraint litejobs_task_requires_is_a_list check (
        case
            when requires is null then 1
            when not json_valid(requires) then 0
            else json_type(requires) = 'array'
        end
    ),
    expires_in_ms integer constraint litejobs_task_expires_in_range
        check (expires_in_ms between 1 and 3155760000000),
    signature text constraint litejobs_task_signature_is_json check (
        case
            when signature is null then 1
            when json_valid(signature) and length(signature) <= 65536
                then coalesce(length(signature ->> '$.id'), 0) between 1 and 100
            else 0
        end
    ),
    has_misfits integer not null on conflict replace default 0
        constraint litejobs_task_has_misfits_is_flag check (has_misfits in (0, 1)),
    executor text constraint litejobs_task_executor_length
        check (length(executor) between 1 and 200),
    parameters text constraint litejobs_task_parameters_is_an_object check (
        case
            when parameters is null then 1
            when not json_valid(parameters) then 0
            else json_type(parameters) = 'object'
        end
    ),
    constraint litejobs_task_name_length
        check (length(name) between 1 and 200),
    constraint litejobs_task_queue_length
        check (queue is null or length(queue) between 1 and 200),
    constraint litejobs_task_max_attempts_in_range
        check (max_attempts between 0 and 1000000000),
    constraint litejobs_task_retryable_is_flag check (retryable in (0, 1)),
    constraint litejobs_task_priority_in_range
        check (priority between -1000000 and 1000000)
) strict;

-- Of which tasks are jobs to be looked at?
create index litejobs_task_with_misfits on litejobs_task (name) where has_misfits;

-- The steps of a flow, in order: a job of this task runs one after the other.
create table litejobs_step (
    task text not null,
    position integer not null,
    label text not null,
    constraint litejobs_step_position_positive check (position >= 1),
    constraint litejobs_step_label_length check (length(label) between 1 and 200),
    constraint litejobs_step_label_unique unique (task, label),
    primary key (task, position)
) strict;

-- The first is the old name of a task, the second the one that its jobs get.
create table litejobs_rename (
    old_name text not null primary key,
    new_name text not null,
    constraint litejobs_rename_is_to_another check (old_name <> new_name),
    constraint litejobs_rename_length check (
        length(old_name) between 1 and 200 and length(new_name) between 1 and 200
    )
) strict;
