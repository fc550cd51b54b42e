#!/bin/sh
# sentry-sdk 2.75.0: the integration that reports an exception once only (it is on by
# default) remembers the last one in a context variable. An exception that is reported in
# one context and logged in another (`Context.run`, another thread, a task of asyncio) is
# two events; in one context it is one.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q sentry-sdk==2.75.0
found=$("$work/venv/bin/python" - <<'PY'
import contextvars
import logging

import sentry_sdk

events = []
sentry_sdk.init(
    dsn="http://key@127.0.0.1:9/1",
    transport=events.append,
)
logging.lastResort = None


def reported():
    try:
        raise LookupError("no answer")
    except LookupError as error:
        sentry_sdk.capture_exception(error)
        return error


for way, run in (("one context", lambda f: f()), ("two", contextvars.copy_context().run)):
    events.clear()
    error = run(reported)
    logging.getLogger("work").error("failed", exc_info=error)
    print(way, len(events))
PY
)
printf '%s\n' "$found"
[ "$found" = "one context 1
two 2" ]
