"""A shop with FastAPI: an order and the job that charges it are stored together.

    pip install litejobs fastapi uvicorn
    uvicorn --app-dir examples/orders shop:app

    curl -X POST 'localhost:8000/orders?item=chair&email=ann@example.com'
    {"id":1,"state":"placed"}
    curl localhost:8000/orders/1
    {"id":1,"state":"paid"}

Its tests are in the folder `tests`, and need pytest and httpx besides:

    cd examples/orders && pytest

Nothing in this file was written for them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from typing import Any

import services
from fastapi import FastAPI, HTTPException
from fastapi.responses import JSONResponse

from litejobs import LiteJobs, Policy, Rule, cron, current

jobs = LiteJobs(os.environ.get("LITEJOBS_DB", "shop.db"))

TABLES = """
create table if not exists orders (
    id integer primary key,
    item text not null,
    email text not null,
    state text not null default 'placed',
    reminded integer not null default 0,
    placed_at text not null default (datetime('now'))
);
"""


def create_tables() -> None:
    with jobs.transaction() as db:
        db.execute(TABLES)


# The jobs -----------------------------------------------------------------------------

# A bank that does not answer is asked again, after 1, 2, 4 and 8 minutes. If it
# declines the card, or anything else is wrong, the job ends as a dead letter, at once.
payment = Policy(
    [
        Rule(
            "outcome.error.types contains 'OSError'",
            "retry",
            attempts=5,
            delay="1m",
            jitter=0,
        )
    ],
    otherwise="fail",
)


@jobs.task(queue="bank", policy=payment)
def charge(order_id: int) -> None:
    # The bank knows the order by its number: to ask twice is to pay once.
    services.charge_card(f"order {order_id}")
    # Paid, the letter about it, and the end of this job: one commit.
    with current().transaction() as db:
        db.execute("update orders set state = 'paid' where id = ?", (order_id,))
        confirm.enqueue(order_id)


@jobs.task(queue="mail", max_attempts=10)
async def confirm(order_id: int) -> str:
    order = find(order_id)
    return await services.send_mail(order["email"], f"your {order['item']} is paid")


@jobs.task(queue="mail", max_attempts=10)
async def remind(order_id: int) -> str:
    order = find(order_id)
    return await services.send_mail(order["email"], f"your {order['item']} waits")


@jobs.schedule(cron("0 9 * * *", timezone="Europe/Berlin"))
@jobs.task
def remind_all() -> None:
    query = """
        update orders set reminded = 1
        where state = 'placed' and not reminded
          and placed_at <= datetime('now', '-1 day')
        returning id
    """
    with current().transaction() as db:
        late = db.execute(query).fetchall()
        jobs.enqueue_many(remind.call(number) for (number,) in late)


def find(order_id: int) -> dict[str, Any]:
    query = "select id, item, email, state from orders where id = ?"
    with jobs.reader() as db:
        row = db.execute(query, (order_id,)).fetchone()
    if row is None:
        raise LookupError(f"there is no order {order_id}")
    return dict(zip(("id", "item", "email", "state"), row, strict=True))


# The application ----------------------------------------------------------------------


@contextlib.asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:  # noqa: ARG001 - as it is called
    create_tables()
    async with jobs.running(threads=4, grace="10s"):
        yield
    jobs.close()


app = FastAPI(lifespan=lifespan)


@app.post("/orders", status_code=202)
def place(item: str, email: str) -> dict[str, Any]:
    query = "insert into orders (item, email) values (?, ?) returning id, state"
    with jobs.transaction() as db:
        number, state = db.execute(query, (item, email)).fetchone()
        charge.enqueue(number)
        if item not in services.STOCK:
            # Neither the order is there then, nor the job.
            raise HTTPException(404, f"there is no {item} in stock")
    return {"id": number, "state": state}


@app.get("/orders/{number}")
def look(number: int) -> dict[str, Any]:
    try:
        order = find(number)
    except LookupError as error:
        raise HTTPException(404, str(error)) from error
    return {"id": order["id"], "state": order["state"]}


@app.get("/health")
def health() -> JSONResponse:
    found = jobs.health()
    return JSONResponse(found, 200 if found["healthy"] else 503)
