"""From data set to batch: which examples, in which order, and how they are grouped and padded.

Fifty sequences of unequal length, stored class by class, 45 of one class and 5 of the other. The
sampler gives an order (`course.data.sampling`), torch's `BatchSampler` cuts it into batches, a
`DataLoader` collates each with `pad_collate`, and its mask says which cells are real.

Source: Training-loop chapter, c1 and c2; ledger S02, S03, N06, N07, N08, F85-F89.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader

from course.data.collate import by_length, pad_collate
from course.data.sampling import class_weights, epoch_order, weighted_order
from course.widgets.base.settings import Checked, choice, slider, steps, toggle

COMMON, RARE = 45, 5
NUM = COMMON + RARE
SHORTEST, LONGEST = 2, 24
BATCH_SIZES = (4, 8, 16)
STRATEGIES = ("in order", "shuffled", "weighted", "by length")
TARGETS = (0,) * COMMON + (1,) * RARE


@dataclass(frozen=True, kw_only=True)
class Settings(Checked):
    """How batches are made, and which of them is shown."""

    strategy: str = choice("shuffled", STRATEGIES, "order of examples")
    batch_size: int = choice(8, BATCH_SIZES, "batch size")
    drop_last: bool = toggle(False, "drop_last")
    epoch: int = slider(1, steps(1, 4, 1), "epoch")
    at: int = slider(
        1,
        steps(1, -(-NUM // BATCH_SIZES[0]), 1),
        "batch shown",
        hint="the last one if there are fewer",
    )


def frame(settings: Settings) -> dict[str, Any]:
    """The epoch's batches, the cells of the batch shown, and all strategies side by side."""
    about = (settings.batch_size, settings.drop_last, settings.epoch)
    epoch = _epoch(settings.strategy, *about)
    at = min(settings.at, len(epoch["batches"]))
    return {
        **{key: epoch[key] for key in ("batches", "rare", "widths", "draws", "left_out")},
        "at": at,
        "rows": epoch["rows"][at - 1],
        "padding": epoch["paddings"][at - 1],
        "compared": [{"strategy": name, **_epoch(name, *about)["summary"]} for name in STRATEGIES],
        "data": _data(),
    }


@lru_cache
def _data() -> dict[str, list[int]]:
    """Length and target of every example; most are short, a few are long."""
    drawn = torch.rand(NUM, generator=torch.Generator().manual_seed(1))
    lengths = SHORTEST + ((LONGEST - SHORTEST) * drawn**2).round().long()
    return {"lengths": lengths.tolist(), "targets": list(TARGETS)}


@lru_cache
def _epoch(strategy: str, batch_size: int, drop_last: bool, epoch: int) -> dict[str, Any]:
    """One epoch through a real loader."""
    lengths = _data()["lengths"]
    if strategy == "by length":
        batches = list(by_length(lengths, batch_size))
        batches = [one for one in batches if len(one) == batch_size or not drop_last]
        order = [index for one in batches for index in one]
    else:
        order = _order(strategy, epoch)
        batches = list(BatchSampler(order, batch_size, drop_last))
    examples = [([1] * length, target) for length, target in zip(lengths, TARGETS, strict=True)]
    loader = DataLoader(examples, batch_sampler=batches, collate_fn=pad_collate)
    masks, rare = [], []
    for _, targets, mask in loader:
        masks.append(mask)
        rare.append(int((targets == 1).sum()))
    drawn = [index for one in batches for index in one]
    draws = torch.tensor(drawn).bincount(minlength=NUM).tolist()
    cells, real = sum(mask.numel() for mask in masks), sum(int(mask.sum()) for mask in masks)
    return {
        "batches": batches,
        "rare": rare,
        "rows": [mask.sum(dim=1).tolist() for mask in masks],
        "widths": [mask.shape[1] for mask in masks],
        "paddings": [1 - mask.float().mean().item() for mask in masks],
        "draws": draws,
        "left_out": order[len(drawn) :],
        "summary": {
            "rare_per_batch": [min(rare), max(rare)],
            "distinct": sum(count > 0 for count in draws),
            "most": max(draws),
            "padding": 1 - real / cells,
        },
    }


def _order(strategy: str, epoch: int) -> list[int]:
    if strategy == "weighted":
        return weighted_order(class_weights(list(TARGETS)), NUM, seed=0, epoch=epoch).tolist()
    return epoch_order(NUM, seed=0, epoch=epoch, shuffle=strategy == "shuffled").tolist()


def says(settings: Settings, frame: dict[str, Any]) -> str:
    """Membership, balance and padding in one sentence."""
    mine = next(one for one in frame["compared"] if one["strategy"] == settings.strategy)
    low, high = mine["rare_per_batch"]
    made, padding = len(frame["batches"]), float(mine["padding"])
    return (
        f"{made} batches {settings.strategy}: {mine['distinct']} of {NUM} examples seen, "
        f"{low} to {high} of the rare class per batch, {padding:.0%} padding."
    )
