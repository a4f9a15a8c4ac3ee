"""Probes on the split: what validation shares with training, and how it differs from it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import RandomSampler, SequentialSampler

from course.debug.probes.answers import rows_of
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session, pair


def split(session: Session) -> Iterator[Finding]:
    """Validation shares no example with training."""
    train = _rows(session, session.epoch.batches)
    val = _rows(session, session.val_epoch.batches)
    if not train or not val:
        raise NotChecked("a loader is empty")
    seen = set(train)
    shared = sum(row in seen for row in val) / len(val)
    inner = 1 - len(seen) / len(train) if in_order_once(session) else 0.0
    inner_val = 1 - len(set(val)) / len(val)
    natural = 0.0 if _is_continuous(session) else 3 * max(inner, inner_val)
    if shared >= 0.01 and shared * len(val) >= 3 and shared > natural:
        yield Finding(
            "leak-overlap", "error",
            f"{shared:.0%} of the validation examples stand in the training data too.",
            {"shared": shared, "validation_examples": len(val), "repeated_in_training": inner},
            "train_set, val_set = random_split(dataset, [0.8, 0.2])  # after removing duplicates",
        )  # fmt: skip


def _is_continuous(session: Session) -> bool:
    """Rows of several numbers of which hardly two are alike: such rows repeat only as copies."""
    rows = torch.cat([pair(b)[0].flatten(1) for b in session.epoch.batches])
    if not rows.is_floating_point() or rows.shape[1] < 4:
        return False
    number = len(set(rows_of(rows)))
    own = [column.unique().numel() / number for column in rows.T[:64]]
    return sorted(own)[len(own) // 2] > 0.5


def _rows(session: Session, batches: list[Any]) -> list[bytes]:
    rows = []
    for batch in batches:
        inputs, _ = pair(batch)
        if inputs[0].numel() < 2:
            raise NotChecked("inputs of one number repeat by nature")
        rows += rows_of(inputs)
    return rows


def in_order_once(session: Session) -> bool:
    """The loader gives each example once, so that repeats are the data's own."""
    sampler = getattr(session.setup.train_loader, "sampler", None)
    if isinstance(sampler, RandomSampler):
        return not sampler.replacement
    return sampler is None or isinstance(sampler, SequentialSampler)


def groups(session: Session) -> Iterator[Finding]:
    """No group has members on both sides."""
    given = session.setup.groups
    if given is None:
        raise NotChecked("no groups given")
    if isinstance(given, dict):
        given = (given.get("train"), given.get("val", given.get("validation")))
    if len(given) != 2 or any(part is None for part in given):
        raise NotChecked('groups are no {"train": ..., "val": ...}')
    train, val = ([_plain(g) for g in part] for part in given)
    both = set(train) & set(val)
    if both:
        share = sum(g in both for g in val) / len(val)
        yield Finding(
            "leak-group", "error",
            f"{len(both)} groups have examples in training and in validation.",
            {"shared_groups": len(both), "validation_share": share},
            "GroupShuffleSplit(n_splits=1, test_size=0.2).split(X, y, groups)",
        )  # fmt: skip


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def times(session: Session) -> Iterator[Finding]:
    """Validation lies after training where the author gives times."""
    given = session.declared.get("times") or session.setup.extra.get("times")
    if given is None:
        raise NotChecked('no declared["times"]')
    train, val = (given["train"], given["val"]) if isinstance(given, dict) else given
    train, val = sorted(map(_plain, train)), sorted(map(_plain, val))
    early = sum(t <= train[-1] for t in val) / len(val)
    if early > 0:
        yield Finding(
            "leak-time", "error",
            f"{early:.0%} of the validation examples are not later than the last training example.",
            {"validation_before_end_of_training": early},
            "cut = np.quantile(times, 0.8); train, val = times <= cut, times > cut",
        )  # fmt: skip


def preprocessing(session: Session) -> Iterator[Finding]:
    """Mean and standard deviation come from the training part alone."""
    if not (session.epoch.whole and session.val_epoch.whole and in_order_once(session)):
        raise NotChecked("the loaders cannot be read whole, once each example")
    x = torch.cat([pair(b)[0].double().flatten(1) for b in session.epoch.batches])
    v = torch.cat([pair(b)[0].double().flatten(1) for b in session.val_epoch.batches])
    if x.shape[1] != v.shape[1] or not pair(session.epoch.batches[0])[0].is_floating_point():
        raise NotChecked("inputs are no rows of numbers")
    both = torch.cat([x, v])
    for what, dim in (("each column", 0), ("all values", None)):
        joint, alone = (_distance_from_standard(t, dim) for t in (both, x))
        if joint < 2e-4 and alone > 20 * joint and alone > 2e-3:
            yield Finding(
                "leak-preprocessing", "warning",
                f"Mean 0 and standard deviation 1 hold for training and validation together "
                f"({what}), not for training alone: the statistics were fitted on both.",
                {"off_standard_both": joint, "off_standard_train": alone},
                "scaler.fit(train_inputs); val_inputs = scaler.transform(val_inputs)",
            )  # fmt: skip
            return


def _distance_from_standard(values: Tensor, dim: int | None) -> float:
    flat = values if dim == 0 else values.reshape(-1, 1)
    moving = flat[:, flat.std(0) > 1e-9]
    if moving.numel() == 0 or len(moving) < 8:
        return float("inf")
    spread = min(float((moving.std(0, correction=c) - 1).abs().max()) for c in (0, 1))
    return max(float(moving.mean(0).abs().max()), spread)


def label_shift(session: Session) -> Iterator[Finding]:
    """Both sides hold the same classes, about as often."""
    train = torch.cat([pair(b)[1].flatten() for b in session.epoch.batches])
    val = torch.cat([pair(b)[1].flatten() for b in session.val_epoch.batches])
    if train.is_floating_point() or session.task not in ("classification", "binary"):
        raise NotChecked("targets are no class indices")
    if not in_order_once(session) or not (session.epoch.whole and session.val_epoch.whole):
        raise NotChecked("the training examples are resampled or too many to read")
    if session.val_epoch.batches and pair(session.val_epoch.batches[0])[1].dim() > 1:
        raise NotChecked("targets are no class indices")
    classes = sorted(set(train.tolist()) | set(val.tolist()))
    if len(classes) > 200 or len(val) < 20:
        raise NotChecked("too many classes or too few validation examples")
    p = torch.tensor([(train == c).double().mean() for c in classes])
    q = torch.tensor([(val == c).double().mean() for c in classes])
    distance = float((p - q).abs().sum() / 2)
    missing = [c for c, a, b in zip(classes, p, q, strict=True)
               if (b == 0 and a * len(val) >= 10) or (a == 0 and b * len(train) >= 10)]  # fmt: skip
    noise = float(((p * (1 - p) / len(val)).sqrt() + (p * (1 - p) / len(train)).sqrt()).sum() / 2)
    if missing or (distance > 0.25 and distance > 3 * noise):
        yield Finding(
            "label-shift", "warning",
            "Classes are not equally frequent in training and validation"
            + (f"; missing on one side: {missing[:5]}." if missing else "."),
            {"distance": distance, "expected_by_chance": noise, "missing": len(missing)},
            "train_test_split(X, y, stratify=y, test_size=0.2)",
        )  # fmt: skip


def covariate_shift(session: Session) -> Iterator[Finding]:
    """The model sees inputs of the same scale in training and in evaluation."""
    a = seen_inputs(session, "train")
    b = seen_inputs(session, "val")
    if a is None or b is None or a.shape[1:] != b.shape[1:]:
        raise NotChecked("no floating-point inputs of one shape on both sides")
    sa, sb = float(a.std()), float(b.std())
    if min(sa, sb) == 0 or min(len(a), len(b)) < 16:
        raise NotChecked("too few or constant inputs")
    ratio = max(sa, sb) / min(sa, sb)
    shift = abs(float(a.mean() - b.mean())) / max(sa, sb)
    if ratio > 2.0 or shift > 1.0:
        yield Finding(
            "covariate-shift", "error" if max(ratio, 2 * shift) > 5 else "warning",
            "Inputs have another scale in validation than in training: they are not preprocessed "
            "alike.",
            {"train_mean": float(a.mean()), "train_std": sa, "val_mean": float(b.mean()),
             "val_std": sb},
            "val_inputs = (val_inputs - train_mean) / train_std  # the same on both sides",
        )  # fmt: skip


def seen_inputs(session: Session, side: str) -> Tensor | None:
    """What the model itself received where a callable shows it, else what the loader gives."""
    if side == "train" and session.setup.train_step is not None:
        events = session.loop.tape.of("forward")[:8]
    elif side == "val" and session.setup.evaluate is not None:
        events = [e for e in session.evaluation.tape.of("forward") if e.call == 0][:8]
    else:
        events = []
    inputs = [e.inputs for e in events if e.inputs is not None]
    if not inputs:
        epoch = session.epoch if side == "train" else session.val_epoch
        inputs = [session.place(pair(b)[0]) for b in epoch.batches[:8]]
    inputs = [x.float() for x in inputs if x.is_floating_point() and x.dim() > 1]
    shapes = {x.shape[1:] for x in inputs}
    return torch.cat(inputs) if len(shapes) == 1 else None
