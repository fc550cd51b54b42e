"""The servers of docs/deploy.md: each by its one command, with the lines it needs."""

from __future__ import annotations

import os
import re
import shutil
import signal
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.embedded.environments import KEPT, ROOT, python_with
from tests.embedded.serving import ASGI, JOBS, WSGI, server, serves_and_stops
from tests.servers.serving import ON_LINUX, Server

pytestmark = [pytest.mark.embedded, ON_LINUX]

ON_TERM = "signal.signal(signal.SIGTERM, lambda *_: sys.exit())"

WAITRESS = f"""
if __name__ == "__main__":
    import signal
    import sys
    from waitress import serve

    {ON_TERM}
    serve(application, listen="127.0.0.1:" + os.environ["PORT"])
"""
CHEROOT = f"""
if __name__ == "__main__":
    import signal
    import sys
    from cheroot.wsgi import Server

    {ON_TERM}
    Server(("127.0.0.1", int(os.environ["PORT"])), application).safe_start()
"""
ROBYN = """
import signal

from robyn import Response, Robyn

app = Robyn(__file__)


def told(*given):
    return json.dumps(answer(*given)[1])


@app.post("/letters")
def order(request):
    given = "name=" + request.query_params.get("name", "")
    return Response(202, {}, told("POST", "/letters", given))


@app.get("/health")
def health(request):
    return told("GET", "/health", "")


@app.get("/letters/:number")
def look(request):
    return told("GET", "/letters/" + request.path_params["number"], "")


@app.shutdown_handler
def stop():
    jobs.stop()


if __name__ == "__main__":
    jobs.start(threads=4, grace=0.5)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    app.start(host="127.0.0.1", port=int(os.environ["PORT"]))
"""


START = "jobs.start(threads=4, grace=0.5)\n"


class Served(NamedTuple):
    """What is installed and run, how many processes stand by, and its last code."""

    packages: tuple[str, ...]
    program: str
    command: tuple[str, ...]
    standbys: int = 0
    code: int = 0


AT = "127.0.0.1:{port}"
SERVERS = {
    "waitress": Served(("waitress==3.0.2",), WSGI + WAITRESS, ("python", "served.py")),
    "cheroot": Served(("cheroot==11.1.2",), WSGI + CHEROOT, ("python", "served.py")),
    "robyn": Served(("robyn==0.88.0",), JOBS + ROBYN, ("python", "served.py")),
    "granian": Served(
        ("granian==2.8.9",),
        ASGI,
        ("granian", "--interface=asgi", "--workers=2", "--port={port}", "served:app"),
        1,
    ),
    "granian-wsgi": Served(
        ("granian==2.8.9",),
        WSGI,
        ("granian", "--interface=wsgi", "--port={port}", "served:application"),
    ),
    "daphne": Served(
        ("daphne==4.2.3",), ASGI + START, ("daphne", "--port={port}", "served:app")
    ),
    "gunicorn": Served(
        ("gunicorn==27.0.1",),
        WSGI,
        ("gunicorn", f"--bind={AT}", "--workers=2", "served:application"),
        1,
    ),
    "uvicorn": Served(
        ("uvicorn==0.54.0",),
        ASGI,
        ("uvicorn", "--port={port}", "served:app"),
        code=-signal.SIGTERM,
    ),
    "hypercorn": Served(
        ("hypercorn==0.18.0",), ASGI, ("hypercorn", f"--bind={AT}", "served:app")
    ),
}


@pytest.mark.parametrize("name", SERVERS)
def test_server_runs_jobs_and_its_stop_is_no_crash(tmp_path: Path, name: str) -> None:
    packages, program, command, standbys, code = SERVERS[name]
    with server(tmp_path, program, packages, *command) as served:
        serves_and_stops(served, standbys=standbys, code=code)


APACHE = """
ServerRoot {folder}
ServerName localhost
PidFile {folder}/pid
ErrorLog {folder}/server.log
Listen 127.0.0.1:{port}
LoadModule mpm_event_module {modules}/mod_mpm_event.so
LoadModule authz_core_module {modules}/mod_authz_core.so
LoadModule wsgi_module {modules}/mod_wsgi.so
User www-data
Group www-data
WSGIDaemonProcess app processes=2 threads=4 python-home={home} home={folder}
WSGIScriptAlias / {folder}/served.py {groups}
<Directory {folder}>
Require all granted
</Directory>
"""
GROUPS = "process-group=app application-group=%{GLOBAL}"
MODULES = Path("/usr/lib/apache2/modules")


@pytest.mark.skipif(
    not ((MODULES / "mod_wsgi.so").exists() and os.getuid() == 0),
    reason="apache2 and libapache2-mod-wsgi-py3 are not installed, or not for root",
)
def test_mod_wsgi_runs_jobs_and_its_stop_is_no_crash() -> None:
    """Debian's, for Debian's Python; Apache serves as another user than root."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        shutil.chown(folder, "www-data")
        KEPT.mkdir(exist_ok=True)
        KEPT.chmod(0o711)
        home = python_with(python="/usr/bin/python3").parents[1]
        (folder / "served.py").write_text(WSGI)
        command = ("/usr/sbin/apache2", "-f", f"{folder}/httpd.conf", "-DFOREGROUND")
        served = Server(folder, "served", *command)
        config = APACHE.format(
            folder=folder,
            home=home,
            port=served.port,
            modules=MODULES,
            groups=GROUPS,
        )
        (folder / "httpd.conf").write_text(config)
        with served:
            serves_and_stops(served, standbys=1)


def test_the_docs_have_these_servers_and_lines() -> None:
    text = (ROOT / "docs" / "deploy.md").read_text()
    rows = set(re.findall(r"^\| `?([a-zA-Z_]+)", text, re.MULTILINE))
    named = {each.partition("-")[0] for each in SERVERS} | {"uWSGI", "mod_wsgi"}
    assert {each.lower() for each in named} <= {each.lower() for each in rows}
    assert ON_TERM in text
    assert GROUPS in text
