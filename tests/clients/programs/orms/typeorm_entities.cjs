// TypeORM, with entities that the application has written.

"use strict";

require("reflect-metadata");
const { DataSource, EntitySchema, MoreThan } = require("typeorm");
const { tell } = require("./told.cjs");

const id = { type: "integer", primary: true };
const text = { type: "text" };
const maybe = { type: "text", nullable: true };
const number = { type: "integer", nullable: true };

const entity = (name, columns) => new EntitySchema({ name, tableName: name, columns });
const Job = entity("litejobs_job", {
  id: { ...id, generated: true },
  task: text,
  args: text,
  state: maybe,
  priority: number,
  run_at: number,
  attempts: number,
  unique_key: maybe,
});
const Queue = entity("litejobs_queue", {
  name: { type: "text", primary: true },
  paused: { type: "boolean" },
});
const Report = entity("litejobs_job_report", { id, state: text, result: maybe });
const Event = entity("litejobs_event", { id, name: text });

tell("typeorm", "TypeORM", async (path) => {
  const source = new DataSource({
    type: "better-sqlite3",
    database: path,
    entities: [Job, Queue, Report, Event],
    synchronize: false,
  });
  await source.initialize();
  const jobs = source.getRepository(Job);
  return {
    enqueue: async (values) => (await jobs.save(jobs.create(values))).id,
    async report(job) {
      const found = await source.getRepository(Report).findOneBy({ id: job });
      return [found.state, found.result];
    },
    load: (job) => jobs.findOneBy({ id: job }),
    // `save()` reads the row again, and writes what is another there.
    save: (loaded, values) => jobs.save({ ...loaded, ...values }),
    holder: async (unique_key) => (await jobs.findOneBy({ unique_key })).id,
    pause: (name) => source.getRepository(Queue).upsert({ name, paused: true }, ["name"]),
    async events(after) {
      const where = { id: MoreThan(after) };
      const found = await source
        .getRepository(Event)
        .find({ where, order: { id: "ASC" } });
      return found.map((each) => each.name);
    },
    close: () => source.destroy(),
  };
});
