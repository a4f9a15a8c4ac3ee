"""Relations on targets: what is written into a batch, to hide or to blur it, is not in its targets.

A tensor that is both input and target, or shares its memory with the other, is changed in both.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.thresholds import TINY
from course.debug.relations.joining import is_among
from course.debug.relations.noise import OF_ROWS, drawn_for_rows
from course.debug.relations.program import Program, program_of
from course.debug.relations.steps import Call
from course.debug.relations.targets import OF_CLASSES
from course.state.nested import cloned, tensors_in

MASKED, LEAST_MASKED = 3, 12
"""Batches of which all targets are looked at, and targets that are of one class by no chance."""
NOISED = 0.2
"""Noise over the data's own spread from which it is there to be removed: what spreads numbers of
few levels evenly, as densities ask for, is smaller."""


def overwritten(session: Session) -> Iterator[Finding]:
    """What a step writes into its batch does not become the target.

    labels = tokens makes no copy: if tokens are masked afterwards, so are the labels.
    """
    program = program_of(session)
    step = program.first()
    parts = zip(tensors_in(program.batches[0]), tensors_in(step.batch), strict=False)
    given = [t for call in step.calls for t in call.tensors]
    written = [after[after != old] for old, after in parts
               if old.shape == after.shape and not torch.equal(old, after)
               and not after.is_floating_point() and is_among(after, given)]  # fmt: skip
    if not written:
        raise NotChecked("the step does not change any tokens that the model reads")
    for event in step.losses:
        if event.name not in OF_CLASSES:
            continue
        met = event.targets[event.targets >= 0].unique().cpu()
        if len(met) == 1 and any(len(w) and bool((w.cpu() == met).all()) for w in written):
            yield Finding(
                "wrong-targets", "error",
                f"The step writes {int(met)} into its batch, and the targets of its loss are all "
                f"{int(met)}: labels and inputs are one tensor, and masking the inputs has masked "
                "the labels.",
                {"written": int(met), "targets": event.targets.numel()},
                "labels = tokens.clone()  # before tokens[mask] = MASK",
            )  # fmt: skip
            return


def masked_too(session: Session) -> Iterator[Finding]:
    """Masking the inputs in the data does not mask the targets.

    They share their memory, or did when the inputs were masked: then each target that counts is
    what the model is shown in its place.
    """
    program = program_of(session)
    met, copied = [], True
    for number, one in enumerate(program.batches[:MASKED]):
        step = program.step(one) if number else program.first()
        losses = [e for e in step.losses if e.name in OF_CLASSES]
        if len(losses) != 1 or losses[0].inputs.dim() < 2 or losses[0].inputs.shape[1] < 3:
            raise NotChecked("the step has no single loss of classes")
        met.append(losses[0].targets[losses[0].targets >= 0].flatten().cpu())
        copied = copied and _are_shown(losses[0].targets, step.calls)
        if not copied and not _held_together(session):
            raise NotChecked("no two parts of an example or a batch are the same integers")
    classes, answers = torch.cat(met).unique(), sum(map(len, met))
    others = {int(v) for t in tensors_in(program.batches[0]) for v in t.unique()
              if not t.is_floating_point() and t.dtype != torch.bool}  # fmt: skip
    if len(classes) == 1 and answers >= LEAST_MASKED and len(others) > len(classes) + 2:
        yield Finding(
            "wrong-targets", "error",
            f"All {answers} targets of {len(met)} batches are {int(classes[0])}, and "
            + ("the input in each one's place is the same: " if copied else
               "two parts of the data are one tensor: ")
            + "masking the inputs has masked the labels.",
            {"targets": answers, "the_one": int(classes[0]), "batches": len(met)},
            "labels = ids.clone()  # before ids[mask] = MASK",
        )  # fmt: skip


def _are_shown(targets: Tensor, calls: list[Call]) -> bool:
    """Some targets count and others are left out, and those that count are the model's input in
    the same place."""
    counted = targets.flatten() >= 0
    return bool(counted.any()) and not bool(counted.all()) and any(
        t.numel() == len(counted) and not t.is_floating_point()
        and bool((t.flatten() == targets.flatten())[counted].all())
        for call in calls for t in call.tensors
    )  # fmt: skip


def _held_together(session: Session) -> bool:
    """Two parts of an example, or of a batch as it comes, lie in one place."""
    loader = session.setup.train_loader
    if not isinstance(loader, DataLoader):
        return False
    with session.observe():
        data = loader.dataset
        if _shares_memory(next(iter(loader), None)):
            return True
        sized = hasattr(data, "__getitem__") and hasattr(data, "__len__")
        return sized and len(data) > 0 and _shares_memory(data[0])


def _shares_memory(example: object) -> bool:
    """Two of its tensors of integers are one."""
    parts = [t for t in tensors_in(example) if not t.is_floating_point() and t.dim()]
    places = [(t.data_ptr(), t.shape) for t in parts if t.numel() and t.dtype != torch.bool]
    return len(set(places)) < len(places)


def noised_too(session: Session) -> Iterator[Finding]:
    """Noise that a step writes into the model's inputs is not in what they are compared with."""
    program = program_of(session)
    if not program.first().calls_any(OF_ROWS):
        raise NotChecked("a step draws no random numbers")
    batch = cloned(program.batches[0])
    before = [t.clone() for t in tensors_in(batch)]
    mode = drawn_for_rows(batch)
    step = program.step(batch, copied=False, within=mode)
    given = [t for call in step.calls for t in call.tensors]
    met = [*mode.targets, *(e.targets for e in step.losses if isinstance(e.targets, Tensor))]
    after = list(tensors_in(batch))
    for place, (old, new) in enumerate(zip(before, after, strict=False)):
        if not new.is_floating_point() or old.shape != new.shape or torch.equal(old, new):
            continue
        noise = float((new - old).std() / old.std().clamp_min(TINY))
        both = noise > NOISED and is_among(new, given) and is_among(new, met)
        drawn = [n for n, d in enumerate(mode.values) if d.shape == new.shape]
        if both and any(_depends_on(program, n, place) for n in drawn):
            yield Finding(
                "wrong-targets", "error",
                f"The step writes noise, {noise:.2g} times as large as the data, into a tensor of "
                "its batch, which is both the model's input and the target: the clean data is "
                "gone, and the model learns to give back the noise.",
                {"noise_over_data": noise, "shape": list(new.shape)},
                "noisy = clean + noise  # a new tensor; add_ and += change clean, too",
            )  # fmt: skip
            return


def _depends_on(program: Program, draw: int, place: int) -> bool:
    """What a step leaves in a tensor of its batch changes with one of the draws for its rows."""
    left = []
    for turned in (None, draw):
        batch = cloned(program.batches[0])
        program.step(batch, copied=False, within=drawn_for_rows(batch, turned))
        left.append(list(tensors_in(batch))[place])
    return not torch.equal(*left)
