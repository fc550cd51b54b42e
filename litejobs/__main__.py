"""`python -m litejobs` is the command `litejobs`."""

from __future__ import annotations

from litejobs.cli import main

if __name__ == "__main__":
    main()
