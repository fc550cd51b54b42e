"""What other libraries call what is here: their words are answered with ours."""

from __future__ import annotations

from collections.abc import Container

# How a job is asked for elsewhere, and what that is of a task here.
_ENQUEUE = "enqueue with {task}.enqueue(…)"
_LATER = "enqueue with {task}.using(delay=…).enqueue(…), or with run_at= an instant"
_WITH_OPTIONS = "enqueue with {task}.using(delay=…, queue=…).enqueue(…)"
_VALUE = "make a job as a value with {task}.call(…)"
_METHODS = {
    **dict.fromkeys(
        ("delay", "send", "perform_async", "kiq", "defer", "push", "submit"), _ENQUEUE
    ),
    **dict.fromkeys(
        ("apply_async", "send_with_options", "configure", "options", "set", "kicker"),
        _WITH_OPTIONS,
    ),
    **dict.fromkeys(
        ("perform_in", "perform_at", "schedule_in", "enqueue_in", "enqueue_at"), _LATER
    ),
    **dict.fromkeys(("s", "si", "signature", "subtask", "message"), _VALUE),
    "defer_async": "enqueue from a coroutine with await {task}.aenqueue(…)",
    "delay_on_commit": "enqueue with {task}.enqueue(…) inside jobs.transaction()",
    "call_local": "call {task}(…) to run it here and now",
    "schedule": "give it a schedule with jobs.schedule(cron(…))({task})",
    "chord": "enqueue a batch, and use {task}.using(after=[batch])",
    "map": "enqueue many with jobs.enqueue_many({task}.call(x) for x in …)",
}

# How options are called elsewhere: those of ours that say it.
_OPTIONS = {
    **dict.fromkeys(("eta", "at", "schedule_at", "scheduled_at"), ("run_at",)),
    **dict.fromkeys(("countdown", "schedule_in", "defer_by", "wait"), ("delay",)),
    **dict.fromkeys(("max_retries", "retry_limit", "num_retries"), ("retries",)),
    **dict.fromkeys(
        ("default_retry_delay", "retry_delay", "retry_backoff", "min_backoff"),
        ("retry",),
    ),
    **dict.fromkeys(
        ("autoretry_for", "retry_when", "retry_jitter", "max_backoff", "backoff"),
        ("retry",),
    ),
    **dict.fromkeys(("expires", "max_age", "ttl"), ("expires_in", "expires_at")),
    **dict.fromkeys(
        ("time_limit", "soft_time_limit", "job_timeout", "timeout_ms"), ("timeout",)
    ),
    **dict.fromkeys(("rate_limit", "throttle"), ("rate",)),
    **dict.fromkeys(("queue_name", "routing_key"), ("queue",)),
    **dict.fromkeys(("task_id", "job_id", "unique", "lock"), ("unique_key",)),
    **dict.fromkeys(("depends_on", "dependencies", "parents"), ("after",)),
    "at_front": ("priority",),
    **dict.fromkeys(("max_instances", "max_concurrency"), ("concurrency_limit",)),
    "tz": ("timezone",),
    "misfire_grace_time": ("grace",),
    "coalesce": ("misfire",),
}


# Some say these in milliseconds.
_IN_SECONDS = {"time_limit", "max_age", "timeout_ms"}


def method_here(name: str, task: str) -> str | None:
    """Tell what to say of a *task* in place of a method of another library, or None."""
    said = _METHODS.get(name)
    return None if said is None else said.format(task=task)


def option_here(name: str, options: Container[str]) -> str | None:
    """Tell which of these *options* is meant by that of another library, or None."""
    meant = [f"{each}=" for each in _OPTIONS.get(name, ()) if each in options]
    return " or ".join(meant) or None


def unit_here(name: str) -> str:
    """Tell in which unit we have what others may have in another one."""
    return ", in seconds" if name in _IN_SECONDS else ""
