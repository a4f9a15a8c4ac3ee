"""Relation on parts of a model behind a choice: they are taught by what is made of the choice."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from course.debug.probes.frozen import gets_gradient, is_declared_frozen
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.thresholds import CHANGED, TINY
from course.debug.relations.program import Program, program_of, without_dropout
from course.debug.relations.steps import Call
from course.state.nested import cloned, tensors_in

SLIGHT, LARGE = 1e-3, 0.5
"""Of a weight's own size: by the first hardly a choice becomes another one, by the second many."""
MOST_OUTPUTS, MOST_WEIGHTS = 4, 4
"""Tensors that the model returns, and weights that are moved in turn: each is a forward."""
STRAIGHT = 0.999
"""Cosine of two directions that are the same but for rounding."""
STILL = 0.9
"""Share of the rows that stay as they are with slightly other weights."""
MOVED = 1e-5
"""Of the outputs' spread: rounding stays below; what depends on the weights smoothly does not."""


def choices(session: Session) -> Iterator[Finding]:
    """Weights that an output depends on through a choice alone get a gradient from that output.

    argmin, round and comparisons hand no gradient on. Weights before them that another output for
    each row depends on, e.g. boxes or gates with targets of their own, learn from that one; and
    where the step draws random numbers, the choice may be taught by its reward. What else gives
    them a gradient only keeps them near to what was chosen.
    """
    program = program_of(session)
    call = program.call()
    outputs, reached = _reached_by_each(session, program, call)
    trained = gets_gradient(session)
    named = {n: id(p) for n, p in program.model.named_parameters()}
    if not {n for n, p in named.items() if p in trained} - set.intersection(*reached):
        raise NotChecked("each output reaches all weights that are trained")
    pulls, outside = _pulls(program, len(outputs))
    taught = set().union(*(
        r for t, r, pull in zip(outputs, reached, pulls, strict=True)
        if pull is not None and t.dim() and t.numel() > 1 and not _to_another(t, pull, outputs)
    ))  # fmt: skip
    cut = [n for n, p in named.items() if p in trained and n not in taught | outside
           and not is_declared_frozen(session, n)]  # fmt: skip
    for place, pull in enumerate(pulls):
        names = [n for n in cut if n not in reached[place]]
        if pull is None or not outputs[place].dim() or outputs[place].numel() < 2:
            continue
        for name in names[:MOST_WEIGHTS]:
            moved = [_rows_moved(program, call, place, name, part) for part in (SLIGHT, LARGE)]
            if moved[0] <= 1 - STILL and moved[1] > CHANGED:
                yield Finding(
                    "wrong-gradient", "warning",
                    f"An output {list(outputs[place].shape)} that is trained changes with {name} "
                    f"({moved[1]:.0%} of its rows for a large change, {moved[0]:.0%} for a small "
                    f"one), but none of its gradient reaches it or {len(names) - 1} others: in "
                    "between is an argmin(), a rounding or a comparison. Other parts of the loss "
                    "move these weights, but they never learn what the output needs.",
                    {"weights": len(names), "first": name, "rows_changed": moved[1]},
                    "q = z + (q - z).detach()  # straight through: q forward, z's gradient back",
                )  # fmt: skip
                return


def _reached_by_each(
    session: Session, program: Program, call: Call
) -> tuple[list[Tensor], list[set[str]]]:
    """The outputs, and the weights that a gradient of each of them reaches."""
    with session.observe(), without_dropout(program.model):
        program.model.train()
        torch.manual_seed(0)
        before = torch.get_rng_state()
        args, kwargs = cloned((call.args, call.kwargs))
        given = program.model(*args, **kwargs)
        if not torch.equal(before, torch.get_rng_state()):
            raise NotChecked("the model draws random numbers")
        outputs = [t for t in tensors_in(given) if t.is_floating_point()]
        if not 0 < len(outputs) <= MOST_OUTPUTS:
            raise NotChecked("the model does not give a few tensors")
        own = {n: p for n, p in program.model.named_parameters() if p.requires_grad}
        reached = [_reached(t, own) for t in outputs]
    return [t.detach() for t in outputs], reached


def _reached(output: Tensor, own: dict[str, Tensor]) -> set[str]:
    """Weights with a gradient other than zero from a sum of an output's numbers."""
    if not output.requires_grad:
        return set()
    weights = torch.randn(output.shape, generator=torch.Generator().manual_seed(0)).to(output)
    slopes = torch.autograd.grad(
        (output * weights).sum(), [*own.values()], retain_graph=True, allow_unused=True
    )
    return {n for n, g in zip(own, slopes, strict=True) if g is not None and bool(g.any())}


def _pulls(program: Program, number: int) -> tuple[list[Tensor | None], set[str]]:
    """The loss's slope in each output, None where there is none; and the weights of layers that
    are also called by themselves, outside of the model's own forward."""
    found: list[Tensor | None] = [None] * number
    inside: list[bool] = []
    alone: set[str] = set()

    def begin(*_: object) -> None:
        inside.append(True)

    def listen(_: object, args: object, output: object) -> None:
        inside.clear()
        for place, t in enumerate([t for t in tensors_in(output) if t.is_floating_point()]):
            if t.requires_grad:
                t.register_hook(lambda slope, place=place: put(place, slope))

    def put(place: int, slope: Tensor) -> None:
        if place < number and bool(slope.any()):
            found[place] = slope.detach()

    def called(layer: nn.Module, _: object) -> None:
        if not inside and layer is not program.model:
            own = {id(p) for p in layer.parameters()}
            alone.update(n for n, p in program.model.named_parameters() if id(p) in own)

    def prepare() -> None:
        program.model.register_forward_pre_hook(begin)
        program.model.register_forward_hook(listen)

    with contextlib.ExitStack() as stack:
        hook = register_module_forward_pre_hook(called)
        stack.callback(hook.remove)
        program.step(program.batches[0], prepare=prepare)
    return found, alone


def _to_another(output: Tensor, pull: Tensor, outputs: list[Tensor]) -> bool:
    """The loss pulls an output straight to another one, and to nothing from outside."""
    for other in outputs:
        if other is not output and other.shape == output.shape:
            way = (output - other).flatten().double()
            cosine = way @ pull.flatten().double() / (way.norm() * pull.norm()).clamp_min(TINY)
            if abs(float(cosine)) > STRAIGHT:
                return True
    return False


def _rows_moved(program: Program, call: Call, place: int, name: str, part: float) -> float:
    """Share of an output's rows that are others with one weight moved by a part of its size."""
    parameter = program.model.get_parameter(name)
    noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0))
    kept = []
    for by in (0.0, part):
        with program.session.observe(), torch.no_grad():
            parameter.add_(by * (parameter.abs().mean() + TINY) * noise.to(parameter))
            kept.append(program.run(call)[place])
    one, other = (t.flatten(1) if t.dim() > 1 else t[:, None] for t in kept)
    far = (one - other).abs().amax(1) > MOVED * one.std(correction=0)
    return float(far.float().mean())
