// node:sqlite, and what has the same form: `node node.cjs MODULE FILE`.
const readline = require("node:readline");

const [name, path] = process.argv.slice(2);
const say = (...parts) => {
  const words = parts.map((part) => String(part ?? "").replace(/\s+/g, " "));
  process.stdout.write(words.join("\t") + "\n");
};

let db, version;
try {
  const driver = require(name);
  const Database = driver.DatabaseSync ?? driver.Database ?? driver;
  db = new Database(path);
  version = name.startsWith("/")
    ? require(`${name}/package.json`).version
    : globalThis.Deno?.version.deno ?? globalThis.Bun?.version ?? process.version;
  const [row] = db.prepare("select sqlite_version() as v").all();
  say("ready", version, row.v);
} catch (error) {
  say("error", error.message);
  process.exit();
}

const bound = (said) => {
  const text = said.slice(1);
  switch (said[0]) {
    case "i": case "r": return Number(text);
    case "b": return text === "1";
    case "t": return text;
    case "n": return null;
    case "d": return new Date(Number(text));
  }
};

const left = [];
readline.createInterface({ input: process.stdin }).on("line", (line) => {
  const [verb, sql, ...values] = line.split("\t");
  try {
    const statement = db.prepare(sql);
    const given = values.map(bound);
    // better-sqlite3 knows what reads; of the others a statement without rows is run.
    const reads = statement.reader ?? /^\s*(select|pragma|with)|returning/i.test(sql);
    if (!reads) {
      const { changes, lastInsertRowid } = statement.run(...given);
      say("done", changes, lastInsertRowid);
    } else if (verb === "first") {
      const rows = statement.iterate(...given);
      left.push(rows);
      say("row", ...Object.values(rows.next().value));
      say("done");
    } else {
      for (const row of statement.all(...given)) say("row", ...Object.values(row));
      say("done");
    }
  } catch (error) {
    say("error", error.message);
  }
});
