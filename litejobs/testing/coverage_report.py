"""What a test suite has exercised, as text and as a page."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from litejobs.testing.coverage import ENDS, MACHINE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from litejobs.testing.coverage import Seen

_WIDTH = 88
_NAMES = 40  # of what was missed are named in a terminal; the page has all
_FAR = 300
_HEADINGS = {
    "state": "states",
    "move": "moves",
    "reason": "reasons to wait",
    "stop": "reasons to stop",
    "trigger": "triggers",
    "rule": "rules",
}
# Where each state stands in the picture.
_PLACES = {
    "enqueued": (70, 150),
    "scheduled": (230, 50),
    "blocked": (230, 260),
    "pending": (400, 150),
    "processing": (620, 170),
    "failed": (520, 20),
    "completed": (820, 30),
    "dead_lettered": (820, 140),
    "cancelled": (820, 270),
}
_STYLE = """
:root { color-scheme: light dark; --seen: #1a7f37; --missed: #cf222e; --dim: #8888; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62em; margin: 2em auto;
       padding: 0 1em; }
h2 { margin-top: 2em; }
table { border-collapse: collapse; }
th, td { padding: .15em .9em .15em 0; text-align: left; vertical-align: top; }
td.times { text-align: right; font-variant-numeric: tabular-nums; }
.missed { color: var(--missed); }
.seen { color: var(--seen); }
summary { cursor: pointer; }
svg { width: 100%; height: auto; }
svg rect { fill: Canvas; stroke: var(--seen); stroke-width: 2; }
svg text { fill: CanvasText; font-size: 13px; text-anchor: middle; }
svg path { fill: none; stroke: var(--seen); stroke-width: 2; }
svg path.head { fill: var(--seen); stroke: none; stroke-dasharray: none; }
svg path.head.missed { fill: var(--missed); }
svg .missed rect, svg path.missed { stroke: var(--missed); stroke-dasharray: 4 3; }
"""


def times(seen: Seen, kind: str, name: str) -> int:
    """How often it was seen."""
    found = seen.times.get(kind)
    return found[name] if found else 0


def known(seen: Seen, kind: str) -> list[str]:
    """Which there are: those that are told of, and any other that was seen."""
    return list({**seen.known.get(kind, {}), **dict.fromkeys(seen.times.get(kind, ()))})


def missed(seen: Seen, kind: str) -> list[str]:
    """Which of them were not seen."""
    return [name for name in known(seen, kind) if not times(seen, kind, name)]


def as_text(seen: Seen) -> str:
    """For a terminal: how much of each kind, what was missed, and each task by itself.

    Triggers that never acted are only counted: the page names them.
    """
    if not seen.known:
        return "No file of litejobs was opened."
    lines = []
    for kind in (*MACHINE, "rule"):
        names = known(seen, kind)
        if not names:
            continue
        gone = missed(seen, kind)
        lines.append(_share(_HEADINGS[kind], names, gone))
        if gone and kind == "rule":
            lines += [f"    never decided: {name}" for name in gone]
        elif gone and kind != "trigger":
            lines += _wrapped("    never: ", gone)
    for task in known(seen, "task"):
        ends = [(word, times(seen, "end", f"{task}: {word}")) for word in ENDS]
        said = [f"{word} {count}" for word, count in ends if count]
        never = [word for word, count in ends if not count]
        lines.append(f"task {task}: {', '.join(said) or 'no attempt ended'}")
        if said and never:
            lines.append(f"    never: {', '.join(never)}")
    if schedules := known(seen, "schedule_name"):
        gone = [name for name in schedules if not _came(seen, name)]
        lines.append(_share("schedules", schedules, gone))
        if gone:
            lines += _wrapped("    never came: ", gone)
    return "\n".join(lines)


def _share(heading: str, names: list[str], gone: list[str]) -> str:
    share = f"{len(names) - len(gone)} of {len(names)}"
    return f"{heading:<16} {share:>10}"


def _came(seen: Seen, schedule: str) -> list[str]:
    # The name of another schedule may begin like this one, and go on with ": ".
    came = [name.rpartition(": ") for name in seen.times.get("schedule", ())]
    return [word for name, _, word in came if name == schedule]


def _wrapped(start: str, names: list[str]) -> Iterator[str]:
    line = start
    if len(names) > _NAMES:
        names = [*names[:_NAMES], f"and {len(names) - _NAMES} more"]
    for number, name in enumerate(names):
        last = number == len(names) - 1
        text = name if last else f"{name}, "
        if len(line) > len(start) and len(line) + len(text.rstrip()) > _WIDTH:
            yield line.rstrip()
            line = " " * len(start)
        line += text
    yield line


def as_html(seen: Seen) -> str:
    """For a browser: one page that needs nothing else, with the states as a picture."""
    parts = [
        "<!doctype html><html lang='en'><meta charset='utf-8'>",
        "<meta name='viewport' content='width=device-width'>",
        f"<title>litejobs coverage</title><style>{_STYLE}</style>",
        "<h1>What the tests exercised</h1>",
        _picture(seen),
    ]
    if tasks := known(seen, "task"):
        parts.append("<h2>Tasks</h2>" + _tasks(seen, tasks))
    if known(seen, "rule"):
        parts.append("<h2>Rules</h2>" + _table(seen, "rule"))
    if schedules := known(seen, "schedule_name"):
        rows = [(name, ", ".join(_came(seen, name))) for name in schedules]
        parts.append("<h2>Schedules</h2><table>")
        parts += [
            f"<tr><td>{html.escape(name)}<td class='{'seen' if came else 'missed'}'>"
            f"{html.escape(came) or 'never came'}"
            for name, came in rows
        ]
        parts.append("</table>")
    for kind in MACHINE:
        names = known(seen, kind)
        share = f"{len(names) - len(missed(seen, kind))} of {len(names)}"
        parts.append(
            f"<h2>{_HEADINGS[kind].capitalize()}</h2><details"
            f"{'' if kind == 'trigger' else ' open'}><summary>{share}</summary>"
            f"{_table(seen, kind)}</details>"
        )
    return "\n".join(parts) + "\n"


def _tasks(seen: Seen, tasks: list[str]) -> str:
    parts = ["<table><tr><th>", *(f"<th>{word}" for word in ENDS)]
    for task in tasks:
        parts.append(f"<tr><td>{html.escape(task)}")
        for word in ENDS:
            count = times(seen, "end", f"{task}: {word}")
            parts.append(
                f"<td class='times {'seen' if count else 'missed'}'>{count or 'never'}"
            )
    return "".join(parts) + "</table>"


def _table(seen: Seen, kind: str) -> str:
    parts = ["<table>"]
    for name in known(seen, kind):
        count = times(seen, kind, name)
        word = "seen" if count else "missed"
        said = ("seen" if kind in {"state", "reason"} else str(count)) if count else ""
        parts.append(
            f"<tr class='{word}'><td>{html.escape(name)}"
            f"<td class='times'>{said or 'never'}"
        )
    return "\n".join(parts) + "</table>"


def _picture(seen: Seen) -> str:
    parts = [
        "<svg viewBox='0 -60 900 420' role='img' aria-label='States and moves'><defs>",
        *(
            f"<marker id='{word}' viewBox='0 0 8 8' refX='4' refY='4' markerWidth='5' "
            f"markerHeight='5' orient='auto'><path class='head {word}' "
            "d='M0 0L8 4L0 8z'/></marker>"
            for word in ("seen", "missed")
        ),
        "</defs>",
    ]
    for move in known(seen, "move"):
        start, _, end = move.partition(" -> ")
        if start not in _PLACES or end not in _PLACES:
            continue
        (x, y), (to_x, to_y) = _PLACES[start], _PLACES[end]
        # Each way a bow of its own, so that there and back are two lines, and a wider
        # one where it has to pass others.
        bow = 0.35 if abs(to_x - x) > _FAR else 0.2
        over_x = (x + to_x) / 2 + (to_y - y) * bow
        over_y = (y + to_y) / 2 + (x - to_x) * bow
        # In two halves, with the head of the arrow between them.
        middle_x = (x + 2 * over_x + to_x) / 4
        middle_y = (y + 2 * over_y + to_y) / 4
        way = (
            f"M{x} {y}Q{(x + over_x) / 2:.0f} {(y + over_y) / 2:.0f} "
            f"{middle_x:.0f} {middle_y:.0f}Q{(over_x + to_x) / 2:.0f} "
            f"{(over_y + to_y) / 2:.0f} {to_x} {to_y}"
        )
        word = "seen" if times(seen, "move", move) else "missed"
        said = f"{html.escape(move)}: {times(seen, 'move', move) or 'never'}"
        parts.append(
            f"<path class='{word}' marker-mid='url(#{word})' d='{way}'>"
            f"<title>{said}</title></path>"
        )
    for state, (x, y) in _PLACES.items():
        is_seen = state == "enqueued" or times(seen, "state", state)
        parts.append(
            f"<g class='{'seen' if is_seen else 'missed'}'>"
            f"<rect x='{x - 54}' y='{y - 16}' width='108' height='32' rx='8'/>"
            f"<text x='{x}' y='{y + 5}'>{state.replace('_', ' ')}</text></g>"
        )
    return "\n".join(parts) + "</svg>"
