"""Who asks Python for more than an answer needs is named to a person, under whatever name."""

import importlib._bootstrap_external as python
import zipfile

import pytest

from autograde import bank
from autograde.bank import fix_the_loop
from autograde.kinds.fix import CODE, RAN
from autograde.kinds.handed_on import calls_packed, codes_named, ran_besides, without_the_loop
from autograde.referee import judge
from autograde.sandbox.limits import Limits
from autograde.sandbox.reaching import (
    ANSWERS,
    BESIDE,
    CHANGED,
    FRAMES,
    OBJECTS,
    PROGRAM,
    RECORDED,
    THREADS,
    TRACED,
    TRIED,
    UNCOUNTED,
    UNREAD,
)
from autograde.sandbox.session import StudentSession
from tests.attacks.submissions import HONEST

CLIP = bank.load("03a.clip")
SETUP = bank.load("05.setup")
EVALUATE = bank.load("03a.evaluate")

FROM_A_LOSS = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
class Loss(nn.CrossEntropyLoss):
    def forward(self, a, b):
        import inspect, sys
        LOOK
        return super().forward(a, b)
def make_setup(data, seed, epochs):
    torch.manual_seed(seed)
    own = torch.Generator().manual_seed(seed)
    x, y = data["train"]
    model = nn.Sequential(nn.Flatten(), nn.Linear(x[0].numel(), 48), nn.ReLU(),
                          nn.Linear(48, data["num_classes"]))
    return {"model": model, "loss_fn": Loss(),
            "optimizer": torch.optim.AdamW(model.parameters(), lr=0.01),
            "train_loader": DataLoader(TensorDataset(x, y), 32, shuffle=True, generator=own),
            "val_loader": DataLoader(TensorDataset(*data["val"]), 64)}
"""
FROM_A_TENSOR = """
import collections, importlib, logging, operator, warnings
import torch
from IPython.utils import frame
class Seen(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        LOOK
        return super().__torch_function__(func, types, args, kwargs or {})
def evaluate(model, loader, criterion):
    was = [(m, m.training) for m in model.modules()]
    model.eval()
    loss = correct = count = 0
    with torch.no_grad():
        for x, y in loader:
            out = model(x)
            loss += float(criterion(out.as_subclass(Seen), y)) * len(y)
            correct += int((out.argmax(1) == y).sum())
            count += len(y)
    for m, training in was:
        m.training = training
    return {"loss": loss / count, "accuracy": correct / count}
"""
"""A loss of the check's calls the student's code again."""
AROUND = HONEST.replace("def clip_by_global_norm", "def right")
REACH = {
    "stack": (SETUP, (FROM_A_LOSS.replace("LOOK", "inspect.stack()"),), FRAMES),
    "put-together": (
        SETUP, (FROM_A_LOSS.replace("LOOK", "getattr(sys, '_get%s' % 'frame')()"),), FRAMES,
    ),
    "generator": (
        SETUP,
        (FROM_A_LOSS.replace("LOOK", "g = (sys._getframe() for _ in '1'); next(g)"),),
        FRAMES,
    ),
    "threads-frames": (
        CLIP,
        (AROUND, "import sys\ndef clip_by_global_norm(p, m):\n"
                 "    getattr(sys, '_current_' + 'frames')()\n    return right(p, m)"),
        FRAMES,
    ),
    "objects": (
        CLIP,
        (AROUND, "import importlib as i\ndef clip_by_global_norm(p, m):\n"
                 "    getattr(i.import_module('g' + 'c'), 'get_%s' % 'referents')(right)\n"
                 "    return right(p, m)"),
        OBJECTS,
    ),
    "traced": (
        CLIP,
        (AROUND, "import sys\ndef look(*_): pass\ndef clip_by_global_norm(p, m):\n"
                 "    getattr(sys, 'set%s' % 'profile')(look)\n    return right(p, m)"),
        TRACED,
    ),
    "traced-for-a-moment": (
        CLIP,
        (AROUND, "import sys\ndef clip_by_global_norm(p, m):\n"
                 "    sys.setprofile(type('P', (), {'__call__': lambda *_: None})())\n"
                 "    n = right(p, m)\n    sys.setprofile(None)\n    return n"),
        TRACED,
    ),
    "traced-in-a-thread": (
        CLIP,
        (AROUND, "import threading\ndef clip_by_global_norm(p, m):\n    found = []\n"
                 "    threading.setprofile(lambda *_: None)\n"
                 "    t = threading.Thread(target=lambda: found.append(right(p, m)))\n"
                 "    t.start(); t.join(); threading.setprofile(None)\n    return found[0]"),
        TRACED,
    ),
    "traced-by-what-dies-in-the-check": (
        bank.load("01b.softmax"),
        ("import sys\nimport numpy as np\nclass Dies(np.ndarray):\n    def __del__(self):\n"
         "        getattr(sys, 'set%s' % 'profile')(type('P', (), {'__call__': len})())\n"
         "def softmax(x, axis):\n    e = np.exp(x - x.max(axis, keepdims=True))\n"
         "    return (e / e.sum(axis, keepdims=True)).view(Dies)",),
        TRACED,
    ),
    "beside": (
        bank.load("01b.relu"),
        ("import numpy as np\nfrom concurrent.futures import ThreadPoolExecutor\n"
         "pool = ThreadPoolExecutor(1)\nprint(pool.submit(abs, 1).result())\n"
         "def relu(x):\n    y = pool.submit(np.maximum, x, 0).result()\n"
         "    return y, lambda g: g * (x > 0)",),
        BESIDE,
    ),
    "thread": (
        CLIP,
        (AROUND, "import threading, time\ndef later():\n    while True: time.sleep(0.01)\n"
                 "def clip_by_global_norm(p, m):\n"
                 "    threading.Thread(target=later, daemon=True).start()\n"
                 "    return right(p, m)"),
        THREADS,
    ),
    "timer": (
        CLIP,
        (AROUND, "import threading\ndef clip_by_global_norm(p, m):\n"
                 "    t = threading.Timer(30, print); t.daemon = True; t.start()\n"
                 "    return right(p, m)"),
        THREADS,
    ),
    "thread-beside-a-process": (
        bank.load("03g.resume"),
        ("import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
         "def train_to(*_): raise ValueError",),
        THREADS,
    ),
    "bdb": (
        CLIP,
        (AROUND, "import bdb\nclass Own(bdb.Bdb):\n    def user_line(self, frame): pass\n"
                 "def clip_by_global_norm(p, m):\n    return Own().runcall(right, p, m)"),
        TRACED,
    ),
    "answers": (
        CLIP,
        (AROUND, "import autograde\nfrom concurrent.futures import ThreadPoolExecutor\n"
                 "bank = getattr(autograde, '%snk' % 'ba')\n"
                 "task = ThreadPoolExecutor(1).submit(bank.load, '03a.order')\n"
                 "order = getattr(task.result(), 'right_%s' % 'value')('')\n"
                 "def clip_by_global_norm(p, m): return right(p, m)"),
        ANSWERS,
    ),
    "answers-handed-on": (
        CLIP,
        (AROUND, "from autograde import check\nimport importlib\n"
                 "value = importlib.import_module('autograde.kinds.%s' % 'value')\n"
                 "value.ValueExercise.judge_given = lambda self, _: self.right_value('')\n"
                 "def clip_by_global_norm(p, m):\n    return right(p, m)",
         "try: check('03a.order', [])\nexcept AttributeError: pass"),
        ANSWERS,
    ),
    "answer-tried-out": (
        CLIP,
        (AROUND, "from autograde import check\ntry_out = check\n"
                 "found = [n for n in range(40) if try_out('03a.windows', n).passed]\n"
                 "def clip_by_global_norm(p, m): return right(p, m)"),
        TRIED,
    ),
    "by-logging": (EVALUATE, (FROM_A_TENSOR.replace("LOOK", "logging.currentframe()"),), FRAMES),
    "by-ipython": (
        EVALUATE, (FROM_A_TENSOR.replace("LOOK", "frame.extract_module_locals(1)"),), FRAMES,
    ),
    "as-text": (
        EVALUATE,
        (FROM_A_TENSOR.replace("LOOK", "t = importlib.import_module('traceback'); "
                               "t.StackSummary.extract(t.walk_stack(None), capture_locals=True)"),),
        FRAMES,
    ),
    "in-silence": (
        CLIP,
        (AROUND, "import concurrent.futures.process as p, sys\ndef clip_by_global_norm(a, m):\n"
                 "    p.mp.connection.Connection.send_bytes = lambda *_: None\n"
                 "    getattr(sys, '_current_' + 'frames')()\n    return right(a, m)"),
        FRAMES,
    ),
    "pipe-led-elsewhere": (
        CLIP,
        (AROUND, "import os, sys\ndef clip_by_global_norm(a, m):\n"
                 "    fds = [f for f in range(3, 60) if os.path.exists(f'/proc/self/fd/{f}')]\n"
                 "    kept = [os.dup(f) for f in fds]\n"
                 "    nowhere = os.open('/dev/null', os.O_RDWR)\n"
                 "    for f in fds: os.dup2(nowhere, f)\n"
                 "    getattr(sys, '_current_' + 'frames')()\n"
                 "    for f, k in zip(fds, kept): os.dup2(k, f)\n    return right(a, m)"),
        FRAMES,
    ),
    "hooked": (
        CLIP,
        (AROUND, "import sys\ndef clip_by_global_norm(p, m):\n"
                 "    getattr(sys, 'addaudit%s' % 'hook')(lambda *_: None)\n"
                 "    return right(p, m)"),
        TRACED,
    ),
    "program": (
        CLIP,
        (AROUND, "import os\ndef clip_by_global_norm(p, m):\n    os.popen('true; exit').read()\n"
                 "    return right(p, m)"),
        PROGRAM,
    ),
    "program-of-a-fork": (
        CLIP,
        (AROUND, "import os\ndef clip_by_global_norm(p, m):\n"
                 "    if not getattr(os, 'fo' + 'rk')():\n        os.execv('/bin/true', ['true'])\n"
                 "    os.wait()\n    return right(p, m)"),
        PROGRAM,
    ),
    "program-named-as-a-tool": (
        CLIP,
        (AROUND, "import os\nopen('lscpu', 'w').write('#!/bin/sh')\nos.chmod('lscpu', 0o755)\n"
                 "os.environ['PATH'] = '.'\ndef clip_by_global_norm(p, m):\n"
                 "    os.popen('lscpu').read()\n    return right(p, m)"),
        PROGRAM,
    ),
    "recorded": (
        CLIP,
        ("import torch\ntotal = torch.jit.CompilationUnit('''\ndef total(a: List[Tensor]):\n"
         "    return torch.cat([g.flatten() for g in a]).norm()\n''').total\n"
         "def clip_by_global_norm(p, m):\n    gs = [a.grad for a in p if a.grad is not None]\n"
         "    n = total(gs)\n    for g in gs: g.mul_(torch.clamp(m / (n + 1e-6), max=1.0))\n"
         "    return n",),
        RECORDED,
    ),
    "changed": (
        CLIP,
        (AROUND, "import autograde.bank.harness as h\ndef clip_by_global_norm(p, m):\n"
                 "    h.Watch.changed = lambda *_: []\n    return right(p, m)"),
        CHANGED,
    ),
}  # fmt: skip
EVERYDAY = {
    "checked-a-few-times": "from autograde import ask, check, hint\nfor n in range(8):\n"
                           "    q = ask('03a.windows')\n    hint('03a.windows')\n"
                           "    check('03a.windows', n)\n    check('03a.order', [])\n"
                           "def clip_by_global_norm(p, m): return right(p, m)",
    "own-frame": "import inspect, sys, traceback\nprint(inspect.currentframe().f_lineno)\n"
                 "def clip_by_global_norm(p, m):\n    sys._getframe().f_code.co_name\n"
                 "    inspect.stack()\n    traceback.format_stack()\n    return right(p, m)",
    "own-error": "import logging, traceback, sys\ndef clip_by_global_norm(p, m):\n"
                 "    try:\n        [][0]\n    except IndexError as e:\n"
                 "        traceback.print_exc(); sys.exc_info()[2].tb_frame\n"
                 "    return right(p, m)",
    "pool": "from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(2)\n"
            "import tqdm\ndef clip_by_global_norm(p, m):\n"
            "    return list(tqdm.tqdm(pool.map(lambda _: right(p, m), [0])))[0]",
    "profiled": "import cProfile\ndef clip_by_global_norm(p, m):\n    pr = cProfile.Profile()\n"
                "    pr.enable()\n    n = right(p, m)\n    pr.disable()\n    return n",
    "profiled-by-torch": "import torch\ndef clip_by_global_norm(p, m):\n"
                         "    with torch.profiler.profile(with_stack=True):\n"
                         "        return right(p, m)",
    "workers": "import torch\nfrom torch.utils.data import DataLoader\n"
               "loader = DataLoader(list(range(4)), num_workers=1, persistent_workers=True)\n"
               "list(loader)\ndef clip_by_global_norm(p, m): return right(p, m)",
    "asked": "from autograde import ask, check, hint, student\nstudent('ada')\n"
             "ask('03a.windows'), ask('03a.order'), hint('03a.order')\n"
             "assert check('03a.windows', {'batches': 1}).points == 0\n"
             "def clip_by_global_norm(p, m): return right(p, m)",
    "tools": "import ctypes.util, joblib, os, platform, subprocess\n"
             "from course.engine import identity\ndef clip_by_global_norm(p, m):\n"
             "    platform.processor(); ctypes.util.find_library('c'); identity.code_identity()\n"
             "    joblib.cpu_count(only_physical_cores=True); os.popen('nvidia-smi').read()\n"
             "    subprocess.run('nvidia-smi --query-gpu=memory.used --format=csv', shell=True)\n"
             "    return right(p, m)",
    "doctest": "import doctest\nright.__doc__ = '>>> 1 + 1\\n2'\ndoctest.testmod()\n"
               "doctest.run_docstring_examples(right, globals())\n"
               "def clip_by_global_norm(p, m): return right(p, m)",
    "collected": "import gc, weakref\ndef clip_by_global_norm(p, m):\n    gc.collect()\n"
                 "    return right(p, m)",
    "warned": "import warnings, collections, dataclasses, typing, enum\n"
              "def clip_by_global_norm(p, m):\n    warnings.warn('x', stacklevel=9)\n"
              "    collections.namedtuple('N', 'a b')(1, 2)\n"
              "    enum.Enum('E', 'a b'); typing.NamedTuple('T', [('a', int)])\n"
              "    dataclasses.make_dataclass('D', ['a'])(1)\n    return right(p, m)",
}  # fmt: skip


LOGS = (
    "logging.getLogger('a').info('b'); logging.warning('c'); warnings.warn('d'); "
    "collections.namedtuple('N', 'a b')"
)


def graded(exercise, cells):
    """What was noted of the cells' code, and the verdict."""
    with StudentSession(None, Limits()) as session:
        for cell in cells:
            assert not [o for o in session.run(cell) if o["output_type"] == "error"]
        verdict = judge(
            exercise,
            lambda case: session.ask(exercise.id, exercise.name, case),
            seed=5,
            parts="all",
        )
        return session.noted, verdict


@pytest.mark.parametrize("name", REACH)
def test_what_leads_to_the_check_is_noted(name):
    exercise, cells, kind = REACH[name]
    noted, _verdict = graded(exercise, cells)
    assert noted == {kind}


@pytest.mark.parametrize("name", EVERYDAY)
def test_everyday_code_is_not_noted_and_keeps_its_points(name):
    noted, verdict = graded(CLIP, (AROUND, EVERYDAY[name]))
    assert noted == set() and verdict.passed


def test_an_exercise_answered_by_a_value_is_in_no_module_and_no_solution_can_be_written():
    with StudentSession(None, Limits()) as session:
        (said,) = session.run("import autograde.bank.order")
        session.run("import autograde.expand as expand")
        (empty,) = session.run("expand.expand")
    assert said["ename"] == "ModuleNotFoundError" and empty["ename"] == "AttributeError"


IN_THE_CHECK = """
import sys
class Again:
    woken = 0
    def __init__(self): self.me = self
    def __del__(self):
        Again.woken += 1
        getattr(sys, "set%s" % "profile")(look)
        Again()
seen = []
class Look:
    def __call__(self, frame, event, arg): seen.append(frame.f_code.co_filename)
look = Look()
for _ in range(3): Again()
kept, before = [], Again.woken
while Again.woken == before: kept.append([])
more = [[] for _ in range(600)]
"""


def test_a_finalizer_has_nothing_of_the_check_called_or_shown():
    source = IN_THE_CHECK + "def clip_by_global_norm(p, m): return right(p, m)"
    with StudentSession(None, Limits()) as session:
        session.run(AROUND)
        session.run(source)
        judge(CLIP, lambda case: session.ask(CLIP.id, CLIP.name, case), seed=5, parts="all")
        (said,) = session.run("print(*{s for s in seen if '/autograde/' in s})")
    assert {path.rpartition("/")[2] for path in said["text"].split()} <= {"stacks.py"}


@pytest.mark.parametrize("call", ["import _testcapi", "import _xxsubinterpreters as x; x.create()"])
def test_no_further_interpreter_can_be_started(call):
    with StudentSession(None, Limits()) as session:
        (said,) = session.run(call)
    assert said["ename"] == "ModuleNotFoundError" and "cannot be loaded here" in said["evalue"]


def test_who_logs_a_line_of_ones_own_is_not_noted_where_the_check_calls():
    noted, verdict = graded(EVALUATE, (FROM_A_TENSOR.replace("LOOK", LOGS),))
    assert noted == set() and verdict.passed


TYPE_FOUND = """
G = next(c for c in object.__subclasses__() if c.__name__ == "greenlet")
print([name for name in dir(G) if name[:2] != '__'])
"""
MODULE_MADE_AGAIN = """
import _imp, sysconfig
from importlib.machinery import ModuleSpec
packages, ending = sysconfig.get_path("platlib"), sysconfig.get_config_var("EXT_SUFFIX")
place = f"{packages}/greenlet/_greenlet{ending}"
made = _imp.create_dynamic(ModuleSpec("greenlet._greenlet", None, origin=place))
print([name for name in dir(made.getcurrent()) if name[:2] != '__'])
"""


def test_a_stack_of_ones_own_cannot_be_left():
    with StudentSession(None, Limits()) as session:
        (said,) = session.run("from greenlet import getcurrent")
        assert said["ename"] == "ImportError"
        (said,) = session.run(TYPE_FOUND)
        assert said["text"] == "['run']\n"
        (said,) = session.run(MODULE_MADE_AGAIN)  # which needs no file
        assert said["text"] == "['run']\n"


CALLED_BY_A_FORK = """
import os, sys
os.register_at_fork(before=sys._getframe, after_in_child=lambda: sys._getframe())
class Stopper:
    def __init__(self, patience, min_delta=0.0):
        self.patience, self.min_delta, self.best, self.bad = patience, min_delta, float("inf"), 0
    def update(self, val_loss):
        better = val_loss < self.best - self.min_delta
        self.best, self.bad = (val_loss, 0) if better else (self.best, self.bad + 1)
        return self.bad >= self.patience
    state_dict = load_state_dict = lambda self, *_: {}
"""


def test_what_a_fork_calls_finds_no_frame_of_the_check():
    noted, verdict = graded(bank.load("03g.stopper"), (CALLED_BY_A_FORK,))
    assert noted == set() and not any(part.raised for part in verdict.parts[:1])


TIMED = """
import signal
def rings(number, frame):
    raise TimeoutError(frame.f_code.co_name)
before = signal.signal(signal.SIGALRM, rings)
signal.setitimer(signal.ITIMER_REAL, 0.01)
def works():
    while True: pass
try:
    works()
except TimeoutError as late:
    print(late, signal.signal(signal.SIGALRM, before) is rings, before is signal.SIG_DFL)
"""


def test_a_timer_of_ones_own_rings_in_ones_own_code():
    with StudentSession(None, Limits()) as session:
        (said,) = session.run(TIMED)
        assert said["text"] == "works True True\n"


ELSEWHERE = {
    "an archive": "import sys; sys.path.insert(0, 'data.zip'); import packed",
    "an archive of compiled code": "import sys; sys.path.insert(0, 'data.zip'); import hidden",
    "a compiled file": "import compiled",
    "a text": "import runpy; runpy.run_path('notes.txt');",
    "a text, by magic": "%run notes.txt",
    "a text, as a module": "from importlib.machinery import SourceFileLoader as L\n"
    "L('own', 'notes.txt').load_module();",
    "torch's archive": "import torch.package\n"
    "with torch.package.PackageExporter('m.pt') as made: made.save_source_string('own', 'x = 1')\n"
    "torch.package.PackageImporter('m.pt').import_module('own');",
}
"""Code where nobody reads it."""
READ = """
import collections, dataclasses, doctest, importlib, sys, timeit, torch
import jinja2
import helper, package.inner
importlib.reload(helper)
%run helper.py
collections.namedtuple('P', 'x y')(1, 2)
dataclasses.make_dataclass('D', ['a'])(1)
exec('a = 1'); eval(compile('a + 1', 'made up', 'eval'))
exec(compile('b = 1', 'made/up.py', 'exec'))
doctest.testmod(); timeit.timeit('1 + 1', number=1)
%timeit -n 1 -r 1 sum(range(3))
jinja2.Template('{{ a }}').render(a=1)
open('written.py', 'w').write('x = 1')
import written
"""


@pytest.fixture(scope="module")
def with_files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("handed-in")
    code = bytes(python._code_to_timestamp_pyc(compile("x = 1", "<cell>", "exec")))
    with zipfile.ZipFile(folder / "data.zip", "w") as archive:
        archive.writestr("packed.py", "x = 1")
        archive.writestr("hidden.pyc", code)
    (folder / "compiled.pyc").write_bytes(code)
    (folder / "notes.txt").write_text("x = 1")
    (folder / "package").mkdir()
    (folder / "package" / "inner.py").write_text("x = 1")
    (folder / "helper.py").write_text("x = 'its text'")
    other = compile("x = 'other code'", "helper.py", "exec")
    cached = folder / "__pycache__" / python.cache_from_source("helper.py").rpartition("/")[2]
    cached.parent.mkdir()
    hashed = python._code_to_hash_pyc(other, bytes(8), checked=False)
    cached.write_bytes(hashed)
    return folder


@pytest.mark.parametrize("where", ELSEWHERE)
def test_code_from_what_nobody_reads_is_told(where, with_files):
    with StudentSession(with_files, Limits(cell_s=20.0)) as session:
        assert session.run(ELSEWHERE[where]) == [] and session.noted == {UNREAD}


def test_code_that_is_read_or_has_no_file_is_not_told_and_runs_as_its_text_says(with_files):
    with StudentSession(with_files, Limits(cell_s=20.0)) as session:
        said = session.run(READ)
        assert not [output for output in said if output["output_type"] == "error"]
        (shown,) = session.run("print(helper.x)")
        assert shown["text"] == "its text\n" and session.noted == set()


LOOP = bank.load("03a.fix-the-loop")
TAKES = "model, train_loader, val_loader, criterion, optimizer, epochs"
WHOLE = fix_the_loop.FIXED.replace("def fit", "def whole")
EMPTY = fix_the_loop.GIVEN.replace("in range(epochs)", "in []")


def ending(call, more=""):
    """The given loop, whose own work never begins, and another end."""
    assert "return val_losses" in EMPTY
    return EMPTY.replace("epochs)", f"epochs{more})", 1).replace(
        "return val_losses", f"return {call}"
    )


HANDED_TO = {
    "under a builtin's name": (WHOLE.replace("whole", "round"), ending(f"round({TAKES})")),
    "as a default": (WHOLE, ending(f"go({TAKES})", ", go=None") + "fit.__defaults__ = (whole,)"),
    "by an operator": (
        f"{WHOLE}nn.Module.__matmul__ = lambda model, rest: whole(model, *rest)",
        ending(f"model @ ({TAKES[7:]},)"),
    ),
    "by a pattern": (f"{WHOLE}match whole:\n    case work: pass", ending(f"work({TAKES})")),
    "in a library": (f"{WHOLE}vars(nn).update(work=whole)", ending(f"nn.work({TAKES})")),
    "among the names": (f"{WHOLE}globals().update(work=whole)", ending(f"work({TAKES})")),
    "in a thread": (
        f"import threading\ndone = []\ndef whole(*them):\n    done.append(inner(*them))\n"
        f"{WHOLE.replace('whole', 'inner')}def first(*them):\n"
        "    one = threading.Thread(target=whole, args=them)\n    one.start()\n    one.join()\n"
        "    return done.pop()",
        ending(f"first({TAKES})"),
    ),
    "by a library": (
        f"import timeit\ntimeit.timeit({'global whole' + WHOLE!r}, globals=globals(), number=1)",
        ending(f"whole({TAKES})"),
    ),
}
GLOBALS = "import torch\nfrom torch import nn"


def ran_of(*cells):
    """What ran besides the loop, the last answer, and what was noted."""
    case = LOOP.cases(LOOP.parts[0], seed=1)[0]
    with StudentSession(None, Limits()) as session:
        for cell in (GLOBALS, *cells):
            assert not [o for o in session.run(cell) if o["output_type"] == "error"]
        answer = session.ask(LOOP.id, LOOP.name, case)
        return answer, session.noted


@pytest.mark.parametrize("way", HANDED_TO)
def test_what_a_loop_to_fix_runs_besides_is_told_however_it_gets_there(way):
    answer, noted = ran_of(*HANDED_TO[way])
    found = ran_besides(LOOP, answer[RAN], ())
    assert max(found.values()) > fix_the_loop.MOST and noted == set()


SAYS = "def say(epoch, loss):\n    print(f'{epoch}: {loss:.3f}')\n"
SAYING = fix_the_loop.FIXED.replace(
    "        val_losses.append", "        say(0, total)\n        val_losses.append"
)


NOTES = "import dataclasses\n@dataclasses.dataclass\nclass Note:\n" + "".join(
    f"    a{n}: int = {n}\n" for n in range(20)
)
NOTING = fix_the_loop.FIXED.replace("val_losses.append", "Note()\n        val_losses.append")
LOADING = fix_the_loop.FIXED.replace("val_losses = []", "import mpmath\n    val_losses = []")


@pytest.mark.parametrize(
    "cells",
    [(fix_the_loop.FIXED,), (SAYS, SAYING), (NOTES, NOTING), ("", LOADING)],
    ids=["fixed", "helper", "data-class", "library-that-makes-code"],
)
def test_of_an_honest_repair_nothing_is_told(cells):
    answer, noted = ran_of(*cells)
    assert ran_besides(LOOP, answer[RAN], ()) == {} and noted == set()
    assert calls_packed(LOOP, cells, answer[CODE]) == 0


def test_a_loop_may_call_what_answers_another_exercise():
    answer, _noted = ran_of(WHOLE, ending(f"whole({TAKES})"))
    assert ran_besides(LOOP, answer[RAN], ())
    assert ran_besides(LOOP, answer[RAN], codes_named([WHOLE], "whole")) == {}
    assert ran_besides(LOOP, answer[RAN], codes_named([f"{WHOLE}    print()"], "whole"))


WRAPS = """
from functools import wraps
def wrapped(function):
    @wraps(function)
    def call(*given):
        return function(*given)
    return call
"""
TWICE = WRAPS.replace("return function(*given)", "return function(*given) or whole(*given)")


@pytest.mark.parametrize(
    ("cells", "told"),
    [((WRAPS, fix_the_loop.FIXED), set()), ((WHOLE, TWICE, EMPTY), {"whole"})],
    ids=["honest", "hands-on"],
)
def test_of_a_decorated_loop_what_ran_besides_is_not_the_loop_itself(cells, told):
    *before, loop = cells
    cells = [*before, f"@wrapped\n{loop.strip()}"]
    answer, _noted = ran_of(*cells)
    assert answer[CODE] == "" and ran_besides(LOOP, answer[RAN], ())
    left = ran_besides(LOOP, without_the_loop(LOOP, cells, answer[RAN]), ())
    assert {*left} - {"wrapped.<locals>.call"} == told


LOOKS_AWAY = {
    "process": f"def fit({TAKES}):\n    import os\n"
    "    if not (child := os.fork()): os._exit(0)\n    os.waitpid(child, 0)\n    return []",
    "not counted": f"def fit({TAKES}):\n    import sys\n    sys.setprofile(None)\n    return []",
    "counted anew": f"def fit({TAKES}):\n    import sys\n    sys.getprofile().clear()\n"
    "    return []",
}  # fmt: skip


@pytest.mark.parametrize("way", LOOKS_AWAY)
def test_a_loop_to_fix_that_has_its_calls_not_counted_is_noted(way):
    _answer, noted = ran_of(LOOKS_AWAY[way])
    assert UNCOUNTED in noted


PACKED = "[" + ", ".join(f"abs({n})" for n in range(12)) + "]"


def test_calls_that_are_packed_into_one_line_are_counted():
    loop = fix_the_loop.GIVEN.replace("    val_losses = []", f"    val_losses = {PACKED}", 1)
    answer, _noted = ran_of(loop)
    assert calls_packed(LOOP, [loop], answer[CODE]) == 12
