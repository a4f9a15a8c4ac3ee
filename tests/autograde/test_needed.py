"""Which cells no exercise needs, told by the code alone: when in doubt a cell runs."""

import time

import nbformat
import pytest

from autograde.classroom.needed import unneeded
from autograde.sources import all_paths, read_source, source_paths
from tests.sampling import sample

ANSWER = "def answer(x):\n    return x.norm()"
CALLS = {"answer-check": {"exercise_id": "03a.clip", "function": "answer", "parts": "shown"}}
USED = "import torch\nfrom torch import nn\nfrom course.engine import seed_everything"


def cell(source, name=""):
    made = nbformat.v4.new_code_cell(source)
    if name:
        graded = name.endswith("-check")
        made.metadata["nbgrader"] = {"grade_id": name, "grade": graded, "solution": not graded}
    return made


def notebook(before, answer=ANSWER, after=()):
    """Given cells, the exercise, further given cells."""
    first = [cell(source) for source in (USED, *before)]
    exercise = [cell(answer, "answer"), cell('check("03a.clip", answer)', "answer-check")]
    return [*first, *exercise, *(cell(source) for source in after)]


def released(cells):
    return [[c.metadata.get("nbgrader", {}).get("grade_id", ""), c.source] for c in cells]


def left_out(given, handed_in=None):
    """Sources of the cells that are not run; without USED, which some answers need."""
    handed_in = given if handed_in is None else handed_in
    out = unneeded(handed_in, released(given), CALLS)
    return [handed_in[number].source for number in sorted(out) if handed_in[number].source != USED]


def reading(name):
    return f"def answer(x):\n    return x.norm() + {name}"


ALONE = {
    "trains": "model = nn.Linear(2, 2)\nfor _ in range(3):\n"
    "    model(torch.ones(1, 2)).sum().backward()",
    "draws": "import matplotlib.pyplot as plt\nfigure, axis = plt.subplots()\naxis.plot([1, 2])",
    "seeds": "torch.manual_seed(0)\nprint(torch.rand(3))",
    "tries the answer": "if answer:\n    print(answer(torch.ones(3)))",
    "makes a function": "def helper(y, scale=2.0):\n    return scale * y\n\nhelper(3)",
    "keeps a file": "from pathlib import Path\nPath('kept.txt').write_text('a')",
    "computes under a setting": "with torch.set_grad_enabled(False):\n    print(torch.ones(2))",
}


@pytest.mark.parametrize("name", ALONE)
def test_what_only_trains_or_shows_is_left_out(name):
    assert left_out(notebook([ALONE[name]])) == [ALONE[name]]


NEEDED = {
    "a constant": (["scale = 2.0"], reading("scale")),
    "an import": (["import math"], reading("math.pi")),
    "a function": (["def scale():\n    return 2"], reading("scale()")),
    "a function's own names": (["base = 2", "def scale():\n    return base"], reading("scale()")),
    "one of several names": (["a, (b, *scale) = 1, (2, 3)"], reading("scale[0]")),
    "a name of a loop": (["for scale in (1, 2):\n    pass"], reading("scale")),
    "a name of a comprehension": (["[scale := n for n in (1, 2)]"], reading("scale")),
    "a name made global": (["def f():\n    global scale\n    scale = 3", "f()"], reading("scale")),
    "an added value": (["scale = 2.0", "scale += 1"], reading("scale")),
    "an item set": (["scale = {}", "scale['a'] = 1"], reading("scale['a']")),
    "a method's change": (["scale = []", "scale.append(1)"], reading("scale[0]")),
    "an argument's change": (["scale = [1]", "print(list.pop(scale))"], reading("len(scale)")),
    "another name's change": (["scale = [1]", "b = scale", "b.append(2)"], reading("sum(scale)")),
    "a change from inside": (
        ["scale = [1]", "box = {'s': scale}", "def f(b):\n    b['s'].append(2)\n\nf(box)"],
        reading("sum(scale)"),
    ),
    "a name deleted": (["scale = 1", "del scale"], reading("scale")),
    "a class's attribute": (["class Scale:\n    by = 1", "Scale.by = 2"], reading("Scale.by")),
    "a class as a base": (
        ["class Base:\n    def norm(self, x):\n        return x.norm()"],
        "class Mine(Base):\n    pass\n\ndef answer(x):\n    return Mine().norm(x)",
    ),
    "a name that is tried": (
        ["scale = 2.0"],
        "def answer(x):\n    try:\n        x * scale\n    except NameError:\n        return x",
    ),
    "a module changed": (["torch.Tensor.norm = lambda self: 0"], ANSWER),
    "a default": (["torch.set_default_dtype(torch.float64)"], ANSWER),
    "a library's settings": (
        ["import matplotlib.pyplot as plt\nplt.rcParams['figure.dpi'] = 50"],
        ANSWER,
    ),
    "an environment variable": (["import os\nos.environ['A'] = '1'"], ANSWER),
    "warnings switched off": (["import warnings\nwarnings.simplefilter('ignore')"], ANSWER),
    "a function that sets": (["def f():\n    torch.set_default_dtype(torch.half)", "f()"], ANSWER),
    "a magic": (["%matplotlib inline"], ANSWER),
    "a shell's line": (["!touch a"], ANSWER),
    "a module of nobody's": (["import helpers_of_ours"], ANSWER),
    "names by a star": (["from math import *"], ANSWER),
    "data of a module": (
        ["from course.debug import LADDER", "LADDER.pop()"],
        f"from course.debug import LADDER\n{reading('len(LADDER)')}",
    ),
    "something without a name": (["torch.get_default_generator().a = 1"], ANSWER),
    "an import that may fail": (["try:\n    import a\nexcept ImportError:\n    a = []"], ANSWER),
    "the student's name": (["from autograde import student\nstudent('ada')"], ANSWER),
    "a file": (
        ["open('a.txt', 'w').write('1')"],
        "def answer(x):\n    return x * float(open('a.txt').read())",
    ),
    "a draw that is set off": (
        ["torch.manual_seed(0)", "print(torch.rand(1))"],
        "START = torch.rand(1)\ndef answer(x):\n    return x + START",
    ),
}
COUNTING = {
    "a function that counts": "calls = []\ndef answer(x):\n    calls.append(1)\n"
    "    return x.norm() + len(calls)",
    "a default that grows": "def answer(x, seen=[]):\n    seen.append(1)\n    return len(seen)",
    "a class that counts": "class Mine:\n    calls = 0\n    def __call__(self, x):\n"
    "        Mine.calls += 1\n        return x\n\ndef answer(x):\n    return Mine()(x)",
    "an answer that remembers": "import functools\n@functools.cache\ndef answer(x):\n    return x",
    "an answer that sets": "def answer(x):\n    torch.set_default_dtype(torch.half)\n    return x",
    "an answer with an attribute": "def answer(x):\n    answer.calls += 1\n    return answer.calls",
    "an answer that says global": "n = 0\ndef answer(x):\n    global n\n    n += 1\n    return n",
}
"""Answers that are another after a call."""


@pytest.mark.parametrize("name", COUNTING)
def test_a_cell_that_tries_an_answer_runs_if_that_leaves_something_behind(name):
    *before, answer, check = notebook([], COUNTING[name])
    tried = [*before, answer, cell("print(answer(torch.ones(1)))"), check]
    assert left_out(tried) == []


@pytest.mark.parametrize("name", NEEDED)
def test_what_an_answer_may_depend_on_runs(name):
    before, answer = NEEDED[name]
    unrelated = "lone = 1"
    assert left_out(notebook([*before, unrelated], answer)) == [unrelated]


@pytest.mark.parametrize("name", ["a draw that is set off", "a method's change"])
def test_what_comes_after_the_last_check_is_left_out(name):
    before, answer = NEEDED[name]
    assert left_out(notebook([], answer, before)) == before


def test_a_name_that_is_bound_again_after_a_check_is_there_before_it():
    given = notebook(["scale = 2.0"], reading("scale"))
    again = [cell("scale = 3.0"), cell('check("03a.clip", answer)', "again-check")]
    calls = {**CALLS, "again-check": CALLS["answer-check"]}
    assert unneeded([*given, *again], released(given), calls) == {0}  # USED


AROUND = (
    "globals()['scale']",
    "locals().get('scale', 0)",
    "vars()['scale']",
    "len(dir())",
    "eval('scale')",
    "exec('scale')",
    "get_ipython().user_ns['scale']",
    "__import__('__main__').scale",
    "In[-1]",
    "_oh[1]",
    "answer.__globals__['scale']",
    "getattr(answer, '__globals__')['scale']",
)
IMPORTS = (
    "import sys\n",
    "import inspect\n",
    "import gc\n",
    "import __main__\n",
    "import importlib\n",
    "from builtins import globals as g\n",
    "from course.engine import *\n",
    "%time\n",
    "!ls\n",
)


@pytest.mark.parametrize("word", AROUND)
def test_code_that_looks_around_has_every_cell_run(word):
    assert not left_out(notebook(["scale = 1"], reading(word)))


@pytest.mark.parametrize("line", IMPORTS)
def test_an_import_or_a_command_that_reaches_all_names_has_every_cell_run(line):
    assert not left_out(notebook(["scale = 1"], line + ANSWER))


def test_unreadable_or_endless_code_has_every_cell_run():
    for answer in ("def answer(x:", f"{ANSWER}\n# {'x' * 200_000}", "-" * 50_000 + "1", "x\0"):
        assert not left_out(notebook(["scale = 1"], answer))


HOSTILE = {
    "functions that call each other": "".join(
        f"def f{n}():\n    return f{n + 1}()\n" for n in range(3000)
    ),
    "names in a row": "".join(f"a{n} = a{n + 1}\n" for n in range(5000)),
    "one name over and over": "a = f(a)\n" * 8000,
    "a list in a list": "x = " + "[" * 90 + "]" * 90 + "\n" + "[a for a in " * 60 + "b" + "]" * 60,
    "a long line": "a = " + " + ".join(f"b{n}" for n in range(12_000)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_code_made_to_be_slow_to_read_is_read_in_a_moment(name):
    handed_in = notebook(["print(1)"], f"{HOSTILE[name]}\n{ANSWER}")
    started = time.process_time()
    left_out(notebook(["print(1)"]), handed_in)
    assert time.process_time() - started < 5.0  # 0.1 to 0.5 s


def test_only_what_is_handed_in_as_given_at_its_place_is_left_out():
    given = notebook(["a = 1", "b = 2"])
    ours, first, second, *rest = given
    assert left_out(given, given) == ["a = 1", "b = 2"]
    assert left_out(given, [ours, first, cell("b = 3"), *rest]) == ["a = 1"]
    assert left_out(given, [ours, second, first, *rest]) == ["b = 2"]
    assert left_out(given, [ours, *rest, first, second]) == []
    assert left_out(given, [ours, first, first, second, *rest]) == ["a = 1", "b = 2"]
    assert left_out(given, [ours, first, *rest]) == ["a = 1"]
    assert left_out(given, [ours, first, cell("b = 2  \n"), *rest]) == ["a = 1", "b = 2  \n"]
    assert left_out(given, [ours, first, cell("added = a"), second, *rest]) == ["b = 2"]


def test_names_ids_and_metadata_of_a_students_prove_nothing():
    given = notebook(["a = 1", "b = 2"])
    changed = [nbformat.from_dict(one) for one in given]
    changed[1].source = "a = 10"
    changed[1].metadata["autograde"] = {"not_run": True, "released": True}
    changed[1]["id"] = given[2]["id"]
    assert left_out(given, changed) == ["b = 2"]


def test_a_copy_of_a_cell_runs():
    given = notebook(["a = 1"])
    handed_in = [given[0], given[1], cell("a = 1"), *given[2:]]
    assert unneeded(handed_in, released(given), CALLS) == {0, 1}


def test_without_a_release_every_cell_runs():
    assert unneeded(notebook(["a = 1"]), [], CALLS) == set()


def test_a_figure_of_another_cell_is_another_figure():
    drawn = "import matplotlib.pyplot as plt\nfigure, axis = plt.subplots()\naxis.plot([1])"
    own = "scale = 2\nfor axis in (1, 2):\n    scale += axis\ndef answer(x):\n    return x + scale"
    assert left_out(notebook([drawn], own)) == [drawn]


LEAST = {"03a-training-recipe": 33, "05-capstone": 7}
"""Cells of two chapters that their exercises do not need, with the solutions as answers."""


@pytest.mark.parametrize("name", sample(list(source_paths()), 4))
def test_of_a_chapter_much_is_left_out_and_never_what_asks(name):
    cells = [c for c in read_source(all_paths()[name]).cells if c.cell_type == "code"]
    calls = {id: {"function": call_of(c)} for c in cells if (id := name_of(c)) and is_graded(c)}
    out = unneeded(cells, released(cells), calls)
    assert len(out) >= LEAST.get(name, 5)
    assert not [cells[n].source for n in out if "ask(" in cells[n].source or name_of(cells[n])]


def name_of(one):
    return one.metadata.get("nbgrader", {}).get("grade_id")


def is_graded(one):
    return one.metadata.nbgrader["grade"] and not one.metadata.nbgrader["solution"]


def call_of(one):
    from autograde.sources import check_calls

    return check_calls(one.source)[-1].function
