"""Probes on sizes: learning rate, dead units, non-finite numbers, and what the loop raises."""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import median

import torch

from course.debug.probes.loop import norm
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session, clone
from course.debug.probes.tape import Tape

FIT_STEPS = 12


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
    if session.out_of_time(0.7):
        raise NotChecked("no time left")


def too_large(session: Session) -> Iterator[Finding]:
    """A few steps on one batch do not throw the loss up."""
    _plain_model(session)
    losses = fit(session, 1.0)
    if not math.isfinite(losses[0]):
        raise NotChecked("the first loss is not finite")
    high = not math.isfinite(losses[-1]) or min(losses[-4:]) > 1.5 * abs(losses[0]) + 0.1
    stuck = len(losses) == FIT_STEPS and max(losses) > 20 * abs(losses[0]) + 1
    if not (high or stuck):
        return
    own = [v for v in session.loop.losses if math.isfinite(v)] if not session.loop.own else []
    if len(own) >= 8 and len(own) == len(session.loop.losses):
        calm = sum(own[-4:]) / 4 < 1.05 * max(own[0], 1e-9) and max(own) < 5 * abs(own[0]) + 0.1
        if calm:
            raise NotChecked("the user's own steps keep the loss in bounds")
    for factor in (0.1, 0.01, 0.001):
        gentle = fit(session, factor)
        if math.isfinite(gentle[-1]) and gentle[-1] < 0.98 * losses[0]:
            lr = float(session.optimizers[0].param_groups[0]["lr"])
            yield Finding(
                "lr-too-large", "error",
                f"On one batch the loss goes from {losses[0]:.3g} to {max_of(losses):.3g} at "
                f"lr {lr:g}, and falls to {gentle[-1]:.3g} at {lr * factor:g}.",
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
    if session.setup.scheduler is not None and (lr < 0.2 * peak or lr == 0):
        raise NotChecked("the schedule starts low")
    loop = session.loop
    if len(loop.tape.of("stepped")) < 8:
        raise NotChecked("fewer than 8 updates")
    moved = norm([b - a for a, b in zip(loop.start, loop.end, strict=True)])
    size = norm(list(loop.start))
    if moved > 2e-4 * size or any(norm(e.gradient) == 0 for e in loop.tape.of("step")[:4]):
        return
    if lr > 0 and type(session.setup.scheduler).__name__ in ("OneCycleLR", "LambdaLR", "CyclicLR"):
        raise NotChecked("the schedule starts low")
    plain = fit(session, 1.0)
    if plain[-1] < 0.995 * plain[0]:
        return
    for factor in (100.0, 1e4, 1e6, 1e8):
        bold = fit(session, factor) if lr > 0 else None
        if bold is None or (math.isfinite(bold[-1]) and bold[-1] < 0.97 * bold[0]):
            yield Finding(
                "lr-too-small", "warning",
                f"{len(loop.tape.of('stepped'))} updates at lr {lr:g} move the weights by "
                f"{moved / max(size, 1e-12):.1e} of their size: the loss stays where it is.",
                {"lr": lr, "relative_movement": moved / max(size, 1e-12), "loss_first": plain[0],
                 "loss_last": plain[-1]},
                f"lr = {lr * factor if lr else 1e-3:g}",
            )  # fmt: skip
            return


WORSE = 3.0
"""A start is bad when its loss is so many times that of a guess and that of fresh weights."""
GROWN = 2.0
"""A tensor has grown when its norm is so many times what its layer draws anew."""


def start(session: Session) -> Iterator[Finding]:
    """Training does not start from weights that something before it has blown up.

    One layer scaled up may be meant, so nearly all must have grown.
    """
    if session.task != "classification":
        raise NotChecked("what a guess costs is known for classes alone")
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
    if first > WORSE * fresh and grown >= 0.8 * len(ratios):
        yield Finding(
            "bad-start", "warning",
            f"The first loss is {first:.3g}; guessing costs {guess:.3g}, and the same layers "
            f"drawn anew {fresh:.3g}. Nearly all weights are far larger than drawn: something "
            "moved them before training, as a sweep of learning rates that does not restore them.",
            {"first_loss": first, "guess": guess, "fresh_weights": fresh,
             "tensors_grown": grown, "of": len(ratios), "median_growth": median(ratios)},
            "before = copy.deepcopy(model.state_dict())\n...  # the sweep\n"
            "model.load_state_dict(before)",
        )  # fmt: skip


def dead_units(session: Session) -> Iterator[Finding]:
    """Most units of a ReLU layer are on for some example."""
    tape = session.loop.tape
    if not tape.relu_alive:
        raise NotChecked("no ReLU was seen")
    if tape.relu_rows < 64:
        raise NotChecked("fewer than 64 examples were seen")
    for name, alive in tape.relu_alive.items():
        share = float(alive.float().mean())
        if alive.numel() >= 8 and share < 0.1:
            yield Finding(
                "dead-relu", "error",
                f"{1 - share:.0%} of the units of {name} are 0 for every example seen: they get no "
                "gradient and stay so.",
                {"dead_share": 1 - share, "units": alive.numel()},
                "nn.init.kaiming_normal_(layer.weight, nonlinearity='relu')\n"
                "nn.init.zeros_(layer.bias)  # or nn.LeakyReLU(0.01)",
            )  # fmt: skip
            return


def finite(session: Session) -> Iterator[Finding]:
    """Losses and gradients are finite where the data is."""
    loop = session.loop
    bad = [i for i, v in enumerate(loop.losses) if not math.isfinite(v)]
    steps = loop.tape.of("step")
    nan_steps = [i for i, e in enumerate(steps) if not math.isfinite(norm(e.gradient))]
    if nan_steps and (not bad or nan_steps[0] <= 2):
        yield Finding(
            "non-finite-loss", "error",
            f"The gradient is inf or nan in {len(nan_steps)} of {len(steps)} steps, the first time "
            f"in step {nan_steps[0]}: one such step makes every weight nan.",
            {"steps_with_nan": len(nan_steps), "first": nan_steps[0]},
            "torch.autograd.set_detect_anomaly(True)  # names the operation: log(0), sqrt(0), 0/0",
        )  # fmt: skip
    elif (bad and len(loop.losses) > 1) or bad == [0]:
        yield Finding(
            "non-finite-loss", "error",
            f"The loss is inf or nan in {len(bad)} of {len(loop.losses)} steps, first in step "
            f"{bad[0]}.",
            {"non_finite": len(bad), "first": bad[0]},
            "if not torch.isfinite(loss):\n    raise ValueError(f'loss {loss}')",
        )  # fmt: skip


def underflow(session: Session) -> Iterator[Finding]:
    """Gradients that pass through float16 do not vanish there."""
    tape = session.loop.tape
    if not any(_is_half(e.output) for e in tape.of("output") if e.graph):
        raise NotChecked("no output in float16 was seen")
    # Right after backward: what is set to zero later, as by a mask, is meant.
    shares = [share_of_zeros(e.info["after"]) for e in tape.of("backward") if "after" in e.info]
    if len(shares) < 3:
        raise NotChecked("fewer than 3 backwards")
    whole = Tape(session.model, session.optimizers)
    with session.observe(), whole.running():
        session.plain_step(clone(session.epoch.batches[0]))
    in_float32 = share_of_zeros(whole.of("backward")[0].info["after"])
    lost = median(shares)
    if lost > 0.5 and lost > 2 * in_float32:
        yield Finding(
            "fp16-underflow", "error",
            f"{lost:.0%} of the gradients are exactly 0 after passing through float16, and "
            f"{in_float32:.0%} without it: they are smaller than 6e-8, the least it can hold.",
            {"zeros_in_float16": lost, "zeros_in_float32": in_float32, "backwards": len(shares)},
            "scaler = torch.amp.GradScaler(device.type)  # or torch.autocast(..., torch.bfloat16)\n"
            "scaler.scale(loss).backward()\nscaler.step(optimizer)\nscaler.update()",
        )  # fmt: skip


def _is_half(output: torch.Tensor | None) -> bool:
    return output is not None and output.dtype == torch.float16


def share_of_zeros(gradients: list[torch.Tensor | None]) -> float:
    """Share of numbers that are exactly 0, among gradients that were made."""
    made = [g for g in gradients if g is not None]
    return sum(int((g == 0).sum()) for g in made) / max(1, sum(g.numel() for g in made))


WORDS = (
    ("same device", "wrong-device", "model.to(device)\ninputs = inputs.to(device)"),
    ("found at least two devices", "wrong-device", "inputs = inputs.to(device)"),
    ("not on the expected device", "wrong-device", "made = torch.zeros_like(inputs)"),
    ("multi-target not supported", "one-hot-labels", "targets = targets.squeeze(1)  # [B]"),
    ("class probabilities", "one-hot-labels", "targets = targets.argmax(dim=1)"),
    ("out of bounds", "label-out-of-range", "assert targets.max() < num_classes"),
    ("target dtype", "wrong-label-dtype", "targets = targets.long()"),
    ("expected scalar type Long", "wrong-label-dtype", "targets = targets.long()"),
    ("not implemented for", "wrong-label-dtype", "targets = targets.long()"),
    ("result type Float can't be cast", "wrong-label-dtype", "targets = targets.float()"),
    ("same dtype", "wrong-label-dtype", "inputs = inputs.float()"),
    ("modified by an inplace operation", "inplace-modified",
     "x = x * 2  # not x.mul_(2); nn.ReLU()  # not nn.ReLU(inplace=True)"),
    ("more than 1 value per channel", "batch-of-one",
     "DataLoader(dataset, batch_size, shuffle=True, drop_last=True)"),
    ("backward through the graph a second time", "undetached-logging", "hidden = hidden.detach()"),
)  # fmt: skip


def _stepped_before_backward(session: Session) -> bool:
    """An optimizer moved the weights between the last forward and its backward."""
    kinds = [e.kind for e in session.loop.tape.events]
    since = kinds[max((i for i, kind in enumerate(kinds) if kind == "output"), default=0) :]
    return "stepped" in since


def raises(session: Session) -> Iterator[Finding]:
    """The loop runs."""
    error = session.loop.error
    if error is None:
        return
    error = error.__cause__ or error
    text = str(error)
    if "does not require grad" in text:
        return
    kind, fix = "raises", "# run one batch by hand and read the shapes"
    for words, known, mend in WORDS:
        if words in text:
            kind, fix = known, mend
            break
    if "inplace" in text and any(e.retained for e in session.loop.tape.of("backward")):
        kind, fix = "undetached-logging", "hidden = hidden.detach()  # instead of retain_graph=True"
    elif kind == "inplace-modified" and _stepped_before_backward(session):
        kind, fix = "step-before-backward", "loss.backward()\noptimizer.step()"
    if kind == "wrong-label-dtype":
        targets = getattr(session.epoch.batches[0], "__getitem__", lambda _: None)(1)
        if isinstance(targets, torch.Tensor) and targets.dim() == 2 and targets.shape[1] > 1:
            kind, fix = "one-hot-labels", "targets = targets.argmax(dim=1)"
    yield Finding(
        kind, "error", f"Step {session.loop.tape.call} raises {type(error).__name__}: {text[:160]}",
        {"call": session.loop.tape.call}, fix,
    )  # fmt: skip
