"""Probes on what the loss receives: softmax or sigmoid applied twice, or not at all."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from course.debug.probes.pairing import met_by_the_loss
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session, clone
from course.debug.probes.tape import Tape
from course.debug.probes.thresholds import LEAST_STEPS, ROUNDED

EQUAL = 1e-4
"""Distance of two losses of the same numbers that rounding of float32 stays below."""
SCALE_SHOWS = 1e-3
"""Change of the loss under doubled outputs from which it depends on their scale, well above
`EQUAL`."""
ZEROS = 0.15
"""Share of exact zeros among outputs that are never negative, from which they went through a ReLU:
it turns about half of those of either sign into 0."""
AT_THE_FLOOR = 1e-3
"""Distance from ln(1 + (C-1)/e) that counts as equal: three digits are what the finding prints."""
EDGE = 0.01
"""Distance from an end of the range that counts as the end: a sigmoid is so near from 4.6 on."""
AT_EDGES = 0.5
"""Share of the outputs that have to be at an end, for inputs 1000 times larger."""
LARGER = 10.0
"""Factor on the weights: two layers make logits of 0.01 to 0.1 larger than 1, and what a sigmoid
gives stays between 0 and 1."""
BCE = "bce_with_logits"
LOG_OFF = 10 * ROUNDED
"""Distance from 1 of a sum of exp(outputs) from which they are not log-probabilities; exp
multiplies what rounding did to a logarithm by its size."""


def _is_cross_entropy(session: Session, met: dict[str, Any]) -> bool:
    """Told by name where torch's was called; else by its answer: shifting a row changes nothing."""
    if met["name"]:
        return met["name"] == "cross_entropy"
    outputs, targets = met["inputs"], met["targets"]
    if outputs.dim() != 2 or outputs.shape[1] < 2:
        return False
    base = torch.randn(outputs.shape, generator=torch.Generator().manual_seed(0))
    base = base.to(outputs.device, outputs.dtype)
    with session.observe(), torch.no_grad():
        a, b = (float(session.loss(o, targets)) for o in (base, base + 3.0))
        c = float(session.loss(2 * base, targets))
    return math.isfinite(a) and abs(a - b) < EQUAL * (1 + abs(a)) and abs(a - c) > SCALE_SHOWS


def double_softmax(session: Session) -> Iterator[Finding]:
    """Cross-entropy gets logits, not probabilities."""
    met = met_by_the_loss(session)
    for one in met[:1]:
        x = one["inputs"]
        if x.dim() < 2 or x.shape[1] < 2 or not _is_cross_entropy(session, one):
            raise NotChecked("the loss is not a cross-entropy over classes")
        together = [m["inputs"] for m in met if m["inputs"].dim() == x.dim()]
        rows = [t.float() for t in together]
        sums = max(float((t.sum(1) - 1).abs().max()) for t in rows)
        lowest = min(float(t.min()) for t in rows)
        if not any(bool(t.any()) for t in rows):
            raise NotChecked("all outputs are 0, as from a last layer of zeros")
        if sums < ROUNDED and lowest >= 0:
            classes = x.shape[1]
            yield Finding(
                "double-softmax", "error",
                "Cross-entropy applies softmax itself, but here it gets probabilities: the loss "
                "cannot fall below ln(1 + (C-1)/e).",
                {"row_sums_off_1": sums, "smallest_output": lowest,
                 "loss_floor": math.log(1 + (classes - 1) / math.e)},
                "loss = F.cross_entropy(logits, targets)  # no softmax before it",
            )  # fmt: skip
        elif lowest >= 0 and max(float(t.max()) for t in rows) <= 1 and _bounded(session, 0.0, 1.0):
            yield Finding(
                "double-softmax", "error",
                "Cross-entropy expects logits of any sign, but here it gets numbers squeezed into "
                "0..1.",
                {"smallest": lowest, "largest": max(float(t.max()) for t in rows)},
                "loss = F.cross_entropy(logits, targets)  # no sigmoid or softmax before it",
            )  # fmt: skip
        elif lowest >= 0 and sum(float((t == 0).float().mean()) for t in rows) / len(rows) > ZEROS:
            yield Finding(
                "relu-on-logits", "warning",
                "The logits went through a ReLU: a class with logit 0 gets no gradient.",
                {"exact_zeros": sum(float((t == 0).float().mean()) for t in rows) / len(rows)},
                "return self.head(x)  # no ReLU after the last layer",
            )  # fmt: skip


def softmax_in_the_loss(session: Session) -> Iterator[Finding]:
    """Perfect logits bring the loss to 0 unless the loss squeezes them first (N38)."""
    _, targets = session.batch
    outputs = session.outputs
    if outputs.dim() != 2 or outputs.shape[1] < 2 or targets.shape != outputs.shape[:1]:
        raise NotChecked("no outputs [B, C] with targets [B]")
    low, high = int(targets.min()), int(targets.max())
    if targets.is_floating_point() or low < 0 or high >= outputs.shape[1]:
        raise NotChecked("targets are not class indices")
    perfect = 100.0 * nn.functional.one_hot(targets.long(), outputs.shape[1]).to(outputs)
    with session.observe(), torch.no_grad():
        reached = float(session.loss(perfect, targets))
    classes = outputs.shape[1]
    floor = math.log(1 + (classes - 1) / math.e)
    if abs(reached - floor) < AT_THE_FLOOR:
        yield Finding(
            "double-softmax", "error",
            "loss_fn squeezes its inputs before a cross-entropy that applies softmax itself: even "
            f"with perfect logits the loss is {reached:.3f} = ln(1 + (C-1)/e), and never less.",
            {"loss_of_perfect_logits": reached, "classes": classes},
            "loss = F.cross_entropy(logits, targets)  # no softmax before it",
        )  # fmt: skip


def _bounded(session: Session, low: float, high: float) -> bool:
    """Outputs stay in a range and fill up its edges when inputs are 1000 times larger."""
    inputs, _ = session.batch
    if not inputs.is_floating_point():
        return False
    try:
        wide = session.predict(inputs * 1000)
    except NotChecked:
        return False
    wide = wide.float()
    inside = float(wide.min()) >= low and float(wide.max()) <= high
    near = ((wide - low).abs() < EDGE) | ((wide - high).abs() < EDGE)
    return inside and float(near.float().mean()) > AT_EDGES


def double_sigmoid(session: Session) -> Iterator[Finding]:
    """Binary cross-entropy with logits gets logits, not probabilities."""
    one = met_by_the_loss(session)[0]
    x = one["inputs"].float()
    logits_loss = one["name"] == BCE or (not one["name"] and _is_bce_logits(session, one))
    if not logits_loss:
        raise NotChecked("the loss is not a binary cross-entropy with logits")
    every = [m["inputs"].float() for m in met_by_the_loss(session)]
    if not any(bool(t.any()) for t in every):
        raise NotChecked("all outputs are 0, as from a last layer of zeros")
    squeezed = all(float(t.min()) >= 0 and float(t.max()) <= 1 for t in every)
    often = len(every) >= LEAST_STEPS and not _leaves_the_range(session)
    if squeezed and (often or _bounded(session, 0.0, 1.0)):
        yield Finding(
            "double-softmax", "error",
            "BCEWithLogitsLoss applies the sigmoid itself, but here it gets probabilities.",
            {"smallest": float(x.min()), "largest": float(x.max()), "loss_floor": 0.3133},
            "loss = F.binary_cross_entropy_with_logits(logits, targets)  # no sigmoid before",
        )  # fmt: skip


def _leaves_the_range(session: Session) -> bool:
    """With larger weights some of the loss's inputs lie outside of 0 to 1: logits that were small,
    where a sigmoid would keep them inside. A loop that was only watched is not tried."""
    if not session.epoch.batches:
        return False
    tape = Tape(session.model, session.optimizers, session.setup.scheduler)
    with session.observe():
        with torch.no_grad():
            for p in session.model.parameters():
                if p.dim() > 1:
                    p.mul_(LARGER)
        with contextlib.suppress(Exception), tape.running():
            (session.setup.train_step or session.plain_step)(clone(session.epoch.batches[0]))
    met = [e.inputs.float() for e in tape.of("loss") if e.graph and e.info["name"] == BCE]
    return any(bool(((t < 0) | (t > 1)).any()) for t in met)


def _is_bce_logits(session: Session, met: dict[str, Any]) -> bool:
    outputs, targets = met["inputs"], met["targets"]
    if outputs.shape != targets.shape or not targets.is_floating_point():
        return False
    with session.observe(), torch.no_grad():
        values = [float(session.loss(torch.full_like(outputs, z), targets)) for z in (0.0, 1.0)]
        expected = [float(nn.functional.binary_cross_entropy_with_logits(
            torch.full_like(outputs, z), targets)) for z in (0.0, 1.0)]  # fmt: skip
    return all(abs(a - b) < EQUAL for a, b in zip(values, expected, strict=True))


def _is_shares(rows: torch.Tensor) -> bool:
    """Rows that are never negative and add up to 1, as a softmax gives them."""
    return (
        rows.dim() > 1
        and bool((rows >= 0).all())
        and any(float((rows.sum(axis) - 1).abs().max()) < ROUNDED for axis in (1, -1))
    )


def missing_log_softmax(session: Session) -> Iterator[Finding]:
    """NLLLoss and KLDivLoss get log-probabilities."""
    met = met_by_the_loss(session)
    divergences = [m["inputs"].float() for m in met if m["name"] == "kl_div"]
    if divergences and all(map(_is_shares, divergences)):
        yield Finding(
            "missing-log-softmax", "error",
            "kl_div expects log-probabilities as its first argument, but here it gets "
            "probabilities, which add up to 1: the loss has its minimum elsewhere, and falls below "
            "0.",
            {"calls": len(divergences), "smallest": min(float(t.min()) for t in divergences)},
            "loss = F.kl_div(F.log_softmax(student, 1), F.softmax(teacher, 1), "
            'reduction="batchmean")',
        )  # fmt: skip
        return
    one = met[0]
    x = one["inputs"].float()
    if one["name"] != "nll_loss" or x.dim() < 2:
        raise NotChecked("the loss is not nll_loss")
    off = float((x.exp().sum(1) - 1).abs().max())
    if off > LOG_OFF:
        yield Finding(
            "missing-log-softmax", "error",
            "nll_loss expects log-probabilities, but exp(outputs) does not sum to 1, so the loss "
            "has no lower bound.",
            {"sum_of_exp_off_1": off},
            "loss = F.cross_entropy(logits, targets)  # or nll_loss(log_softmax(logits, 1), ...)",
        )  # fmt: skip
