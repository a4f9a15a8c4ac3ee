"""Who asks Python for more than an answer needs is named to a person, under whatever name."""

import pytest

from autograde import bank
from autograde.referee import judge
from autograde.sandbox.limits import Limits
from autograde.sandbox.reaching import ANSWERS, CHANGED, FRAMES, OBJECTS, THREADS, TRACED
from autograde.sandbox.session import StudentSession
from tests.attacks.submissions import HONEST

CLIP = bank.load("03a.clip")
SETUP = bank.load("05.setup")

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
    "changed": (
        CLIP,
        (AROUND, "import autograde.bank.harness as h\ndef clip_by_global_norm(p, m):\n"
                 "    h.Watch.changed = lambda *_: []\n    return right(p, m)"),
        CHANGED,
    ),
}  # fmt: skip
EVERYDAY = {
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
    "workers": "import torch\nfrom torch.utils.data import DataLoader\n"
               "loader = DataLoader(list(range(4)), num_workers=1, persistent_workers=True)\n"
               "list(loader)\ndef clip_by_global_norm(p, m): return right(p, m)",
    "asked": "from autograde import ask, check, hint, student\nstudent('ada')\n"
             "ask('03a.windows'), ask('03a.order'), hint('03a.order')\n"
             "assert check('03a.windows', {'batches': 1}).points == 0\n"
             "def clip_by_global_norm(p, m): return right(p, m)",
    "collected": "import gc, weakref\ndef clip_by_global_norm(p, m):\n    gc.collect()\n"
                 "    return right(p, m)",
    "warned": "import warnings, collections, dataclasses, typing, enum\n"
              "def clip_by_global_norm(p, m):\n    warnings.warn('x', stacklevel=9)\n"
              "    collections.namedtuple('N', 'a b')(1, 2)\n"
              "    enum.Enum('E', 'a b'); typing.NamedTuple('T', [('a', int)])\n"
              "    dataclasses.make_dataclass('D', ['a'])(1)\n    return right(p, m)",
}  # fmt: skip


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


def test_a_stack_of_ones_own_cannot_be_left():
    with StudentSession(None, Limits()) as session:
        (said,) = session.run("from greenlet import getcurrent")
        assert said["ename"] == "ImportError"
