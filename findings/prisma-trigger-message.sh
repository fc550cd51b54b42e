#!/bin/sh
# Prisma 6.19.3 (client engine, libsql adapter): the sentence with which a trigger refuses a
# row, `raise(abort, …)`, is reported as P2003, "Foreign key constraint violated", in a
# database without any foreign key. The sentence is not in the message, only deep in `meta`.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
echo '{"private": true}' > package.json
npm install --silent --no-audit --no-fund \
  prisma@6.19.3 @prisma/client@6.19.3 @prisma/adapter-libsql@6.19.3 @libsql/client@0.8.1
cat > schema.prisma <<'SCHEMA'
generator client {
  provider   = "prisma-client-js"
  engineType = "client"
}
datasource db {
  provider = "sqlite"
  url      = "file:./notes.db"
}
model note {
  id   Int    @id
  text String
}
SCHEMA
# The engine for migrations is not used: a program that exists saves its download.
PRISMA_SCHEMA_ENGINE_BINARY=$(command -v node) CHECKPOINT_DISABLE=1 \
  npx prisma generate --schema schema.prisma > log 2>&1 || { cat log; exit 1; }
cat > ask.mjs <<'JS'
import { createClient } from "@libsql/client";
import { PrismaLibSQL } from "@prisma/adapter-libsql";
import { PrismaClient } from "@prisma/client";

const db = createClient({ url: "file:notes.db" });
await db.executeMultiple(`
  create table note (id integer primary key, text text not null);
  create trigger short before insert on note when length(new.text) > 5
  begin select raise(abort, 'the text is too long'); end;
`);
try {
  await db.execute("insert into note values (1, 'a novel')");
} catch (error) {
  console.log("driver:", error.message);
}
const prisma = new PrismaClient({ adapter: new PrismaLibSQL({ url: "file:notes.db" }) });
try {
  await prisma.note.create({ data: { id: 1, text: "a novel" } });
} catch (error) {
  console.log("prisma:", error.code, error.message.trim().split("\n").at(-1));
  console.log("in the message:", error.message.includes("too long"));
  console.log("in meta:", JSON.stringify(error.meta).includes("too long"));
}
JS
found=$(node ask.mjs)
printf '%s\n' "$found"
[ "$found" = "driver: SQLITE_CONSTRAINT_TRIGGER: the text is too long
prisma: P2003 Foreign key constraint violated on the foreign key
in the message: false
in meta: true" ]
