"""Run the model over a loader and keep its most confident mistakes, or a random sample.

Source: Lecture 3, "Error analysis"; ledger S19.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler

from course.analysis.checks import names_of_classes
from course.analysis.errors.mistakes import ErrorSet, Mistake
from course.analysis.errors.tags import read_tags
from course.analysis.scores.predicting import check_logits, check_parts
from course.data.coverage import indices_of
from course.data.loading import InMemoryLoader
from course.engine.placement import check_device, to_device
from course.state import evaluation_mode, left_as_found
from course.whole import check_seed, whole_number


def collect_errors(
    model: nn.Module,
    loader: Iterable[tuple[Tensor, Tensor]],
    *,
    n: int = 100,
    device: torch.device | str | None = None,
    order: Literal["confident", "random"] = "confident",
    class_names: Sequence[str] | None = None,
    tags_path: Path | str | None = None,
    seed: int = 0,
) -> ErrorSet:
    """Collect the most confident mistakes of a model, or a random sample of its mistakes.

    The most confident ones show what the model has learned wrongly (and which labels are wrong); to
    count shares, use a random sample.

    Args:
        model: Returns logits [B, C], or one logit per example. Modules keep their modes.
        loader: Pairs of inputs [B, ...] and class indices [B], in the data set's order.
        n: How many to keep; all of them if there are fewer.
        device: Where to compute; the model's own by default.
        order: `confident` or `random`.
        class_names: One per class; the indices by default.
        tags_path: A JSON file of buckets assigned by hand; read now if it exists, and written at
            every `tag`.
        seed: Seed for the random sample.

    Raises:
        ValueError: The loader shuffles (its indices would be wrong) or is empty, shapes or logits
        cannot be scored, or the file of tags belongs to other data.

    Source: Lecture 3, "Error analysis"; ledger S19.
    """
    n, seed = whole_number("n", n, 1), check_seed(seed)
    if order not in ("confident", "random"):
        raise ValueError(f"order = {order!r}: expected 'confident' or 'random'.")
    if tags_path is not None and Path(tags_path).is_dir():
        raise ValueError(
            f"tags_path = {tags_path}: this is a directory. Name a file in it, e.g. tags.json."
        )
    check_parts(model, loader)
    _check_in_order(loader)
    device = check_device(model, device)
    generator = torch.Generator().manual_seed(seed) if order == "random" else None
    kept: list[tuple[float, Mistake]] = []
    num_examples = num_mistakes = batches = num_classes = 0
    with evaluation_mode(model):
        for inputs, targets in to_device(loader, device):
            logits, targets = check_logits(model(inputs), targets, batches)
            found, number = _mistakes_in(inputs, targets, logits, n, num_examples, generator)
            kept = sorted([*kept, *found], key=lambda pair: (-pair[0], pair[1].index))[:n]
            num_mistakes += number
            num_examples += len(targets)
            batches, num_classes = batches + 1, logits.shape[1]
    if not num_examples:
        raise ValueError(
            "the loader yields no batch, so there are no mistakes to find. Is the data set empty, "
            "or smaller than a batch with drop_last=True?"
        )
    names = names_of_classes(class_names, num_classes)
    errors = ErrorSet(
        [mistake for _, mistake in kept], num_mistakes, num_examples, names, order,
        tags_path=Path(tags_path) if tags_path else None,
    )  # fmt: skip
    if errors.tags_path and errors.tags_path.exists():
        errors.tags = _tags_for(errors)
    return errors


def _mistakes_in(
    inputs: Tensor,
    targets: Tensor,
    logits: Tensor,
    n: int,
    first: int,
    generator: torch.Generator | None,
) -> tuple[list[tuple[float, Mistake]], int]:
    """A batch's `n` highest-ranked mistakes, each with its rank, and the number of mistakes.

    Args:
        first: Index of the batch's first example in the data set.
        generator: Draws the ranks; if None, the rank is the confidence.
    """
    probabilities = logits.softmax(dim=1)
    confidence, predicted = probabilities.max(dim=1)
    wrong = (predicted != targets).nonzero()[:, 0]
    rank = confidence if generator is None else torch.rand(len(targets), generator=generator)
    found = []
    for i in wrong[rank[wrong].argsort(descending=True, stable=True)][:n].tolist():
        mistake = Mistake(
            first + i, inputs[i].detach().cpu().clone(), int(targets[i]),
            int(predicted[i]), float(confidence[i]), float(probabilities[i, targets[i]]),
        )  # fmt: skip
        found.append((float(rank[i]), mistake))
    return found, len(wrong)


def _check_in_order(loader: Any) -> None:
    """A mistake's index is its place in the data set only if the loader reads it in order."""
    if isinstance(loader, InMemoryLoader):
        sampler, order = loader, loader.order(loader.epoch)
    elif isinstance(loader, DataLoader) and not isinstance(loader.dataset, IterableDataset):
        batches = loader.batch_sampler
        sampler = loader.sampler if type(batches) in (BatchSampler, type(None)) else batches
        if isinstance(sampler, SequentialSampler):
            return
        with left_as_found(sampler):
            order = indices_of(sampler, getattr(sampler, "epoch", 0))
    else:
        return
    if not torch.equal(order, torch.arange(len(order))):
        raise ValueError(
            f"the order of a {type(sampler).__name__} begins {order[:4].tolist()}, so the indices "
            "of mistakes would not be those of the data set. Use "
            "DataLoader(dataset, batch_size=64, shuffle=False)."
        )


def _tags_for(errors: ErrorSet) -> dict[int, str]:
    """The file's buckets for these mistakes; other tags stay in the file."""
    assert errors.tags_path is not None
    found = {}
    known = read_tags(errors.tags_path)
    for mistake in errors.mistakes:
        bucket, target = known.get(mistake.index, (None, mistake.target))
        if target != mistake.target:
            raise ValueError(
                f"{errors.tags_path}: example {mistake.index} was tagged with target {target}, but "
                f"its target is {mistake.target} here, so the file belongs to other data or "
                "another split. Choose another tags_path."
            )
        if bucket:
            found[mistake.index] = bucket
    return found
