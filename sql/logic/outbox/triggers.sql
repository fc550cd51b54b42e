-- What is refused of what an outbox has handed over?

-- NULL is not said of it.
create trigger litejobs_outbox_delivery_insert_guard
before insert on litejobs_outbox_delivery
when new.key is null or new.job_id is null or new.delivered_at is null
begin
    insert into litejobs__take_null (value) values (null);
end;
