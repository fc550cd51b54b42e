"""sqlite-utils: `transform`, which makes the table anew.

sqlite_utils_transform.py FILE FOLDER
"""

from __future__ import annotations

import sys

import sqlite_utils

orders = sqlite_utils.Database(sys.argv[1])["orders"]
orders.transform(drop={"note"})
orders.add_column("amount", int)
