"""Which system calls a student's process may make: a filter of the kernel (seccomp(2)), which no later exec sheds.

Refused are calls that no exercise needs and that a box could be stretched by: new namespaces and mounts, memory that
belongs to no process and so is counted for none, a user's keys in the kernel, which outlive a box, looks into other
processes, and sockets of families that a box's own network does not bound: AF_VSOCK leads to a virtual machine's host.
They fail with "operation not permitted".
"""

from __future__ import annotations

import ctypes
import errno
import platform

# numbers of system calls by the machine's name: (x86_64, aarch64); the newer calls have one number everywhere
_NUMBERS = {
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41),
    "chroot": (161, 51), "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "kcmp": (312, 272), "memfd_create": (319, 279), "shmget": (29, 194), "msgget": (68, 186), "semget": (64, 190),
    "mq_open": (240, 180), "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219), "bpf": (321, 280),
    "perf_event_open": (298, 241), "userfaultfd": (323, 282), "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433), "pidfd_getfd": (438, 438),
    "mount_setattr": (442, 442), "memfd_secret": (447, 447),
}  # fmt: skip
_CLONE, _CLONE3, _MMAP = (56, 220), (435, 435), (9, 222)
_SOCKETS = (41, 198), (53, 199)  # socket, socketpair
_FAMILIES = (1, 2, 10)  # AF_UNIX, AF_INET, AF_INET6: a box has a network of its own for these
_NETLINK = 16  # of it protocol 0, which lists the box's own interfaces
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # place in the pairs, and AUDIT_ARCH_…
_NEW_NAMESPACE = 0x7E020000  # the flags CLONE_NEW… of clone(2)
_SHARED_ANONYMOUS = 0x21  # MAP_SHARED | MAP_ANONYMOUS
_LOAD, _EQUAL, _AT_LEAST, _AND, _RETURN = 0x20, 0x15, 0x35, 0x54, 0x06
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000
_PR_SET_SECCOMP, _FILTER = 22, 2


class _Instruction(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint16), ("yes", ctypes.c_uint8), ("no", ctypes.c_uint8), ("k", ctypes.c_uint32)]


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_uint16), ("instructions", ctypes.POINTER(_Instruction))]


def program(machine: str) -> list[tuple[int, int, int, int]]:
    """The filter: (code, steps to skip if so, steps to skip if not, number) each. Empty for other machines."""
    if machine not in _MACHINES:
        return []
    which, architecture = _MACHINES[machine]
    refuse, allow = (_RETURN, 0, 0, _FAIL | errno.EPERM), (_RETURN, 0, 0, _ALLOW)
    lines = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, architecture), refuse]  # a call in another machine's numbering
    lines += [(_LOAD, 0, 0, 0), (_AT_LEAST, 0, 1, 0x40000000), refuse]
    lines += [(_EQUAL, 0, 1, _CLONE3[which]), (_RETURN, 0, 0, _FAIL | errno.ENOSYS)]  # libc takes clone then
    for pair in _NUMBERS.values():
        lines += [(_EQUAL, 0, 1, pair[which]), refuse]
    # the arguments of a call begin at byte 16, eight bytes each
    sockets = [(_EQUAL, 1, 0, _SOCKETS[0][which]), (_EQUAL, 0, 9, _SOCKETS[1][which]), (_LOAD, 0, 0, 16)]
    sockets += [(_EQUAL, 6 - place, 0, family) for place, family in enumerate(_FAMILIES)]
    lines += [*sockets, (_EQUAL, 0, 2, _NETLINK), (_LOAD, 0, 0, 32), (_EQUAL, 1, 0, 0), refuse, allow]
    lines += [(_EQUAL, 0, 4, _CLONE[which]), (_LOAD, 0, 0, 16), (_AND, 0, 0, _NEW_NAMESPACE), (_EQUAL, 1, 0, 0), refuse]
    lines += [(_LOAD, 0, 0, 0), (_EQUAL, 0, 4, _MMAP[which]), (_LOAD, 0, 0, 40), (_AND, 0, 0, _SHARED_ANONYMOUS)]
    lines += [(_EQUAL, 0, 1, _SHARED_ANONYMOUS), refuse]
    return [*lines, allow]


def install(libc: ctypes.CDLL) -> None:
    """Filter this process and those it starts, for good. Needs PR_SET_NO_NEW_PRIVS. Raises `OSError` if it fails."""
    lines = program(platform.machine())
    if lines:
        instructions = (_Instruction * len(lines))(*lines)
        whole = _Program(len(lines), instructions)
        if libc.prctl(_PR_SET_SECCOMP, _FILTER, ctypes.byref(whole), 0, 0):
            raise OSError(ctypes.get_errno(), "the process could not have its system calls filtered")
