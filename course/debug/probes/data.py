"""Probes on what the loaders give: labels, ranges, classes a batch, the split."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import RandomSampler, SequentialSampler

from course.data.contract import Breach, check_batch
from course.debug.probes.answers import rows_of
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session, length, pair
from course.engine.window import ignored_index

JUDGED = ("one-hot-labels", "label-out-of-range", "non-finite-values")
"""Breaches of the batch contract that are wrong for certain; dtypes and shapes that matter make
the loop raise, and the range is judged on what the model itself gets."""


def contract(session: Session) -> Iterator[Finding]:
    """Every batch keeps the contract of `course.data.check_batch`, as far as it is `JUDGED`."""
    broken: dict[str, list[Breach]] = {}
    for batch in session.epoch.batches:
        for breach in _breaches(session, *pair(batch)):
            broken.setdefault(breach.id, []).append(breach)
    for kind, breaches in broken.items():
        first = breaches[0]
        meant = (
            kind == "non-finite-values" and first.field == "targets" and _loss_is_finite(session)
        )
        yield Finding(
            kind, "note" if meant else "error",
            f"{first.field}: {first.seen}; {first.contract}. So in {len(breaches)} of "
            f"{len(session.epoch.batches)} batches"
            + (", and the loss leaves them out." if meant else "."),
            {"batches": len(breaches), "seen": first.seen, "expected": first.contract}, first.fix,
        )  # fmt: skip
    if session.task == "classification" and not session.setup.num_classes:
        raise NotChecked("finite, but num_classes is not known")


def _breaches(session: Session, inputs: Tensor, targets: Tensor) -> Iterator[Breach]:
    """What is judged of one batch; targets only where the loss takes class indices."""
    classes, number = session.setup.num_classes, targets.is_floating_point()
    indices = session.task == "classification" and not number and targets.dtype != torch.bool
    report = check_batch(
        (inputs, targets),
        task="classification" if indices and targets.dim() else "regression",
        num_classes=classes,
        value_range=(-torch.inf, torch.inf),
        ignore_index=ignored_index(session.setup.loss_fn),
        input_dtype=inputs.dtype,
        layout="BCHW",
    )
    for breach in report:
        known = breach.id == "non-finite-values" or (indices and classes)
        if breach.id in JUDGED and known:
            yield breach


def _loss_is_finite(session: Session) -> bool:
    """The user's loss is finite for every batch although some targets are not."""
    losses = session.loop.losses
    return bool(losses) and session.loop.error is None and all(map(math.isfinite, losses))


def empty(session: Session) -> Iterator[Finding]:
    """Both loaders give batches."""
    given = {"train_loader": session.epoch}
    if session.setup.val_loader is not None:
        given["val_loader"] = session.val_epoch
    for name, epoch in given.items():
        if epoch.batches or not epoch.whole or epoch.error:
            continue
        loader = getattr(session.setup, name)
        examples = length(getattr(loader, "dataset", None))
        evidence = {"batches": 0} | ({} if examples is None else {"examples": examples})
        dropped = bool(examples) and getattr(loader, "drop_last", False)
        if dropped:
            evidence["batch_size"] = loader.batch_size
        yield Finding(
            "empty-loader", "error",
            f"The {name} gives no batch at all: a loop over it does nothing and says nothing."
            + (" drop_last drops the only batch, which is not full." if dropped else ""),
            evidence,
            f"assert len({name}) > 0  # fewer examples than batch_size: drop_last=False",
        )  # fmt: skip


def memory_shared(session: Session) -> Iterator[Finding]:
    """Batches with other targets have other inputs."""
    pairs = [pair(b) for b in session.epoch.batches]
    first, targets = pairs[0] if pairs else session.batch
    alike = [(x, y) for x, y in pairs if x.shape == first.shape and y.shape == targets.shape]
    if len(alike) < 3 or first.dim() < 2 or first[0].numel() < 2 or first.unique().numel() < 2:
        raise NotChecked("fewer than 3 batches of one shape, or inputs of one number")
    if all(torch.equal(x, first) for x, _ in alike) and any(
        not torch.equal(y, targets) for _, y in alike
    ):
        yield Finding(
            "memory-shared", "error",
            f"{len(alike)} batches have the very same inputs, beside other targets, as "
            "happens when they share one memory that was filled again after each was made.",
            {"batches": len(alike), "different_inputs": 1,
             "different_targets": len({y.numpy(force=True).tobytes() for _, y in alike})},
            "inputs = torch.tensor(array)  # a copy; torch.from_numpy(array) shares its memory",
        )  # fmt: skip


def single_class(session: Session) -> Iterator[Finding]:
    """Batches mix the classes that the data set holds."""
    targets = [pair(b)[1] for b in session.epoch.batches]
    if any(
        t.dim() != 1 or (t.is_floating_point() and bool((t != t.round()).any())) for t in targets
    ):
        raise NotChecked("targets are no class indices")
    sizable = [t for t in targets if len(t) >= 4]
    if len(sizable) < 4:
        raise NotChecked("fewer than 4 batches of at least 4 examples")
    counts = Counter(torch.cat(sizable).tolist())
    if not 2 <= len(counts) <= 1000:
        raise NotChecked("one class in all, or no classes")
    pure = sum(len(t.unique()) == 1 for t in sizable) / len(sizable)
    total = sum(counts.values())
    size = min(len(t) for t in sizable)
    by_chance = sum((n / total) ** size for n in counts.values())
    if pure >= 0.6 and by_chance < 0.05:
        yield Finding(
            "single-class-batches", "error",
            f"{pure:.0%} of the batches hold a single class although the data has {len(counts)}: "
            "the loader is not shuffled and the data is sorted.",
            {"pure_batches": pure, "expected_by_chance": by_chance, "classes": len(counts)},
            "train_loader = DataLoader(dataset, batch_size, shuffle=True)",
        )  # fmt: skip
        return
    ordered = torch.cat(targets)
    changes = int((ordered[1:] != ordered[:-1]).sum())
    expected = len(ordered) * (1 - sum((n / total) ** 2 for n in counts.values()))
    if session.epoch.whole and len(ordered) >= 64 and changes < 0.2 * expected:
        yield Finding(
            "single-class-batches", "warning",
            "Labels come in long runs of one class: the data is sorted and not shuffled.",
            {"label_changes": changes, "expected": expected},
            "train_loader = DataLoader(dataset, batch_size, shuffle=True)",
        )  # fmt: skip


def second_epoch(session: Session) -> Iterator[Finding]:
    """A second pass gives as many examples, and the data set itself has not changed."""
    passes = [[pair(b) for b in batches] for batches in session.two_passes]
    first, second = session.epoch.batches, passes[1]
    if len(second) < 0.5 * len(first):
        yield Finding(
            "loader-exhausted", "error",
            "The second pass over the train_loader gives fewer batches than the first.",
            {"first_pass": len(first), "second_pass": len(second)},
            "train_loader = DataLoader(dataset, ...)  # not iter(...), zip(...) or a generator",
        )  # fmt: skip
        return
    x1, x2 = (torch.cat([x.flatten(1).float() for x, _ in p]) for p in passes)
    spread = x1.std(), x2.std()
    if x1.shape == x2.shape and min(spread) > 0:
        ratio = float(max(spread) / min(spread))
        shift = float((x1.mean() - x2.mean()).abs() / max(spread))
        if ratio > 1.5 or shift > 0.5:
            yield Finding(
                "dataset-changes-itself", "error",
                "The second epoch's inputs have another scale than the first's: the data set "
                "transforms its stored examples in place.",
                {"std_first": float(spread[0]), "std_second": float(spread[1]), "shift": shift},
                "x = self.inputs[i].clone()  # before any -=, *=, clamp_ in __getitem__",
            )  # fmt: skip


def split(session: Session) -> Iterator[Finding]:
    """Validation shares no example with training."""
    train = _rows(session, session.epoch.batches)
    val = _rows(session, session.val_epoch.batches)
    if not train or not val:
        raise NotChecked("a loader is empty")
    seen = set(train)
    shared = sum(row in seen for row in val) / len(val)
    inner = 1 - len(seen) / len(train) if _in_order_once(session) else 0.0
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


def _in_order_once(session: Session) -> bool:
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
    if not (session.epoch.whole and session.val_epoch.whole and _in_order_once(session)):
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
    if not _in_order_once(session) or not (session.epoch.whole and session.val_epoch.whole):
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


def wrapped_bytes(session: Session) -> Iterator[Finding]:
    """No arithmetic on uint8 passes 255 and starts again at 0."""
    from course.debug.probes.tape import Tape

    tape = Tape(session.model, session.optimizers)
    with session.observe(), tape.running():
        iterator = iter(session.setup.train_loader)
        for _ in range(3):
            next(iterator, None)
    events = tape.of("wrapped")
    if not events and session.setup.train_step is not None:
        events = session.loop.tape.of("wrapped")
    if events:
        yield Finding(
            "uint8-arithmetic", "error",
            "Arithmetic on uint8 pixels wraps around: 250 + 10 gives 4.",
            {"wrapped_values": sum(e.count for e in events), "of": sum(e.of for e in events)},
            "inputs = inputs.float()  # before any arithmetic",
        )  # fmt: skip
