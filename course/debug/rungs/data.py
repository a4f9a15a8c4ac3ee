"""Rungs 1 and 2: look at the data, then at how good a guess without looking is."""

from __future__ import annotations

import contextlib

import torch
from torch import Tensor

from course.data.contract import check_batch
from course.data.split_check import CHECKS, SplitFinding, check_split
from course.debug.probes import splits
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, pair
from course.debug.probes.thresholds import YES
from course.debug.rungs.climbing import Climb, Fall, Outcome, Scores, shares

ALL_RIGHT = 1 - 1e-9
"""Mean accuracy above which every example is right: the mean is rounded."""


def inspect_data(climb: Climb) -> Outcome:
    """Rung 1: the loaders run, batches keep the contract, the split holds."""
    session = climb.session
    if session.epoch.error:
        raise Fall(
            f"the train_loader raises {session.epoch.error[:200]}",
            fix="next(iter(train_loader))  # on its own, with num_workers=0",
        )
    if climb.setup.val_loader is None:
        raise Fall(
            "there is no validation data: no higher rung could tell learning from memorising.",
            fix="train, val = stratified_split(targets, 0.2)\nsetup['val_loader'] = ...",
            cause="no-validation",
        )
    if session.val_epoch.error:
        raise Fall(
            f"the val_loader raises {session.val_epoch.error[:200]}",
            fix="next(iter(val_loader))  # on its own, with num_workers=0",
        )
    inputs, targets = climb.train_rows
    val_inputs, val_targets = climb.val_rows
    _keep_the_contract(climb)
    numbers = {"training rows read": len(inputs), "validation rows read": len(val_inputs)}
    if climb.task == "classification":
        numbers |= _classes(targets, val_targets)
        _mixed_batches(climb)
    warnings = _split(climb)
    shape = " x ".join(map(str, inputs.shape[1:])) or "one number"
    return Outcome(
        f"{len(session.epoch.batches)} + {len(session.val_epoch.batches)} batches keep the "
        f"contract of {climb.task}: inputs {shape}, "
        f"mean {inputs.double().mean():.3g}, standard deviation {inputs.double().std():.3g}.",
        numbers,
        warnings,
    )


def _keep_the_contract(climb: Climb) -> None:
    classes = climb.setup.num_classes
    for side, epoch in (("train", climb.session.epoch), ("val", climb.session.val_epoch)):
        for number, batch in enumerate(epoch.batches):
            token_ids = torch.long if _token_ids(batch) else None
            report = check_batch(
                tuple(pair(batch)), task=climb.task, num_classes=classes, input_dtype=token_ids
            )
            broken = [breach for breach in report if breach.id not in climb.allowed]
            if broken:
                first = broken[0]
                raise Fall(
                    f"{first.id}: batch {number} of the {side}_loader, {first.field}: "
                    f"{first.seen}; {first.contract}.",
                    {"breaches": [breach.id for breach in broken]},
                    first.fix,
                    cause=first.id,
                )


def _token_ids(batch: object) -> bool:
    return pair(batch)[0].dtype == torch.long


def _classes(targets: Tensor, val_targets: Tensor) -> dict[str, object]:
    """If validation lacks a class, nobody will see the errors on it."""
    train, val = shares(targets), shares(val_targets)
    missing = sorted(set(train) - set(val))
    if missing and len(val_targets) >= 2 * len(train):
        raise Fall(
            f"validation has no example of class {', '.join(map(str, missing))}: no number "
            "measured there says anything about them.",
            {"classes in training": len(train), "classes in validation": len(val)},
            "train, val = stratified_split(targets, 0.2)",
            cause="missing-class",
        )
    unknown = sorted(set(val) - set(train))
    if unknown:
        raise Fall(
            f"class {', '.join(map(str, unknown))} is in validation but never in the training "
            "batches: the model cannot learn it.",
            {"classes in training": len(train), "classes in validation": len(val)},
            "train, val = stratified_split(targets, 0.2)",
            cause="missing-class",
        )
    return {"classes": len(train), "rarest share": min(train.values())}


def _mixed_batches(climb: Climb) -> None:
    """Batches that each hold one class teach the model to forget the others."""
    batches = [pair(batch)[1] for batch in climb.session.epoch.batches]
    single = sum(len(y) > 3 and len(y.unique()) == 1 for y in batches)
    if single > len(batches) / 2 and "single-class-batches" not in climb.allowed:
        raise Fall(
            f"{single} of {len(batches)} training batches hold only one class: the data is sorted "
            "and nothing shuffles it.",
            {"batches of one class": single},
            "DataLoader(dataset, batch_size, shuffle=True)",
            cause="single-class-batches",
        )


def _split(climb: Climb) -> tuple[str, ...]:
    """What the split check finds: overlap stops the climb, a shift is worth a look.

    Whether the inputs have shifted is judged as the doctor judges it.
    """
    session, sides = climb.session, (climb.train_rows, climb.val_rows)
    left_out = {"groups", "covariate shift"}
    if not splits.in_order_once(session):  # rows are drawn so that the labels differ
        left_out.add("label shift")
    found = []
    with contextlib.suppress(ValueError):  # not enough rows for any test
        only = [name for name in CHECKS if name not in left_out]
        groups = splits.groups_of(session, *sides)
        found += check_split(*sides, groups=groups, only=only).findings
    for probe in (splits.groups, splits.told_apart):
        with contextlib.suppress(NotChecked):
            found += probe(session)
    found = [finding for finding in found if finding.id not in climb.allowed]
    for finding in found:
        if finding.id.startswith("leak"):
            raise Fall(
                f"{finding.id}: {finding.message}", _numbers(finding), finding.fix,
                cause=finding.id,
            )  # fmt: skip
    return tuple(f"{finding.id}: {finding.message}" for finding in found)


def _numbers(finding: SplitFinding | Finding) -> dict[str, object]:
    return dict(finding.figures if isinstance(finding, SplitFinding) else finding.evidence)


def dumb_baseline(climb: Climb) -> Outcome:
    """Rung 2: the score of the best guess without looking at the inputs."""
    _, targets = climb.train_rows
    val_inputs, val_targets = climb.val_rows
    if climb.task == "regression":
        constant = targets.double().mean(dim=0)
        error = (val_targets.double() - constant).square()
        climb.baseline = Scores(
            error.flatten(1).mean(1) if error.dim() > 1 else error, "squared error"
        )
        said = f"always the training mean ({_short(constant)})"
    else:
        guess = _most_common(targets, climb.task)
        right = (val_targets == guess).double()
        climb.baseline = Scores(right.flatten(1).mean(1) if right.dim() > 1 else right, "accuracy")
        said = f"always the most common target ({_short(guess)})"
    if climb.baseline.higher_is_better and climb.baseline.mean > ALL_RIGHT:
        raise Fall(
            f"{said[0].upper()}{said[1:]} is right for every validation example: no score can "
            "show that a model looks at its inputs.",
            {"baseline": climb.baseline.mean},
            "train, val = stratified_split(targets, 0.2)  # validation needs every class",
            cause="missing-class",
        )
    numbers = {f"baseline {climb.baseline.name}": climb.baseline.mean}
    with climb.from_the_start():
        numbers["untrained model"] = climb.score(val_inputs, val_targets).mean
    return Outcome(
        f"Without looking, {said} is the best guess: {climb.baseline.name} "
        f"{climb.baseline.mean:.3g} on validation, the bar for rungs 4 and 6.",
        numbers,
    )


def _most_common(targets: Tensor, task: str) -> Tensor:
    if task == "classification":
        counted = targets[targets >= 0]
        if not counted.numel():
            raise NotChecked("no target counts: all are below 0")
        values, counts = counted.unique(return_counts=True)
        return values[counts.argmax()]
    return (targets.double().mean(dim=0) > YES).to(targets.dtype)


def _short(value: Tensor) -> str:
    """A number, or the first three of several."""
    numbers = [f"{number:.3g}" for number in value.double().flatten()[:3].tolist()]
    return ", ".join(numbers) + (", ..." if value.numel() > 3 else "")
