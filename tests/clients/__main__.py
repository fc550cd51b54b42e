"""Try the clients that are found, and write what was seen: see the package."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.clients import acts, found, orms, page
from tests.clients.drivers import CLIENTS, OF_NPM, OF_PIP, PLACE, Client, example
from tests.clients.sessions import Gone, Refused


def main() -> None:
    parser = argparse.ArgumentParser(description="Try SQLite clients.")
    parser.add_argument("names", nargs="*", help="those to try; all if none is named")
    parser.add_argument("--install", metavar="FOLDER", type=Path)
    asked = parser.parse_args()
    if asked.install is not None:
        install(asked.install)
    seen, wrong = {}, 0
    for client in CLIENTS:
        if asked.names and client.name not in asked.names:
            continue
        command = client.command()
        if command is None:
            print(f"{client.name}: it is not here ({client.package})")
            continue
        try:
            tried_now = tried(client, command)
        except (Gone, Refused) as error:
            print(f"{client.name}: {error}")
            wrong += 1
            continue
        seen[client.name] = tried_now
        print(f"{client.name} {tried_now.version}, SQLite {tried_now.sqlite}")
        for name, said in tried_now.acts.items():
            known = client.expected(name).seen
            wrong += known not in said
            print(f"  {name}: {said}", "" if known in said else f"(NOT: {known})")
        if client.example:
            print(f"  {client.example}:", said := whole_program(client))
            wrong += said != acts.WORKS
    told, other = orms.try_those_found(asked.names)
    wrong += other
    text = orms.written(page.PAGE.read_text(encoding="utf-8"), told)
    page.PAGE.write_text(page.written(text, seen), encoding="utf-8")
    sys.exit(f"{wrong} are not as expected" if wrong else 0)


def tried(client: Client, command: list[str]) -> acts.Seen:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        path = Path(folder, "jobs.db")
        return acts.try_all(
            command, path, waits=client.waits, numbers_alone=client.numbers_alone
        )


def whole_program(client: Client) -> str:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        said = acts.run_example(example(client) or [], Path(folder, "jobs.db"))
    return acts.WORKS if said == acts.EXAMPLE else f"(NOT as expected)\n{said}"


def install(folder: Path) -> None:
    """Fetch what npm and pip have, for those that have these."""
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    os.environ[PLACE] = str(folder)
    if npm := shutil.which("npm"):
        fetch = [npm, "install", "--no-audit", "--no-fund", "--prefix", str(folder)]
        subprocess.run([*fetch, *OF_NPM, *found.OF_NPM], check=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder / "python")], check=True)
    python = str(folder / "python" / "bin" / "python")
    packages = (*OF_PIP, *found.OF_PIP)
    subprocess.run([python, "-m", "pip", "install", "-q", *packages], check=True)


if __name__ == "__main__":
    main()
