// Drizzle, with tables that the application has written.

"use strict";

const Database = require("better-sqlite3");
const { asc, eq, gt } = require("drizzle-orm");
const { drizzle } = require("drizzle-orm/better-sqlite3");
const { integer, sqliteTable, text } = require("drizzle-orm/sqlite-core");
const { tell } = require("./told.cjs");

const job = sqliteTable("litejobs_job", {
  id: integer("id").primaryKey(),
  task: text("task").notNull(),
  args: text("args").notNull(),
  state: text("state"),
  priority: integer("priority"),
  run_at: integer("run_at"),
  attempts: integer("attempts"),
  unique_key: text("unique_key"),
});
const queue = sqliteTable("litejobs_queue", {
  name: text("name").primaryKey(),
  paused: integer("paused", { mode: "boolean" }),
});
const report = sqliteTable("litejobs_job_report", {
  id: integer("id").primaryKey(),
  state: text("state"),
  result: text("result"),
});
const event = sqliteTable("litejobs_event", {
  id: integer("id").primaryKey(),
  name: text("name"),
});

tell("drizzle-orm", "Drizzle", async (path) => {
  const client = new Database(path);
  const db = drizzle(client);
  return {
    // An insert says NULL for each column of the table that is not set.
    enqueue: async (values) =>
      db.insert(job).values(values).returning({ id: job.id }).get().id,
    async report(id) {
      const found = db.select().from(report).where(eq(report.id, id)).get();
      return [found.state, found.result];
    },
    load: async (id) => db.select().from(job).where(eq(job.id, id)).get(),
    save: async (loaded, values) =>
      db
        .update(job)
        .set({ ...loaded, ...values })
        .where(eq(job.id, loaded.id))
        .run(),
    holder: async (key) =>
      db.select().from(job).where(eq(job.unique_key, key)).get().id,
    pause: async (name) =>
      db
        .insert(queue)
        .values({ name, paused: true })
        .onConflictDoUpdate({ target: queue.name, set: { paused: true } })
        .run(),
    async events(after) {
      const found = db.select().from(event).where(gt(event.id, after));
      return found
        .orderBy(asc(event.id))
        .all()
        .map((each) => each.name);
    },
    close: async () => client.close(),
  };
});
