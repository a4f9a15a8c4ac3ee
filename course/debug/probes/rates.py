"""Probes on the learning rate: too large, too small, and the loss it starts from."""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import median

import torch

from course.debug.probes.loop import norm
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session, clone
from course.debug.probes.thresholds import LEAST_STEPS, MOST, ZERO

FIT_STEPS = 12
"""Steps on one batch over which a loss is seen to rise or fall."""
RISES, RISES_BY = 1.5, 0.1
"""Times the first loss, and so much more, that each of the last four exceeds where the rate is too
large: near 0 any step multiplies a loss."""
LEAPS = 20
"""Times the first loss, and 1 more, that some loss exceeds where it was thrown up and came back."""
CALM, LEAPS_LESS = 1.05, 5
"""Times the first loss that the mean of the user's last four losses, and (`RISES_BY` more) the
largest of all, stay below where the user's own steps are in order."""
GENTLE, BOLD = 0.98, 0.97
"""Last loss over the first, below which a rate divided by ten or more, or multiplied by a hundred
or more, brings the loss down."""
FALLS = 0.995
"""The same of the rate as it is: one that takes even half a per cent off is not too small."""
WARMING_UP = 0.2
"""Share of its peak below which a rate is in its warm-up."""
BARELY_MOVED = 2e-4
"""Movement of the weights over their size, after all steps that were watched: a single step of a
usual rate moves them by about 1e-3."""


def fit(session: Session, factor: float) -> list[float]:
    """Losses of a few plain steps on one batch, with the learning rate times a factor."""
    batch = session.epoch.batches[0]
    session.batch  # noqa: B018 (says why where there is no pair)
    losses = []
    with session.observe():
        for optimizer in session.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["lr"] * factor
        for _ in range(FIT_STEPS):
            torch.manual_seed(0)  # the same dropout each time, so that losses can be compared
            losses.append(session.plain_step(clone(batch)))
            if not math.isfinite(losses[-1]):
                break
    return losses


def _plain_model(session: Session) -> None:
    if len(session.optimizers) != 1 or type(session.optimizers[0]).__name__ == "LBFGS":
        raise NotChecked("more than one optimizer, or LBFGS")
    if session.is_spent(0.7):
        raise NotChecked("the budget of forwards is spent")


def too_large(session: Session) -> Iterator[Finding]:
    """A few steps on one batch do not make the loss shoot up."""
    _plain_model(session)
    losses = fit(session, 1.0)
    if not math.isfinite(losses[0]):
        raise NotChecked("the first loss is not finite")
    high = not math.isfinite(losses[-1]) or min(losses[-4:]) > RISES * abs(losses[0]) + RISES_BY
    stuck = len(losses) == FIT_STEPS and max(losses) > LEAPS * abs(losses[0]) + 1
    if not (high or stuck):
        return
    own = [v for v in session.loop.losses if math.isfinite(v)] if not session.loop.own else []
    if len(own) >= LEAST_STEPS and len(own) == len(session.loop.losses):
        calm = sum(own[-4:]) / 4 < CALM * max(own[0], ZERO)
        if calm and max(own) < LEAPS_LESS * abs(own[0]) + RISES_BY:
            raise NotChecked("the user's own steps keep the loss in bounds")
    for factor in (0.1, 0.01, 0.001):
        gentle = fit(session, factor)
        if math.isfinite(gentle[-1]) and gentle[-1] < GENTLE * losses[0]:
            lr = float(session.optimizers[0].param_groups[0]["lr"])
            yield Finding(
                "lr-too-large", "error",
                f"On one batch the loss goes from {losses[0]:.3g} to {max_of(losses):.3g} at lr "
                f"{lr:g}, but falls to {gentle[-1]:.3g} at {lr * factor:g}.",
                {"lr": lr, "first_loss": losses[0], "largest_loss": max_of(losses),
                 "last_loss_with_smaller_lr": gentle[-1]},
                f"lr = {lr * factor:g}  # or ask lr_find(model, criterion, optimizer, loader)",
            )  # fmt: skip
            return


def max_of(losses: list[float]) -> float:
    return math.inf if any(not math.isfinite(v) for v in losses) else max(losses)


def too_small(session: Session) -> Iterator[Finding]:
    """Steps move the weights enough to matter."""
    _plain_model(session)
    groups = session.optimizers[0].param_groups
    lr = max(float(g["lr"]) for g in groups)
    peak = max(float(g.get("initial_lr", g["lr"])) for g in groups)
    if session.setup.scheduler is not None and (lr < WARMING_UP * peak or lr == 0):
        raise NotChecked("the schedule starts low")
    loop = session.loop
    if len(loop.tape.of("stepped")) < LEAST_STEPS:
        raise NotChecked(f"fewer than {LEAST_STEPS} updates")
    moved = norm([b - a for a, b in zip(loop.start, loop.end, strict=True)])
    size = norm(list(loop.start))
    if moved > BARELY_MOVED * size or any(norm(e.gradient) == 0 for e in loop.tape.of("step")[:4]):
        return
    if lr > 0 and type(session.setup.scheduler).__name__ in ("OneCycleLR", "LambdaLR", "CyclicLR"):
        raise NotChecked("the schedule starts low")
    plain = fit(session, 1.0)
    if plain[-1] < FALLS * plain[0]:
        return
    for factor in (100.0, 1e4, 1e6, 1e8):
        bold = fit(session, factor) if lr > 0 else None
        if bold is None or (math.isfinite(bold[-1]) and bold[-1] < BOLD * bold[0]):
            yield Finding(
                "lr-too-small", "warning",
                f"{len(loop.tape.of('stepped'))} updates at lr {lr:g} move the weights by "
                f"{moved / max(size, 1e-12):.1e} of their size: the loss does not move.",
                {"lr": lr, "relative_movement": moved / max(size, 1e-12), "loss_first": plain[0],
                 "loss_last": plain[-1]},
                f"lr = {lr * factor if lr else 1e-3:g}",
            )  # fmt: skip
            return


OUTWEIGHS = 2.0
"""Times the largest gradient, above which the number that Adam adds to a gradient's size is all of
it: a step is then the learning rate times the gradient over that number."""
HARDLY_MOVED = 10 * BARELY_MOVED
"""Movement of the weights over their size that such a step leaves; more is meant."""


def outweighed(session: Session) -> Iterator[Finding]:
    """Adam's eps, which prevents dividing by 0, is not larger than the gradients it is added to."""
    steps = [e for e in session.loop.tape.of("step") if "eps" in e.optimizer.defaults]
    if len(steps) < LEAST_STEPS:
        raise NotChecked("no optimizer divides by the size of gradients")
    eps = min(float(g["eps"]) for e in steps for g in e.optimizer.param_groups)
    most = max((float(g.abs().max()) for e in steps for g in e.gradient
                if g is not None and g.numel()), default=0.0)  # fmt: skip
    loop = session.loop
    moved = norm([b - a for a, b in zip(loop.start, loop.end, strict=True)])
    if eps > OUTWEIGHS * most > 0 and moved < HARDLY_MOVED * norm(list(loop.start)):
        yield Finding(
            "lr-too-small", "warning",
            f"The optimizer's eps is {eps:g} and no gradient in {len(steps)} steps is larger than "
            f"{most:.2g}: gradients are in effect divided by eps instead of their own size, so "
            "steps hardly move the weights.",
            {"eps": eps, "largest_gradient": most, "steps": len(steps)},
            "torch.optim.Adam(model.parameters(), lr=1e-3, eps=1e-8)",
        )  # fmt: skip


WORSE = 3.0
"""A start is bad when its loss is so many times that of a guess and that of fresh weights."""
GROWN = 2.0
"""A tensor has grown when its norm is so many times what its layer draws when reset."""


def start(session: Session) -> Iterator[Finding]:
    """Training does not start from weights that something blew up beforehand.

    One scaled-up layer may be intentional, so nearly all must have grown.
    """
    if session.task != "classification":
        raise NotChecked("the loss of a guess is known only for classes")
    inputs, targets = session.batch
    guess = math.log(session.outputs.shape[1])
    with session.observe(), torch.no_grad():
        session.model.train()
        first = float(session.loss(session.call_model(inputs), targets))
        if first <= WORSE * guess:
            return
        before = [float(p.norm()) for p in session.model.parameters()]
        for module in session.model.modules():
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()
        anew = [float(p.norm()) for p in session.model.parameters()]
        fresh = float(session.loss(session.call_model(inputs), targets))
    ratios = [a / b for a, b in zip(before, anew, strict=True) if b > 0]
    grown = sum(ratio > GROWN for ratio in ratios)
    if first > WORSE * fresh and grown >= MOST * len(ratios):
        yield Finding(
            "bad-start", "warning",
            f"The first loss is {first:.3g}; guessing gives {guess:.3g}, and the same layers "
            f"freshly initialised {fresh:.3g}. Nearly all weights are far larger than at "
            "initialisation: something moved them before training, e.g. a learning-rate sweep that "
            "does not restore them.",
            {"first_loss": first, "guess": guess, "fresh_weights": fresh,
             "tensors_grown": grown, "of": len(ratios), "median_growth": median(ratios)},
            "before = copy.deepcopy(model.state_dict())\n...  # the sweep\n"
            "model.load_state_dict(before)",
        )  # fmt: skip
