"""Look at jobs: many, one, and why one does not run.

With `--json`:

    list                          {"jobs": [JOB, …], "next": what --before, or with
                                   --sort --after, takes for the next page, or null}
    list --at                     the same with "at", and "missing": null, or of what
                                   was deleted since {"tasks": […], "until_at": up to
                                   when it had ended, "unfinished": whether some had
                                   not ended then, "sentence": …}; and "as_now": the
                                   keys of a JOB that are as they are now
    show --at                     {"at": …, "as_now": […], "job": JOB, "attempts": […],
                                   "events": […]}
    show                          {"job": JOB and all other columns, "attempts": […],
                                   "attempts_gone": how many were deleted,
                                   "parents": […], "children": […],
                                   "forecast": {"attempts": […], "ends": …,
                                   "stopped_by": …, "held_by": what holds it nobody
                                   knows how long: then each "at" is the earliest}
                                   or null,
                                   "runner_gone": whether its runner has ended without
                                   a word, "why": […], "events": […]}
    why                           {"job": JOB, "runner_gone": …, "why": […]}; without
                                   an ID {"runner_gone": …, "waiting": [{"code": …,
                                   "detail": …, "object": … or null, "jobs": how many,
                                   "since_at": …, "until_at" of the first and
                                   "until_last_at": … or null, "tasks": […],
                                   "queues": […], "job_id": one of them, "remedy": …},
                                   …]}
    show, why of several IDs      {"jobs": [the same of each, …]}
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Mapping, Sequence
from typing import Any

import click

from litejobs.cli import printing
from litejobs.cli.failure import REFUSED
from litejobs.cli.file.opening import reading
from litejobs.cli.file.reader import Reader
from litejobs.cli.input import filters as _filters
from litejobs.cli.input.types import JOB_ID, QUEUE, TASK, At, Count, Cursor
from litejobs.cli.output.jobs import (
    ATTEMPT_FIELDS,
    NOT_REMEMBERED,
    Then,
    found_job,
    in_words,
    job_of,
    place_of,
    record_of,
    sentence,
    why_text,
)

Row = Mapping[str, Any]

SORTS = ("id", "due", "finished", "priority")

_IDS = click.argument("job_ids", metavar="ID…", type=JOB_ID, nargs=-1, required=True)


@click.command(
    "list",
    epilog="""\b
Examples:
  litejobs --db app.db list
  litejobs --db app.db list --state dead_lettered --queue mail --since 1d
  litejobs --db app.db list --text timeout
  litejobs --db app.db list --state scheduled --state failed --sort due
  litejobs --db app.db list --limit 100 --before 1000 --json
  litejobs --db app.db list --at "2026-03-01 03:00" --state processing""",
    help="""List jobs, the newest first.

    The exit code is 1 if there is none.

    With --at they are as they stood then, and what they are chosen by is asked of that.
    Jobs that were deleted since are missing, which is said. Arguments are those of
    today, and progress is not remembered.
    """,
)
@_filters.filter_options
@click.option(
    "--at",
    "then",
    type=At(),
    help="As they stood then: an instant, or 2h, which is so long ago.",
)
@click.option(
    "--sort",
    type=click.Choice(SORTS),
    default="id",
    show_default=True,
    help="id: the newest first; due: the next; finished: the last; priority: the "
    "highest.",
)
@click.option("--reverse", is_flag=True, help="The other way round.")
@click.option(
    "--before", type=JOB_ID, metavar="ID", help="Only older jobs: the next page."
)
@click.option(
    "--after",
    type=Cursor(),
    help="The next page where --sort or --reverse is given, as the page before says.",
)
@click.option(
    "--limit",
    type=Count(1, 2**31),
    default=50,
    show_default=True,
    help="How many at most.",
)
@printing.json_option
@click.pass_context
def list_jobs(
    context: click.Context,
    /,
    *,
    sort: str,
    reverse: bool,
    before: int | None,
    after: tuple[int, int] | None,
    limit: int,
    then: tuple[bool, int] | None,
    as_json: bool,
    **options: Any,
) -> None:
    by_id = sort == "id" and not reverse
    if by_id and after is not None:
        raise click.UsageError("--after belongs to --sort; by id it is --before ID")
    if not by_id and before is not None:
        raise click.UsageError("--before is for the order by id; here it is --after")
    with reading() as file:
        now = printing.at_ms(file.now_ms())
        given = _filters.resolve(_filters.filters_of(options), file)
        filters = given | {"limit": limit}
        past = None if then is None else Then.of(file, then)
        if past is not None:
            now = printing.at_ms(past.moment.at)
            order = {"sort": sort, "reverse": reverse, "before": before, "after": after}
            found = past.jobs(filters, order, by_id=by_id)
        elif by_id:
            found = _newest(file, filters | {"before": before})
        else:
            key, job_id = after or (None, None)
            found = file.rows(
                "look_jobs_sorted",
                filters
                | {"states": _filters.states_json(given["states"])}
                | {"sort": sort, "reverse": reverse}
                | {"after_key": key, "after_id": job_id},
            )
        # What is to be said of the silent is said of them as they are now.
        notes = {} if as_json or past is not None else _notes(file, found)
        more = {} if past is None else past.facts(given)
        if not found and not as_json and (past is None or past.had_file):
            printing.remark(_filters.no_match(file, given))
    next_page = None
    if len(found) == limit:
        last = found[-1]
        next_page = str(last["id"]) if by_id else f"{last['sort_key']}:{last['id']}"
    if as_json:
        jobs = [job_of(row) for row in found]
        printing.document({**more, "jobs": jobs, "next": next_page})
    elif found:
        _show_list(found, notes, now, past)
        if next_page is not None:
            option = "--before" if by_id else "--after"
            printing.remark(f"there may be more: {option} {next_page}")
    if past is not None and not as_json:
        past.remark(more)
    if not found:
        context.exit(REFUSED)


def _show_list(
    found: Sequence[Row], notes: Mapping[int, str], now: dt.datetime, past: Then | None
) -> None:
    rows = [printing.moments(dict(row)) for row in found]
    if past is not None and printing.on_terminal():
        # "In 5 min" is seen from there.
        printing.remark(f"at {printing.moment(now)}:")
    titles: tuple[str, ...] = (
        *("id", "state", "queue", "task", "tries"),
        *(_title_of_due(rows), "note"),
    )
    lines = [_line(row, notes.get(row["id"]), now) for row in rows]
    if any(row["executor"] is not None for row in rows):
        titles = (*titles[:4], "executor", *titles[4:])
        lines = [
            (*line[:4], row["executor"], *line[4:])
            for row, line in zip(rows, lines, strict=True)
        ]
    printing.table(titles, lines)


@click.command(
    epilog="""\b
Examples:
  litejobs --db app.db show 42
  litejobs --db app.db show 42 43
  litejobs --db app.db show 42 --at "2026-03-01 03:00"
  litejobs --db app.db show 42 --json""",
    help="""Show all that is known of jobs.

    That is of each its columns (those that have a value), its attempts and how they
    ended, what it waits for and what waits for it, what would come if each further
    attempt failed, and what happened to it.

    With --at, its columns, its attempts and what had happened, as it stood then. What
    it waited for then is not known; its arguments are those of today.
    """,
)
@_IDS
@click.option(
    "--at",
    "then",
    type=At(),
    help="As it stood then: an instant, or 2h, which is so long ago.",
)
@click.option(
    "--limit",
    type=Count(1, 2**31),
    default=100,
    show_default=True,
    help="How many of its attempts, and of what happened, the last ones.",
)
@printing.json_option
def show(
    *,
    job_ids: Sequence[int],
    then: tuple[bool, int] | None,
    limit: int,
    as_json: bool,
) -> None:
    ids = list(dict.fromkeys(job_ids))
    found = []
    if then is not None:
        _show_then(ids, then, limit, as_json=as_json)
        return
    with reading() as file:
        for job_id in ids:
            # A forecast may take long: what is said of one job is of one moment.
            with file.together():
                now = printing.at_ms(file.now_ms())
                found.append(_all_of(file, job_id, limit))
    if as_json:
        printing.document(found[0] if len(ids) == 1 else {"jobs": found})
        return
    for number, each in enumerate(found):
        if number:
            click.echo()
        _show_all(each, limit, now)


def _show_then(
    ids: Sequence[int], then: tuple[bool, int], limit: int, *, as_json: bool
) -> None:
    with reading() as file, file.together():
        past = Then.of(file, then)
        found = [past.all_of(job_id, limit) for job_id in ids]
    now = printing.at_ms(past.moment.at)
    if as_json:
        at = {"at": now, "as_now": NOT_REMEMBERED}
        printing.document(
            {**at, **found[0]} if len(ids) == 1 else {**at, "jobs": found}
        )
        return
    for number, each in enumerate(found):
        if number:
            click.echo()
        printing.say(f"at {printing.moment(now)}, {sentence(each['job'], now)}")
        click.echo()
        _show_columns(each["job"], now)
        _show_attempts(each["attempts"], now)
        if len(each["attempts"]) == limit < each["job"]["starts"]:
            printing.remark(f"the last {limit} of its attempts: see --limit")
        _show_events(each["events"], limit, now)
    printing.remark(
        f"{', '.join(NOT_REMEMBERED)} are told as they are now: what they were is not "
        "recorded"
    )


def _show_columns(columns: Row, now: dt.datetime) -> None:
    printing.values(
        {
            key: value
            if isinstance(value, str) or not isinstance(value, dt.datetime)
            else in_words(value, now)
            for key, value in columns.items()
            if value is not None
        }
    )


def _show_events(events: list[dict[str, Any]], limit: int, now: dt.datetime) -> None:
    printing.section("events")
    printing.table(
        ("at", "event", "from", "to", "note", "by"),
        (
            (
                _when(e["at"], now),
                *(e["name"], e["old_state"], e["new_state"]),
                e["subject"] or e["note"],
                e["origin"],
            )
            for e in events
        ),
    )
    if len(events) == limit:
        printing.remark(f"the last {limit} of what happened: see --limit")


def _all_of(file: Reader, job_id: int, limit: int) -> dict[str, Any]:
    """What is known of a job, as JSON has it."""
    job = job_of(found_job(file, job_id))
    row = file.row("job_columns", id=job_id) or {}
    return {
        "job": {**record_of(row, tuple(row)), **job},
        "attempts": [
            record_of(row, ATTEMPT_FIELDS)
            for row in file.rows("look_attempts", id=job_id, limit=limit)
        ],
        "attempts_gone": sum(
            row["gone"] for row in file.rows("attempts_gone", id=job_id)
        ),
        "parents": file.rows("look_parents", id=job_id),
        "children": file.rows("look_children", id=job_id),
        "forecast": _forecast(file, job),
        **_why(file, job),
        "events": [
            printing.moments(row)
            for row in file.rows("list_job_events", job_id=job_id, limit=limit)
        ],
    }


def _show_all(found: dict[str, Any], limit: int, now: dt.datetime) -> None:
    columns, attempts, events = found["job"], found["attempts"], found["events"]
    printing.say(sentence(columns, now))
    if found["runner_gone"]:
        printing.say(GONE)
    click.echo()
    _show_columns(columns, now)
    _show_attempts(attempts, now)
    if len(attempts) == limit < columns["starts"]:
        printing.remark(
            f"of {columns['starts']} attempts the last {limit}: see --limit"
        )
    if found["attempts_gone"]:
        printing.remark(
            f"of {columns['starts']} attempts {found['attempts_gone']} older ones were "
            "deleted: see litejobs retention (attempt)"
        )
    _show_relatives("waits for", found["parents"])
    _show_relatives("waited for by", found["children"])
    if found["forecast"] is not None:
        _show_forecast(found["forecast"], now)
    printing.section("why")
    _show_reasons(found["why"], now)
    _show_events(events, limit, now)


@click.command(
    epilog="""\b
Examples:
  litejobs --db app.db why 42
  litejobs --db app.db why 42 43
  litejobs --db app.db why
  litejobs --db app.db why --queue mail --json""",
    help="""\
    Say why jobs are not running, and what helps; without ID, of all that wait.

    Then they are counted by what they wait for now: one whose time has not come, or
    that waits for others, counts for that alone, and one that several gates hold back
    counts for each. The exit code is 1 if nothing waits.
    """,
)
@click.argument("job_ids", metavar="[ID]…", type=JOB_ID, nargs=-1)
@click.option("--task", type=TASK, metavar="TASK", help="Only jobs of this task.")
@click.option("--queue", type=QUEUE, metavar="QUEUE", help="Only jobs of this queue.")
@click.option(
    "--limit",
    type=Count(1, 2**31),
    default=50,
    show_default=True,
    help="How many reasons at most.",
)
@printing.json_option
@click.pass_context
def why(
    context: click.Context,
    /,
    *,
    job_ids: Sequence[int],
    task: str | None,
    queue: str | None,
    limit: int,
    as_json: bool,
) -> None:
    if not job_ids:
        _why_of_all(context, task=task, queue=queue, limit=limit, as_json=as_json)
        return
    if (task, queue) != (None, None):
        raise click.UsageError("--task and --queue are for all jobs; leave the ids out")
    ids = list(dict.fromkeys(job_ids))
    with reading() as file, file.together():
        now = printing.at_ms(file.now_ms())
        jobs = [job_of(found_job(file, job_id)) for job_id in ids]
        found = [{"job": job, **_why(file, job)} for job in jobs]
    if as_json:
        printing.document(found[0] if len(ids) == 1 else {"jobs": found})
        return
    for each in found:
        printing.say(sentence(each["job"], now))
        for reason in each["why"]:
            printing.say(f"  {_reason(each['job'], reason, now)}")


def _why_of_all(
    context: click.Context,
    *,
    task: str | None,
    queue: str | None,
    limit: int,
    as_json: bool,
) -> None:
    from litejobs.cli.input.known_names import unknown
    from litejobs.cli.output.waiting import lines_of, waiting

    with reading() as file:
        now = printing.at_ms(file.now_ms())
        gone = _runner_is_gone(file)
        found = waiting(file, gone=gone, limit=limit, task=task, queue=queue)
        nothing = None
        if not found and not as_json:
            nothing = unknown(file, task=task, queue=queue) or "nothing waits"
    if as_json:
        printing.document({"runner_gone": gone, "waiting": found})
    for each in () if as_json else found:
        first, *rest = lines_of(each, lambda at: in_words(at, now))
        printing.say(first)
        for line in rest:
            printing.say(f"  {line}")
    if nothing is not None:
        printing.remark(nothing)
    elif len(found) == limit and not as_json:
        printing.remark(f"only the {limit} reasons that most wait for: see --limit")
    if not found:
        context.exit(REFUSED)


GONE = "its runner is gone without a word: start a runner"


def _why(file: Reader, job: Row) -> dict[str, Any]:
    """Why the job does not run, and whether that is because its runner is gone."""
    gone = job["finished_at"] is None and _runner_is_gone(file)
    reasons = file.rows("explain_job_or_runner", id=job["id"], gone=int(gone))
    return {"runner_gone": gone, "why": [printing.moments(row) for row in reasons]}


def _runner_is_gone(file: Reader) -> bool:
    """Whether the last runner has ended without a word: nobody holds its lock."""
    runner = file.row("watch_runner")
    if runner is None or runner["stopped_at"] is not None:
        return False
    from litejobs._storage.runner_lock import runner_lives

    return runner_lives(os.path.realpath(file.path)) is False


# Values as they are shown -------------------------------------------------------------


def _when(at: Any, now: dt.datetime) -> Any:
    """As `printing.when`; what another client wrote and is none, as it is."""
    return printing.when(at, now) if isinstance(at, dt.datetime) else at


def _title_of_due(jobs: Sequence[Row]) -> str:
    ended = {job["finished_at"] is not None for job in jobs}
    return "due/ended" if len(ended) > 1 else "ended" if True in ended else "due"


def _line(job: Row, note: str | None, now: dt.datetime) -> tuple[object, ...]:
    ended = job["finished_at"] is not None
    return (
        job["id"],
        printing.state(job["state"]),
        job["queue"],
        job["task"],
        f"{job['attempt_count']}/{job['max_attempts']}",
        _when(job["finished_at"] if ended else job["run_at"], now),
        _note(job) or note,
    )


def _note(job: Row) -> str | None:
    """What it last said: its error, or else its progress."""
    error = _error_in_words(job["last_error_type"], job["last_error"])
    if job["result_not_stored"] is not None:
        return "done, but its result is not stored"
    if error is not None or job["progress"] is None:
        return error
    return f"{job['progress']:.0%} {job['progress_message'] or ''}".rstrip()


def _error_in_words(name: object, message: object) -> str | None:
    """`OSError: refused`; the type alone where there is no message."""
    return ": ".join(str(each) for each in (name, message) if each) or None


def _notes(file: Reader, jobs: Sequence[Row]) -> dict[int, str]:
    """What is to be said of those that have said nothing, by their ids."""
    silent = [
        job["id"]
        for job in jobs
        if job["state"] in {"pending", "cancelled"} and _note(job) is None
    ]
    if not silent:
        return {}
    # As JSON, without what it costs to import that.
    rows = file.rows("look_notes", ids=f"[{','.join(map(str, silent))}]")
    return {row["id"]: row["note"] for row in rows}


def _reason(job: Row, row: Row, now: dt.datetime) -> str:
    text = why_text(job, row)
    if row["until_at"] is not None:
        text += f" until {in_words(row['until_at'], now)}"
    return text if row["remedy"] is None else f"{text}: {row['remedy']}"


def _show_attempts(attempts: list[dict[str, Any]], now: dt.datetime) -> None:
    printing.section("attempts")
    titles: tuple[str, ...] = (
        "start",
        "try",
        "claimed",
        "finished",
        "status",
        "then",
        "outcome",
    )
    rows: list[tuple[object, ...]] = [
        (
            each["start_no"],
            each["attempt"],
            _when(each["claimed_at"], now),
            _when(each["finished_at"], now),
            each["status"],
            _follow_up(each),
            _ending(each["outcome"]),
        )
        for each in attempts
    ]
    if any(each["executor"] is not None for each in attempts):
        titles = (*titles, "on")
        rows = [
            (*row, place_of(each)) for each, row in zip(attempts, rows, strict=True)
        ]
    if any(each["step"] is not None for each in attempts):
        titles = ("step", *titles)
        rows = [(each["step"], *row) for each, row in zip(attempts, rows, strict=True)]
    printing.table(titles, rows)
    traceback = _error(attempts[-1]["outcome"]).get("traceback") if attempts else None
    if isinstance(traceback, str):
        printing.section("traceback of the last attempt")
        for line in traceback.rstrip("\n").split("\n"):
            printing.say(line)


def _show_relatives(title: str, rows: list[dict[str, Any]]) -> None:
    if rows:
        printing.section(title)
        printing.table(
            ("what", "task", "state"),
            (
                (
                    f"job {row['id']}"
                    if row["id"] is not None
                    else f"batch {row['batch_id']}",
                    row["task"],
                    None if row["state"] is None else printing.state(row["state"]),
                )
                for row in rows
            ),
        )


def _show_forecast(forecast: Row, now: dt.datetime) -> None:
    printing.section("if every further attempt fails")
    held = forecast["held_by"]
    if held:
        printing.say(f"nobody knows when it can start: {', '.join(held)}")
    printing.table(
        ("try", "not before" if held else "at", "then"),
        (
            (each["attempt"], _when(each["at"], now), _follow_up(each))
            for each in forecast["attempts"]
        ),
    )
    if forecast["ends"] is not None:
        because = forecast["stopped_by"]
        printing.say(
            f"then it is {forecast['ends']}" + (f" ({because})" if because else "")
        )


def _show_reasons(reasons: list[dict[str, Any]], now: dt.datetime) -> None:
    printing.table(
        ("code", "of", "until", "reason"),
        (
            (r["code"], r["object"], _when(r["until_at"], now), r["detail"])
            for r in reasons
        ),
    )


def _forecast(file: Reader, job: Row) -> dict[str, Any] | None:
    """What comes if each further attempt fails; None where none would come.

    It begins when what holds the job back is over, as far as that is known.
    """
    if job["finished_at"] is not None:
        return None
    import attrs

    from litejobs._control.simulation import forecast_from

    with file.lent() as connection:
        found = attrs.asdict(
            forecast_from(
                connection, job["id"], file.path, limit=10, limited=file.limit
            )
        )
    found["held_by"] = [
        row["reason"] for row in file.rows("forecast_held_by", id=job["id"])
    ]
    if found["attempts"]:
        first = (found["attempts"][0]["at"] - printing.EPOCH) // dt.timedelta(
            milliseconds=1
        )
        late = dt.timedelta(
            milliseconds=file.value("forecast_late", id=job["id"], at=first)
        )
        for each in found["attempts"]:
            each["at"] += late
    return found


def _follow_up(attempt: Row) -> str | None:
    """What was decided after the attempt, and for when or because of what."""
    text: str | None = attempt["decision"]
    if text is not None and attempt.get("next_step") is not None:
        text = f"{text} to {attempt['next_step']}"
    if attempt["delay_ms"] or attempt["decision"] == "retry":
        from litejobs._definitions.milliseconds import duration_text

        text = f"{text} in {duration_text(attempt['delay_ms'] or 0)}"
    reasons = [attempt["stopped_by"]] if attempt["stopped_by"] is not None else []
    if attempt.get("rule_position") is not None:
        reasons.append(f"rule {attempt['rule_position']}")
    return f"{text} ({', '.join(reasons)})" if reasons else text


def _error(outcome: Any) -> dict[str, Any]:
    """The error in an outcome document; empty if there is none, or nothing readable."""
    error = outcome.get("error") if isinstance(outcome, dict) else None
    return error if isinstance(error, dict) else {}


def _ending(outcome: Any) -> Any:
    """An outcome in short: its error or its result."""
    error = _error(outcome)
    if error:
        return _error_in_words(error.get("type"), error.get("message"))
    if isinstance(outcome, dict) and "result" in outcome:
        return outcome["result"]
    lost = outcome.get("result_not_stored") if isinstance(outcome, dict) else None
    if isinstance(lost, dict):
        return f"not stored: {lost.get('text')} ({lost.get('reason')})"
    return outcome


# Asking for jobs ----------------------------------------------------------------------


def _newest(file: Reader, filters: Mapping[str, Any]) -> list[dict[str, Any]]:
    """By an index, where there is one for the states that are asked for."""
    states = set(filters["states"])
    given = {**filters, "states": _filters.states_json(filters["states"])}
    if states == {"processing"}:
        return file.rows("look_jobs_running", given)
    if len(states) == 1 and states <= {"dead_lettered", "cancelled"}:
        return file.rows("look_jobs_ended_badly", {**given, "state": states.pop()})
    return file.rows("look_jobs", given)
