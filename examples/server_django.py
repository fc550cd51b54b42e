"""Django: a site in one file, whose jobs outlive their request.

    pip install django
    python examples/server_django.py runserver

    curl -X POST 'localhost:8000/letters?name=Ada'
    curl localhost:8000/letters/1

`ready` is where a Django application starts its jobs. Those of `migrate`, `shell` and
other commands that do not serve start none. It serves under gunicorn, too.
"""

from __future__ import annotations

import os
import sys

from django.apps import AppConfig
from django.conf import settings
from django.core.management import execute_from_command_line
from django.core.wsgi import get_wsgi_application
from django.http import Http404, HttpRequest, JsonResponse
from django.urls import path
from django.views.decorators.http import require_POST

from litejobs import LiteJobs
from litejobs.errors import JobNotFound

jobs = LiteJobs(os.environ.get("LITEJOBS_DB", "letters.db"))


@jobs.task
def write(name: str) -> str:
    return f"Dear {name}"


class Letters(AppConfig):
    """The application, as Django knows it."""

    name = __name__

    def ready(self) -> None:
        """In each process that has loaded the site."""
        jobs.start(threads=4, grace=3)


@require_POST
def order(request: HttpRequest) -> JsonResponse:
    return JsonResponse({"id": write.enqueue(request.GET["name"]).id}, status=202)


def look(_: HttpRequest, number: int) -> JsonResponse:
    try:
        letter = jobs.get(number)
        state = letter.state
    except JobNotFound as error:
        raise Http404(str(error)) from error
    result = letter.result() if state == "completed" else None
    return JsonResponse({"state": state, "result": result})


def health(_: HttpRequest) -> JsonResponse:
    return JsonResponse(jobs.health())


urlpatterns = [path("letters", order), path("letters/<int:number>", look)]
urlpatterns += [path("health", health)]
settings.configure(
    DEBUG=True,
    SECRET_KEY="-",
    ROOT_URLCONF=__name__,
    INSTALLED_APPS=[f"{__name__}.Letters"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
)

if __name__ == "__main__":
    execute_from_command_line(sys.argv)
else:
    application = get_wsgi_application()
