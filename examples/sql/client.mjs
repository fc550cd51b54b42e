/* Enqueue a job, wait for its result, cancel another, and read what happened.

    node examples/sql/client.mjs jobs.db

Another process runs the jobs of the file: see docs/sql.md. This one needs Node 22 for
node:sqlite, or better-sqlite3, whose words are the same: new Database(path). */

import { DatabaseSync } from "node:sqlite";
import { setTimeout as sleep } from "node:timers/promises";

const db = new DatabaseSync(process.argv[2]);
db.exec("pragma busy_timeout = 30000; pragma synchronous = full");

let { id: last } = db
  .prepare("select id from litejobs_event order by id desc limit 1")
  .get() ?? { id: 0 };

const { lastInsertRowid: job } = db
  .prepare("insert into litejobs_job (task, args) values ('greet', ?)")
  .run(JSON.stringify({ name: "Ann" }));
const look = db.prepare("select state, result from litejobs_job_report where id = ?");
let found;
do {
  await sleep(50);
  found = look.get(job);
} while (!["completed", "dead_lettered", "cancelled"].includes(found.state));
console.log(found.state, JSON.parse(found.result));

const { lastInsertRowid: later } = db
  .prepare("insert into litejobs_job (task, run_at) values ('greet', ?)")
  .run(Date.now() + 3_600_000);
db.prepare("update litejobs_job set state = 'cancelled' where id = ?").run(later);

const news = db.prepare(
  "select id, job_id, name from litejobs_event where id > ? order by id",
);
for (const event of news.all(last)) {
  last = event.id; // the next look begins here
  console.log("job", event.job_id, event.name);
}
