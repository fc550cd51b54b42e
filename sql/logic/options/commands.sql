-- What can be said of options?

-- Somebody says these options, JSON, over those of `base_id` (0 is none): afterwards
-- litejobs_wording has the specification that they lead to. One that is new and is to
-- be `kept` has a number below zero.
create view litejobs__specify as
select null as base_id, null as said, null as kept where 0;
