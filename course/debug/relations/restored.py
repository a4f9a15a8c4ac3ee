"""Relation on what is to be restored: training asks for what evaluation rates best.

For example a clean signal behind a noisy one. Outputs are made up, so that nothing need be trained.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session, as_metrics
from course.debug.relations.joining import is_among
from course.debug.relations.program import Program, program_of
from course.state.nested import tensors_in

NOTHING = 1e-4
"""A loss or an error in that of other outputs, below which the outputs are what is asked for."""


def asked_for(session: Session) -> Iterator[Finding]:
    """A model that is rated by a part of the batch other than its input is not trained to give back
    its input.

    Only where every layer is as wide as the input: what goes through a narrow one loses noise even
    if noise is asked for.
    """
    program = program_of(session)
    leaves = list(tensors_in(program.batches[0]))
    got = [t for call in program.first().calls for t in call.tensors]
    outputs = [e.output for e in program.first().tape.of("output") if e.output is not None]
    if len(outputs) != 1 or session.setup.evaluate is None or session.setup.val_loader is None:
        raise NotChecked("a step does not call the model once, or nothing is evaluated")
    alike = [n for n, t in enumerate(leaves) if t.is_floating_point() and t.dim() > 1
             and t.shape == outputs[0].shape]  # fmt: skip
    inputs = [n for n in alike if is_among(leaves[n], got)]
    others = [n for n in alike if n not in inputs]
    if len(inputs) != 1 or not others:
        raise NotChecked("no part beside the input has the shape of the outputs")
    width = leaves[inputs[0]][0].numel()
    if _narrowest(program, len(outputs[0])) < width:
        raise NotChecked("a layer is narrower than the input")
    own = _cost(program, leaves[inputs[0]])
    for other in others:
        cost = _cost(program, leaves[other])
        if not (math.isfinite(cost) and abs(own) < NOTHING * cost):
            continue
        given, wanted = (_errors(session, inputs[0], n) for n in (inputs[0], other))
        for name, error in given.items():
            if math.isfinite(error) and abs(wanted.get(name, math.nan)) < NOTHING * error:
                yield Finding(
                    "wrong-targets", "error",
                    f"Outputs that equal the model's own input cost {own:.2g} in training, and "
                    f"those that equal part {other} of the batch cost {cost:.3g}; but {name} is "
                    f"{wanted[name]:.2g} for the second and {error:.3g} for the first: the loss "
                    "compares outputs with the input, noise and all, and the model learns to copy.",
                    {"cost_of_the_input": own, "cost_of_the_other": cost,
                     f"{name}_of_the_input": error, f"{name}_of_the_other": wanted[name]},
                    "loss = F.mse_loss(model(noisy), clean)",
                )  # fmt: skip
                return


def _hooked(program: Program, answer: Callable[[Tensor], Tensor | None]) -> Callable[[], None]:
    """Makes the model return what is said for its first input, where something is."""

    def made_up(_: object, args: tuple, output: Any) -> Any:
        given = next((t for t in args if isinstance(t, Tensor)), None)
        new = None if given is None or not isinstance(output, Tensor) else answer(given)
        return output if new is None else 0 * output + new.to(output)

    return lambda: program.model.register_forward_hook(made_up)


def _cost(program: Program, answer: Tensor) -> float:
    """What the first batch costs if outputs are these."""
    return program.step(program.batches[0], prepare=_hooked(program, lambda _: answer)).loss


def _errors(session: Session, place: int, other: int) -> dict[str, float]:
    """Metrics if outputs are a part of the validation batch whose input the model gets."""
    parts = [list(tensors_in(batch)) for batch in session.val_epoch.batches]
    if any(len(leaves) <= max(place, other) for leaves in parts):
        return {}

    def answer(given: Tensor) -> Tensor | None:
        return next((leaves[other] for leaves in parts if leaves[place].shape == given.shape
                     and torch.equal(leaves[place], given.cpu())), None)  # fmt: skip

    with session.observe(), torch.no_grad():  # which takes the hook off again
        _hooked(program_of(session), answer)()
        try:
            return as_metrics(session.setup.evaluate())
        except Exception as error:
            raise NotChecked(f"evaluate() raises {type(error).__name__} here") from error


def _narrowest(program: Program, rows: int) -> int:
    """The fewest numbers that a layer with weights gives for a row."""
    found: list[int] = []

    def listen(_: object, args: object, output: Any) -> None:
        found.extend(t[0].numel() for t in tensors_in(output) if t.dim() and len(t) == rows)

    def prepare() -> None:
        for part in program.model.modules():
            if isinstance(part, nn.Module) and any(True for _ in part.parameters(recurse=False)):
                part.register_forward_hook(listen)

    program.step(program.batches[0], prepare=prepare)
    return min(found, default=0)
