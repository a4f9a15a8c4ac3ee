"""Wrong answers that many exercises share, made from a right one of the exercise.

    wrong=(
        Wrong("not-cleared", not_cleared, "..."),
        *common(plain_loop, "own-criterion", "own-optimizer", "first-batch-only", "returns-none"),
    )

Each name stands for a way to spoil a right function: hand it another criterion than the one that
came, fewer batches, or spoil what it returns or leaves behind. A name applies where the function
has the arguments that it is about (`loader`, `batches` and `micro_batches` are one argument here).
Those without a message are refused and never named: the check says what it saw.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from autograde.exercise import Wrong

Function = Callable[..., Any]
BATCHES = ("loader", "batches", "micro_batches")


def common(
    right: Function, *names: str, alike: Mapping[str, str] | None = None
) -> tuple[Wrong, ...]:
    """The shared wrong answers of these names, made from a right answer.

    Args:
        right: From the right bank of the exercise.
        names: Keys of `MAKERS`.
        alike: Those that leave the trace of one of the exercise's own, and which: what that one's
            name and message say must be true of both.

    Raises:
        KeyError: There is no such name.
    """
    made = []
    for name in names:
        shown_as = (alike or {}).get(name, name)
        message = MESSAGES.get(name, "") if shown_as == name else ""
        made.append(Wrong(shown_as, named(name, MAKERS[name](right)), message))
    return tuple(made)


def named(name: str, function: Function) -> Function:
    """The function under the wrong answer's name, for tables and tracebacks."""
    function.__name__ = name.replace("-", "_")
    return function


def _with(right: Function, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Function:
    """The right function, called with changed arguments; `change` gives the new ones by name."""
    names = list(inspect.signature(right).parameters)

    @wraps(right)
    def wrong(*args: Any) -> Any:
        handed = dict(zip(names, args, strict=True))
        return right(**{**handed, **change(handed)})

    return wrong


def _returns(right: Function, spoil: Callable[[Any], Any]) -> Function:
    """The right function, whose result is spoiled."""

    @wraps(right)
    def wrong(*args: Any) -> Any:
        return spoil(right(*args))

    return wrong


def _leaves(right: Function, spoil: Callable[[dict[str, Any]], Any]) -> Function:
    """The right function; something that was handed over, or of torch, is spoiled at the end."""
    names = list(inspect.signature(right).parameters)

    @wraps(right)
    def wrong(*args: Any) -> Any:
        result = right(*args)
        spoil(dict(zip(names, args, strict=True)))
        return result

    return wrong


def _batches(handed: dict[str, Any], pick: Callable[[list[Any]], list[Any]]) -> dict[str, Any]:
    name = next(name for name in BATCHES if name in handed)
    return {name: pick(list(handed[name]))}


def _per_batch(right: Function, combine: Callable[[list[float]], float]) -> Function:
    """The right function on each batch alone, its numbers combined without the batches' sizes."""
    names = list(inspect.signature(right).parameters)
    at = next(i for i, name in enumerate(names) if name in BATCHES)

    @wraps(right)
    def wrong(*args: Any) -> Any:
        each = [right(*args[:at], [batch], *args[at + 1 :]) for batch in args[at]]
        if isinstance(each[0], dict):
            return {key: combine([float(one[key]) for one in each]) for key in each[0]}
        return combine([float(one) for one in each])

    return wrong


def _plain_sgd(handed: dict[str, Any]) -> dict[str, Any]:
    given = handed["optimizer"]
    parameters = [p for group in given.param_groups for p in group["params"]]
    return {"optimizer": torch.optim.SGD(parameters, lr=given.param_groups[0]["lr"])}


def _first_group_only(right: Function) -> Function:
    names = list(inspect.signature(right).parameters)

    @wraps(right)
    def wrong(*args: Any) -> Any:
        optimizer = args[names.index("optimizer")]
        groups = list(optimizer.param_groups)
        del optimizer.param_groups[1:]
        try:
            return right(*args)
        finally:
            optimizer.param_groups[:] = groups

    return wrong


def _from_the_notebook(right: Function, wanted: tuple[str, ...]) -> Function:
    """An argument is ignored for a global of the same name: the one of the first call ever."""
    found: dict[str, Any] = {}

    def change(handed: dict[str, Any]) -> dict[str, Any]:
        for name in handed:
            if name in wanted:
                found.setdefault(name, handed[name])
        return found

    return _with(right, change)


def _deaf(right: Function, *methods: str) -> Function:
    """The right function with a model on which train() or eval() has been forgotten."""

    @wraps(right)
    def wrong(*args: Any) -> Any:
        model = args[0]
        for method in methods:
            setattr(model, method, lambda *_args, **_kwargs: model)
        try:
            return right(*args)
        finally:
            for method in methods:
                delattr(model, method)

    return wrong


def _spoil_data(handed: dict[str, Any]) -> None:
    for value in _tensors_and_lists(handed.values()):
        if isinstance(value, Tensor):
            value.zero_()
        else:
            value.append(value.pop(0))


def _tensors_and_lists(values: Iterable[Any]) -> Iterable[Any]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list) and value and isinstance(value[0], tuple):
            yield value[0][0]
        elif isinstance(value, list) and len(value) > 1:
            yield value
        elif isinstance(value, torch.utils.data.DataLoader):
            yield value.dataset[0][0]


def _with_graph(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_graph(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_with_graph(item) for item in value]
    return value if isinstance(value, str) else torch.as_tensor(float(value)).requires_grad_()


def _halve_lr(handed: dict[str, Any]) -> None:
    for group in handed["optimizer"].param_groups:
        group["lr"] /= 2


def _freeze(handed: dict[str, Any]) -> None:
    next(handed["model"].parameters()).requires_grad_(False)


def _fill_grads(handed: dict[str, Any]) -> None:
    for parameter in handed["model"].parameters():
        parameter.grad = torch.zeros_like(parameter)


def _clear_grads(handed: dict[str, Any]) -> None:
    handed["model"].zero_grad()


def _seed(_handed: dict[str, Any]) -> None:
    torch.manual_seed(1)
    random.seed(1)
    np.random.seed(1)


def _hook(handed: dict[str, Any]) -> None:
    handed["model"].register_forward_hook(lambda *_: None)


def _wider(_handed: dict[str, Any]) -> None:
    torch.set_default_dtype(torch.float64)


def _grad_off(_handed: dict[str, Any]) -> None:
    torch.set_grad_enabled(False)


def _float_targets(handed: dict[str, Any]) -> dict[str, Any]:
    criterion = handed["criterion"]
    return {"criterion": lambda logits, targets: criterion(logits, targets.float())}


MAKERS: dict[str, Callable[[Function], Function]] = {
    "own-criterion": lambda f: _with(f, lambda _: {"criterion": F.cross_entropy}),
    "own-optimizer": lambda f: _with(f, _plain_sgd),
    "first-group-only": _first_group_only,
    "float-targets": lambda f: _with(f, _float_targets),
    "first-batch-only": lambda f: _with(f, lambda a: _batches(a, lambda b: b[:1])),
    "last-batch-only": lambda f: _with(f, lambda a: _batches(a, lambda b: b[-1:])),
    "last-batch-missing": lambda f: _with(f, lambda a: _batches(a, lambda b: b[:-1])),
    "first-batch-missing": lambda f: _with(f, lambda a: _batches(a, lambda b: b[1:])),
    "batch-means": lambda f: _per_batch(f, lambda each: sum(each) / len(each)),
    "sum-of-means": lambda f: _per_batch(f, sum),
    "last-value": lambda f: _per_batch(f, lambda each: each[-1]),
    "first-value": lambda f: _per_batch(f, lambda each: each[0]),
    "global-model": lambda f: _from_the_notebook(f, ("model",)),
    "global-optimizer": lambda f: _from_the_notebook(f, ("optimizer",)),
    "global-batches": lambda f: _from_the_notebook(f, BATCHES),
    "global-data": lambda f: _from_the_notebook(
        f, ("inputs", "targets", "groups", "buckets", "train_targets", "val_targets", "parameters")
    ),
    "forgotten-train": lambda f: _deaf(f, "train"),
    "forgotten-eval": lambda f: _deaf(f, "eval"),
    "returns-none": lambda f: _returns(f, lambda _: None),
    "returns-text": lambda f: _returns(f, str),
    "returns-graph": lambda f: _returns(f, _with_graph),
    "returns-nothing-called": lambda f: lambda *_: None,
    "changes-data": lambda f: _leaves(f, _spoil_data),
    "changes-lr": lambda f: _leaves(f, _halve_lr),
    "changes-requires-grad": lambda f: _leaves(f, _freeze),
    "changes-seed": lambda f: _leaves(f, _seed),
    "changes-dtype": lambda f: _leaves(f, _wider),
    "changes-grad-mode": lambda f: _leaves(f, _grad_off),
    "fills-grads": lambda f: _leaves(f, _fill_grads),
    "clears-grads": lambda f: _leaves(f, _clear_grads),
    "leaves-a-hook": lambda f: _leaves(f, _hook),
}
"""How each of them is made from a right function."""

MESSAGES = {
    "own-criterion": "The result is that of plain cross_entropy. Call the criterion that was "
    "handed over instead: it may be another loss.",
    "own-optimizer": "The weights are those of plain SGD with the first group's lr. Call step() of "
    "the optimizer that was handed over: it may be Adam, or have several groups.",
    "first-batch-only": "The result is that of the first batch alone. Is there a `return` inside "
    "the loop? It ends the loop.",
    "last-batch-only": "The result is that of the last batch alone. Add up over the loop, divide "
    "after it.",
    "last-batch-missing": "The result is that of all batches but the last. Where does the loop "
    "end?",
    "first-batch-missing": "The result is that of all batches but the first. Where does the loop "
    "begin?",
    "batch-means": "The mean of the batches' means was returned, in which a short batch counts as "
    "much as a full one. Multiply each by len(targets), and divide the sum by the number of "
    "examples.",
    "sum-of-means": "The sum of the batches' means was returned. Multiply each by len(targets), "
    "and divide the sum by the number of examples.",
    "last-value": "What was returned is the last batch's alone. Add up over the loop, divide after "
    "it.",
    "first-value": "What was returned is the first batch's alone. Add up over the loop, divide "
    "after it.",
}
"""What to say where the trace belongs to this mistake alone; the others say nothing."""

MEASURES = (
    "global-model", "returns-none", "returns-text", "returns-graph",
    "changes-data", "changes-requires-grad", "changes-seed", "changes-dtype", "changes-grad-mode",
    "fills-grads", "clears-grads", "leaves-a-hook",
)  # fmt: skip
"""For functions of a model that may change nothing."""
TRAINS = (
    "own-criterion", "own-optimizer", "first-group-only", "float-targets", "global-model",
    "global-optimizer", "returns-none", "returns-text", "changes-data",
    "changes-lr", "changes-requires-grad", "changes-dtype", "changes-grad-mode", "leaves-a-hook",
)  # fmt: skip
"""For functions of a model, a criterion and an optimizer that train."""
LOOKS = ("global-data", "returns-none", "returns-text", "changes-data", "changes-seed",
         "changes-dtype", "changes-grad-mode")  # fmt: skip
"""For functions of data alone."""
