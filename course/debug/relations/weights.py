"""Relations on the weights: what affects the loss has a gradient, and what has a gradient moves.

Three sets should agree: the parameters, what gets a gradient, what moves.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from course.debug.probes.frozen import gets_gradient, is_declared_frozen
from course.debug.probes.loop import (
    is_nonzero,
    of_optimizer,
    own_loop,
    steppers_of,
    updates_of,
)
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.tape import Event
from course.debug.probes.thresholds import LEAST_STEPS, MOST, OFTEN
from course.debug.relations.program import Program, program_of
from course.debug.relations.steps import close

NUDGE = 0.3
"""Of a weight's own size: by so much it is moved to see whether the loss depends on it."""
MOST_NUDGED = 4
SLIGHT = 0.05
"""The same for weights whose gradient is 0: of a batch some numbers are then rounded to another
side, and units that ReLU has shut stay shut."""
HALF = (torch.bfloat16, torch.float16)


def silent(session: Session) -> Iterator[Finding]:
    """A weight that the optimizer holds and the loss depends on gets a gradient."""
    try:
        session.outputs  # noqa: B018 (asked there already)
    except NotChecked:
        pass
    else:
        raise NotChecked("already checked for (inputs, targets)")
    if len(session.loop.tape.of("backward")) < 4:
        raise NotChecked("fewer than 4 backwards were seen")
    trained = gets_gradient(session)
    held = {id(p) for o in session.optimizers for g in o.param_groups for p in g["params"]}
    stepped = {id(p) for o in steppers_of(session.loop.tape) for g in o.param_groups
               for p in g["params"]}  # fmt: skip
    tape = session.loop.tape
    made = [zip(tape.watched, e.info.get("after", ()), strict=False) for e in tape.of("backward")]
    reached = {id(p) for pairs in made for p, gradient in pairs if gradient is not None}
    quiet = [
        name for name, p in session.model.named_parameters()
        if id(p) in held & stepped and p.requires_grad and id(p) not in trained | reached
        and not is_declared_frozen(session, name)
    ]  # fmt: skip
    if not quiet:
        return
    program = program_of(session)
    base, again = program.first().loss, program.step(program.batches[0], again=True).loss
    if base != again:
        raise NotChecked("one seed gives two losses")
    for name in quiet[:MOST_NUDGED]:
        if not close(base, _loss_without(program, name)):
            yield Finding(
                "frozen-params", "warning",
                f"The loss depends on {name}, and the optimizer holds it, but no gradient reaches "
                f"it ({len(quiet)} such weights): the graph is cut by detach(), no_grad(), .data "
                "or numpy.",
                {"without_gradient": len(quiet), "first": name},
                "x = self.encoder(x)  # no .detach(), .data or torch.no_grad() before the loss",
            )  # fmt: skip
            return
    unused = [e for e in session.loop.tape.of("loss") if e.info.get("unused")]
    if len(unused) >= OFTEN * len(session.loop.losses) > 1:
        yield Finding(
            "frozen-params", "warning",
            f"{quiet[0]} gets no gradient, and backward is never called on a {unused[0].name} that "
            "is computed in every step: one of several losses was not added.",
            {"without_gradient": len(quiet), "first": quiet[0], "losses_unused": len(unused)},
            "loss = loss_a + loss_b\nloss.backward()",
        )  # fmt: skip


def flat(session: Session) -> Iterator[Finding]:
    """If a weight's gradient is 0 in every backward, the loss does not depend on that weight.

    Rounding, comparing and argmax() have a slope of 0 nearly everywhere: what comes before them
    gets a gradient of zeros, and never learns.
    """
    tape, met, nonzero = session.loop.tape, set(), gets_gradient(session)
    backwards = tape.of("backward")
    if len(backwards) < LEAST_STEPS:
        raise NotChecked(f"fewer than {LEAST_STEPS} backwards were seen")
    for event in backwards:
        made = zip(tape.watched, event.info.get("after", ()), strict=False)
        met |= {id(p) for p, gradient in made if gradient is not None}
    zero = [
        f"{path}.{name}".lstrip(".") for path, layer in session.model.named_modules()
        for own in [dict(layer.named_parameters(recurse=False))]
        for name, p in own.items()  # a bias alone may cancel, as that of a critic of two sides
        if p.dim() > 1 and all(id(q) in met - nonzero for q in own.values())
        and not is_declared_frozen(session, f"{path}.{name}")
    ]  # fmt: skip
    if not zero:
        return
    program = program_of(session)
    base, again = program.first().loss, program.step(program.batches[0], again=True).loss
    if base != again:
        raise NotChecked("one seed gives two losses")
    for name in zero[:MOST_NUDGED]:
        if not close(base, _loss_without(program, name, SLIGHT)):
            yield Finding(
                "wrong-gradient", "error",
                f"In {len(backwards)} backwards the gradient of {name} is 0 everywhere "
                f"({len(zero)} such weights), but the loss depends on it: in between is a "
                "rounding, a comparison or an argmax(), whose slope is 0.",
                {"weights": len(zero), "first": name, "backwards": len(backwards)},
                "hard = soft.round()\nsoft + (hard - soft).detach()  # straight through",
            )  # fmt: skip
            return


def _loss_without(program: Program, name: str, part: float = NUDGE) -> float:
    """The first batch's loss with one weight nudged by a part of its size."""
    parameter = program.model.get_parameter(name)

    def nudge() -> None:
        own = torch.Generator().manual_seed(0)
        noise = torch.randn(parameter.shape, generator=own).to(parameter)
        parameter.add_(part * (parameter.abs().mean() + 0.1) * noise)

    return program.step(program.batches[0], prepare=nudge).loss


def moves(session: Session) -> Iterator[Finding]:
    """A step moves the weights that have a gradient, and rounding does not undo it."""
    tape = session.loop.tape
    steps, after = tape.of("step"), tape.of("stepped")
    if not any(p.dtype in HALF for p in tape.watched):
        raise NotChecked("no weights of 16 bits")
    if any(not type(o).__module__.startswith("torch.optim") for o in session.optimizers):
        raise NotChecked(
            "the author's own optimizer may round at random or carry the remainder along"
        )
    if len(steps) < LEAST_STEPS or len(after) != len(steps):
        raise NotChecked(f"fewer than {LEAST_STEPS} steps were seen")
    asked = stayed = 0
    for one, other in zip(steps, after, strict=True):
        if not any(one.lrs):
            continue
        for g, a, b in zip(one.gradient, one.weights, other.weights, strict=True):
            if g is not None and a.dtype in HALF:
                asked += int((g != 0).sum())
                stayed += int(((g != 0) & (a == b)).sum())
    if stayed > OFTEN * asked > 0:
        yield Finding(
            "updates-rounded-away", "warning",
            f"{stayed / asked:.0%} of the weights with a gradient were the same after the step: in "
            "16 bits, an update smaller than the last digit of its weight is lost.",
            {"share_unmoved": stayed / asked, "steps": len(steps)},
            "model.float()  # weights in float32\n"
            "with torch.autocast(device_type, torch.bfloat16): loss = loss_fn(model(x), y)",
        )  # fmt: skip


def cleared(session: Session) -> Iterator[Finding]:
    """A weight that a loss reaches has a gradient when its optimizer steps.

    Of several backwards before a step, an earlier one reaches the weight, the gradients are
    cleared, and no later one reaches it: that gradient is never used. A weight that later ones
    reach too, e.g. after an attack or a first pass of sharpness-aware minimisation, is not
    reported.
    """
    tape = own_loop(session).tape
    for optimizer in steppers_of(tape):
        index = of_optimizer(tape, optimizer)
        seen, times = 0, dict.fromkeys(index, 0)
        for _, since, step in updates_of(tape, optimizer):
            seen += 1
            for i in index:
                times[i] += _lost(i, since, step)
        never = [i for i in index if times[i] >= max(LEAST_STEPS, MOST * seen)]
        if never:
            names = {id(p): name for name, p in session.model.named_parameters()}
            first = names.get(id(tape.watched[never[0]]), "a tensor of the optimizer")
            yield Finding(
                "grads-cleared-before-step", "error",
                f"In {times[never[0]]} of {seen} updates a backward reaches {first} ({len(never)} "
                "such weights), its gradient is cleared, and no later one reaches it before the "
                "step: the gradient of one of several losses is thrown away.",
                {"weights": len(never), "first": first, "updates": seen},
                "optimizer.zero_grad()  # once, before the first backward\n"
                "loss_a.backward()\nloss_b.backward()\noptimizer.step()",
            )  # fmt: skip
            return


def _lost(i: int, since: list[Event], step: Event) -> bool:
    """A weight got a gradient, a later backward found none, and the step has none.

    A later one whose parts cancel reaches it too: it makes a gradient of zeros where none was.
    """
    if len(since) < 2 or is_nonzero(step.gradient[i]):
        return False
    made = [n for n, e in enumerate(since) if "after" in e.info and is_nonzero(e.after[i])]
    later = since[made[0] + 1 :] if made else []
    if any(e.before[i] is None and e.info.get("after", [None] * (i + 1))[i] is not None
           for e in later):  # fmt: skip
        return False
    return any(not is_nonzero(e.before[i]) for e in later)
