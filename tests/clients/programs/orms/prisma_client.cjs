// Prisma's client, with models that the application has written.
//
// Its command reads the schema and writes the client. It wants engines that do not come by
// npm and are not needed for that, so it is told that they are there.

"use strict";

const { execFileSync } = require("child_process");
const fs = require("fs");
const path = require("path");

const { PrismaBetterSQLite3 } = require("@prisma/adapter-better-sqlite3");
const { tell } = require("./told.cjs");

const schema = `
generator client {
  provider   = "prisma-client-js"
  engineType = "client"
  output     = "./client"
}

datasource db {
  provider = "sqlite"
  url      = "file:unused.db"
}

model litejobs_job {
  id         Int     @id @default(autoincrement())
  task       String
  args       String
  state      String?
  priority   Int?
  run_at     BigInt?
  attempts   Int?
  unique_key String?
}

model litejobs_queue {
  name   String  @id
  paused Boolean
}

model litejobs_job_report {
  id     Int     @id
  state  String
  result String?
}

model litejobs_event {
  id   Int    @id
  name String
}
`;

function generated(folder) {
  fs.mkdirSync(folder);
  // It looks for its own packages beside the schema, and would install them there.
  fs.symlinkSync(process.env.NODE_PATH, path.join(folder, "node_modules"));
  fs.writeFileSync(path.join(folder, "package.json"), "{}\n");
  const file = path.join(folder, "schema.prisma");
  fs.writeFileSync(file, schema);
  const program = path.join(process.env.NODE_PATH, "prisma", "build", "index.js");
  const settings = {
    PRISMA_GENERATE_SKIP_AUTOINSTALL: "true",
    PRISMA_QUERY_ENGINE_LIBRARY: process.execPath,
    PRISMA_SCHEMA_ENGINE_BINARY: process.execPath,
  };
  execFileSync(process.execPath, [program, "generate", "--schema", file], {
    env: { ...process.env, ...settings },
    stdio: ["ignore", "ignore", "inherit"],
  });
  return require(path.join(folder, "client"));
}

tell("@prisma/client", "Prisma", async (file) => {
  const { PrismaClient } = generated(`${file}.prisma`);
  const adapter = new PrismaBetterSQLite3({ url: `file:${file}` });
  const db = new PrismaClient({ adapter });
  return {
    enqueue: async (data) => (await db.litejobs_job.create({ data })).id,
    async report(id) {
      const found = await db.litejobs_job_report.findUnique({ where: { id } });
      return [found.state, found.result];
    },
    load: (id) => db.litejobs_job.findUnique({ where: { id } }),
    save: ({ id, ...loaded }, values) =>
      db.litejobs_job.update({ where: { id }, data: { ...loaded, ...values } }),
    holder: async (unique_key) =>
      (await db.litejobs_job.findFirst({ where: { unique_key } })).id,
    pause: (name) =>
      db.litejobs_queue.upsert({
        where: { name },
        create: { name, paused: true },
        update: { paused: true },
      }),
    async events(after) {
      const found = await db.litejobs_event.findMany({
        where: { id: { gt: after } },
        orderBy: { id: "asc" },
      });
      return found.map((each) => each.name);
    },
    close: () => db.$disconnect(),
  };
});
