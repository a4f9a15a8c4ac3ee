"""The parts of the isolation, each by itself; in CI a missing protection is a failure."""

import hashlib
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

import autograde
from autograde import bank, class_dir
from autograde.classroom import crew, grading
from autograde.cli import app
from autograde.sandbox import kernel, parent, protections, seccomp, stubs
from autograde.sandbox.channel import Channel, TooLongError
from autograde.sandbox.isolation import Isolation, IsolationError, holds_users
from autograde.sandbox.session import StudentSession
from tests import short_class

IN_CI = bool(os.environ.get("CI"))


def test_this_machine_gives_every_protection():
    lacking = protections.missing()
    if lacking and not IN_CI:
        pytest.skip(f"not given here: {lacking}")
    assert lacking == []
    assert len(protections.tried()) == len(protections.NAMES) == 8


def test_the_command_says_so():
    command = [sys.executable, "-m", "autograde.cli", "protections"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.stdout.count("\n") == 8
    assert (result.returncode == 0) == ("NO " not in result.stdout)


def test_a_student_process_starts_without_what_few_need_and_gets_it_when_asked():
    """scikit-learn and torch's compiler: half of what a warm parent would spend on its start."""
    with StudentSession() as session:
        (said,) = session.run(
            "import sys\n"
            "import torch\n"
            "from course.data import load\n"
            "model = torch.nn.Linear(64, 10)\n"
            "optimizer = torch.optim.Adam(model.parameters())\n"
            "model(load('digits').train_inputs.flatten(1)).sum().backward()\n"
            "optimizer.step()\n"
            "before = [name in sys.modules for name in ('sklearn', 'sympy')]\n"
            "from sklearn.dummy import DummyClassifier\n"
            "print(before, DummyClassifier.__name__)"
        )
        assert said["text"] == "[False, False] DummyClassifier\n"


HELD = """
import gc, hashlib, types, warnings
from autograde import bank
def texts(value, depth=0):
    if isinstance(value, str):
        yield value
    elif isinstance(value, (tuple, frozenset)) and depth < 6:
        for inner in value: yield from texts(inner, depth + 1)
    elif isinstance(value, types.CodeType):
        yield from texts(value.co_consts, depth + 1)
warnings.simplefilter("ignore")
gc.unfreeze()
held = {t for one in gc.get_objects() for v in gc.get_referents(one) for t in texts(v)}
held = {hashlib.sha256(text.encode(errors="replace")).hexdigest() for text in held}
answers, given = ANSWERS
print(len(held & answers), len(held & given))
"""


def test_a_student_process_holds_no_right_answer_as_text():
    """Of loops to fix: reference.__source__ was worth four points of five to whoever ran it.

    The collector finds what the process holds: the texts as they were given, and no answer.
    """
    fixes = [e for one in bank.asks_for_code().values() if (e := one.load()).kind == "fix"]
    right = {f.__source__ for e in fixes for f in (e.reference, *e.right)}
    given = {sys.modules[e.run.__module__].GIVEN for e in fixes}
    hashes = [{hashlib.sha256(t.encode()).hexdigest() for t in texts} for texts in (right, given)]
    with StudentSession() as session:
        (said,) = session.run(HELD.replace("ANSWERS", repr(tuple(hashes))))
    assert len(right) > 40 and said["text"] == f"0 {len(given)}\n"


def test_a_student_process_reads_no_file_that_an_exercise_guards():
    """Also where only the reference's code says what it is made of, and that is gone by then."""
    exercises = [entry.load() for entry in bank.asks_for_code().values()]
    guarded = sorted({name for e in exercises for name in stubs.guarded_with_stand_ins(e)})
    with StudentSession() as session:
        (said,) = session.run(
            "import os, sys\n"
            f"modules = {guarded}\n"
            "print([m for m in modules if os.access(sys.modules[m].__file__, os.R_OK)\n"
            "       and open(sys.modules[m].__file__).read()])"
        )
    assert "course.engine.schedules" in guarded and said["text"] == "[]\n"


LINES = """
import torch
places = []
for failing in (
    lambda: torch.nn.functional.cross_entropy("logits", "targets"),
    lambda: torch.optim.Adam([torch.zeros(1, requires_grad=True)]).step(closure=0),
):
    try:
        failing()
    except TypeError as fault:
        place = fault.__traceback__.tb_next.tb_next
        while place and place.tb_next:
            place = place.tb_next
        places.append((place.tb_frame.f_code.co_qualname, place.tb_lineno))
"""


def test_guarded_functions_of_torch_keep_their_names_and_lines():
    """They are compiled again, each by itself."""
    found = {}
    exec(LINES, found)
    with StudentSession() as session:
        (said,) = session.run(LINES + "print(places)")
    assert len(found["places"]) == 2 and said["text"] == f"{found['places']}\n"


@pytest.mark.parametrize("submissions, heavy", [(0, False), (parent.FEW, False), (1000, True)])
def test_for_a_whole_class_more_is_loaded_beforehand(monkeypatch, submissions, heavy):
    preload = ["autograde.sandbox.warm"]  # a class that was graded before has asked for more
    monkeypatch.setattr(parent, "PRELOAD", preload)
    monkeypatch.setattr(parent.forkserver._forkserver, "ensure_running", lambda: None)
    parent.start(submissions)
    parent.start()  # whoever asks for a fork later takes nothing back
    assert preload == ["autograde.sandbox.warm", *[parent.MANY] * heavy]
    parent.warm_context().set_forkserver_preload(["autograde.sandbox.warm"])


ASKED = """
import sys, traceback
import torch
asked = []
def telling(name, answer):
    def ask(*_args, **_kwargs):
        asked.append(name + "".join(traceback.format_stack(limit=6)[:-1]))
        return answer
    return ask
torch.cuda._device_count_nvml = lambda: 1  # a GPU, by its driver's list
torch.backends.cuda.is_built = torch.cuda._is_compiled = lambda: True
for name in dir(torch._C):
    if name.startswith("_cuda_") and callable(getattr(torch._C, name)):
        setattr(torch._C, name, telling(name, 0))
torch.accelerator.current_stream = telling("current_stream", None)
torch._C._accelerator_getAccelerator = lambda: torch.device("cuda")
assert torch.cuda.is_available() and torch.accelerator.is_available() and not asked
import autograde.sandbox.warm
import autograde.sandbox.warm_for_many
assert torch.cuda.is_available() and torch.accelerator.is_available()
sys.exit("\\n".join(asked))
"""


def test_the_warm_parent_asks_no_gpu():
    """CUDA that was asked before a fork cannot be used after it."""
    environment = {
        **os.environ,
        **parent.ONE_THREAD,
        "PYTHONPATH": str(Path(autograde.__file__).parents[1]),
    }
    ran = subprocess.run(
        [sys.executable, "-c", ASKED], env=environment, capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, ran.stderr


BECOME_ORDINARY = """
import os, sys
from autograde.sandbox import kernel
kernel.unshare(kernel.NEWNS)
kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
code, place, *needed = sys.argv[1:]
needed = {path: os.open(path, os.O_PATH) for path in needed}
for top in {"/" + path.split("/")[1] for path in needed}:
    if not os.stat(top).st_mode & 1:  # a closed home holds the interpreter: open a copy of it
        kernel.mount("tmpfs", top, "tmpfs", 0, "mode=755")
        for path, descriptor in needed.items():
            if path.startswith(top + "/"):
                os.makedirs(path, exist_ok=True)
                kernel.mount(f"/proc/self/fd/{descriptor}", path, flags=kernel.MS_BIND)
os.setgroups([]); os.setresgid(12345, 12345, 12345); os.setresuid(12345, 12345, 12345)
os.environ["HOME"] = "/tmp"
os.execv(sys.executable, [sys.executable, "-c", code, place])
"""
PROTECTIONS = (
    "from autograde.sandbox import protections; print(*protections.missing() or ['all given'])"
)


def as_ordinary_user(
    code: str, place: str = "", *, timeout_s: float = 120
) -> subprocess.CompletedProcess:
    """Run Python code as a user who owns nothing; `place` is its `sys.argv[1]`. Needs root."""
    needed = [sys.base_prefix, sys.prefix, str(Path(autograde.__file__).parents[1])]
    return subprocess.run(
        [sys.executable, "-c", BECOME_ORDINARY, code, place, *needed],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env={**os.environ, "PYTHONPATH": needed[-1]},
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="we are an ordinary user already")
def test_an_ordinary_user_gets_the_same_protections():
    """As root we change the user; others must get there by a user namespace alone."""
    result = as_ordinary_user(PROTECTIONS)
    if "user namespaces" in result.stdout and not IN_CI:
        pytest.skip(result.stdout)
    assert result.stdout.strip() == "all given", result.stderr


@pytest.mark.parametrize(
    ("id_map", "holds"),
    [
        ("         0          0 4294967295\n", True),  # a machine
        ("         0       1000          1\n", False),  # unshare --map-root-user
        ("0 1000 1\n1 100000 65536\n", False),  # a rootless container
        ("0 1000 1\n1 100000 2000000000\n", True),
        ("", False),
    ],
)
def test_root_hands_out_users_only_where_it_has_their_numbers(id_map, holds):
    assert holds_users(id_map) is holds


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("unshare"), reason="util-linux is not installed")
def test_root_of_a_rootless_container_gets_the_same_protections():
    result = subprocess.run(
        ["unshare", "--user", "--map-root-user", sys.executable, "-c", PROTECTIONS],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(Path(autograde.__file__).parents[1])},
    )
    if "unshare" in result.stderr and not IN_CI:
        pytest.skip(result.stderr)
    assert result.stdout.strip() == "all given", result.stderr


def test_a_user_without_a_home_can_ask_for_them(tmp_path, monkeypatch):
    """As the account of a service: the file that must not be seen lies in /tmp then."""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert protections._place_outside() == str(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "none"))
    assert protections._place_outside() == tempfile.gettempdir()


def test_where_the_kernel_refuses_nothing_is_run(monkeypatch, tmp_path):
    monkeypatch.setattr(protections, "_probe", _refuse)
    monkeypatch.setattr(crew.Crew, "ask", lambda _crew, job: protections.tell(job))
    protections.tried.cache_clear()
    try:
        assert len(protections.missing()) == 8
        assert "user namespaces" in protections.missing()[0].why
        folder = class_dir.init(tmp_path / "class", ["01a-tensors-and-autograd"])[0].parents[2]
        short_class.hand_in(folder, "ada", "01a-tensors-and-autograd", "")
        begun = []
        monkeypatch.setattr(grading, "check_release", lambda *_about: None)
        monkeypatch.setattr(grading, "carry_out", lambda *_a, **_more: map(begun.append, ["ada"]))
        result = CliRunner().invoke(app, ["grade", "--dir", str(folder)])
        assert result.exit_code == 2 and "nothing was graded" in result.output and not begun
    finally:
        protections.tried.cache_clear()


def _refuse():
    raise IsolationError("unshare: Operation not permitted")


def test_trusted_submissions_run_with_our_own_rights():
    with StudentSession(isolation=Isolation(trusted=True)) as session:
        (output,) = session.run("import os; print(os.getuid())")
    assert int(output["text"]) == os.getuid()


@pytest.mark.parametrize("machine", seccomp.AUDIT_ARCH)
def test_the_filters_jumps_stay_inside_and_every_path_returns(machine):
    lines = seccomp.program(machine)
    assert len(lines) < 4096 and lines[-1][0] == seccomp.RETURN
    for place, (code, yes, no, _) in enumerate(lines):
        assert code in (seccomp.LOAD, seccomp.RETURN) or place + 1 + max(yes, no) < len(lines)


def evaluate_filter(lines, arch, number, args=(0, 0)):
    """A machine for classic BPF, as the kernel's documentation describes it."""
    words = {0: number, 4: arch} | {16 + 8 * place: arg for place, arg in enumerate(args)}
    accumulator, place = 0, 0
    while True:
        code, yes, no, value = lines[place]
        place += 1
        if code == seccomp.LOAD:
            accumulator = words[value]
        elif code == seccomp.RETURN:
            return value
        else:
            true = {
                seccomp.EQUAL: accumulator == value,
                seccomp.AT_LEAST: accumulator >= value,
                seccomp.ANY_BIT: bool(accumulator & value),
            }[code]
            place += yes if true else no


@pytest.mark.parametrize("machine", seccomp.AUDIT_ARCH)
def test_the_filter_refuses_what_it_names_and_allows_the_rest(machine):
    lines, arch = seccomp.program(machine), seccomp.AUDIT_ARCH[machine]
    which = list(seccomp.AUDIT_ARCH).index(machine)
    for numbers in seccomp.DENIED.values():
        if numbers[which] >= 0:
            assert evaluate_filter(lines, arch, numbers[which]) & 0x7FFF0000 == seccomp.REFUSE
    socket, clone = seccomp.SOCKET[which], seccomp.CLONE[which]
    assert evaluate_filter(lines, arch, socket, (1, 1)) == seccomp.ALLOW
    for family in (2, 10, 16, 17, 40):  # IPv4, IPv6, netlink, packet, vsock
        assert evaluate_filter(lines, arch, socket, (family, 1)) == seccomp.REFUSE | 13
    assert evaluate_filter(lines, arch, clone, (0x11, 0)) == seccomp.ALLOW
    assert evaluate_filter(lines, arch, clone, (kernel.NEWUSER | 0x11, 0)) == seccomp.REFUSE | 1
    for call, offset in seccomp.SIGNALS:
        for number, result in ((18, seccomp.REFUSE), (15, seccomp.ALLOW)):  # says done, does not
            sent = [5] * ((offset - 16) // 8) + [number]
            assert evaluate_filter(lines, arch, call[which], sent) == result
    for advice in (seccomp.COLD, seccomp.PAGEOUT):
        numbers = seccomp.MADVISE[which], (0, 0, advice)
        assert evaluate_filter(lines, arch, *numbers) == seccomp.REFUSE
    assert evaluate_filter(lines, arch, seccomp.MADVISE[which], (0, 0, 4)) == seccomp.ALLOW
    for flags, result in ((0, seccomp.ALLOW), (8, seccomp.REFUSE | 95)):
        reading = seccomp.READ_WITH_FLAGS[which], (3, 0, 1, 0, 0, flags)
        assert evaluate_filter(lines, arch, *reading) == result
    assert evaluate_filter(lines, 0x40000003, 1) == seccomp.KILL  # 32 bit
    assert evaluate_filter(lines, arch, 63) == seccomp.ALLOW


PAGES = """
import ctypes, fcntl, os, sys
fd = os.open(sys.modules["random"].__file__, os.O_RDONLY)
os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
fcntl.flock(fd, fcntl.LOCK_EX)
fcntl.lockf(os.open("own", os.O_RDWR | os.O_CREAT), fcntl.LOCK_EX)
try:
    os.preadv(fd, [bytearray(1)], 0, os.RWF_NOWAIT)
except OSError as fault:
    print(fault.errno)
print(os.preadv(fd, [bytearray(5)], 0), fd)
libc = ctypes.CDLL(None, use_errno=True)
print(libc.mincore(None, 4096, ctypes.create_string_buffer(1)), ctypes.get_errno())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux's calls")
def test_what_others_have_read_of_a_shared_file_cannot_be_asked():
    with StudentSession() as session:
        (said,) = session.run(PAGES)
        fd = int(said["text"].split()[2])
        holder = Path(f"/proc/{session.process.pid}/task/{session.process.pid}/children")
        info = Path(f"/proc/{holder.read_text().split()[0]}/fdinfo/{fd}").read_text()
    assert said["text"].split()[:2] == ["95", "5"] and said["text"].split()[3:] == ["-1", "1"]
    assert "lock:" not in info


def test_a_half_message_is_waited_for_no_longer_than_told():
    ours, theirs = multiprocessing.Pipe()
    channel = Channel(ours)
    os.write(theirs.fileno(), b"\0\0\0\x09half")
    started = time.monotonic()
    with pytest.raises(TimeoutError):
        channel.receive(time.monotonic() + 0.2, 100)
    assert time.monotonic() - started < 2
    os.write(theirs.fileno(), b" more")
    assert channel.receive(time.monotonic() + 1, 100) == b"half more"
    with pytest.raises(TimeoutError):  # nobody reads
        channel.send(bytes(50 * 2**20), time.monotonic() + 0.2)


def test_a_message_is_bounded_before_it_is_read():
    ours, theirs = multiprocessing.Pipe()
    os.write(theirs.fileno(), b"\x7f\xff\xff\xff")
    with pytest.raises(TooLongError, match="at most 100"):
        Channel(ours).receive(time.monotonic() + 1, 100)


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
def test_bubblewrap_gives_no_more_than_we_do():
    """Oracle: what a well-known sandbox hides, ours hides."""
    bare = ["bwrap", "--unshare-all", "--ro-bind", "/usr", "/usr", "--proc", "/proc"]
    links = [w for n in ("lib", "lib64", "bin") for w in ("--symlink", f"usr/{n}", f"/{n}")]
    shell = [*bare, *links, "/bin/sh", "-c", "ls / /proc"]
    theirs = subprocess.run(shell, capture_output=True, text=True, timeout=30).stdout.split()
    if not theirs:
        pytest.skip("bubblewrap does not work here")
    with StudentSession() as session:
        (output,) = session.run("import os; print(*os.listdir('/'), *os.listdir('/proc'))")
    ours = [name for name in output["text"].split() if name.isdigit()]
    assert len(ours) <= len([name for name in theirs if name.isdigit()])
    assert "home" not in output["text"].split()
