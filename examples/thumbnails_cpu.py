"""Tasks that compute, in processes: shrink pictures on all cores, and end what hangs.

    python examples/thumbnails_cpu.py

Pictures (PPM) are shrunk to thumbnails (PNG), each in one of two processes. One of them
says of itself that it is enormous, and its task takes all memory it gets: its process
is ended, and that is a crash of this job alone. Another has a caption that keeps a
regular expression busy for ever, in C, where no exception arrives: it is cancelled, and
its process is ended. The others are not touched by that. The output is:

    caption is at 50 % and goes no further: cancelled
    beach: completed, 40 x 30
    boat: completed, 40 x 30
    cafe: completed, 40 x 30
    dunes: completed, 40 x 30
    bomb: dead_lettered, out of memory
    caption: cancelled
    thumbnails: beach.png boat.png cafe.png dunes.png
"""

from __future__ import annotations

import logging
import re
import struct
import tempfile
import time
import zlib
from pathlib import Path

from litejobs import Job, LiteJobs, current
from litejobs.errors import JobCancelled, JobDeadLettered
from litejobs.executors import Processes

ALBUM = {"beach": 40, "boat": 90, "cafe": 140, "dunes": 190}
WIDTH, HEIGHT, FACTOR = 320, 240, 8

jobs = LiteJobs()  # in memory, so that the example leaves no file behind


@jobs.task(executor="cpu", max_crashes=1, max_attempts=1)
def shrink(picture: str) -> str:
    """Make a thumbnail beside the picture."""
    with Path(picture).open("rb") as file:
        title = file.readline()
        width, height = map(int, file.readline().split())
        file.readline()
        pixels = b"".join(iter(lambda: file.read(2**20), b""))
    if len(pixels) < width * height * 3:
        # As a decoder would that believes the header.
        pixels = pixels.ljust(width * height * 3, b"\xff")
    small = width // FACTOR, height // FACTOR
    rows = []
    for row in range(small[1]):
        current().progress(row / small[1] / 2, "shrinking")
        rows.append(b"\x00" + shrunk_row(pixels, width, row, small[0]))
    current().progress(0.5, "reading the caption")
    re.match(rb"# (\w+\s?)*$", title)
    Path(picture).with_suffix(".png").write_bytes(png(*small, b"".join(rows)))
    return f"{small[0]} x {small[1]}"


def shrunk_row(pixels: bytes, width: int, row: int, columns: int) -> bytes:
    """One row of means of squares of the picture."""
    means = bytearray()
    for column in range(columns):
        for colour in range(3):
            total = 0
            for line in range(row * FACTOR, (row + 1) * FACTOR):
                begin = (line * width + column * FACTOR) * 3 + colour
                total += sum(pixels[begin : begin + FACTOR * 3 : 3])
            means.append(total // FACTOR**2)
    return bytes(means)


def png(width: int, height: int, rows: bytes) -> bytes:
    """A picture of three colours, as a PNG."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + body))
        return struct.pack(">I", len(body)) + kind + body + check

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = (b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*each) for each in parts)


def make_album(folder: Path) -> list[Path]:
    """Pictures with a first line that is their caption."""
    made = []
    for name, light in ALBUM.items():
        row = bytes((x * light // WIDTH) % 256 for x in range(WIDTH) for _ in range(3))
        made.append((name, f"# {name}", f"{WIDTH} {HEIGHT}", row * HEIGHT))
    made.append(("bomb", "# bomb", "30000 30000", b""))
    caption = f"# {'very ' * 12}{'long' * 12}!"
    made.append(("caption", caption, "16 16", bytes(16 * 16 * 3)))
    for name, title, size, pixels in made:
        head = f"{title}\n{size}\n255\n".encode()
        (folder / f"{name}.ppm").write_bytes(head + pixels)
    return [folder / f"{name}.ppm" for name, *_ in made]


def main() -> None:
    logging.getLogger("litejobs").setLevel(logging.CRITICAL)  # the bomb will crash
    jobs.add_executor("cpu", Processes(2, memory="256MiB"))
    with tempfile.TemporaryDirectory() as folder, jobs, jobs.running():
        asked = {
            each.stem: shrink.enqueue(str(each)) for each in make_album(Path(folder))
        }
        caption = asked["caption"]
        while caption.progress != 0.5:
            time.sleep(0.05)
        print("caption is at 50 % and goes no further: cancelled")
        caption.cancel()
        for name, job in asked.items():
            print(f"{name}: {outcome(job)}")
        print("thumbnails:", *sorted(each.name for each in Path(folder).glob("*.png")))


def outcome(job: Job[str]) -> str:
    """What has become of a job, when it has ended."""
    try:
        return f"completed, {job.result()}"
    except JobCancelled:
        return job.state
    except JobDeadLettered:
        message = job.attempts[-1].outcome["error"]["message"]
        return f"{job.state}, {message.partition(':')[0]}"


if __name__ == "__main__":
    # Processes import tasks by the name of their module, which `__main__` is not.
    import thumbnails_cpu

    thumbnails_cpu.main()
