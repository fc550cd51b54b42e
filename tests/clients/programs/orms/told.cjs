// What a user does by way of an ORM, and what comes of it: a line for each act.
//
// As `told.py`; what has come of an act is looked at through better-sqlite3.

"use strict";

const fs = require("fs");
const path = require("path");

const Database = require("better-sqlite3");

const LATER = 4102444800000; // in 2100
const LONG = 60000; // milliseconds: how long the runner may take

const ENDED = ["completed", "dead_lettered", "cancelled"];

async function when(orm, job, states) {
  const until = Date.now() + LONG;
  let found = await orm.report(job);
  while (!states.includes(found[0]) && Date.now() < until) {
    await new Promise((go) => setTimeout(go, 20));
    found = await orm.report(job);
  }
  return found;
}

// What an error says; Prisma's begins with some lines of its own source.
function words(error) {
  return error.message.trim().split("\n").pop();
}

// Let a job run that was loaded before.
async function begin(orm, db, job, states) {
  const now = "(select now from litejobs_clock)";
  db.prepare(`update litejobs_job set run_at = ${now} where id = ?`).run(job);
  await when(orm, job, states);
}

// Change a job that was loaded before, and save it.
async function saved(orm, loaded) {
  try {
    await orm.save(loaded, { priority: 3 });
  } catch (error) {
    const cause = error.original ?? error;
    return `refused: ${words(cause)}`;
  }
  return "stored";
}

function value(db, sql, ...parameters) {
  return db.prepare(sql).pluck().get(...parameters);
}

const acts = {
  // Make a job with what the ORM writes for all that is not said.
  async enqueue(orm) {
    const job = await orm.enqueue({ task: "double", args: "[21]" });
    const found = String(await when(orm, job, ENDED));
    return found === "completed,42" ? "works" : found;
  },

  // Is the id of the new object that of the job?
  async last_id(orm, db) {
    const job = await orm.enqueue({ task: "double", args: "[1]", run_at: LATER });
    const newest = value(db, "select max(id) from litejobs_job");
    return job === newest ? "works" : `${job}, and the job is ${newest}`;
  },

  // Load a job that waits, set its state, save it.
  async cancel(orm, db) {
    const job = await orm.enqueue({ task: "double", args: "[2]", run_at: LATER });
    await orm.save(await orm.load(job), { state: "cancelled" });
    const state = value(db, "select state from litejobs_job where id = ?", job);
    return state === "cancelled" ? "works" : state;
  },

  // Load a job and save it: nothing has happened to it.
  async save_unchanged(orm, db) {
    const job = await orm.enqueue({ task: "double", args: "[3]", run_at: LATER });
    const loaded = await orm.load(job);
    const before = value(db, "select max(id) from litejobs_line");
    await orm.save(loaded, {});
    const after = value(db, "select max(id) from litejobs_line");
    return after === before ? "works" : `${after - before} events`;
  },

  // Save a job as it was before it began: it goes on running, and ends.
  async save_running(orm, db) {
    const job = await orm.enqueue({ task: "hold", args: "[]", run_at: LATER });
    const loaded = await orm.load(job);
    await begin(orm, db, job, ["processing"]);
    const said = await saved(orm, loaded);
    const state = value(db, "select state from litejobs_job where id = ?", job);
    fs.writeFileSync(`${process.argv[2]}.go`, "");
    const [end] = await when(orm, job, ENDED);
    const asSaid = state === "processing" && end === "completed";
    return asSaid ? said : `the job is ${state}, then ${end}: ${said}`;
  },

  // Save a job as it was before it ran: its end stands.
  async save_stale(orm, db) {
    const job = await orm.enqueue({ task: "double", args: "[4]", run_at: LATER });
    const loaded = await orm.load(job);
    await begin(orm, db, job, ENDED);
    const said = await saved(orm, loaded);
    const state = value(db, "select state from litejobs_job where id = ?", job);
    return state === "completed" ? said : `the job is ${state}: ${said}`;
  },

  // A key that is taken: no stranger's id is handed out, and the holder is found.
  async duplicate(orm) {
    const values = { task: "double", args: "[5]", run_at: LATER, unique_key: "one" };
    const job = await orm.enqueue(values);
    let other;
    try {
      other = await orm.enqueue(values);
    } catch {
      const found = await orm.holder("one");
      return found === job ? "works" : `${found} holds the key of ${job}`;
    }
    return `the id ${other} for the key of ${job}`;
  },

  // Pause a queue that no job was in yet.
  async pause(orm, db) {
    await orm.pause("mail");
    const paused = value(db, "select paused from litejobs_queue where name = 'mail'");
    return paused === 1 ? "works" : `paused is ${paused}`;
  },

  // Read the events since the last look.
  async read_on(orm, db) {
    const last = value(db, "select max(id) from litejobs_event");
    await orm.enqueue({ task: "double", args: "[6]", run_at: LATER });
    const names = String(await orm.events(last));
    return names === "task.enqueued" ? "works" : names;
  },
};

// Of a package, which may not let its package.json be required.
function versionOf(name) {
  const of = `${path.sep}node_modules${path.sep}${name}${path.sep}`;
  const entry = require.resolve(name);
  const root = entry.slice(0, entry.lastIndexOf(of) + of.length);
  return require(path.join(root, "package.json")).version;
}

exports.tell = async (name, shown, begin) => {
  const file = process.argv[2];
  const db = new Database(file, { timeout: 10000 });
  console.log(`version\t${shown} ${versionOf(name)}`);
  const orm = await begin(file);
  for (const [name, act] of Object.entries(acts)) {
    let seen;
    try {
      seen = await act(orm, db);
    } catch (error) {
      seen = `${error.name}: ${words(error)}`;
    }
    console.log(`${name}\t${seen}`);
  }
  db.close();
  await orm.close();
};
