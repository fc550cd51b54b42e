"""Django: `makemigrations` and `migrate`, first of the table as it is.

django_migrate.py FILE FOLDER [again]
"""

from __future__ import annotations

import sys
from pathlib import Path

import django
from django.conf import settings
from django.core.management import call_command

MODELS = """
from django.db import models


class Order(models.Model):
    item = models.TextField(null=True)
    {column}

    class Meta:
        db_table = "orders"
"""


def main(path: str, folder: Path) -> None:
    shop = folder / "shop"
    (shop / "migrations").mkdir(parents=True, exist_ok=True)
    (shop / "__init__.py").touch()
    (shop / "migrations" / "__init__.py").touch()
    sys.path.insert(0, str(folder))
    database = {"ENGINE": "django.db.backends.sqlite3", "NAME": path}
    key = "django.db.models.AutoField"
    settings.configure(
        DATABASES={"default": database},
        INSTALLED_APPS=["shop"],
        DEFAULT_AUTO_FIELD=key,
    )
    models = shop / "models.py"
    columns = (
        "note = models.TextField(null=True)",
        "amount = models.IntegerField(null=True)",
    )
    column = columns["again" in sys.argv]
    models.write_text(MODELS.format(column=column), encoding="utf-8")
    django.setup()
    call_command("makemigrations", "shop", interactive=False)
    call_command("migrate", "shop", fake_initial=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
