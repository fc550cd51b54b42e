// Knex, which knows tables and no models.

"use strict";

const knex = require("knex");
const { tell } = require("./told.cjs");

tell("knex", "Knex", async (path) => {
  const db = knex({
    client: "better-sqlite3",
    connection: { filename: path },
    useNullAsDefault: true,
  });
  return {
    // A bulk insert has NULL for what another of its rows has alone.
    async enqueue(values) {
      const whole = { queue: null, priority: null, state: null, ...values };
      const [{ id }] = await db("litejobs_job").insert(whole).returning("id");
      return id;
    },
    async report(job) {
      const found = await db("litejobs_job_report").where({ id: job }).first();
      return [found.state, found.result];
    },
    load: (job) => db("litejobs_job").where({ id: job }).first(),
    save: (loaded, values) =>
      db("litejobs_job")
        .where({ id: loaded.id })
        .update({ ...loaded, ...values }),
    async holder(key) {
      return (await db("litejobs_job").where({ unique_key: key }).first()).id;
    },
    pause: (queue) =>
      db("litejobs_queue")
        .insert({ name: queue, paused: true })
        .onConflict("name")
        .merge(),
    async events(after) {
      const found = db("litejobs_event").where("id", ">", after).orderBy("id");
      return (await found).map((each) => each.name);
    },
    close: () => db.destroy(),
  };
});
