"""Kernels that start at once: for each, a process that has imported torch long ago forks.

nbgrader starts a kernel per submission, and importing torch takes most of the time of a small one. Inside `kernels()`
the kernelspec `python3` names this file instead of ipykernel. What is started by it asks the warm process for a fork,
passes signals on to it, and lives as long. Without `os.fork`, or where it is not safe, kernels start as always.
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
import threading
from collections.abc import Iterator
from pathlib import Path

# what every exercise imports; no module of checks, which would count its checks in every notebook
IMPORTED = ("torch", "plainformer.model", "plainformer.training", "classroom.checks.expect", "ipykernel.kernelapp")


@contextlib.contextmanager
def kernels() -> Iterator[None]:
    """In here, every kernel called `python3` that this process starts is a fork."""
    if sys.platform != "linux":
        yield
        return
    with tempfile.TemporaryDirectory(prefix="kernels-") as folder:
        address = str(Path(folder, "socket"))
        argv = [sys.executable, "-I", "-S", __file__, address, "-f", "{connection_file}"]
        spec = Path(folder, "kernels", "python3", "kernel.json")
        spec.parent.mkdir(parents=True)
        spec.write_text(json.dumps({"argv": argv, "display_name": "Python 3", "language": "python"}), encoding="utf-8")
        before = os.environ.get("JUPYTER_PATH")
        threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        server = subprocess.Popen(
            [sys.executable, "-P", "-m", "classroom.grading.warm", address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **threads},
        )
        try:
            if server.stdout.readline() != b"ready\n":
                raise RuntimeError("the process that kernels are forked from did not start")
            os.environ["JUPYTER_PATH"] = os.pathsep.join(filter(None, (folder, before)))
            yield
        finally:
            if before is None:
                os.environ.pop("JUPYTER_PATH", None)
            else:
                os.environ["JUPYTER_PATH"] = before
            server.stdin.close()  # the end of its input ends it
            server.wait()
            server.stdout.close()


def serve(address: str) -> None:
    """Import, then fork a kernel for each connection, until the input ends."""
    for name in IMPORTED:
        importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the kernels
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(address)
        server.listen()
        print("ready", flush=True)
        while server in select.select([server, sys.stdin], [], [])[0]:
            connection, _ = server.accept()
            if os.fork() == 0:
                server.close()
                become_kernel(connection)
            connection.close()
    os._exit(0)  # without taking torch down piece by piece


def become_kernel(connection: socket.socket) -> None:
    """Be the kernel that the other end asks for; never returns."""
    from ipykernel.kernelapp import IPKernelApp

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    with open(os.devnull, "r+b", buffering=0) as nothing:
        for standard in range(3):
            os.dup2(nothing.fileno(), standard)
    with connection.makefile("rb") as request:
        folder, environment, arguments = json.loads(request.readline())
    environment.pop("JPY_PARENT_PID", None)  # ipykernel would miss it among its parents; `leave` watches instead
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    connection.sendall(f"{os.getpid()}\n".encode())

    def leave() -> None:
        connection.recv(1)
        os._exit(0)

    threading.Thread(target=leave, daemon=True).start()
    sys.argv = ["ipykernel_launcher", *arguments]
    IPKernelApp.launch_instance(argv=arguments)
    os._exit(0)


def ask(address: str, arguments: list[str]) -> None:
    """Be, for whoever started this process, the kernel that the warm one forks."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        connection.sendall(json.dumps([os.getcwd(), dict(os.environ), arguments]).encode() + b"\n")
        with connection.makefile("rb") as answer:
            kernel = int(answer.readline())
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda got, _: os.kill(kernel, got))
        connection.recv(1)  # returns when the kernel ends, since it holds the other end


if __name__ == "__main__":
    serve(sys.argv[1]) if len(sys.argv) == 2 else ask(sys.argv[1], sys.argv[2:])
