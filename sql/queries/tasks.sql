-- What does the code say of its tasks?

-- name: specify_task
-- What a task says of its jobs' attempts is known under these words.
insert into litejobs__specify (base_id, said, kept) values (0, :options, 1);

-- name: declare_task
-- Only a change is written, so that opening a file does not write to it every time.
insert into litejobs_task (
    name, queue, priority, max_attempts, retryable, spec_id, concurrency_key,
    concurrency_limit, rate_count, rate_ms, rate_burst, circuit, requires,
    expires_in_ms, executor, parameters
)
values (
    :name, :queue, :priority, :max_attempts, :retryable,
    (select spec_id from litejobs_wording where base_id = 0 and said = :options),
    :concurrency_key, :concurrency_limit, :rate_count, :rate_ms, :rate_burst, :circuit,
    :requires, :expires_in_ms, :executor, :parameters
)
on conflict (name) do update set
    queue = excluded.queue,
    priority = excluded.priority,
    max_attempts = excluded.max_attempts,
    retryable = excluded.retryable,
    spec_id = excluded.spec_id,
    concurrency_key = excluded.concurrency_key,
    concurrency_limit = excluded.concurrency_limit,
    rate_count = excluded.rate_count,
    rate_ms = excluded.rate_ms,
    rate_burst = excluded.rate_burst,
    circuit = excluded.circuit,
    requires = excluded.requires,
    expires_in_ms = excluded.expires_in_ms,
    executor = excluded.executor,
    parameters = excluded.parameters
where litejobs_task.queue is not excluded.queue
or litejobs_task.priority is not excluded.priority
or litejobs_task.max_attempts is not excluded.max_attempts
or litejobs_task.retryable is not excluded.retryable
or litejobs_task.spec_id is not excluded.spec_id
or litejobs_task.concurrency_key is not excluded.concurrency_key
or litejobs_task.concurrency_limit is not excluded.concurrency_limit
or litejobs_task.rate_count is not excluded.rate_count
or litejobs_task.rate_ms is not excluded.rate_ms
or litejobs_task.rate_burst is not excluded.rate_burst
or litejobs_task.circuit is not excluded.circuit
or litejobs_task.requires is not excluded.requires
or litejobs_task.expires_in_ms is not excluded.expires_in_ms
or litejobs_task.executor is not excluded.executor
or litejobs_task.parameters is not excluded.parameters;

-- name: declare_task_retention
insert into litejobs__declare_task_retention (task, kinds)
values (:name, coalesce(:retention, '{}'));

-- name: declare_retention
-- What the code says of the whole file.
insert into litejobs__declare_retention (kind, task, queue, age_ms, most, bytes)
values (:kind, '', '', :age_ms, :most, :bytes);

-- name: serve_task
update litejobs_task set runner_id = :runner
where name = :name and runner_id is not :runner;

-- name: sign_task
-- Which arguments its code takes is said by who runs it, and not where it is declared:
-- a program that only enqueues may have other code.
update litejobs_task set signature = :signature
where name = :name and signature is not :signature;

-- name: steps_of_task
select label from litejobs_step where task = :task order by position;

-- name: forget_steps
delete from litejobs_step where task = :task;

-- name: record_step
insert into litejobs_step (task, position, label) values (:task, :position, :label);

-- name: circuit_policy_in_force
select id, source from litejobs_policy
where task = :task and step = '' and purpose = 'circuit' and replaced_at is null;

-- name: drop_circuit_policy
update litejobs_policy set replaced_at = (select now from litejobs_clock)
where task = :task and step = '' and purpose = 'circuit' and replaced_at is null;

-- name: declare_breaker
-- Only a change is written.
insert into litejobs_breaker (
    task, threshold, window_ms, cooldown_ms, factor, max_cooldown_ms, policy_id
)
values (
    :task, :threshold, :window_ms, :cooldown_ms, :factor, :max_cooldown_ms, :policy_id
)
on conflict (task) do update set
    threshold = excluded.threshold,
    window_ms = excluded.window_ms,
    cooldown_ms = excluded.cooldown_ms,
    factor = excluded.factor,
    max_cooldown_ms = excluded.max_cooldown_ms,
    policy_id = excluded.policy_id
where (threshold, window_ms, cooldown_ms, factor, max_cooldown_ms, policy_id) is not (
    excluded.threshold, excluded.window_ms, excluded.cooldown_ms, excluded.factor,
    excluded.max_cooldown_ms, excluded.policy_id
);

-- name: had_circuit
-- Was the task declared with a circuit before?
select 1 from litejobs_task where name = :task and circuit is not null;

-- name: drop_breaker
delete from litejobs_breaker where task = :task;

-- name: forget_rename
-- A name that is a task's again is nobody's old name.
delete from litejobs_rename where old_name = :name;

-- name: record_rename
insert into litejobs_rename (old_name, new_name) values (:old_name, :new_name)
on conflict (old_name) do update set new_name = excluded.new_name
where new_name <> excluded.new_name;
