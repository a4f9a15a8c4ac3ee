"""Relations on token targets: which place of the inputs an output is compared with."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.tape import Event
from course.debug.probes.thresholds import LEFT_OUT, MOST, OFTEN
from course.debug.relations.model import (
    EQUAL_SHARE,
    LEAST_TOKENS,
    VISIBLE,
    by_position,
    turned_layouts,
)
from course.debug.relations.program import changed, far, program_of
from course.debug.relations.steps import SAME, Call

FARTHEST = 4
"""Places that a target may lie ahead of its output: shifts by mistake add up to two or three."""
LEAST_LEFT = 3
"""Places of a row at which output and target must both be there."""
MASKED = 0.02
"""Share of the inputs that differ from their targets, below which nothing was masked."""
DOMINATES = 2.0
"""How many times as far as those at other places an output moves with the token at its own, from
which it can be copied: a code of the whole row moves all alike."""
OF_CLASSES = ("cross_entropy", "nll_loss")


def skipped(session: Session) -> Iterator[Finding]:
    """An output of a model that reads from left to right is compared with the next token.

    Several losses, e.g. one for each place ahead, or heads on a frozen model may each ask for
    another place, and so may targets of which only some count.
    """
    event, ids, output, start = _compared(session)
    model, held = session.model, session.optimizers
    trained = {id(p) for o in held for group in o.param_groups for p in group["params"]}
    if not all(p.requires_grad and id(p) in trained for p in model.parameters()):
        raise NotChecked("part of the model is not trained: a further head may look farther ahead")
    targets = event.targets.reshape(len(ids), -1).to(ids.device)
    counted = (targets >= 0) & (targets != left_out(event))
    beside = counted[:, 1:] & counted[:, :-1]
    if int(beside.sum()) < MOST * int(counted[:, 1:].sum()):
        raise NotChecked("targets of which one follows the other are few")
    shares = [_share(ids, targets, counted, start + ahead) for ahead in range(FARTHEST + 1)]
    ahead = next((n for n, share in enumerate(shares) if share >= EQUAL_SHARE), 0)
    if not ahead or max(shares[:ahead]) > OFTEN:
        raise NotChecked("targets are not the tokens of a place ahead")
    behind = {_first_moved(session, ids, output, place) - place for place in _places(ids)}
    if min(behind) < 0 or len(behind) > 1:
        raise NotChecked("the model sees later tokens, or not as many at each place")
    (lag,) = behind
    if ahead + lag > 1:
        yield Finding(
            "labels-moved", "warning",
            f"Each output is compared with the token {ahead + lag} places after the last one that "
            f"it depends on ({shares[ahead]:.0%} of the targets), and none with the next one: "
            "targets are shifted in two places, e.g. in the data and in the model.",
            {"places_ahead": ahead + lag, "targets": int(counted.sum())},
            "labels = input_ids.clone()  # where the model's own loss shifts them",
        )  # fmt: skip


def copied(session: Session) -> Iterator[Finding]:
    """If the author says which label does not count, a model of masked tokens has such labels.

    Only where it is said, and is no token: else all places may be meant to be written again, as an
    autoencoder of noisy inputs does.
    """
    event, ids, output, start = _compared(session)
    heard = [e for e in session.loop.tape.of("loss") if e.graph and e.name in OF_CLASSES]
    if start or event.targets.numel() != ids.numel():
        raise NotChecked("outputs are not compared with targets of all places")
    if any(bool((e.targets < 0).any()) for e in heard):
        raise NotChecked("some targets are left out")
    targets = event.targets.reshape(ids.shape).to(ids.device)
    other = targets != ids
    share = float(other.float().mean())
    if not MASKED < share < OFTEN:
        raise NotChecked("inputs are not targets of which some are masked")
    masks, counts = ids[other].unique(return_counts=True)
    mask = masks[counts.argmax()]
    if int(counts.max()) < MOST * int(other.sum()) or bool((targets == mask).any()):
        raise NotChecked("inputs do not differ from their targets by one token of their own")
    place = _places(ids)[0]
    if _first_moved(session, ids, output, place, alone=True) != place:
        raise NotChecked("outputs do not depend on the token at their own place")
    left_out = _said(session, event)
    if left_out is None:
        raise NotChecked("nobody says which label does not count")
    yield Finding(
        "target-in-inputs", "warning",
        f"Token {int(mask)} masks {share:.0%} of the inputs, but the loss counts all places, and "
        f"at {1 - share:.0%} of them the target can be read from the input itself. "
        f"Labels of {left_out} are said not to count, and there are none.",
        {"masked": share, "targets_that_are_inputs": 1 - share, "left_out": left_out},
        f"labels[~masked] = {left_out}",
    )  # fmt: skip


def shown(session: Session) -> Iterator[Finding]:
    """A model of masked tokens is not asked for those it is shown, and for no other.

    Between targets that count, each the token at its own place, others are left out where inputs
    hold one token that is never asked for. A row that is written again from a code alone depends on
    no token more at its place than elsewhere; one that does has only to copy.
    """
    event, ids, output, start = _compared(session)
    if start or event.targets.numel() != ids.numel():
        raise NotChecked("outputs are not compared with targets of all places")
    targets = event.targets.reshape(ids.shape).to(ids.device)
    counted = (targets >= 0) & (targets != left_out(event))
    between = ~counted & (counted.cumsum(1) > 0) & (counted.flip(1).cumsum(1).flip(1) > 0)
    if int(between.any(1).sum()) < OFTEN * len(ids):
        raise NotChecked("no targets are left out between others, as they are at padding")
    if _share(ids, targets, counted, 0) < EQUAL_SHARE:
        raise NotChecked("targets that count are not the tokens at their own places")
    tokens, counts = ids[between].unique(return_counts=True)
    mask, share = tokens[counts.argmax()], float(between.double().mean())
    if int(counts.max()) < OFTEN * int(between.sum()) or bool((targets[counted] == mask).any()):
        raise NotChecked("places that are left out do not hold one token of their own")
    place = _places(ids)[0]
    moved = _moved_by(session, ids, output, place)
    if not moved[place] > DOMINATES * float(torch.cat([moved[:place], moved[place + 1 :]]).mean()):
        raise NotChecked("an output does not depend on the token at its own place above others")
    yield Finding(
        "target-in-inputs", "error",
        f"Token {int(mask)} hides {share:.0%} of the inputs, but these are left out of the loss, "
        f"and each of the {int(counted.sum())} targets that count is the token that the model sees "
        "at that very place: the mask of the labels is the wrong way round, and the model learns "
        "to copy.",
        {"masked": share, "targets": int(counted.sum()), "mask": int(mask)},
        "labels[~masked] = -100  # what is hidden counts",
    )  # fmt: skip


def _moved_by(session: Session, ids: Tensor, output: Tensor, place: int) -> Tensor:
    """How far the outputs at each place move if the tokens at one are those of other rows [T]."""
    program = program_of(session)
    call = program.call()

    def other(t: Tensor) -> Tensor:
        if t.shape != ids.shape or t.dtype != ids.dtype or not torch.equal(t, ids):
            return t
        one = t[:, place : place + 1].roll(1, 0)
        return torch.cat([t[:, :place], one, t[:, place + 1 :]], dim=1)

    given = program.replay(Call(*changed((call.args, call.kwargs), other)))
    after = next((t for t in by_position(given, ids) if t.shape == output.shape), output)
    return (after - output).abs().mean((0, 2))


def _compared(session: Session) -> tuple[Event, Tensor, Tensor, int]:
    """The one loss over tokens in a step, the tokens, the outputs [B, T, V], and the place of the
    first output that the loss got.

    Raises:
        NotChecked: There is none, or there are several.
    """
    program = program_of(session)
    call = program.call()
    events = [e for e in program.first().losses
              if e.name in OF_CLASSES and not e.targets.is_floating_point()]  # fmt: skip
    tokens = [t for t in call.tensors if t.dim() == 2 and not t.is_floating_point()
              and t.dtype != torch.bool and t.shape[1] > LEAST_LEFT]  # fmt: skip
    if len(events) != 1 or not tokens:
        raise NotChecked("not one cross-entropy in a step, or no tokens")
    (event,) = events
    given = program.replay(call)
    for ids in tokens:
        for output in (t for t in by_position(given, ids) if t.dim() == 3):
            start = _first_met(event.inputs, output)
            enough = event.targets.numel() >= LEAST_TOKENS and ids.unique().numel() > LEAST_LEFT
            if enough and start is not None and event.targets.numel() % len(ids) == 0:
                return event, ids, output, start
    raise NotChecked("the loss does not get outputs by position")


def _first_met(met: Tensor, output: Tensor) -> int | None:
    """The place from which a loss got the outputs [B, T, V]; None if it did not."""
    rows, length, width = output.shape
    number = met.numel() // (rows * width)
    if not LEAST_LEFT <= number <= length or met.numel() != rows * number * width:
        return None
    slack = SAME * float(output.std())
    for start in range(length - number + 1):
        part = output[:, start : start + number].flatten()
        if any(torch.allclose(part, t.flatten().to(part), rtol=0, atol=slack)
               for t in turned_layouts(met)):  # fmt: skip
            return start
    return None


def _share(ids: Tensor, targets: Tensor, counted: Tensor, first: int) -> float:
    """Share of the targets that count which are the tokens from a place on."""
    number = min(targets.shape[1], ids.shape[1] - first)
    if number < LEAST_LEFT or not bool(counted[:, :number].any()):
        return 0.0
    same = targets[:, :number] == ids[:, first : first + number]
    return float(same[counted[:, :number]].float().mean())


def _first_moved(
    session: Session, ids: Tensor, output: Tensor, place: int, *, alone: bool = False
) -> int:
    """The first place of the outputs that changes if the tokens from a place on, or that one alone,
    are those of other rows.

    Raises:
        NotChecked: None does.
    """
    program = program_of(session)
    end = place + 1 if alone else ids.shape[1]

    def later_moved(t: Tensor) -> Tensor:
        if t.shape != ids.shape or t.dtype != ids.dtype or not torch.equal(t, ids):
            return t
        other = t[:, place:end].roll(1, 0)
        return torch.cat([t[:, :place], other, t[:, end:]], dim=1)

    call = program.call()
    given = program.replay(Call(*changed((call.args, call.kwargs), later_moved)))
    after = next((t for t in by_position(given, ids) if t.shape == output.shape), output)
    moved = [n for n in range(place if alone else 0, output.shape[1])
             if far([output[:, n]], [after[:, n]]) > VISIBLE]  # fmt: skip
    if not moved:
        raise NotChecked("no output depends on the tokens")
    return moved[0]


def _places(ids: Tensor) -> list[int]:
    """Two places, away from both ends, at which the tokens of most rows differ from the row above:
    at a separator or in padding nothing would change."""
    differ = (ids != ids.roll(1, 0)).float().mean(0)
    first, last = ids.shape[1] // 4, -1
    places = differ[first:last].topk(2).indices + first
    if not bool((differ[places] > 0).all()):
        raise NotChecked("all rows are of the same tokens")
    return places.tolist()


def left_out(event: Event) -> int:
    """The label that a loss leaves out."""
    given = event.call_again.keywords if event.call_again is not None else {}
    return given.get("ignore_index", LEFT_OUT)


def _said(session: Session, event: Event) -> int | None:
    """A negative label that the author told the loss to leave out, or compares labels with in a
    step or in evaluate(); that of every loss is said by nobody."""
    if LEFT_OUT != left_out(event) < 0:
        return left_out(event)
    program, mode = program_of(session), _Compared()
    program.step(program.batches[0], within=mode)
    if not mode.numbers and session.setup.evaluate is not None:
        with session.observe(), contextlib.suppress(Exception), mode:
            session.setup.evaluate()
    return mode.numbers[0] if mode.numbers else None


class _Compared(TorchFunctionMode):
    """Negative numbers that tensors of whole numbers are compared with."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers: list[int] = []

    def __torch_function__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None):
        if getattr(function, "__name__", "").strip("_") in ("eq", "ne") and len(args) == 2:
            labels, number = args
            if type(number) is int and number < 0 and isinstance(labels, Tensor):
                self.numbers += [number] if labels.dtype == torch.long and labels.dim() > 1 else []
        return function(*args, **(kwargs or {}))
