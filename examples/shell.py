"""Any SQLite client is a full client: jobs from the sqlite3 shell, and from a trigger.

    python examples/shell.py

While this process runs the jobs, another one enqueues and steers them in plain SQL: the
`sqlite3` shell where there is one, else Python's own sqlite3 module; SQLite 3.38 or
newer. It is another process on purpose, for one process must not open a file with two
SQLite libraries. The output is:

    > insert into litejobs_job (task, args) values ('hi', '{"name": "shell"}')
    > create table people (name text)
    > create trigger greeting after insert on people begin
        insert into litejobs_job (task, args) values ('hi', json_array(new.name)); end
    > insert into people values ('Ada'), ('Grace')
    hello, shell! hello, Ada! hello, Grace!
    > insert into litejobs_job (task, run_at) values ('hi', 4102444800000)
    > select detail, until_at from litejobs_block where job_id = 4
    its time has not come|4102444800000
    > update litejobs_job set state = 'cancelled' where id = 4
    job 4 is cancelled
    > insert into litejobs_job (task, args) values ('hi', 'Ada')
    refused: CHECK constraint failed: litejobs_job_args_are_json
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile

from litejobs import LiteJobs

INSERT = "insert into litejobs_job (task, args) values ('hi', "
CLIENT = """
import sqlite3, sys
try:
    with sqlite3.connect(sys.argv[1], timeout=5) as db:
        for row in db.execute(sys.argv[2]):
            print(*row, sep="|")
except sqlite3.Error as error:
    sys.exit(str(error))
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/jobs.db"

        def sql(statement: str) -> None:
            """Another process has run the statement; what it says is printed."""
            print(">", statement)
            command = [sys.executable, "-c", CLIENT, path, statement]
            if shell := shutil.which("sqlite3"):
                command = [shell, "-batch", "-cmd", ".timeout 5000", path, statement]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            print(done.stdout, end="")
            if done.returncode:
                message = re.search("CHECK.*: [a-z_]*", done.stderr)
                print("refused:", message[0] if message else done.stderr)

        with LiteJobs(path) as jobs, jobs.running():

            @jobs.task
            def hi(name: str) -> str:
                return f"hello, {name}!"

            sql(INSERT + """'{"name": "shell"}')""")
            sql("create table people (name text)")
            sql(
                "create trigger greeting after insert on people begin\n"
                f"    {INSERT}json_array(new.name)); end"
            )
            sql("insert into people values ('Ada'), ('Grace')")
            print(*[jobs.get(number).result(timeout=10) for number in (1, 2, 3)])
            sql("insert into litejobs_job (task, run_at) values ('hi', 4102444800000)")
            sql("select detail, until_at from litejobs_block where job_id = 4")
            sql("update litejobs_job set state = 'cancelled' where id = 4")
            print("job 4 is", jobs.get(4).state)
            sql(INSERT + "'Ada')")


if __name__ == "__main__":
    main()
