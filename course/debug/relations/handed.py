"""Relations on the arguments of torch's functions: they are what the functions expect."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from course.debug.probes.loop import norm, own_loop
from course.debug.probes.report import Finding
from course.debug.probes.session import (
    NotChecked,
    Session,
)
from course.debug.probes.tape import Event
from course.debug.probes.thresholds import MOST, OFTEN, ROUNDED
from course.debug.relations.program import changed, program_of

LEAST_CLIPS = 3
"""Clips from which a habit is told from a single one: the first may still get what is spent."""
TIES = 0.2
"""Share of the answers up to which those that are 0 may be ties, or pairs that do not count."""
LOG_OFF = 10 * ROUNDED
"""Distance from 1 of a sum of exp(inputs) from which they are not log-probabilities."""


def log_probabilities(session: Session) -> Iterator[Finding]:
    """Losses that expect log-probabilities get logarithms of probabilities, never above 0."""
    tape = session.loop.tape
    wanted = [e for e in tape.of("log_probs") if e.inputs.dim() == 3]
    divergences = [e for e in tape.of("loss") if e.graph and e.name == "kl_div"]
    if not wanted and not divergences:
        raise NotChecked("no ctc_loss and no kl_div was seen")
    off = [e for e in wanted if _sum_off(e.inputs, -1) > LOG_OFF]
    off += [e for e in divergences if float(e.inputs.float().max()) > LOG_OFF]
    if len(off) > OFTEN * len([*wanted, *divergences]):
        x = off[0].inputs.float()
        yield Finding(
            "missing-log-softmax", "error",
            f"{off[0].name} expects log-probabilities, but here it gets raw scores: the "
            "exponentials of a row do not add up to 1, so the loss falls as the scores grow.",
            {"largest": float(x.max()), "sum_of_exp_off_1": _sum_off(x, -1), "calls": len(off)},
            "log_probs = logits.log_softmax(-1)",
        )  # fmt: skip


def blank(session: Session) -> Iterator[Finding]:
    """The blank of ctc_loss is not one of the target symbols."""
    seen = session.loop.tape.of("ctc")
    if not seen:
        raise NotChecked("no ctc_loss was seen")
    signs = torch.cat([e.targets for e in seen])
    share = float((signs == seen[0].blank).double().mean())
    if share > 0:
        yield Finding(
            "wrong-targets", "error",
            f"{share:.0%} of the target symbols of ctc_loss are {seen[0].blank}, its blank, which "
            "stands for no symbol: they can never be recognised.",
            {"share_of_blanks": share, "signs": len(signs), "blank": seen[0].blank},
            "targets = letters + 1  # 0 stays the blank; or nn.CTCLoss(blank=num_letters)",
        )  # fmt: skip


def rates(session: Session) -> Iterator[Finding]:
    """A loss that takes the exponential of what it gets does not get an exponential."""
    seen = session.loop.tape.of("rates")
    if not seen:
        raise NotChecked("no poisson_nll_loss was seen")
    twice = [e for e in seen if e.logarithms and e.made_positive]
    if len(twice) > OFTEN * len(seen):
        yield Finding(
            "targets-out-of-reach", "warning",
            "poisson_nll_loss takes the exponential of its input (log_input=True), but in "
            f"{len(twice)} of {len(seen)} calls the input already comes from exp or softplus: no "
            "rate below 1 can be predicted, and the model's output is the logarithm of the rate, "
            "not the rate.",
            {"calls": len(seen), "of_positive": len(twice)},
            "nn.PoissonNLLLoss(log_input=False)  # or no exp at the end of the model",
        )  # fmt: skip


def signs(session: Session) -> Iterator[Finding]:
    """Losses for targets 1 and -1 do not get 0."""
    seen = session.loop.tape.of("signs")
    if not seen:
        raise NotChecked("no loss for targets 1 and -1 was seen")
    answers = torch.cat([e.answers.double().flatten() for e in seen])
    zeros = float((answers == 0).double().mean())
    if zeros > TIES and bool(((answers == 0) | (answers == 1)).all()):
        yield Finding(
            "wrong-targets", "error",
            f"{seen[0].name} expects targets 1 and -1, but {zeros:.0%} of the targets it gets are "
            "0: dissimilar pairs add nothing to the loss, and nothing pushes them apart.",
            {"share_of_zeros": zeros, "answers": len(answers)},
            "answers = 2 * answers - 1  # 0 and 1 become -1 and 1",
        )  # fmt: skip


def _sum_off(scores: Tensor, axis: int) -> float:
    return float((scores.float().exp().sum(axis) - 1).abs().max())


def clipped(session: Session) -> Iterator[Finding]:
    """The gradients that are clipped are those that the next step uses."""
    tape = own_loop(session).tape
    events = [e for e in tape.events if e.kind in ("clip", "step")]
    if not any("handed" in e.info for e in events if e.kind == "clip"):
        raise NotChecked("no clipping by norm was seen")
    seen = empty = 0
    for place, event in enumerate(events):
        if event.kind != "clip" or "handed" not in event.info:
            continue
        steps = _steps_after(events[place + 1 :])
        used = set().union(*(e.handed for e in steps))
        if not used or not any(norm(e.gradient) for e in steps):
            continue
        seen += 1
        empty += not event.handed & used
    if seen >= LEAST_CLIPS and empty >= MOST * seen:
        yield Finding(
            "clip-misplaced", "error",
            f"{empty} of {seen} times clip_grad_norm_ got no parameter with a gradient that the "
            "next step uses: nothing is clipped. A generator or a filter is exhausted after its "
            "first use.",
            {"clips": seen, "of_nothing": empty},
            "params = [p for p in model.parameters() if p.requires_grad]  # a list",
        )  # fmt: skip


def _steps_after(events: list[Event]) -> list[Event]:
    """Steps until the next clip that follows one."""
    found: list[Event] = []
    for event in events:
        if event.kind == "clip" and found:
            break
        found += [event] if event.kind == "step" else []
    return found


def drawn(session: Session) -> Iterator[Finding]:
    """What a later layer reads from a learned distribution is sampled so that gradients pass."""
    tape = session.loop.tape
    cut = [e for e in tape.of("drawn into") if e.info.get("reached", True)]
    if not cut:
        raise NotChecked("no layer reads a sample from a learned distribution")
    if not tape.of("log_prob") and len(cut) >= OFTEN * len(tape.of("backward")) > 0:
        normal = "by" in cut[0].info
        yield Finding(
            "frozen-params", "warning",
            f"{cut[0].part} reads what {'torch.normal' if normal else 'sample'}() drew from a "
            "distribution with learned parameters: no gradient passes back through the sample, "
            "and no log_prob takes its place.",
            {"layer": cut[0].part, "draws": len(cut)},
            "z = mean + std * torch.randn_like(std)  # the gradient passes through" if normal else
            "z = law.rsample()  # mean + std * noise: the gradient passes through",
        )  # fmt: skip


def table(session: Session) -> Iterator[Finding]:
    """Outputs, or other numbers, [B, 1] are not combined with numbers [B], which makes a table
    [B, B]."""
    loops, what = session.loop.tape.of("table"), "model outputs"
    scored: list[Event] = []
    if session.setup.evaluate is not None:
        scored = [e for e in session.evaluation.tape.of("table") if e.function in ("eq", "ne")]
    if not loops:
        loops, what = session.loop.tape.of("table of columns"), "numbers"
    loops = loops if loops and _follows_the_rows(session, loops) else []
    for events, bug, where in (
        (loops, "broadcast-loss", "a training step"), (scored, "metric-wrong", "evaluate()"),
    ):  # fmt: skip
        if events:
            rows = events[0].rows
            yield Finding(
                bug, "error",
                f"In {where} {what} [{rows}, 1] are combined with numbers [{rows}] in "
                f"{events[0].function}: they are broadcast to a {rows} x {rows} table, in which "
                "each example meets the number of every other example.",
                {"rows": rows, "function": events[0].function, "times": len(events)},
                "advantage = reward - value.squeeze(1)  # both [B]",
            )  # fmt: skip
            return


def _follows_the_rows(session: Session, events: list[Event]) -> bool:
    """A batch of one row less makes a smaller table: the numbers are one for each row, and no list
    that happens to be as long."""
    if len({event.rows for event in events}) > 1:
        return True
    program, rows = program_of(session), events[0].rows
    less = changed(program.batches[0], lambda t: t[:-1] if t.dim() and len(t) == rows else t)
    return any(e.rows == rows - 1 for e in program.step(less).tape.of(events[0].kind))
