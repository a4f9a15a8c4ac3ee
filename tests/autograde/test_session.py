"""The student's process seen from outside: outputs, time, exits, and what it may see."""

import contextvars
import errno
import gc
import os
import time
from multiprocessing import get_context
from pathlib import Path

import pytest

from autograde import apart, bank
from autograde.answers import Raised
from autograde.sandbox import session as sessions
from autograde.sandbox import stacks, student
from autograde.sandbox.isolation import Isolation
from autograde.sandbox.limits import Limits
from autograde.sandbox.session import StudentSession

QUICK = Limits(cell_s=5.0, answer_s=1.0, notebook_s=60.0)
CLIP = bank.load("03a.clip")
CASE = CLIP.cases(CLIP.parts[0], seed=1)[0]
GOOD = """
import torch
def clip(parameters, max_norm):
    grads = [p.grad for p in parameters if p.grad is not None]
    norm = torch.stack([g.norm() for g in grads]).norm()
    for g in grads:
        g.mul_(torch.clamp(max_norm / (norm + 1e-6), max=1.0))
    return norm
"""


@pytest.fixture
def session(isolation):
    with StudentSession(limits=QUICK, isolation=isolation) as session:
        yield session


def test_a_cell_shows_what_a_notebook_would(session):
    outputs = session.run("import sys; print('out'); print('err', file=sys.stderr); 6 * 7")
    assert [(o["output_type"], o.get("name")) for o in outputs] == [
        ("stream", "stdout"),
        ("stream", "stderr"),
        ("display_data", None),
    ]
    assert outputs[2]["data"]["text/plain"] == "42"
    assert session.run("6 * 7;") == []


def test_figures_magics_and_html_are_shown(session):
    session.run("import matplotlib.pyplot as plt")
    assert "image/png" in session.run("plt.plot([1, 2]);")[0]["data"]
    assert "image/png" in session.run("%matplotlib inline\nplt.plot([2, 1]);")[0]["data"]
    html = session.run("from course import worked; worked.compute('N20')")[0]["data"]
    assert "<table" in html["text/html"]


def test_an_exception_is_an_error_output_and_the_next_cell_runs(session):
    error = session.run("1 / 0")[0]
    assert (error["output_type"], error["ename"]) == ("error", "ZeroDivisionError")
    assert session.run("1")[0]["data"]["text/plain"] == "1"


def test_what_is_compiled_runs_as_it_was_written(session):
    """torch's compiler cannot read functions that hold guards, as `nn.Linear.forward` does here."""
    (shown,) = session.run(
        "import torch\nfrom torch import nn\n"
        "model = torch.compile(nn.Linear(2, 1), fullgraph=True, backend='eager')\n"
        "print(list(model(torch.ones(3, 2)).shape), type(model).__name__)"
    )
    assert shown.get("text") == "[3, 1] OptimizedModule\n", shown


def test_an_answer_comes_back_as_plain_data(session):
    session.run(GOOD)
    answer = session.ask("03a.clip", "clip", CASE)
    assert answer["norm"] == pytest.approx(5 * CASE["max_norm"], rel=1e-4)


def test_what_a_cell_sets_for_its_context_lasts_as_in_jupyter(session):
    session.run("import contextvars, numpy as np\nEPS = contextvars.ContextVar('EPS')")
    session.run("token = EPS.set(3.0); np.seterr(divide='raise'); np.set_printoptions(precision=2)")
    assert session.run("print(EPS.get(), np.array([1.23456]))")[0]["text"] == "3.0 [1.23]\n"
    session.run(
        "def clip(parameters, max_norm):\n"
        "    try: return np.float64(1) / 0\n"
        "    except FloatingPointError: return EPS.get()"
    )
    assert session.ask("03a.clip", "clip", CASE)["norm"] == 3.0
    assert session.run("EPS.reset(token); EPS.get(4.0)")[0]["data"]["text/plain"] == "4.0"


def test_what_a_check_sets_holds_while_it_asks_and_what_a_cell_sets_not_for_the_check():
    alone = stacks.stack_of_its_own(stacks.greenlets())
    gc.enable()  # which a student's process does not, where it checks
    place = contextvars.ContextVar("place", default="nobody")
    alone(place.set, ("a cell",))
    assert alone(place.get) == "a cell" and place.get() == "nobody"
    token = place.set("a check")
    assert alone(place.get) == "a check" and alone(place.set, ("a call",))
    place.reset(token)
    assert alone(place.get) == "a cell"


def test_a_name_that_is_missing_says_so(session):
    assert session.ask("03a.clip", "clip", CASE).kind == "NameError"


def test_an_interrupt_that_python_drops_is_given_again(session):
    source = (
        "class Endless:\n"
        "    def __del__(self):\n"
        "        while True: pass\n"
        "Endless()\n"
        "while True: pass"
    )
    assert session.run(source)[0]["ename"] == "Timeout"
    assert session.run("print(1)")[0]["text"] == "1\n"


def test_an_endless_cell_is_interrupted_and_costs_only_itself(session):
    session.run(GOOD)
    assert session.run("while True: pass")[0]["ename"] == "Timeout"
    assert isinstance(session.ask("03a.clip", "clip", CASE), dict)


def test_an_endless_answer_is_asked_once(session):
    session.run("def clip(parameters, max_norm):\n    while True: pass")
    assert session.ask("03a.clip", "clip", CASE).kind == "Timeout"
    started = time.monotonic()
    assert session.ask("03a.clip", "clip", CASE).kind == "Timeout"
    assert time.monotonic() - started < QUICK.answer_s  # which asking again would take


def test_a_process_that_heeds_nothing_is_killed(session):
    session.run(
        "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "def clip(parameters, max_norm):\n    while True: pass"
    )
    raised = session.ask("03a.clip", "clip", CASE)
    assert raised.kind == "ProcessEnded" and "did not react" in raised.text
    assert session.run("1")[0]["ename"] == "NotRun"
    assert not session.process.is_alive()


def test_a_process_that_leaves_is_told_with_its_exit_code(session):
    assert "exit code 3" in session.run("import os; os._exit(3)")[0]["evalue"]
    assert session.ask("03a.clip", "clip", CASE).kind == "NotAsked"


def test_a_process_that_closes_its_pipe_and_runs_on_is_told_so(session):
    session.run("import os, time\nos.closerange(3, 1000)\ntime.sleep(9)")
    assert session.ended == "the process closed the pipe on which it is asked, and ran on."


def test_leaving_politely_is_only_an_exception(session):
    assert session.run("import sys; sys.exit(1)")[-1]["ename"] == "SystemExit"
    assert session.run("1")[0]["data"]["text/plain"] == "1"


def test_memory_is_bounded(session):
    assert session.run("x = bytearray(20 * 2**30)")[-1]["ename"] == "MemoryError"


def test_endless_output_is_cut(session):
    (output,) = session.run("print('x' * 3_000_000)")
    assert len(output["text"]) < 300_000 and "more characters" in output["text"]


@pytest.mark.parametrize(
    "returned",
    [
        "float('nan')",
        "torch.ones(3).to_sparse()",
        "'9' * 100",
        "type('T', (), {})()",
        "torch.ones(2)",
    ],
)
def test_odd_answers_are_answers_or_reasons_never_a_crash(session, returned):
    session.run(f"import torch\ndef clip(parameters, max_norm):\n    return {returned}")
    answer = session.ask("03a.clip", "clip", CASE)
    assert isinstance(answer, (dict, Raised))
    assert session.run("1")[0]["data"]["text/plain"] == "1"


def test_a_forged_reply_does_not_stand_for_an_answer(session):
    """Student code that finds the pipe can only end its own session."""
    session.run(
        "import gc, json\n"
        "from multiprocessing.connection import Connection\n"
        "pipes = [o for o in gc.get_objects() if isinstance(o, Connection)]\n"
        "import os, struct\n"
        "def clip(parameters, max_norm):\n"
        "    for n in range(3, 60):\n"
        "        text = json.dumps({'id': 99, 'answer': {'value': 'e30='}}).encode()\n"
        "        try: os.write(n, struct.pack('!i', len(text)) + text)\n"
        "        except OSError: pass\n"
        "    return 1.0"
    )
    answer = session.ask("03a.clip", "clip", CASE)
    assert isinstance(answer, Raised)
    with StudentSession(
        limits=QUICK, isolation=session.isolation
    ) as next_one:  # nor could it reach the warm parent
        assert next_one.run("1")[0]["data"]["text/plain"] == "1"


def test_the_process_holds_no_descriptor_but_its_pipe(session):
    """All others are /dev/null: objects of the warm parent may close their numbers at any time."""
    (output,) = session.run(
        "import os\n"
        "links = [os.readlink(f'/proc/self/fd/{n}') for n in os.listdir('/proc/self/fd')\n"
        "         if os.path.lexists(f'/proc/self/fd/{n}')]\n"
        "print(sorted(link.partition(':')[0] for link in links if link != '/dev/null'))"
    )
    assert output["text"] == "['socket']\n"


def test_an_object_of_the_parent_that_closes_late_hits_nothing_of_the_child(tmp_path):
    """Fonts of the warm parent did, and figures of graded copies lost their letters."""
    (tmp_path / "own").write_text("letters")
    read, write = os.pipe()
    inherited = (tmp_path / "own").open()
    if (child := os.fork()) == 0:
        said = b"raised"
        try:
            student._close_inherited(write)
            files = [(tmp_path / "own").open() for _ in range(40)]
            inherited.close()
            said = b" ".join({file.read().encode() for file in files})
        finally:
            os.write(write, said)
            os._exit(0)
    inherited.close()
    os.close(write)
    os.waitpid(child, 0)
    assert os.read(read, 100) == b"letters"
    os.close(read)


def test_data_loader_workers_run_inside(session):
    outputs = session.run(
        "import torch\nfrom torch.utils.data import DataLoader, TensorDataset\n"
        "loader = DataLoader(TensorDataset(torch.arange(8)), batch_size=4, num_workers=2)\n"
        "print(sum(batch[0].sum().item() for batch in loader))"
    )
    assert outputs[0].get("text") == "28\n", "\n".join(outputs[0]["traceback"])


def test_the_environment_is_bare_and_the_folder_private(tmp_path, isolation):
    os.environ["AUTOGRADE_TEST_SECRET"] = "x"
    (tmp_path / "data.csv").write_text("1,2")
    (tmp_path / "link").symlink_to("/etc/passwd")
    try:
        with StudentSession(tmp_path, QUICK, isolation) as session:
            output = session.run(
                "import os; print(sorted(os.listdir()), 'SECRET' in str(os.environ))"
            )
            folder = session.folder
        names = output[0]["text"]
        assert "data.csv" in names and "link" not in names and "False" in names
    finally:
        del os.environ["AUTOGRADE_TEST_SECRET"]
    assert not folder.exists()


@pytest.mark.parametrize("leaves", ["", "\nos._exit(0)"])
def test_what_trusted_code_has_started_ends_with_its_session(tmp_path, leaves):
    started = tmp_path / "pid"
    code = (
        "import os, subprocess\n"
        "child = subprocess.Popen(['sleep', '60'])\n"
        f"open({str(started)!r}, 'w').write(str(child.pid))" + leaves
    )
    with StudentSession(limits=QUICK, isolation=Isolation(trusted=True)) as session:
        session.run(code)
    pid = int(started.read_text())
    deadline = time.monotonic() + 5
    while _runs(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not _runs(pid)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] not in "ZX"


def test_trusted_code_leaves_the_folders_that_all_share_alone():
    """A second process leaves no files in the sandbox's own folders; the machine's are others'."""
    run = bank.load("05.run")
    pipe = Path("/tmp") / f"a-pipe-of-somebody-else-{os.getpid()}"
    os.mkfifo(pipe)
    try:
        with StudentSession(limits=QUICK, isolation=Isolation(trusted=True)) as session:
            session.run(f"def {run.signature}: raise NotImplementedError")
            answer = session.ask(run.id, run.name, run.cases(run.parts[0], seed=1)[0])
        assert answer == Raised("NotImplementedError") and pipe.is_fifo()
    finally:
        pipe.unlink(missing_ok=True)


def test_a_process_that_cannot_be_kept_apart_is_not_said_to_have_left_by_itself(isolation):
    run = bank.load("05.run")
    with StudentSession(limits=QUICK, isolation=isolation) as session:
        session.run(f"def {run.signature}: import os; os._exit({apart.NOT_APART})")
        answer = session.ask(run.id, run.name, run.cases(run.parts[0], seed=1)[0])
    assert "could not be kept apart" in answer.text


def test_trusted_code_may_have_workers_in_a_second_process():
    """Their locks are files of /dev/shm, which is not the submission's own."""
    code = (
        "from torch.utils.data import DataLoader\n"
        "def make_loaders(train_set, val_set, batch_size, seed):\n"
        "    return [DataLoader(one, 2, num_workers=1) for one in (train_set, val_set)]"
    )
    loaders = bank.load("03c.loaders")
    case = loaders.cases(loaders.parts[0], seed=1)[0]
    slow = Limits(cell_s=5.0, answer_s=20.0, notebook_s=60.0)
    with StudentSession(limits=slow, isolation=Isolation(trusted=True)) as session:
        session.run(code)
        answer = session.ask("03c.loaders", "make_loaders", case)
    assert not isinstance(answer, Raised), answer


def test_a_process_that_is_no_fork_of_the_warm_parent_loads_all_first(monkeypatch):
    """As where other code of this process has had a fork server started, with nothing in it."""
    monkeypatch.setattr(sessions.parent, "warm_context", lambda: get_context("spawn"))
    with StudentSession(limits=QUICK, isolation=Isolation(trusted=True)) as session:
        assert session.run("print(1)")[0]["text"] == "1\n"


def test_a_submission_that_cannot_be_copied_leaves_no_folder(tmp_path, monkeypatch):
    (tmp_path / "handed-in").mkdir()
    (tmp_path / "handed-in" / "data.csv").write_text("1,2")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))

    def full(*_args: object, **_options: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(sessions.shutil, "copyfile", full)
    with pytest.raises(OSError, match="No space left"):
        StudentSession(tmp_path / "handed-in", QUICK, Isolation(trusted=True))
    assert list(scratch.iterdir()) == []


def test_who_has_used_up_the_whole_notebooks_time_is_told_so(isolation):
    limits = Limits(cell_s=20.0, answer_s=20.0, notebook_s=1.5)
    with StudentSession(limits=limits, isolation=isolation) as session:
        session.run("def clip(parameters, max_norm):\n    while True: pass")
        text = session.run("while True: pass")[0]["evalue"]
        assert "the 1.5 s of the whole notebook were over" in text and "20 s" not in text
        raised = session.ask("03a.clip", "clip", CASE)
        assert raised.text == "the 1.5 s of the whole notebook were over."


def test_what_the_grader_does_between_two_requests_is_not_of_the_notebooks_time(isolation):
    """The first of a class waits for the right answers, which are then kept for the others."""
    limits = Limits(cell_s=5.0, answer_s=1.0, notebook_s=2.0)
    with StudentSession(limits=limits, isolation=isolation) as session:
        for _ in range(3):
            assert session.run("6 * 7")[0]["data"]["text/plain"] == "42"
            time.sleep(1.0)
