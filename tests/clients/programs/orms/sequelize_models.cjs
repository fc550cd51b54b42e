// Sequelize, with models that the application has written.

"use strict";

const { DataTypes, Op, Sequelize } = require("sequelize");
const { tell } = require("./told.cjs");

const key = { type: DataTypes.INTEGER, primaryKey: true };
const text = DataTypes.TEXT;

tell("sequelize", "Sequelize", async (path) => {
  const sequelize = new Sequelize({ dialect: "sqlite", storage: path, logging: false });
  const model = (tableName, columns) =>
    sequelize.define(tableName, columns, { tableName, timestamps: false });
  const Job = model("litejobs_job", {
    id: { ...key, autoIncrement: true },
    task: { type: text, allowNull: false },
    args: { type: text, allowNull: false },
    state: text,
    priority: DataTypes.INTEGER,
    run_at: DataTypes.BIGINT,
    attempts: DataTypes.INTEGER,
    unique_key: text,
  });
  const Queue = model("litejobs_queue", {
    name: { type: text, primaryKey: true },
    paused: DataTypes.BOOLEAN,
  });
  const Report = model("litejobs_job_report", { id: key, state: text, result: text });
  const Event = model("litejobs_event", { id: key, name: text });
  return {
    enqueue: async (values) => (await Job.create(values)).id,
    async report(job) {
      const found = await Report.findByPk(job);
      return [found.state, found.result];
    },
    load: (job) => Job.findByPk(job),
    // `save()` writes what was changed, unless it is told which columns.
    save: (loaded, values) =>
      loaded.set(values).save({ fields: Object.keys(Job.getAttributes()) }),
    async holder(unique_key) {
      return (await Job.findOne({ where: { unique_key } })).id;
    },
    pause: (name) => Queue.upsert({ name, paused: true }),
    async events(after) {
      const where = { id: { [Op.gt]: after } };
      const found = await Event.findAll({ where, order: ["id"] });
      return found.map((each) => each.name);
    },
    close: () => sequelize.close(),
  };
});
