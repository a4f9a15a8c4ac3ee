"""Traces of code that is not an answer: found in attacks, silent on honest work."""

import inspect
import json
import textwrap
import time

import pytest

from autograde.bank import fix_the_loop
from autograde.classroom.conspicuous import courses_own, insides, words_for
from autograde.classroom.notebook_text import _notebook_of
from autograde.classroom.similarity import NEXT_CELL
from autograde.classroom.student_code import NO_CODE, read_code
from autograde.sources import read_source, source_paths
from course.engine import clipping
from tests.attacks.further import TELLING
from tests.autograde.test_similarity import EXERCISES, sources


@pytest.mark.parametrize("name", ["guard-taken-out", "while-graded-patched", "main-is-replaced"])
def test_what_reaches_for_the_guards_is_shown_to_a_person(name):
    (words,) = words_for({"cells": "\n".join(TELLING[name].cells)}, EXERCISES)
    assert "names parts of the interpreter" in words


@pytest.mark.parametrize(("source", "names"), [
    ("import gc, ctypes.util\nfound = gc.get_objects", ["ctypes.util", "gc", "get_objects"]),
    ("from autograde.sandbox import stubs", ["autograde.sandbox"]),
    ("from autograde import referee", ["autograde.referee"]),
    ("getattr(f, '__code__').co_consts", ["co_consts", 'the text "__code__"']),
    ("import importlib\nimportlib.import_module('gc')", ['the text "gc"']),
    ("if 'socket' in os.readlink(path):\n    print(path)", ['the text "socket"']),
    ("%time\nimport os\nos.fork()", ["fork"]),
    ('sys.modules["auto" + "grade.bank"].load(x).right_value("")',
     ["right_value", 'the text "autograde.bank", put together']),
    ("getattr(sys, f\"set{'profile'}\")", ['the text "setprofile", put together']),
    ("fitted._loss.closs.gradient_proba(y, x)", ["closs"]),
    ("kit = make_setup.__self__\nsys.modules[name]", ["__self__", "sys.modules"]),
    ("exec(compile(tree, 'own', 'exec'), scope)", ["compile", "exec"]),
    ("import autograde as a\na.bank.load('03a.order')", ["autograde.bank"]),
    ("from autograde import sandbox as s\ns.stubs", ["autograde.sandbox"]),
    ("from torch import _C", ["torch._C"]),
    ("from torch._refs.nn import functional", ["torch._refs.nn.functional"]),
    ("from os import fork as f", ["os.fork"]),
    ("from torch.fx.experimental.proxy_tensor import make_fx",
     ["torch.fx.experimental.proxy_tensor", "torch.fx.experimental.proxy_tensor.make_fx"]),
    ("from functorch import make_fx", ["functorch", "functorch.make_fx"]),
    ("i.import_module('torch.fx.experimental.proxy_tensor')",
     ['the text "torch.fx.experimental.proxy_tensor"']),
    ("i.import_module('torch._decomp.decompositions')",
     ['the text "torch._decomp.decompositions"']),
    ("match torch.autograd.Variable:\n    case object(_execution_engine=work): pass",
     ["_execution_engine"]),
    ("match special:\n    case object(_logsumexp=inner): pass", ["_logsumexp"]),
    ("import scipy.special\nvars(scipy.special)['_logsumexp']", ["scipy.special._logsumexp"]),
    ("import scipy.special\ngetattr(scipy.special, '_logsumexp')", ["scipy.special._logsumexp"]),
    ("import scipy.special\nscipy.special.__dict__['_logsumexp']", ["scipy.special._logsumexp"]),
    ("getattr(v, '%s_engine' % '_execution')", ['the text "_execution_engine", put together']),
    ("getattr(v, '{}_{}'.format('_execution', 'engine'))",
     ['the text "_execution_engine", put together']),
    ("getattr(v, '_'.join(['_execution', 'engine']))",
     ['the text "_execution_engine", put together']),
    ("getattr(sys, 'SETTRACE'.lower())", ['the text "settrace", put together']),
    ("getattr(sys, 'ecarttes'[::-1])", ['the text "settrace", put together']),
    ("import torch\ntorch.fx.symbolic_trace(f)", ["torch.fx"]),
    ("from torch import export", ["torch.export"]),
    ("import torch\ntorch.compiler.set_stance('default')\ntorch.ops.load_library('own.so')",
     ["load_library", "set_stance"]),
    ("import torch as t\nt._C._nn.cross_entropy_loss(x, y)", ["_C"]),
    ("import torch\ntorch.autograd.Variable._execution_engine.run_backward",
     ["_execution_engine", "run_backward"]),
    ("import torch.utils.checkpoint as ck\nck._checkpoint_without_reentrant_generator(f)",
     ["torch.utils.checkpoint._checkpoint_without_reentrant_generator"]),
    ("import torch\nopen(torch.nn.utils.clip_grad.__file__)",
     ["torch.nn.utils.clip_grad.__file__"]),
    ("Path('a/own.py').write_text(text)\nimport own", ["“own.py”, which its code imports"]),
    ("sys._getframe().f_code.co_code", ["_getframe", "co_code"]),
    ("exec('import gc; gc.get_objects()')", ["gc", "get_objects"]),
    ("exec(" + repr("a = 1\n" * 20) + ")", ["exec"]),
    ("import dis, course\ndis.dis(course.engine.clipping.clip)", ["dis"]),
    ("import subprocess\nsubprocess.run(['nvidia-smi; python c.py'], shell=True)", ["subprocess"]),
    ("import subprocess\nsubprocess.run(['python', 'c.py'])", ["subprocess"]),
    ("def broken(:", []),
    ("def broken(:\n\0\nimport gc\ngc.get_objects()", ["gc", "get_objects"]),
    ("s = '\u2028%a'\nimport gc\ngc.get_objects()", ["gc", "get_objects"]),
    ("x = !ls\nimport gc\ngc.get_objects()", ["gc", "get_objects"]),
    ("%%time\n%time import gc; gc.get_objects()", ["gc", "get_objects"]),
    ("/gc.get_objects 1", ["get_objects"]),
    ("get_ipython().input_transformers_cleanup.append(f)", ["input_transformers_cleanup"]),
    ("getattr(sys, f\"set{'profile'}\")", ['the text "setprofile", put together']),
    ("get_ipython().run_cell(open('notes.txt').read())", ["run_cell"]),
    ("import gc.\u115fall\u115fright", ["“gc.\u115fall\u115fright”"]),
])  # fmt: skip
def test_names_are_found_as_attributes_imports_and_words(source, names):
    assert insides({"cell": source}) == names


@pytest.mark.parametrize("source", [
    "import gc\ndel model\ngc.collect()\ntorch.cuda.empty_cache()",
    "from gc import collect\ncollect()",
    "import gc as rubbish\nrubbish.collect()",
    "import inspect, multiprocessing as mp\nprint(inspect.signature(f), mp.cpu_count())",
    "import subprocess, sys",
    "import subprocess as sp\nsp.run(['nvidia-smi', '-L'], stdout=sp.PIPE)\n"
    "sp.check_output(['git', 'rev-parse', 'HEAD'])",
    "import dis\ndef f(x): return x\ndis.dis(f)",
    "exec('a = 1')\nexec('b = a', scope)",
    "open('own.py', 'w').write('x = 1')\nimport own",
    "import builtins, functools\nbuiltins.print('x')",
    "import multiprocessing as mp\nwith mp.Pool(2) as pool: pool.map(abs, [1])",
    "import sys\nprint(sys._getframe().f_code.co_name, sys._getframe(1).f_lineno)",
    "import torch\nfrom torch import nn\ntorch._dynamo.reset()\ntorch._foreach_mul_(a, 2)\n"
    "isinstance(m, nn.modules.batchnorm._BatchNorm)\ntorch.utils.data._utils.collate",
    "from torch.optim import lr_scheduler\nclass Mine(lr_scheduler._LRScheduler):\n"
    "    def step(self): self._step_count += 1",
    "from __future__ import annotations\nfrom torch.utils.data._utils.collate import x\n"
    "from torch.optim.lr_scheduler import _LRScheduler as Base\nimport torch._dynamo",
    "import torch\nprint(torch.__file__, self._cache, model._modules)\nopen('train.py', 'w')",
    "import socket\nname = f'{socket.gethostname()}-run'",
    'def main():\n    train()\n\nif __name__ == "__main__":\n    main()',
    'if "__main__" == __name__:\n    train()',
    "gc?\n%matplotlib inline\n%timeit f(x)\nfiles = !ls\nprint(f'{loss:.3f} {name}')",
    "print(clip_by_global_norm.__closure__ is not None, sys.modules[__name__].__doc__)",
    "model = torch.compile(model, mode='default')\nre.compile('a', 0)",
    "class Plan:\n    right_value: float = 1.0\n    load_library = None\n"
    "    def __init__(self): self.closs = 0\n"
    "    def decompose(self): return self.closs\n    def fork(self): return self.decompose()\n"
    "plan = Plan()\nplan.fork()\nprint(plan.right_value, Plan().decompose(), Plan.load_library)",
    "class Timeout(Exception): pass\nclass NotRun(Timeout): pass\nstatus = {'Timeout': 1}",
    "from re import compile\ncompile('a', 0)",
    "from numpy._typing import NDArray\nimport numpy\nx: numpy._typing.NDArray",
    "import numpy\nnumpy.lib._version.NumpyVersion('1')",
    "def show(f): print(f.__code__.co_varnames, f.__code__.co_firstlineno)",
    "f = [].append\nprint(f.__self__, 'a'.join.__self__)",
    "from functorch import vmap, jacrev\nvmap(f)(x)",
    "class Node:\n    def __init__(self): self._left = 1\n"
    "match Node():\n    case Node(_left=a): pass",
    "'%99999999d' % 1\n'{:>99999999}'.format('a')\n'a%s' % ('b', 'c')\n'ab'[::x]\n'a'.join(b)",
    "x = 'a'" + ".replace('a', 'aaaaaaaaaaaaaaa')" * 18,
    "'google.colab' in sys.modules\nx = " + "'a' + " * 900 + "b" + "[0]" * 900,
])  # fmt: skip
def test_everyday_uses_accuse_nobody(source):
    assert insides({"cell": source}) == []


@pytest.mark.parametrize(("source", "name"), [
    ("import gc\ngc.collect()\nlook = gc.get_objects()", "gc"),
    ("import gc as g\nh = g\nh.callbacks", "gc"),
    ("from gc import collect, callbacks", "gc"),
    ("from gc import *", "gc"),
    ("import gc\nm = __import__('gc')", "gc"),
    ("import gc\ngc.collect = print", "gc"),
    ("import multiprocessing as mp\nmp.cpu_count()\nmp.Process(target=f).start()",
     "multiprocessing"),
    ("import subprocess\nsubprocess.run(['ls'])", "subprocess"),
    ("import sys\nsys.modules['__main__']", 'the text "__main__"'),
    ("import __main__", "__main__"),
    ("class A: get_objects: int = 0\nimport gc\ngc.get_objects()", "get_objects"),
    ("class A: closs = None\nfitted._loss.closs", "closs"),
    ("class A: right_value: int = 0\nexercise.right_value", "right_value"),
    ("class A: right_value = 0\ndef peek(self): self.right_value", "right_value"),
    ("class A: right_value: int = 0\na = A()\na = given()\na.right_value",
     "right_value"),
    ("class A: right_value: int = 0\na = A()\nfor a in all: a.right_value",
     "right_value"),
    ("class A: fork: int = 0\nimport os as A\nA.fork()", "fork"),
    ("class A: __globals__: int = 0\nself.__globals__", "__globals__"),
    ("from re import compile\ncompile(text, 'own', 'exec')", "compile"),
    ("f.__code__.co_consts", "__code__"), ("f.__code__ = g", "__code__"),
    ("f = [].append\nf = print\nf.__self__", "__self__"), ("print.__self__", "__self__"),
    ("class AnswerError(Exception): pass", "AnswerError"),
    ("import builtins\nbuiltins.print = f", "builtins"),
    ("import autograde\nautograde.bank", "autograde.bank"),
])  # fmt: skip
def test_a_use_beyond_the_everyday_is_still_shown(source, name):
    assert name in insides({"cell": source})
    first, _, rest = source.partition("\n")
    assert name in insides({"one": first, "two": rest}), "also where cells share the work"


@pytest.mark.parametrize("exercise", EXERCISES)
def test_the_banks_answers_and_the_references_text_leave_no_trace(exercise):
    """Short right answers are alike; that says nothing."""
    for source in sources(exercise).values():
        assert words_for({"cell": source}, EXERCISES) == []


def test_the_notebooks_with_their_solutions_leave_no_trace():
    for path in source_paths().values():
        cells = {str(n): cell.source for n, cell in enumerate(read_source(path).cells)}
        assert words_for(cells, EXERCISES) == []


def test_an_answer_that_loads_what_it_is_judged_on_is_named():
    source = "from course.data.datasets import raw_images as r\nimport sklearn.datasets as d\n"
    cells = {"data": "d.load_digits()", "whole": source + "def whole_run(): d.load_digits()"}
    (words,) = words_for(cells, ["05.whole", "05.data"])
    assert (
        words == "its cell whole loads images that 05.whole is judged on: load_digits, raw_images"
    )
    assert words_for({"data": cells["data"]}, ["05.whole"]) == []


FORGED = "Nothing to read: full points are right” \x1b[2J\u202e" + "A" * 30_000


@pytest.mark.parametrize(("source", "said"), [
    ("z = a" + ".b" * 1200, "code in cell is nested more than 200 deep, and was not read"),
    (("a" + ".b" * 400 + "\n") * 20, "code in cell is nested more than 200 deep"),
    ("%time " * 30 + "1", "code in cell is nested more than 200 deep"),
    ("x = 1\n" * 20_000, "code in cell is longer than 100,000 characters, and was not read"),
    (f"f.write(x)\nname, file = {FORGED!r}, {FORGED + '.py'!r}",
     'needs: “Nothing to read: full points are right" ?[2J?'),
    ("import a\n" + "".join(f"a._b{n}\n" for n in range(900)) + "import gc\ngc.get_objects()",
     "needs: gc, get_objects, a._b0, a._b1, "),
], ids=["chain", "chains", "commands", "long", "forged", "many"])  # fmt: skip
def test_what_nobody_can_read_is_told_on_a_line_that_the_student_cannot_write(source, said):
    (words,) = words_for({"cell": source}, [])
    assert said in words and words.isprintable() and len(words) < 500


DETOUR = fix_the_loop.GIVEN.replace(
    "    model.train()\n", "    if epochs:\n        return other(model)\n    model.train()\n", 1
)
ELSEWHERE = "its fit calls what the given one does not, 17 lines in all, which are not counted"


@pytest.mark.parametrize(("loop", "further", "said"), [
    (DETOUR, fix_the_loop.FIXED.replace("def fit(", "def other("), ELSEWHERE),
    (DETOUR + fix_the_loop.FIXED.replace("def fit(", "def other("), "", ELSEWHERE),
    (DETOUR, "def other(m): return last(m)\n" + fix_the_loop.FIXED.replace("def fit(", "def last("),
     ELSEWHERE.replace("17", "19")),
    (DETOUR, "def other(m): return 0", ""),
    (fix_the_loop.FIXED, "def other(m):\n" + "    m.eval()\n" * 40, ""),
    (fix_the_loop.FIXED, fix_the_loop.FIXED, ""),
    (fix_the_loop.FIXED, "def loss(m):\n" + "    m.eval()\n" * 40, ""),
], ids=["further", "beside", "over-another", "short", "unused", "twice", "own-name"])  # fmt: skip
def test_a_loop_that_hands_its_work_to_another_function_is_named(loop, further, said):
    words = words_for({"fix-the-loop": loop, "further cells": further}, ["03a.fix-the-loop"])
    assert [said in one for one in words] == [True] * bool(said), words


BODY = fix_the_loop.FIXED.split(":\n", 1)[1]
OTHER = f"def their(model):\n{BODY}"
IN_ONE_LINE = "lambda model: [" + ", ".join(f"step({n})" for n in range(12)) + "]"
HANDED_TO = {
    "an instance": (f"class _Run:\n def __call__(self, model):\n{BODY}\nother = _Run()", ""),
    "in a block": ("if True:\n  with torch.no_grad():\n    def other(model):\n"
                   + textwrap.indent(BODY, "    "), ""),
    "a lambda": (f"other = {IN_ONE_LINE}", ""),
    "a partial": (f"{OTHER}other = functools.partial(their)", ""),
    "a dictionary": (f"{OTHER}held = {{'a': their}}", 'held["a"]'),
    "an item": (f"{OTHER}held = {{}}\nheld['a'] = their", 'held["a"]'),
    "a file's": (f"from mine import their as other\n{NEXT_CELL}{OTHER}", ""),
    "a file": (f"import mine\n{NEXT_CELL}{OTHER}", "mine.their"),
    "a library's attribute": (f"{OTHER}torch.other = their", "torch.other"),
    "an attribute set": (f"{OTHER}setattr(torch, 'other', their)", "torch.other"),
    "a global name": (f"{OTHER}globals()['other'] = their", ""),
    "a name of another cell": (f"{OTHER}print(other := their)", ""),
}  # fmt: skip


@pytest.mark.parametrize("way", HANDED_TO)
def test_whatever_a_loop_hands_its_work_to_is_followed(way):
    about, call = HANDED_TO[way]
    loop = DETOUR.replace("other(model)", f"{call}(model)" if call else "other(model)")
    for cells in ({"fix-the-loop": f"{about}\n{loop}"}, {"fix-the-loop": loop, "any": about}):
        (said,) = words_for(cells, ["03a.fix-the-loop"])
        assert "lines in all, which are not counted as changed" in said


def test_a_loop_written_into_its_own_first_line_is_named_and_a_setting_there_is_not():
    first = "epochs):"
    assert first in fix_the_loop.GIVEN
    for text, said in ((f"epochs, other={IN_ONE_LINE}):", 1), ("epochs: int, rate=0.1):", 0)):
        loop = fix_the_loop.GIVEN.replace(first, text, 1)
        assert len(words_for({"fix-the-loop": loop}, ["03a.fix-the-loop"])) == said


@pytest.mark.parametrize("about", [
    "RATE = 0.1\ndef other(m): return RATE",
    "import copy\nfrom copy import deepcopy as other",
    "def loss(m):\n" + "    m.eval()\n" * 40,
    "state = [\n" + "    f(0),\n" * 40 + "]\ndef other(m): m.state",
], ids=["constant", "library", "own-name", "attribute-of-this-name"])  # fmt: skip
def test_an_honest_loop_is_not_said_to_hand_its_work_on(about):
    assert words_for({"fix-the-loop": f"{about}\n{DETOUR}"}, ["03a.fix-the-loop"]) == []


def test_long_chains_are_read_in_a_moment():
    """Each place in a chain was once looked up from its beginning: 1.5 s."""
    source = "import a\n" + ("a" + ".b" * 180 + "\n") * 20
    for _ in range(3):
        used = time.process_time()
        assert words_for({"cell": source}, []) == []
        if time.process_time() - used < 0.4:
            return
    pytest.fail("long chains take a long time")


def test_a_pasted_module_is_named_with_its_share():
    pasted = inspect.getsource(clipping).replace("norm", "total").replace("grads", "slopes")
    ((cell, module, share),) = courses_own({"clip": pasted}, ["03a.clip", "written-answer"])
    assert (cell, module) == ("clip", "course.engine.clipping") and share > 0.8
    assert courses_own({"clip": pasted}, ["03a.evaluate"]) == []


MARKS = {"nbgrader": {"grade_id": "clip", "solution": True, "grade": False, "schema_version": 3}}


def notebook(source: str, nbformat: int = 4) -> dict:
    """A notebook of one cell, in today's format or in an early one."""
    cell = {"cell_type": "code", "metadata": MARKS, "outputs": []}
    if nbformat == 4:
        cells = [{**cell, "source": source, "execution_count": None}]
        return {"nbformat": 4, "nbformat_minor": 2, "metadata": {}, "cells": cells}
    sheets = [{"metadata": {}, "cells": [{**cell, "input": source, "language": "python"}]}]
    return {
        "nbformat": nbformat,
        "nbformat_minor": 0,
        "metadata": {"name": ""},
        "worksheets": sheets,
    }


@pytest.fixture
def handed_in(tmp_path):
    """Writes a submission next to a release, and tells what of it is read, and what is not."""

    def write(document, **files):
        for folder, what in (("release", notebook("# your code")), ("submitted/zoe", document)):
            place = tmp_path / folder / "a"
            place.mkdir(parents=True, exist_ok=True)
            (place / "a.ipynb").write_text(json.dumps(what))
        for name, data in files.items():
            (place / name).parent.mkdir(exist_ok=True)
            (place / name).write_bytes(data)
        found, _given, unread = read_code(tmp_path, "a", ["zoe"])
        return found.get("zoe"), unread.get("zoe")

    return write


@pytest.mark.parametrize("nbformat", [2, 3, 4])
def test_a_notebook_of_an_early_format_is_read_as_it_is_graded(handed_in, nbformat):
    document = notebook("import gc\ngc.get_objects()", nbformat)
    (graded,) = _notebook_of(json.dumps(document)).cells
    cells, unread = handed_in(document)
    name = graded.metadata.get("nbgrader", {}).get("grade_id", "further cells")
    assert cells == {name: graded.source}
    assert unread is None and insides(cells) == ["gc", "get_objects"]


def test_a_notebook_in_which_no_code_is_found_is_told(handed_in):
    assert handed_in({**notebook("x = 1"), "cells": [{"cell_type": "code"}]}) == (None, [NO_CODE])
    assert handed_in({**notebook("x"), "nbformat": 7}) == (None, [NO_CODE])
    assert handed_in(notebook("# your code")) == (None, None)


def test_a_notebook_that_the_code_runs_is_read_and_one_that_lies_there_is_not(handed_in):
    files = {name: json.dumps(notebook("import gc")).encode() for name in ("b.ipynb", "c.ipynb")}
    cells, unread = handed_in(notebook("%run b.ipynb"), **files)
    assert cells == {"clip": "%run b.ipynb", "“b.ipynb”": "import gc"} and unread is None


def test_files_whose_code_cannot_be_read_as_it_runs_are_named(handed_in):
    compiled = {"own.pyc": b"", "fast.cpython-311-x86_64-linux-gnu.so": b""}
    _, (said,) = handed_in(notebook("x"), **compiled, **{"__pycache__/a.cpython-311.pyc": b""})
    assert said == (
        "compiled code lies next to its notebook, and was not read: "
        "“fast.cpython-311-x86_64-linux-gnu.so”, “own.pyc”"
    )


@pytest.mark.parametrize(("cookie", "named"), [
    (b"unicode_escape", "written in unicode_escape"), (b"utf-7", "written in utf-7"),
    (b"my-own", "in an unknown encoding"), (b"utf-8", ""), (b"latin-1", ""), (b"cp1252", ""),
])  # fmt: skip
def test_an_encoding_in_which_a_comment_may_run_is_named(handed_in, cookie, named):
    _, unread = handed_in(notebook("x"), **{"own.py": b"# coding: " + cookie + b"\nx = 1"})
    because = "so what runs may not be what was read"
    assert unread == ([f"“own.py” is {named}, {because}"] if named else None)
