"""Coverage: how often a sampler draws each example and each class, and which it never draws.

A sampler that balances the classes repeats rare examples and skips frequent ones. Of 900 and 100
examples, drawn 1,000 times with equal class shares, 384 of the 900 and 99 of the 100 are seen
(N07). Counting shows whether a sampler does what its weights say, so the counts are given here next
to what is expected by chance.

Source: the training-loop chapter, "Weighted sampling"; ledger C18, N07, F85-F88, S03.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from course.data.sampling import ResumableBatchSampler, WeightedBatchSampler, check_weights
from course.state import left_as_found
from course.tables import boxed

FAR = 4.5
"""Standard deviations beyond which a count is not what the weights say: chance does this to 1
class in 150,000."""


@dataclass(frozen=True, kw_only=True)
class ClassCoverage:
    """Counts for one class, over all epochs."""

    label: int
    num_rows: int
    drawn: int
    """Draws of its examples."""
    expected: float | None
    """The expected number, if the weights are known."""
    sd: float | None
    """Standard deviation of `drawn` due to chance."""
    num_seen: int
    """Examples drawn at least once."""
    expected_seen: float | None
    most_draws: int
    """How often its most frequent example was drawn."""

    @property
    def num_never(self) -> int:
        """Examples never drawn."""
        return self.num_rows - self.num_seen

    @property
    def off(self) -> float:
        """How many standard deviations `drawn` is from `expected`; 0 if that is unknown."""
        if self.expected is None or self.drawn == self.expected:
            return 0.0
        return (self.drawn - self.expected) / self.sd if self.sd else math.inf


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """What a sampler drew in a number of epochs."""

    epochs: int
    draws: Tensor
    """[N], how often each example was drawn; dtype long."""
    expected: Tensor | None
    """[N], the expected numbers, float64; None if the weights are unknown."""
    classes: tuple[ClassCoverage, ...]
    """By label; without targets, one class -1 with all examples."""

    @property
    def num_draws(self) -> int:
        """Draws of all epochs together."""
        return int(self.draws.sum())

    @property
    def never_drawn(self) -> Tensor:
        """Indices of the examples never drawn, dtype long."""
        return (self.draws == 0).nonzero().flatten()

    @property
    def far_off(self) -> list[ClassCoverage]:
        """Classes drawn more or less often than the weights say, by more than chance explains."""
        return [row for row in self.classes if abs(row.off) > FAR]

    def to_json(self) -> dict[str, Any]:
        """Numbers, strings and lists only; examples are counted, not listed."""
        return {
            "epochs": self.epochs,
            "num_rows": len(self.draws),
            "num_draws": self.num_draws,
            "num_never_drawn": len(self.never_drawn),
            "classes": [
                asdict(row) | {"num_never": row.num_never, "off": min(row.off, 1e9)}
                for row in self.classes
            ],
            "far_off": [row.label for row in self.far_off],
        }

    def __str__(self) -> str:
        return "\n".join([self._title(), *self._table(), *self._remarks()])

    def _repr_html_(self) -> str:
        head, *rows = self._cells()
        lines = ["".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in rows]
        table = "".join(f"<tr>{line}</tr>" for line in lines)
        heads = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
        remarks = "".join(f"<p>{html.escape(text)}</p>" for text in self._remarks())
        title = html.escape(self._title())
        return f"<p>{title}</p>{boxed(f'<table><tr>{heads}</tr>{table}</table>')}{remarks}"

    def _title(self) -> str:
        epochs = f"{self.epochs} epoch" + "s" * (self.epochs != 1)
        return f"{self.num_draws:,} draws of {len(self.draws):,} examples in {epochs}"

    def _cells(self) -> Iterator[list[str]]:
        yield ["class", "examples", "drawn", "expected", "seen", "expected", "never", "most"]
        for row in self.classes:
            known = row.expected is not None
            yield [
                "all" if row.label < 0 else str(row.label),
                f"{row.num_rows:,}",
                f"{row.drawn:,}",
                f"{row.expected:,.1f} ± {row.sd:.1f}" if known else "–",
                f"{row.num_seen:,}",
                f"{row.expected_seen:,.1f}" if known else "–",
                f"{row.num_never:,}",
                str(row.most_draws),
            ]

    def _table(self) -> list[str]:
        rows = list(self._cells())
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return [
            "  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True))
            for row in rows
        ]

    def _remarks(self) -> Iterator[str]:
        never = self.never_drawn
        hopeless = 0 if self.expected is None else int((self.expected == 0).sum())
        if len(never):
            share = len(never) / len(self.draws)
            more = ": more epochs would reach more of them" if len(never) > hopeless else ""
            yield (
                f"{len(never):,} examples ({share:.0%}) were never drawn, such as number "
                f"{int(never[0])}{more}."
            )
        if hopeless:
            yield f"{hopeless:,} examples have weight 0 and will never be drawn."
        for row in self.far_off:
            yield (
                f"class {row.label} was drawn {row.drawn:,} times, but the weights predict "
                f"{row.expected:,.1f} ({row.off:+.1f} standard deviations): are the weights in the "
                "order of the data set, and is replacement=True?"
            )


def count_draws(
    sampler: Iterable[Any],
    targets: Tensor | list[int] | None = None,
    *,
    epochs: int = 1,
    weights: Tensor | list[float] | None = None,
    num_rows: int | None = None,
) -> Coverage:
    """Count what a sampler draws.

    Its position, its generators and the global ones are left as they were; a sampler that shuffles
    a list of its own keeps the new order.

    Args:
        sampler: One of this package's, one of torch's, or anything that yields indices or lists of
            them; with `rank`, only that process's share is counted.
        targets: Class indices [N] of the data set, to count by class.
        epochs: Passes to count; for this package's samplers, epochs 0, 1, ...
        weights: [N], the weights that the draws (with replacement) should follow. Known for
            `WeightedBatchSampler` and torch's `WeightedRandomSampler`.
        num_rows: N, if neither targets nor weights nor the sampler give it.

    Raises:
        ValueError: N is unknown, or an index or a length does not match it.

    Source: the training-loop chapter, "Weighted sampling"; ledger C18, N07.
    """
    if epochs < 1:
        raise ValueError(f"epochs = {epochs}: at least 1 pass must be counted.")
    weights = getattr(sampler, "weights", None) if weights is None else weights
    weights = None if weights is None else check_weights(weights)
    with left_as_found(sampler):
        drawn = torch.cat([indices_of(sampler, epoch) for epoch in range(epochs)])
    num = _num_rows(sampler, targets, weights, num_rows)
    if len(drawn) and not 0 <= int(drawn.min()) <= int(drawn.max()) < num:
        raise ValueError(
            f"the sampler draws {int(drawn.min())} .. {int(drawn.max())} of {num} examples: it was "
            "made for a different data set."
        )
    draws = drawn.bincount(minlength=num)
    chances = _chances(sampler, weights, num, len(drawn) // epochs)
    replaced = weights is not None
    labels = torch.full((num,), -1) if targets is None else torch.as_tensor(targets).cpu()
    return Coverage(
        epochs=epochs,
        draws=draws,
        expected=None if chances is None else chances * len(drawn),
        classes=tuple(
            _of_class(int(label), labels == label, draws, chances, epochs=epochs, replaced=replaced)
            for label in labels.unique()
        ),
    )


def indices_of(sampler: Iterable[Any], epoch: int) -> Tensor:
    """All indices of an epoch; (epoch, index) pairs of keyed samplers count as their index."""
    if isinstance(sampler, ResumableBatchSampler):
        batches = sampler.order(epoch)[: len(sampler) * sampler.batch_size]
        batches = batches.split(sampler.batch_size)
        return torch.cat([batch[sampler.rank :: sampler.num_ranks] for batch in batches])
    if hasattr(sampler, "set_epoch"):
        sampler.set_epoch(epoch)
    flat = []
    for item in sampler:
        flat += item if isinstance(item, list) else [item]
    return torch.tensor([i[1] if isinstance(i, tuple) else int(i) for i in flat], dtype=torch.long)


def _num_rows(sampler: Any, targets: Any, weights: Any, num_rows: int | None) -> int:
    known = {
        "targets": None if targets is None else len(targets),
        "weights": None if weights is None else len(weights),
        "num_rows": num_rows,
    }
    if isinstance(sampler, ResumableBatchSampler) and not isinstance(sampler, WeightedBatchSampler):
        known["sampler"] = sampler.num_examples
    known = {name: num for name, num in known.items() if num is not None}
    if len(set(known.values())) != 1:
        raise ValueError(
            f"the number of examples is {known or 'unknown'}: expected one number. Give targets, "
            "or num_rows=len(dataset)."
        )
    return next(iter(known.values()))


def _chances(sampler: Any, weights: Tensor | None, num: int, per_epoch: int) -> Tensor | None:
    """The chance [N] that one draw is this example; None where it is unknown."""
    if weights is not None:
        return weights / weights.sum()
    # In order, a pass that is not whole always leaves the same examples out.
    even = isinstance(sampler, ResumableBatchSampler) and (sampler.shuffle or per_epoch == num)
    return torch.full((num,), 1 / num, dtype=torch.float64) if even else None


def _of_class(
    label: int,
    mine: Tensor,
    draws: Tensor,
    chances: Tensor | None,
    *,
    epochs: int,
    replaced: bool,
) -> ClassCoverage:
    of_mine, num, num_draws = draws[mine], len(draws), int(draws.sum())
    expected = sd = expected_seen = None
    if chances is not None:
        share = float(chances[mine].sum())
        expected = num_draws * share
        variance = expected * (1 - share)
        if replaced:
            missed = torch.exp(num_draws * torch.log1p(-chances[mine]))
        else:  # an epoch deals at most one of each: hypergeometric
            dealt = num_draws / epochs
            variance *= (num - dealt) / max(num - 1, 1)
            missed = torch.full_like(chances[mine], (1 - dealt / num) ** epochs)
        sd = math.sqrt(max(variance, 0.0))
        expected_seen = float((1 - missed).sum())
    return ClassCoverage(
        label=label,
        num_rows=int(mine.sum()),
        drawn=int(of_mine.sum()),
        expected=expected,
        sd=sd,
        num_seen=int((of_mine > 0).sum()),
        expected_seen=expected_seen,
        most_draws=int(of_mine.max()),
    )
