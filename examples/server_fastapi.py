"""FastAPI: jobs that outlive their request, in a server with any number of workers.

    pip install fastapi uvicorn
    uvicorn --app-dir examples --workers 4 server_fastapi:app

    curl -X POST 'localhost:8000/letters?name=Ada'
    {"id": 1}
    curl localhost:8000/letters/1
    {"state": "completed", "result": "Dear Ada"}
    curl localhost:8000/health
    {"role": "runner", "problem": null}

Every worker enqueues. One of them runs the jobs ("runner"), the others stand by, and
one of these takes over when that one ends, in whatever way.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI, HTTPException

from litejobs import LiteJobs
from litejobs.errors import JobNotFound

jobs = LiteJobs(os.environ.get("LITEJOBS_DB", "letters.db"))


@jobs.task
def write(name: str) -> str:
    return f"Dear {name}"


@contextlib.asynccontextmanager
async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
    async with jobs.running(threads=4, grace=3):
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/letters", status_code=202)
def order(name: str) -> dict[str, Any]:
    return {"id": write.enqueue(name).id}


@app.get("/letters/{number}")
def look(number: int) -> dict[str, Any]:
    try:
        letter = jobs.get(number)
        state = letter.state
    except JobNotFound as error:
        raise HTTPException(404, str(error)) from error
    result = letter.result() if state == "completed" else None
    return {"state": state, "result": result}


@app.get("/health")
def health() -> dict[str, Any]:
    found = jobs.health()
    return {"role": found["role"], "problem": found["problem"]}
