"""uWSGI, which forks its workers in C."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.embedded.serving import WSGI, server, serves_and_stops
from tests.servers.serving import (
    ON_LINUX,
    Load,
    Server,
    assert_each_is_written_once,
    has_died,
)
from tests.waiting import eventually

pytestmark = [pytest.mark.embedded, ON_LINUX]

PACKAGES = ("pyuwsgi==2.0.30.post1",)

# Which file a worker has open, and whether it has that from its parent: where a
# descriptor stands is the same for both, and of no use to SQLite.
OPENED_BEFORE = """
write.enqueue("early")
jobs.on("completed", lambda event: None)


def descriptors():
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.path.samestat(os.fstat(int(name)), os.stat(jobs.path)):
                yield int(name)
        except OSError:
            pass


for each in descriptors():
    os.lseek(each, 12345, os.SEEK_SET)
answered = answer


def answer(*given):
    status, document = answered(*given)
    assert all(os.lseek(each, 0, os.SEEK_CUR) != 12345 for each in descriptors())
    return status, document
"""
NOTED = "open(f'began-{os.getpid()}', 'x')"
OWN_HOOK = f"import os, uwsgi\nuwsgi.post_fork_hook = lambda: {NOTED}\n"
DECORATED = f"""
from uwsgidecorators import postfork


@postfork
def began():
    {NOTED}
"""
HOOKS = "--py-call-uwsgi-fork-hooks"
WAYS = {
    "as most start it": ([], WSGI + OPENED_BEFORE + DECORATED, 2),
    "a hook was there before": (
        ["--py-call-osafterfork", "--enable-threads"],
        OWN_HOOK + WSGI + OPENED_BEFORE,
        2,
    ),
    "a hook is set later": ([HOOKS, "--threads=2"], WSGI + OPENED_BEFORE + OWN_HOOK, 2),
    "loaded by each": (["--lazy-apps", "--enable-threads"], DECORATED + WSGI, 0),
}


def uwsgi(folder: Path, program: str, *options: str) -> Server:
    where = ("--http=127.0.0.1:{port}", "--wsgi-file=served.py", "--need-app")
    how = ("--processes=2", "--die-on-term", "--disable-logging", *options)
    return server(folder, program, PACKAGES, "uwsgi", *where, *how)


@pytest.mark.parametrize("way", WAYS)
def test_one_worker_runs_and_the_other_stands_by(tmp_path: Path, way: str) -> None:
    options, program, hooks = WAYS[way]
    with uwsgi(tmp_path, program, "--master", *options) as served:
        serves_and_stops(served, standbys=1)
    assert len(list(tmp_path.glob("began-*"))) == hooks


def test_mule_runs_jobs_where_workers_only_enqueue_them(tmp_path: Path) -> None:
    (tmp_path / "mule.py").write_text(
        "import signal, served\nserved.jobs.start()\nsignal.pause()\n"
    )
    program = WSGI.replace("jobs.start(threads=4, grace=0.5)", "")
    mule = ("--pythonpath=.", "--mule=mule.py")
    with uwsgi(tmp_path, program, "--master", *mule) as served:
        with Load(served, clients=2) as load:
            load.goes_on(20)
        assert load.wrong == []
        assert_each_is_written_once(served, load.ordered)


def test_workers_without_a_master_run_jobs_too(tmp_path: Path) -> None:
    """The first of them has loaded the program, and was not forked."""
    with uwsgi(tmp_path, WSGI + OPENED_BEFORE) as served:
        eventually(lambda: served.has(standbys=1))
        with Load(served, clients=2) as load:
            load.goes_on(20)
        assert load.wrong == []
        assert_each_is_written_once(served, load.ordered)


def test_worker_that_is_killed_is_followed_by_another(tmp_path: Path) -> None:
    """Each is forked by the same master, which has the file open."""
    with uwsgi(tmp_path, WSGI + OPENED_BEFORE, "--master") as served:
        with Load(served) as load:
            for _ in range(2):
                eventually(lambda: served.has(standbys=1))
                runner = served.runner()
                assert runner is not None
                has_died(runner)
                eventually(lambda died=runner: served.runner() not in {None, died})
                load.goes_on()
        assert load.wrong == []
        assert_each_is_written_once(served, load.ordered, deaths=True)
        # A worker that has just been forked has its master's handlers of signals yet.
        eventually(lambda: served.has(standbys=1))
        assert served.end() == 0
