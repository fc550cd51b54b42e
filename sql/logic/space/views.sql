-- Is there room for more?

-- One row while no new jobs are taken, and why; as a rule none, and no row to be read.
create view litejobs__crowded as
select
    case when disk_full_at is not null then 'disk_full' else 'file_full' end as reason
from litejobs_space
where disk_full_at is not null or bytes - free_bytes >= max_bytes;

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
where disk_full_at is not null
union all
select
    'file_full', 'problem', 'the file',
    'uses ' || (bytes - free_bytes) || ' bytes, and max_size is ' || max_bytes
        || ': no new job is taken',
    'delete what has ended with litejobs purge, or raise max_size'
from litejobs_space
where bytes - free_bytes >= max_bytes;
