#!/bin/sh
# drizzle-kit 0.31.11 (SQLite): `pull` ends with status 1 and "Could not process view" at a
# view that begins with `with`. At a view that `tablesFilter` leaves out it ends with status
# 1 and no reason at all, though the same view is pulled without trouble by a filter for all.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
echo '{"private": true}' > package.json
npm install --silent --no-audit --no-fund \
  drizzle-kit@0.31.11 drizzle-orm@0.45.4 @libsql/client@0.15.15
for query in 'select id from note' 'with n as (select id from note) select id from n'; do
  for filter in '*' note; do
    rm -f notes.db
    node -e '
      const { createClient } = require("@libsql/client");
      createClient({ url: "file:notes.db" }).executeMultiple(
        `create table note (id integer primary key); create view shown as ${process.argv[1]}`,
      );
    ' "$query"
    cat > drizzle.config.cjs <<CONFIG
module.exports = {
  dialect: "sqlite",
  out: "./out",
  tablesFilter: ["$filter"],
  dbCredentials: { url: "file:notes.db" },
};
CONFIG
    status=0
    npx drizzle-kit pull --config=drizzle.config.cjs > log 2>&1 < /dev/null || status=$?
    reason=$(grep -i -o -E 'could not.*|[a-z]*error.*' log || true)
    echo "${query%% *} $filter: $status ${reason:-no reason}" >> found
  done
done
cat found
[ "$(cat found)" = "select *: 0 no reason
select note: 1 no reason
with *: 1 Could not process view
with note: 1 Could not process view" ]
