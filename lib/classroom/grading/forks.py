"""Processes that start at once: forks of one that has imported what takes long.

`Forks` is the side of whoever wants them. The warm process has an environment of its own making, and imports what it is
told; in a fork runs `become` of the module that is asked for. One of its forks may step into a box, import more, and be
a warm process itself (`Forks.branch`).
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable

from classroom.grading import sandbox
from classroom.grading.sandbox import Box

READY, KILL, LARGEST = b"ready", "kill", 2**16
START, PATIENCE = 240.0, 60.0  # seconds for a warm process to import, and for its answer
GONE = 10.0  # seconds for a process that was ended to be gone
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    "USER": "student",
    "LOGNAME": "student",
    "LANG": "C.UTF-8",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONIOENCODING": "utf-8",
    "PATH": "/usr/bin:/bin",
    "MALLOC_MMAP_THRESHOLD_": "65536",  # a tensor's memory goes back when it goes: what is held is what is counted
    "PYTHONPATH": str(sandbox.LIB),  # the same course as that of whoever starts it
    "PYTHONNOUSERSITE": "1",  # what users have installed for themselves is no part of the course
}


def at_home(folder: str) -> dict[str, str]:
    """The variables that say where a process's own settings lie."""
    return {"HOME": folder, "MPLCONFIGDIR": f"{folder}/.matplotlib"}


class Forks:
    """A warm process. `connection` leads to it, `end` ends it."""

    def __init__(self, connection: socket.socket, modules: list[str], end: Callable[[], str]):
        """Has it import `modules`. Raises `RuntimeError` with what `end` says if it does not come so far."""
        self.connection, self.end = connection, end
        try:
            self.connection.settimeout(START)
            self.connection.send(json.dumps(modules).encode())
            is_ready = self.connection.recv(LARGEST) == READY
            self.connection.settimeout(PATIENCE)
        except OSError:
            is_ready = False
        if not is_ready:
            raise RuntimeError(f"the process that others are forked from did not start: {self.close()}")

    @classmethod
    def start(cls, modules: list[str]) -> Forks:
        """A warm process that ends with this one."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        home = tempfile.TemporaryDirectory(prefix="warm-")  # of nobody else: it is outside of any box
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__, f"{theirs.fileno()}"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
                env=ENVIRONMENT | at_home(home.name),
            )

        def end() -> str:
            process.kill()
            try:
                return process.communicate(timeout=GONE)[1][:2_000].decode(errors="replace").strip()
            except subprocess.TimeoutExpired:  # a fork of it is there yet, and has its error stream
                return "it did not end"
            finally:
                home.cleanup()

        return cls(ours, modules, end)

    def branch(self, modules: list[str], box: Box | None) -> Forks:
        """A fork that steps into `box`, if there is one, imports `modules` too, and is a warm process with forks."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        request = {"first": box and box.first, "user": box and box.user}
        try:
            process = self.fork(__name__, request, [theirs.fileno()])
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()

        def end() -> str:
            if box:
                box.close()
            elif self.is_alive:
                self.kill(process)
            return "it is a fork of another one"

        return Forks(ours, modules, end)

    def fork(self, entry: str, request: dict, files: list[int]) -> int:
        """A new process, in which `become(request, files, told)` of the module `entry` runs and never returns.

        Returns its number, as the warm process counts. Raises `RuntimeError` if there is none.
        """
        try:
            socket.send_fds(self.connection, [json.dumps([entry, request]).encode()], files)
            answer = self.connection.recv(LARGEST)
        except TimeoutError:
            self.close()  # what it may answer yet is no answer to the next request
            raise RuntimeError(f"the process to fork from has been silent for {PATIENCE:.0f} seconds") from None
        if not answer.isdigit():
            raise RuntimeError(f"no process could be forked: {answer.decode(errors='replace')}")
        return int(answer)

    def kill(self, process: int) -> None:
        """End a fork, if it is still there."""
        with contextlib.suppress(OSError):  # then it has gone with the warm process
            self.connection.send(json.dumps([KILL, process]).encode())
            self.connection.recv(LARGEST)

    @property
    def is_alive(self) -> bool:
        """Between two requests nothing comes from it but the end of the line."""
        return self.connection.fileno() >= 0 and not select.select([self.connection], [], [], 0)[0]

    def close(self) -> str:
        """End the warm process, and say what it has left to say; its forks end when their own files close."""
        self.connection.close()
        return self.end()


def become(request: dict, files: list[int], told: int) -> None:
    """Be a warm process, in a box if the request names one."""
    if request["first"] is not None:
        step_in(request, told)
    os.close(told)
    serve(socket.socket(fileno=files[0]))


def step_in(request: dict, told: int) -> None:
    """Go on in the box that the request names: as a process of its own, whose number is told, at home in there."""
    if process := sandbox.enter(request["first"], request["user"]):
        os.write(told, str(process).encode())
        os._exit(0)
    os.environ.update(at_home(sandbox.WORK))


def serve(connection: socket.socket) -> None:
    """Import, then fork for each request, until the other end closes."""
    for name in json.loads(connection.recv(LARGEST)):
        try:
            importlib.import_module(name)
        except Exception:  # the notebook will say so, where it asks for it
            continue
    children: set[int] = set()
    sandbox.adopt_orphans()  # a student's process is one; its box is there until somebody has waited for it
    signal.signal(signal.SIGCHLD, lambda *_: _reap(children))
    connection.send(READY)
    while True:
        data, files, _, _ = socket.recv_fds(connection, LARGEST, 8)
        if not data:
            os._exit(0)  # without taking torch down piece by piece
        entry, request = json.loads(data)
        if entry == KILL:
            if request in children:
                os.kill(request, signal.SIGKILL)
            connection.send(b"done")
            continue
        reading, writing = os.pipe()
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])  # until it is known as a child
        process = os.fork()
        if process == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
            os.close(reading)
            connection.close()
            _run(entry, request, files, writing)
        children.add(process)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
        os.close(writing)
        for file in files:
            os.close(file)
        with open(reading, "rb") as told:  # a student's process is a fork of the fork, and has a number of its own
            connection.send(told.read() or str(process).encode())


def _run(entry: str, request: dict, files: list[int], told: int) -> None:
    try:
        importlib.import_module(entry).become(request, files, told)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.write(told, f"{type(error).__name__}: {error}".encode()[:1_000])
    os._exit(1)


def _reap(children: set[int]) -> None:
    """Wait for whatever has ended."""
    try:
        while process := os.waitpid(-1, os.WNOHANG)[0]:
            children.discard(process)
    except ChildProcessError:
        pass


if __name__ == "__main__":
    sandbox.die_with(os.getppid())
    serve(socket.socket(fileno=int(sys.argv[1])))
