#!/bin/sh
# APScheduler 3.11.3: a CronTrigger for midnight leaves out the day after the clocks have
# gone forward. In Berlin they do so on 29 March 2026, at two in the night: `0 0 * * *`
# comes on the 29th and then on the 31st. A trigger for one o'clock comes on each day.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q apscheduler==3.11.3 tzdata==2026.6
found=$("$work/venv/bin/python" - <<'PY'
import datetime as dt
import zoneinfo

from apscheduler.triggers.cron import CronTrigger

berlin = zoneinfo.ZoneInfo("Europe/Berlin")
for expression in ("0 0 * * *", "0 1 * * *"):
    trigger = CronTrigger.from_crontab(expression, timezone=berlin)
    previous, now, days = None, dt.datetime(2026, 3, 27, 12, tzinfo=berlin), []
    for _ in range(4):
        previous = now = trigger.get_next_fire_time(previous, now)
        days.append(f"{now:%d.%H}")
    print(expression, "|", *days)
PY
)
printf '%s\n' "$found"
[ "$found" = "0 0 * * * | 28.00 29.00 31.00 01.00
0 1 * * * | 28.01 29.01 30.01 31.01" ]
