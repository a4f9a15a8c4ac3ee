"""Relations on the weights: what shapes the loss has a gradient; copies are copies; means are slow.

Four sets should agree: what is a parameter, what gets a gradient, what moves, what is saved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from course.debug.probes.frozen import gets_gradient, is_declared_frozen
from course.debug.probes.report import Finding
from course.debug.probes.session import STEPS, NotChecked, Session, clone
from course.debug.probes.thresholds import LEAST_STEPS, OFTEN
from course.debug.relations.program import Program, close, program_of
from course.state.snapshot import reached

NUDGE = 0.3
"""Of a weight's own size: by so much it is moved to see whether the loss depends on it."""
MOST_NUDGED = 4
SLOW = 0.5
"""An average that goes more than half of the way to the weights in one step is none. Warm-ups such
as min(decay, (1 + step) / (10 + step)) are below it from the eighth step on."""
HALF = (torch.bfloat16, torch.float16)
COPIES = 0.999
"""Share of the way from which the second model is a copy, e.g. a target network, not a mean."""


def silent(session: Session) -> Iterator[Finding]:
    """A weight that the optimizer holds and the loss depends on gets a gradient."""
    try:
        session.outputs  # noqa: B018 (asked there already)
    except NotChecked:
        pass
    else:
        raise NotChecked("asked of (inputs, targets) already")
    if len(session.loop.tape.of("backward")) < 4:
        raise NotChecked("fewer than 4 backwards were seen")
    trained = gets_gradient(session)
    held = {id(p) for o in session.optimizers for g in o.param_groups for p in g["params"]}
    quiet = [
        name for name, p in session.model.named_parameters()
        if id(p) in held and p.requires_grad and id(p) not in trained
        and not is_declared_frozen(session, name)
    ]  # fmt: skip
    if not quiet:
        return
    program = program_of(session)
    base = program.steady_loss(program.batches[0])
    for name in quiet[:MOST_NUDGED]:
        if not close(base, _loss_without(program, name)):
            yield Finding(
                "frozen-params", "warning",
                f"The loss depends on {name}, the optimizer holds it, and no gradient reaches it "
                f"({len(quiet)} such weights): the graph is cut by detach(), no_grad(), .data or "
                "numpy.",
                {"without_gradient": len(quiet), "first": name},
                "x = self.encoder(x)  # no .detach(), .data or torch.no_grad() before the loss",
            )  # fmt: skip
            return
    unused = [e for e in session.loop.tape.of("loss") if e.info.get("unused")]
    if len(unused) >= OFTEN * len(session.loop.losses) > 1:
        yield Finding(
            "frozen-params", "warning",
            f"{quiet[0]} gets no gradient, and a {unused[0].name} that is computed in every step "
            "never goes backward: one of several losses was not added.",
            {"without_gradient": len(quiet), "first": quiet[0], "losses_unused": len(unused)},
            "loss = loss_a + loss_b\nloss.backward()",
        )  # fmt: skip


def _loss_without(program: Program, name: str) -> float:
    """The first batch's loss with one weight nudged."""
    parameter = program.model.get_parameter(name)

    def nudge() -> None:
        own = torch.Generator().manual_seed(0)
        noise = torch.randn(parameter.shape, generator=own).to(parameter)
        parameter.add_(NUDGE * (parameter.abs().mean() + 0.1) * noise)

    return program.step(program.batches[0], prepare=nudge).loss


def by_reference(session: Session) -> Iterator[Finding]:
    """What is kept as the best weights does not move with the living ones."""
    if session.setup.train_step is None and session.setup.train is None:
        raise NotChecked("no train_step or train")
    if session.setup.evaluate is None:
        raise NotChecked("no evaluate()")
    living = dict(session.model.state_dict(keep_vars=True))
    own = {id(t) for t in living.values()}
    with session.observe():
        try:
            if session.setup.train is not None:
                session.setup.train(STEPS)  # which may keep the best at the end of an epoch
            else:
                for batch in program_of(session).batches[:2]:
                    session.setup.train_step(clone(batch))
            session.setup.evaluate()
        except Exception as error:
            raise NotChecked(f"the loop raises {type(error).__name__}") from error
        kept = [
            thing for thing in reached(vars(session.setup))
            if isinstance(thing, Mapping) and _is_state_of(thing, living, own)
        ]  # fmt: skip
    if kept:
        yield Finding(
            "checkpoint-by-reference", "error",
            f"The model's weights are kept by name ({len(kept[0])} tensors) and share their memory "
            "with the living ones: the best or the average that they should hold is always the "
            "last.",
            {"tensors": len(kept[0])},
            "best = copy.deepcopy(model.state_dict())",
        )  # fmt: skip


def _is_state_of(thing: Mapping, living: dict[str, Tensor], own: set[int]) -> bool:
    """A state_dict in another's hands: the model's names, its memory, and detached tensors.

    All names, or those of the parameters alone, as averages are kept.
    """
    parameters = {name for name, tensor in living.items() if isinstance(tensor, nn.Parameter)}
    if set(thing) not in (set(living), parameters) or not thing:
        return False
    held = [(thing[name], living[name]) for name in thing if isinstance(thing[name], Tensor)]
    return len(held) == len(thing) and all(
        id(a) not in own and a.data_ptr() == b.data_ptr() for a, b in held if b.numel()
    )


def moves(session: Session) -> Iterator[Finding]:
    """A step moves the weights that have a gradient, by more than rounding takes away."""
    tape = session.loop.tape
    steps, after = tape.of("step"), tape.of("stepped")
    if not any(p.dtype in HALF for p in tape.watched):
        raise NotChecked("no weights of 16 bits")
    if any(not type(o).__module__.startswith("torch.optim") for o in session.optimizers):
        raise NotChecked("an optimizer of the author's may round at random or carry the rest along")
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
            f"{stayed / asked:.0%} of the weights that had a gradient were the same after the "
            "step: in 16 bits an update smaller than the last digit of its weight is lost.",
            {"share_unmoved": stayed / asked, "steps": len(steps)},
            "model.float()  # weights in float32\n"
            "with torch.autocast(device_type, torch.bfloat16): loss = loss_fn(model(x), y)",
        )  # fmt: skip


def average(session: Session) -> Iterator[Finding]:
    """A running mean of the weights goes a small part of the way to them in each step."""
    step = session.setup.train_step
    if step is None:
        raise NotChecked("needs train_step")
    means = _averages(session)
    if not means:
        raise NotChecked("no second copy of the model is seen")
    batches = program_of(session).batches
    with session.observe():
        for number in range(STEPS):
            before = [_flat(mean) for mean in means]
            step(clone(batches[number % len(batches)]))
        now, model = [_flat(mean) for mean in means], _flat(session.model)
    for old, new in zip(before, now, strict=True):
        way = (model - old).norm()
        went = float((new - old).norm() / way.clamp_min(1e-12))
        straight = torch.allclose(new, old + went * (model - old), atol=1e-5, rtol=1e-4)
        if way > 0 and straight and SLOW < went < COPIES:
            yield Finding(
                "ema-decay", "warning",
                f"The average of the weights goes {went:.0%} of the way to them in each step: "
                "decay and 1 - decay are exchanged.",
                {"share_of_the_way": went},
                "average.lerp_(weight, 1 - decay)  # decay = 0.999",
            )  # fmt: skip
            return


def _averages(session: Session) -> list[nn.Module]:
    """Modules within reach with the model's own names and shapes that no optimizer holds."""
    shapes = {n: p.shape for n, p in session.model.named_parameters()}
    held = {id(p) for o in session.optimizers for g in o.param_groups for p in g["params"]}
    inside = {id(m) for m in session.model.modules()}
    return [
        thing for thing in reached(vars(session.setup))
        if isinstance(thing, nn.Module) and id(thing) not in inside
        and {n: p.shape for n, p in thing.named_parameters()} == shapes
        and not any(id(p) in held for p in thing.parameters())
    ]  # fmt: skip


def _flat(module: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten().double() for p in module.parameters()])
