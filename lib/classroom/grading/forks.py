"""Processes that start at once: forks of one that has imported what takes long.

`Forks` is the side of whoever wants them: it starts the warm process, and hands a request and open files to each fork.
The warm process has an environment of its own making, and imports what it is told; in the fork runs `become` of the
module that it was started for.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import socket
import subprocess
import sys

from classroom.grading import sandbox

READY, LARGEST = b"ready", 2**16
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    "HOME": sandbox.WORK,
    "MPLCONFIGDIR": f"{sandbox.WORK}/.matplotlib",
    "USER": "student",
    "LOGNAME": "student",
    "LANG": "C.UTF-8",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONIOENCODING": "utf-8",
    "PATH": "/usr/bin:/bin",
    "MALLOC_MMAP_THRESHOLD_": "65536",  # a tensor's memory goes back when it goes: what is held is what is counted
    "PYTHONPATH": str(sandbox.LIB),  # the same course as that of whoever starts it
}


class Forks:
    """A warm process. `entry`: the module whose `become(request, files)` runs in a fork and never returns."""

    def __init__(self, entry: str, modules: list[str], before: list[str] = ()):
        """`before` is put in front of the command line (a sandbox's). Raises `RuntimeError` if it does not start."""
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        variables = [part for pair in ENVIRONMENT.items() for part in ("--setenv", *pair)] if before else []
        number = theirs.fileno()
        self.process = subprocess.Popen(
            [
                *before,
                *variables,
                *(["--"] if before else []),
                sys.executable,
                "-P",
                "-m",
                __name__,
                entry,
                f"{number}",
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=[number],
            env=ENVIRONMENT,
        )
        theirs.close()
        self.socket.send(json.dumps(modules).encode())
        if self.socket.recv(LARGEST) != READY:
            said = self.process.stderr.read(2_000).decode(errors="replace").strip()
            self.close()
            raise RuntimeError(f"the process that {entry} is forked from did not start: {said}")

    def fork(self, request: dict, files: list[int]) -> int:
        """A new process with this request and these files; its number as the warm process counts."""
        socket.send_fds(self.socket, [json.dumps(request).encode()], files)
        answer = self.socket.recv(LARGEST)
        if not answer.isdigit():
            raise RuntimeError(f"no process could be forked: {answer.decode(errors='replace')}")
        return int(answer)

    def kill(self, process: int) -> None:
        """End a fork, if it is still there."""
        socket.send_fds(self.socket, [json.dumps({"kill": process}).encode()], [])
        self.socket.recv(LARGEST)

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def close(self) -> None:
        """End the warm process; its forks end by themselves when their files close."""
        self.socket.close()
        self.process.kill()
        self.process.wait()
        self.process.stderr.close()


def serve(entry: str, connection: socket.socket) -> None:
    """Import, then fork for each request, until the other end closes."""
    become = importlib.import_module(entry).become
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
        request = json.loads(data)
        if "kill" in request:
            if request["kill"] in children:
                os.kill(request["kill"], signal.SIGKILL)
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
            _run(become, request, files, writing)
        children.add(process)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
        os.close(writing)
        for file in files:
            os.close(file)
        with open(reading, "rb") as told:  # a student's process is a fork of the fork, and has a number of its own
            connection.send(told.read() or str(process).encode())


def _run(become, request: dict, files: list[int], told: int) -> None:
    try:
        become(request, files, told)
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
    serve(sys.argv[1], socket.socket(fileno=int(sys.argv[2])))
