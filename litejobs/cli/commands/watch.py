"""A live screen: what is in line, what runs, what has failed, what comes next.

With `--json`:

    watch --once                  {"file": {"path": …, "size_bytes": …, "wal_bytes": …},
                                   "runner": {…, "gone": whether its process has ended
                                   without a word, "standbys": how many processes wait
                                   for its end} or null, the last one there was,
                                   "queues": [{"name": …, "paused": …, STATE: how many,
                                   …, STATE_at_least: whether there may be more of them,
                                   "at_least": whether there may of any, "unserved":
                                   those in line whose task the runner does not have,
                                   "per_second": attempts that end}, …], "running":
                                   [{…, "executor": …, "worker": … and "memory_bytes":
                                   … of those that run on one, or null}, …],
                                   "executors": [{"name": …, "slots": …, "taken": …,
                                   "away_at": … or null}, …], "failures": […],
                                   "schedules": […], "last_operation": the one that
                                   undo would take back, or null}
"""

from __future__ import annotations

import contextlib
import datetime as dt
import io
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from litejobs.cli import printing
from litejobs.cli.failure import Failure
from litejobs.cli.file.opening import opened, reading
from litejobs.cli.file.operation import recorded
from litejobs.cli.input.types import Seconds
from litejobs.cli.output import screen
from litejobs.cli.output.dashboard import MOST_ROWS, Data, Looker, Watcher, in_words
from litejobs.cli.output.jobs import sentence
from litejobs.cli.output.screen import Choice
from litejobs.cli.output.terminal import Terminal, usable
from litejobs.cli.printing import styled

if TYPE_CHECKING:
    from litejobs import Job, LiteJobs

Action = Callable[["LiteJobs"], str]

SHORTEST = 0.1  # seconds between two looks, at least
LAST_PATIENCE = 12.0  # seconds for a change that is being written at the end
PAGE = 10  # lines

RED, YELLOW = "red", "yellow"
UNDO = "undo"
WRITING = "the change before is still being written; try again"


@click.command(
    epilog="""\b
Examples:
  litejobs --db app.db watch
  litejobs --db app.db watch --interval 5s
  litejobs --db app.db watch --once --json""",
    help="""\
    Watch queues, running jobs, failures and schedules on a live screen, and steer.

    Keys: tab and arrows choose a line, enter shows all about a job, p pauses or resumes
    a queue, n runs a job now, r requeues it, c cancels it, w shows what all that waits
    is waiting for, u undoes the last operation, ? shows all keys, q quits.
    """,
)
@click.option(
    "--interval",
    type=Seconds(),
    default="1s",
    show_default=True,
    help="How often the file is looked at.",
)
@click.option("--once", is_flag=True, help="Print it once, without a screen.")
@printing.json_option
@click.pass_context
def watch(
    context: click.Context, /, *, interval: float, once: bool, as_json: bool
) -> None:
    if as_json and not once:
        raise click.UsageError("--json prints one look; give --once with it")
    if interval < SHORTEST:
        raise click.BadParameter(
            f"{interval:g} s is too short; give at least {SHORTEST:g} s",
            param_hint="--interval",
        )
    if not once and not usable():
        raise click.UsageError("there is no terminal to watch on; give --once")
    with reading() as file:
        looker = Looker(file)
        data = looker.look()
        if as_json:
            printing.document(data)
        elif once:
            _print(data, printing.at_ms(file.now_ms()))
        else:
            _Watch(looker, data, interval, context).run()


def _print(data: Data, now: dt.datetime) -> None:
    """The same as tables, whole in a pipe."""

    def when(at: Any) -> str | None:
        return printing.when(at, now) if isinstance(at, dt.datetime) else at

    printing.say(
        f"{data['file']['path']}  {printing.size(data['file']['size_bytes'])} + "
        f"{printing.size(data['file']['wal_bytes'])} log"
    )
    printing.say(screen.runner_text(data, when)[0])
    for section in screen.SECTIONS:
        click.echo()
        if data[section]:
            printing.table(
                screen.titles_of(section),
                (
                    screen.cells_of(section, row, when, bar=False)
                    for row in data[section]
                ),
            )
        else:
            printing.say(screen.nothing_in(section))


# Steering -----------------------------------------------------------------------------


class _Remarks(io.TextIOBase):
    """What is written to the error stream meanwhile is told on the screen."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(type(text).__name__)  # click asks whether bytes are taken
        if text.strip():
            self._tell(text.strip())
        return len(text)


class _Watch:
    """The screen: what is chosen on it, and what the keys do."""

    def __init__(
        self, looker: Looker, data: Data, interval: float, context: click.Context
    ) -> None:
        self._context = context
        self._writing = threading.Lock()
        self._watcher = Watcher(looker, data, interval, self._wake)
        self._terminal = Terminal(self._watcher.lock, self._writing)
        self._colours = printing.coloured()
        self._drawn = data  # what is on the screen: keys speak of that
        self._choice = screen.moved(data, Choice(), 0)
        self._page: str | None = None  # "help", "job", "waiting", or none
        self._skip = 0
        self._note: str | None = None
        self._untold: str | None = None
        self._question: tuple[str, str, Action] | None = None
        self._writer: threading.Thread | None = None
        self._busy = False

    def run(self) -> None:
        """Until somebody quits; what is being written by then is written."""
        with (
            contextlib.suppress(KeyboardInterrupt, EOFError),
            self._terminal,
            contextlib.redirect_stderr(_Remarks(self._tell)),
        ):
            self._watcher.start()
            try:
                self._go_on()
            finally:
                self._watcher.end()
        if self._writer is not None:
            self._writer.join(LAST_PATIENCE)
        if self._untold is not None:
            printing.remark(self._untold)

    def _go_on(self) -> None:
        while True:
            self._terminal.draw(self._lines())
            for key in self._terminal.pressed():
                if key == "ctrl c" or (key == "q" and self._page is None):
                    return
                self._press(key)

    def _wake(self) -> None:
        self._terminal.wake()

    def _tell(self, note: str) -> None:
        self._note = note
        self._wake()

    def _lines(self) -> list[str]:
        data, now = self._watcher.latest()
        self._drawn = data
        if self._choice.key is None:
            self._choice = screen.moved(data, self._choice, 0)
        columns, lines = self._terminal.size()
        note = self._note
        if note is self._untold:
            self._untold = None
        if note is None and self._watcher.problem is not None:
            note = styled(self._watcher.problem, RED)
        shown: dict[str, Any] = {"now": now, "note": note, "colours": self._colours}
        if self._page == "help":
            return screen.help_page(columns, lines, colours=self._colours)
        if self._page == "job":
            about = data.get("about")
            if about is not None and about["id"] == self._watcher.job_id:
                size = columns, lines
                most = screen.most_skipped(about, *size, now=now)
                self._skip = min(self._skip, most)
                return screen.job_page(about, *size, self._skip, **shown)
        if self._page == "waiting" and "waiting" in data:
            rows, size = data["waiting"], (columns, lines)
            most = screen.most_skipped_waiting(rows, *size, now=now)
            self._skip = min(self._skip, most)
            return screen.waiting_page(rows, *size, self._skip, **shown)
        return screen.screen(data, columns, lines, self._choice, **shown)

    def _press(self, key: str) -> None:
        self._note = None
        if self._question is not None:
            what, self._question = self._question, None
            if key == "y":
                self._run_action(*what)
            else:
                self._note = f"{what[1]} was left alone"
        elif self._page == "help":
            self._page = None
        elif key in _STEPS:
            self._move(_STEPS[key])
        elif key in {"tab", "shift tab"} and self._page is None:
            by = 1 if key == "tab" else -1
            self._choice = screen.in_next_section(self._drawn, self._choice, by)
        elif key in {"enter", "escape", "q"}:
            self._turn_page(back=key != "enter")
        elif key == "?":
            self._page = "help"
        elif key == "w" and self._page is None:
            self._page, self._skip = "waiting", 0
            self._watcher.look_now(None, waiting=True)
        elif key == "u":
            self._ask_to_undo()
        elif key in _KEYS:
            self._steer(key)

    def _move(self, by: int) -> None:
        if self._page is None:
            self._choice = screen.moved(self._drawn, self._choice, by)
        else:
            self._skip = max(0, self._skip + by)

    def _turn_page(self, *, back: bool) -> None:
        if self._page is not None or back:
            self._page = None
            self._watcher.look_now(None)
            return
        kind, row = self._chosen()
        if kind == "job":
            self._page, self._skip = "job", 0
            self._watcher.look_now(row["id"])
        else:
            self._note = f"enter shows a job; litejobs {kind}s shows more of a {kind}"

    def _chosen(self) -> tuple[str, Any]:
        """What is chosen, a job, a queue or a schedule; with its row, if there is."""
        row = screen.chosen(self._drawn, self._choice)
        kinds = {"queues": "queue", "schedules": "schedule"}
        return (
            "nothing" if row is None else kinds.get(self._choice.section, "job")
        ), row

    def _steer(self, key: str) -> None:
        kind, row = self._chosen()
        if self._page == "waiting":
            self._note = f"{key} is for {_KEYS[key]}; go back with q, and choose one"
            return
        if self._page == "job":
            kind, row = "job", {"id": self._watcher.job_id}
        elif not screen.stands_still(self._drawn, self._choice):
            # Another row has come into its place: nobody has chosen that.
            self._note = "what was chosen is no more there; choose one with j and k"
            return
        if kind == "queue" and key == "p":
            name = row["name"]
            self._run_action(*(_resuming if row["paused"] else _pausing)(name))
        elif kind == "schedule" and key == "n":
            self._run_action(*_running(row["name"]))
        elif kind == "job" and key == "c":
            self._question = "cancel", f"job {row['id']}", _on_job(key, row["id"])
            self._note = styled(f"cancel job {row['id']}? y or n", YELLOW)
        elif kind == "job" and key in _JOB_ACTIONS:
            self._run_action(
                _JOB_ACTIONS[key], f"job {row['id']}", _on_job(key, row["id"])
            )
        else:
            self._note = f"{key} is for {_KEYS[key]}; choose one with tab, j and k"

    def _ask_to_undo(self) -> None:
        if self._busy:
            self._note = WRITING  # and what it does would be the last operation
            return
        operation = self._watcher.latest()[0]["last_operation"]
        if operation is None:
            self._note = "there is nothing to undo"
            return
        done = f"{operation['name']} {operation['detail'] or ''}".rstrip()
        if operation["operations"] > 1:
            done += f", and {operation['operations'] - 1} more of the same command"
        self._question = UNDO, done, _undoing(operation["id"])
        self._note = styled(f"undo operation {operation['id']}, {done}? y or n", YELLOW)

    def _run_action(self, name: str, detail: str, action: Action) -> None:
        """It is done by a thread, since a write may have to wait for its turn."""
        if self._busy:
            self._note = WRITING
            return
        self._note = f"{name.replace('_', ' ')} {detail} …"
        self._busy = True
        self._writer = threading.Thread(
            target=self._write, args=(name, detail, action), daemon=True
        )
        self._writer.start()

    def _write(self, name: str, detail: str, action: Action) -> None:
        click.globals.push_context(self._context)  # each thread has its own
        try:
            # To undo is not an operation, which could be undone itself.
            writing = opened() if name == UNDO else recorded(name, detail)
            with self._writing, writing as jobs:
                said = action(jobs)
        except Exception as error:
            said = styled(in_words(error), RED)
        self._untold = said

        def tell() -> None:
            # Not before the screen can show it: the next key speaks of what is there.
            self._busy = False
            self._note = said

        self._watcher.look_now(
            self._watcher.job_id, waiting=self._watcher.waiting, changed=tell
        )


_STEPS = {
    "up": -1,
    "k": -1,
    "down": 1,
    "j": 1,
    "page up": -PAGE,
    "page down": PAGE,
    "home": -MOST_ROWS,
    "end": MOST_ROWS,
}
_KEYS = {
    "p": "a queue",
    "n": "a job or a schedule",
    "r": "a job",
    "c": "a job",
}
_JOB_ACTIONS = {"n": "run_now", "r": "requeue", "c": "cancel"}


def _pausing(name: str) -> tuple[str, str, Action]:
    def action(jobs: LiteJobs) -> str:
        jobs.pause(name)
        return f"queue {name} is paused"

    return "pause", f"queue {name}", action


def _resuming(name: str) -> tuple[str, str, Action]:
    def action(jobs: LiteJobs) -> str:
        jobs.resume(name)
        return f"queue {name} is open"

    return "resume", f"queue {name}", action


def _running(name: str) -> tuple[str, str, Action]:
    def action(jobs: LiteJobs) -> str:
        return sentence(jobs.schedules.run_now(name).snapshot())

    return "run", f"schedule {name}", action


def _undoing(operation_id: int) -> Action:
    def action(jobs: LiteJobs) -> str:
        done = jobs.undo(operation_id)
        return f"undone: operation {done.id}, {done.name} {done.detail or ''}".rstrip()

    return action


def _on_job(key: str, job_id: int) -> Action:
    def action(jobs: LiteJobs) -> str:
        job: Job[Any] = jobs.get(job_id)
        done = {"n": job.run_now, "r": job.requeue, "c": job.cancel}[key]()
        text = sentence(job.snapshot())
        if done is False:
            raise Failure(f"{text}; nothing was changed")
        return text

    return action
