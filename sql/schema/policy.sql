-- Which rules say what follows a failure?

-- What a task has for a policy: its rules, and what follows an attempt that did not
-- succeed and that no rule speaks of. One with a `step` speaks of that step alone and
-- takes the place of the task's. A policy never changes: another one replaces it, and
-- the attempts that it decided still name its rules. `source` is the policy as JSON.
create table litejobs_policy (
    id integer not null primary key autoincrement,
    task text not null,
    step text not null on conflict replace default '',
    otherwise text default 'retry',
    source text,
    created_at integer,
    replaced_at integer,
    purpose text default 'retry' constraint litejobs_policy_purpose_known
        check (purpose in ('retry', 'circuit')),
    constraint litejobs_policy_task_length check (length(task) between 1 and 200),
    constraint litejobs_policy_otherwise_known check (
        otherwise = 'retry' or otherwise = 'fail' or otherwise = 'continue'
    ),
    constraint litejobs_policy_source_is_json
        check (source is null or json_valid(source)),
    constraint litejobs_policy_id_positive check (id >= 1)
) strict;

-- One policy in force per task and step.
create unique index litejobs_policy_in_force
on litejobs_policy (task, step, purpose)
where replaced_at is null;

-- A line of a policy. The first one whose conditions hold decides what is done: its
-- `action`, with the limits and the backoff that it names; what it leaves NULL is the
-- job's. `condition` is what was written, for people; litejobs_condition counts.
-- An attempt whose process died is put only to rules that say so (`on_crash`).
create table litejobs_rule (
    id integer not null primary key autoincrement,
    policy_id integer not null references litejobs_policy (id),
    position integer not null,
    action text not null,
    on_crash integer not null on conflict replace default 0,
    attempts integer,
    options text,
    spec_id integer,
    queue text,
    priority integer,
    next_step text,
    condition text,
    constraint litejobs_rule_position_unique unique (policy_id, position),
    constraint litejobs_rule_action_known check (
        action = 'retry' or action = 'fail' or action = 'continue' or action = 'break'
        or action = 'jump' or action = 'snooze' or action = 'cancel'
    ),
    constraint litejobs_rule_on_crash_is_flag check (on_crash in (0, 1)),
    constraint litejobs_rule_jump_has_target
        check ((action = 'jump') = (next_step is not null)),
    constraint litejobs_rule_attempts_in_range
        check (attempts between 1 and 1000000000),
    constraint litejobs_rule_queue_length
        check (queue is null or length(queue) between 1 and 200),
    constraint litejobs_rule_priority_in_range
        check (priority between -1000000 and 1000000),
    constraint litejobs_rule_id_positive check (id >= 1)
) strict;

-- Which rules have these options?
create index litejobs_rule_of_spec on litejobs_rule (spec_id) where spec_id is not null;

-- What has to hold for a rule: all conditions of one of its terms. Each compares two
-- operands, or looks at one. An operand is read at a path of a document: the outcome,
-- the job's ctx or iter, the number of the attempt, the step, or a literal. That a
-- condition is negated is kept apart from its operator, since `not (x >= 500)` holds
-- where there is no x, and `x < 500` does not.
create table litejobs_condition (
    rule_id integer not null references litejobs_rule (id),
    term integer not null,
    position integer not null,
    source text not null,
    path text not null on conflict replace default '$',
    value text,
    lowered integer not null on conflict replace default 0,
    op text not null,
    negated integer not null on conflict replace default 0,
    other_source text,
    other_path text not null on conflict replace default '$',
    other_value text,
    other_lowered integer not null on conflict replace default 0,
    constraint litejobs_condition_source_known check (
        source = 'literal' or source = 'outcome' or source = 'ctx' or source = 'iter'
        or source = 'attempt' or source = 'step'
    ),
    constraint litejobs_condition_other_source_known check (
        other_source is null or other_source = 'literal' or other_source = 'outcome'
        or other_source = 'ctx' or other_source = 'iter' or other_source = 'attempt'
        or other_source = 'step'
    ),
    constraint litejobs_condition_op_known check (
        op = 'eq' or op = 'lt' or op = 'le' or op = 'gt' or op = 'ge' or op = 'in'
        or op = 'truthy'
    ),
    constraint litejobs_condition_has_two_sides
        check ((op = 'truthy') = (other_source is null)),
    constraint litejobs_condition_literals_are_json check (
        (source = 'literal') = (value is not null)
        and (value is null or json_valid(value))
        and (coalesce(other_source, '') = 'literal') = (other_value is not null)
        and (other_value is null or json_valid(other_value))
    ),
    constraint litejobs_condition_flags_are_flags check (
        negated in (0, 1) and lowered in (0, 1) and other_lowered in (0, 1)
    ),
    primary key (rule_id, term, position)
) strict, without rowid;

-- What a rule writes into the job's ctx or iter when it decides: a literal, or what it
-- reads at a path, with a number added to it if there is one in `plus`.
create table litejobs_rule_change (
    rule_id integer not null references litejobs_rule (id),
    position integer not null,
    target text not null,
    path text not null,
    source text not null,
    source_path text not null on conflict replace default '$',
    value text,
    plus text,
    constraint litejobs_rule_change_target_known check (target in ('ctx', 'iter')),
    constraint litejobs_rule_change_source_known check (
        source = 'literal' or source = 'outcome' or source = 'ctx' or source = 'iter'
        or source = 'attempt'
    ),
    constraint litejobs_rule_change_path_is_of_a_member
        check (substr(path, 1, 2) = '$.'),
    constraint litejobs_rule_change_literals_are_json check (
        (source = 'literal') = (value is not null)
        and (value is null or json_valid(value))
    ),
    constraint litejobs_rule_change_plus_is_number check (
        case
            when plus is null then 1
            when json_valid(plus) then json_type(plus) in ('integer', 'real')
            else 0
        end
    ),
    primary key (rule_id, position)
) strict, without rowid;
