"""The smallest failing case: it fails, it runs, and a right function passes it."""

import re

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from autograde import bank, check, failing
from autograde.kit import failing as kit_failing
from autograde.kit.failing import in_words, numbers_in
from tests.sampling import sample


def careless(parameters, max_norm):
    """Scales below the ceiling too."""
    grads = [p.grad for p in parameters if p.grad is not None]
    norm = torch.cat([grad.flatten() for grad in grads]).norm()
    for grad in grads:
        grad.mul_(0.5 * max_norm / (norm + 1e-6))
    return norm


def test_a_failing_case_is_small_and_runs():
    result = check("03a.clip", careless, seed=0)
    assert 'failing("03a.clip")' in " ".join(result.message.split())
    case = failing("03a.clip")
    assert list(case.inputs) == ["parameters", "max_norm"]
    asked = [c for p in bank.load("03a.clip").parts for c in bank.load("03a.clip").cases(p, 0)]
    assert numbers_in(case._case) <= min(map(numbers_in, asked))
    norm = torch.cat([p.grad.flatten() for p in case.inputs["parameters"] if p.grad is not None])
    careless(**case.inputs)  # fresh ones at each look: the first are as they were
    again = case.inputs["parameters"]
    assert torch.equal(norm, torch.cat([p.grad.flatten() for p in again if p.grad is not None]))
    assert not case.run(careless).passed
    run = case.run(bank.load("03a.clip").right[0])
    assert run.passed and "run the check of 03a.clip again" in repr(run)
    assert "should be" in repr(case) and "max_norm = " in repr(case)


def test_prints_and_exceptions_show_in_run(capsys):
    def raises(train_targets, val_targets):
        print("here", len(train_targets))
        raise ZeroDivisionError("mine")

    result = check("03b.baseline", raises)
    assert "ZeroDivisionError: mine, at the line: raise ZeroDivisionError" in " ".join(
        result.message.split()
    )
    assert "here" not in capsys.readouterr().out
    with pytest.raises(ZeroDivisionError, match="mine"):
        failing("03b.baseline").run(raises)
    assert "here" in capsys.readouterr().out


def test_a_class_is_put_to_the_case_as_a_whole():
    functions = [wrong.function for wrong in bank.load("03a.early-stopping").wrong]
    said = (check("03a.early-stopping", f, seed=0).message for f in functions)
    words = next(" ".join(text.split()) for text in said if "case = failing(" in text)
    assert "case.run(EarlyStopping)" in words and "**case.inputs" not in words
    assert "Try: " not in repr(failing("03a.early-stopping"))


def test_a_case_fails_as_the_check_said_even_if_another_fault_has_a_smaller_one():
    loss_of = torch.nn.functional.binary_cross_entropy_with_logits

    def two_faults(task, outputs, targets):
        if task == "one of many":
            return torch.nn.functional.cross_entropy(outputs, targets)  # raises: integers
        if task == "a number":
            return torch.nn.functional.mse_loss(outputs[:, 0], targets.float())
        return loss_of(outputs, targets.reshape(outputs.shape).float())  # not float64

    result = check("01b.task-loss", two_faults, seed=0)
    assert "got Long" in result.message and "float32" not in result.message
    case = failing("01b.task-loss")
    assert case.inputs["task"] == "one of many" and "got Long" in repr(case)


def wrong_one(id, name):
    return next(wrong.function for wrong in bank.load(id).wrong if wrong.name == name)


def test_the_calls_of_a_class_are_listed_with_what_they_are_handed():
    check("02a.batch-norm", wrong_one("02a.batch-norm", "unbiased-output"), seed=0)
    case = failing("02a.batch-norm")
    (call,) = case.calls()
    numbers = [float(text) for text in re.findall(r"-?[\d.]+", call)]
    handed = case._case["x"][0].flatten().tolist()
    assert numbers == pytest.approx(handed) and call.startswith("forward([[")
    assert call in repr(case)

    check("03d.loss-scaler", wrong_one("03d.loss-scaler", "in-sixteen-bits"), seed=0)
    words = repr(failing("03d.loss-scaler"))
    assert re.search(r"scaled\([\d.]+ \(float16\)\), step\(<\w+>\)", words)


def test_many_calls_are_cut_and_counted():
    check("03g.noise", wrong_one("03g.noise", "global-generator"), seed=0)
    case = failing("03g.noise")
    more = len(case.calls()) - kit_failing.MOST_CALLS
    assert more > 0 and f"and {more} more calls" in " ".join(repr(case).split())


def test_calls_of_the_same_method_in_a_row_are_counted():
    calls = [f"update({i})" for i in range(9)] + ["stop()"]
    listed = " ".join(" ".join(kit_failing._first(calls, "03a.clip")).split())
    assert "update(5), 3 more like it, stop()" in listed and "update(6)" not in listed


def test_inputs_are_said_in_their_shortest_form():
    assert in_words(torch.tensor([-0.4, 1.7])) == "[-0.4, 1.7]"
    assert in_words(torch.tensor([-0.4]).double()) == "[-0.4] (float64)"
    third = torch.tensor(1 / 3, dtype=torch.float64)
    assert in_words(third) == "0.3333333333333333 (float64)"
    assert in_words(torch.tensor([2.5], dtype=torch.float16)) == "[2.5] (float16)"
    assert in_words(torch.tensor([[1, 2]])) == "[[1, 2]]"
    assert in_words(torch.zeros(20)) == "a tensor [20]"


def test_gradients_loaders_and_schedules_are_said_in_words():
    parameter = nn.Parameter(torch.ones(2))
    assert in_words([parameter]) == "[[1.0, 1.0] with .grad None]"
    parameter.grad = torch.tensor([0.5, 2.0])
    assert in_words([parameter]) == "[[1.0, 1.0] with .grad [0.5, 2.0]]"
    rows = [(torch.tensor([0.5]), 1), (torch.tensor([1.5]), 0)]
    said = in_words(DataLoader(rows, batch_size=2, shuffle=True))
    assert said == "a DataLoader: 2 examples, the first ([0.5], 1); in batches of 2, shuffled"
    schedule = torch.optim.lr_scheduler.StepLR(torch.optim.SGD([parameter], lr=0.1), 3, gamma=0.5)
    assert in_words(schedule) == "StepLR(step_size=3, gamma=0.5, last_epoch=0)"
    assert in_words(np.float64(0.25)) == "0.25 (numpy)"
    assert " at 0x" not in in_words(object())


def test_what_is_long_ends_in_an_ellipsis_and_a_model_says_its_modes():
    assert in_words(["dark"] * 100).endswith(" ...")
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout())
    assert in_words(model).endswith(", in train mode")
    assert in_words(model.eval()).endswith(", in eval mode")
    model.train()[1].eval()
    assert in_words(model).endswith(", in train mode except '1'")


def test_what_was_not_checked_or_was_right_has_no_failing_case():
    check("03a.clip", bank.load("03a.clip").right[0])
    assert "found nothing wrong" in repr(failing("03a.clip"))
    with pytest.raises(AttributeError, match="found nothing wrong"):
        failing("03a.clip").run(careless)
    kit_failing._last.pop("03b.split-by-group", None)  # of another test in this process
    assert "run its check first" in repr(failing("03b.split-by-group"))
    check("05.one-thing", "A")
    assert "its answer is a value, not a function" in repr(failing("05.one-thing"))


def test_a_path_in_the_inputs_leads_to_a_fresh_copy_of_what_the_check_had_there():
    check("03g.save", wrong_one("03g.save", "written-into"), seed=0)
    inputs = failing("03g.save").inputs
    before = torch.load(inputs["path"], weights_only=True)
    inputs["state"] = {"epoch": 9}  # the check's own has a probe in it
    bank.load("03g.save").right[0](**inputs)
    assert torch.load(inputs["path"], weights_only=True) == {"epoch": 9}
    again = torch.load(failing("03g.save").inputs["path"], weights_only=True)
    assert repr(again) == repr(before)
    check("03g.load", wrong_one("03g.load", "not-strict"), seed=0, parts="all")
    right = bank.load("03g.load").right[0]
    assert isinstance(right(**failing("03g.load").inputs), nn.Module)  # it reads a file


def fails(case, function) -> bool:
    """What a function raises shows, as does an answer on another device than the case's."""
    try:
        return not case.run(function).passed
    except Exception:
        return True


@pytest.mark.parametrize("id", sample(bank.asks_for_code(), every=4))
def test_every_exercise_finds_a_case_that_is_no_larger(id):
    exercise = bank.load(id)
    wrong = exercise.wrong[0].function
    result = check(id, wrong, seed=1)
    case = failing(id)
    assert fails(case, wrong) and case.run(exercise.right[0]).passed
    failed = [part.part for part in result.verdict.parts if not part.passed]
    asked = [numbers_in(c) for part in failed for c in exercise.cases(part, 1)]
    assert numbers_in(case._case) <= max(asked)
    assert set(case.inputs) == set(exercise.arguments) and id in repr(case)
