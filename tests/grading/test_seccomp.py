"""The filter of system calls, read as the kernel reads it."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys

import pytest

from classroom.grading import seccomp

ALLOWED, REFUSED, UNKNOWN = 0x7FFF0000, 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS
MACHINES = list(seccomp._MACHINES)


def verdict(machine: str, call: int, *arguments: int, architecture: int | None = None) -> int:
    """What the filter says of one system call."""
    _, own = seccomp._MACHINES[machine]
    words = {0: call, 4: own if architecture is None else architecture}
    words |= {
        16 + 8 * place: value & 0xFFFFFFFF for place, value in enumerate([*arguments, *[0] * (6 - len(arguments))])
    }
    lines, place, held = seccomp.program(machine), 0, 0
    while True:
        code, yes, no, k = lines[place]
        place += 1
        if code == seccomp._LOAD:
            held = words[k]
        elif code == seccomp._AND:
            held &= k
        elif code == seccomp._RETURN:
            return k
        else:
            place += yes if (held == k if code == seccomp._EQUAL else held >= k) else no


@pytest.mark.parametrize("machine", MACHINES)
def test_what_is_listed_is_refused_and_ordinary_calls_are_not(machine):
    which, _ = seccomp._MACHINES[machine]
    for pair in seccomp._NUMBERS.values():
        assert verdict(machine, pair[which]) == REFUSED
    read, write, openat, execve = ((0, 1, 257, 59), (63, 64, 56, 221))[which]
    for call in (read, write, openat, execve):
        assert verdict(machine, call, 3, 4, 5, 0x21) == ALLOWED


@pytest.mark.parametrize("machine", MACHINES)
def test_processes_and_threads_may_be_made_but_no_namespace(machine):
    which, _ = seccomp._MACHINES[machine]
    fork, thread, new_user, new_mounts = 0x01200011, 0x003D0F00, 0x10000011, 0x00020011
    assert verdict(machine, seccomp._CLONE[which], fork) == verdict(machine, seccomp._CLONE[which], thread) == ALLOWED
    assert (
        verdict(machine, seccomp._CLONE[which], new_user)
        == verdict(machine, seccomp._CLONE[which], new_mounts)
        == REFUSED
    )
    assert verdict(machine, seccomp._CLONE3[which]) == UNKNOWN


@pytest.mark.parametrize("machine", MACHINES)
def test_memory_may_be_private_or_a_files_but_not_shared_without_one(machine):
    which, _ = seccomp._MACHINES[machine]
    private, of_a_file, shared, shared_at_once = 0x22, 0x01, 0x21, 0x8021
    for flags, expected in ((private, ALLOWED), (of_a_file, ALLOWED), (shared, REFUSED), (shared_at_once, REFUSED)):
        assert verdict(machine, seccomp._MMAP[which], 0, 4096, 3, flags) == expected


@pytest.mark.parametrize("machine", MACHINES)
def test_sockets_are_of_the_families_that_a_network_of_ones_own_bounds(machine):
    which, _ = seccomp._MACHINES[machine]
    for call in (pair[which] for pair in seccomp._SOCKETS):
        allowed = {family for family in range(64) if verdict(machine, call, family, 3, 0) == ALLOWED}
        assert allowed == {socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK}
        routes, events_of_the_kernel = 0, 15
        assert verdict(machine, call, socket.AF_NETLINK, 3, routes) == ALLOWED
        assert verdict(machine, call, socket.AF_NETLINK, 3, events_of_the_kernel) == REFUSED


@pytest.mark.parametrize("machine", MACHINES)
def test_another_numbering_is_refused(machine):
    assert verdict(machine, 0, architecture=0x40000003) == REFUSED
    assert verdict(machine, 0x40000000) == REFUSED


def test_a_machine_that_is_not_known_has_no_filter():
    assert seccomp.program("abacus") == []


@pytest.mark.skipif(sys.platform != "linux" or os.uname().machine not in MACHINES, reason="the filter is Linux's")
def test_the_kernel_takes_it():
    code = (
        "import ctypes, mmap, os, sys\nfrom classroom.grading import seccomp\n"
        "libc = ctypes.CDLL(None, use_errno=True)\nlibc.prctl(38, 1, 0, 0, 0)\nseccomp.install(libc)\n"
        "for refused in (lambda: os.memfd_create('x'), lambda: mmap.mmap(-1, 4096)):\n"
        "    try:\n        refused()\n    except PermissionError:\n        continue\n    sys.exit('allowed')\n"
        "process = os.fork()\nif process == 0: os._exit(7)\nprint(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("7\n", "")
