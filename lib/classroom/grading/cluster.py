"""Marking on a Dask cluster: the same tasks as for local processes, sent to a scheduler.

On the machine that coordinates (it holds the submissions and the gradebook; workers get a task and give a result)::

    python -m classroom grade 09_parameters --scheduler tcp://HOST:8786

A worker needs the course as it is here (package, exercises' checks, the versions of requirements.lock), bubblewrap,
and one thread for each process, because a process marks one submission at a time::

    dask scheduler --port 8786
    dask worker tcp://HOST:8786 --nworkers 16 --nthreads 1 --memory-limit 0

Memory limits stand in `Limits`, and bind the student's processes; Dask's own would end the worker.
Slurm and Kubernetes have deployers of Dask's own; the page for instructors has the lines that start a cluster there,
and the rights that a pod needs.
Whoever reaches a scheduler can run code on its workers. Use a closed network or TLS: `--tls CA CERT KEY`, with a
scheduler at tls://, or Dask's own configuration (`distributed.comm.tls`), which holds here too.
What a worker held when it died is tried on others, as often as the scheduler's setting
`distributed.scheduler.allowed-failures` says, and then once more alone; then it is listed.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import pkgutil
import time
import uuid
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from classroom.grading import serving
from classroom.grading.course import GradingFailed
from classroom.grading.serving import Failed
from classroom.grading.task import MB, Result, Task
from classroom.grading.versions import versions

UNDER_WAY = 256 * MB  # bytes of notebooks that are sent and not marked yet
A_WORKER = 2  # tasks for each worker at a time: one that is marked, one that waits beside it


@dataclass(frozen=True)
class Scheduler:
    """Where Dask's scheduler listens; `tls`: files in PEM of the authority, of our certificate and of its key."""

    address: str
    tls: tuple[Path, Path, Path] | None = None
    answer: float = 20.0  # seconds within which it must answer
    patience: float = 600.0  # seconds within which there must be a first worker


def marked(
    tasks: Iterator[Task], mark: str, isolated: bool, scheduler: Scheduler
) -> Iterator[tuple[Task, Result | Failed]]:
    """Each task with what became of it, in the order in which they end; as `workers.marked`.

    Raises `GradingFailed` if the cluster cannot be reached or is gone, or if a worker is not as this machine.
    """
    wanted = versions(mark)
    with _client(scheduler) as client:
        _examine(client, mark, wanted, isolated, scheduler)
        ended = distributed().as_completed(loop=client.loop)
        room, under_way = _Room(client), {}
        has_more, suspects, is_alone = True, [], False

        def send(task: Task) -> None:
            future = client.submit(_mark, task, mark, wanted, isolated, key=f"mark-{uuid.uuid4()}", pure=False)
            under_way[future.key] = task
            ended.add(future)

        while True:
            while has_more and room.is_left(under_way):
                task = next(tasks, None)
                has_more = task is not None
                if has_more:
                    send(task)
            if not under_way and suspects:
                is_alone = True
                send(suspects.pop())
            if not under_way:
                return
            future = next(ended)
            task = under_way.pop(future.key)
            if future.status == "error" and not is_alone and _was_killed(future):
                suspects.append(task)  # Dask blames every task that a dead worker held, also those that only waited
            else:
                yield task, _outcome(future, scheduler)
            del future  # the cluster forgets a result that nobody holds


def distributed():
    """Dask's module, which only a cluster needs."""
    try:
        return importlib.import_module("distributed")
    except ModuleNotFoundError:
        raise GradingFailed("A cluster needs Dask, here and on each worker: pip install distributed.") from None


@contextlib.contextmanager
def _client(scheduler: Scheduler):
    """A connection to the scheduler; when it ends, the cluster drops what was sent and is not marked."""
    dask = distributed()
    if missing := [str(path) for path in scheduler.tls or () if not path.is_file()]:
        raise GradingFailed(f"--tls names files that are not there: {', '.join(missing)}.")
    files = dict(zip(("tls_ca_file", "tls_client_cert", "tls_client_key"), map(str, scheduler.tls or ())))
    security = dask.Security(require_encryption=True, **files) if files else None
    try:
        client = dask.Client(scheduler.address, timeout=scheduler.answer, security=security, set_as_default=False)
    except (OSError, ValueError, TypeError, RuntimeError) as error:
        raise GradingFailed(f"There is no Dask scheduler at {scheduler.address}: {error}") from error
    with warnings.catch_warnings(), contextlib.closing(client):
        warnings.filterwarnings("ignore", "Sending large graph", UserWarning)  # a notebook may be large
        yield client


class _Room:
    """How much more may be sent: some tasks for each worker, and not all of a class's bytes at once."""

    EVERY = 5.0  # seconds until the workers are counted again: they may come and go

    def __init__(self, client):
        self.client, self.n_workers, self.counted = client, 1, -self.EVERY

    def is_left(self, under_way: dict[str, Task]) -> bool:
        if time.monotonic() - self.counted > self.EVERY:
            self.n_workers, self.counted = max(1, len(self.client.nthreads())), time.monotonic()
        sent = sum(len(task.notebook) for task in under_way.values())
        return len(under_way) < A_WORKER * self.n_workers and sent < UNDER_WAY


def _was_killed(future) -> bool:
    return isinstance(future.exception(), distributed().KilledWorker)


def _outcome(future, scheduler: Scheduler) -> Result | Failed:
    if future.status == "finished":
        return future.result()
    if future.status != "error":
        raise GradingFailed(f"The scheduler at {scheduler.address} is gone. The same command goes on when it is back.")
    error = future.exception()
    if isinstance(error, GradingFailed):
        raise error
    return Failed(f"marking it on the cluster failed: {type(error).__name__}: {error}")


# ---- workers like this machine ----


@functools.cache
def _report(mark: str) -> tuple[dict[str, str], str | None]:
    """Of a worker: its versions, and why it cannot isolate students' code."""
    return versions(mark), pkgutil.resolve_name(mark.partition(":")[0]).why_not()


def _unfit(wanted: dict[str, str], isolated: bool, found: dict[str, str], why_not: str | None) -> str | None:
    """Why a worker may not mark, and what to do. Whatever was mended there, only a worker that starts sees it."""
    if differing := [name for name in wanted if found.get(name) != wanted[name]]:
        there = "; ".join(f"{name} is {found.get(name)} there and {wanted[name]} here" for name in differing)
        return f"{there}. Install there what is here, then restart the worker."
    if isolated and why_not:
        return f"{why_not} Then restart the worker, which looks only once. Or say --without-isolation."
    return None


def _examine(client, mark: str, wanted: dict[str, str], isolated: bool, scheduler: Scheduler) -> None:
    """Refuse a cluster of which a worker is not as this machine."""
    try:
        client.wait_for_workers(1, timeout=scheduler.patience)
    except TimeoutError:
        raise GradingFailed(f"The scheduler at {scheduler.address} has no workers. Start some: dask worker.") from None
    faults = [
        f"{address} has {n_threads} threads; start it with --nthreads 1"
        for address, n_threads in client.nthreads().items()
        if n_threads != 1
    ]
    for address, found in client.run(_report, mark, on_error="return").items():
        fault = f"{type(found).__name__}: {found}" if isinstance(found, Exception) else None
        if fault := fault or _unfit(wanted, isolated, *found):
            faults.append(f"{address}: {fault}")
    if faults:
        more = [f"and {len(faults) - 5} more"] if len(faults) > 5 else []
        raise GradingFailed("\n  ".join(["Workers of the cluster are not fit to mark:", *faults[:5], *more]))


def _mark(task: Task, mark: str, wanted: dict[str, str], isolated: bool) -> Result | Failed:
    """On a worker: mark, unless the worker came later than the others and is not fit."""
    os.environ.update(serving.ONE_THREAD)
    if fault := _unfit(wanted, isolated, *_report(mark)):
        raise GradingFailed(f"A worker came that is not fit to mark: {fault}")
    return serving.attempt(pkgutil.resolve_name(mark), task)
