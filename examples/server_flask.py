"""Flask: jobs that outlive their request, also while the reloader watches the code.

    pip install flask
    flask --app examples/server_flask.py run --debug

    curl -X POST 'localhost:5000/letters?name=Ada'
    {"id": 1}
    curl localhost:5000/letters/1
    {"result": "Dear Ada", "state": "completed"}
    curl localhost:5000/health
    {"problem": null, "role": "runner"}

The same module serves under gunicorn, with any number of workers and with `--preload`.
The process that only watches for changes, and `flask shell`, run no jobs.
"""

from __future__ import annotations

import os
from typing import Any

from flask import Flask, abort, request

from litejobs import LiteJobs
from litejobs.errors import JobNotFound

jobs = LiteJobs(os.environ.get("LITEJOBS_DB", "letters.db"))
app = Flask(__name__)


@jobs.task
def write(name: str) -> str:
    return f"Dear {name}"


@app.post("/letters")
def order() -> tuple[dict[str, Any], int]:
    return {"id": write.enqueue(request.args["name"]).id}, 202


@app.get("/letters/<int:number>")
def look(number: int) -> dict[str, Any]:
    try:
        letter = jobs.get(number)
        state = letter.state
    except JobNotFound as error:
        abort(404, str(error))
    result = letter.result() if state == "completed" else None
    return {"state": state, "result": result}


@app.get("/health")
def health() -> dict[str, Any]:
    found = jobs.health()
    return {"role": found["role"], "problem": found["problem"]}


jobs.start(threads=4, grace=3)

if __name__ == "__main__":
    app.run(debug=True, port=int(os.environ.get("PORT", "5000")))
