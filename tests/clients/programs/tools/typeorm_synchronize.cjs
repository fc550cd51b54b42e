// TypeORM: `synchronize()`.
//
// typeorm_synchronize.cjs FILE FOLDER

"use strict";

require("reflect-metadata");
const { DataSource, EntitySchema } = require("typeorm");

const Order = new EntitySchema({
  name: "orders",
  tableName: "orders",
  columns: {
    id: { type: "integer", primary: true },
    item: { type: "text", nullable: true },
    amount: { type: "integer", nullable: true },
  },
});

async function main(database) {
  const source = new DataSource({
    type: "better-sqlite3",
    database,
    entities: [Order],
    synchronize: true,
  });
  await source.initialize();
  await source.destroy();
}

main(process.argv[2]);
