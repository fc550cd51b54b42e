-- What do options lead to?

-- What is named takes the place of what was said before, null takes it back. Waits that
-- are named take the place of a list of them.
--
-- A row is made of what comes out, so that its constraints say what cannot be; its text
-- is made of what it holds then. If there is one of that text, it goes again. Only this
-- one has no text meanwhile.
create trigger litejobs__specify_finds_or_makes
instead of insert on litejobs__specify
when not exists (
    select 1 from litejobs_wording where base_id = new.base_id and said = new.said
)
begin
    select raise(
        abort,
        'invalid_options: options are a JSON object of up to 64 KiB, whose members are options of jobs such as timeout_ms; correct it'
    )
    where case
        when length(cast(new.said as blob)) > 65536 or instr(new.said, char(0)) then 1
        when json_valid(new.said) then json_type(new.said) <> 'object'
        else 1
    end;
    select raise(
        abort,
        'invalid_options: there is no such option; give one that jobs have, such as timeout_ms or max_delay_ms'
    )
    where exists (
        select 1 from json_each(new.said) as each
        where each.key not in (select name from litejobs__option)
    );
    select case key
        when 'delay_ms' then raise(
            abort,
            'invalid_options: delay_ms is a whole number of milliseconds, such as 60000; correct it'
        )
        when 'factor' then raise(
            abort, 'invalid_options: factor is a number, such as 2.0; correct it'
        )
        when 'max_delay_ms' then raise(
            abort,
            'invalid_options: max_delay_ms is a whole number of milliseconds, such as 3600000; correct it'
        )
        when 'jitter' then raise(
            abort,
            'invalid_options: jitter is a number from 0 to 1, such as 0.25; correct it'
        )
        when 'intervals' then raise(
            abort,
            'invalid_options: intervals is a list of whole numbers of milliseconds, such as [1000, 60000]; correct it'
        )
        when 'retry_budget_ms' then raise(
            abort,
            'invalid_options: retry_budget_ms is a whole number of milliseconds, such as 3600000; correct it'
        )
        when 'timeout_ms' then raise(
            abort,
            'invalid_options: timeout_ms is a whole number of milliseconds, such as 30000; correct it'
        )
        when 'max_crashes' then raise(
            abort,
            'invalid_options: max_crashes is a whole number, such as 3; correct it'
        )
        when 'max_jumps' then raise(
            abort,
            'invalid_options: max_jumps is a whole number, such as 100; correct it'
        )
        when 'crash_delay_ms' then raise(
            abort,
            'invalid_options: crash_delay_ms is a whole number of milliseconds, such as 1000; correct it'
        )
    end
    from litejobs__json_number
    where document = new.said and type <> 'null' and case
        when key = 'backoff' then 0
        when key = 'factor' or key = 'jitter'
            then number is null or abs(number) > 1e308
        when key = 'intervals' then type = 'array' and exists (
            select 1 from json_each(plain) where type = 'null'
        )
        else whole is null
    end;
    delete from litejobs_spec where text is null;
    insert into litejobs_spec (
        id, backoff, delay_ms, factor, max_delay_ms, jitter, intervals,
        retry_budget_ms, timeout_ms, max_crashes, max_jumps,
        crash_delay_ms
    )
    select
        case
            when new.kept
                then (select min(coalesce(min(id), 0), 0) - 1 from litejobs_spec)
            else (select max(coalesce(max(id), 0), 0) + 1 from litejobs_spec)
        end,
        merged ->> '$.backoff',
        merged -> '$.delay_ms',
        merged -> '$.factor',
        merged -> '$.max_delay_ms',
        merged -> '$.jitter',
        merged ->> '$.intervals',
        merged -> '$.retry_budget_ms',
        merged -> '$.timeout_ms',
        merged -> '$.max_crashes',
        merged -> '$.max_jumps',
        merged -> '$.crash_delay_ms'
    from (
        select json_patch(
            case
                when coalesce(new.said ->> '$.backoff', new.said ->> '$.delay_ms')
                    is not null
                    then json_remove(base.text, '$.intervals')
                else base.text
            end,
            (
                select json_group_object(key, json(plain)) from litejobs__json_number
                where document = new.said
            )
        ) as merged
        from (
            select coalesce(
                (select text from litejobs_spec where id = new.base_id), '{}'
            ) as text
        ) as base
        limit -1
    );
    insert into litejobs_wording (base_id, said, spec_id)
    select
        new.base_id,
        new.said,
        case
            when known.doc <> '{}' then coalesce(
                (select id from litejobs_spec where text = known.doc), made.id
            )
        end
    from litejobs_spec as made
    cross join litejobs__spec_text as known on known.spec_id = made.id
    where made.text is null;
    update litejobs_spec
    set text = (select doc from litejobs__spec_text where spec_id = litejobs_spec.id)
    where text is null
    and id = (
        select spec_id from litejobs_wording
        where base_id = new.base_id and said = new.said
    );
    delete from litejobs_spec where text is null;
    select raise(
        abort,
        'invalid_options: an option is out of range; give what the option of that name takes in Python'
    )
    where not exists (
        select 1 from litejobs_wording where base_id = new.base_id and said = new.said
    );
end;

-- Options of a job that is there are merged into those that it has: found before it
-- changes, since `update or fail` keeps what has changed when a constraint of theirs
-- fails.
create trigger litejobs_job_update_finds_options
before update of options on litejobs_job
when new.options is not null and old.created_at is not null
begin
    insert into litejobs__specify (base_id, said)
    values (coalesce(new.spec_id, 0), new.options);
end;

-- And taken over.
create trigger litejobs_job_update_says_options
after update of options on litejobs_job
when new.options is not null and old.created_at is not null
begin
    update litejobs_job
    set
        options = null,
        spec_id = (
            select spec_id from litejobs_wording
            where base_id = coalesce(new.spec_id, 0) and said = new.options
        )
    where id = new.id;
end;

-- So are those of a task.
create trigger litejobs_task_update_finds_options
before update of options on litejobs_task
when new.options is not null
begin
    insert into litejobs__specify (base_id, said, kept)
    values (coalesce(new.spec_id, 0), new.options, 1);
end;

-- And taken over.
create trigger litejobs_task_update_says_options
after update of options on litejobs_task
when new.options is not null
begin
    update litejobs_task
    set
        options = null,
        spec_id = (
            select spec_id from litejobs_wording
            where base_id = coalesce(new.spec_id, 0) and said = new.options
        )
    where name = new.name;
end;

-- The waits of a rule. A snooze for no time would never end.
create trigger litejobs_rule_insert_says_options
after insert on litejobs_rule
when new.options is not null
begin
    update litejobs_rule
    set
        options = null,
        spec_id = (
            select spec_id from litejobs_wording
            where base_id = 0 and said = new.options
        )
    where id = new.id;
    select raise(
        abort,
        'invalid_rule: a snooze takes time; give a delay_ms above 0, or leave it out'
    )
    from litejobs_rule as rule
    cross join litejobs_spec as spec on spec.id = rule.spec_id
    where rule.id = new.id and rule.action = 'snooze' and spec.delay_ms = 0;
end;
