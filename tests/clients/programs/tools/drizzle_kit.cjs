// drizzle-kit: `push`, or `generate` and what `migrate` does then.
//
// drizzle_kit.cjs FILE FOLDER (push | pushfiltered | generate)

"use strict";

const { spawnSync } = require("child_process");
const fs = require("fs");
const path = require("path");

const [, , file, folder, verb] = process.argv;

const schema = `
const { integer, sqliteTable, text } = require("drizzle-orm/sqlite-core");
exports.orders = sqliteTable("orders", {
  id: integer("id").primaryKey(),
  item: text("item"),
  NEXT
});
`;
const columns = ['note: text("note"),', 'amount: integer("amount"),'];
const config = {
  dialect: "sqlite",
  schema: "./schema.cjs",
  out: "./out",
  dbCredentials: { url: file },
};
if (verb === "pushfiltered") config.tablesFilter = ["orders"];
fs.writeFileSync(
  path.join(folder, "drizzle.config.cjs"),
  `module.exports = ${JSON.stringify(config)};\n`,
);
// Modules are looked for in the folders above the schema.
fs.symlinkSync(process.env.NODE_PATH, path.join(folder, "node_modules"));

function kit(column, ...words) {
  const text = schema.replace("NEXT", columns[column]);
  fs.writeFileSync(path.join(folder, "schema.cjs"), text);
  const program = path.join(process.env.NODE_PATH, "drizzle-kit", "bin.cjs");
  const done = spawnSync(process.execPath, [program, ...words], {
    cwd: folder,
    encoding: "utf-8",
    stdio: ["ignore", "pipe", "pipe"],
  });
  console.log(done.stdout, done.stderr);
  if (done.status !== 0) process.exit(done.status);
}

if (verb !== "generate") {
  kit(1, "push", "--config", "drizzle.config.cjs", "--force");
} else {
  const Database = require("better-sqlite3");
  const { drizzle } = require("drizzle-orm/better-sqlite3");
  const { migrate } = require("drizzle-orm/better-sqlite3/migrator");
  kit(1, "generate", "--config", "drizzle.config.cjs");
  const db = new Database(file);
  // The application began with this table, as the first migration makes it.
  db.exec("drop table orders");
  migrate(drizzle(db), { migrationsFolder: path.join(folder, "out") });
  db.close();
}
