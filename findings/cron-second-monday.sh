#!/bin/sh
# APScheduler 3.11.3 and Celery 5.7.0 know no `MON#2` (the second Monday of a month), and
# do not refuse it: what follows a name is passed over, and it comes on every Monday. So
# does a step after names in APScheduler: `JAN-MAR/2` is each of the three months.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q apscheduler==3.11.3 celery==5.7.0
found=$("$work/venv/bin/python" - <<'PY'
import datetime as dt

from apscheduler.triggers.cron import CronTrigger
from celery.schedules import crontab

start = dt.datetime(2028, 1, 1, tzinfo=dt.UTC)
for expression in ("0 9 * * MON", "0 9 * * MON#2", "0 9 1 JAN-MAR/2 *"):
    trigger = CronTrigger.from_crontab(expression, timezone=dt.UTC)
    previous, now, days = None, start, []
    for _ in range(3):
        previous = now = trigger.get_next_fire_time(previous, now)
        days.append(f"{now:%d.%m}")
    print("apscheduler", expression, "|", *days)
for name in ("MON", "MON#2"):
    print("celery", name, crontab(day_of_week=name).day_of_week)
PY
)
printf '%s\n' "$found"
[ "$found" = "apscheduler 0 9 * * MON | 03.01 10.01 17.01
apscheduler 0 9 * * MON#2 | 03.01 10.01 17.01
apscheduler 0 9 1 JAN-MAR/2 * | 01.01 01.02 01.03
celery MON {1}
celery MON#2 {1}" ]
