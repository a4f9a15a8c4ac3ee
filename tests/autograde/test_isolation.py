"""What a student's process can't see, reach or outlive, tried from inside."""

import os
import socket
import time
from pathlib import Path

import pytest

import autograde
from autograde import bank
from autograde.answers import Raised
from autograde.sandbox import protections, seccomp, view
from autograde.sandbox.isolation import Isolation
from autograde.sandbox.limits import Limits
from autograde.sandbox.session import StudentSession

QUICK = Limits(cell_s=10.0, answer_s=5.0, notebook_s=60.0)
CLIP = bank.load("03a.clip")
CASE = CLIP.cases(CLIP.parts[0], seed=1)[0]


@pytest.fixture
def session(tmp_path, isolation):
    if isolation.trusted:
        pytest.skip("this machine gives no isolation: see autograde protections")
    (tmp_path / "gradebook.db").write_text("ada: 4")
    with StudentSession(None, QUICK, Isolation(hidden=(tmp_path,))) as session:
        yield session


def said(session: StudentSession, source: str) -> str:
    """What a cell prints, or the error it ends in."""
    (output,) = session.run(source)
    return output.get("text") or output["ename"]


def test_in_ci_every_protection_is_there():
    if not os.environ.get("CI") and protections.missing():
        pytest.skip("this machine gives no isolation: see autograde protections")
    assert protections.missing() == []


def test_the_class_directory_the_home_and_the_bank_are_not_to_be_seen(session, tmp_path):
    for path in (tmp_path / "gradebook.db", Path.home() / ".bashrc", Path("/etc/shadow")):
        assert said(session, f"open({str(path)!r}).read()") == "FileNotFoundError"
    assert (
        said(session, "import autograde.bank as b, os; print(os.listdir(b.__path__[0]))") == "[]\n"
    )


def test_the_machines_readings_stand_still(session):
    names = (*view.READ_BY_PROGRAMS, *view.OF_THE_MACHINE)
    there = [name for name in names if Path("/proc", name).exists()]
    source = f"print({{name: open('/proc/' + name).read() for name in {there}}})"
    held = bytearray(2**26)  # a neighbour's
    first = said(session, source)
    del held
    time.sleep(0.1)
    assert first == said(session, source) and "MemAvailable" in first
    assert said(session, "import os; os.getloadavg()") == "OSError"  # by the same call as memory


def test_what_is_counted_for_the_whole_machine_is_neither_made_nor_read(session):
    asks = "import ctypes; print(ctypes.CDLL(None).syscall({}, 1, ctypes.byref(ctypes.c_long())))"
    number = seccomp.DENIED["io_setup"][os.uname().machine != "x86_64"]
    assert said(session, asks.format(number)) == "-1\n"
    reads = "print([open('/proc/sys/' + n).read() for n in ('fs/aio-nr', 'kernel/pty/nr')])"
    assert said(session, reads) == "['', '']\n"


def test_terminals_are_of_its_own_and_few(session):
    opens = "import pty; held = [pty.openpty() for _ in range({})]; print(len(held))"
    assert said(session, opens.format(view.MAX_TERMINALS)) == f"{view.MAX_TERMINALS}\n"
    assert said(session, opens.format(1)) == "OSError"


def test_the_packages_cannot_be_changed(session):
    path = Path(autograde.__file__).with_name("plain.py")
    error = said(session, f"open({str(path)!r}, 'a')")
    assert error in ("PermissionError", "OSError")


def test_the_network_is_not_there(session):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        source = f"import socket; socket.create_connection(('127.0.0.1', {port}), 2)"
        assert said(session, source) in ("PermissionError", "OSError", "ConnectionRefusedError")
        listener.settimeout(0.2)
        with pytest.raises(TimeoutError):
            listener.accept()


def test_what_a_student_leaves_running_ends_with_the_session(isolation):
    if isolation.trusted:
        pytest.skip("this machine gives no isolation: see autograde protections")
    mark = f"leftover-{os.getpid()}"
    with StudentSession(None, QUICK) as session:
        said(
            session,
            "import subprocess, sys\n"
            "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)', "
            f"{mark!r}], start_new_session=True)\nprint('started')",
        )
    time.sleep(0.3)
    running = [p for p in Path("/proc").glob("[0-9]*/cmdline") if mark.encode() in _read(p)]
    assert running == []


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize(
    "dodge",
    [
        "from course.engine import clip_by_global_norm as clip",
        "from course.engine import clip_by_global_norm as f\nimport types\n"
        "g = f.__wrapped__\nclip = types.FunctionType(g.__code__, g.__globals__, 'clip',\n"
        "    g.__defaults__); clip.__kwdefaults__ = g.__kwdefaults__",
        "from autograde import bank\nclip = bank.load('03a.clip').reference",
        "import torch\nclip = torch.nn.utils.clip_grad_norm_",
    ],
)
def test_the_reference_does_not_answer_in_the_students_place(session, dodge):
    session.run(dodge)
    assert isinstance(session.ask("03a.clip", "clip", CASE), Raised)


def test_the_bank_holds_no_answers_inside(session):
    source = "from autograde import bank; e = bank.load('03a.clip'); print(e.wrong, e.right)"
    assert said(session, source) == "() ()\n"


def test_ordinary_cells_may_use_the_engine(session):
    text = said(
        session,
        "import torch\nfrom course.engine import clip_by_global_norm\n"
        "p = torch.nn.Parameter(torch.ones(2)); p.grad = torch.tensor([3.0, 4.0])\n"
        "print(float(clip_by_global_norm([p], 1.0)))",
    )
    assert text == "5.0\n"
