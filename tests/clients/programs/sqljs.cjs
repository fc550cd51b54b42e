// sql.js, which has a copy of the file in memory: `node sqljs.cjs MODULE FILE`.
const fs = require("node:fs");
const readline = require("node:readline");

const [name, path] = process.argv.slice(2);
const say = (...parts) => console.log(parts.map((part) => part ?? "").join("\t"));

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

require(name)().then((SQL) => {
  const db = new SQL.Database(fs.readFileSync(path));
  const [{ values: [[version]] }] = db.exec("select sqlite_version()");
  say("ready", require(`${name}/package.json`).version, version);
  const left = [];
  readline.createInterface({ input: process.stdin }).on("line", (line) => {
    const [verb, sql, ...values] = line.split("\t");
    try {
      const statement = db.prepare(sql, values.map(bound));
      while (statement.step()) {
        say("row", ...statement.get());
        if (verb === "first") break;
      }
      if (verb === "first") left.push(statement);
      else statement.free();
      say("done", db.getRowsModified());
    } catch (error) {
      say("error", error.message ?? error);
    }
  });
});
