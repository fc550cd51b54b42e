"""Django, with the models that its `inspectdb` writes."""

from __future__ import annotations

import contextlib
import io
import types
from typing import Any

import django
import told
from django.conf import settings

TABLES = ("litejobs_job", "litejobs_queue", "litejobs_job_report", "litejobs_event")


class Django:
    """Whole rows: `create()` and `save()` say NULL for what is not set."""

    version = f"Django {django.__version__}"

    def __init__(self, path: str) -> None:
        from django.core.management import call_command

        engine = "django.db.backends.sqlite3"
        settings.configure(
            DATABASES={"default": {"ENGINE": engine, "NAME": path}}, INSTALLED_APPS=[]
        )
        django.setup()
        written = io.StringIO()
        call_command("inspectdb", *TABLES, stdout=written)
        self.models = types.ModuleType("inspected")
        text = written.getvalue().replace(
            "class Meta:", "class Meta:\n        app_label = 'inspected'"
        )
        # A view has no key that could be inspected.
        for view in ("LitejobsJobReport", "LitejobsEvent"):
            head = f"class {view}(models.Model):\n"
            begin, _, rest = text.partition(head)
            rest = rest.replace(
                "    id = models.IntegerField(blank=True, null=True)",
                "    id = models.IntegerField(primary_key=True)",
                1,
            )
            text = begin + head + rest
        exec(text, vars(self.models))

    def enqueue(self, **values: Any) -> int:
        return self.models.LitejobsJob.objects.create(**values).id

    def report(self, job: int) -> tuple[str, str | None]:
        found = self.models.LitejobsJobReport.objects.get(id=job)
        return found.state, found.result

    def load(self, job: int) -> Any:
        return self.models.LitejobsJob.objects.get(pk=job)

    def save(self, loaded: Any, **values: Any) -> None:
        for name, value in values.items():
            setattr(loaded, name, value)
        loaded.save()

    def holder(self, unique_key: str) -> int:
        return self.models.LitejobsJob.objects.get(unique_key=unique_key).id

    def pause(self, queue: str) -> None:
        self.models.LitejobsQueue.objects.update_or_create(
            name=queue, defaults={"paused": True}
        )

    def events(self, after: int) -> list[str]:
        found = self.models.LitejobsEvent.objects.filter(id__gt=after).order_by("id")
        return [each.name for each in found]


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        told.tell(Django)
