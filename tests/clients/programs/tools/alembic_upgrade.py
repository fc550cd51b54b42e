"""Alembic: `revision --autogenerate` and `upgrade`, with the filters or without.

alembic_upgrade.py FILE FOLDER [filtered]
"""

from __future__ import annotations

import sys
from pathlib import Path

from alembic import command
from alembic.config import Config

MODELS = """
import sqlalchemy as sa

metadata = sa.MetaData()
sa.Table(
    "orders",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("item", sa.Text),
    sa.Column("amount", sa.Integer),
)
"""

FILTERED = """
from litejobs.contrib.alembic import include_name, include_object

# The application speaks of a table of litejobs, too.
sa.Table(
    "litejobs_job",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("task", sa.Text),
)
"""

UNFILTERED = """
include_name = include_object = None
"""

ENVIRONMENT = """
import sqlalchemy as sa
from alembic import context

engine = sa.create_engine(context.config.get_main_option("sqlalchemy.url"))
with engine.connect() as connection:
    context.configure(
        connection=connection,
        target_metadata=metadata,
        render_as_batch=True,
        include_name=include_name,
        include_object=include_object,
    )
    with context.begin_transaction():
        context.run_migrations()
"""


def main(path: str, folder: Path, *, filtered: bool) -> None:
    scripts = folder / "migrations"
    config = Config()
    config.set_main_option("script_location", str(scripts))
    config.set_main_option("sqlalchemy.url", f"sqlite:///{path}")
    config.config_file_name = str(folder / "alembic.ini")
    command.init(config, str(scripts))
    environment = MODELS + (FILTERED if filtered else UNFILTERED) + ENVIRONMENT
    (scripts / "env.py").write_text(environment, encoding="utf-8")
    command.revision(config, "change orders", autogenerate=True)
    command.upgrade(config, "head")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), filtered="filtered" in sys.argv)
