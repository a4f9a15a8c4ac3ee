"""Which text of a notebook is counted for a loop to fix: that of the function that was called."""

import __future__

import ast
import asyncio
import functools
import textwrap
from types import SimpleNamespace

import IPython
import pytest
from IPython.core.inputtransformer2 import TransformerManager

from autograde import bank
from autograde.bank import fix_the_loop
from autograde.exercise import UNFIT
from autograde.kinds.fix import MOST_CODE, change_size, code_of, written_change

LOOP = bank.load("03a.fix-the-loop")
FIXED = fix_the_loop.FIXED
NEARLY = fix_the_loop.GIVEN.replace("for _ in", "for _i in")
REWRITTEN = FIXED.replace("inputs", "x").replace("targets", "y").replace("loss", "l")
OTHER = REWRITTEN.replace("def fit", "def other")
ARGUMENTS = "model, train_loader, val_loader, criterion, optimizer, epochs"
MOST = f"at most {fix_the_loop.MOST}"


def counted(*cells):
    """What is said of the `fit` that these cells leave, as notebooks would run them."""
    scope = {"functools": functools}
    for cell in cells:
        plain = "\n".join(line for line in cell.splitlines() if not line.lstrip().startswith("%"))
        exec(compile(plain, "a cell", "exec"), scope)
    return written_change(LOOP, list(cells), code_of(scope["fit"]))


@pytest.mark.parametrize(
    "cells",
    [
        (f"{OTHER}\n@(lambda _: other)\n{NEARLY.strip()}",),
        (NEARLY, f"%matplotlib inline\n{REWRITTEN}"),
        (f"{NEARLY}\n{OTHER}\nfit = other",),
        (f"{OTHER}\n", NEARLY, "fit = other"),
        (OTHER, NEARLY.replace("epochs):\n", f"epochs):\n    return other({ARGUMENTS})\n", 1)),
    ],
    ids=["decorated", "beside-a-magic", "assigned", "assigned-later", "below-a-return"],
)
def test_a_loop_written_again_is_counted_whatever_text_stands_beside_it(cells):
    assert int(counted(*cells)) > fix_the_loop.MOST


@pytest.mark.parametrize(
    "cells",
    [
        (FIXED,),
        (f"%%time\n{FIXED}",),
        (f"%matplotlib inline\n{FIXED}",),
        (f"{FIXED.replace('def fit', 'def mine')}\nfit = mine",),
        (FIXED, REWRITTEN.replace("def fit", "def draft")),
        (FIXED.replace("epochs):\n", "epochs):  # three bugs\n", 1),),
    ],
    ids=["plain", "timed", "with-a-magic", "assigned", "beside-a-draft", "with-a-comment"],
)  # fmt: skip
def test_an_honest_repair_is_counted_as_it_stands(cells):
    assert counted(*cells) == MOST


INDENTED = textwrap.indent(FIXED.strip(), "    ")
PROMPTED = ">>> " + FIXED.strip().replace("\n", "\n... ")
HINTED = FIXED.replace(
    "epochs):\n", "epochs):\n    def seen(n: int) -> int:\n        return n\n\n", 1
)
WRAPPED = FIXED.replace("num_examples += len(targets)", "num_examples += (len(targets)\n % 99)", 1)
AS_NOTEBOOKS_RUN_THEM = {
    "indented": (INDENTED,),
    "prompts": (PROMPTED,),
    "awaits": (f"import asyncio\n{FIXED}\nawait asyncio.sleep(0)",),
    "later-annotations": ("from __future__ import annotations", HINTED),
    "command-and-operator": (f"%precision 3\n{WRAPPED}",),
    "try": (f"try:\n{INDENTED}\nexcept Exception as error:\n    print(error)",),
    "if": (f"if True:\n{INDENTED}",),
    "with": (f"import contextlib\nwith contextlib.nullcontext():\n{INDENTED}",),
    "class": (f"class Loops:\n{INDENTED}\nfit = Loops.fit",),
    "semicolon": (f"{FIXED}\n;",),
    "timed": (f"%%time\n{FIXED}",),
}


@pytest.mark.parametrize("way", AS_NOTEBOOKS_RUN_THEM)
def test_a_repair_counts_alike_at_home_and_graded_however_its_cell_is_written(way, monkeypatch):
    cells, flags, scope = AS_NOTEBOOKS_RUN_THEM[way], 0, {"get_ipython": quiet_shell}
    for cell in cells:
        body = cell.removeprefix("%%time\n")
        text = TransformerManager().transform_cell(body.removesuffix(";"))
        code = compile(text, "a cell", "exec", flags | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        if (running := eval(code, scope)) is not None:
            asyncio.run(running)
        flags |= code.co_flags & __future__.annotations.compiler_flag
    assert written_change(LOOP, list(cells), code_of(scope["fit"])) == MOST
    assert at_home(monkeypatch, cells, scope["fit"]) == MOST


def quiet_shell():
    return SimpleNamespace(run_line_magic=lambda *_: None)


def at_home(monkeypatch, cells, function):
    """What `check` counts in a notebook that has run these cells."""
    history = SimpleNamespace(input_hist_raw=["", *cells])
    shell = SimpleNamespace(history_manager=history)
    monkeypatch.setattr(IPython, "get_ipython", lambda: shell)
    return change_size(fix_the_loop.GIVEN, function, most=fix_the_loop.MOST)


def test_a_loop_that_no_cell_defines_is_told_at_home_as_when_it_is_graded(monkeypatch):
    scope = {}
    exec(f"def make():\n{INDENTED}\n    return fit", scope)
    made = scope["make"]()
    cells = (f"def make():\n{INDENTED}\n    return fit", "fit = make()")
    said = written_change(LOOP, list(cells), code_of(made))
    assert "without a decorator" in said[UNFIT]
    assert at_home(monkeypatch, cells, made) == said


def test_of_a_wrapped_loop_it_is_said_why_its_lines_cannot_be_counted():
    wrapping = (
        "def timed(f):\n    @functools.wraps(f)\n    def call(*a): return f(*a)\n    return call\n"
    )
    said = counted(f"{wrapping}\n@timed\n{FIXED.strip()}")
    assert "without a decorator" in said[UNFIT]


def test_an_object_that_claims_another_functions_code_is_not_counted_by_it():
    claims = (
        "class Fit:\n    def __call__(self, *a): return other(*a)\n"
        "claim = Fit()\nclaim.__code__ = fit.__code__\nfit = claim"
    )
    assert UNFIT in counted(NEARLY, OTHER, claims)


def test_of_a_loop_nested_too_deep_it_is_said_that_it_was_not_read():
    deep = FIXED.replace("    val_losses =", f"    z = {'+'.join('1' * 400)}\n    val_losses =", 1)
    assert "code is nested more than 200 deep" in counted(deep)[UNFIT]


def test_a_cell_of_endless_text_is_not_compiled():
    assert UNFIT in written_change(LOOP, ["x = 1\n" * MOST_CODE + FIXED], code_of(fix_the_loop.run))
