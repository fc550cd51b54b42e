"""Tasks on a cluster of Dask, one of whose workers is killed in the middle.

    pip install 'litejobs[dask]' cryptography
    python examples/cluster.py

Primes are counted in eight ranges, by two workers, each a process of its own. Whoever
can reach the scheduler of a cluster can run code in its workers, so it is encrypted:
with certificates that are made for this run, which is what `cryptography` is for. One
range is held up until its worker is killed. That is a crash of this one attempt, so its
job is run again; Dask starts another worker. Each attempt is run once. The output is:

    all is said by tls://
    range 7 is held up in a worker, which is killed
    range 0: 303 primes in attempt 1
    range 1: 247 primes in attempt 1
    range 2: 233 primes in attempt 1
    range 3: 224 primes in attempt 1
    range 4: 222 primes in attempt 1
    range 5: 209 primes in attempt 1
    range 6: 214 primes in attempt 1
    range 7: 210 primes in attempt 2
    attempts of range 7: crashed, ok
    runs that were begun: 9

A cluster that is not on this machine has certificates of its own authority, by which
scheduler, workers and the runner know each other (`dask scheduler --tls-ca-file=...`):

    from distributed import Security
    security = Security(
        require_encryption=True,
        tls_ca_file="ca.pem",
        tls_client_cert="runner.pem",
        tls_client_key="runner.key",
    )
    jobs.add_executor("cluster", Dask("tls://10.0.0.1:8786", security=security))
"""

from __future__ import annotations

import logging
import os
import signal
import tempfile
import time
from pathlib import Path

from litejobs import LiteJobs, current
from litejobs.executors import Dask

SIZE = 2_000

jobs = LiteJobs()  # in memory, so that the example leaves no file behind


@jobs.task(executor="cluster", crash_delay=0)
def count_primes(number: int, folder: str) -> int:
    """Count the primes in one of the ranges."""
    # One file for each run of it, in whatever process, so that we see how many were.
    Path(folder, f"{number}-{current().attempt}-{os.getpid()}").touch(exist_ok=False)
    first = number * SIZE
    found = sum(is_prime(each) for each in range(first, first + SIZE))
    current().progress(0.9, "counted")
    if number == 7 and current().attempt == 1:
        current().wait(600)
    return found


def is_prime(number: int) -> bool:
    return number > 1 and all(number % each for each in range(2, int(number**0.5) + 1))


def main() -> None:
    # Imported here: workers import this module, too.
    from distributed import LocalCluster

    for name in ("litejobs", "distributed"):  # they would tell of the crash
        logging.getLogger(name).setLevel(logging.CRITICAL)
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            security=True,
            dashboard_address=":0",
            local_directory=folder,
            silence_logs=logging.CRITICAL,
        ) as cluster,
    ):
        print("all is said by", cluster.scheduler_address.partition("//")[0] + "//")
        jobs.add_executor("cluster", Dask(cluster))
        runs = Path(folder, "runs")
        runs.mkdir()
        with jobs, jobs.running():
            asked = [count_primes.enqueue(each, str(runs)) for each in range(8)]
            held_up = asked[7]
            while not held_up.progress:
                time.sleep(0.05)
            print("range 7 is held up in a worker, which is killed")
            worker = str(held_up.attempts[-1].worker)  # "0 at tls://... (process 4711)"
            os.kill(int(worker.rpartition(" ")[2].rstrip(")")), signal.SIGKILL)
            for number, job in enumerate(asked):
                found = job.result()
                print(f"range {number}: {found} primes in attempt {len(job.attempts)}")
            told = ", ".join(str(each.status) for each in held_up.attempts)
            print("attempts of range 7:", told)
            print("runs that were begun:", len(list(runs.iterdir())))


if __name__ == "__main__":
    # Workers import tasks by the name of their module, which `__main__` is not.
    import cluster

    cluster.main()
