"""What an answer is handed leads to nothing that the check judges by, where a class is graded.

By attributes it does not anywhere; closures lead nowhere in a student's process. Who asks Python
for frames or objects there is shown to a person.
"""

import inspect
import sys
from functools import cmp_to_key, wraps
from types import FunctionType, MethodType

import pytest
import torch
from torch import Tensor, nn

from autograde import bank
from autograde.answers import answer_of
from autograde.compare import first_difference
from autograde.sandbox.sealed import global_hooks, leading_nowhere, sealed

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


WITH_HOOKS = (
    ("torch.nn.modules.module", "_global_forward_hooks"),
    ("torch.nn.modules.module", "_global_forward_pre_hooks"),
    ("torch.optim.optimizer", "_global_optimizer_pre_hooks"),
    ("torch.optim.optimizer", "_global_optimizer_post_hooks"),
)
HELD = type(cmp_to_key(int))


def held_by_functions(value, seen):
    """What closures of the check's own functions hold, among all that a value leads to."""
    if id(value) in seen or isinstance(value, (int, float, str, type(None), Tensor, type)):
        return
    seen[id(value)] = value
    if isinstance(value, FunctionType):
        if "autograde" in value.__code__.co_filename:
            yield from inspect.getclosurevars(value).nonlocals.values()
            yield from value.__defaults__ or ()
    elif isinstance(value, (dict, list, tuple, set)):
        for one in value.values() if isinstance(value, dict) else value:
            yield from held_by_functions(one, seen)
    else:
        for one in (*getattr(value, "__dict__", {}).values(), getattr(value, "__self__", None)):
            yield from held_by_functions(one, seen)


@pytest.mark.parametrize("name", EXERCISES)
def test_no_closure_leads_to_what_the_check_notes_where_a_class_is_graded(name):
    exercise, found = bank.load(name), []

    @wraps(exercise.reference)
    def spy(*args):
        global_hooks()
        args = leading_nowhere(args)
        everything = (args, *(vars(sys.modules[where])[name] for where, name in WITH_HOOKS))
        found.extend(held_by_functions(everything, {}))
        return exercise.reference(*args)

    for part in exercise.parts:
        case = exercise.cases(part, 7)[0]
        answer = answer_of(exercise, spy, case)
        right = answer_of(exercise, exercise.reference, case)
        assert first_difference(right, answer, fields=part.fields) is None
    assert [one for one in found if type(one) is not HELD] == []


def test_a_sealed_function_returns_and_raises_as_the_one_below():
    noted = []

    def divided(a, b=1):
        noted.append(a)
        return a / b

    assert sealed(divided)(6, b=3) == 2 and noted == [6]
    assert [type(v) for v in inspect.getclosurevars(sealed(divided)).nonlocals.values()] == [HELD]
    with pytest.raises(ZeroDivisionError) as raised:
        sealed(divided)(1, 0)
    assert "divided" not in [entry.name for entry in raised.traceback]


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
