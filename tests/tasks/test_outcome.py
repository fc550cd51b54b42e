"""What a return value or an exception becomes for the rules to look at."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import email.utils
import functools
import gc
import http.server
import itertools
import json
import logging
import threading
import traceback
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from types import MappingProxyType
from typing import Any
from unittest import mock

import pytest
from freezegun import freeze_time
from hypothesis import given
from hypothesis import strategies as st

import litejobs
from litejobs import LiteJobs, TaskError
from litejobs._definitions import json_codec
from litejobs._process.interrupts import Worker, worker_of
from litejobs._tasks import outcome as outcomes
from litejobs.errors import (
    ArgumentError,
    ConfigurationError,
    TaskCancelled,
    TaskStopped,
    TaskTimeout,
)
from tests.drawn import CHARACTERS
from tests.libraries import needs

TEN_YEARS = 315_576_000


def document(error: BaseException, **options: Any) -> dict[str, Any]:
    """The document of *error*, by the decoder that every reader uses."""
    found: dict[str, Any] = json_codec.decode(outcomes.of_error(error, 7, **options))
    return found


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    """*error* after it was raised and caught."""
    try:
        raise error from cause
    except BaseException as caught:
        return caught


def facts(error: BaseException) -> dict[str, Any]:
    """What the document has beside the error itself."""
    known = {"status", "ran_ms", "error"}
    return {name: value for name, value in document(error).items() if name not in known}


class Says(Exception):
    """An exception with the attributes given."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__("it says")
        self.__dict__.update(attributes)


class Response:
    """A response as requests and httpx have it, without the rest."""

    def __init__(self, status_code: Any, headers: Any = None) -> None:
        self.status_code = status_code
        self.headers = headers

    def __bool__(self) -> bool:
        return False


# --- what is returned --------------------------------------------------------------


def test_a_result_is_in_the_document_and_none_is_left_out() -> None:
    assert outcomes.of_result(None, 0) == '{"status":"ok"}'
    assert outcomes.of_result(None, 5) == '{"status":"ok","ran_ms":5}'
    result = {"next": [1.5, "é", None]}
    assert json_codec.decode(outcomes.of_result(result, 5)) == {
        "status": "ok",
        "ran_ms": 5,
        "result": result,
    }


# --- the error itself --------------------------------------------------------------


def test_an_error_is_its_type_code_message_and_traceback() -> None:
    class NotFound(KeyError):
        code = "NOT_FOUND"

    found = document(raised(NotFound("no such thing")))
    assert list(found) == ["status", "ran_ms", "error"]
    assert (found["status"], found["ran_ms"]) == ("error", 7)
    error = found["error"]
    assert error["type"] == "NotFound"
    assert error["types"] == [
        "NotFound",
        "KeyError",
        "LookupError",
        "Exception",
        "BaseException",
    ]
    assert (error["code"], error["message"]) == ("NOT_FOUND", "'no such thing'")
    assert error["traceback"].startswith("Traceback (most recent call last):\n")
    assert error["traceback"].endswith("NotFound: 'no such thing'\n")


def test_an_error_says_from_where_its_class_is_imported() -> None:
    class Unplaced(Exception):
        __module__ = 7  # type: ignore[assignment]

    given = [ValueError("x"), json.JSONDecodeError("x", "", 0), TaskTimeout()]
    modules = [document(each)["error"]["module"] for each in given]
    assert modules == ["builtins", "json.decoder", "litejobs.errors"]
    assert document(Unplaced("x"))["error"]["module"] is None


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Says(code="A", error_code="B", sqlstate="C"), "A"),
        (Says(error_code="B", sqlstate="C"), "B"),
        (Says(sqlstate="40001"), "40001"),
        (Says(code=404), 404),
        (Says(code=HTTPStatus.NOT_FOUND), 404),
        (Says(code=True, error_code="B"), "B"),
        (Says(code=2**63), None),
        (Says(code=lambda: "a method"), None),
        (FileNotFoundError(2, "no such file"), "ENOENT"),
        (OSError(987_654, "no such number"), None),
        (Says(code="x" * 500), "x" * 173 + "… [cut: 500 bytes in all]"),
        (ValueError("plain"), None),
    ],
)
def test_code_comes_from_whichever_attribute_has_one(
    error: Exception, code: object
) -> None:
    found = document(error)["error"]["code"]
    assert (found, type(found)) == (code, type(code))


@pytest.mark.parametrize(
    ("error", "status", "while_stopping"),
    [
        (TaskTimeout("over"), "timeout", "timeout"),
        (TaskCancelled("no more"), "cancelled", "interrupted"),
        (TaskStopped("stopping"), "error", "interrupted"),
        (TimeoutError("its own"), "error", "error"),
        (SystemExit(404), "error", "error"),
        (asyncio.CancelledError(), "error", "error"),
    ],
)
def test_status_says_whether_the_task_failed_or_was_interrupted(
    error: BaseException, status: str, while_stopping: str
) -> None:
    assert document(error)["status"] == status
    assert document(error, stopping=True)["status"] == while_stopping


def test_message_and_data_are_bounded() -> None:
    error = raised(TaskError("BIG", "m" * 200_000, data=["d" * 200_000]))
    found = document(error)["error"]
    assert len(found["message"].encode()) <= 65_536
    assert found["message"].endswith("… [cut: 200000 bytes in all]")
    assert "data" not in found
    lost = found["data_not_stored"]
    assert (lost["type"], lost["text"]) == ("list", "['" + "d" * 998 + "…")
    assert lost["reason"] == (
        "data takes more than 65,536 bytes as JSON; "
        "store the data in a file or table and pass its path or id"
    )
    assert len(found["traceback"].encode()) <= 65_536


def test_data_that_changes_while_it_is_read_costs_only_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def changing(*_: object, **__: object) -> str:
        raise RuntimeError("dictionary changed size during iteration")

    monkeypatch.setattr(json_codec, "encode", changing)
    found = document(raised(TaskError("X", "kept", data={})))["error"]
    assert found["message"] == "kept"
    assert "data" not in found
    assert found["data_not_stored"] == {
        "type": "dict",
        "text": "{}",
        "reason": "data could not be read: RuntimeError: dictionary changed size "
        "during iteration",
    }


def test_data_in_a_form_that_json_has_is_stored_in_that_form() -> None:
    error = raised(TaskError("X", data={1: ("a", HTTPStatus.OK)}))
    assert document(error)["error"]["data"] == {"1": ["a", 200]}
    asking = (number for number in range(3))
    found = document(raised(TaskError("X", data=[asking])))["error"]
    assert found["data_not_stored"]["reason"] == (
        "data[0] is of type generator, whose work is not done; pass list(value)"
    )


def test_an_error_that_is_not_to_be_tried_again_says_so() -> None:
    assert document(TaskError("GONE", retryable=False))["retryable"] is False
    assert document(ValueError(), retryable=False)["retryable"] is False
    assert "retryable" not in document(TaskError("AGAIN"))
    assert "retryable" not in document(Says(retryable=False))


def test_task_error_without_its_own_init_is_an_error_like_others() -> None:
    class Bare(TaskError):
        def __init__(self) -> None:
            pass

    found = document(raised(Bare()))
    assert found["error"]["types"][:2] == ["Bare", "TaskError"]
    assert "retryable" not in found


def test_reason_of_an_interruption_is_bounded() -> None:
    found = json_codec.decode(outcomes.of_interruption("x\udc80" * 100_000))
    assert found["status"] == "interrupted"
    assert len(found["error"]["message"].encode()) <= 65_536


# --- its traceback -----------------------------------------------------------------


class Quiet(Exception):
    def __str__(self) -> str:
        return ""


def noted() -> BaseException:
    error = ValueError("several\nlines")
    error.add_note("and a note")
    return raised(error)


def under_another(*, suppressed: bool) -> BaseException:
    try:
        try:
            raise KeyError("first")
        except KeyError:
            if suppressed:
                raise ValueError("second") from None
            raise ValueError("second")  # noqa: B904 - the context is meant
    except ValueError as caught:
        return caught


def deep(depth: int) -> BaseException:
    def down(left: int) -> None:
        if not left:
            raise ValueError("at the bottom")
        down(left - 1)

    try:
        down(depth)
    except ValueError as caught:
        return caught
    raise AssertionError


def without_source(file: str) -> BaseException:
    try:
        exec(compile("def f():\n    1 / 0\nf()", file, "exec"), {})
    except ZeroDivisionError as caught:
        return caught
    raise AssertionError


@pytest.mark.parametrize(
    "make",
    [
        lambda: raised(ValueError("plain")),
        lambda: raised(Quiet()),
        lambda: raised(KeyError("a key")),
        lambda: raised(TaskTimeout("ours")),
        noted,
        lambda: raised(ValueError("x"), OSError("its cause")),
        lambda: under_another(suppressed=False),
        lambda: under_another(suppressed=True),
        lambda: raised(ExceptionGroup("several", [ValueError("a"), OSError("b")])),
        lambda: raised(SyntaxError("bad", ("file.py", 3, 5, "a = = b\n"))),
        *(functools.partial(deep, each) for each in (0, 1, 2, 5, 40, 500)),
        *(functools.partial(without_source, each) for each in ("<one>", "<other>")),
    ],
)
def test_traceback_is_that_of_the_standard_library_each_time(
    make: Callable[[], BaseException],
) -> None:
    """The text of a place is kept, also between errors whose code is equal."""
    for _ in range(3):
        error = make()
        text = document(error)["error"]["traceback"]
        assert text == "".join(traceback.format_exception(error))


def test_texts_of_places_are_not_kept_without_end() -> None:
    for number in range(2 * outcomes._MOST_KNOWN):
        error = without_source(f"<file {number}>")
        assert f"<file {number}>" in document(error)["error"]["traceback"]
    assert 0 < len(outcomes._known_lines) <= outcomes._MOST_KNOWN


def test_traceback_has_no_values_of_variables() -> None:
    def task(password: str) -> None:
        secret = password.upper()
        raise ValueError(f"{len(secret)} letters")

    with pytest.raises(ValueError, match="7 letters") as caught:
        task("hun" + "ter2")
    text = document(caught.value)["error"]["traceback"]
    assert "secret = " not in text
    assert "hunter2" not in text.lower()
    assert "in task" in text


def test_traceback_begins_in_the_task(jobs: LiteJobs) -> None:
    @jobs.task(max_attempts=1)
    def broken() -> None:
        json.loads("{")

    job = broken.enqueue()
    jobs.drain()
    outcome = job.attempts[0].outcome
    assert outcome is not None
    text = outcome["error"]["traceback"]
    assert str(Path(litejobs.__file__).parent) not in text
    assert text.splitlines()[1].endswith("in broken")
    assert "JSONDecodeError" in text.splitlines()[-1]


def test_traceback_of_an_error_of_ours_keeps_our_frames() -> None:
    with pytest.raises(ArgumentError) as caught:
        json_codec.encode(object(), what="args")
    assert "in encode" in document(caught.value)["error"]["traceback"]


def test_endless_recursion_shows_where_it_begins_and_where_it_ends() -> None:
    def there(depth: int) -> None:
        back_again_by_a_function_with_a_rather_long_name_of_its_own(depth + 1)

    def back_again_by_a_function_with_a_rather_long_name_of_its_own(depth: int) -> None:
        there(depth + 1)

    def begin() -> None:
        there(0)

    with pytest.raises(RecursionError) as caught:
        begin()
    text = document(caught.value)["error"]["traceback"]
    assert 60_000 < len(text.encode()) <= 65_536
    lines = text.splitlines()
    assert "in begin" in "".join(lines[:8])
    assert lines[-1].startswith("RecursionError: ")
    assert text.count("… [cut: ") == 1
    [mark] = [at for at, line in enumerate(lines) if line.startswith("… [cut: ")]
    assert 50 < mark < len(lines) / 2
    assert lines[mark].endswith(" characters in all]")
    assert text.count("in there") > 100


@pytest.mark.parametrize("letter", ["x", "é", "\U0001f600", "\udc80", "\0", "x\n"])
def test_traceback_with_a_huge_message_is_bounded(letter: str) -> None:
    def task() -> None:
        raise ValueError(letter * 300_000)

    with pytest.raises(ValueError, match=letter * 9) as caught:
        task()
    text = document(caught.value)["error"]["traceback"]
    assert 60_000 < len(text.encode()) <= 65_536
    assert "in task" in text
    assert "\n… [cut: " in text


def test_traceback_just_within_the_limit_is_whole() -> None:
    frame = len(document(raised(ValueError("x")))["error"]["traceback"]) - 1
    for size, whole in ((65_536 - frame, True), (65_536 - frame + 1, False)):
        text = document(raised(ValueError("x" * size)))["error"]["traceback"]
        assert ("[cut: " not in text) is whole
        assert len(text) <= 65_536


def test_causes_are_in_the_traceback() -> None:
    text = document(raised(ValueError("outer"), raised(OSError("inner"))))["error"][
        "traceback"
    ]
    assert "OSError: inner" in text
    assert "The above exception was the direct cause" in text


def test_group_names_the_types_of_its_errors() -> None:
    group = ExceptionGroup(
        "both",
        [
            TimeoutError("one"),
            ExceptionGroup("inner", [KeyError("two"), TimeoutError("three")]),
        ],
    )
    error = document(raised(group))["error"]
    assert error["type"] == "ExceptionGroup"
    assert "BaseExceptionGroup" in error["types"]
    assert error["exceptions"] == ["TimeoutError", "KeyError"]
    assert error["message"] == "both (2 sub-exceptions)"
    for each in ("TimeoutError: one", "KeyError: 'two'", "TimeoutError: three"):
        assert each in error["traceback"]


def test_group_of_a_task_group_is_one_of_its_tasks_errors() -> None:
    async def fail() -> None:
        raise ConnectionError("gone")

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())

    with pytest.raises(ExceptionGroup) as caught:
        asyncio.run(main())
    assert document(caught.value)["error"]["exceptions"] == ["ConnectionError"]


def test_wide_and_deep_groups_are_bounded() -> None:
    kinds = [type(f"Kind{number}", (Exception,), {}) for number in range(3_000)]
    wide = ExceptionGroup("m" * 200_000, [kind() for kind in kinds])
    error = document(raised(wide))["error"]
    assert error["exceptions"] == [f"Kind{number}" for number in range(50)]
    assert len(error["message"].encode()) <= 65_536
    assert len(error["traceback"].encode()) <= 65_536

    deep: Exception = ValueError("innermost")
    for _ in range(3_000):
        deep = ExceptionGroup("level", [deep])
    error = document(raised(deep))["error"]
    assert error["exceptions"] == []
    assert "in raised" in error["traceback"]
    assert "ExceptionGroup: level (1 sub-exception)" in error["traceback"]


# --- over HTTP, with the real libraries --------------------------------------------


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers `/503?120` with status 503 and `Retry-After: 120`."""

    def do_GET(self) -> None:
        status, _, wait = self.path[1:].partition("?")
        self.send_response(int(status))
        if wait:
            self.send_header("retry-AFTER", wait.replace("%20", " "))
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"no")

    def log_message(self, *_: object) -> None:
        """Nothing: the test says what is worth saying."""


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def with_urllib(url: str) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        opener.open(url)
    except urllib.error.HTTPError as error:
        with error:
            raise


def with_requests(url: str) -> None:
    import requests

    with requests.Session() as session:
        session.trust_env = False
        response = session.get(url)
        assert not response  # an error's response is falsy
        response.raise_for_status()


def with_httpx(url: str) -> None:
    import httpx

    with httpx.Client(trust_env=False, verify=False) as client:
        client.get(url).raise_for_status()


def with_async_httpx(url: str) -> None:
    import httpx

    async def get() -> None:
        async with httpx.AsyncClient(trust_env=False, verify=False) as client:
            (await client.get(url)).raise_for_status()

    asyncio.run(get())


LIBRARIES = [
    with_urllib,
    pytest.param(with_requests, marks=needs("requests")),
    pytest.param(with_httpx, marks=needs("httpx")),
    pytest.param(with_async_httpx, marks=needs("httpx")),
]
every_library = pytest.mark.parametrize("get", LIBRARIES)


def failure(get: Callable[[str], None], url: str) -> Exception:
    try:
        get(url)
    except Exception as error:
        return error
    raise AssertionError(f"{url} was not refused")


@every_library
def test_status_of_a_refused_request(get: Callable[[str], None], site: str) -> None:
    for status in (401, 404, 429, 500, 503):
        assert facts(failure(get, f"{site}/{status}")) == {"http": {"status": status}}


@every_library
@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("120", 120),
        ("0", 0),
        ("1.2", 2),
        ("Thu, 01 Jan 2026 00:02:00 GMT", 120),
        ("Thursday, 01-Jan-26 00:02:00 GMT", 120),
        ("Thu Jan  1 00:02:00 2026", 120),
        ("Wed, 31 Dec 2025 23:59:59 GMT", 0),
        ("soon", None),
        ("-5", None),
        ("1e3", None),
        ("99999999999999", None),
        ("Fri, 31 Dec 9999 23:59:59 GMT", None),
    ],
)
def test_retry_after_of_a_refused_request(
    get: Callable[[str], None], site: str, header: str, seconds: int | None
) -> None:
    error = failure(get, f"{site}/503?{header}".replace(" ", "%20"))
    with freeze_time("2026-01-01 00:00:00"):
        found = facts(error)
    expected: dict[str, Any] = {"http": {"status": 503}}
    if seconds is not None:
        expected["retry_after"] = seconds
    assert found == expected
    assert type(found.get("retry_after", 0)) is int


def test_code_of_urllib_stays_the_number(site: str) -> None:
    assert document(failure(with_urllib, f"{site}/503"))["error"]["code"] == 503


@needs("requests")
def test_error_of_requests_has_no_code(site: str) -> None:
    assert document(failure(with_requests, f"{site}/503"))["error"]["code"] is None


@every_library
def test_request_without_an_answer_has_no_status(get: Callable[[str], None]) -> None:
    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        port = server.server_port
    assert facts(failure(get, f"http://127.0.0.1:{port}/503")) == {}


def test_libraries_errors_that_nobody_answered_are_taken_as_they_are() -> None:
    url = "http://localhost/"
    no_file = urllib.error.HTTPError(url, 503, "busy", None, None)  # type: ignore[arg-type]
    with no_file:
        assert facts(no_file) == {"http": {"status": 503}}


@needs("httpx")
@needs("requests")
def test_errors_of_other_libraries_that_nobody_answered_have_no_status() -> None:
    import httpx
    import requests

    assert facts(requests.HTTPError("no response")) == {}
    assert facts(requests.HTTPError("empty", response=requests.Response())) == {}
    assert facts(httpx.ConnectError("no request either")) == {}


# --- Retry-After -------------------------------------------------------------------


def header(text: Any) -> Any:
    """What becomes of this header at the first of January 2026."""
    with freeze_time("2026-01-01 00:00:00"):
        found = facts(Says(response=Response(503, {"Retry-After": text})))
    assert found.pop("http") == {"status": 503}
    return found.get("retry_after", "absent")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("  30\t", 30),
        ("007", 7),
        ("0.001", 1),
        (str(TEN_YEARS), TEN_YEARS),
        (str(TEN_YEARS + 1), "absent"),
        ("9" * 5_000, "absent"),
        ("", "absent"),
        ("+5", "absent"),
        ("5s", "absent"),
        ("\u0665", "absent"),
        ("NaN", "absent"),
        ("Infinity", "absent"),
        ("0x10", "absent"),
        ("1_000", "absent"),
        ("120, 120", "absent"),
        ("Thu, 31 Feb 2026 00:00:00 GMT", "absent"),
        ("Thu, 01 Jan 2026 25:00:00 GMT", "absent"),
        ("Thu, 01 Jan 2026 00:02:00 +99999999", "absent"),
        ("Thu, 01 Jan 2026 02:00:30 +0200", 30),
        ("Thu, 01 Jan 2026 00:02:00 -0000", 120),
        ("2026-01-01T00:02:00Z", "absent"),
        ("Thu, 01 Jan 2026 00:02:00 GMT" + " " * 10_000, 120),
        ("x" * 1_000_000, "absent"),
        (30, "absent"),
        (b"30", "absent"),
        (None, "absent"),
    ],
)
def test_header_is_seconds_or_a_date_or_nothing(text: Any, seconds: Any) -> None:
    assert header(text) == seconds


def test_date_is_rounded_up_to_a_whole_second() -> None:
    error = Says(headers={"retry-after": "Thu, 01 Jan 2026 00:00:10 GMT"})
    with freeze_time("2026-01-01 00:00:08.999999") as clock:
        assert facts(error) == {"retry_after": 2}
        clock.tick(0.000001)
        assert facts(error) == {"retry_after": 1}
        clock.tick(1)
        assert facts(error) == {"retry_after": 0}


@given(
    st.text(CHARACTERS, max_size=70)
    | st.from_regex(r"[A-Z][a-z]{2}, [ 0-9:]{1,30} [+A-Z0-9]+", alphabet=CHARACTERS)
)
def test_no_header_breaks_the_document(text: str) -> None:
    found = facts(Says(headers={"Retry-After": text})).get("retry_after", 0)
    assert 0 <= found <= TEN_YEARS


@given(st.integers(-TEN_YEARS, TEN_YEARS))
def test_every_date_of_http_is_understood(seconds: int) -> None:
    at = dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=seconds)
    assert header(email.utils.format_datetime(at, usegmt=True)) == max(0, seconds)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (30, 30),
        (0, 0),
        (1.5, 1.5),
        (30.0, 30),
        (-0.0, 0),
        (dt.timedelta(minutes=2), 120),
        (dt.timedelta(milliseconds=250), 0.25),
        (TEN_YEARS, TEN_YEARS),
        (TEN_YEARS + 0.5, None),
        (-1, None),
        (dt.timedelta(seconds=-1), None),
        (dt.timedelta.max, None),
        (float("nan"), None),
        (float("inf"), None),
        (10**400, None),
        (True, None),
        ("30", None),
        pytest.param(mock.Mock(spec=int), None, id="mock"),
        pytest.param(mock.MagicMock(spec=float), None, id="magic mock"),
        pytest.param(lambda: 30, None, id="function"),
    ],
)
def test_attribute_of_the_error_is_seconds_or_a_timedelta(
    value: object, seconds: object
) -> None:
    found = facts(Says(retry_after=value))
    assert found == ({} if seconds is None else {"retry_after": seconds})
    assert type(found.get("retry_after")) is type(seconds)


def test_attribute_goes_before_the_header() -> None:
    response = Response(429, {"Retry-After": "60"})
    assert facts(Says(retry_after=5, response=response))["retry_after"] == 5
    assert facts(Says(retry_after="x", response=response))["retry_after"] == 60


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("30s", 30),
        ("1h30m", 5_400),
        ("250ms", 0.25),
        (dt.timedelta(minutes=1), 60),
        (1.5, 1.5),
        (0, 0),
        (None, None),
        ("10d", 864_000),
        (TEN_YEARS, TEN_YEARS),
    ],
)
def test_task_error_takes_any_duration(value: Any, seconds: float | None) -> None:
    error = TaskError("BUSY", retry_after=value)
    assert (error.retry_after, type(error.retry_after)) == (seconds, type(seconds))
    assert facts(error) == ({} if seconds is None else {"retry_after": seconds})


@pytest.mark.parametrize("value", ["soon", -1, float("nan"), True, "4000d", 10**30])
def test_task_error_refuses_what_is_no_duration(value: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^retry_after") as caught:
        TaskError("BUSY", retry_after=value)
    way_out = "write one such as" if value == "soon" else "pass "
    assert f"; {way_out}" in str(caught.value)


# --- statuses and codes ------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (Says(response=Response(503)), 503),
        (Says(response=Response(HTTPStatus.BAD_GATEWAY)), 502),
        (Says(response=mock.Mock(status_code=418)), 418),
        # As aiohttp has it: on the error, and not as a code.
        (Says(status=503, headers={}), 503),
        (Says(response=Response(99)), None),
        (Says(response=Response(600)), None),
        (Says(response=Response(True)), None),
        (Says(response=Response("503")), None),
        (Says(response=Response(503.0)), None),
        (Says(response={"status_code": 503}), None),
        (Says(response=mock.MagicMock()), None),
        (Says(code=503), None),
        (SystemExit(404), None),
        (Says(code=7, headers={}), None),
    ],
)
def test_only_the_status_of_a_response_is_one(
    error: BaseException, status: int | None
) -> None:
    expected = {} if status is None else {"http": {"status": status}}
    assert facts(error) == expected


@pytest.mark.parametrize(
    ("attributes", "code"),
    [
        ({"sqlstate": "40001"}, "40001"),
        ({"pgcode": "40P01"}, "40P01"),
        ({"sqlstate": None, "pgcode": "40P01"}, "40P01"),
        ({"sqlstate": "4000"}, None),
        ({"sqlstate": "40001\n"}, None),
        ({"sqlstate": "40-01"}, None),
        ({"sqlstate": 40001}, None),
        ({"pgcode": None}, None),
        ({"sqlstate": mock.MagicMock()}, None),
    ],
)
def test_sqlstate_is_the_code_of_postgresql(
    attributes: dict[str, Any], code: str | None
) -> None:
    expected = {} if code is None else {"pg": {"code": code}}
    assert facts(Says(**attributes)) == expected


@needs("sqlalchemy")
def test_sqlstate_of_a_class_is_found_through_sqlalchemy() -> None:
    import sqlalchemy.exc

    class SerializationFailure(Exception):
        sqlstate = "40001"

    wrapped = sqlalchemy.exc.OperationalError("select 1", {}, SerializationFailure("x"))
    found = document(raised(wrapped, SerializationFailure("x")))
    assert found["pg"] == {"code": "40001"}
    assert found["error"]["code"] == "e3q8"


# --- causes ------------------------------------------------------------------------


def chained(*errors: Exception) -> Exception:
    for error, cause in itertools.pairwise(errors):
        error.__cause__ = cause
    return errors[0]


@every_library
def test_own_error_around_a_librarys_keeps_its_facts(
    get: Callable[[str], None], site: str
) -> None:
    error = raised(ValueError("sync failed"), failure(get, f"{site}/429?7"))
    assert facts(error) == {"http": {"status": 429}, "retry_after": 7}
    assert document(error)["error"]["code"] is None


def test_fact_is_that_of_the_nearest_error_that_has_it() -> None:
    error = chained(
        Says(),
        Says(retry_after=1),
        Says(retry_after=2, response=Response(503)),
        Says(sqlstate="40001", response=Response(404)),
    )
    assert facts(error) == {
        "http": {"status": 503},
        "pg": {"code": "40001"},
        "retry_after": 1,
    }


def test_causes_are_followed_five_links_far() -> None:
    def behind(links: int) -> Exception:
        return chained(*(Says() for _ in range(links)), Says(sqlstate="40001"))

    assert facts(behind(5)) == {"pg": {"code": "40001"}}
    assert facts(behind(6)) == {}


def test_context_is_not_a_cause() -> None:
    with pytest.raises(ValueError, match="other") as caught:
        try:
            raise Says(sqlstate="40001")
        except Says:
            raise ValueError("other")  # noqa: B904 - the point of this test
    assert caught.value.__context__ is not None
    assert facts(caught.value) == {}


def test_causes_in_a_circle_end() -> None:
    one, other = Says(), Says(retry_after=3)
    one.__cause__, other.__cause__ = other, one
    assert facts(one) == {"retry_after": 3}
    one.__cause__ = one
    assert facts(one) == {}


# --- whatever an exception does ----------------------------------------------------


class Mocking(Exception):
    """Answers everything."""

    def __getattr__(self, name: str) -> Any:
        return mock.MagicMock()


class Refusing(Exception):
    """Answers nothing at all."""

    def __getattribute__(self, name: str) -> Any:
        raise SystemExit(name)

    def __str__(self) -> str:
        raise GeneratorExit


class Headers:
    """Headers that cannot be read."""

    def get(self, name: str) -> str:
        raise OSError(name)


class Lying(Exception):
    """Its attributes have types that overrule what they are used for."""

    class Text(str):
        def strip(self, *_: object) -> Any:
            raise ValueError("never")

        def __eq__(self, other: object) -> bool:
            raise ValueError("never")

        def __hash__(self) -> int:
            raise ValueError("never")

    class Number(int):
        def __le__(self, other: object) -> bool:
            raise ValueError("never")

        __ge__ = __lt__ = __gt__ = __le__
        __hash__ = None  # type: ignore[assignment]

        def __int__(self) -> int:
            raise ValueError("never")

        def __index__(self) -> int:
            raise ValueError("never")

    code = Text("CODE")
    sqlstate = Text("40001")
    errno = Number(2)
    retry_after = Number(3)
    response = Response(Number(503), {})


class Meta(type):
    @property
    def __name__(cls) -> Any:  # type: ignore[override]
        raise ValueError("no name")


class Nameless(Exception, metaclass=Meta):
    pass


class Truthless(TaskError):
    """Its `retryable` is neither true nor false."""

    class Bool:
        def __bool__(self) -> bool:
            raise ValueError("neither")

    retryable = Bool()  # type: ignore[assignment]

    def __init__(self) -> None:
        pass


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Mocking("x"), {}),
        (Refusing("x"), {}),
        (Says(headers=Headers(), code=503), {"http": {"status": 503}}),
        (
            Lying(),
            {"http": {"status": 503}, "pg": {"code": "40001"}, "retry_after": 3},
        ),
        (Nameless("x"), {}),
        (Truthless(), {}),
        (Says(__notes__="no list"), {}),
    ],
    ids=["mocking", "refusing", "headers", "lying", "nameless", "truthless", "notes"],
)
def test_document_of_a_strange_exception(
    error: Exception, expected: dict[str, Any]
) -> None:
    found = document(raised(error))
    assert found["error"]["type"] == type.__dict__["__name__"].__get__(type(error))
    assert found["error"]["types"][-1] == "BaseException"
    del found["status"], found["ran_ms"], found["error"]
    assert found == expected


def test_message_that_fails_is_told_instead() -> None:
    found = document(Refusing("x"))["error"]
    assert found["message"] == "<Refusing whose text fails with GeneratorExit>"


@contextlib.contextmanager
def interrupted() -> Iterator[None]:
    """An interrupt was sent to this thread, as if it were one of a pool."""
    me = threading.get_ident()
    worker_of[me] = worker = Worker()
    worker.armed = True
    try:
        yield
    finally:
        del worker_of[me]


def test_an_interrupt_of_the_thread_passes_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It does not come from the exception: the thread was just reading it."""

    class SlowCode(Exception):
        @property
        def code(self) -> str:
            raise TaskTimeout

    class SlowText(Exception):
        def __str__(self) -> str:
            raise KeyboardInterrupt

    def slow(*_: object, **__: object) -> str:
        raise TaskCancelled

    with interrupted(), pytest.raises(TaskTimeout):
        outcomes.of_error(SlowCode(), 1)
    with pytest.raises(KeyboardInterrupt):
        outcomes.of_error(SlowText(), 1)
    monkeypatch.setattr(json_codec, "encode", slow)
    with interrupted(), pytest.raises(TaskCancelled):
        outcomes.of_error(Says(data=1), 1)


def test_an_interrupt_that_was_not_sent_is_of_the_exception_itself() -> None:
    """It would leave whoever describes the error, and the job would never end."""

    class Text(Exception):
        def __str__(self) -> str:
            raise TaskTimeout

    class Key(Exception):
        def __str__(self) -> str:
            raise KeyboardInterrupt

    found: list[Any] = []
    assert "TaskTimeout" in document(Text())["error"]["message"]
    thread = threading.Thread(target=lambda: found.append(document(Key())["error"]))
    thread.start()
    thread.join()
    assert "KeyboardInterrupt" in found[0]["message"]


def test_a_defect_of_ours_still_gives_a_document(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def defect(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(outcomes, "_chain", defect)
    found = document(ValueError("x"), retryable=False)
    assert found == {
        "status": "error",
        "ran_ms": 7,
        "error": {
            "type": "ValueError",
            "module": "builtins",
            "types": ["ValueError", "Exception", "BaseException"],
        },
        "retryable": False,
    }
    [record] = caplog.records
    assert record.getMessage() == "an error could not be described; its attempt failed"


VALUES: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(CHARACTERS),
    st.binary(),
    st.timedeltas(),
    st.just(10**5_000),
    st.just("x" * 100_000),
    st.builds(mock.MagicMock),
    st.builds(Mocking),
    st.builds(Refusing),
    st.builds(
        Response,
        st.integers() | st.sampled_from([200, 503]) | st.text(CHARACTERS),
        st.dictionaries(
            st.sampled_from(["Retry-After", "x"]), st.text(CHARACTERS, max_size=5)
        ),
    ),
)
NAMES = [
    "code",
    "error_code",
    "sqlstate",
    "pgcode",
    "errno",
    "data",
    "response",
    "headers",
    "status",
    "retry_after",
    "retryable",
]


@given(st.dictionaries(st.sampled_from(NAMES), VALUES))
def test_whatever_the_attributes_are_the_document_is_sane(
    attributes: dict[str, Any],
) -> None:
    found = document(raised(Says(**attributes)))
    assert set(found) <= {"status", "ran_ms", "error", "http", "pg", "retry_after"}
    assert 100 <= found.get("http", {"status": 200})["status"] <= 599
    assert 0 <= found.get("retry_after", 0) <= TEN_YEARS
    assert len(found.get("pg", {"code": "00000"})["code"]) == 5
    assert found["error"]["type"] == "Says"


# --- the application's own extractors ----------------------------------------------


def extracted(*found: Any, error: BaseException | None = None) -> dict[str, Any]:
    """The document with what these extractors return."""
    extractors = [functools.partial(lambda value, _: value, each) for each in found]
    return document(error or Says(code="OLD", sqlstate="40001"), extractors=extractors)


def test_extractor_adds_to_the_document() -> None:
    def aws(error: BaseException) -> Mapping[str, Any] | None:
        return MappingProxyType({"aws": {"code": str(error)}, "retry_after": 5})

    found = document(Says(), extractors=[aws])
    assert found["aws"] == {"code": "it says"}
    assert found["retry_after"] == 5
    assert found["error"]["type"] == "Says"


def test_members_of_the_known_objects_are_merged() -> None:
    found = extracted(
        {"error": {"code": "NEW", "data": [1]}, "http": {"status": 500}},
        {"pg": {"table": "t"}, "http": {"host": "h"}, "aws": {"a": 1, "b": 2}},
        {"aws": {"c": 3}},
    )
    assert (found["error"]["code"], found["error"]["data"]) == ("NEW", [1])
    assert found["error"]["message"] == "it says"
    assert found["http"] == {"status": 500, "host": "h"}
    assert found["pg"] == {"code": "40001", "table": "t"}
    assert found["aws"] == {"c": 3}


def test_status_and_time_are_not_an_extractors_to_say() -> None:
    found = extracted({"status": "ok", "ran_ms": object(), "kept": 1})
    assert (found["status"], found["ran_ms"], found["kept"]) == ("error", 7, 1)


def test_extractor_may_forbid_another_attempt_but_not_allow_it() -> None:
    assert extracted({"retryable": False})["retryable"] is False
    assert "retryable" not in extracted({"retryable": True})
    never = TaskError("GONE", retryable=False)
    assert extracted({"retryable": True}, error=never)["retryable"] is False


def test_extractor_that_knows_nothing_changes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    plain = extracted()
    nothing = {"error": None, "http": None, "pg": None, "retry_after": None}
    assert extracted(None, {}, {**nothing, "retryable": None}) == plain
    assert caplog.records == []
    assert extracted({"mine": None})["mine"] is None


def test_extractors_retry_after_may_be_a_timedelta() -> None:
    assert extracted({"retry_after": dt.timedelta(minutes=1)})["retry_after"] == 60


def circle() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["again"] = value
    return value


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (503, "it returned a value of type int; return a dict of members"),
        (mock.MagicMock(), "it returned a value of type MagicMock; return a dict"),
        ([("a", 1)], "it returned a value of type list; return a dict of members"),
        ({1: 2}, "what it returned has the key 1, and keys in JSON are texts"),
        ({"a": object()}, 'what it returned["a"] is of type object'),
        ({"a": float("nan")}, 'what it returned["a"] is nan'),
        ({"a": "x" * 65_536}, "what it returned takes more than 65,536 bytes as JSON"),
        (circle(), "what it returned contains itself"),
        ({"error": "X"}, "error is not a dict in what it returned"),
        ({"http": 503}, "http is not a dict in what it returned"),
        ({"pg": []}, "pg is not a dict in what it returned"),
        (
            {"http": {"status": "503"}},
            "http.status is not an integer from 100 to 599 in what it returned",
        ),
        (
            {"http": {"status": 1}},
            "http.status is not an integer from 100 to 599 in what it returned",
        ),
        ({"pg": {"code": 40001}}, "pg.code is not a text in what it returned"),
        (
            {"retry_after": -1},
            "retry_after is not a number of seconds from 0 to 10 years",
        ),
        (
            {"retry_after": 1e30},
            "retry_after is not a number of seconds from 0 to 10 years",
        ),
        ({"retryable": 0}, "retryable is not True or False in what it returned"),
    ],
)
def test_nonsense_of_an_extractor_is_logged_and_ignored(
    value: Any, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    def strange(error: BaseException) -> Any:
        return value

    found = document(Says(), extractors=[strange, lambda _: {"other": 1}])
    assert found.pop("other") == 1
    assert found == document(Says())
    [record] = caplog.records
    assert (record.name, record.levelno) == ("litejobs", logging.WARNING)
    assert record.exc_info is None
    assert record.getMessage().startswith(
        f"the extractor {strange.__qualname__} adds nothing to errors of type Says, "
        f"which is said only once: {problem}"
    )


def test_extractor_that_raises_is_logged_once_for_each_type(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(error: BaseException) -> Mapping[str, Any]:
        raise SystemExit if isinstance(error, KeyError) else RuntimeError("no")

    for error in (ValueError(), ValueError("again"), KeyError(), KeyError()):
        found = document(error, extractors=[broken, lambda _: {"other": 1}])
        assert found["other"] == 1
    said = [record.getMessage().split(" adds nothing ")[1] for record in caplog.records]
    assert said == [
        "to errors of type ValueError, which is said only once: "
        "it failed with RuntimeError",
        "to errors of type KeyError, which is said only once: "
        "it failed with SystemExit",
    ]
    assert caplog.records[0].exc_info is not None


def test_each_extractor_is_complained_about_and_none_is_kept_alive(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def made() -> Callable[[BaseException], Any]:
        def broken(error: BaseException) -> Any:
            return 1

        return broken

    kept = made()
    gc.collect()
    before = len(outcomes._complaints)
    document(ValueError(), extractors=[made(), kept])
    gc.collect()
    assert len(outcomes._complaints) == before + 1
    document(ValueError(), extractors=[kept, made()])
    assert len(caplog.records) == 3


def test_extractor_that_cannot_be_remembered_is_told_by_its_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Unhashable:
        __hash__ = None  # type: ignore[assignment]

        def __call__(self, error: BaseException) -> Any:
            return 1

    for _ in range(3):
        document(ValueError(), extractors=[Unhashable()])
    [record] = caplog.records
    assert "the extractor Unhashable adds nothing" in record.getMessage()


def test_interrupt_in_an_extractor_passes_through() -> None:
    def slow(error: BaseException) -> Mapping[str, Any]:
        raise TaskTimeout

    with interrupted(), pytest.raises(TaskTimeout):
        outcomes.of_error(ValueError(), 1, extractors=[slow])
