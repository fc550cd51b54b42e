// Sequelize: `sync({ alter: true })`, and `dropAllTables()` if that is said.
//
// sequelize_sync.cjs FILE FOLDER [drop]

"use strict";

const { DataTypes, Sequelize } = require("sequelize");

async function main(storage, drop) {
  const sequelize = new Sequelize({ dialect: "sqlite", storage, logging: false });
  const columns = { item: DataTypes.TEXT, amount: DataTypes.INTEGER };
  sequelize.define("orders", columns, { tableName: "orders", timestamps: false });
  if (drop) await sequelize.getQueryInterface().dropAllTables();
  await sequelize.sync({ alter: true });
  await sequelize.close();
}

main(process.argv[2], process.argv[4] === "drop");
