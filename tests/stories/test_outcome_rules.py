"""Three documents of rules, each line of them shown with errors of real libraries.

The documents are what a YAML, TOML or JSON file gives. Their tasks raise what urllib,
requests and httpx raise for a real server's answers, and what drivers of PostgreSQL
look like.
"""

from __future__ import annotations

import datetime as dt
import json
import threading
import tomllib
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from freezegun import freeze_time

from litejobs import Job, LiteJobs, Policy, Retry, TaskError, current
from tests.libraries import needs

HTTP = """
{"rules": [
    {
        "when": "{{ outcome.http.status == 429 or outcome.http.status >= 500 }}",
        "then": {"do": "retry", "attempts": 10, "backoff": "exponential", "delay": 2.0}
    },
    {
        "when": "{{ outcome.http.status in [401, 403] }}",
        "then": {"do": "fail"}
    },
    {
        "when": "{{ outcome.status == 'error' }}",
        "then": {"do": "retry", "attempts": 3, "backoff": "linear", "delay": 1.0}
    },
    {"else": {"then": {"do": "continue"}}}
]}
"""

POSTGRESQL = """
{"rules": [
    {
        "when": "{{ outcome.pg.code in ['40001', '40P01'] }}",
        "then": {"do": "retry", "attempts": 5, "backoff": "exponential", "delay": 2.0}
    },
    {"else": {"then": {"do": "fail"}}}
]}
"""

PYTHON = """
{"rules": [
    {
        "when": "{{ 'timeout' in outcome.error.message|lower }}",
        "then": {"do": "retry", "attempts": 3, "backoff": "linear", "delay": 1.0}
    },
    {"else": {"then": {"do": "fail"}}}
]}
"""

PYTHON_IN_TOML = """
[[rules]]
when = "'timeout' in lower(outcome.error.message)"
then = { do = "retry", attempts = 3, backoff = "linear", delay = 1.0 }
[[rules]]
else = { then = { do = "fail" } }
"""

# The decision, the delay in seconds, what stopped it, and the rule, of each attempt.
Line = tuple[str | None, float | None, str | None, int | None]
Story = list[Line]


def retries(rule: int, *seconds: float) -> Story:
    return [("retry", each, None, rule) for each in seconds]


def stopped(rule: int | None, by: str) -> Story:
    return [("dead_letter", None, by, rule)]


def done(rule: int | None) -> Story:
    return [("complete", None, None, rule)]


@pytest.fixture
def clock() -> Iterator[Any]:
    with freeze_time("2026-01-01") as held:
        yield held


def enqueued(jobs: LiteJobs, document: str, run: Callable[[], Any]) -> Job[Any]:
    """A job of the document's policy."""
    policy = Policy.from_dict(json.loads(document))
    return jobs.task(name="t", policy=policy)(run).enqueue()


def told(jobs: LiteJobs, clock: Any, job: Job[Any]) -> Story:
    """The job is run to its end; what was decided each time."""
    jobs.drain()
    while (next_at := job.next_retry_at) is not None:
        clock.move_to(next_at - dt.timedelta(milliseconds=1))
        assert jobs.drain() == 0
        clock.move_to(next_at)
        assert jobs.drain() >= 1
    return [
        (
            each.decision,
            None if each.delay_ms is None else each.delay_ms / 1000,
            each.stopped_by,
            each.rule_position,
        )
        for each in job.attempts
    ]


# --- HTTP ----------------------------------------------------------------------------


class Site:
    """Answers with the statuses in its list, one after the other, the last for ever."""

    def __init__(self) -> None:
        self.url = ""
        self.answers: list[int] = []
        self.retry_after: str | None = None

    def next(self) -> int:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@pytest.fixture(scope="module")
def server() -> Iterator[Site]:
    site = Site()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status = site.next()
            self.send_response(status)
            if site.retry_after is not None and status != 200:
                self.send_header("Retry-After", site.retry_after)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *_: object) -> None:
            """Nothing: the test says what is worth saying."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as real:
        thread = threading.Thread(target=real.serve_forever, args=(0.01,))
        thread.start()
        site.url = f"http://127.0.0.1:{real.server_port}/"
        yield site
        real.shutdown()
        thread.join()


@pytest.fixture
def site(server: Site) -> Site:
    server.answers, server.retry_after = [200], None
    return server


def with_urllib(url: str) -> str:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        with error:
            raise


def with_requests(url: str) -> str:
    import requests

    with requests.Session() as session:
        session.trust_env = False
        answer = session.get(url)
        answer.raise_for_status()
        return answer.text


def with_httpx(url: str) -> str:
    import httpx

    with httpx.Client(trust_env=False, verify=False) as client:
        return client.get(url).raise_for_status().text


Get = Callable[[str], str]
every_library = pytest.mark.parametrize(
    "get",
    [
        with_urllib,
        pytest.param(with_requests, marks=needs("requests")),
        pytest.param(with_httpx, marks=needs("httpx")),
    ],
)


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
@every_library
def test_busy_server_is_asked_ten_times_at_growing_intervals(
    jobs: LiteJobs, clock: Any, site: Site, get: Get, status: int
) -> None:
    site.answers = [status]
    job = enqueued(jobs, HTTP, lambda: get(site.url))
    assert told(jobs, clock, job) == [
        *retries(1, 2, 4, 8, 16, 32, 64, 128, 256, 512),
        *stopped(1, "rule_attempts"),
    ]
    assert job.attempts[0].outcome is not None
    assert job.attempts[0].outcome["http"] == {"status": status}


@every_library
def test_server_that_is_busy_for_a_while_is_waited_for(
    jobs: LiteJobs, clock: Any, site: Site, get: Get
) -> None:
    site.answers = [503, 429, 500, 200]
    job = enqueued(jobs, HTTP, lambda: get(site.url))
    assert told(jobs, clock, job) == [*retries(1, 2, 4, 8), *done(4)]
    assert job.result() == "ok"


@pytest.mark.parametrize(
    ("header", "first"), [("30", 30), ("1", 2), ("Thu, 01 Jan 2026 00:01:00 GMT", 60)]
)
@every_library
def test_pause_that_the_server_asks_for_is_not_undercut(
    jobs: LiteJobs, clock: Any, site: Site, get: Get, header: str, first: float
) -> None:
    site.answers, site.retry_after = [429, 200], header
    job = enqueued(jobs, HTTP, lambda: get(site.url))
    assert told(jobs, clock, job) == [*retries(1, first), *done(4)]


@pytest.mark.parametrize("status", [401, 403])
@every_library
def test_server_that_refuses_is_not_asked_again(
    jobs: LiteJobs, clock: Any, site: Site, get: Get, status: int
) -> None:
    site.answers = [status]
    job = enqueued(jobs, HTTP, lambda: get(site.url))
    assert told(jobs, clock, job) == stopped(2, "rule_fail")


@pytest.mark.parametrize("status", [400, 404, 410, 422])
@every_library
def test_other_answers_are_tried_three_times(
    jobs: LiteJobs, clock: Any, site: Site, get: Get, status: int
) -> None:
    site.answers = [status]
    job = enqueued(jobs, HTTP, lambda: get(site.url))
    assert told(jobs, clock, job) == [
        *retries(3, 1, 2),
        *stopped(3, "rule_attempts"),
    ]


@every_library
def test_no_server_is_another_error(jobs: LiteJobs, clock: Any, get: Get) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        url = f"http://127.0.0.1:{server.server_port}/"
    job = enqueued(jobs, HTTP, lambda: get(url))
    assert told(jobs, clock, job) == [*retries(3, 1, 2), *stopped(3, "rule_attempts")]


def test_errors_that_are_no_requests_are_tried_three_times(
    jobs: LiteJobs, clock: Any
) -> None:
    job = enqueued(jobs, HTTP, lambda: 1 // 0)
    assert told(jobs, clock, job) == [*retries(3, 1, 2), *stopped(3, "rule_attempts")]


@every_library
def test_answer_that_is_one_completes(
    jobs: LiteJobs, clock: Any, site: Site, get: Get
) -> None:
    job = enqueued(jobs, HTTP, lambda: get(site.url))
    assert told(jobs, clock, job) == done(4)
    assert job.result() == "ok"


def test_attempts_of_a_rule_count_those_that_other_rules_decided(
    jobs: LiteJobs, clock: Any, site: Site
) -> None:
    site.answers = [404, 503, 404]
    job = enqueued(jobs, HTTP, lambda: with_urllib(site.url))
    assert told(jobs, clock, job) == [
        *retries(3, 1),
        *retries(1, 4),
        *stopped(3, "rule_attempts"),
    ]


def test_refusal_after_a_busy_time_stops_it_all_the_same(
    jobs: LiteJobs, clock: Any, site: Site
) -> None:
    site.answers = [503, 503, 403]
    job = enqueued(jobs, HTTP, lambda: with_urllib(site.url))
    assert told(jobs, clock, job) == [*retries(1, 2, 4), *stopped(2, "rule_fail")]


def test_document_as_it_stands_has_no_jitter(
    jobs: LiteJobs, clock: Any, site: Site
) -> None:
    site.answers = [503]
    policy = Policy.from_dict(json.loads(HTTP))
    job = jobs.task(name="t", policy=policy)(lambda: with_urllib(site.url)).enqueue()
    delays = [seconds for _, seconds, _, _ in told(jobs, clock, job) if seconds]
    assert delays == [2**number for number in range(1, 10)]
    assert job.stopped_by == "rule_attempts"


def test_steps_of_a_flow_go_on_by_the_same_document(
    jobs: LiteJobs, clock: Any, site: Site
) -> None:
    """`continue` of the last line is the next step, and each step has all attempts."""
    site.answers = [503, 200, 404, 200, 401]
    steps = [(label, lambda: with_urllib(site.url)) for label in ("a", "b", "c")]
    policy = Policy.from_dict(json.loads(HTTP))
    job = jobs.flow("f", steps, policy=policy, retry=Retry(jitter=0)).enqueue()
    assert told(jobs, clock, job) == [
        *retries(1, 2),
        ("continue", None, None, 4),
        *retries(3, 1),
        ("continue", None, None, 4),
        *stopped(2, "rule_fail"),
    ]


# --- PostgreSQL ----------------------------------------------------------------------


class Psycopg3Error(Exception):
    """As psycopg 3 and asyncpg: the class or the error has its SQLSTATE."""

    def __init__(self, message: str, sqlstate: str | None) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate


class Psycopg2Error(Exception):
    """As psycopg2, where it is an attribute of another name."""

    def __init__(self, message: str, pgcode: str | None) -> None:
        super().__init__(message)
        self.pgcode = pgcode


drivers = pytest.mark.parametrize("driver", [Psycopg3Error, Psycopg2Error])


def raising(error: BaseException) -> Callable[[], None]:
    def run() -> None:
        raise error

    return run


@drivers
@pytest.mark.parametrize("code", ["40001", "40P01"])
def test_conflict_of_transactions_is_tried_five_times(
    jobs: LiteJobs, clock: Any, driver: Any, code: str
) -> None:
    job = enqueued(jobs, POSTGRESQL, raising(driver("could not serialize", code)))
    assert told(jobs, clock, job) == [
        *retries(1, 2, 4, 8, 16),
        *stopped(1, "rule_attempts"),
    ]
    assert job.attempts[0].outcome is not None
    assert job.attempts[0].outcome["pg"] == {"code": code}


@drivers
def test_conflict_that_passes_is_a_success(
    jobs: LiteJobs, clock: Any, driver: Any
) -> None:
    def run() -> str:
        if current().attempt < 3:
            raise driver("deadlock detected", "40P01")
        return "committed"

    job = enqueued(jobs, POSTGRESQL, run)
    # The last line speaks of errors: no rule decided about the success.
    assert told(jobs, clock, job) == [*retries(1, 2, 4), *done(None)]
    assert job.result() == "committed"


def test_conflict_is_found_through_the_error_around_it(
    jobs: LiteJobs, clock: Any
) -> None:
    def run() -> None:
        try:
            raise Psycopg3Error("could not serialize access", "40001")
        except Psycopg3Error as error:
            raise RuntimeError("the order was not stored") from error

    job = enqueued(jobs, POSTGRESQL, run)
    assert told(jobs, clock, job)[:1] == retries(1, 2)


@pytest.mark.parametrize(
    "error",
    [
        Psycopg3Error("duplicate key", "23505"),
        Psycopg2Error("duplicate key", "23505"),
        Psycopg3Error("no connection", None),
        Psycopg3Error("40001 in the text is not its code", "XX000"),
        ValueError("40001"),
    ],
)
def test_other_errors_of_a_database_fail_at_once(
    jobs: LiteJobs, clock: Any, error: Exception
) -> None:
    job = enqueued(jobs, POSTGRESQL, raising(error))
    assert told(jobs, clock, job) == stopped(2, "rule_fail")


# --- Python --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        OSError("connect timeout"),
        RuntimeError("Timeout while reading"),
        TimeoutError("TIMEOUT"),
        TaskError("E1", "the gateway said: GatewayTimeOut"),
    ],
)
def test_message_that_contains_timeout_is_tried_three_times(
    jobs: LiteJobs, clock: Any, error: Exception
) -> None:
    job = enqueued(jobs, PYTHON, raising(error))
    assert told(jobs, clock, job) == [
        *retries(1, 1, 2),
        *stopped(1, "rule_attempts"),
    ]


@needs("requests")
def test_timeout_of_requests_says_so(jobs: LiteJobs, clock: Any) -> None:
    import requests

    error = requests.ReadTimeout("Read timed out. (read timeout=5)")
    test_message_that_contains_timeout_is_tried_three_times(jobs, clock, error)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no such column"),
        TimeoutError("timed out"),  # its type is not its message
        TimeoutError(),
        RuntimeError("time out"),
        KeyError("t"),
    ],
)
def test_other_errors_of_python_fail_at_once(
    jobs: LiteJobs, clock: Any, error: Exception
) -> None:
    job = enqueued(jobs, PYTHON, raising(error))
    assert told(jobs, clock, job) == stopped(2, "rule_fail")


def test_success_completes_by_no_rule(jobs: LiteJobs, clock: Any) -> None:
    job = enqueued(jobs, PYTHON, lambda: "Timeout")
    assert told(jobs, clock, job) == done(None)


def test_same_document_in_toml_and_without_braces_is_the_same_policy() -> None:
    from_toml = Policy.from_dict(tomllib.loads(PYTHON_IN_TOML))
    assert from_toml.source() == Policy.from_dict(json.loads(PYTHON)).source()


# --- What all three leave to the limits ----------------------------------------------


@pytest.mark.parametrize(
    ("document", "most"), [(HTTP, 10), (POSTGRESQL, 5), (PYTHON, 3)]
)
def test_limit_of_the_job_is_the_most_that_a_rule_allows(
    jobs: LiteJobs, clock: Any, document: str, most: int
) -> None:
    job = enqueued(jobs, document, lambda: None)
    assert job.snapshot().max_attempts == most


def test_limit_given_beside_the_document_bounds_its_rules(
    jobs: LiteJobs, clock: Any, site: Site
) -> None:
    site.answers = [503]
    task = jobs.task(
        name="t",
        policy=Policy.from_dict(json.loads(HTTP)),
        retry=Retry(max_attempts=9, jitter=0, budget="20s"),
    )(lambda: with_urllib(site.url))
    job = task.enqueue()
    assert told(jobs, clock, job) == [
        *retries(1, 2, 4, 8),
        *stopped(1, "retry_budget"),
    ]
    job = task.using(max_attempts=2).enqueue()
    assert told(jobs, clock, job) == [*retries(1, 2), *stopped(1, "max_attempts")]


def test_error_that_is_not_to_be_tried_again_is_not(jobs: LiteJobs, clock: Any) -> None:
    error = TaskError("E1", "timeout", retryable=False)
    job = enqueued(jobs, PYTHON, raising(error))
    assert told(jobs, clock, job) == stopped(1, "not_retryable")


@pytest.mark.parametrize("document", [HTTP, POSTGRESQL, PYTHON])
def test_no_document_warns(document: str) -> None:
    """Warnings are errors here; the same without its last line would warn."""
    data = json.loads(document)
    Policy.from_dict(data)
    with pytest.warns(UserWarning, match="would count as success"):
        Policy.from_dict({"rules": data["rules"][:1]})
