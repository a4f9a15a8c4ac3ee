"""What the bench of the checks changes in a right answer, and what it knows to be the same."""

import ast
import contextlib
import json
import re
import time

import pytest

from autograde import bank
from autograde.bank import save_whole
from tests.bench import checks
from tests.bench.equivalent import EQUIVALENT
from tests.bench.mutants import called_by, mutated_trees
from tests.bench.order import cannot_meet

FREE = [
    "total = 0; model.train()",
    "total += loss.item(); count += len(targets)",
    "losses.append(loss.item()); count += 1",
    "def hook(module): return count\ncount = model(x)",
    "optimizer.zero_grad(); loss = criterion(model(inputs), targets)",
    "self.best = 0.0; self.waited = 0",
]
BOUND = [
    "total = 0; total = total + 1",
    "optimizer.zero_grad(); loss.backward()",
    "optimizer.step(); norm = sum(p.grad.norm() for p in model.parameters())",
    "model.eval(); outputs = model(inputs)",
    "a = torch.rand(3); b = torch.rand(3)",
    "self.waited = 0; self.keep(model)",
    "losses.append(1); mean = sum(losses)",
    "count = 0\nif not items: raise ValueError",
    "entry = row[0]; row[0] = 1",
]


@pytest.mark.parametrize("text", FREE)
def test_statements_that_share_nothing_are_free_in_their_order(text):
    assert cannot_meet(*ast.parse(text).body)


@pytest.mark.parametrize("text", BOUND)
def test_statements_of_which_one_may_see_what_the_other_does_are_not(text):
    assert not cannot_meet(*ast.parse(text).body)


def test_every_mutant_differs_from_the_answer_and_from_every_other():
    tree = ast.parse("def f(xs):\n    for x in xs:\n        g(x, n=1)\n    return 2 < 3")
    texts = [ast.unparse(mutated) for _, mutated in mutated_trees(tree)]
    assert len(texts) == len({ast.unparse(tree), *texts}) - 1 == 11
    inside = "    for x in xs:\n        g(x, n=1)\n        return 2 < 3\n    return 2 < 3"
    assert f"def f(xs):\n{inside}" in texts


def test_a_mutant_that_never_ends_counts_as_no_answer():
    exercise = bank.load("03a.clip")

    def endless(parameters, max_norm):
        while True:
            with contextlib.suppress(Exception):
                time.monotonic()

    case = exercise.cases(exercise.parts[0], 0)[0]
    assert checks.in_time(exercise, endless, case, 0.05) is None


def test_an_exercise_is_tried_again_only_when_something_has_changed(tmp_path, monkeypatch):
    monkeypatch.setattr(checks, "FOLDER", tmp_path)
    key = checks.key_of(bank.load("03a.clip"), 3, 2)
    (tmp_path / "03a.clip.json").write_text(json.dumps({"id": "03a.clip", "key": key}))
    assert checks.known("03a.clip", 3, 2).id == "03a.clip"
    assert checks.known("03a.clip", 4, 2) is None
    assert checks.known("03a.accumulate", 3, 2) is None


def test_the_page_adds_up_and_an_explained_mutant_does_not_survive():
    alive = ["f: device= dropped in `g(device=d)`", "f: 1 to 2 in `return 1`"]
    row = checks.Row("03a.clip", "", right=3, wrong=20, mutants=10, alive=alive)
    assert row.survive == alive[1:] and not row.is_clean
    total = "| **40** | **0** | **0** | **6** | **0** | **20** | **2** | **2** |"
    assert total in checks.page([row, row], 3, 2)


def test_every_reason_is_for_an_exercise_of_the_bank():
    ids = list(bank.asks_for_code())
    for exercise, _pattern, reason in EQUIVALENT:
        assert reason and any(re.fullmatch(exercise, id) for id in ids), exercise


def test_a_method_of_torch_named_as_a_function_of_the_module_is_not_that_function():
    assert [f.__name__ for f in called_by(save_whole.in_memory_first)] == ["in_memory_first"]
