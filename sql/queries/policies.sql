-- How is a policy written down?

-- name: policies_in_force
select step, source from litejobs_policy
where task = :task and purpose = 'retry' and replaced_at is null;

-- name: drop_policy
update litejobs_policy set replaced_at = (select now from litejobs_clock)
where task = :task and step = :step and purpose = 'retry' and replaced_at is null;

-- name: record_policy
insert into litejobs_policy (task, step, otherwise, source, purpose)
values (:task, :step, :otherwise, :source, :purpose)
returning id;

-- name: record_rule
insert into litejobs_rule (
    policy_id, position, action, on_crash, attempts, options, queue, priority,
    next_step, condition
)
values (
    :policy_id, :position, :action, :on_crash, :attempts, :options, :queue, :priority,
    :next_step, :condition
)
returning id;

-- name: record_condition
insert into litejobs_condition (
    rule_id, term, position, source, path, value, lowered, op, negated, other_source,
    other_path, other_value, other_lowered
)
values (
    :rule_id, :term, :position, :source, :path, :value, :lowered, :op, :negated,
    :other_source, coalesce(:other_path, '$'), :other_value, coalesce(:other_lowered, 0)
);

-- name: record_change
insert into litejobs_rule_change (
    rule_id, position, target, path, source, source_path, value, plus
)
values (
    :rule_id, :position, :target, :path, :source, :source_path, :value, :plus
);
