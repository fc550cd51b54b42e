"""What Alembic is given, so that its migrations leave the tables of litejobs alone.

Where the tables of an application and those of litejobs are in one file, `alembic
revision --autogenerate` takes ours for tables that have no model any more, and drops
them with the jobs in them. In `env.py`, wherever `context.configure` is called:

    from litejobs.contrib.alembic import include_name, include_object

    context.configure(
        ..., include_name=include_name, include_object=include_object
    )
"""

from __future__ import annotations

from collections.abc import Mapping

_OURS = "litejobs_"


def include_name(
    name: str | None,
    type_: str,
    parent_names: Mapping[str, str | None],  # noqa: ARG001 - Alembic gives it
) -> bool:
    """Tell Alembic whether to look at what the file has: not at tables of litejobs.

    Those are not read from the file then, which takes Alembic some time. It is not
    asked of the models: where one is of a table of litejobs, `include_object` is
    needed, too.
    """
    return not _is_ours(name, type_)


def include_object(
    item: object,  # noqa: ARG001 - Alembic gives it
    name: str | None,
    type_: str,
    reflected: bool,  # noqa: ARG001 - Alembic gives it
    compare_to: object,  # noqa: ARG001 - Alembic gives it
) -> bool:
    """Tell Alembic whether to compare an object: not the tables of litejobs.

    Neither those of the file nor models of them that the application has.
    """
    return not _is_ours(name, type_)


def _is_ours(name: str | None, type_: str) -> bool:
    """Indexes, columns and keys are asked for only where their table is included."""
    return type_ == "table" and (name or "").lower().startswith(_OURS)
