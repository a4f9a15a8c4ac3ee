"""Relations on a score: it is of all examples, however they are made into batches."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils.data import BatchSampler, default_collate

from course.data.loading import length_of
from course.debug.probes.modes import close, evaluation_of
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session, as_metrics, pair
from course.debug.relations.direction import WORDS

MOST_ROWS = 4096
"""Validation examples up to which they are scored in one batch."""
BY_SIZE = 0.01
"""Relative difference of a score in one batch that is worth a word: a mean over batches that differ
a little, e.g. in their padding, is off by less."""
LEFT_OUT = 0.05
"""Share of the validation examples below which leaving them out moves no score by a digit."""
SCORES = (*WORDS, "err", "mae", "mse", "precision", "recall", "score", "corr", "perplexity")
"""Words of what is a score of all examples; other numbers of evaluate() may be of one batch."""


def in_one_batch(session: Session) -> Iterator[Finding]:
    """A score is the same where all examples are one batch."""
    seen, sampler = evaluation_of(session), _batches_of(session)
    if any(any(e.submodes.values()) for e in seen.tape.of("forward")):
        raise NotChecked("evaluate() is not in plain eval mode")
    kept, size = sampler.batch_size, len(sampler.sampler)
    with session.observe(), _Tables(size) as tables:
        session.model.train()
        sampler.batch_size = size
        try:
            other = as_metrics(session.setup.evaluate())
        except Exception as error:
            raise NotChecked(f"evaluate() raises {type(error).__name__} then") from error
        finally:
            sampler.batch_size = kept
    if tables.seen:
        raise NotChecked("examples of a batch are compared with each other")
    for name, value in seen.first.items():
        after, again = other.get(name, math.nan), seen.second.get(name, math.nan)
        if _is_recomputed(session, name) or not _is_a_score(name):
            continue
        if close(value, again) and not close(value, after, BY_SIZE):
            yield Finding(
                "metric-batch-mean", "warning",
                f"{name} is {value:.4g} in batches of {kept} and {after:.4g} where all {size} "
                "examples are one batch: it is computed batch by batch, and should be of all.",
                {name: value, "in_one_batch": after, "batch_size": kept},
                "outputs, targets = torch.cat(all_outputs), torch.cat(all_targets)  # then score",
            )  # fmt: skip
            return


def whole(session: Session) -> Iterator[Finding]:
    """Batches of validation leave no example out.

    Where training drops its last batch as well, the model may need batches of one size.
    """
    loader, data = session.setup.val_loader, getattr(session.setup.val_loader, "dataset", None)
    sampler = getattr(loader, "batch_sampler", None)
    if type(sampler) is not BatchSampler or not hasattr(data, "__len__"):
        raise NotChecked("the val_loader's batches are not torch's own")
    if getattr(session.setup.train_loader, "drop_last", False):
        raise NotChecked("training drops its last batch, too")
    left = len(sampler.sampler) % sampler.batch_size if sampler.drop_last else 0
    if left > LEFT_OUT * len(sampler.sampler):
        yield Finding(
            "validation-cut-short", "warning",
            f"The val_loader drops its last {left} of {len(sampler.sampler)} examples "
            "(drop_last=True): the score is of the others alone, and of other ones in another "
            "order or batch size.",
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
    if loader.collate_fn is not default_collate:
        raise NotChecked("batches of another size may be padded otherwise")
    if all(e.loader is not loader for e in session.evaluation.tape.of("epoch")):
        raise NotChecked("evaluate() does not read the val_loader")
    if size < 2 or size * sampler.batch_size > MOST_ROWS:
        raise NotChecked("the val_loader gives one batch, or too many for one")
    return sampler


def _is_a_score(name: str) -> bool:
    return any(word in name.lower() for word in SCORES)


class _Tables(TorchFunctionMode):
    """Whether a table of each row of a batch with each was made."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.rows, self.seen = rows, False

    def __torch_function__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None):
        result = function(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and result.dim() > 1:
            self.seen = self.seen or result.shape[-2:] == (self.rows, self.rows)
        return result
