"""A box for one submission: bubblewrap builds it, and a warm process steps into it.

Inside there is no network, no file of the course but its two packages without checks and grading, a read-only system,
and a small scratch space. Every process of a box ends with it. bubblewrap starts a program that only waits; what runs
the student's code is a fork of a process that has imported torch, which joins the box's namespaces (setns(2)), gives
up every right, has its system calls filtered (`seccomp`), and bounds itself (setrlimit(2)). The sum over its processes
is watched from outside (`Box.memory`).
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
import json
import os
import shutil
import signal
import site
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
    import resource
except ModuleNotFoundError:  # Windows, where there are no boxes
    fcntl = resource = None

from classroom.grading import seccomp
from classroom.grading.task import MB, Limits

LIB = Path(__file__).resolve().parents[2]
WORK = "/tmp/work"  # the student's folder in the box
HIDDEN = ("classroom/checks", "classroom/grading")  # of the course's packages, what a student's process must not read
MOST_FILES = 20_000  # in the scratch space
THROWAWAY = 61_000  # the first of the user numbers that boxes get where the grader is root
MISSING = (
    "Nothing isolates the submissions from this machine. Install bubblewrap (Debian, Ubuntu: apt install bubblewrap; "
    "Fedora: dnf install bubblewrap), or grade in the container that the page for instructors describes."
)
_CLONE = {"user": 0x10000000, "mnt": 0x00020000, "uts": 0x04000000, "ipc": 0x08000000, "net": 0x40000000,
          "cgroup": 0x02000000, "pid": 0x20000000}  # fmt: skip
_REMOUNT = 32 | 4 | 2  # MS_REMOUNT, MS_NODEV, MS_NOSUID of mount(2)
_NS_GET_USERNS = 0xB701  # ioctl_ns(2)
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS, _PR_CAPBSET_DROP = 1, 38, 24


class NoSandbox(RuntimeError):
    """bubblewrap is missing, or does not work here; the message says what to do."""


@functools.cache
def why_not() -> str | None:
    """None if boxes work on this machine; otherwise what is missing, and what to do."""
    if sys.platform != "linux" or shutil.which("bwrap") is None:
        return MISSING
    for place, there in _read_in_boxes() if os.geteuid() == 0 else ():
        if not there.stat().st_mode & stat.S_IROTH:
            return f"Submissions run as another user, who may not read {there}. Run: chmod -R o+rX {place}"
    try:
        Box(Limits(), 0).close()
    except (NoSandbox, OSError) as error:
        return (
            f"bubblewrap is there, but makes no box: {error}. Does this system let you have user namespaces? If not, "
            "grade in the container that the page for instructors describes."
        )
    return None


def command(limits: Limits, *, is_open: bool = False) -> list[str]:
    """bubblewrap's command line, without the program. An open box has the whole of the two packages."""
    argv = ["bwrap", "--unshare-ipc", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try", "--unshare-pid"]
    argv += ["--die-with-parent", "--new-session", "--hostname", "exercise", "--clearenv"]
    if os.geteuid() != 0:
        argv += ["--unshare-user"]
    for place in ("/usr", "/etc/ld.so.cache", "/etc/localtime", "/etc/alternatives", "/etc/fonts"):
        if os.path.exists(place):
            argv += ["--ro-bind", place, place]
    for place in ("/bin", "/lib", "/lib64", "/lib32"):
        if os.path.islink(place):
            argv += ["--symlink", os.readlink(place), place]
        elif os.path.isdir(place):
            argv += ["--ro-bind", place, place]
    # a shared mapping of /dev/zero is memory that no file bounds and no process is charged for
    argv += ["--proc", "/proc", "--dev", "/dev", "--dev-bind", "/dev/null", "/dev/zero"]
    argv += ["--perms", "1777", "--size", f"{limits.disk_bytes // 4}", "--tmpfs", "/dev/shm"]
    argv += ["--perms", "1777", "--size", f"{limits.disk_bytes}", "--tmpfs", "/tmp", "--perms", "0777", "--dir", WORK]
    # after /tmp, in which all of this may lie
    for place in sorted(_pythons()):
        argv += [*_folders_above(Path(place)), "--ro-bind", place, place]
    for package in ("plainformer", "classroom"):
        argv += [*_folders_above(LIB / package), "--ro-bind", f"{LIB / package}", f"{LIB / package}"]
    for place in HIDDEN * (not is_open):
        argv += ["--size", "4096", "--tmpfs", f"{LIB / place}", "--remount-ro", f"{LIB / place}"]
    return [*argv, "--remount-ro", "/dev", "--remount-ro", "/proc", "--remount-ro", "/", "--chdir", "/tmp"]


class Box:
    """One box, empty. `number` tells boxes apart that stand at the same time: each has a user of its own under root."""

    def __init__(self, limits: Limits, number: int, *, is_open: bool = False):
        self.limits = limits
        self.user = THROWAWAY + number if os.geteuid() == 0 else None
        self.first = None
        reading, writing = os.pipe()
        try:
            self.process = subprocess.Popen(
                [*command(limits, is_open=is_open), "--info-fd", f"{writing}", "--", "/bin/cat"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=[writing],
                env={
                    "PATH": os.environ.get("PATH", os.defpath)
                },  # process 1 of the box keeps its own, to be read there
            )
        finally:
            os.close(writing)
        with open(reading, encoding="utf-8") as info:
            text = info.read()
        self.process.stdin.write(b"?")  # cat answers when the box is ready
        try:
            self.process.stdin.flush()
            ready = self.process.stdout.read(1) == b"?"
        except OSError:
            ready = False
        if not ready:
            said = self.process.stderr.read(1_000).decode(errors="replace").strip()
            self.close()
            raise NoSandbox(said or "it ended at once")
        self.first = json.loads(text)["child-pid"]  # the box's process 1, as this side counts
        self.pid_namespace = os.readlink(f"/proc/{self.first}/ns/pid")

    def memory(self) -> int:
        """Bytes that the processes of the box hold, without pages of files. What forks share is counted for each."""
        return sum(map(_held, self.processes()))

    def exceeds(self, most: int) -> bool:
        """Whether the processes of the box hold more than `most` bytes, what forks share being shared out."""
        return self.memory() > most and sum(map(_held_in_shares, self.processes())) > most

    def processes(self) -> list[str]:
        """The numbers of the box's processes, as this side counts."""
        found = []
        for entry in os.scandir("/proc"):
            with contextlib.suppress(OSError):  # it ended meanwhile
                if entry.name.isdigit() and os.readlink(f"/proc/{entry.name}/ns/pid") == self.pid_namespace:
                    found.append(entry.name)
        return found

    def close(self) -> None:
        """End every process of the box, and wait until they are gone."""
        if self.first and self.process.poll() is None:
            os.kill(self.first, signal.SIGKILL)  # the kernel ends the rest of the box, and bwrap itself
            with contextlib.suppress(subprocess.TimeoutExpired):  # then somebody has not waited for a child of theirs
                self.process.wait(5)
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            with contextlib.suppress(BrokenPipeError):  # what bwrap never read
                stream.close()


def enter(first: int, user: int | None) -> int:
    """Step into a box as a new process; returns its number to the process that stays outside, and 0 inside.

    What the new process and those it starts may use, it bounds itself (`bound`). The calling process must have one
    thread, and nothing open that the student's code may not have.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    spaces = {name: os.open(f"/proc/{first}/ns/{name}", os.O_RDONLY) for name in _CLONE}
    if user is None:  # bubblewrap makes one user namespace in another, and the outer one owns the box
        _join(libc, fcntl.ioctl(spaces["mnt"], _NS_GET_USERNS), "user")
    for name in ("cgroup", "uts", "ipc", "net", "pid", "mnt"):
        _join(libc, spaces[name], name)
    for place in ("/tmp", "/dev/shm"):  # an empty file takes no space, but memory of the kernel
        if libc.mount(None, place.encode(), None, _REMOUNT, f"nr_inodes={MOST_FILES}".encode()):
            raise OSError(ctypes.get_errno(), f"the number of files in {place} could not be bounded")
    os.chdir(WORK)
    if process := os.fork():
        return process
    os.setsid()
    os.umask(0o077)
    for capability in range(64):
        libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)  # fails above the last one there is
    if user is None:
        if not os.path.samestat(os.fstat(spaces["user"]), os.stat("/proc/self/ns/user")):
            _join(libc, spaces["user"], "user")
    else:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    _give_up_rights(libc)
    seccomp.install(libc)
    return 0


def _join(libc: ctypes.CDLL, space: int, name: str) -> None:
    if libc.setns(space, _CLONE[name]) and name != "cgroup":
        raise OSError(ctypes.get_errno(), f"setns to the box's {name} namespace failed")


def bound(limits: Limits) -> None:
    """Bound this process and those it starts."""
    seconds = int(limits.total_seconds) + 1
    for what, most in (
        (resource.RLIMIT_AS, limits.memory_bytes + 4096 * MB),  # addresses, not memory: torch reserves many
        (resource.RLIMIT_DATA, limits.memory_bytes),
        (resource.RLIMIT_NPROC, limits.n_processes),
        (resource.RLIMIT_NOFILE, limits.n_files),
        (resource.RLIMIT_FSIZE, limits.disk_bytes),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_STACK, 8 * MB),
    ):
        hard = resource.getrlimit(what)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (most, most))


def die_with(parent: int) -> None:
    """Have the kernel end this process when `parent`, which started it, ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, 9, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Be the parent of the grandchildren whose parents have ended."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _give_up_rights(libc: ctypes.CDLL) -> None:
    """No capability now, and none by a later exec."""

    class Header(ctypes.Structure):
        _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]

    none = (ctypes.c_uint32 * 6)()
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.capset(ctypes.byref(Header(0x20080522, 0)), none):
        raise OSError(ctypes.get_errno(), "the process could not give up its rights")


def _held(process: str) -> int:
    try:
        _, resident, of_files, *_ = Path(f"/proc/{process}/statm").read_text().split()
    except (OSError, ValueError):  # it ended meanwhile
        return 0
    return (int(resident) - int(of_files)) * os.sysconf("SC_PAGE_SIZE")


def _held_in_shares(process: str) -> int:
    """Bytes of a process, of a page that n processes share the nth part; this takes milliseconds."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return _held(process)
    found = [int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss_Anon:")]  # since Linux 5.9
    return found[0] if found else _held(process)


def _folders_above(place: Path) -> list[str]:
    """Options that make these folders, open to every user: the box has none of what else is in them."""
    return [part for folder in reversed(place.parents[:-1]) for part in ("--perms", "0755", "--dir", str(folder))]


def _read_in_boxes() -> Iterator[tuple[Path, Path]]:
    """Files of packages that are imported in boxes, and the folders above them: (what is bound into a box, such)."""
    packages = [LIB / "plainformer", LIB / "classroom"]
    bound = [*packages, *map(Path, sorted(_pythons()))]
    modules = filter(None, map(importlib.util.find_spec, ("msgpack", "numpy", "torch")))
    for file in [*(place / "__init__.py" for place in packages), *(Path(module.origin) for module in modules)]:
        for place in (place for place in bound if file.is_relative_to(place)):
            yield from ((place, there) for there in (file, *file.parents) if there.is_relative_to(place))


def _pythons() -> set[str]:
    """The folders that this Python needs, as far as they are outside /usr."""
    places = {sys.prefix, sys.base_prefix, *site.getsitepackages(), os.path.dirname(os.path.realpath(sys.executable))}
    places |= {os.path.realpath(place) for place in places}
    found = {place for place in places if os.path.isdir(place) and not place.startswith("/usr/")}
    return {place for place in found if not any(place.startswith(other + "/") for other in found)} - {"/usr", "/"}
