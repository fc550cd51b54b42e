"""Does any SQLite client do what a user needs? Each is tried with the same acts.

    python -m tests.clients                    try all that are found here, in some
                                               minutes, and write the tables of
                                               docs/sql.md
    python -m tests.clients NAME …             try some
    python -m tests.clients --install FOLDER   and install those of npm and pip there

What is not found is said with the name of its package. `pytest -m clients` does the
same, and compares the tables with what it has seen; those of `always` are tried in each
run of the tests.

A client is a program in `programs/`, in its own language, that reads statements as
`sessions.py` says, and a row in `drivers.py`. `acts.py` is what is tried. An ORM is a
program in `programs/orms/`, which does all acts of `told.py` by itself, and a row in
`orms.py`; migration tools are in `programs/tools/` and `test_migrations.py`.
"""
