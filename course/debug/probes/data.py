"""Probes on what the loaders yield: the batch contract, classes per batch, repeated epochs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

import torch
from torch import Tensor

from course.data.contract import Breach, check_batch
from course.data.loading import length_of
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session, pair
from course.debug.probes.thresholds import UNLABELLED
from course.engine.window import ignored_index
from course.state.nested import tensors_in

JUDGED = ("one-hot-labels", "label-out-of-range", "non-finite-values")
"""Breaches of the batch contract that are wrong for certain; dtypes and shapes that matter make
the loop raise, and the range is judged on what the model itself gets."""
MEANT = {
    "non-finite-values": "and the loss ignores them.",
    "label-out-of-range": "which your own loss accepts: do they mark examples without a label?",
}
"""What is said of a breach that may be meant."""
MOST_CLASSES = 1000
"""Distinct targets above which they are counts or names, not classes."""
PURE, PURE_BY_CHANCE = 0.6, 0.05
"""Share of the batches that hold one class, from which the data is sorted (the others hold the
end of one class and the beginning of the next), and the share below which chance stays."""
LEAST_LABELS = 64
"""Labels below which their order may be chance."""
CHANGES = 0.2
"""Changes from label to label, as a share of those in a random order, below which one class comes
in long runs."""
MIXED = 0.9
"""Share of the pairs of different labels that a random order would put into each batch, from which
batches mix the classes, in whatever order they list them."""
EVEN = 0.9
"""Share of the batches with as many rows of each of their classes, from which a sampler means it;
the last batch, and one of a rare class, may be short."""
FEWER = 0.5
"""Share of the first pass's batches below which the second has run out."""
OTHER_SCALE, OTHER_MEAN = 1.5, 0.5
"""Ratio of the standard deviations of two epochs, and distance of the means in deviations, from
which the stored data has changed: the same rows in another order keep both."""


def contract(session: Session) -> Iterator[Finding]:
    """Every batch keeps the contract of `course.data.check_batch`, for the fields in `JUDGED`."""
    broken: dict[str, list[Breach]] = {}
    for batch in session.epoch.batches:
        for breach in _breaches(session, *pair(batch)):
            broken.setdefault(breach.id, []).append(breach)
    for kind, breaches in broken.items():
        first = breaches[0]
        of_targets = kind == "non-finite-values" and first.field == "targets"
        left_out = kind == "label-out-of-range" and _is_marked(session)
        meant = (of_targets or left_out) and _loss_is_finite(session)
        yield Finding(
            kind, "note" if meant else "error",
            f"{first.field}: {first.seen}; {first.contract}. This happens in {len(breaches)} of "
            f"{len(session.epoch.batches)} batches"
            + (", " + MEANT[kind] if meant else "."),
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


def _is_marked(session: Session) -> bool:
    """The one label out of range is -1, and a loss of the author's own takes it: it may mark
    examples without a label. (torch's losses raise at it unless they are told.)"""
    lowest = min(int(pair(batch)[1].min()) for batch in session.epoch.batches)
    highest = max(int(pair(batch)[1].max()) for batch in session.epoch.batches)
    within = highest < (session.setup.num_classes or math.inf)
    return session.setup.loss_fn is None and lowest == UNLABELLED and within


def _loss_is_finite(session: Session) -> bool:
    """The user's loss is finite for every batch although some targets are not."""
    losses = session.loop.losses
    return bool(losses) and session.loop.error is None and all(map(math.isfinite, losses))


def empty(session: Session) -> Iterator[Finding]:
    """Both loaders yield batches; an iterator may have been read to its end by `evaluate`."""
    given = {"train_loader": session.epoch}
    read = session.setup.evaluate is not None and hasattr(session.setup.val_loader, "__next__")
    if session.setup.val_loader is not None and not read:
        given["val_loader"] = session.val_epoch
    for name, epoch in given.items():
        if epoch.batches or not epoch.whole or epoch.error:
            continue
        loader = getattr(session.setup, name)
        examples = length_of(getattr(loader, "dataset", None))
        evidence = {"batches": 0} | ({} if examples is None else {"examples": examples})
        dropped = bool(examples) and getattr(loader, "drop_last", False)
        if dropped:
            evidence["batch_size"] = loader.batch_size
        yield Finding(
            "empty-loader", "error",
            f"The {name} yields no batches: a loop over it does nothing, without an error."
            + (" drop_last drops the only batch, which is not full." if dropped else ""),
            evidence,
            f"assert len({name}) > 0  # fewer examples than batch_size: drop_last=False",
        )  # fmt: skip


def memory_shared(session: Session) -> Iterator[Finding]:
    """Batches with different targets have different inputs."""
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
            f"{len(alike)} batches have exactly the same inputs but different targets, as happens "
            "when they share one buffer that was refilled for each batch.",
            {"batches": len(alike), "different_inputs": 1,
             "different_targets": len({y.numpy(force=True).tobytes() for _, y in alike})},
            "inputs = torch.tensor(array)  # a copy; torch.from_numpy(array) shares its memory",
        )  # fmt: skip


def single_class(session: Session) -> Iterator[Finding]:
    """Batches mix the classes of the data set."""
    targets = _targets(session)
    if any(
        t.dim() != 1 or (t.is_floating_point() and bool((t != t.round()).any())) for t in targets
    ):
        raise NotChecked("targets are not class indices")
    sizable = [t for t in targets if len(t) >= 4]
    if len(sizable) < 4:
        raise NotChecked("fewer than 4 batches of at least 4 examples")
    counts = Counter(torch.cat(sizable).tolist())
    if not 2 <= len(counts) <= MOST_CLASSES:
        raise NotChecked("only one class, or no classes")
    pure = sum(len(t.unique()) == 1 for t in sizable) / len(sizable)
    total = sum(counts.values())
    size = min(len(t) for t in sizable)
    by_chance = sum((n / total) ** size for n in counts.values())
    if pure >= PURE and by_chance < PURE_BY_CHANCE:
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
    long = len(ordered) >= LEAST_LABELS and changes < CHANGES * expected
    if session.epoch.whole and long and not _are_mixed(targets) and not _are_drawn_evenly(targets):
        yield Finding(
            "single-class-batches", "warning",
            "Labels come in long runs of one class: the data is sorted, and the loader does not "
            "shuffle.",
            {"label_changes": changes, "expected": expected},
            "train_loader = DataLoader(dataset, batch_size, shuffle=True)",
        )  # fmt: skip


def _are_mixed(targets: list[Tensor]) -> bool:
    """Each batch holds about the classes of the whole: their order within it does not matter."""

    def differ(labels: Tensor) -> float:
        shares = labels.unique(return_counts=True)[1].double() / len(labels)
        return float(1 - shares.pow(2).sum())

    sizes = [len(t) for t in targets]
    within = sum(n * n / (n - 1) * differ(t) for n, t in zip(sizes, targets, strict=True) if n > 1)
    return within > MIXED * sum(n for n in sizes if n > 1) * differ(torch.cat(targets))


def _are_drawn_evenly(targets: list[Tensor]) -> bool:
    """Batches hold as many rows of each of some classes, which come back in other company: drawn
    for losses that compare rows. In sorted data a class is over when the next begins."""
    counts = [t.unique(return_counts=True) for t in targets]
    even = sum(len(c) > 1 and int(n.min()) == int(n.max()) for c, n in counts)
    kinds = sum(len(c) for c, _ in counts)
    return even >= EVEN * len(counts) and kinds > len(torch.cat(targets).unique()) + len(counts)


def _targets(session: Session) -> list[Tensor]:
    """Targets of each batch; of batches that are no pairs, the labels that a loss of the first step
    met as they are."""
    try:
        return [pair(b)[1] for b in session.epoch.batches]
    except NotChecked:
        met = [
            e.targets.cpu() for e in session.loop.tape.in_call(0) if e.kind == "loss" and e.graph
        ]
        parts = [list(tensors_in(b)) for b in session.epoch.batches]
        places = [n for n, t in enumerate(parts[0] if parts else [])
                  if t.dim() == 1 and not t.is_floating_point()
                  and any(t.shape == m.shape and torch.equal(t.cpu(), m) for m in met)]  # fmt: skip
        if len(places) != 1 or any(len(p) <= places[0] for p in parts):
            raise
        return [p[places[0]] for p in parts]


def second_epoch(session: Session) -> Iterator[Finding]:
    """A second pass yields as many examples, and the data set itself has not changed."""
    passes = [[pair(b) for b in batches] for batches in session.two_passes]
    first, second = session.epoch.batches, passes[1]
    if len(second) < FEWER * len(first):
        yield Finding(
            "loader-exhausted", "error",
            "The second pass over the train_loader yields fewer batches than the first.",
            {"first_pass": len(first), "second_pass": len(second)},
            "train_loader = DataLoader(dataset, ...)  # not iter(...), zip(...) or a generator",
        )  # fmt: skip
        return
    x1, x2 = (torch.cat([x.flatten(1).float() for x, _ in p]) for p in passes)
    spread = x1.std(), x2.std()
    if x1.shape == x2.shape and min(spread) > 0:
        ratio = float(max(spread) / min(spread))
        shift = float((x1.mean() - x2.mean()).abs() / max(spread))
        if ratio > OTHER_SCALE or shift > OTHER_MEAN:
            yield Finding(
                "dataset-changes-itself", "error",
                "The second epoch's inputs have a different scale from the first's: the data set "
                "transforms its stored examples in place.",
                {"std_first": float(spread[0]), "std_second": float(spread[1]), "shift": shift},
                "x = self.inputs[i].clone()  # before any -=, *=, clamp_ in __getitem__",
            )  # fmt: skip


def wrapped_bytes(session: Session) -> Iterator[Finding]:
    """No arithmetic on uint8 exceeds 255 and wraps around to 0."""
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
