"""What a worker process does: mark what comes through a pipe, one submission after another.

Students' code never runs in this process: the function that marks puts it into a sandbox. This module imports next to
nothing, so that a worker is there at once.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pkgutil
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass

from classroom.grading.task import Result, Task

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


@dataclass(frozen=True)
class Failed:
    """Why a task has no result. It is never the student's doing, so the next run tries again."""

    reason: str


def serve(pipe, mark: str) -> None:
    """Mark what comes through the pipe until its other end is closed."""
    if hasattr(os, "setsid"):
        os.setsid()  # Ctrl-C is for the coordinating process; and a group of its own can be ended as a whole
        while signal.SIGINT in signal.sigpending():  # from before; it was held back until now
            signal.sigwait({signal.SIGINT})
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_end_with_coordinator, daemon=True).start()
    os.environ.update(ONE_THREAD)
    with contextlib.suppress(EOFError, OSError):  # the other end is closed
        try:
            function = pkgutil.resolve_name(mark)
        except Exception:
            pipe.send(Failed(traceback.format_exc()))
            return
        pipe.send(True)
        while True:
            pipe.send(attempt(function, pipe.recv()))
    if close := getattr(sys.modules.get(mark.partition(":")[0]), "close", None):
        close()


def _end_with_coordinator() -> None:
    """Wait for the coordinating process to be gone, however it ends; then end this one and all that it has started."""
    multiprocessing.parent_process().join()
    if hasattr(os, "killpg"):
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def attempt(function: Callable[[Task], Result], task: Task) -> Result | Failed:
    """What `function` makes of the task, or why nothing."""
    try:
        result = function(task)
    except (Exception, SystemExit) as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return Failed(f"marking raised {type(error).__name__}: {error} (line {place.lineno} of {place.name})")
    if not isinstance(result, Result):
        return Failed(f"marking gave a {type(result).__name__} where a Result was expected")
    return result
