"""Relations on the loss: outputs are compared with their own targets, all parts have gradients."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from course.debug.probes.functions import shares_memory
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.tape import changes_by_mode
from course.debug.probes.thresholds import OFTEN, ROUNDED
from course.debug.relations.program import changed, far, program_of
from course.debug.relations.steps import SAME, Step, close
from course.state.nested import tensors_in

ELEMENTWISE = {"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"}
SIGMOIDS = {torch.sigmoid, Tensor.sigmoid, F.sigmoid, torch.special.expit}
THRESHOLDS = {"gt", "ge", "lt", "le"}
"""Comparisons with a number, by their names without underscores."""
RARELY = 0.02
"""Share of the target rows without any class up to which they may be a slip in the data."""
EXACT = 1e-5
"""Relative change of a loss whose terms are only added in another order."""
BATCHES = 3
"""Batches that are looked at for parts that are always alike."""
LEAST_TABLE = 8
"""Rows of a table from which all their largest on the diagonal are no chance."""
LEAST_NUDGE = 0.1
"""Added to a weight's own size, so that weights of 0 are moved too."""


def broadcast(session: Session) -> Iterator[Finding]:
    """A distance compares each output only with its own target."""
    losses = [e for e in session.loop.tape.of("loss") if e.graph]
    if not losses:
        raise NotChecked("no torch loss in the step")
    for event in losses[:8]:
        a, b = tuple(event.inputs.shape), tuple(event.targets.shape)
        if event.name not in ELEMENTWISE or a == b or 1 in (event.inputs.numel(),
                                                            event.targets.numel()):  # fmt: skip
            continue
        together = torch.broadcast_shapes(a, b)
        if together.numel() > max(event.inputs.numel(), event.targets.numel()):
            yield Finding(
                "broadcast-loss", "error",
                f"Outputs {list(a)} are compared with targets {list(b)}: they are broadcast to "
                f"{list(together)}, and every output is pulled towards the mean of all targets.",
                {"outputs": list(a), "targets": list(b)},
                "loss = loss_fn(outputs.squeeze(1), targets)",
            )  # fmt: skip
            return


def own_target(session: Session) -> Iterator[Finding]:
    """A loss depends on which target belongs to which output."""
    program = program_of(session)
    batch = program.batches[0]
    given = {tuple(t.shape) for call in program.first().calls for t in call.tensors}
    outputs = program.replay(program.call())
    size = len(outputs[0]) if outputs[0].dim() else 0
    columns = [
        t for t in tensors_in(batch)
        if t.is_floating_point() and t.numel() == size > 3 and tuple(t.shape) not in given
        and len(outputs) == 1 and outputs[0].numel() == size and outputs[0].shape != t.shape
    ]  # fmt: skip
    if len(columns) != 1 or far([outputs[0][:1]], [outputs[0][1:2]]) < SAME:
        raise NotChecked("targets and outputs are not one number per example in two shapes")
    target = columns[0]
    rows = target.shape.index(size)  # the first axis has one row where a batch is one task

    def cost(change: Callable[[Tensor], Tensor]) -> float:
        return program.steady_loss(changed(batch, lambda t: change(t) if t is target else t))

    base = cost(lambda t: t)
    if close(base, cost(lambda t: t + t.std() + 1)):
        raise NotChecked("the loss does not depend on that tensor")
    if close(base, cost(lambda t: t.roll(1, rows)), EXACT):
        yield Finding(
            "broadcast-loss", "error",
            f"The loss does not change when the targets {list(target.shape)} are permuted among "
            f"the examples: outputs {list(outputs[0].shape)} are compared with every target.",
            {"outputs": list(outputs[0].shape), "targets": list(target.shape)},
            "loss = (outputs.squeeze(1) - targets).abs().mean()",
        )  # fmt: skip


def itself(session: Session) -> Iterator[Finding]:
    """An example is not among its own candidates when it is compared with its batch.

    A symmetric table compares everything with everything; its diagonal is each example with itself.
    It is no negative where it is the largest of each row, and never what a row is to be near to.
    """
    losses = [e for e in session.loop.tape.of("loss") if e.graph]
    tables = [
        e for e in losses if e.name == "cross_entropy" and e.inputs.dim() == 2
        and e.inputs.shape[0] == e.inputs.shape[1] >= LEAST_TABLE
        and e.targets.dim() == 1 and not e.targets.is_floating_point()
    ]  # fmt: skip
    if not (seen := len(tables)):
        raise NotChecked("no cross-entropy over a table of each row with each")
    tables = [e for e in tables if _is_symmetric(e.inputs.float())]
    own = [_own_targets(e.targets) for e in tables]
    nearest = [e for e, share in zip(tables, own, strict=True)
               if not share and _own_targets(e.inputs.argmax(1)) == 1]  # fmt: skip
    rows = len(tables[0].inputs) if tables else 0
    if len(nearest) > OFTEN * seen:
        yield Finding(
            "compared-with-itself", "warning",
            f"In a {rows} x {rows} table of similarities the largest entry of every row is on the "
            "diagonal, which is never the target: each example is its own strongest negative.",
            {"tables": len(nearest), "rows": rows},
            "similarity.fill_diagonal_(-torch.inf)  # before the cross-entropy",
        )  # fmt: skip
    elif own.count(1) > OFTEN * len(losses):  # next to another loss it may only spread the rows
        yield Finding(
            "compared-with-itself", "warning",
            f"In a {rows} x {rows} table of similarities the target of every row is on the "
            "diagonal, where each example is compared with itself: nothing pulls the two views of "
            "an example together.",
            {"tables": own.count(1), "rows": rows},
            "similarity.fill_diagonal_(-torch.inf)\n"
            "targets = (torch.arange(2 * n) + n) % (2 * n)  # the other view of each of n",
        )  # fmt: skip


def twice(session: Session) -> Iterator[Finding]:
    """Two parts of a batch that the model gets one after the other are not the same numbers.

    If it draws, e.g. for dropout, its two answers to one example may be compared on purpose.
    """
    program = program_of(session)
    if any(changes_by_mode(part) for part in program.model.modules()):
        raise NotChecked("the model is another one in training")
    batches = program.batches[:BATCHES]
    parts = list(zip(*([*tensors_in(batch)] for batch in batches), strict=False))
    same = [
        (a, b) for a, b in combinations(parts, 2)
        if all(s.is_floating_point() and s.dim() > 1 and s.shape == t.shape and torch.equal(s, t)
               for s, t in zip(a, b, strict=True))
    ]  # fmt: skip
    if not same or len(batches) < BATCHES:
        raise NotChecked("no two parts of a batch hold the same numbers")
    given = [t for call in program.first().calls if call.tensors for t in call.tensors[:1]]
    for (part, *_), _ in same:
        got = sum(t.shape == part.shape and torch.equal(t.cpu(), part.cpu()) for t in given)
        if got > 1 and len(part.unique(dim=0)) > 1:
            yield Finding(
                "compared-with-itself", "warning",
                f"Two parts of every batch, {list(part.shape)}, hold the same numbers, and the "
                f"model gets them in {got} calls: whoever is compared is compared with itself, "
                "and nothing is pulled together.",
                {"parts": len(same), "calls": got, "batches": len(batches)},
                "others = same_class[same_class != i]  # another example of the class",
            )  # fmt: skip
            return


def _is_symmetric(table: Tensor) -> bool:
    return torch.allclose(table, table.T, rtol=ROUNDED, atol=ROUNDED)


def _own_targets(targets: Tensor) -> float:
    """Share of the rows of a table whose target is on its diagonal."""
    return float((targets == torch.arange(len(targets), device=targets.device)).float().mean())


def terms(session: Session) -> Iterator[Finding]:
    """Terms of the loss that depend on the weights have a gradient.

    If several such numbers are added for one backward, that may be intended, e.g. a value with
    another's gradient; a step with several backwards, such as a critic's, may add one for each.
    """
    program = program_of(session)
    step = program.first()
    added = _added(step)
    again = _added(program.step(program.batches[0], again=True)) if added else []
    if not added or len(again) != len(added) or not all(map(close, added, again)):
        raise NotChecked("no single number without a gradient is added to a loss")

    def nudge() -> None:
        own = torch.Generator().manual_seed(0)
        for p in program.model.parameters():
            noise = torch.randn(p.shape, generator=own).to(p)
            p.add_(noise, alpha=float(p.abs().mean()) + LEAST_NUDGE)

    other = _added(program.step(program.batches[0], prepare=nudge))
    if len(other) != len(added):
        return
    value, moved = added[0], other[0]
    if not close(value, moved):
        yield Finding(
            "loss-without-gradient", "warning",
            f"A part of the loss ({value:.4g} of {step.loss:.4g}) depends on the weights but has "
            "no gradient: a threshold, argmax(), round() or detach() cuts it off. It counts in the "
            "loss but trains nothing.",
            {"part": value, "loss": step.loss, "part_of_other_weights": moved},
            "probability = logits.sigmoid()  # no (probability > 0.5).float() in a "
            "loss\ntorch.autograd.grad(out, x, create_graph=True)  # for a penalty on a gradient",
        )  # fmt: skip


def _added(step: Step) -> list[float]:
    """What is added for each backward; nothing where one gets several."""
    values, since = [], 0
    for event in step.tape.events:
        if event.kind == "backward":
            since = 0
        elif event.kind == "term" and event.reached:
            values.append(float(event.value))
            since += 1
        if since > 1:
            return []
    return values


def shares(session: Session) -> Iterator[Finding]:
    """Targets that are shares of classes add up to 1 in each row.

    Several classes of a row may share a softmax on purpose, e.g. counts of choices; but not if some
    rows have none, if the author declares several labels per example, or if evaluate() asks of each
    class alone whether it is present.
    """
    losses = [e for e in session.loop.tape.of("loss")
              if e.graph and e.name == "cross_entropy"
              and e.targets.is_floating_point()]  # fmt: skip
    if not losses:
        raise NotChecked("no cross-entropy with shares of classes as targets")
    sums = torch.cat([e.targets.sum(1).flatten() for e in losses])
    empty = float((sums.abs() < ROUNDED).float().mean())
    if empty > 0 and float((sums - 1).abs().median()) < ROUNDED:
        yield Finding(
            "empty-targets", "warning",
            f"{empty:.0%} of the target rows hold no class at all: they add nothing to the loss "
            "and teach nothing, e.g. because a class is missing from the mapping that made them.",
            {"empty_rows": empty, "rows": sums.numel()},
            "assert (targets.sum(1) == 1).all()",
        )  # fmt: skip
        return
    several = float((sums > 1 + ROUNDED).float().mean())
    flags = all(bool(((e.targets == 0) | (e.targets == 1)).all()) for e in losses)
    many = empty > RARELY or session.task == "multilabel"
    if flags and several > 0 and (many or _asked_alone(session)):
        yield Finding(
            "classes-compete", "warning",
            f"{several:.0%} of the target rows hold several classes and {empty:.0%} hold none, but "
            "cross_entropy makes the classes of a row compete: their probabilities add up to 1, a "
            "row without any class adds nothing to the loss, and no threshold tells which classes "
            "are present.",
            {"rows_with_several": several, "rows_with_none": empty, "rows": sums.numel()},
            "loss = F.binary_cross_entropy_with_logits(logits, targets)",
        )  # fmt: skip


def _asked_alone(session: Session) -> bool:
    """evaluate() takes a sigmoid of what the model gives for each class, or compares it with a
    number."""
    if session.setup.evaluate is None:
        return False
    mode = _Sigmoids()
    with session.observe(), contextlib.suppress(Exception):
        handle = session.model.register_forward_hook(mode.gave)
        try:
            with torch.no_grad(), mode:
                session.setup.evaluate()
        finally:
            handle.remove()
    return mode.met


class _Sigmoids(TorchFunctionMode):
    """Whether a sigmoid is taken of outputs with several columns, or a threshold."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[Tensor] = []
        self.met = False

    def gave(self, _: object, args: object, output: Any) -> None:
        self.given += [t.detach() for t in tensors_in(output) if t.dim() > 1 < t.shape[1]]

    def __torch_function__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None):
        if shares_memory(args[0] if args else None, self.given):
            name = getattr(function, "__name__", "").strip("_")
            by_number = name in THRESHOLDS and not isinstance(args[1], Tensor)
            self.met = self.met or function in SIGMOIDS or by_number
        result = function(*args, **(kwargs or {}))
        if function is torch.cat and any(shares_memory(t, self.given) for t in args[0]):
            self.given.append(result)
        return result
