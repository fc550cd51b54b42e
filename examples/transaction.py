"""Your own row and the job that it needs: both are stored, or neither is.

    python examples/transaction.py

The application's tables are in the jobs file and are written on the connection that
`jobs.transaction()` gives. The task, too, writes its row and ends its job in one
commit, so however often the process dies, a parcel is packed once. The output is:

    order 1 and its job are stored
    order 2: out of tables, rolled back
    orders: [(1, 'chair')]
    jobs: {'pending': 1}
    parcels: [(1, 'a chair in a box')]
    jobs: {'completed': 1}
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from litejobs import LiteJobs, current

TABLES = """
create table orders (id integer primary key, item text not null);
create table parcels (order_id integer primary key, content text not null);
"""


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        LiteJobs(Path(folder, "shop.db")) as jobs,
    ):

        @jobs.task
        def pack(order_id: int) -> None:
            with current().transaction() as db:
                query = "select item from orders where id = ?"
                item = db.execute(query, (order_id,)).get
                db.execute(
                    "insert into parcels values (?, ?)",
                    (order_id, f"a {item} in a box"),
                )

        def order(number: int, item: str) -> None:
            with jobs.transaction() as db:
                db.execute("insert into orders values (?, ?)", (number, item))
                pack.enqueue(number)
                if item == "table":
                    raise ValueError("out of tables")

        with jobs.transaction() as db:
            db.execute(TABLES)
        order(1, "chair")
        print("order 1 and its job are stored")
        try:
            order(2, "table")
        except ValueError as error:
            print(f"order 2: {error}, rolled back")
        show(jobs, "orders")
        print("jobs:", jobs.counts())
        jobs.drain()
        show(jobs, "parcels")
        print("jobs:", jobs.counts())


def show(jobs: LiteJobs, table: str) -> None:
    """Print the rows of one of our own tables."""
    with jobs.transaction() as db:
        print(f"{table}:", db.execute(f"select * from {table}").fetchall())


if __name__ == "__main__":
    main()
