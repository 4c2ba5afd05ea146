"""Local worker processes: each marks one submission after another, and none that dies takes another with it.

Why own code: the pools of `concurrent.futures` and loky give up as a whole when one worker dies, Pebble's workers
share one pipe and its lock, and Dask opens a port that anybody on the machine may send code to. Here each worker has a
pipe of its own. What a worker does stands in `serving`.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from multiprocessing.connection import wait

from classroom.grading.course import GradingFailed
from classroom.grading.serving import Failed, serve
from classroom.grading.task import Result, Task

N_TRIES = 2  # a task whose worker dies is given to another one once
GRACE = 120.0  # seconds beyond a submission's own limit, after which its worker hangs
N_STILLBORN = 5  # processes that end before they are ready, one after another
START = 300.0  # seconds for a worker to be ready
_SPAWN = multiprocessing.get_context("spawn")  # nothing of the coordinating process, its locks or files, goes along


def marked(tasks: Iterator[Task], mark: str, n_workers: int) -> Iterator[tuple[Task, Result | Failed]]:
    """Each task with what became of it, in the order in which they end.

    `mark` is "module:function" and is called in the workers. `tasks` is read only as workers become free.
    Raises `GradingFailed` if workers cannot be started at all. Whatever ends this iterator ends the workers.
    """
    crew = _Crew(tasks, mark)
    try:
        crew.hire(n_workers)
        yield from crew.outcomes()
        crew.dismiss()
    finally:
        crew.end()


class _Worker:
    """A process, the pipe to it, and what it is doing."""

    def __init__(self, mark: str):
        self.pipe, theirs = _SPAWN.Pipe()
        self.process = _SPAWN.Process(target=serve, args=(theirs, mark), name="marking")
        with _without_interrupts():
            self.process.start()
        theirs.close()  # now the only other end is the worker's, and when it dies this one says so
        self.is_ready = False
        self.task: Task | None = None
        self.n_tries = 0
        self.deadline = time.monotonic() + START

    def give(self, task: Task, n_tries: int) -> None:
        self.task, self.n_tries = task, n_tries
        self.deadline = time.monotonic() + task.limits.total_seconds + GRACE
        with contextlib.suppress(OSError):  # it has died: `received` will say so
            self.pipe.send(task)

    def received(self) -> Result | Failed | bool | None:
        """What it has sent, if anything; raises `EOFError` with the reason if nothing will come any more."""
        try:
            if self.pipe.poll():
                return self.pipe.recv()
        except (OSError, EOFError):
            raise EOFError("ended without a result (was there too little memory?)") from None
        if not self.process.is_alive():
            raise EOFError("ended without a result (was there too little memory?)")
        if time.monotonic() > self.deadline:
            raise EOFError("took far longer than any submission may")
        return None

    def end(self) -> None:
        """End it and everything that it has started."""
        self.pipe.close()
        with contextlib.suppress(OSError, AttributeError):  # no such group, or a system without groups
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()
        self.process.join()


class _Crew:
    """The workers, and the tasks that wait for them."""

    def __init__(self, tasks: Iterator[Task], mark: str):
        self.tasks, self.mark = tasks, mark
        self.has_more = True
        self.again: list[tuple[Task, int]] = []  # tasks whose worker has died, with the number of tries so far
        self.workers: list[_Worker] = []
        self.n_stillborn = 0

    def hire(self, n_workers: int) -> None:
        for _ in range(n_workers):
            self.workers.append(_Worker(self.mark))

    def outcomes(self) -> Iterator[tuple[Task, Result | Failed]]:
        while True:
            ended = [outcome for worker in list(self.workers) if (outcome := self.look_at(worker))]
            self.share_out()  # before the results are dealt with, which takes its time
            yield from ended
            if not (self.has_more or self.again or any(worker.task for worker in self.workers)):
                return
            wait([end for worker in self.workers for end in (worker.pipe, worker.process.sentinel)], timeout=1)

    def share_out(self) -> None:
        for worker in self.workers:
            if worker.is_ready and worker.task is None:
                task, n_tries = self.again.pop() if self.again else (next(self.tasks, None), 0)
                if task is None:
                    self.has_more = False
                    return
                worker.give(task, n_tries + 1)

    def look_at(self, worker: _Worker) -> tuple[Task, Result | Failed] | None:
        """The task that this worker has ended, if it has; another worker takes the place of a dead one."""
        try:
            message = worker.received()
        except EOFError as error:
            return self.replace(worker, str(error))
        if message is None:
            return None
        task, worker.task, worker.deadline = worker.task, None, float("inf")
        if worker.is_ready:
            return task, message
        if message is not True:
            raise GradingFailed(f"no process that marks can be started: {message.reason}")
        worker.is_ready, self.n_stillborn = True, 0
        return None

    def replace(self, worker: _Worker, why: str) -> tuple[Task, Failed] | None:
        self.n_stillborn += not worker.is_ready
        if self.n_stillborn > N_STILLBORN:
            raise GradingFailed(f"no process that marks can be started: each {why}.")
        worker.end()
        self.workers.remove(worker)
        if worker.task and worker.n_tries < N_TRIES:
            self.again.append((worker.task, worker.n_tries))
        if self.has_more or self.again:
            self.hire(1)
        if worker.task and worker.n_tries == N_TRIES:
            return worker.task, Failed(f"the process that marked it {why}; so did a second one")
        return None

    def dismiss(self) -> None:
        """Let the workers end by themselves."""
        for worker in self.workers:
            worker.pipe.close()
        for worker in self.workers:
            if worker.is_ready:
                wait([worker.process.sentinel], timeout=5)

    def end(self) -> None:
        for worker in self.workers:
            worker.end()


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """A process that is started in here does not hear Ctrl-C until it asks for it (`serving.serve`)."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
