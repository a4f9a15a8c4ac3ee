"""Probes on intermediate values: non-finite, lost in half precision, units never active."""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import median

import torch

from course.debug.probes.loop import norm
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session, clone, is_a_pair
from course.debug.probes.tape import Tape

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
LEAST_ROWS = 64
"""Examples below which a unit may be off by chance: one that is on for every twentieth example is
off for 64 of them in 4 % of the cases."""
LEAST_UNITS = 8
"""Units of a ReLU layer below which it is too narrow for a share."""
ALIVE = 0.1
"""Share of the units that are on for some example, below which a layer is dead."""
LOST = 0.5
"""Share of gradients that are exactly 0, from which most of them are lost."""


def dead_units(session: Session) -> Iterator[Finding]:
    """Most units of a ReLU layer are active for some example."""
    tape = session.loop.tape
    if not tape.functions.relu_alive:
        raise NotChecked("no ReLU was seen")
    if tape.functions.relu_rows < LEAST_ROWS:
        raise NotChecked(f"fewer than {LEAST_ROWS} examples were seen")
    for name, alive in tape.functions.relu_alive.items():
        share = float(alive.float().mean())
        if alive.numel() >= LEAST_UNITS and share < ALIVE:
            yield Finding(
                "dead-relu", "error",
                f"{1 - share:.0%} of the units of {name} are 0 for every example seen: they get no "
                "gradient and stay that way.",
                {"dead_share": 1 - share, "units": alive.numel()},
                "nn.init.kaiming_normal_(layer.weight, nonlinearity='relu')\n"
                "nn.init.zeros_(layer.bias)  # or nn.LeakyReLU(0.01)",
            )  # fmt: skip
            return


def finite(session: Session) -> Iterator[Finding]:
    """Losses and gradients are finite if the data is."""
    loop = session.loop
    bad = [i for i, v in enumerate(loop.losses) if not math.isfinite(v)]
    steps = loop.tape.of("step")
    nan_steps = [i for i, e in enumerate(steps) if not math.isfinite(norm(e.gradient))]
    if nan_steps and (not bad or nan_steps[0] <= 2):
        yield Finding(
            "non-finite-loss", "error",
            f"The gradient is inf or nan in {len(nan_steps)} of {len(steps)} steps, first in step "
            f"{nan_steps[0]}: one such step makes every weight nan.",
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
    """Gradients that pass through float16 do not underflow there."""
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
    if lost > LOST and lost > 2 * in_float32:
        yield Finding(
            "fp16-underflow", "error",
            f"{lost:.0%} of the gradients are exactly 0 after passing through float16, but only "
            f"{in_float32:.0%} without it: they are smaller than 6e-8, the smallest positive "
            "number of float16.",
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


def _stepped_before_backward(session: Session) -> bool:
    """An optimizer moved the weights between the last forward and its backward."""
    kinds = [e.kind for e in session.loop.tape.events]
    since = kinds[max((i for i, kind in enumerate(kinds) if kind == "output"), default=0) :]
    return "stepped" in since


def raises(session: Session) -> Iterator[Finding]:
    """The loader and the loop run without raising."""
    if session.epoch.error:
        count = len(session.epoch.batches)
        yield Finding(
            "raises", "error",
            f"The train_loader raises after {count} batches: {session.epoch.error[:160]}",
            {"batches": count}, "for index in range(len(dataset)):\n    dataset[index]",
        )  # fmt: skip
        return
    if not session.has_a_loop:
        try:
            session.loop  # noqa: B018
        except NotChecked as reason:
            if _should_step(session):
                yield _cannot_step(str(reason))
            return
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


def _should_step(session: Session) -> bool:
    """What was passed in says how to make a step. An empty loader is another finding; batches of
    another form may be right, with a loop that was not passed in."""
    batches, setup = session.epoch.batches, session.setup
    return bool(batches) and (setup.loss_of is not None or is_a_pair(batches[0]))


def _cannot_step(reason: str) -> Finding:
    """Our plain step cannot be taken on the author's parts, and there is no other."""
    return Finding(
        "raises", "error",
        f"No step can be made of model, loss_fn and optimizer as they were passed in: {reason}. "
        "Almost nothing else could be checked.",
        {}, "inputs, targets = next(iter(train_loader))\nloss_fn(model(inputs), targets)\n"
        "# other batches or outputs: pass in loss_of(model, batch), or train_step(batch)",
    )  # fmt: skip
