"""Relation on masked prediction: the model does not see what it must predict."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from course.debug.probes.functions import LOSSES, SUMS
from course.debug.probes.modes import evaluation_of
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.relations.model import EQUAL_SHARE
from course.debug.relations.program import exchanged, program_of
from course.debug.relations.steps import Call, Step
from course.state.nested import tensors_in

LEAST_GUESSED = 24
"""Numbers or tokens at the places drawn, below which their likeness to the inputs is chance."""
TIMES = {torch.mul, Tensor.mul, Tensor.__mul__, Tensor.__rmul__}


def guessed(session: Session) -> Iterator[Finding]:
    """A loss over randomly drawn positions covers positions that the model's inputs leave out.

    A masked model is shown a few of the chosen tokens on purpose, but most are hidden.
    """
    states = session.loop.rng
    if states and len(set(states)) == 1:
        raise NotChecked("a step draws nothing at random")
    (step, places), (_, others) = (_watched(session, seed) for seed in (0, 1))
    drawn = [m for m, o in zip(places.masks, others.masks, strict=False)
             if m.shape == o.shape and not torch.equal(m, o)]  # fmt: skip
    if not drawn or len(step.calls) != 1:
        raise NotChecked("no loss over positions that are drawn in the step")
    for mask in drawn:
        for target in places.targets:
            for given in step.calls[0].tensors:
                share = _shown(given, target, mask)
                if share >= EQUAL_SHARE and _is_read(session, step.calls[0], given, mask):
                    yield Finding(
                        "target-in-inputs", "error",
                        f"The loss is over {int(mask.sum())} of {mask.numel()} positions drawn at "
                        f"random, but at {share:.0%} of them the model is given the target itself: "
                        "nothing was hidden there, and it learns to copy.",
                        {"places": int(mask.sum()), "of": mask.numel(), "shown": share},
                        "hidden = x.masked_fill(mask, 0.0)  # masked_fill returns a copy: use "
                        "it\nloss = (model(hidden) - x)[mask].pow(2).mean()",
                    )  # fmt: skip
                    return


def marked(session: Session) -> Iterator[Finding]:
    """Places that a part of the batch marks, and that evaluate() hides, are hidden in training too.

    Asked where the loss is over the marked places alone and the model reads a part of the batch as
    it is: an autoencoder may do that, but its evaluation hides nothing.
    """
    leaves = list(tensors_in(program_of(session).batches[0]))
    marks = {n: t.bool() for n, t in enumerate(leaves) if _is_mask(t)}
    if not marks:
        raise NotChecked("a batch has no marks of places")
    if session.setup.evaluate is None:
        raise NotChecked("no evaluate()")
    step, places = _watched(session, 0)
    if len(step.calls) != 1:
        raise NotChecked("a step does not call the model once")
    for number, mask in marks.items():
        for target in _targets_at(mask, step, places):
            for given in step.calls[0].tensors:
                place = next((n for n, t in enumerate(leaves) if _equal(t, given)), None)
                if place is None or _shown(given, target, mask) < EQUAL_SHARE:
                    continue
                shown = _is_read(session, step.calls[0], given, mask)
                if shown and _hides(session, place, number):
                    yield Finding(
                        "target-in-inputs", "error",
                        f"The loss is over the {int(mask.sum())} of {mask.numel()} places that a "
                        "part of the batch marks. evaluate() hides them from the model, but in "
                        "training it is given the targets themselves there, and learns to copy.",
                        {"places": int(mask.sum()), "of": mask.numel()},
                        "hidden = ids.masked_fill(mask, MASK)  # masked_fill returns a copy: use "
                        "it\nloss = F.cross_entropy(model(hidden)[mask], ids[mask])",
                    )  # fmt: skip
                    return


def _targets_at(mask: Tensor, step: Step, places: _Places) -> Iterator[Tensor]:
    """Targets of a loss that is over these places alone."""
    if any(_equal(mask, m) for m in places.masks):
        yield from (t for t in places.targets if t.shape[: mask.dim()] == mask.shape)
    for event in step.losses:
        met = event.targets
        if not met.is_floating_point() and met.numel() == mask.numel():
            met = met.reshape(mask.shape)
            if torch.equal(met >= 0, mask):
                yield met


def _hides(session: Session, place: int, number: int) -> bool:
    """evaluate() gives the model this part of its first batch with one value in all places that
    are marked there, and otherwise as it is."""
    if not session.val_epoch.batches:
        return False
    leaves = list(tensors_in(session.val_epoch.batches[0]))
    if len(leaves) <= max(place, number):
        return False
    whole, mask = leaves[place], leaves[number].bool()
    if mask.dim() > whole.dim() or whole.shape[: mask.dim()] != mask.shape:
        return False
    for event in evaluation_of(session).tape.of("forward"):
        given = event.inputs
        if event.call == 0 and given is not None and given.shape == whole.shape:
            given = given.to(whole)
            kept = torch.equal(given[~mask], whole[~mask])
            if kept and len(given[mask].unique()) == 1 < len(whole[mask].unique()):
                return True
    return False


def _equal(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype and torch.equal(one, other)


def _shown(given: Tensor, target: Tensor, mask: Tensor) -> float:
    """Share of the places at which an input, or its first or last columns, is the target."""
    if target.shape[: mask.dim()] != mask.shape or given.dim() != target.dim():
        return 0.0
    if int(mask.sum()) < LEAST_GUESSED or len(target[mask].unique()) < 4:
        return 0.0
    wide = given.shape[-1] - target.shape[-1]
    if given.shape[:-1] != target.shape[:-1] or wide < 0:
        return 0.0
    parts = (given[..., : target.shape[-1]], given[..., wide:])
    return max(float((part[mask] == target[mask]).double().mean()) for part in parts)


def _is_read(session: Session, call: Call, given: Tensor, mask: Tensor) -> bool:
    """Whether what stands at the places changes the model's outputs: it may hide them itself."""
    program, other = program_of(session), given.clone()
    width = mask.shape[-1] if mask.dim() == given.dim() else given.shape[-1]
    for start in {0, given.shape[-1] - width}:  # where `_shown` looks
        part = other[..., start : start + width]
        part[mask] = part[mask].flip(0)
    args, kwargs = exchanged([call.args, call.kwargs], given, other)
    before, after = program.replay(call), program.replay(Call(tuple(args), kwargs))
    return any(not torch.allclose(a, b) for a, b in zip(before, after, strict=True))


def _watched(session: Session, seed: int) -> tuple[Step, _Places]:
    program, places = program_of(session), _Places()

    def listen() -> None:  # the hooks are taken off where the step is put back
        session.model.register_forward_pre_hook(lambda *_: setattr(places, "inside", True))
        session.model.register_forward_hook(lambda *_: setattr(places, "inside", False))

    step = program.step(program.batches[0], seed=seed, prepare=listen, within=places)
    return step, places


class _Places(TorchFunctionMode):
    """Masks that choose among numbers with a gradient, outside the model, and what is subtracted
    from such numbers or handed to a loss as their target."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = False
        self.masks: list[Tensor] = []
        self.targets: list[Tensor] = []

    def __torch_function__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None):
        result = function(*args, **(kwargs or {}))
        two = [a for a in args[:2] if isinstance(a, Tensor)]
        if self.inside or len(two) != 2:
            return result
        fixed = [a.detach() for a in two if not a.requires_grad]
        if function is Tensor.__getitem__ and two[1].dtype == torch.bool:
            if two[0].requires_grad:
                self.masks.append(two[1].detach())
            else:
                self.targets.append(two[0].detach())
        elif function in TIMES and len(fixed) == 1 and _is_mask(fixed[0]):
            self.masks.append(fixed[0].bool())
        elif (function in SUMS or function in LOSSES) and len(fixed) == 1:
            self.targets += fixed
        return result


def _is_mask(values: Tensor) -> bool:
    return values.dim() > 1 and set(values.unique()[:3].tolist()) == {0, 1}
