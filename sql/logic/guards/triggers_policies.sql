-- What is refused of policies and their rules?

-- A policy does not change, it is replaced: attempts that it decided name its rules.
create trigger litejobs_policy_update_guard
before update on litejobs_policy
when new.id <> old.id or new.task <> old.task or new.step is not old.step
or old.purpose is not null and new.purpose is not old.purpose
or old.otherwise is not null and new.otherwise is not old.otherwise
or new.source is not old.source
or old.created_at is not null and new.created_at is not old.created_at
or old.replaced_at is not null
begin
    select raise(
        abort,
        'immutable_policy: a policy never changes; insert another one, which replaces it, or set replaced_at to do without'
    );
end;

-- A policy that is replaced may go, if no attempt names a rule of it.
create trigger litejobs_policy_delete_guard
before delete on litejobs_policy
when old.replaced_at is null or exists (
    select 1 from litejobs_rule where policy_id = old.id
)
begin
    select raise(
        abort,
        'immutable_policy: a policy in force, or one with rules, is not deleted; set replaced_at'
    );
end;

-- Rules do not change either, nor do their conditions and what they write. That the
-- options of a new one are taken over is not a change.
create trigger litejobs_rule_update_guard
before update on litejobs_rule
when old.options is null or new.options is not null or new.id <> old.id
begin
    select raise(
        abort,
        'immutable_policy: a rule never changes; insert another policy, which replaces it'
    );
end;

-- One is not written over another: `insert or replace` would.
create trigger litejobs_rule_insert_guard
before insert on litejobs_rule
when new.policy_id is null or new.position is null or new.action is null
or new.on_crash is null or new.id > 9007199254740992
or exists (
    select 1 from litejobs_rule
    where id = new.id or policy_id = new.policy_id and position = new.position
)
or new.spec_id is not null or new.options is not null
begin
    insert into litejobs__take_null (value)
    select null
    where new.policy_id is null or new.position is null or new.action is null
    or new.on_crash is null;
    select raise(
        abort,
        'unknown_spec: the options of a new rule are a JSON object in options; leave spec_id out'
    )
    where new.spec_id is not null;
    select raise(
        abort,
        'immutable_policy: rules are numbered by the database; leave the id out'
    )
    where new.id > 9007199254740992;
    select raise(
        abort,
        'immutable_policy: a rule never changes; insert another policy, which replaces it'
    )
    where exists (
        select 1 from litejobs_rule
        where id = new.id or policy_id = new.policy_id and position = new.position
    );
    insert into litejobs__specify (base_id, said, kept)
    select 0, new.options, 1 where new.options is not null;
end;

-- A rule goes only with a policy that was replaced, and if it has decided nothing.
create trigger litejobs_rule_delete_guard
before delete on litejobs_rule
when exists (
    select 1 from litejobs_policy
    where id = old.policy_id and replaced_at is null
)
or exists (select 1 from litejobs_attempt where rule_id = old.id)
begin
    select raise(
        abort,
        'immutable_policy: a rule of a policy in force, or one that an attempt names, is not deleted; insert another policy, which replaces it'
    );
end;

-- A condition is kept as it was inserted.
create trigger litejobs_condition_update_guard
before update on litejobs_condition
begin
    select raise(
        abort,
        'immutable_policy: a condition never changes; insert another policy, which replaces it'
    );
end;

-- Nor is one written over another. And a path that SQLite cannot read, or a literal
-- that only an older one can, would be noticed when an attempt is settled, which then
-- could never end.
create trigger litejobs_condition_insert_guard
before insert on litejobs_condition
begin
    insert into litejobs__take_null (value)
    select null
    where new.rule_id is null or new.term is null or new.position is null
    or new.source is null or new.op is null
    or new.path is null or new.lowered is null or new.negated is null
    or new.other_path is null or new.other_lowered is null;
    select raise(
        abort,
        'immutable_policy: a condition never changes; insert another policy, which replaces it'
    )
    where exists (
        select 1 from litejobs_condition
        where rule_id = new.rule_id and term = new.term and position = new.position
    );
    select raise(
        abort,
        'invalid_path: a path that SQLite reads is $ with .members and [places]; correct what is written behind it'
    )
    from (
        select coalesce(new.path, '$') as path
        union all
        select coalesce(new.other_path, '$')
    )
    where substr(path, 1, 1) <> '$' or instr(path, char(92)) or not exists (
        with recursive walk (rest) as (
            select substr(path, 2)
            union all
            select case
                when rest glob '."*"*' and rest not glob '.""*'
                    then substr(rest, 3 + instr(substr(rest, 3), '"'))
                when rest glob '.[A-Za-z_]*' then ltrim(
                    substr(rest, 2),
                    'abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_'
                )
                when rest glob '[[][0-9]*]*' and instr(rest, ']') <= 11
                    and substr(rest, 2, instr(rest, ']') - 2) not glob '*[^0-9]*'
                    then substr(rest, instr(rest, ']') + 1)
                when rest glob '[[]#-[0-9]*]*' and instr(rest, ']') <= 13
                    and substr(rest, 4, instr(rest, ']') - 4) not glob '*[^0-9]*'
                    then substr(rest, instr(rest, ']') + 1)
                else '!'
            end
            from walk
            where rest <> '' and rest <> '!'
            limit 200
        )
        select 1 from walk where rest = ''
    );
    select raise(
        abort,
        'invalid_literal: a literal has at most 500 lists and objects in it; write less at once'
    )
    from (select new.value as value union all select new.other_value)
    where length(value) - length(replace(replace(value, '[', ''), '{', '')) > 500;
end;

-- A condition goes only with a policy that was replaced: a rule without any would hold
-- always.
create trigger litejobs_condition_delete_guard
before delete on litejobs_condition
when exists (
    select 1 from litejobs_rule as rule
    cross join litejobs_policy as policy on policy.id = rule.policy_id
    where rule.id = old.rule_id and policy.replaced_at is null
)
begin
    select raise(
        abort,
        'immutable_policy: a condition of a policy in force is not deleted; insert another policy, which replaces it'
    );
end;

-- What a rule writes is kept as it was inserted.
create trigger litejobs_rule_change_update_guard
before update on litejobs_rule_change
begin
    select raise(
        abort,
        'immutable_policy: what a rule writes never changes; insert another policy, which replaces it'
    );
end;

-- Nor is it written over; its paths can be read.
create trigger litejobs_rule_change_insert_guard
before insert on litejobs_rule_change
begin
    insert into litejobs__take_null (value)
    select null
    where new.rule_id is null or new.position is null or new.target is null
    or new.source is null or new.source_path is null;
    select raise(
        abort,
        'immutable_policy: what a rule writes never changes; insert another policy, which replaces it'
    )
    where exists (
        select 1 from litejobs_rule_change
        where rule_id = new.rule_id and position = new.position
    );
    select raise(
        abort,
        'invalid_path: a path that SQLite reads is $ with .members and [places]; correct what is written behind it'
    )
    from (
        select new.path as path union all select coalesce(new.source_path, '$')
    )
    where substr(path, 1, 1) <> '$' or instr(path, char(92)) or not exists (
        with recursive walk (rest) as (
            select substr(path, 2)
            union all
            select case
                when rest glob '."*"*' and rest not glob '.""*'
                    then substr(rest, 3 + instr(substr(rest, 3), '"'))
                when rest glob '.[A-Za-z_]*' then ltrim(
                    substr(rest, 2),
                    'abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_'
                )
                when rest glob '[[][0-9]*]*' and instr(rest, ']') <= 11
                    and substr(rest, 2, instr(rest, ']') - 2) not glob '*[^0-9]*'
                    then substr(rest, instr(rest, ']') + 1)
                when rest glob '[[]#-[0-9]*]*' and instr(rest, ']') <= 13
                    and substr(rest, 4, instr(rest, ']') - 4) not glob '*[^0-9]*'
                    then substr(rest, instr(rest, ']') + 1)
                else '!'
            end
            from walk
            where rest <> '' and rest <> '!'
            limit 200
        )
        select 1 from walk where rest = ''
    );
    select raise(
        abort,
        'invalid_literal: a literal has at most 500 lists and objects in it; write less at once'
    )
    from (select new.value as value)
    where length(value) - length(replace(replace(value, '[', ''), '{', '')) > 500;
end;

-- Nor is it deleted while the policy is in force.
create trigger litejobs_rule_change_delete_guard
before delete on litejobs_rule_change
when exists (
    select 1 from litejobs_rule as rule
    cross join litejobs_policy as policy on policy.id = rule.policy_id
    where rule.id = old.rule_id and policy.replaced_at is null
)
begin
    select raise(
        abort,
        'immutable_policy: what a rule of a policy in force writes is not deleted; insert another policy, which replaces it'
    );
end;
