# Enqueue a job, wait for its result, cancel another, and read what happened.
#
#     perl examples/sql/client.pl jobs.db
#
# Another process runs the jobs of the file: see docs/sql.md. This one needs DBD::SQLite.
use strict;
use warnings;
use DBI;
use JSON::PP;
use Time::HiRes qw(sleep time);

my $db = DBI->connect("dbi:SQLite:dbname=$ARGV[0]", '', '', { RaiseError => 1 });
$db->do('pragma synchronous = full');
my $json = JSON::PP->new->allow_nonref;

my ($last) = $db->selectrow_array('select id from litejobs_event order by id desc limit 1');
$last //= 0;

$db->do("insert into litejobs_job (task, args) values ('greet', ?)",
    undef, $json->encode({ name => 'Ann' }));
my $job = $db->sqlite_last_insert_rowid;
my ($state, $result) = ('', undef);
until ($state =~ /^(completed|dead_lettered|cancelled)$/) {
    sleep 0.05;
    ($state, $result) = $db->selectrow_array(
        'select state, result from litejobs_job_report where id = ?', undef, $job);
}
print "$state ", $json->decode($result), "\n";

$db->do("insert into litejobs_job (task, run_at) values ('greet', ?)",
    undef, int(time * 1000) + 3_600_000);
my $later = $db->sqlite_last_insert_rowid;
$db->do("update litejobs_job set state = 'cancelled' where id = ?", undef, $later);

my $news = $db->selectall_arrayref(
    'select id, job_id, name from litejobs_event where id > ? order by id', undef, $last);
for my $event (@$news) {
    $last = $event->[0];    # the next look begins here
    print "job $event->[1] $event->[2]\n";
}
