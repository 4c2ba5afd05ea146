"""Attacks on the machine: time, memory, disk, processes, files and the network, from a cell of the student's own."""

from __future__ import annotations

from classroom.grading.demo_class.hostile import Attack

_TRY = """
import ctypes, errno, os, resource, signal, socket, subprocess, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
def attempt(what, action):
    try:
        result = action()
    except BaseException as error:
        return error
    print("ESCAPED", what, repr(result)[:100])
def works(number, *arguments):
    if libc.syscall(number, *arguments) < 0:
        raise OSError(ctypes.get_errno(), "refused")
"""


def _tries(name: str, tries: str, *lines: str) -> Attack:
    """Lines in which whatever works prints that it did."""
    return Attack(name, tries, _TRY + "\n".join(lines))


ATTACKS = (
    # ---- the end of a process ----
    Attack("exit in a cell", "an end without an error", "import sys\nsys.exit(0)"),
    Attack("os._exit in a cell", "an end without a word", "import os\nos._exit(0)"),
    Attack("crash", "a segmentation fault", "import ctypes\nctypes.string_at(0)"),
    Attack(
        "stack overflow",
        "a recursion in C without end",
        "import sys\nsys.setrecursionlimit(10**9)\nvalue = []\nfor _ in range(10**6):\n    value = [value]\n"
        "repr(value)\n"
        "f = lambda: f()\nf()",
    ),
    _tries(
        "others killed",
        "the parent, the first process, all processes, and one outside",
        "for number in (os.getppid(), 1, @PROCESS@):\n    try:\n        os.kill(number, signal.SIGKILL)\n"
        "    except OSError:\n        pass",
        "os.kill(-1, signal.SIGKILL)",
    ),
    # ---- time ----
    Attack("endless loop", "a cell that never ends", "while True: pass"),
    Attack(
        "loop that swallows interrupts",
        "a cell that cannot be interrupted",
        "while True:\n    try:\n        while True: sum(range(10**5))\n    except BaseException: pass",
    ),
    Attack("loop inside C", "a power without end", "9 ** 9 ** 9 ** 9"),
    Attack("regex without end", "a pattern that backtracks", "import re\nre.match('(a+)+$', 'a' * 60 + 'b')"),
    Attack(
        "torch without end",
        "one operation of torch that takes minutes",
        "x = torch.rand(4000, 4000)\nfor _ in range(999): x @ x",
    ),
    Attack(
        "sleep with signals ignored",
        "a cell that waits for ever",
        "import signal, time\nfor number in (2, 15, 1, 3):\n    signal.signal(number, signal.SIG_IGN)\n"
        "time.sleep(10**6)",
    ),
    # ---- memory and processes ----
    Attack(
        "fifty gigabytes",
        "more memory than there is",
        "x = torch.ones(50 * 2**30, dtype=torch.uint8)\nb = bytearray(50 * 2**30)",
    ),
    Attack(
        "slow leak",
        "memory piece by piece",
        "import time\nkept = []\nwhile True:\n    kept.append(b'x' * (20 * 2**20))\n    time.sleep(0.01)",
    ),
    Attack(
        "memory in many processes",
        "each below the limit, together far above it",
        "import os, time\nfor _ in range(40):\n    if os.fork() == 0:\n        kept = b'x' * (200 * 2**20)\n"
        "        time.sleep(60)\n        os._exit(0)\ntime.sleep(60)",
    ),
    _tries(
        "memory that nobody is charged for",
        "shared mappings, files without a name, and segments that stay",
        "import mmap",
        "attempt('shared mapping', lambda: mmap.mmap(-1, 2**20))",
        "attempt('memfd', lambda: os.memfd_create('x'))",
        "attempt('segment', lambda: works(29, 0, 2**20, 0o1600))",
        "attempt('/dev/zero', lambda: mmap.mmap(os.open('/dev/zero', os.O_RDWR), 2**20))",
    ),
    Attack(
        "fork bomb",
        "processes without end",
        "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass",
    ),
    Attack(
        "thread bomb",
        "threads without end",
        "import threading, time\nwhile True:\n    threading.Thread(target=time.sleep, args=(99,), daemon=True).start()",
    ),
    Attack(
        "daemon",
        "a process that outlives the run",
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork():\n        os._exit(0)\n"
        "    os.closerange(0, 256)\n    while True: time.sleep(1)",
    ),
    Attack(
        "orphan that holds the line",
        "an end of the process, while another keeps its connection open",
        "import os, time\nif os.fork() == 0:\n    time.sleep(99)\nos._exit(0)",
    ),
    # ---- disk and output ----
    Attack(
        "disk flood", "one file without end", "with open('flood', 'wb') as f:\n    while True: f.write(b'x' * 2**20)"
    ),
    Attack(
        "many files flood",
        "files without end, and none of them with a byte",
        "import itertools, os\nfor n in itertools.count():\n    os.close(os.open(f'/tmp/{n}', os.O_CREAT))\n"
        "    if n > 100_000: print('ESCAPED')",
    ),
    Attack(
        "shared memory flood",
        "files in /dev/shm without end",
        "with open('/dev/shm/f', 'wb') as f:\n    while True: f.write(b'x' * 2**20)",
    ),
    Attack("print flood", "output without end", "while True: print('x' * 10_000)"),
    Attack("stderr flood", "errors without end", "import sys\nwhile True: print('x' * 10_000, file=sys.stderr)"),
    Attack("flood of the first file", "output past Python's own", "import os\nwhile True: os.write(1, b'x' * 65536)"),
    Attack("display flood", "pictures and results without end", "while True: display('x' * 1000)"),
    Attack(
        "many tracebacks",
        "shown errors without end",
        "while True:\n    get_ipython().showtraceback((ValueError, ValueError('x' * 9999), None))",
    ),
    Attack(
        "huge representation",
        "a result that fills the memory when shown",
        "class R:\n    __repr__ = lambda self: 'x' * 10**9\nR()",
    ),
    Attack("huge exception", "an error with a text of a gigabyte", "raise ValueError('x' * 10**9)"),
    # ---- files, rights and the network ----
    _tries(
        "files outside written",
        "the gradebook, other folders, and links to them",
        "for name in ('gradebook.db', 'submitted/other.ipynb', 'new'):",
        "    attempt('written', lambda: open('@CANARY@/' + name, 'ab').write(b'x'))",
        "    attempt('removed', lambda: os.remove('@CANARY@/' + name))",
        "attempt('linked', lambda: os.link('@CANARY@/gradebook.db', 'here'))",
        "os.symlink('@CANARY@/gradebook.db', 'soft')",
        "attempt('written through a link', lambda: open('soft', 'r+b').write(b'x'))",
        "attempt('made public', lambda: os.chmod('/proc/1/root@CANARY@', 0o777))",
        "for place in ('/usr/x', '/etc/x', '/x', '/dev/x', sys.prefix + '/x', os.__file__, torch.__file__):",
        "    attempt(place, lambda: open(place, 'ab'))",
    ),
    _tries(
        "kernel settings written",
        "/proc/sys, /sys and what the kernel shows of itself",
        "for place in ('/proc/sys/kernel/hostname', '/proc/sysrq-trigger', '/sys/kernel/mm/ksm/run', "
        "              '/proc/1/mem', '/dev/mem', '/dev/kmsg', '/proc/kcore', '/sys/fs/cgroup/cgroup.procs'):",
        "    attempt(place, lambda: open(place, 'r+b', buffering=0).write(b'1'))",
    ),
    _tries(
        "namespaces and mounts",
        "rights of one's own in new namespaces",
        "for flag in (0x10000000, 0x20000, 0x40000000, 0x20000000, 0x08000000):",
        "    attempt('unshare', lambda: works(272, flag))",
        "    attempt('clone', lambda: works(56, flag | 17, 0, 0, 0, 0))",
        "attempt('mount', lambda: works(165, b'x', b'/tmp', b'tmpfs', 0, None))",
        "attempt('chroot', lambda: os.chroot('/tmp'))",
        "attempt('setuid', lambda: os.setuid(0))",
        "attempt('nice', lambda: os.setpriority(os.PRIO_PROCESS, 0, -5))",
        "attempt('limits', lambda: resource.setrlimit(resource.RLIMIT_NPROC, (9999, 9999)))",
    ),
    _tries(
        "setuid programs",
        "programs that give rights, and one of one's own",
        "import shutil",
        "for name in ('su', 'sudo', 'mount', 'passwd', 'bwrap', 'unshare', 'newuidmap'):",
        "    path = shutil.which(name)",
        "    for given in ([], ['--map-root-user', 'id']):",
        "        if path and name in ('su', 'unshare', 'bwrap'):",
        "            done = subprocess.run([path, *given, '-c', 'id'], input=b'', capture_output=True, timeout=2)",
        "            if b'uid=0' in done.stdout: print('ESCAPED', name)",
        "shutil.copy('/bin/sh', 'sh')",
        "os.chmod('sh', 0o6755)",
        "if b'uid=0' in subprocess.run(['./sh', '-p', '-c', 'id'], capture_output=True).stdout: print('ESCAPED')",
    ),
    _tries(
        "other processes traced",
        "ptrace, memory of others, and their open files",
        "for number in (1, os.getppid(), @PROCESS@):",
        "    attempt('ptrace', lambda: works(101, 16, number, 0, 0))",
        "    attempt('files', lambda: os.listdir(f'/proc/{number}/fd') and number > 2 or 1 / 0)",
        "attempt('foreign process', lambda: os.kill(@PROCESS@, 0))",
    ),
    _tries(
        "things left open",
        "files and shared memory of the process that this one was forked from",
        "for number in os.listdir('/proc/self/fd'):",
        "    try:",
        "        target = os.readlink(f'/proc/self/fd/{number}')",
        "    except OSError:",
        "        continue  # the folder that was listed",
        "    if target != '/dev/null' and int(number) != sys.meta_path[0].peer.connection.fileno():",
        "        print('ESCAPED', number, target)",
        "for mapping in open('/proc/self/maps'):",
        "    if mapping.split()[1] in ('rw-s', 'rwxs'): print('ESCAPED', mapping)",
        "for name, value in os.environ.items():",
        "    if '@PORT@' in value or name.startswith(('PYTEST', 'SSH', 'AWS', 'JUPYTER')): print('ESCAPED', name)",
    ),
    _tries(
        "keys of the kernel",
        "a message to the next submission of the same user",
        "attempt('left', lambda: works(248, b'user', b'note', b'answer', 6, -4))",
        "attempt('found', lambda: works(249, b'user', b'note', None, -4))",
    ),
    _tries(
        "network",
        "this machine's ports and sockets, names, and the world",
        "attempt('port', lambda: socket.create_connection(('127.0.0.1', @PORT@), 1))",
        "def abstract():",
        "    with socket.socket(socket.AF_UNIX) as s: s.connect('\\0@NAME@')",
        "attempt('abstract socket', abstract)",
        "attempt('name', lambda: socket.getaddrinfo('localhost.example', 80))",
        "attempt('world', lambda: socket.create_connection(('192.0.2.1', 80), 1))",
        "attempt('packets', lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 53)))",
        "attempt('raw', lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))",
        "for family, kind, protocol in ((40, 1, 0), (16, 3, 15), (17, 3, 3), (38, 5, 0), (44, 3, 0)):",
        "    attempt(f'family {family}', lambda: socket.socket(family, kind, protocol))",
    ),
)
