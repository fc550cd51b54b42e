# Perl's DBI with DBD::SQLite: `perl client.pl FILE`.
use strict;
use warnings;
use DBI;

$| = 1;
my ($path) = @ARGV;
sub say_ { print join("\t", map { my $v = $_ // ''; $v =~ s/\s+/ /g; $v } @_), "\n" }

my $db = DBI->connect("dbi:SQLite:dbname=$path", '', '',
    { RaiseError => 1, PrintError => 0 });
say_('ready', $DBD::SQLite::VERSION, $DBD::SQLite::sqlite_version);
my @left;
while (my $line = <STDIN>) {
    chomp $line;
    my ($verb, $sql, @values) = split /\t/, $line, -1;
    eval {
        my @given = map {
            my ($kind, $text) = /^(.)(.*)$/;
            $kind eq 'n' ? undef
                : $kind eq 'd' ? scalar gmtime($text / 1000)
                : $kind eq 'b' ? !!$text
                : $kind eq 't' ? $text : $text + 0
        } @values;
        my $statement = $db->prepare($sql);
        my $changed = $statement->execute(@given);
        if ($statement->{NUM_OF_FIELDS}) {
            while (my @row = $statement->fetchrow_array) {
                say_('row', @row);
                if ($verb eq 'first') { push @left, $statement; last }
            }
        }
        say_('done', $changed + 0, $db->sqlite_last_insert_rowid);
        1;
    } or do { my $error = $@; say_('error', $error) };
}
