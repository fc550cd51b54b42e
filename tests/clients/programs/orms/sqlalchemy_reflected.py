"""SQLAlchemy, with models that `automap` makes of the file."""

from __future__ import annotations

import sqlalchemy as sa
import told
from sqlalchemy.ext.automap import automap_base
from sqlalchemy_written import Written


class Reflected(Written):
    """Inserts leave out what is not set; a view is given the key that it has not."""

    def __init__(self, path: str) -> None:
        self.engine = sa.create_engine(f"sqlite:///{path}")
        metadata = sa.MetaData()
        for view in ("litejobs_job_report", "litejobs_event"):
            sa.Table(
                view,
                metadata,
                sa.Column("id", sa.Integer, primary_key=True),
                autoload_with=self.engine,
            )
        tables = ["litejobs_job", "litejobs_queue"]
        metadata.reflect(self.engine, only=tables)
        base = automap_base(metadata=metadata)
        base.prepare()
        classes = base.classes
        self.job, self.queue = classes.litejobs_job, classes.litejobs_queue
        self.reported, self.event = classes.litejobs_job_report, classes.litejobs_event


if __name__ == "__main__":
    told.tell(Reflected)
