"""What an answer is handed leads to nothing that the check judges by: by attributes, that is.

Frames and closures lead anywhere in Python; code that names them is shown to a person.
"""

from functools import wraps
from types import FunctionType, MethodType

import pytest
import torch
from torch import Tensor, nn

from autograde import bank
from autograde.answers import answer_of
from autograde.compare import first_difference

EXERCISES = [name for name, entry in bank.asks_for_code().items() if entry.load().kind != "class"]
PLAIN = (int, float, str, type(None), Tensor, FunctionType)


def reached(value, seen):
    """The values that attributes, bound methods and containers lead to, each once."""
    if id(value) in seen or isinstance(value, (*PLAIN, type)):
        return
    seen[id(value)] = value
    inside = [value.__self__] if isinstance(value, MethodType) else []
    if isinstance(value, (dict, list, tuple, set)):
        inside += value.values() if isinstance(value, dict) else value
    for one in (*inside, *getattr(value, "__dict__", {}).values()):
        reached(one, seen)


def of_the_check(args):
    """Attributes of the bank's own objects among what the arguments lead to."""
    seen = {}
    reached(args, seen)
    ours = [v for v in seen.values() if type(v).__module__.startswith("autograde.bank")]
    return {
        f"{type(one).__name__}.{name}": value
        for one in ours
        for name, value in vars(one).items()
        if not (isinstance(one, nn.Module) and (name.startswith("_") or name == "training"))
    }


@pytest.mark.parametrize("name", EXERCISES)
def test_no_argument_leads_to_what_the_check_notes(name):
    exercise, found = bank.load(name), []

    @wraps(exercise.reference)
    def spy(*args):
        before = of_the_check(args)
        returned = exercise.reference(*args)
        after = of_the_check(args)
        found.extend(n for n, value in before.items() if not isinstance(value, PLAIN))
        found.extend(n for n, value in before.items() if after.get(n) is not value)
        return returned

    for part in exercise.parts:
        answer_of(exercise, spy, exercise.cases(part, 7)[0])
    assert found == []


def spoiled(value, seen):
    """Change every tensor and list that was handed over, apart from models and optimizers."""
    if id(value) in seen or isinstance(value, (nn.Module, torch.optim.Optimizer, torch.Generator)):
        return
    seen[id(value)] = value
    if isinstance(value, Tensor) and not value.requires_grad and value.numel() < 10_000:
        with torch.no_grad():
            value.fill_(1) if value.dtype == torch.bool else value.mul_(0).add_(1)
    elif isinstance(value, (dict, list, tuple)):
        for one in value.values() if isinstance(value, dict) else value:
            spoiled(one, seen)
    elif hasattr(value, "__dict__"):
        for one in vars(value).values():
            spoiled(one, seen)


THE_ANSWER_HOLDS_IT = {
    *("01b.hidden-layers", "01c.step-by-hand", "03c.loaders", "03e.leaking-pipeline"),
    *("03d.recompute", "05.setup"),
}
"""What comes back holds the tensors that were handed over: they are the answer, too."""


@pytest.mark.parametrize("name", sorted({*EXERCISES} - THE_ANSWER_HOLDS_IT))
def test_what_an_answer_changes_afterwards_is_not_what_it_is_judged_by(name):
    exercise = bank.load(name)

    @wraps(exercise.reference)
    def spoiling(*args):
        returned = exercise.reference(*args)
        spoiled(args, {})
        return returned

    for part in exercise.parts:
        case = exercise.cases(part, 7)[0]
        right, found = (answer_of(exercise, f, case) for f in (exercise.reference, spoiling))
        fields = set(part.fields or right) - {"disturbed"}
        assert first_difference(right, found, fields=tuple(sorted(fields))) is None, part.key
