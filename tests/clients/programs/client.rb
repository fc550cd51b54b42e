# Ruby's sqlite3: `ruby client.rb FILE`.
require 'sqlite3'

$stdout.sync = true
def say(*parts)
  puts parts.map { |part| part.to_s.gsub(/\s+/, ' ') }.join("\t")
end

def bound(said)
  text = said[1..]
  case said[0]
  when 'i' then text.to_i
  when 'r' then text.to_f
  when 'b' then text == '1'
  when 't' then text
  when 'd' then Time.at(text.to_i / 1000)
  end
end

db = SQLite3::Database.new(ARGV[0])
say('ready', SQLite3::VERSION, SQLite3::SQLITE_VERSION)
left = []
while (line = $stdin.gets)
  verb, sql, *values = line.chomp.split("\t", -1)
  begin
    statement = db.prepare(sql)
    rows = statement.execute(*values.map { |each| bound(each) })
    while (row = rows.next)
      say('row', *row)
      break if verb == 'first'
    end
    verb == 'first' ? left << statement : statement.close
    say('done', db.changes, db.last_insert_row_id)
  rescue StandardError => e
    say('error', e.message)
  end
end
