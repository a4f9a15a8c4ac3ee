"""What a submission borrows: the grader's words, a neighbour's work, an earlier cell's process."""

import ast
import os
import re
import sys
from pathlib import Path

import pytest
import torch

import course
from autograde import bank
from autograde.answers import CPU, Raised
from autograde.by_hand import functions_named, python_function
from autograde.classroom.conspicuous import words_for
from autograde.classroom.export import doubtful_times
from autograde.classroom.notebook_text import read_notebook
from autograde.classroom.submissions import SubmissionFault, look_at
from autograde.exercise import NotAllowedError
from autograde.questions import difference_from, scored
from autograde.sandbox import copies, reaching, stubs
from autograde.sandbox.limits import Limits
from autograde.sandbox.session import OURS, StudentSession
from tests.attacks.further import FURTHER
from tests.sampling import sample
from tests.short_class import hand_in

CLIP = bank.load("03a.clip")
CASE = CLIP.cases(CLIP.parts[0], seed=1)[0]
ABOUT = {"cells": [], "released": {}, "calls": {}}


@pytest.mark.parametrize("name", OURS)
def test_an_exception_cannot_borrow_the_graders_words(name):
    source = (
        f"class {name}(Exception): pass\n"
        f"def clip_by_global_norm(parameters, max_norm): raise {name}('points for all')"
    )
    with StudentSession(None, Limits(cell_s=10.0)) as session:
        session.run(source)
        answer = session.ask(CLIP.id, CLIP.name, CASE)
        (shown,) = session.run(f"raise {name}('x')")
    assert isinstance(answer, Raised) and answer.kind == f"Own{name}"
    assert shown["ename"] == f"Own{name}"
    assert words_for({"a": source}, [CLIP.id]) == [], "nor is a class of that name held against it"


@pytest.mark.parametrize("name", ["guard-taken-out", "main-is-replaced"])
def test_what_reaches_for_the_guards_is_named_for_a_person_to_read(name):
    cells = {str(n): cell for n, cell in enumerate(FURTHER[name].cells)}
    assert words_for(cells, [CLIP.id])


def test_the_museums_training_step_is_guarded_as_the_engines_is():
    exercise = bank.load("03a.train-one-epoch")
    assert "course.debug.museum.exhibit" in stubs.guarded_with_stand_ins(exercise)
    source = "from course.debug.museum.exhibit import healthy_step"
    assert "healthy_step" in words_for({"a": f"{source}\nx.healthy_step"}, [exercise.id])[0]


def calls_to_the_course(exercise, function):
    """(module, name) of what the bank calls of the course while a function is asked one case."""
    met, (home, inside) = set(), map(os.path.dirname, (course.__file__, bank.__file__))

    def look(frame, event, _arg):
        caller = frame.f_back.f_code.co_filename if event == "call" and frame.f_back else ""
        if caller.startswith(inside) and frame.f_code.co_filename.startswith(home):
            name = frame.f_code.co_qualname.partition(".")[0]
            met.add((frame.f_globals["__name__"], name))

    case = exercise.cases(exercise.parts[0], seed=1)[0]
    sys.setprofile(look)
    try:
        exercise.run(function, case, torch.device("cpu"))
    finally:
        sys.setprofile(None)
    return met


HANDED_ON = """
import inspect
from {module} import {name} as course_has
def {answer}(*args):
    needed = [p for p in inspect.signature(course_has).parameters.values() if p.default is p.empty]
    named = {{p.name: None for p in needed if p.kind is p.KEYWORD_ONLY}}
    places = [None for p in needed if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return course_has(*places, **named)
"""


@pytest.fixture(scope="module")
def made_of():
    """What the references call of the course, however they name it, and the right ones do not; the
    exercises whose statements allow it are left out."""
    wholes = [entry.load() for entry in bank.asks_for_code().values()]
    asked = [one for one in wholes if one.kind != "fix" and not one.may_use]
    own = {one.id: calls_to_the_course(one, one.right[0]) for one in asked}
    return {one.id: calls_to_the_course(one, one.reference) - own[one.id] for one in asked}


def test_whatever_of_the_course_a_reference_calls_its_exercise_guards(made_of):
    guards = {id: stubs.guarded_with_stand_ins(bank.load(id)) for id in made_of}
    left = {id for id, calls in made_of.items() if calls and not guards[id]}
    assert not left and sum(map(bool, made_of.values())) > 30


def test_no_function_that_the_references_are_made_of_answers_for_a_student(made_of):
    pairs = {
        id: max(pair for pair in calls if pair[0] in stubs.guarded_with_stand_ins(bank.load(id)))
        for id, calls in made_of.items()
        if calls
    }
    reached = ("01b.linear", "02a.dead-units", "04a.adam", "04a.adamw")  # by a module's name
    with StudentSession(None, Limits(cell_s=10.0)) as session:
        for id in dict.fromkeys([*reached, *sample(list(pairs), 8)]):
            exercise, (module, name) = bank.load(id), pairs[id]
            text = HANDED_ON.format(module=module, name=name, answer=exercise.name)
            assert session.run(text) == []
            case = exercise.cases(exercise.parts[0], seed=1)[0]
            answer = session.ask(id, exercise.name, case)
            refusal = "does what this exercise asks|The course.s own code is what this exercise"
            assert re.search(refusal, getattr(answer, "text", "")), (id, answer)


def test_what_an_earlier_cell_started_stands_still_only_while_a_function_is_asked():
    source = (
        "import os, time, torch\nr, w = os.pipe()\nchild = os.fork()\n"
        "if not child:\n    while True: os.write(w, b'x'); time.sleep(0.01)\n"
        "def drained():\n    os.set_blocking(r, False)\n    n = 0\n"
        "    while True:\n        try: n += len(os.read(r, 65536))\n"
        "        except OSError: return n\n"
        "def clip_by_global_norm(parameters, max_norm):\n"
        "    drained(); time.sleep(0.3)\n    raise ValueError(str(drained()))"
    )
    with StudentSession(None, Limits(cell_s=10.0)) as session:
        session.run(source)
        answer = session.ask(CLIP.id, CLIP.name, CASE)
        (later,) = session.run("drained(); time.sleep(0.5); print(drained() > 3)")
    assert answer.kind == "ValueError" and answer.text.split(",")[0] == "0"
    assert later["text"] == "True\n"


WOKEN = """
from course.engine import clip_by_global_norm as theirs
import os, signal, torch
asked, told = os.pipe(), os.pipe()
child = os.fork()
if not child and not os.setsid() and os.fork():
    while True: signal.pause()
if not child:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    os.setpgid(0, 0)  # a stopped group goes on when whom it belongs to ends
    os.write(told[1], b"!")
os.read(told[0], 1) if child else None
while not child:
    os.read(asked[0], 1)
    try:
        os.write(told[1], repr(theirs([torch.nn.Parameter(torch.ones(1))], 1.0)).encode())
    except Exception as fault:
        os.write(told[1], type(fault).__name__.encode())
def clip_by_global_norm(parameters, max_norm):
    os.kill(child, signal.SIGKILL)
    os.write(asked[1], b"x")
    raise ValueError(os.read(told[0], 100).decode())
"""


def test_what_an_earlier_cell_started_is_refused_the_courses_functions_though_it_is_woken():
    with StudentSession(None, Limits(cell_s=10.0)) as session:
        session.run(WOKEN)
        answer = session.ask(CLIP.id, CLIP.name, CASE)
        (later,) = session.run("os.write(asked[1], b'x'); print(os.read(told[0], 100).decode())")
        assert session.noted == {reaching.WOKEN}
    assert answer.kind == "ValueError" and answer.text.startswith("NotAllowedError")
    assert "NotAllowedError" not in later["text"]  # as in any ordinary cell


def test_what_an_earlier_cell_started_cannot_be_told_to_go_on():
    source = (
        "import os, signal, time\nr, w = os.pipe()\nchild = os.fork()\n"
        "while not child: os.write(w, b'x'); time.sleep(0.01)\n"
        "os.set_blocking(r, False)\n"
        "def read():\n"
        "    try: return os.read(r, 65536)\n"
        "    except BlockingIOError: return b'nothing'\n"
        "def clip_by_global_norm(parameters, max_norm):\n"
        "    read(); os.kill(child, signal.SIGCONT); time.sleep(0.2)\n"
        "    raise ValueError(read().decode())"
    )
    with StudentSession(None, Limits(cell_s=10.0)) as session:
        session.run(source)
        answer = session.ask(CLIP.id, CLIP.name, CASE)
        assert session.noted == set()
    assert answer.text.startswith("nothing")


PYTHONS = {
    "popen": "os.popen(sys.executable + ' -c 1').read()",
    "getoutput": "get_ipython().getoutput(sys.executable + ' -c 1')",
    "pty": "import pty; pty.spawn([sys.executable, '-c', '1'])",
    "posix_spawn": "os.posix_spawn(sys.executable, [sys.executable, '-c', '1'], os.environ)",
    "spawn": "torch.multiprocessing.get_context('spawn').Process(target=print).start()",
}


@pytest.mark.parametrize("name", PYTHONS)
def test_no_other_python_is_started_while_a_function_is_asked(name):
    call = PYTHONS[name]
    with StudentSession(None, Limits(cell_s=10.0)) as session:
        session.run(f"import os, sys, torch\ndef clip_by_global_norm(p, m): {call}")
        answer = session.ask(CLIP.id, CLIP.name, CASE)
        noted = set(session.noted)
        (later,) = session.run(f"{call}; print('done')")
    assert noted == {reaching.PROGRAM} and later["text"].endswith("done\n")
    assert answer.text.startswith("Another Python was started while your function was called")


RECORDED = {
    "backward": ("01c.step-by-hand", """
import torch
back = torch.jit.CompilationUnit('''
def back(y: Tensor):
    y.backward()
''').back
def step_by_hand(weight, bias, inputs, targets, lr):
    back(weight.sum())
""", "backward() of TorchScript"),
    "engine": ("01c.step-by-hand", """
import torch
match torch.autograd.Variable:
    case object(_execution_engine=work):
        run = work.run_backward
leaf = torch.ones(2, requires_grad=True)
made_before = leaf.sum()
def step_by_hand(weight, bias, inputs, targets, lr):
    run((made_before,), (torch.ones(()),), False, False, (leaf,), allow_unreachable=True)
""", "autograd's engine"),
    "node": ("01c.step-by-hand", """
import torch
def step_by_hand(weight, bias, inputs, targets, lr):
    with torch.enable_grad():
        loss = weight.clone().requires_grad_().sum()
    return loss.grad_fn(torch.ones(()))
""", "a node of autograd's graph"),
    "traced": ("03a.clip", """
import torch
from types import SimpleNamespace as P
def clipped(a, b):
    return torch.nn.utils.clip_grad_norm_([P(grad=a), P(grad=b)], 1.0, foreach=False)
traced = torch.jit.trace(clipped, (torch.ones(3), torch.ones(2)), check_trace=False)
def clip_by_global_norm(parameters, max_norm):
    return traced(torch.ones(3), torch.ones(2))
""", "a recording of torch.nn.utils.clip_grad"),
}  # fmt: skip


@pytest.mark.parametrize("name", RECORDED)
def test_a_recording_of_what_must_be_written_by_hand_refuses(name):
    id, source, what = RECORDED[name]
    exercise = bank.load(id)
    with StudentSession(None, Limits(cell_s=10.0)) as session:
        session.run(source)
        answer = session.ask(id, exercise.name, exercise.cases(exercise.parts[0], seed=1)[0])
    assert answer.text.startswith(f"{what} does what this exercise asks you to write yourself")


WRITTEN_BY_TORCH = {
    "make_fx": "from torch.fx.experimental.proxy_tensor import make_fx\n"
    "run = make_fx(whole)(torch.ones(2))",
    "symbolic": "run = torch.fx.symbolic_trace(whole).forward",
    "interpreted": "run = torch.fx.Interpreter(torch.fx.symbolic_trace(whole)).run",
    "exported": "class M(torch.nn.Module):\n    def forward(self, x): return whole(x)\n"
    "run = torch.export.export(M(), (torch.ones(2),)).module()",
}


@pytest.mark.parametrize("name", WRITTEN_BY_TORCH)
def test_what_torch_has_recorded_and_written_out_is_named_to_a_person(name):
    """Only where it runs in place of what is to be written by hand; elsewhere it is nobody's."""
    source = (
        "import torch, torch.fx, torch.export\ndef whole(x): return x * 2\n"
        f"{WRITTEN_BY_TORCH[name]}\ndef clip_by_global_norm(p, m): return run(torch.ones(2))[0]"
    )
    with StudentSession(None, Limits(cell_s=20.0)) as session:
        assert session.run(source) == []
        (shown,) = session.run("print(run(torch.ones(2)))")
        assert shown["text"] == "tensor([2., 2.])\n" and session.noted == set()
        assert session.ask(CLIP.id, CLIP.name, CASE)["norm"] == 2.0
        assert session.noted == {reaching.RECORDED}


LEFT_ON = """
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
met = []
class Late(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        met.append(func)
        return func(*args, **kwargs or {})
class Below(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        met.append(func)
        return func(*args, **kwargs or {})
torch.set_default_device("meta")
for mode in (Late(), Below()): mode.__enter__()
met.clear()
def clip_by_global_norm(parameters, max_norm):
    return torch.ones(1) * len(met)
"""


def test_a_mode_left_on_takes_no_part_in_an_answer_and_is_on_again_afterwards():
    with StudentSession(None, Limits(cell_s=10.0)) as session:
        session.run(LEFT_ON)
        answer = session.ask(CLIP.id, CLIP.name, CASE)
        (later,) = session.run("print(len(met), torch.ones(2).device, len(met) > 1)")
    assert answer["norm"] == 0.0
    assert later["text"] == "0 meta True\n"


FORWARDS = """
import torch
from torch.autograd import forward_ad
forward_ad.enter_dual_level()
begun = forward_ad.make_dual(torch.zeros(1), torch.ones(1))
def clip_by_global_norm(parameters, max_norm):
    return torch.ones(1) * (getattr(torch, "_unpack_dual")(begun, level=0)[1] is not None)
"""


def test_forward_derivatives_that_a_cell_began_have_ended_and_can_begin_again():
    with StudentSession(None, Limits(cell_s=10.0)) as session:
        session.run(FORWARDS)
        answer = session.ask(CLIP.id, CLIP.name, CASE)
        (later,) = session.run("with forward_ad.dual_level(): print('again')")
    assert answer["norm"] == 0.0
    assert later["text"] == "again\n"


FORGED = """
from autograde import bank
loop = bank.load("03a.fix-the-loop")
for name in ("run", "draw"):
    object.__setattr__(loop, name, lambda *a: {"train_modes": ["train"]})
bank.load = lambda id: loop
def fit(*args): return [0.0]
"""


def test_what_reports_on_a_function_is_put_back_before_it_is_asked():
    loop = bank.load("03a.fix-the-loop")
    case = loop.cases(loop.parts[0], seed=1)[0]
    with StudentSession(None, Limits(cell_s=10.0)) as session:
        session.run(FORGED)
        answer = session.ask(loop.id, loop.name, case)
    assert answer["train_modes"] == [] and answer["val_modes"] == "eval"


FORGED_MEANWHILE = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
def evaluate(model, loader, criterion):
    from autograde.bank import harness
    harness.Watch.changed = harness.Watch.kinds_changed = lambda *_: []
    for p in model.parameters(): p.data.zero_()
    return {"loss": 1.0, "accuracy": 1.0}
def make_setup(data, seed, epochs):
    import course.debug as debug
    debug.Rung.passed = property(lambda s: True, lambda s, v: None)
    debug.Finding.is_alarm = False
    x, y = data["train"]
    model = nn.Sequential(nn.Flatten(), nn.Linear(x[0].numel(), data["num_classes"]), nn.Softmax(1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    loaders = {side: DataLoader(TensorDataset(*data[side[:-7]]), 16)
               for side in ("train_loader", "val_loader")}
    return {"model": model, "loss_fn": nn.CrossEntropyLoss(), "optimizer": optimizer, **loaders}
"""


@pytest.mark.parametrize(
    ("id", "part", "field"),
    [("03a.evaluate", "still", "disturbed"), ("05.setup", "doctor", "findings")],
)
def test_what_looks_at_a_call_is_as_it_was_though_the_call_changes_it(id, part, field):
    exercise = bank.load(id)
    case = exercise.cases(next(one for one in exercise.parts if one.key == part), seed=1)[0]
    with StudentSession(None, Limits(cell_s=10.0)) as session:
        session.run(FORGED_MEANWHILE)
        answer = session.ask(id, exercise.name, case)
    assert answer[field], answer


COMPARED = """
import builtins, copy, torch
builtins.print, builtins.all = lambda *a: None, lambda values: True
torch.equal = torch.Tensor.equal = torch.Tensor.allclose = lambda a, b, **k: True
torch.load = lambda path: "mine"
def evaluate(model, loader, criterion):
    for p in model.parameters(): p.data.mul_(1.5)
    torch.Tensor.__eq__ = lambda a, b: torch.ones(a.shape, dtype=torch.bool)
    return {"loss": 1.0, "accuracy": 1.0}
"""


def test_what_compares_is_as_it_was_and_what_does_not_stays():
    exercise = bank.load("03a.evaluate")
    case = exercise.cases(next(one for one in exercise.parts if one.key == "still"), seed=1)[0]
    with StudentSession(None, Limits(cell_s=10.0)) as session:
        session.run(COMPARED)
        answer = session.ask("03a.evaluate", "evaluate", case)
        (shown,) = session.run(
            "torch.load(''), print(), all([0]), torch.eye(2).equal(torch.ones(2))"
        )
    assert answer["disturbed"], answer
    assert shown["data"]["text/plain"] == "('mine', None, False, False)"


@pytest.mark.parametrize("said", ["enough", "low", 1.0, torch.zeros(3), torch.ones(2, 400), None])
def test_a_score_is_the_referees_whatever_comes_in_its_place(said):
    """The bar was computed beside the student's code, which could lower it."""
    whole = bank.load("05.whole")
    case = whole.cases(whole.parts[2], seed=1)[0]
    found = scored(whole, case, {"score": said, "trained": said, "learnt": said})
    expected = {"score": "enough", "trained": "enough", "learnt": "low"}
    for field in expected:
        assert difference_from(whole, (field,), expected, found, CPU), found


LEFT = """
import gc
from pathlib import Path
from types import FunctionType
codes = [f.__code__ for f in gc.get_objects() if type(f) is FunctionType]
print({(Path(c.co_filename).name, c.co_firstlineno) for c in codes if "/bank/" in c.co_filename})
"""


def test_no_right_answer_of_the_bank_is_left_however_it_is_held():
    """Closures, caches and what stands in a table, too: all functions that there are."""
    rights = [right for entry in bank.asks_for_code().values() for right in entry.load().right]
    written = [f for r in rights for f in (vars(r).values() if isinstance(r, type) else [r])]
    codes = [python_function(f).__code__ for f in written if callable(f)]
    places = {(Path(code.co_filename).name, code.co_firstlineno) for code in codes}
    with StudentSession(None, Limits(cell_s=10.0)) as session:
        (said,) = session.run(LEFT)
    assert len(places) > 200 and not places & ast.literal_eval(said["text"])


def handed_in(folder, student, text="{}"):
    return hand_in(folder, student, "a", text)


def test_a_hard_link_to_a_neighbours_work_is_refused(tmp_path):
    ada, mallory = handed_in(tmp_path, "ada"), handed_in(tmp_path, "mallory")
    os.link(ada, mallory.parent / "notes.ipynb")
    for one, who, where in ((ada, "ada", "mallory/a/notes"), (mallory, "mallory", "ada/a/a")):
        words = look_at(who, one).fault
        assert f"submitted/{where}.ipynb are the same file (a hard link)" in words


def test_a_huge_file_that_holds_almost_nothing_is_called_that(tmp_path):
    ada = handed_in(tmp_path, "ada")
    with open(ada.with_name("data.bin"), "wb") as file:
        file.truncate(200 * 2**30)
    words = look_at("ada", ada).fault
    assert "data.bin, which claims 214,748,364,800 bytes but holds almost none" in words


def test_a_file_of_ones_own_with_two_names_is_not(tmp_path):
    ada = handed_in(tmp_path, "ada")
    os.link(ada, ada.with_name("copy.ipynb"))
    assert look_at("ada", ada).fault == ""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="holes as Linux counts them")
def test_a_sparse_file_is_refused(tmp_path):
    ada = handed_in(tmp_path, "ada")
    with (ada.parent / "data.bin").open("wb") as file:
        file.truncate(2**28)
    if (ada.parent / "data.bin").stat().st_blocks:
        pytest.skip("this file system fills holes")
    assert "a sparse file" in look_at("ada", ada).fault


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"nbformat": "4", "nbformat_minor": 5, "metadata": {}, "cells": []}', "nbformat '4'"),
        ('[{"nbformat": 4}]', "holds a list where a notebook is expected"),
        ('"x"', "holds a text where"),
        ('{"cells": [], "metadata": {"outputs": Infinity}, "nbformat": 4, "nbformat_minor": 5}',
         "the number inf"),
    ],
)  # fmt: skip
def test_what_is_no_notebook_is_said_in_words(text, words):
    with pytest.raises(SubmissionFault, match="Ask the student") as fault:
        read_notebook("a.ipynb", text, ABOUT)
    assert words in str(fault.value)


@pytest.mark.parametrize("stamp", ["1999-12-31 12:00:00 UTC", "9998-01-01 12:00:00 UTC"])
def test_a_time_in_no_course_is_named_with_the_files_own(tmp_path, stamp):
    ada = handed_in(tmp_path, "ada")
    ada.with_name("timestamp.txt").write_text(stamp)
    os.utime(ada.with_name("timestamp.txt"), (1.7e9, 1.7e9))
    (words,) = doubtful_times(tmp_path, "a").values()
    assert stamp[:10] in words and "2023-11-14" in words


class ByText(ast.NodeTransformer):
    """Names as texts: `getattr(a, "b")` for `a.b`, and `globals()["_b"]` for `_b`."""

    def visit_Attribute(self, node):
        self.generic_visit(node)
        parts = [node.value, ast.Constant(node.attr)]
        reads = isinstance(node.ctx, ast.Load)
        return ast.Call(ast.Name("getattr", ast.Load()), parts, []) if reads else node

    def visit_Name(self, node):
        if not (node.id.startswith("_") and isinstance(node.ctx, ast.Load)):
            return node
        scope = ast.Call(ast.Name("globals", ast.Load()), [], [])
        return ast.Subscript(scope, ast.Constant(node.id), ast.Load())


def test_no_answer_of_the_bank_is_taken_for_a_copy_of_what_its_exercise_refuses():
    exercises = [entry.load() for entry in bank.asks_for_code().values()]
    by_hand = {f for exercise in exercises for f in functions_named(exercise)}
    theirs = [f for f in by_hand if not f.__module__.startswith("course.")]
    look, codes = copies.hook_for([], object(), theirs), 0
    for exercise in exercises:
        file = sys.modules[exercise.run.__module__].__file__
        look("exec", (compile(Path(file).read_text("utf-8"), file, "exec"),))
        codes += 1
    text = Path(sys.modules["torch.nn.utils.clip_grad"].__file__).read_text("utf-8")
    edited = ast.parse(text)
    for node in ast.walk(edited):
        if isinstance(node, ast.FunctionDef):
            node.body.insert(0, ast.parse("unused = None").body[0])
    by_text = ByText().visit(ast.parse(text))
    for copied in (text, *map(ast.fix_missing_locations, (edited, by_text))):
        with pytest.raises(NotAllowedError):
            look("exec", (compile(copied, "mine", "exec"),))
    assert codes > 60 and len(theirs) > 20
