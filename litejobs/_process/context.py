"""What callers keep in `contextvars`, and what of it jobs of their runner find."""

from __future__ import annotations

import contextvars

OURS = "litejobs_"
# Its value is one object that a task could change for all others.
_NOT_HANDED_ON = "decimal_context"


def of_caller() -> contextvars.Context:
    """Return a context with what the caller has set, but for what is about itself.

    Not which attempt, transaction or operation it is in: jobs that are run later, in
    copies of this, are not part of that.
    """
    found = contextvars.Context()
    for variable, value in contextvars.copy_context().items():
        if not variable.name.startswith(OURS) and variable.name != _NOT_HANDED_ON:
            found.run(variable.set, value)
    return found
