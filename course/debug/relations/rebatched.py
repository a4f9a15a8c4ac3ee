"""Relations on a score: it is of all examples, however they are made into batches."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.data import BatchSampler, SequentialSampler

from course.data.loading import length_of
from course.debug.probes.modes import close, evaluation_of
from course.debug.probes.randomness import Drawn
from course.debug.probes.report import Finding
from course.debug.probes.session import STEPS, Evaluation, NotChecked, Session, as_metrics, pair
from course.debug.probes.tape import Tape
from course.debug.probes.thresholds import ROUNDED, YES
from course.debug.probes.traces import make_steps
from course.debug.relations.direction import WORDS
from course.debug.relations.row_by_row import Answers, alike
from course.state.nested import mapped, tensors_in

MOST_ROWS = 4096
"""Validation examples up to which they are scored in one batch."""
BY_SIZE = 0.01
"""Relative difference of a score in one batch that is worth a word: a mean over batches that differ
a little, e.g. in their padding, is off by less."""
LEFT_OUT = 0.05
"""Share of the validation examples below which leaving them out moves no score by a digit."""
SCORES = (*WORDS, "err", "mae", "mse", "precision", "recall", "score", "corr", "perplexity")
"""Words of what is a score of all examples; other numbers of evaluate() may be of one batch."""
OF_BATCHES = ("batch", "std", "sem", "spread", "worst")
"""Words of what says how far the scores of batches lie apart, and is of batches on purpose."""


def in_one_batch(session: Session) -> Iterator[Finding]:
    """A score is the same if all examples form one batch.

    Told only where all networks answer the same for each row in either way: where they do not, e.g.
    because a state is carried from batch to batch of a stream, the score rightly differs.
    """
    seen, sampler = evaluation_of(session), _batches_of(session)
    if any(any(e.submodes.values()) for e in seen.tape.of("forward")):
        raise NotChecked("evaluate() is not in plain eval mode")
    names = [n for n in seen.first if _is_a_score(n) and not _is_recomputed(session, n)]
    if not names:
        raise NotChecked("every score is already recomputed from outputs and targets")
    kept, size = sampler.batch_size, len(sampler.sampler)
    if kept == 1:
        raise NotChecked("a mean over batches of one is one of all, and others may not be read")
    sizes = kept, kept, size
    whole = _scored(session, sampler, size)
    told = list(_apart(names, [seen.first, seen.second, whole.found], kept, size))
    runs = [_scored(session, sampler, kept), whole] if told else []
    middle = _middle(seen)  # a model that gives one answer to all scores alike in any batches
    if middle is not None and not told:
        runs = [_scored(session, sampler, s, middle, seed=n) for n, s in enumerate(sizes)]
        told = list(_apart(names, [r.found for r in runs], kept, size))
    if not told:  # to a fresh model all batches may cost the same
        weights = trained(session)
        runs = [_scored(session, sampler, s, weights=weights, seed=n) for n, s in enumerate(sizes)]
        told = list(_apart(names, [r.found for r in runs], kept, size))
    if told and not alike(runs[0].met, runs[-1].met, size):
        raise NotChecked("the networks do not give the same for each row in other batches")
    if told and _is_by_groups(session, sampler):
        raise NotChecked("each batch of validation is a group, which may be scored by itself")
    if told and _draws_by_batch(session, sampler):
        raise NotChecked("evaluate() draws numbers for each batch, so other batches get others")
    yield from told[:1]


@dataclass(frozen=True)
class Scored:
    """What `evaluate()` said, and the numbers that networks and losses met meanwhile."""

    found: dict[str, float]
    met: list[list[list[Tensor]]]


def _scored(
    session: Session, sampler: BatchSampler, size: int, middle: Tensor | None = None,
    *, weights: list[Tensor] | None = None, seed: int | None = None,
) -> Scored:  # fmt: skip
    """What `evaluate()` says in batches of another size, and with outputs moved to either side of
    what is in their middle, or with other weights; by a seed of its own, so that a score that is
    drawn at random differs.

    Raises:
        NotChecked: It raises, or compares the examples of a batch.
    """
    kept = sampler.batch_size

    def move(_: nn.Module, args: tuple, output: Any) -> Any:
        first = next(tensors_in(output), None)
        return mapped(lambda t: t - middle.to(t.device) if t is first else t, output)

    with (
        session.observe(),
        _Tables(len(sampler.sampler)) as tables,
        Answers() as answers,
        contextlib.ExitStack() as stack,
    ):
        session.model.train()
        stack.callback(setattr, sampler, "batch_size", kept)
        sampler.batch_size = size
        with torch.no_grad():
            for parameter, value in zip(session.model.parameters(), weights or (), strict=False):
                parameter.copy_(value)
        if middle is not None:
            stack.callback(session.model.register_forward_hook(move).remove)
        if seed is not None:
            torch.manual_seed(seed)
        tape = Tape(session.model, session.optimizers, session.setup.scheduler)
        try:
            with tape.running():
                found = as_metrics(session.setup.evaluate())
        except Exception as error:
            raise NotChecked(f"evaluate() raises {type(error).__name__} then") from error
    if tables.seen:
        raise NotChecked("examples of a batch are compared with one another")
    return Scored(found, answers.met(tape))


def trained(session: Session) -> list[Tensor]:
    """The model's weights after some of the author's steps.

    Raises:
        NotChecked: A step raises.
    """
    with session.observe():
        session.model.train()
        try:
            make_steps(session, session.epoch.batches, STEPS)
        except Exception as error:
            raise NotChecked(f"the step raises {type(error).__name__} here") from error
        return [p.detach().clone() for p in session.model.parameters()]


def _is_by_groups(session: Session, sampler: BatchSampler) -> bool:
    """All batches are full, and some numbers in them are the same for all rows of a batch but not
    of all batches, such as the number of a query, or the same list in each, such as right answers
    that always come first."""
    if not isinstance(sampler.sampler, SequentialSampler):
        return False
    if len(sampler.sampler) % sampler.batch_size:
        return False
    batches = [list(tensors_in(batch)) for batch in session.val_epoch.batches]
    if {tuple(t.shape for t in batch) for batch in batches} != {tuple(t.shape for t in batches[0])}:
        return False
    for same_place in zip(*batches, strict=True):
        if same_place[0].dim() and same_place[0].numel():
            each = torch.stack([t.flatten(1) if t.dim() > 1 else t[:, None] for t in same_place])
            varies = (each != each[:1, :1]).any(1).any(0)  # of all rows of all batches
            in_a_row = (each == each[:, :1]).all(1).all(0)
            in_a_list = (each == each[:1]).all(1).all(0)
            if bool((varies & (in_a_row | in_a_list)).any()):
                return True
    return False


def _middle(seen: Evaluation) -> Tensor | None:
    """For each column of outputs the middle of the widest gap in their middle third, so that no
    answer hangs on rounding; less one half where they are shares. None of what is not rows of
    numbers, or of shares that add up to 1."""
    outputs = [e.output for e in seen.tape.of("output") if e.call == 0]
    if not outputs or any(o is None or not 0 < o.dim() < 3 or not o.is_floating_point()
                          or o.shape[1:] != outputs[0].shape[1:] for o in outputs):  # fmt: skip
        return None
    rows = torch.cat(outputs)
    shares = bool(((rows >= 0) & (rows <= 1)).all())
    if rows.dim() == 2 and rows.shape[1] > 1 and torch.allclose(
            rows.sum(1), torch.ones(()).to(rows), atol=ROUNDED):  # fmt: skip
        return None
    third = rows.sort(0).values[len(rows) // 3 : -(len(rows) // 3) or None]
    if len(third) < 2:
        return None
    widest = third.diff(dim=0).argmax(0, keepdim=True)
    gap = torch.cat([third.gather(0, widest), third.gather(0, widest + 1)])
    return gap.mean(0) - YES * shares


def _apart(
    names: list[str], found: list[dict[str, float]], kept: int, size: int
) -> Iterator[Finding]:
    """Scores that two evaluations agree on, and one of all examples in one batch does not."""
    first, second, other = found
    for name in names:
        value, again, after = (f.get(name, math.nan) for f in (first, second, other))
        if close(value, again) and not close(value, after, BY_SIZE):
            yield Finding(
                "metric-batch-mean", "warning",
                f"{name} is {value:.4g} in batches of {kept} but {after:.4g} if all {size} "
                "examples form one batch: it is computed batch by batch, but should be computed "
                "over all.",
                {name: value, "in_one_batch": after, "batch_size": kept},
                "outputs, targets = torch.cat(all_outputs), torch.cat(all_targets)  # then score",
            )  # fmt: skip


def whole(session: Session) -> Iterator[Finding]:
    """Batches of validation leave no example out.

    If training also drops its last batch, the model may need batches of one size.
    """
    loader, data = session.setup.val_loader, getattr(session.setup.val_loader, "dataset", None)
    sampler = getattr(loader, "batch_sampler", None)
    if type(sampler) is not BatchSampler or not hasattr(data, "__len__"):
        raise NotChecked("the val_loader's batches are not torch's own")
    if getattr(session.setup.train_loader, "drop_last", False):
        raise NotChecked("training also drops its last batch")
    left = len(sampler.sampler) % sampler.batch_size if sampler.drop_last else 0
    if left > LEFT_OUT * len(sampler.sampler):
        yield Finding(
            "validation-cut-short", "warning",
            f"The val_loader drops its last {left} of {len(sampler.sampler)} examples "
            "(drop_last=True): the score covers only the others, and which ones depends on order "
            "and batch size.",
            {"left_out": left, "examples": len(sampler.sampler)},
            "val_loader = DataLoader(val_set, batch_size)  # drop_last=True is for training",
        )  # fmt: skip


def _is_recomputed(session: Session, name: str) -> bool:
    """Whether `probes.metric` says what it should be, and which slip gives what it is."""
    try:
        pair(session.val_epoch.batches[0])
    except NotChecked:
        return False
    return "acc" in name.lower() and session.val_epoch.whole


def _batches_of(session: Session) -> BatchSampler:
    """What makes the batches of the val_loader, where evaluate() reads it in several.

    Raises:
        NotChecked: Batches of another size are none, or would be made otherwise.
    """
    loader = session.setup.val_loader
    sampler, size = getattr(loader, "batch_sampler", None), length_of(loader)
    if type(sampler) is not BatchSampler or sampler.drop_last or not size:
        raise NotChecked("the val_loader's batches cannot be made of another size")
    if all(e.loader is not loader for e in session.evaluation.tape.of("epoch")):
        raise NotChecked("evaluate() does not read the val_loader")
    if size < 2 or size * sampler.batch_size > MOST_ROWS:
        raise NotChecked("the val_loader yields one batch, or too much data for one")
    return sampler


def _draws_by_batch(session: Session, sampler: BatchSampler) -> bool:
    """Whether evaluate() draws other numbers where all examples form one batch, e.g. noise or
    dropout by a seed of its own, which gives the same for the same batches."""
    drawn, kept = [], sampler.batch_size
    for size in (kept, len(sampler.sampler)):
        with session.observe(), Drawn() as mode, contextlib.ExitStack() as stack:
            stack.callback(setattr, sampler, "batch_size", kept)
            sampler.batch_size = size
            session.setup.evaluate()
        drawn.append(mode.shapes)
    return drawn[0] != drawn[1]


def _is_a_score(name: str) -> bool:
    name = name.lower()
    return any(word in name for word in SCORES) and not any(word in name for word in OF_BATCHES)


class _Tables(TorchFunctionMode):
    """Whether a table of each row of a batch with each was made, or of several views of each."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.rows, self.seen = rows, False

    def __torch_function__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None):
        result = function(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and result.dim() > 1:
            self.seen = self.seen or not any(n % self.rows or not n for n in result.shape[-2:])
        return result
