"""Queues, keys, circuits, facts and tiers from Python, and the reasons they give."""

from __future__ import annotations

import datetime as dt
import re
import threading
from typing import Any

import attrs
import pytest
from freezegun import freeze_time

from litejobs import Block, Circuit, Job, LiteJobs, Rate
from litejobs.errors import ConfigurationError, Refused

NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


def later(**duration: float) -> dt.datetime:
    return NOON + dt.timedelta(**duration)


def column(jobs: LiteJobs, sql: str) -> list[Any]:
    with jobs.reader() as connection:
        return [row[0] for row in connection.execute(sql)]


def say(jobs: LiteJobs, sql: str) -> None:
    """Any other client says it."""
    with jobs.transaction() as connection:
        connection.execute(sql)


# Facts --------------------------------------------------------------------------------


def test_facts_are_a_mapping_of_names_to_truth(jobs: LiteJobs) -> None:
    assert dict(jobs.facts) == {}
    jobs.facts["online"] = True
    jobs.facts["on_mains"] = False
    assert jobs.facts == {"on_mains": False, "online": True}
    assert list(jobs.facts) == ["on_mains", "online"]
    assert len(jobs.facts) == 2
    assert "online" in jobs.facts
    assert jobs.facts["online"] is True
    assert jobs.facts.get("charged") is None
    jobs.facts["online"] = False
    assert jobs.facts["online"] is False
    del jobs.facts["online"]
    assert repr(jobs.facts) == "Facts({'on_mains': False})"


def test_fact_that_was_never_set_is_a_key_error(jobs: LiteJobs) -> None:
    for name in ("online", "", "\udcff", "x" * 201):
        with pytest.raises(KeyError):
            jobs.facts[name]
        with pytest.raises(KeyError):
            del jobs.facts[name]
        assert name not in jobs.facts


@pytest.mark.parametrize("value", [1, 0, None, "true", "", 1.0, []])
def test_fact_is_true_or_false_and_nothing_else(jobs: LiteJobs, value: Any) -> None:
    jobs.facts["online"] = True
    with pytest.raises(ConfigurationError, match="set it to True or False"):
        jobs.facts["online"] = value
    assert jobs.facts["online"] is True


@pytest.mark.parametrize("name", ["", "x" * 201, "a\0b", "\udcff", 5, None])
def test_fact_has_a_name(jobs: LiteJobs, name: Any) -> None:
    with pytest.raises(ConfigurationError, match="fact="):
        jobs.facts[name] = True
    assert len(jobs.facts) == 0


def test_fact_counts_from_the_commit_of_its_transaction_on(file_jobs: LiteJobs) -> None:
    seen = []

    def look() -> None:
        seen.append(dict(file_jobs.facts))

    with file_jobs.transaction():
        file_jobs.facts["online"] = True
        other = threading.Thread(target=look)
        other.start()
        other.join()
        assert file_jobs.facts["online"] is True
    assert seen == [{}]
    assert file_jobs.facts == {"online": True}


def test_what_a_transaction_steers_is_rolled_back_with_it(jobs: LiteJobs) -> None:
    def steer() -> None:
        with jobs.transaction():
            jobs.facts["online"] = True
            jobs.queues["mail"].set(max_running=1)
            jobs.keys["host:x"].set(max_running=1)
            jobs.circuits["host:x"].isolate()
            jobs.tiers.set(0, every="1s")
            raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        steer()
    everything = (jobs.facts, jobs.queues, jobs.keys, jobs.circuits, jobs.tiers)
    assert [len(each) for each in everything] == [0, 0, 0, 0, 0]


# Queues -------------------------------------------------------------------------------


def test_queue_that_nobody_named_has_the_defaults_and_no_row(jobs: LiteJobs) -> None:
    queue = jobs.queues["mail"]
    assert (queue.name, queue.paused, queue.max_running) == ("mail", False, None)
    assert (queue.rate, queue.retries, queue.aging_ms) == (None, "in_order", None)
    assert (queue.keys, queue.waiting, queue.running) == ("in_order", 0, 0)
    assert "mail" not in jobs.queues
    assert jobs.queues.get("mail") is None
    assert list(jobs.queues) == []


def test_queue_is_there_from_the_first_job_on(jobs: LiteJobs) -> None:
    jobs.enqueue("send", queue="mail")
    jobs.enqueue("send", queue="mail", delay="1h")
    jobs.enqueue("send", queue="bulk").cancel()
    assert list(jobs.queues) == ["bulk", "mail"]
    assert jobs.queues["mail"].waiting == 2
    assert jobs.queues["bulk"].waiting == 0
    assert jobs.queues.get("mail") == jobs.queues["mail"]
    assert jobs.queues["mail"] != jobs.queues["bulk"]
    assert len({jobs.queues["mail"], jobs.queues["mail"], jobs.keys["mail"]}) == 2


def test_set_changes_only_what_it_names(jobs: LiteJobs) -> None:
    queue = jobs.queues["mail"]
    queue.set(max_running=4, rate="10/1m")
    assert queue.max_running == 4
    assert queue.rate == Rate(10, "1m")
    queue.set(retries="after_new", aging="10m", keys="round_robin")
    assert (queue.retries, queue.aging_ms, queue.keys) == (
        "after_new",
        600_000,
        "round_robin",
    )
    assert (queue.max_running, queue.rate) == (4, Rate(10, "1m"))
    queue.set(rate=Rate(1, "5s", burst=3))
    assert queue.rate == Rate(1, "5s", burst=3)
    queue.set(max_running=None, rate=None, aging=None, retries="in_order")
    assert (queue.max_running, queue.rate, queue.aging_ms) == (None, None, None)
    assert (queue.retries, queue.keys) == ("in_order", "round_robin")
    queue.set(max_running=0)
    assert queue.max_running == 0


def test_set_leaves_a_paused_queue_paused(jobs: LiteJobs) -> None:
    queue = jobs.queues["mail"]
    queue.pause()
    queue.set(max_running=4)
    assert queue.paused is True
    queue.resume()
    assert (queue.paused, queue.max_running) == (False, 4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_running": -1}, "max_running=-1 is out of range"),
        ({"max_running": True}, "max_running=True is out of range"),
        ({"max_running": 1.5}, "max_running=1.5 is out of range"),
        ({"max_running": 10**9 + 1}, "is out of range; give a whole number from 0"),
        ({"rate": "often"}, "rate='often' is not a rate"),
        ({"rate": 10}, "rate=10 is not a rate"),
        ({"retries": "never"}, "retries='never' is unknown"),
        ({"retries": None}, "retries=None is unknown"),
        ({"keys": ["in_order"]}, "is unknown"),
        ({"aging": 0}, "aging=0 is out of range; give a duration from 1ms to 366d"),
        ({"aging": "367d"}, "aging='367d' is out of range"),
        ({"aging": "soon"}, "aging='soon' is not a duration"),
    ],
)
def test_setting_that_cannot_work_is_refused_whole(
    jobs: LiteJobs, settings: dict[str, Any], message: str
) -> None:
    queue = jobs.queues["mail"]
    with pytest.raises(ConfigurationError, match=message):
        queue.set(**{"max_running": 7} | settings)
    assert "mail" not in jobs.queues


@pytest.mark.parametrize("name", ["", "x" * 501, "a\0b", "\udcff", 5, None])
def test_names_are_texts(jobs: LiteJobs, name: Any) -> None:
    for mapping in (jobs.queues, jobs.keys, jobs.circuits):
        with pytest.raises(ConfigurationError):
            mapping[name]
        assert name not in mapping


def test_rate_that_another_client_wrote_is_read_as_it_is(jobs: LiteJobs) -> None:
    """More than a million a second is refused from Python, and can be stored."""
    say(
        jobs,
        "insert into litejobs_queue (name, rate_count, rate_ms) "
        "values ('mail', 1000000000, 1)",
    )
    rate = jobs.queues["mail"].rate
    assert rate is not None
    assert (rate.count, rate.per_ms, rate.burst) == (1_000_000_000, 1, 1)


@pytest.mark.parametrize("queue", ["mail", None])
def test_the_queue_of_a_task_is_kept_and_can_be_paused(
    jobs: LiteJobs, queue: str | None
) -> None:
    """Also the one of a task that names none, which a statement pauses by its row."""

    @jobs.task(queue=queue)
    def send() -> None:
        pass

    jobs.open()
    name = queue or "default"
    with pytest.raises(Refused, match=f"queue {name} is that of task send"):
        jobs.queues[name].remove()
    say(jobs, f"update litejobs_queue set paused = 1 where name = '{name}'")
    send.enqueue()
    assert jobs.drain() == 0


# Keys ---------------------------------------------------------------------------------


def test_key_is_set_by_hand(jobs: LiteJobs) -> None:
    key = jobs.keys["host:x"]
    assert (key.max_running, key.rate, key.running) == (None, None, 0)
    assert "host:x" not in jobs.keys
    key.set(max_running=2, rate="5/s")
    assert (key.max_running, key.rate) == (2, Rate(5, "1s"))
    key.set(rate=None)
    assert (key.max_running, key.rate) == (2, None)
    assert list(jobs.keys) == ["host:x"]
    assert "host:x" in jobs.keys


def test_key_refuses_what_cannot_work(jobs: LiteJobs) -> None:
    with pytest.raises(ConfigurationError, match="max_running=-1"):
        jobs.keys["host:x"].set(max_running=-1, rate="5/s")
    assert len(jobs.keys) == 0


def test_setting_a_key_keeps_what_its_rate_has_counted(jobs: LiteJobs) -> None:
    say(jobs, "insert into litejobs_key (key, rate_next_us) values ('host:x', 77)")
    jobs.keys["host:x"].set(max_running=2)
    assert column(jobs, "select rate_next_us from litejobs_key") == [77]


# Tiers --------------------------------------------------------------------------------


def test_tiers_are_listed_by_queue_and_priority(jobs: LiteJobs) -> None:
    jobs.tiers.set(0, every="2s", queue="bulk", at_most=3)
    jobs.tiers.set(0, every="3s")
    jobs.tiers.set(-100, every="30s")
    assert [(each.queue, each.min_priority) for each in jobs.tiers] == [
        (None, -100),
        (None, 0),
        ("bulk", 0),
    ]
    assert [(each.every_ms, each.at_most) for each in jobs.tiers] == [
        (30_000, None),
        (3_000, None),
        (2_000, 3),
    ]
    assert len(jobs.tiers) == 3
    assert jobs.tiers[-1].queue == "bulk"
    assert [each.next_at for each in jobs.tiers[:2]] == [None, None]


def test_tier_is_changed_in_its_place_and_removed(jobs: LiteJobs) -> None:
    jobs.tiers.set(0, every="2s")
    say(jobs, "update litejobs_tier set next_at = 77")
    jobs.tiers.set(0, every="5s", at_most=1)
    [tier] = jobs.tiers
    assert (tier.every_ms, tier.at_most) == (5_000, 1)
    assert tier.next_at == dt.datetime(1970, 1, 1, microsecond=77_000, tzinfo=dt.UTC)
    jobs.tiers.remove(0)
    assert list(jobs.tiers) == []
    with pytest.raises(KeyError):
        jobs.tiers.remove(0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((None, "2s"), "min_priority=None is not a priority"),
        ((1.5, "2s"), "priority=1.5 is out of range"),
        ((10**7, "2s"), "priority=10000000 is out of range"),
        ((0, 0), "every=0 is out of range"),
        ((0, "2s", 0), "at_most=0 is out of range"),
        ((0, "2s", None, ""), "queue='' does not fit"),
    ],
)
def test_tier_that_cannot_work_is_refused(
    jobs: LiteJobs, arguments: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        jobs.tiers.set(*arguments)
    assert len(jobs.tiers) == 0


# Circuits -----------------------------------------------------------------------------


@freeze_time(NOON)
def test_circuit_is_opened_for_a_time_and_reset(jobs: LiteJobs) -> None:
    circuit = jobs.circuits["host:x"]
    assert (circuit.state, circuit.failures, circuit.opens) == ("closed", 0, 0)
    assert (circuit.opened_at, circuit.open_until, circuit.probe) == (None, None, None)
    assert "host:x" not in jobs.circuits
    circuit.isolate("10m")
    assert (circuit.state, circuit.opened_at) == ("open", NOON)
    assert circuit.open_until == later(minutes=10)
    assert list(jobs.circuits) == ["host:x"]
    circuit.isolate()
    assert (circuit.state, circuit.open_until) == ("open", None)
    assert circuit.reset() is True
    assert circuit.state == "closed"
    assert circuit.reset() is False
    assert repr(circuit) == "<litejobs circuit 'host:x'>"


@pytest.mark.parametrize("duration", [0, -1, "soon", "40000d"])
def test_circuit_refuses_a_duration_that_cannot_work(
    jobs: LiteJobs, duration: Any
) -> None:
    with pytest.raises(ConfigurationError, match="duration"):
        jobs.circuits["host:x"].isolate(duration)
    assert len(jobs.circuits) == 0


def test_resetting_what_was_never_heard_of_makes_no_row(jobs: LiteJobs) -> None:
    assert jobs.circuits["host:x"].reset() is False
    assert column(jobs, "select count(*) from litejobs_circuit") == [0]


# What it does to jobs -----------------------------------------------------------------


def codes(job: Job[Any]) -> list[str]:
    return [each.code for each in job.why()]


def test_queue_without_room_starts_nothing_until_it_has_some(jobs: LiteJobs) -> None:
    @jobs.task(queue="mail")
    def send() -> None: ...

    jobs.queues["mail"].set(max_running=0)
    job = send.enqueue()
    assert jobs.drain() == 0
    assert "queue_full" in codes(job)
    jobs.queues["mail"].set(max_running=None)
    assert jobs.drain() == 1


def test_rate_of_a_queue_says_until_when(jobs: LiteJobs) -> None:
    @jobs.task(queue="mail")
    def send() -> None: ...

    with freeze_time(NOON) as clock:
        jobs.queues["mail"].set(rate=Rate(2, "1m", burst=2))
        waiting = [send.enqueue() for _ in range(4)]
        assert jobs.drain() == 2
        [block] = [each for each in waiting[2].why() if each.code == "queue_rate"]
        assert (block.object, block.until_at) == ("queue mail", later(seconds=30))
        clock.tick(30)
        assert jobs.drain() == 1
        jobs.queues["mail"].set(rate=None)
        assert jobs.drain() == 1


def test_number_set_for_a_key_counts_before_that_of_the_task(jobs: LiteJobs) -> None:
    @jobs.task(concurrency_key="host:{host}", concurrency_limit=5)
    def fetch(host: str) -> None:
        seen.append(jobs.keys[f"host:{host}"].running)

    seen: list[int] = []
    one, other = fetch.enqueue("a"), fetch.enqueue("b")
    assert list(jobs.keys) == ["host:a", "host:b"]
    jobs.keys["host:a"].set(max_running=0)
    assert jobs.drain() == 1
    assert seen == [1]
    assert (one.state, other.state) == ("pending", "completed")
    assert "key_full" in codes(one)
    jobs.keys["host:a"].set(max_running=None)
    assert jobs.drain() == 1


def test_rate_set_for_a_key_holds_it_alone(jobs: LiteJobs) -> None:
    @jobs.task(concurrency_key="host:{host}", concurrency_limit=5)
    def fetch(host: str) -> None: ...

    with freeze_time(NOON) as clock:
        jobs.keys["host:a"].set(rate="1/1m")
        first, second = fetch.enqueue("a"), fetch.enqueue("a")
        fetch.enqueue("b")
        assert jobs.drain() == 2
        assert (first.state, second.state) == ("completed", "pending")
        [block] = [each for each in second.why() if each.code == "key_rate"]
        assert (block.object, block.until_at) == ("key host:a", later(minutes=1))
        clock.tick(60)
        assert jobs.drain() == 1


def test_job_waits_for_the_facts_that_it_requires(jobs: LiteJobs) -> None:
    @jobs.task(require=["online", "on_mains"])
    def sync() -> None: ...

    job = sync.enqueue()
    jobs.facts["online"] = True
    jobs.facts["on_mains"] = False
    assert jobs.drain() == 0
    [block] = [each for each in job.why() if each.code == "fact"]
    assert block.object == "fact on_mains"
    del jobs.facts["online"]
    jobs.facts["on_mains"] = True
    assert jobs.drain() == 0
    jobs.facts["online"] = True
    assert jobs.drain() == 1


def test_tier_lets_its_jobs_start_once_in_a_while(jobs: LiteJobs) -> None:
    @jobs.task
    def tidy() -> None: ...

    with freeze_time(NOON) as clock:
        jobs.tiers.set(-100, every="30s", at_most=1)
        jobs.tiers.set(0, every="1s")
        for _ in range(3):
            tidy.using(priority=-5).enqueue()
        last = tidy.using(priority=-5).enqueue()
        assert jobs.drain() == 1
        [block] = [each for each in last.why() if each.code == "tier"]
        assert (block.object, block.until_at) == ("tier -100", later(seconds=30))
        assert jobs.tiers[0].next_at == later(seconds=30)
        clock.tick(30)
        assert jobs.drain() == 1
        jobs.tiers.remove(-100)
        assert jobs.drain() == 2


def test_isolated_circuit_starts_nothing_but_a_probe_at_its_end(jobs: LiteJobs) -> None:
    @jobs.task(circuit="host:{host}")
    def fetch(host: str) -> None:
        seen.append((circuit.state, circuit.probe))

    seen: list[tuple[str, int | None]] = []
    circuit = jobs.circuits["host:a"]
    with freeze_time(NOON) as clock:
        circuit.isolate("10m")
        job, other = fetch.enqueue("a"), fetch.enqueue("b")
        assert jobs.drain() == 1
        assert (job.state, other.state) == ("pending", "completed")
        [block] = [each for each in job.why() if each.code == "circuit_open"]
        assert (block.object, block.until_at) == ("circuit host:a", later(minutes=10))
        clock.tick(600)
        assert jobs.drain() == 1
        assert seen == [("open", None), ("half_open", job.attempts[0].id)]
        assert (circuit.state, circuit.open_until, circuit.probe) == (
            "closed",
            None,
            None,
        )


def test_circuit_isolated_without_end_waits_for_a_reset(jobs: LiteJobs) -> None:
    @jobs.task(circuit="printer")
    def print_page() -> None: ...

    with freeze_time(NOON) as clock:
        print_page.enqueue()
        jobs.circuits["printer"].isolate("1m")
        jobs.circuits["printer"].isolate()
        clock.tick(dt.timedelta(days=365))
        assert jobs.drain() == 0
        assert jobs.circuits["printer"].reset() is True
        assert jobs.drain() == 1


def test_circuit_counts_failures_and_forgets_them_by_hand(jobs: LiteJobs) -> None:
    @jobs.task(circuit=Circuit("printer", threshold=3, cooldown="1m"), max_attempts=1)
    def print_page() -> None:
        raise OSError("no paper")

    circuit = jobs.circuits["printer"]
    with freeze_time(NOON):
        for _ in range(2):
            print_page.enqueue()
        assert jobs.drain() == 2
        assert (circuit.state, circuit.failures) == ("closed", 2)
        assert circuit.reset() is True
        assert circuit.failures == 0
        for _ in range(4):
            print_page.enqueue()
        assert jobs.drain() == 3
        assert (circuit.state, circuit.failures, circuit.opens) == ("open", 0, 1)
        assert (circuit.opened_at, circuit.open_until) == (NOON, later(minutes=1))


def test_log_says_who_steered_and_nothing_else_is_theirs(jobs: LiteJobs) -> None:
    @jobs.task(circuit="printer")
    def print_page() -> None: ...

    with freeze_time(NOON) as clock:
        jobs.facts["online"] = True
        say(jobs, "update litejobs_fact set value = 0")
        jobs.queues["mail"].set(max_running=1)
        jobs.queues["mail"].pause()
        jobs.queues["mail"].set(max_running=2)
        say(jobs, "update litejobs_queue set paused = 0")
        jobs.circuits["printer"].isolate()
        jobs.circuits["printer"].isolate("1m")
        clock.tick(60)
        print_page.enqueue()
        jobs.drain()
    assert [
        (line.subject, line.new_state, line.origin)
        for line in jobs.log()
        if line.job_id is None and line.subject != "queue default"
    ] == [
        ("fact online", "true", "api"),
        ("fact online", "false", "sql"),
        ("queue mail", "paused", "api"),
        ("queue mail", "open", "sql"),
        ("circuit printer", "open", "api"),
        ("circuit printer", "half_open", None),
        ("circuit printer", "closed", None),
    ]


# Why ----------------------------------------------------------------------------------


def test_reason_is_a_sentence() -> None:
    block = Block(
        code="queue_rate",
        detail="its queue has used up its rate",
        object="queue mail",
        until_at=NOON,
        remedy="wait, or raise the rate of the queue",
    )
    assert str(block) == (
        "its queue has used up its rate (queue mail) until 2026-01-01T12:00:00Z: "
        "wait, or raise the rate of the queue"
    )
    exact = attrs.evolve(block, until_at=later(milliseconds=250), remedy=None)
    assert str(exact).endswith(" until 2026-01-01T12:00:00.250Z")
    bare = attrs.evolve(block, until_at=None, remedy=None)
    assert str(bare) == "its queue has used up its rate (queue mail)"


def test_job_has_one_reason_at_every_moment_of_its_life(jobs: LiteJobs) -> None:
    @jobs.task
    def look() -> None:
        seen.extend([codes(first), codes(second)])

    seen: list[list[str]] = []
    with freeze_time(NOON) as clock:
        first = look.using(delay="1h").enqueue()
        second = look.enqueue()
        second.cancel()
        seen.append(codes(second))
        second = look.using(run_at=later(hours=1)).enqueue()
        clock.tick(3600)
        with jobs.transaction() as connection:
            connection.execute("insert into litejobs_runner (pid) values (1)")
            connection.execute("update litejobs_task set runner_id = 1")
            connection.execute("insert into litejobs_tick (runner) values (1)")
        seen.append(codes(first))
        say(jobs, "update litejobs_runner set stopped_at = 1")
        jobs.drain()
        seen.append(codes(first))
    assert seen == [
        ["ended"],
        ["turn"],
        ["running"],
        ["no_slot"],
        ["ended"],
        ["running"],
        ["ended"],
    ]


def test_every_reason_names_a_row_and_a_way_out(jobs: LiteJobs) -> None:
    @jobs.task(
        queue="mail",
        concurrency_key="host:x",
        circuit="host:x",
        require=["online"],
        expires_in="1h",
    )
    def send() -> None: ...

    with freeze_time(NOON):
        parent = send.enqueue()
        job = send.using(after=[parent], delay="1m", priority=-1).enqueue()
        jobs.queues["mail"].set(max_running=0, rate="1/1h")
        jobs.keys["host:x"].set(max_running=0)
        jobs.circuits["host:x"].isolate()
        jobs.tiers.set(-1, every="1h", at_most=1, queue="mail")
        jobs.pause("mail")
        say(jobs, "update litejobs_tier set taken = 1, next_at = 1893456000000")
        sentences = {block.code: str(block) for block in job.why()}
    assert list(sentences) == sorted(sentences)
    assert sentences.keys() == {
        "dependency",
        "queue_paused",
        "queue_full",
        "no_runner",
        "fact",
        "tier",
        "key_full",
        "circuit_open",
    }
    for code, row in {
        "dependency": f"(job {parent.id})",
        "queue_paused": "(queue mail)",
        "queue_full": "(queue mail)",
        "no_runner": "(task send)",
        "fact": "(fact online)",
        "tier": "(tier -1 of queue mail) until 2030-01-01T00:00:00Z",
        "key_full": "(key host:x)",
        "circuit_open": "(circuit host:x)",
    }.items():
        what, found, remedy = sentences[code].partition(f" {row}: ")
        assert found, (code, sentences[code])
        assert re.fullmatch(r"[a-z][^:;]+[a-z]", what)
        assert re.fullmatch(r"[a-z].+[a-z_]", remedy)


@pytest.mark.parametrize("what", ["queue", "key"])
def test_another_rate_counts_at_once(jobs: LiteJobs, what: str) -> None:
    """No start waits longer than the new rate says."""

    @jobs.task(queue="mail", concurrency_key="mail", concurrency_limit=5)
    def send() -> None: ...

    steered = jobs.queues["mail"] if what == "queue" else jobs.keys["mail"]
    with freeze_time(NOON) as clock:
        steered.set(rate="1/1h")
        for _ in range(3):
            send.enqueue()
        assert jobs.drain() == 1
        steered.set(rate="1/1s")
        assert jobs.drain() == 0
        clock.tick(1)
        assert jobs.drain() == 1
        steered.set(rate=None)
        assert jobs.drain() == 1


def test_shorter_interval_of_a_tier_counts_at_once(jobs: LiteJobs) -> None:
    @jobs.task
    def tidy() -> None: ...

    with freeze_time(NOON) as clock:
        jobs.tiers.set(0, every="1h", at_most=1)
        tidy.enqueue()
        tidy.enqueue()
        assert jobs.drain() == 1
        jobs.tiers.set(0, every="1s", at_most=1)
        clock.tick(1)
        assert jobs.drain() == 1


def test_a_rate_by_plain_sql_without_a_time_is_per_second(jobs: LiteJobs) -> None:
    """As the gate counts it, so it is shown."""
    say(jobs, "insert into litejobs_queue (name, rate_count) values ('mail', 5)")
    assert jobs.queues["mail"].rate == Rate(5, "1s")
