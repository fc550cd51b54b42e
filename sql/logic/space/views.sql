-- Is there room for more?

-- One row while no new jobs are taken, and why; as a rule none, and no row to be read.
create view litejobs__crowded as
select 'disk_full' as reason
from litejobs_space
where disk_full_at is not null;

-- What a doctor says of it.
create view litejobs__lack_of_room as
select
    'disk_full' as code,
    'problem' as level,
    'the disk' as object,
    'was full at '
        || strftime('%Y-%m-%dT%H:%M:%SZ', disk_full_at / 1000.0, 'unixepoch')
        || ': what runs is settled, but nothing is begun and no new job is taken'
        as sentence,
    'make room: delete what is not needed, or litejobs purge' as remedy
from litejobs_space
where disk_full_at is not null;
