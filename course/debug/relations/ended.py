"""Relations on the sign that ends a sequence: it is a target, also where it serves as padding."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session, as_metrics
from course.debug.probes.thresholds import NEARLY_ALL
from course.debug.relations.padding import only_behind
from course.debug.relations.program import exchanged, program_of
from course.state.nested import tensors_in

LEAST_ROWS = 8
"""Padded rows, all of which end alike by no chance."""
OTHERS = 3
"""Other tokens, all of which evaluate() scores 0 where it scores the sign of the end 1."""
AHEAD = 1e4
"""What is added to the score of a token so that the model says it whatever it reads."""
CLASSES = {"cross_entropy": -100, "nll_loss": -100}
"""Losses of one class for each place, and what they leave out if nothing else is said."""


def by_its_sign(session: Session) -> Iterator[Finding]:
    """Where a batch says that the sign of the end is read, the sign of the end counts in the loss.

    If padding is that sign too, what is left out by the token, not by the mask, is both.
    """
    program = program_of(session)
    batch = program.batches[0]
    leaves = [t.detach().cpu() for t in tensors_in(batch)]
    ids = [t for t in leaves if t.dim() == 2 and not t.is_floating_point() and t.shape[1] > 2]
    told = [(x, real) for x in ids for real in real_places(leaves, x)]
    if not told:
        raise NotChecked("a batch does not say what of its ids is real")
    for x, real in told:
        sign = _sign(x, real)
        if sign is None:
            continue
        for name in _left_out(program, ids, x, real, sign):
            rows = int((~real).any(1).sum())
            yield Finding(
                "empty-targets", "warning",
                f"All {rows} padded rows of a batch end with token {sign}, which the batch's "
                f"own mask calls real; padding is {sign} too, and {name} leaves both out of "
                "the loss: the model never learns to end a sequence.",
                {"token": sign, "rows": rows},
                "labels = input_ids.masked_fill(attention_mask == 0, -100)  # not by the token",
            )  # fmt: skip
            return


def real_places(leaves: list[Tensor], x: Tensor) -> Iterator[Tensor]:
    """What the batch says is no padding of these ids [B, T]: by a mask or by lengths."""
    places = torch.arange(x.shape[1])
    for t in leaves:
        if t.shape == x.shape and bool(((t == 0) | (t == 1)).all()):
            if only_behind(t == 0):
                yield t != 0
        elif _are_lengths(t, x):
            yield places < t[:, None]


def _are_lengths(t: Tensor, x: Tensor) -> bool:
    whole = t.shape == x.shape[:1] and not t.is_floating_point()
    return whole and 1 <= int(t.min()) < int(t.max()) <= x.shape[1]


def _sign(x: Tensor, real: Tensor) -> int | None:
    """The one value of the padding, if each padded row's last real token is it, and only that."""
    padded = (~real).any(1)
    if int(padded.sum()) < LEAST_ROWS:
        return None
    values = x[~real].unique()
    last = real.sum(1) - 1
    if len(values) != 1 or int(values[0]) < 0 or bool((last < 1).any()):  # -100 is no token
        return None
    sign = values[0]
    at_end = x.gather(1, last[:, None])[:, 0] == sign
    once = ((x == sign) & real).sum(1) == 1
    return int(sign) if bool((at_end & once)[padded].all()) else None


def _left_out(program: Any, ids: list[Tensor], x: Tensor, real: Tensor, sign: int) -> Iterator[str]:
    """Where every sign is left out of the targets, and nearly all else is not."""
    others = real & (x != sign)
    for y in ids:
        if y.shape != x.shape or y is x or not bool((y[x == sign] < 0).all()):
            continue
        if float((y == x)[others].double().mean()) > NEARLY_ALL:
            yield "the label -100 in its place"
    for event in program.first().losses:
        again = event.call_again
        options = again.keywords if again is not None else {}
        met = event.targets.detach().cpu().flatten()
        if options.get("ignore_index") == sign and torch.equal(met, x[:, 1:].flatten()):
            yield f"ignore_index={sign}"


def by_what_is_scored(session: Session) -> Iterator[Finding]:
    """What evaluate() waits for is a target in training.

    Where a batch's rows end with some token, and a score is 1 if the model says that token whatever
    it reads, and 0 if it says any of some others, the score asks for that token. No target is it
    where it serves as padding, too, and was left out with it.
    """
    program = program_of(session)
    if session.setup.evaluate is None:
        raise NotChecked("no evaluate()")
    ids = [t for t in tensors_in(program.batches[0])
           if t.dim() == 2 and not t.is_floating_point() and t.shape[1] > 2]  # fmt: skip
    signs = {sign for t in ids for sign in _last_of(t)}
    if not signs:
        raise NotChecked("no rows of ids end alike")
    met, classes = _taught(program.first().losses)
    signs = {sign for sign in signs if 0 <= sign < classes and not bool((met == sign).any())}
    others = [n for n in range(classes) if bool((met == n).any())][:OTHERS]
    if not signs or len(others) < OTHERS or session.evaluation.error is not None:
        raise NotChecked("every token that rows end with is a target")
    scores = [_scored_if_said(session, n, classes) for n in others]
    for sign in sorted(signs):
        mine = _scored_if_said(session, sign, classes)
        asking = [name for name, value in mine.items()
                  if value == 1 and all(other.get(name) == 0 for other in scores)]  # fmt: skip
        if not asking or any(
            bool((_taught(program.step(batch).losses)[0] == sign).any())
            for batch in program.batches
        ):
            continue
        yield Finding(
            "empty-targets", "warning",
            f"{asking[0]} is 1 if the model always says token {sign}, and 0 if it always says one "
            f"of {OTHERS} others, but in {len(program.batches)} batches, whose rows end with token "
            f"{sign}, it is never a target, as where it is left out together with the padding: "
            "the model never learns to say it.",
            {"token": sign, "score": asking[0], "batches": len(program.batches)},
            "labels = ids.masked_fill(places > lengths[:, None], -100)  # only behind the first",
        )  # fmt: skip
        return


def _last_of(ids: Tensor) -> list[int]:
    """The token that all rows end with, the longest one too, and many of them more than once."""
    last = ids[:, -1]
    many = int((last == ids[:, -2]).sum()) >= LEAST_ROWS
    return [int(last[0])] if many and bool((last == last[0]).all()) else []


def _taught(losses: list[Any]) -> tuple[Tensor, int]:
    """Classes that a step's losses count as targets, and how many classes there are.

    Raises:
        NotChecked: No loss is of one class for each place, or they are of different classes.
    """
    found, classes = [], set()
    for event in losses:
        if event.name not in CLASSES or event.targets.is_floating_point():
            raise NotChecked("not all losses are of one class for each place")
        if event.call_again is None:
            raise NotChecked("a loss does not say what it leaves out by name")
        met = event.targets.detach().cpu().flatten()
        left_out = event.call_again.keywords.get("ignore_index", CLASSES[event.name])
        found.append(met[met != left_out])
        classes.add(event.inputs.shape[min(1, event.inputs.dim() - 1)])
    if len(classes) != 1:
        raise NotChecked("no loss is of one class for each place")
    return torch.cat(found), classes.pop()


def _scored_if_said(session: Session, token: int, classes: int) -> dict[str, float]:
    """What evaluate() gives if the model says one token, whatever it reads."""

    def say(_: nn.Module, args: tuple, output: Any) -> Any:
        scores = next((t for t in tensors_in(output) if t.is_floating_point() and t.dim() > 1
                       and t.shape[-1] == classes), None)  # fmt: skip
        if scores is None:
            return None
        ahead = torch.zeros(classes, dtype=scores.dtype, device=scores.device)
        ahead[token] = AHEAD
        return exchanged(output, scores, scores + ahead)

    with session.observe():
        hook = session.model.register_forward_hook(say)
        try:
            return as_metrics(session.setup.evaluate())
        except Exception as error:
            raise NotChecked(f"evaluate() raises {type(error).__name__} here") from error
        finally:
            hook.remove()
