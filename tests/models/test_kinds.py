"""No random test goes on without a kind, or a column, that the schema has learned.

Each word that a column allows, and each column, is known to a model of the random
tests, or stands here with the tests that speak of it. What neither knows is named.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import pytest

from tests.models import (
    backoffs,
    kinds,
    lifemodel,
    linemodel,
    policymodel,
    schedulemodel,
)
from tests.models.kinds import UnknownKind, Vocabulary
from tests.models.test_random_lives import LIMITS
from tests.sql.fixture import STATES

MODELS = [each.KNOWS for each in (lifemodel, linemodel, policymodel, schedulemodel)]

# Words that no random test draws, and where each of them is tried.
ELSEWHERE = Vocabulary.of(
    "test_kinds",
    {
        # control/test_undo.py, control/test_undo_conflicts.py,
        # sql/test_operations.py, sql/test_retention.py
        "operation.obstacle": "never_ended jobs_deleted unrecorded",
        "operation.state": "open done undone lapsed",
        "change.kind": "job queue key tier fact circuit schedule ledger retention",
        # control/test_batch.py
        "batch.state": "open sealed succeeded failed",
        # control/test_unique.py, sql/test_unique.py, schedules/test_schedules.py
        "job.on_conflict": "ignore replace debounce raise",
        "schedule.on_conflict": "ignore replace debounce",
        # control/test_dependencies.py, sql/test_dependency.py
        "job.on_parent_failure": "cancel run block",
        "job.on_parent_success": "run cancel",
        # sql/test_leftover.py
        "leftover.kind": "lane key circuit batch operation line spec",
        # sql/test_retention.py, sql/test_shrink.py, sql/test_kept.py
        "retention.kind": "completed cancelled dead_lettered operation event file "
        "attempt",
        "retaining.stage": "rest count job operation event ledger attempt",
        # sql/test_circuit.py: the policies that a random test makes are of both.
        "policy.purpose": "retry circuit",
    },
)

# What has stopped a job that no model has: control/test_dependencies.py
OTHER_STOPS = frozenset({"parents_succeeded"})
# Why a job that is not in line does not run; a model has it in another state.
NOT_IN_LINE = frozenset({"due", "dependency"})
# Gates that no model has: sql/test_executors.py, executors/test_futures.py
OTHER_GATES = frozenset({"no_executor", "executor_away", "executor_full"})

# Columns that no model has, by table, and where they are tried.
OTHER_COLUMNS = {
    "breaker": "task policy_id",  # the model's `only_down`
    "circuit": """
        name opened_at opens origin
        probe_attempt_id
    """,  # the model's `probe`; sql/test_circuit.py
    "job": """
        lane_id progress progress_message prev_attempt_id origin
        on_conflict unique_for_ms batch_id on_parent_failure on_parent_success
        prev_job_id prev prev_not_stored schedule_id occurrence_at birth birth_origin
        options spec_id
    """,  # tests of control/ (unique, batch, dependencies) and tasks/ (chain)
    "key": "key closed_until",
    "queue": "name origin executor",  # sql/test_executors.py
    "schedule": """
        name args expression timezone paused_reason origin declared edited runner_id
        created_at sentence tz_version planned_at invalid
        replan_at skip_until clock_steps
        queue priority max_attempts retryable options spec_id concurrency_key
        concurrency_limit circuit requires expires_in_ms on_conflict unique_for_ms
    """,  # the model's other names; what jobs are given: sql/test_schedule.py
    "spec": "text",
    # sql/test_spec.py, sql/test_arguments.py, sql/test_executors.py, sql/test_keys.py
    "task": "options spec_id has_misfits executor parameters",
    "tier": "",
}
RATE = {"rate_count", "rate_ms", "rate_burst"}
MODELLED = {
    "breaker": [linemodel.Breaker],
    "circuit": [linemodel.Circuit],
    "job": [lifemodel.Job, linemodel.Job, policymodel.Life, policymodel.Limits],
    "key": [linemodel.Key],
    "queue": [linemodel.Queue],
    "schedule": [schedulemodel.Schedule],
    "spec": [lifemodel.Job, policymodel.Limits],
    "task": [linemodel.Task, policymodel.Limits],
    "tier": [linemodel.Tier],
}


def unknown(words: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Which words nobody knows, and which are known and are not there."""
    found = []
    for column, allowed in words.items():
        told = [each for each in MODELS if column in each.words]
        for each in told or [ELSEWHERE]:
            known = each.words.get(column, frozenset())
            found += [
                f"{each.model} does not know the {column} {word!r}"
                for word in allowed
                if word not in known
            ]
            found += [
                f"{each.model} knows a {column} {word!r} that there is not"
                for word in sorted(known.difference(allowed))
            ]
    return found


def test_each_word_that_a_column_allows_is_known_to_a_model() -> None:
    assert len(kinds.all_words()) >= 25
    found = unknown(kinds.all_words())
    assert not found, "\n".join(found)


def test_a_new_word_is_named_with_the_models_that_do_not_know_it() -> None:
    words = {
        "spec.backoff": (*backoffs.GROWTH, "square"),
        "attempt.status": (*lifemodel.KNOWS.words["attempt.status"], "lost"),
        "batch.state": (*ELSEWHERE.words["batch.state"], "paused"),
        "tag.kind": ("free",),
    }
    assert unknown(words) == [
        "policymodel does not know the spec.backoff 'square'",
        "lifemodel does not know the attempt.status 'lost'",
        "linemodel does not know the attempt.status 'lost'",
        "policymodel does not know the attempt.status 'lost'",
        "test_kinds does not know the batch.state 'paused'",
        "test_kinds does not know the tag.kind 'free'",
    ]


def test_no_list_of_words_is_of_a_column_that_has_gone() -> None:
    known = {column for each in [*MODELS, ELSEWHERE] for column in each.words}
    assert known - {"job.stopped_by"} == set(kinds.all_words())


def test_a_model_refuses_a_word_that_it_does_not_know() -> None:
    with pytest.raises(UnknownKind, match=r"backoff 'odd'"):
        backoffs.grown(1, "odd", 2, 1, 9)
    job = lifemodel.Job(
        id=1, task="a", state="failed", queue="q", priority=0, run_at=0, backoff="odd"
    )
    with pytest.raises(UnknownKind, match=r"backoff 'odd'"):
        job.planned_wait(2)
    with pytest.raises(UnknownKind, match=r"linemodel .* queue\.keys 'odd'"):
        linemodel.KNOWS.check("queue.keys", "odd")


def test_each_gate_is_one_of_the_model() -> None:
    job = linemodel.Job(
        id=1,
        task="a",
        state="pending",
        queue="q",
        priority=0,
        run_at=0,
        created_at=0,
        concurrency_key="k",
        circuit="c",
    )
    known = {*linemodel.Line().gates(job, 0), *NOT_IN_LINE, *OTHER_GATES}
    for code in kinds.blocks():
        assert code in known, f"linemodel does not know the gate {code!r}"
    assert known == kinds.blocks()


def test_whatever_stops_a_job_is_known_to_a_model() -> None:
    known = {each.model: each.words.get("job.stopped_by", set()) for each in MODELS}
    for model, words in known.items():
        assert words <= kinds.stops(), model
    for word in kinds.stops() - OTHER_STOPS:
        assert any(word in words for words in known.values()), (
            f"no model knows that a job is stopped by {word!r}"
        )
    assert kinds.stops() >= OTHER_STOPS


def test_each_column_is_one_of_a_model() -> None:
    nobody = []
    for table, classes in MODELLED.items():
        known = {field.name for each in classes for field in attrs.fields(each)}
        known |= RATE if "rate" in known else set()
        known |= set(lifemodel.POLICY) if table == "task" else set()
        other = set(OTHER_COLUMNS[table].split())
        nobody += [
            f"no model knows {table}.{column}"
            for column in kinds.columns(table)
            if column not in known | other
        ]
        assert other <= set(kinds.columns(table)) - known, table
    assert not nobody, "\n".join(nobody)


def test_each_limit_that_a_model_knows_is_drawn() -> None:
    assert set(LIMITS) == set(lifemodel.POLICY)


def test_states_are_those_of_the_schema() -> None:
    assert kinds.words_of("job.state") == STATES
    moved = {state for move in lifemodel.MOVES for state in move} - {None}
    assert moved == set(STATES)
