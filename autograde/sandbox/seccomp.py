"""A filter on system calls: what a student's notebook never needs is refused.

Denied are calls that look into other processes, change mounts or namespaces, load code into the
kernel, reach parts of it with a long history of faults, hold memory that no process is charged
for, change what ends a process with its keeper, or tell what others have read of the files that all
share: submissions of one run are asked the same cases, and the page cache outlives a process (how
long a first read takes still tells a bit of it). Sockets other than local ones are denied, so
that a download says `Permission denied` at once. The filter is classic BPF, a list of
instructions (code, jump if true, jump if false, value), written by hand; it can't be taken off.
"""

from __future__ import annotations

import ctypes
import errno
import struct

from autograde.sandbox import kernel

AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
DENIED: dict[str, tuple[int, int]] = {  # (x86_64, aarch64); -1: does not exist there
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "process_madvise": (440, 440), "kcmp": (312, 272), "pidfd_send_signal": (424, 424),
    "pidfd_getfd": (438, 438), "move_pages": (279, 239), "migrate_pages": (256, 238),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "mount_setattr": (442, 442), "unshare": (272, 97), "setns": (308, 268),
    "open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264),
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "reboot": (169, 142),
    "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89), "quotactl": (179, 60),
    "quotactl_fd": (443, 443), "sethostname": (170, 161), "setdomainname": (171, 162),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "adjtimex": (159, 171),
    "clock_adjtime": (305, 266), "syslog": (103, 116), "fanotify_init": (300, 262),
    # memory that belongs to no process, and so is missed where processes are counted
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194),
    "msgget": (68, 186), "vmsplice": (278, 75),
    "semget": (64, 190),  # kept when the process has ended; Python's semaphores are others
    # counted by user, so that one could use up what is the keeper's
    "inotify_init": (253, -1), "inotify_init1": (294, 26), "mq_open": (240, 180),
    "mincore": (27, 232), "cachestat": (451, 451),  # what is in memory of a file
    "io_setup": (206, 0), "io_destroy": (207, 1),  # counted for the whole machine, who may read it
    "sysinfo": (99, 179),  # how much memory is free: a neighbour can change that
    "iopl": (172, -1), "ioperm": (173, -1), "modify_ldt": (154, -1), "vhangup": (153, 58),
}  # fmt: skip
NUMBER, ARCH, FIRST_ARG, SECOND_ARG, THIRD_ARG, SIXTH_ARG = 0, 4, 16, 24, 32, 56
SOCKET, CLONE, CLONE3, IOCTL = (41, 198), (56, 220), (435, 435), (16, 29)
PRCTL, DEATH_SIGNAL = (157, 167), 1
CONTINUE = 18
SCHED_SETAFFINITY = (203, 122)
READ_WITH_FLAGS, WRITE_WITH_FLAGS = (327, 286), (328, 287)  # preadv2, pwritev2
FADVISE, MADVISE, COLD, PAGEOUT = (221, 223), (28, 233), 20, 21
FLOCK, FCNTL, LOCKS, DIRECTORY_NOTIFY = (73, 32), (72, 25), (6, 7, 37, 38), 1026
"""Locks on a shared file would be seen by those that run at the same time; nobody else is in here
who minds."""
NOTED_OF_OPEN_FILES = (8, 10, 15, 1024, 1036, 1038)
"""F_SETOWN, F_SETSIG, F_SETOWN_EX, F_SETLEASE and hints of how long what is written lives: all this
lasts, and could be read by a process that follows."""
OF_OTHERS = {  # (x86_64, aarch64) of calls whose argument names a process; 0 is one's own
    "prlimit64": (302, 261, FIRST_ARG), "sched_setparam": (142, 118, FIRST_ARG),
    "sched_setscheduler": (144, 119, FIRST_ARG), "sched_setattr": (314, 274, FIRST_ARG),
    "setpriority": (141, 140, SECOND_ARG), "ioprio_set": (251, 30, SECOND_ARG),
}  # fmt: skip
"""What such a call sets can be read later: by it a process would leave something to another."""
AF_UNIX = 1
NAMESPACES = 0x7E020000  # every CLONE_NEW... flag
TYPE_INTO_TERMINAL = (0x5412, 0x541C)
LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, KILL, REFUSE = 0x7FFF0000, 0x80000000, 0x00050000
SIGNALS = ((62, 129), SECOND_ARG), ((200, 130), SECOND_ARG), ((234, 131), THIRD_ARG)
"""kill, tkill and tgkill, and where each has the signal."""

Instruction = tuple[int, int, int, int]


def program(machine: str) -> list[Instruction]:
    """The filter for a machine: `x86_64` or `aarch64`."""
    which = list(AUDIT_ARCH).index(machine)

    def refused(number: int, error: int = errno.EPERM) -> list[Instruction]:
        return [(EQUAL, 0, 1, number), (RETURN, 0, 0, REFUSE | error)]

    def by_argument(number: int, offset: int, rules: list[Instruction]) -> list[Instruction]:
        """Where the call has this number: load an argument, apply the rules, else allow."""
        body = [(LOAD, 0, 0, offset), *rules, (RETURN, 0, 0, ALLOW)]
        return [(EQUAL, 0, len(body), number), *body]

    lines: list[Instruction] = [
        (LOAD, 0, 0, ARCH),
        (EQUAL, 1, 0, AUDIT_ARCH[machine]),
        (RETURN, 0, 0, KILL),
        (LOAD, 0, 0, NUMBER),
    ]
    if machine == "x86_64":  # the x32 numbers would lead round the list
        lines += [(AT_LEAST, 0, 1, 0x40000000), (RETURN, 0, 0, REFUSE | errno.EPERM)]
    for numbers in DENIED.values():
        if numbers[which] >= 0:
            lines += refused(numbers[which])
    lines += refused(CLONE3[which], errno.ENOSYS)  # its flags can't be read; libc then takes clone
    local = [(EQUAL, 1, 0, AF_UNIX), (RETURN, 0, 0, REFUSE | errno.EACCES)]
    lines += by_argument(SOCKET[which], FIRST_ARG, local)
    apart = [(ANY_BIT, 0, 1, NAMESPACES), (RETURN, 0, 0, REFUSE | errno.EPERM)]
    lines += by_argument(CLONE[which], FIRST_ARG, apart)
    lines += by_argument(PRCTL[which], FIRST_ARG, refused(DEATH_SIGNAL, 0))  # says done, does not
    for numbers, place in SIGNALS:
        lines += by_argument(numbers[which], place, refused(CONTINUE, 0))
    lines += refused(SCHED_SETAFFINITY[which], 0)
    lines += refused(FADVISE[which], 0) + refused(FLOCK[which], 0)
    locking = [line for command in (*LOCKS, *NOTED_OF_OPEN_FILES) for line in refused(command, 0)]
    locking += refused(DIRECTORY_NOTIFY)
    lines += by_argument(FCNTL[which], SECOND_ARG, locking)
    for *numbers, offset in OF_OTHERS.values():
        own = [(EQUAL, 1, 0, 0), (RETURN, 0, 0, REFUSE | errno.EPERM)]
        lines += by_argument(numbers[which], offset, own)
    for numbers in (READ_WITH_FLAGS, WRITE_WITH_FLAGS):
        plain = [(EQUAL, 1, 0, 0), (RETURN, 0, 0, REFUSE | errno.EOPNOTSUPP)]
        lines += by_argument(numbers[which], SIXTH_ARG, plain)
    evicting = [line for advice in (COLD, PAGEOUT) for line in refused(advice, 0)]
    lines += by_argument(MADVISE[which], THIRD_ARG, evicting)
    typing = [line for request in TYPE_INTO_TERMINAL for line in refused(request)]
    lines += by_argument(IOCTL[which], SECOND_ARG, typing)
    return [*lines, (RETURN, 0, 0, ALLOW)]


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


def install() -> None:
    """Put the filter on this process and all it will start."""
    lines = program(kernel.MACHINE)
    raw = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in lines))
    filter_ = _Program(len(lines), ctypes.addressof(raw))
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    kernel.prctl(kernel.PR_SET_SECCOMP, 2, ctypes.byref(filter_))
