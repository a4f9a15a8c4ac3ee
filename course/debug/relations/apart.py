"""Relations on weights that no output depends on: they train, and do not lower the loss for free.

For example class centres inside a loss, or the weights of several losses.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from course.debug.probes.frozen import gets_gradient, is_declared_frozen
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session, clone
from course.debug.relations.program import program_of
from course.state.nested import tensors_in
from course.state.snapshot import reached

MOST_OF_A_LOSS = 2
"""Tensors that a loss has as its own weights: centres and a bias, a scale and a margin. A module
with more is a network, e.g. one that judges pictures, and stays as it is on purpose."""
FAR = 30.0
"""Added to a number that weighs a loss: far beyond any that training finds, and exp(30) is finite.
"""
FREE = 0.01
"""Share of the loss that is left, below which it was not paid for."""


def trained(session: Session) -> Iterator[Finding]:
    """Weights outside the model that get a gradient in a step are in an optimizer."""
    things = reached(vars(session.setup))
    inside = {id(p) for p in session.model.parameters()}
    held = {id(p) for o in [*session.optimizers, *things] if isinstance(o, Optimizer)
            for g in o.param_groups for p in g["params"]}  # fmt: skip
    modules = [m for m in things if isinstance(m, nn.Module)]
    modules = [m for m in modules if not any(id(p) in inside for p in m.parameters())]
    own = [(m, [p for p in m.parameters() if p.requires_grad]) for m in modules]
    own = [(m, kept) for m, kept in own if 0 < len(kept) <= MOST_OF_A_LOSS
           and not any(id(p) in held for p in kept)]  # fmt: skip
    if not own:
        raise NotChecked("no module outside the model has just a few weights")
    program = program_of(session)
    stepped = {id(p) for e in program.first().tape.of("step")
               for g in e.optimizer.param_groups for p in g["params"]}  # fmt: skip
    own = [(m, kept) for m, kept in own if not any(id(p) in stepped for p in kept)]
    with session.observe():
        for p in (p for _, kept in own for p in kept):
            p.grad = None
        try:
            program.make_step(clone(program.batches[0]))
        except Exception as error:
            raise NotChecked(f"the step raises {type(error).__name__}") from error
        left = [(m, n, tuple(p.shape)) for m, _ in own for n, p in m.named_parameters()
                if p.grad is not None and bool(p.grad.any())]  # fmt: skip
    left = [(m, n, shape) for m, n, shape in left if not is_declared_frozen(session, n)]
    if left:
        module, name, shape = left[0]
        yield Finding(
            "optimizer-stale-params", "warning",
            f"{type(module).__name__}.{name} {list(shape)} gets a gradient in every step, but no "
            "optimizer holds it: it keeps its initial value.",
            {"weights_left_out": len(left), "first": name},
            "optimizer = torch.optim.Adam([*model.parameters(), *criterion.parameters()])",
        )  # fmt: skip


def priced(session: Session) -> Iterator[Finding]:
    """A loss does not vanish when only a number that weights it is moved.

    If it does, training lowers it without improving any output.
    """
    program = program_of(session)
    numbers = _numbers_apart(session)
    base = program.steady_loss(program.batches[0])
    if base <= 0:
        raise NotChecked("the loss has no floor at 0")
    for name, parameter in numbers:
        for what, move in (("0", lambda p: p.zero_()), ("30 more", lambda p: p.add_(FAR)),
                           ("30 less", lambda p: p.sub_(FAR))):  # fmt: skip
            moved = _loss(session, lambda p=parameter, move=move: move(p))
            if abs(moved) < FREE * base:
                yield Finding(
                    "loss-without-price", "warning",
                    f"No output depends on {name}, and with {what} in it the loss falls from "
                    f"{base:.4g} to {moved:.2g}: training can lower it that way without learning "
                    "anything.",
                    {"loss": base, "loss_then": moved, "numbers": parameter.numel()},
                    "loss = (torch.exp(-log_var) * losses + log_var).sum()  # a price for a low "
                    "weight",
                )  # fmt: skip
                return


def _loss(session: Session, prepare: object) -> float:
    program = program_of(session)
    return program.step(program.batches[0], prepare=prepare).loss


def _numbers_apart(session: Session) -> list[tuple[str, Tensor]]:
    """Numbers and rows of numbers that a module of the author's holds, that train, and that no
    output of the model depends on. Those of a layer of torch's shape a network.

    Raises:
        NotChecked: There are none.
    """
    names = {id(p): name for name, p in session.model.named_parameters()}
    modules = [
        session.model,
        *(m for m in reached(vars(session.setup)) if isinstance(m, nn.Module)),
    ]
    layers = {id(p) for m in modules for part in m.modules()
              if type(part).__module__.startswith("torch.")
              for p in part.parameters(recurse=False)}  # fmt: skip
    held = {id(p): p for o in session.optimizers for g in o.param_groups for p in g["params"]}
    trains = gets_gradient(session)
    found = [p for key, p in held.items()
             if p.dim() <= 1 and key in trains and key not in layers]  # fmt: skip
    if found:
        own = [p for p in found if id(p) in names]
        shape = _shapes(session, own) if own else set()
        found = [p for p in found if id(p) not in shape]
    if not found:
        raise NotChecked("no numbers train that no output depends on")
    return [(names.get(id(p), "a number of the optimizer's"), p) for p in found]


def _shapes(session: Session, parameters: list[Tensor]) -> set[int]:
    """Ids of those that the outputs of the model depend on."""
    program = program_of(session)
    call = program.call()
    with session.observe():
        program.model.eval()
        given = program.model(*clone(call.args), **clone(call.kwargs))
        total = sum(t.float().sum() for t in tensors_in(given) if t.requires_grad)
        if not isinstance(total, Tensor):
            raise NotChecked("no output has a gradient")
        gradients = torch.autograd.grad(total, parameters, allow_unused=True)
    return {id(p) for p, g in zip(parameters, gradients, strict=True) if g is not None}
