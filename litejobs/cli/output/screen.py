"""What `watch` shows, as lines: pure functions of what was read and of the time.

`data` is what is documented for `watch --once --json` in `printing`. All text of it is
escaped here, and cut by the columns that it takes. The last column stays empty, since
some terminals begin a new line after it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import click

from litejobs.cli import printing
from litejobs.cli.output.jobs import in_words, place_of, why_text
from litejobs.cli.output.waiting import lines_of
from litejobs.cli.printing import cell, escaped, relative, styled, width

Data = Mapping[str, Any]
Row = Mapping[str, Any]
When = Callable[[dt.datetime | None], str | None]

SECTIONS = ("queues", "running", "failures", "schedules")

WIDE = 110  # columns from which on there is room for more of them
NARROW = 10  # columns below which lines have no colours
SMALLEST = 6  # lines below which the sections get all
BAR = 10  # columns of a bar of progress
FOLD = 12  # columns by which the rest of a long line stands to the right
LONGEST_TEXT = 2_000  # characters of one value on a page; litejobs show has the rest

COUNTS = ("waiting", "later", "running", "retries", "dead")
"""The headings of `counts_of`."""

HINTS = "tab j k  enter job  w why  p pause  n now  r requeue  c cancel  ? help  q quit"
_HINTS_OF_A_LIST = "j k scroll  u undo  q Esc back"
_HINTS_OF_A_PAGE = "j k scroll  n now  r requeue  c cancel  u undo  q Esc back"

_HELP = """\
tab, shift tab   the next section, the one before
up, down, j, k   the line before, the next one
home, end        the first line, the last one
page up, down    ten lines up, ten lines down
enter            all about a job: why it does not run, its attempts and events
p                pause a queue, or resume it
n                run a job now that waits for its time, or a job of a schedule
r                requeue a job that has ended: put it back in line
c                cancel a job, after y
w                what all that waits is waiting for, and what helps
u                undo the last operation, after y
Ctrl-Z           back to the shell for a while
q                back from a page; else quit
Ctrl-C           quit

WAITING   is in line
LATER     waits for its time, or for others
RUNNING   runs, or was claimed and runs next
RETRIES   have failed and are tried again
DEAD      have failed for good
PER S     how many attempts end in a second
no task   the runner does not have the task of what is in line: litejobs doctor
12+       12 or more: not all were counted""".splitlines()

_NOTHING = {
    "queues": "no queue yet: no job was ever asked for",
    "running": "no job is running",
    "failures": "no job has failed and waits for its retry, or for somebody",
    "schedules": "no schedule has a next time",
}


class Choice(NamedTuple):
    """Which line is chosen: that of *key*, or where it has gone the one at *place*."""

    section: str = SECTIONS[0]
    key: object = None
    place: int = 0


class _Column(NamedTuple):
    title: str
    floor: int
    ceiling: int
    right: bool = False
    wide: bool = False


_COLUMNS = {
    "queues": (
        _Column("queue", 16, 60),
        *(_Column(title, 7, 12, right=True) for title in (*COUNTS, "per s")),
    ),
    "running": (
        _Column("running", 7, 19, right=True),
        _Column("task", 8, 24),
        _Column("queue", 8, 24, wide=True),
        _Column("progress", BAR + 5, BAR + 5),
        _Column("since", 9, 14),
        _Column("try", 3, 9),
        _Column("message", 7, 1_000),
    ),
    "failures": (
        _Column("failed", 7, 19, right=True),
        _Column("task", 8, 24),
        _Column("queue", 8, 24, wide=True),
        _Column("when", 9, 14),
        _Column("retry", 9, 14),
        _Column("try", 3, 9),
        _Column("error", 7, 1_000),
    ),
    "schedules": (
        _Column("schedule", 16, 40),
        _Column("due", 9, 14),
        _Column("task", 8, 24),
        _Column("queue", 8, 24, wide=True),
        _Column("plan", 7, 1_000),
    ),
}


# The screen ---------------------------------------------------------------------------


def screen(
    data: Data,
    columns: int,
    lines: int,
    choice: Choice,
    *,
    now: dt.datetime,
    note: str | None = None,
    colours: bool = False,
) -> list[str]:
    """The lines of a screen of this size, as many as there are, none too wide.

    *note* takes the place of the hints, in its colour. Where there is little room, each
    section has less of its lines, then some have none; that of the chosen line is
    there always.
    """
    paint = _Paint(max(1, columns - 1), colours)
    top = [] if lines < SMALLEST else _top(data, paint, now)
    room = max(0, lines - len(top) - 1)
    many = min(len(SECTIONS), max(1, room // 2))
    first = min(SECTIONS.index(choice.section), len(SECTIONS) - many)
    names = SECTIONS[first : first + many]
    gap = int(room >= 3 * many + 3)
    shares = _shares(
        [max(1, len(data[name])) for name in names], room - many * (1 + gap)
    )
    body: list[str] = []
    for name, share in zip(names, shares, strict=True):
        body += [""] * gap
        body += _section(data, choice, name, share, paint=paint, now=now)
    return _whole(top, body, lines, paint.bottom(note, HINTS))


def chosen(data: Data, choice: Choice) -> Row | None:
    """The row that is chosen; None if its section has none."""
    rows = data[choice.section]
    return rows[_position(rows, choice)] if rows else None


def stands_still(data: Data, choice: Choice) -> bool:
    """Whether the row that was chosen is still there; nothing chosen is, too."""
    rows = data[choice.section]
    return choice.key is None or choice.key in {key_of(row) for row in rows}


def moved(data: Data, choice: Choice, by: int) -> Choice:
    """The choice of so many lines further down in its section, or up."""
    rows = data[choice.section]
    if not rows:
        return choice
    index = min(max(0, _position(rows, choice) + by), len(rows) - 1)
    return Choice(choice.section, key_of(rows[index]), index)


def in_next_section(data: Data, choice: Choice, by: int = 1) -> Choice:
    """The first line of the next section that has any, or of the one before."""
    start = SECTIONS.index(choice.section)
    for step in range(1, len(SECTIONS)):
        name = SECTIONS[(start + by * step) % len(SECTIONS)]
        if data[name]:
            return Choice(name, key_of(data[name][0]), 0)
    return choice


def key_of(row: Row) -> object:
    """What a row is known by, also when others come before it."""
    return row["id"] if "id" in row else row["name"]


def _position(rows: Sequence[Row], choice: Choice) -> int:
    for index, row in enumerate(rows):
        if key_of(row) == choice.key:
            return index
    return min(choice.place, len(rows) - 1)


def _shares(wanted: list[int], room: int) -> list[int]:
    """The room for each: in turns a line more, until all have theirs or it is full."""
    shares = [0] * len(wanted)
    while room > 0 and shares != wanted:
        for index, want in enumerate(wanted):
            if shares[index] < want and room > 0:
                shares[index] += 1
                room -= 1
    return shares


# Pages --------------------------------------------------------------------------------


def job_page(
    about: Data,
    columns: int,
    lines: int,
    skip: int,
    *,
    now: dt.datetime,
    note: str | None = None,
    colours: bool = False,
) -> list[str]:
    """The screen with all about a job; *skip* lines of it are scrolled past."""
    paint = _Paint(max(1, columns - 1), colours)
    body = [paint.plain(line) for line in _about(about, paint.columns, now)]
    return _whole([], body[skip:], lines, paint.bottom(note, _HINTS_OF_A_PAGE))


def most_skipped(about: Data, columns: int, lines: int, *, now: dt.datetime) -> int:
    """How many lines of a page can be scrolled past on a screen of this size."""
    return max(0, len(_about(about, max(1, columns - 1), now)) - (lines - 1))


def waiting_page(
    rows: Sequence[Row],
    columns: int,
    lines: int,
    skip: int,
    *,
    now: dt.datetime,
    note: str | None = None,
    colours: bool = False,
) -> list[str]:
    """The screen with all that waits, by reason; *skip* lines of it are scrolled past.

    `most_skipped_waiting` says how many those may be.
    """
    paint = _Paint(max(1, columns - 1), colours)
    body = [
        paint.plain(line, bold=True) if is_title else paint.plain(line)
        for is_title, line in _waiting(rows, paint.columns, now)
    ]
    return _whole([], body[skip:], lines, paint.bottom(note, _HINTS_OF_A_LIST))


def most_skipped_waiting(
    rows: Sequence[Row], columns: int, lines: int, *, now: dt.datetime
) -> int:
    """As `most_skipped`, of the list of what waits."""
    return max(0, len(_waiting(rows, max(1, columns - 1), now)) - (lines - 1))


def _waiting(
    rows: Sequence[Row], columns: int, now: dt.datetime
) -> list[tuple[bool, str]]:
    """The lines, and of each whether a reason begins with it."""
    found: list[tuple[bool, str]] = []
    for row in rows:
        first, *rest = lines_of(row, lambda at: in_words(at, now))
        found += [(True, line) for line in _folded(first, columns)]
        found += [
            (False, part) for line in rest for part in _folded(f"  {line}", columns)
        ]
        found.append((False, ""))
    return found[:-1] or [(False, "nothing waits")]


def help_page(columns: int, lines: int, *, colours: bool = False) -> list[str]:
    """The screen with all keys."""
    paint = _Paint(max(1, columns - 1), colours)
    body = [paint.plain(line) for line in _HELP]
    return _whole([], body, lines, paint.bottom(None, "any key goes back"))


def _about(about: Data, columns: int, now: dt.datetime) -> list[str]:
    return [part for line in _paragraphs(about, now) for part in _folded(line, columns)]


def _folded(text: str, columns: int) -> list[str]:
    """The text, escaped, on as many lines as it takes."""
    rest, lines = escaped(text)[:LONGEST_TEXT], []
    indent = " " * min(FOLD, columns // 4)
    while width(rest) > columns:
        end = len(printing.cut(rest, columns)) - 1
        blank = rest.rfind(" ", len(indent) + 1, end + 1)
        end = blank if blank > end // 2 else max(end, len(indent) + 1)
        lines.append(rest[:end])
        rest = indent + rest[end:].lstrip()
    return [*lines, rest]


def _paragraphs(about: Data, now: dt.datetime) -> list[str]:
    job = about["job"]
    if job is None:
        return [f"job {about['id']} was deleted"]

    def when(at: dt.datetime | None) -> str | None:
        return relative_or_text(at, now)

    progress = _percent(job["progress"])
    pairs = {
        "queue": job["queue"],
        "priority": job["priority"],
        "arguments": job["args"],
        "progress": progress and f"{progress} {job['progress_message'] or ''}",
        "step": job["step"],
        "attempts": f"{job['attempt_count']} of {job['max_attempts']}",
        "created": when(job["created_at"]),
        "due": None if job["finished_at"] else when(job["run_at"]),
        "ended": when(job["finished_at"]),
        "stopped by": job["stopped_by"],
        "key": job["concurrency_key"],
        "circuit": job["circuit"],
        "executor": job["executor"],
    }
    lines = [f"job {job['id']} ({job['task']}) is {job['state']}"]
    if job["cancel_requested"] and job["finished_at"] is None:
        lines[0] += ", and asked to stop"
    lines += ["", *(f"{n:<12}{v}" for n, v in pairs.items() if v is not None)]
    lines += ["", "why"]
    for each in about["why"]:
        until = when(each["until_at"])
        text = why_text(job, each) + (f", {until}" if until else "")
        lines.append(f"  {text}: {each['remedy']}")
    lines += ["", "attempts, the newest first"]
    lines += [
        f"  {each['start_no']}. {when(each['claimed_at'])}: {_ending(each)}"
        for each in about["attempts"]
    ] or ["  none"]
    lines += ["", "events, the newest last"]
    lines += [f"  {when(each['at'])}: {_event(each)}" for each in about["events"]]
    for each in [row for row in about["attempts"] if row["traceback"] is not None][:1]:
        lines += ["", f"traceback of attempt {each['start_no']}"]
        lines += [f"  {line}" for line in str(each["traceback"]).splitlines()]
    return lines


def _event(row: Row) -> str:
    parts = [row["name"], row["stopped_by"] or row["decision"], row["note"]]
    by = None if row["origin"] is None else f"by {row['origin']}"
    return ", ".join(str(each) for each in (*parts, by) if each is not None)


def _ending(attempt: Row) -> str:
    parts = [attempt["status"] or "running", attempt["decision"], place_of(attempt)]
    parts.append(_error(attempt))
    return ", ".join(dict.fromkeys(each for each in parts if each is not None))


# Sections -----------------------------------------------------------------------------


def titles_of(section: str) -> tuple[str, ...]:
    """The headings of all columns, also of those that only a wide screen shows."""
    return tuple(column.title for column in _COLUMNS[section])


def cells_of(section: str, row: Row, when: When, *, bar: bool) -> tuple[object, ...]:
    """The values of a row, one for each heading."""
    if section == "queues":
        return _queue_cells(row)
    if section == "schedules":
        return (row["name"], when(row["due_at"]), *_named(row), row["sentence"])
    if section == "running":
        percent = _percent(row["progress"])
        shown = _bar(row["progress"]) if bar and percent else percent
        tries = f"{row['attempt']}/{row['max_attempts']}"
        since = when(row["claimed_at"])
        return (row["id"], *_named(row), shown, since, tries, _message(row))
    tries = f"{row['attempt_count']}/{row['max_attempts']}"
    retry = when(row["next_retry_at"])
    if row["state"] != "failed":
        retry = styled("dead", printing.COLOURS["dead_lettered"])
    return (row["id"], *_named(row), when(row["failed_at"]), retry, tries, _error(row))


def nothing_in(section: str) -> str:
    """A sentence about a section that has no rows."""
    return _NOTHING[section]


def relative_or_text(at: object, now: dt.datetime) -> str | None:
    """An instant as people say it; what another client wrote instead, as it is."""
    if isinstance(at, dt.datetime):
        return relative(at, now)
    return None if at is None else str(at)


def _named(row: Row) -> tuple[object, object]:
    return row["task"], row["queue"]


def _queue_cells(row: Row) -> tuple[object, ...]:
    pace = _rate(row["per_second"])
    if row["paused"]:
        pace = styled("paused", "yellow")
    elif 0 < row["pending"] == row["unserved"]:
        pace = styled("no task", "yellow")
    return (row["name"], *counts_of(row), pace)


def counts_of(row: Row) -> tuple[object, ...]:
    """How many of a queue wait, wait for later, run, are retried, and are dead."""

    def counted(*states: str) -> object:
        jobs = sum(row[state] for state in states)
        cut = any(row.get(f"{state}_at_least") for state in states)
        return f"{jobs}+" if cut else jobs

    return (
        counted("pending"),
        counted("scheduled", "blocked"),
        counted("processing"),
        counted("failed"),
        counted("dead_lettered"),
    )


def _rate(per_second: float) -> str:
    return f"{per_second:.0f}" if not 0 < per_second < 9.95 else f"{per_second:.1f}"  # noqa: PLR2004 - two digits


def _percent(progress: object) -> str | None:
    return f"{progress:.0%}" if isinstance(progress, (int, float)) else None


def _bar(progress: float) -> str:
    full = int(max(0.0, min(1.0, progress)) * BAR)
    return styled(f"{'█' * full}{'░' * (BAR - full)} {progress:4.0%}", "cyan")


def _message(row: Row) -> str | None:
    parts = ["asked to stop" if row["cancel_requested"] else None, row["step"]]
    parts += [place_of(row), row["progress_message"]]
    return ", ".join(each for each in parts if each is not None) or None


def _error(row: Row) -> str | None:
    if row["error_type"] is None and row["error"] is None:
        status: str | None = row["status"]
        return status
    return f"{row['error_type']}: {row['error']}"


# Lines --------------------------------------------------------------------------------


class _Paint(NamedTuple):
    """Lines of so many columns at most, with or without colours."""

    columns: int
    colours: bool

    def plain(self, text: str, **style: Any) -> str:
        """The text, cut, in this style."""
        shown = printing.cut(escaped(text), self.columns) if self.columns else ""
        return click.style(shown, **style) if self.colours and style else shown

    def bottom(self, note: str | None, hints: str) -> str:
        """The last line: the note in its own colour, or else the hints."""
        if note is None:
            return self.plain(hints, dim=True)
        return self.plain(note, fg=note.fg if isinstance(note, styled) else None)

    def row(self, parts: Sequence[tuple[str, object]], *, marked: bool) -> str:
        """Padded texts, each in the colour of its value; or all of them as chosen."""
        mark = "> " if marked else "  "
        whole = mark + printing.GAP.join(text for text, _ in parts)
        if marked or not self.colours or self.columns < NARROW:
            whole = printing.cut(whole.rstrip(), self.columns)
            padding = " " * (self.columns - width(whole))
            return (
                click.style(whole + padding, reverse=True)
                if marked and self.colours
                else whole
            )
        left, shown = self.columns - len(mark), []
        for text, value in parts:
            if left <= 0:
                break
            fitting = text if width(text) <= left else printing.cut(text.rstrip(), left)
            shown.append(printing.painted(fitting, value))
            left -= width(fitting) + len(printing.GAP)
        return (mark + printing.GAP.join(shown)).rstrip()


def _top(data: Data, paint: _Paint, now: dt.datetime) -> list[str]:
    file = data["file"]
    clock = printing.moment(now)
    size = (
        f"{printing.size(file['size_bytes'])} + {printing.size(file['wal_bytes'])} log"
    )
    room = paint.columns - width(clock) - len(printing.GAP)
    name = _cut_in_front(escaped(file["path"]), room - width(size) - 2)
    left = f"{name}  {size}"
    header = f"{left}{' ' * (room - width(left))}{printing.GAP}{clock}"
    runner, style = runner_text(data, lambda at: relative_or_text(at, now))
    return [paint.plain(header, bold=True), paint.plain(runner, **style)]


def _cut_in_front(text: str, columns: int) -> str:
    """The end of a path says more than its beginning."""
    if width(text) <= columns:
        return text
    while text and width(text) >= columns:
        text = text[1:]
    return f"…{text}"


def runner_text(data: Data, when: When) -> tuple[str, dict[str, Any]]:
    """A sentence about who runs the jobs, and the style it is shown in."""
    runner = data["runner"]
    start = "nothing is started; run the application, or: litejobs run app:jobs"
    if runner is None:
        return f"no runner yet: {start}", {"fg": "yellow"}
    if runner["stopped_at"] is not None:
        return f"no runner, stopped {when(runner['stopped_at'])}: {start}", {
            "fg": "yellow"
        }
    text = f"runner {runner['id']}: process {runner['pid']} on {runner['host']}"
    if runner["gone"]:
        return f"{text} has ended without a word: {start}", {"fg": "red"}
    rate = _rate(sum(queue["per_second"] for queue in data["queues"]))
    if runner["standbys"]:
        text += f" +{runner['standbys']} standby"
    text += f", {runner['threads']} threads, begun {when(runner['started_at'])}"
    text += f", {rate} jobs/s"
    for each in data["executors"]:
        text += f", {each['name']} {each['taken']} of {each['slots']}"
        if each["away_at"] is not None:
            text += f", away since {when(each['away_at'])}"
    if runner["stuck"]:
        text += f", tasks that go on and cannot be ended: {runner['stuck']}"
    if runner["queues"] is not None:
        text += f", only queues: {', '.join(map(str, runner['queues']))}"
    is_well = not runner["stuck"] and all(
        each["away_at"] is None for each in data["executors"]
    )
    return text, {} if is_well else {"fg": "yellow"}


def _section(
    data: Data,
    choice: Choice,
    name: str,
    share: int,
    *,
    paint: _Paint,
    now: dt.datetime,
) -> list[str]:
    """A line of headings, and so many more."""
    rows = data[name]
    here = _position(rows, choice) if rows and choice.section == name else None
    start = 0 if here is None else max(0, min(here - share // 2, len(rows) - share))
    visible = rows[start : start + share]

    def when(at: object) -> str | None:
        return relative_or_text(at, now)

    table = [cells_of(name, row, when, bar=True) for row in visible]
    lines: list[list[tuple[str, object]]] = [[] for _ in table]
    heading = []
    for number, column in enumerate(_COLUMNS[name]):
        if column.wide and paint.columns < WIDE:
            continue
        texts = ["" if each[number] is None else cell(each[number]) for each in table]
        wide = max([len(column.title), column.floor, *map(width, texts)])
        wide = min(wide, column.ceiling)
        heading.append((_padded(column.title.upper(), wide, column), None))
        for line, text, values in zip(lines, texts, table, strict=True):
            line.append((_padded(text, wide, column), values[number]))
    title = paint.row(heading, marked=False)
    if len(rows) > len(visible):
        where = f"{start + 1}-{start + len(visible)}/{len(rows)}"
        room = paint.columns - width(title) - len(where)
        if room > 1:
            title += " " * room + where
    shown = [click.style(title, bold=True) if paint.colours else title]
    shown += [
        paint.row(line, marked=here is not None and start + number == here)
        for number, line in enumerate(lines)
    ]
    if not rows and share:
        shown.append(paint.plain(f"  {nothing_in(name)}", dim=True))
    return shown


def _padded(text: str, wide: int, column: _Column) -> str:
    shown = printing.cut(text, wide)
    padding = " " * (wide - width(shown))
    return padding + shown if column.right else shown + padding


def _whole(top: list[str], body: list[str], lines: int, bottom: str) -> list[str]:
    """So many lines; the last one is the bottom, also where there is only one."""
    shown = [*top, *body][: max(0, lines - 1)]
    shown += [""] * (lines - 1 - len(shown))
    return [*shown, bottom][:lines]
