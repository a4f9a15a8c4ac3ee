"""`failing("03a.clip")`: the smallest case found for which the last checked function is wrong.

    case = failing("03a.accumulate")
    case                          # in words: part, inputs, what was expected, what came back
    case.inputs                   # the function's arguments, made again each time
    accumulate(**case.inputs)     # to see the whole traceback and every print
    case.run(accumulate)          # is it right now?

The search draws cases as the check does, with the smallest sizes and values of one decimal first,
and takes the one with the fewest numbers among those that fail as the check saw its part fail, or
among those that fail otherwise if there are none. It runs on request, for at most
`SEARCH_S`, so a check does not take longer because of it.
"""

from __future__ import annotations

import inspect
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from autograde.lines import wrapped
from autograde.words import difference_in_words, wrong_in_words

if TYPE_CHECKING:
    from autograde.exercise import Answer, Case, Exercise, Part
    from autograde.verdict import PartResult, Verdict

SEARCH_S = 2.0
"""How long the search for a smaller case may take."""
ROUNDS = ((0, 4), (1, 4), (3, 2))
"""Slack of the drawn sizes, and how many seeds are tried with it."""

_last: dict[str, tuple[Exercise, Callable[..., Any], Verdict]] = {}
_found: dict[str, FailingCase] = {}


def remember(exercise: Exercise, function: Callable[..., Any], verdict: Verdict) -> None:
    """Keep what was checked last, for `failing`."""
    _found.pop(exercise.id, None)
    _last[exercise.id] = exercise, function, verdict


def failing(id: str) -> FailingCase | NoCase:
    """Return the smallest case found for which the last checked function is wrong.

    Returns:
        The case; or a NoCase that says why there is none: nothing was checked in this notebook, the
        check found nothing wrong, or the answer is not a function.

    Raises:
        UnknownIdError: No exercise has this id; the message names the nearest.
    """
    from autograde import bank

    exercise = bank.load(id)
    id = exercise.id
    if not has_cases(exercise):
        return NoCase(f"{id} has no failing case: its answer is a value, not a function.")
    if id not in _last:
        return NoCase(f"{id} has not been checked here yet: run its check first.")
    exercise, function, verdict = _last[id]
    if verdict.passed:
        return NoCase(f"The last check of {id} found nothing wrong, so no case fails.")
    if id not in _found:
        found = _smallest(exercise, function, verdict)
        if found is None:  # it was wrong when it was checked, and is not any more
            return NoCase(f"No case fails any more: run the check of {id} again.")
        _found[id] = found
    return _found[id]


def has_cases(exercise: Exercise) -> bool:
    """Whether the answer is a function, which is tried on cases, and not a value."""
    from autograde.kinds import ValueExercise

    return not isinstance(exercise, ValueExercise)


class NoCase:
    """What `failing` returns if there is no failing case: it prints as the reason."""

    def __init__(self, why: str) -> None:
        self._why = why

    def __repr__(self) -> str:
        return self._why

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(self._why)


class FailingCase:
    """One case: what goes in, what should come out, what came out.

    Attributes:
        part: The title of the part that it belongs to.
        expected: The reference's answer by field; of a dictionary also as attributes.
        got: The function's, or what it raised.
    """

    def __init__(self, exercise: Exercise, part: Part, case: Case, got: Any) -> None:
        from autograde.answers import CPU, answer_of

        self.exercise, self.part, self._part, self._case = exercise, part.title, part, case
        self.expected = _Fields(self._looked_at(answer_of(exercise, exercise.reference, case)))
        self.got = _Fields(self._looked_at(got)) if isinstance(got, dict) else got
        self._device = CPU
        self._folders: list[tempfile.TemporaryDirectory] = []

    @property
    def inputs(self) -> dict[str, Any]:
        """The function's arguments by the exercise's names: fresh objects each time."""
        from autograde.answers import answer_of

        handed: dict[str, Any] = {}

        def look(*args: Any) -> None:
            if not handed:
                kept = map(self._kept, args)
                handed.update(zip(self.exercise.arguments, kept, strict=True))

        answer_of(self.exercise, look, self._case)
        return handed

    def _kept(self, value: Any) -> Any:
        """A path in the check's folder, which will be gone, in a copy of that folder."""
        from autograde.bank.harness import MEMORY

        if not isinstance(value, (str, Path)):
            return value
        folder, temporary = Path(value).parent, (Path(tempfile.gettempdir()), MEMORY)
        if not any(place in folder.parents for place in temporary) or not folder.is_dir():
            return value
        self._folders.append(tempfile.TemporaryDirectory(prefix="failing-"))
        shutil.copytree(folder, self._folders[-1].name, dirs_exist_ok=True)
        return type(value)(Path(self._folders[-1].name) / Path(value).name)

    def calls(self) -> list[str]:
        """What the case does with a class, in words and in order: its methods' calls."""
        from autograde.answers import answer_of

        said: list[str] = []

        def make(*args: Any) -> Any:
            said.append(f"{self.exercise.name}({_handed(args)})")
            return _saying(self.exercise.reference(*args), said)

        answer_of(self.exercise, make, self._case)
        return said[1:]  # the arguments of the first are the inputs

    def run(self, function: Callable[..., Any]) -> FailingRun:
        """Call a function on this case; its prints and exceptions are shown."""
        from autograde.answers import Drawn, usual_torch
        from autograde.by_hand import written_by_hand
        from autograde.questions import difference_in

        with written_by_hand(self.exercise), usual_torch(self._device):
            answer = self.exercise.run(function, Drawn(self._case), self._device)
        found = difference_in(self.exercise, self._part, self._case, answer)
        return FailingRun(self.exercise, _Fields(self._looked_at(answer)), found)

    def _looked_at(self, answer: Any) -> Any:
        fields = self._part.fields
        return {k: v for k, v in answer.items() if not fields or k in fields}

    def __repr__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"{self.exercise.id}: a case of the part '{self.part}'"
        for name, value in self.inputs.items():
            listed = f"a generator of {in_words(list(value))}" if inspect.isgenerator(value) else ""
            yield f"  {name} = {listed or in_words(value)}"
        if self.exercise.kind == "class":
            yield from _first(self.calls(), self.exercise.id)
        yield from wrong_in_words(self.exercise, self._part, self._case, self.got)
        name = self.exercise.name
        if self.exercise.kind != "class":
            yield f"  Try: {name}(**failing({self.exercise.id!r}).inputs)"
        yield f"  Then: failing({self.exercise.id!r}).run({name})"


MOST_CALLS = 24
"""Calls of a class's methods that are listed."""
MOST_ALIKE = 6
"""Of the same method in a row."""


def _first(calls: list[str], of: str) -> Iterator[str]:
    """The first calls, as indented lines."""
    listed: list[str] = []
    for _, alike in groupby(calls[:MOST_CALLS], lambda call: call.partition("(")[0]):
        row = list(alike)
        more = len(row) - MOST_ALIKE
        listed += [*row[:MOST_ALIKE], *([f"{more} more like it"] if more > 0 else [])]
    if more := max(0, len(calls) - MOST_CALLS):
        listed.append(f"and {more} more calls (all of them: failing({of!r}).calls())")
    yield from wrapped(f"calls {', '.join(listed)}", first="  ", then="    ") if calls else []


def _saying(made: Any, said: list[str]) -> Any:
    """An object of ours that says each call of its methods from outside."""
    from torch import nn

    kind, depth = type(made), 0

    def saying(name: str) -> Callable[..., Any]:
        def call(_self: Any, *args: Any, **named: Any) -> Any:
            nonlocal depth
            if not depth:
                said.append(f"{name}({_handed(args, **named)})")
            depth += 1
            try:
                return getattr(kind, name)(made, *args, **named)
            finally:
                depth -= 1

        return call

    names = [name for name in vars(kind) if not name.startswith("_") and callable(vars(kind)[name])]
    names += ["train", "eval"] if isinstance(made, nn.Module) else []
    with suppress(TypeError):  # a class of another layout: its calls are not listed
        made.__class__ = type(kind.__name__, (kind,), {name: saying(name) for name in names})
    return made


def _handed(args: tuple[Any, ...], **named: Any) -> str:
    """A call's arguments; models and optimizers, which do not change, by their kind alone."""
    from torch import nn, optim

    def said(value: Any) -> str:
        kind = type(value).__name__
        known = isinstance(value, (nn.Module, optim.Optimizer))
        return f"<{kind}>" if known else in_words(value)

    return ", ".join([*map(said, args), *(f"{key}={said(value)}" for key, value in named.items())])


class FailingRun(SimpleNamespace):
    """The result of a function on a failing case: `passed`, and its answer by field in `got`."""

    def __init__(self, exercise: Exercise, got: Answer, difference: Any) -> None:
        super().__init__(passed=difference is None, got=got)
        self._words = ""
        if difference is not None:
            self._words = difference_in_words(difference, exercise)
        self._id = exercise.id

    def __repr__(self) -> str:
        if self.passed:
            return f"right on this case: run the check of {self._id} again"
        return f"still wrong: {self._words}"


class _Fields(dict):
    """An answer by field, also as attributes."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def _smallest(
    exercise: Exercise, function: Callable[..., Any], verdict: Verdict
) -> FailingCase | None:
    from autograde.answers import answer_of
    from autograde.by_hand import written_by_hand
    from autograde.questions import difference_in
    from autograde.quiet import quiet

    failed = [result for result in verdict.parts if not result.passed]
    ends, best = time.monotonic() + SEARCH_S, None
    drawn = [(slack, seed) for slack, seeds in ROUNDS for seed in range(seeds)]
    for slack, seed in (*drawn, (None, verdict.seed)):
        for result in failed:
            part = result.part
            for case in exercise.cases(part, seed, slack=slack):
                rank = (False, numbers_in(case))
                if best is not None and (best[0] <= rank or time.monotonic() > ends):
                    continue
                with written_by_hand(exercise), quiet():
                    answer = answer_of(exercise, function, case)
                found = isinstance(answer, dict) and difference_in(exercise, part, case, answer)
                rank = (not _as_checked(result, answer, found), rank[1])
                if found is not None and (best is None or rank < best[0]):
                    best = rank, part, case, answer
        if best is not None and time.monotonic() > ends:
            break
    return None if best is None else FailingCase(exercise, *best[1:])


def _as_checked(result: PartResult, answer: Any, found: Any) -> bool:
    """Whether a case fails as the check saw its part fail: there may be more than one fault."""
    if result.raised or not isinstance(answer, dict):
        return bool(result.raised) and getattr(answer, "kind", None) == result.raised.kind
    return bool(result.difference and found) and found.field == result.difference.field


def numbers_in(value: Any) -> int:
    """How many numbers a case holds."""
    if hasattr(value, "numel"):
        return value.numel()
    if isinstance(value, Mapping):
        return sum(map(numbers_in, value.values()))
    return sum(map(numbers_in, value)) if isinstance(value, (list, tuple)) else 1


LONGEST = 240
"""Characters of an input that is not a tensor: a dictionary of six versions, a small model."""


def in_words(value: Any) -> str:
    """An input in one line, shortened if it is long."""
    import numpy as np
    import torch

    if inspect.isgenerator(value):
        return "a generator"
    if isinstance(value, torch.nn.Module):
        return f"{shortened(str(value))}, {_modes(value)}"
    if isinstance(value, torch.Tensor):
        return _tensor_in_words(value) + _grad_in_words(value)
    if isinstance(value, torch.utils.data.DataLoader):
        return _loader_in_words(value)
    if isinstance(value, torch.optim.lr_scheduler.LRScheduler):
        return _scheduler_in_words(value)
    if isinstance(value, np.generic):
        return f"{value.item()!r} (numpy)"
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], (tuple, torch.Tensor)):
        inner = ", ".join(in_words(item) for item in value)
        return f"[{inner}]" if isinstance(value, list) else f"({inner})"
    return shortened(re.sub(r" at 0x[0-9a-fA-F]+", "", f"{value!r}"))


def shortened(text: str) -> str:
    """A text in one line; if it is too long, its beginning and an ellipsis."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else f"{line[:LONGEST]} ..."


def _tensor_in_words(value: Any) -> str:
    """A small tensor's numbers, in the shortest form that gives them back, or its shape."""
    import torch

    usual = value.dtype in (torch.float32, torch.int64, torch.bool)
    dtype = "" if usual else f" ({str(value.dtype).removeprefix('torch.')})"
    if value.numel() > 12 or value.is_meta:  # meta holds no numbers
        return f"a tensor {list(value.shape)}{dtype}"
    value = value.detach().cpu()
    if value.is_floating_point():
        narrow = value if value.dtype == torch.float16 else value.float()
        if torch.equal(narrow.to(value.dtype), value):  # as drawn, whatever it was turned into
            return f"{_shortest(narrow.numpy())}{dtype}"
    return f"{value.tolist()}{dtype}"


def _grad_in_words(value: Any) -> str:
    """What `.grad` of a parameter holds, or of another tensor that has one."""
    import torch

    if isinstance(value, torch.nn.Parameter) and value.grad is None:
        return " with .grad None"
    has_one = value.is_leaf and value.grad is not None
    return f" with .grad {_tensor_in_words(value.grad)}" if has_one else ""


def _loader_in_words(loader: Any) -> str:
    from torch.utils.data import RandomSampler

    order = "shuffled" if isinstance(loader.sampler, RandomSampler) else "in order"
    rows = loader.dataset
    first = f", the first {in_words(rows[0])}" if isinstance(rows, list) and rows else ""
    return f"a DataLoader: {len(rows)} examples{first}; in batches of {loader.batch_size}, {order}"


def _scheduler_in_words(scheduler: Any) -> str:
    """Its kind and settings: the numbers that it keeps."""
    kept = {name: value for name, value in vars(scheduler).items()
            if name[0] != "_" and type(value) in (int, float, str)}  # fmt: skip
    return f"{type(scheduler).__name__}({', '.join(f'{k}={v!r}' for k, v in kept.items())})"


def _shortest(values: Any) -> Any:
    """Nested lists of numbers that print as they do in their own format: 0.4, not 0.4000000059."""
    return [_shortest(row) for row in values] if values.ndim else float(str(values[()]))


def _modes(model: Any) -> str:
    """Which modules are in train mode."""
    modes = {name: module.training for name, module in model.named_modules()}
    if len(set(modes.values())) == 1:
        return f"in {'train' if model.training else 'eval'} mode"
    evaluating = [f"'{name}'" for name, training in modes.items() if not training]
    return shortened(f"in train mode except {', '.join(evaluating)}")
