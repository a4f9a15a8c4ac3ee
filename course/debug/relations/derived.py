"""Relation on derivatives with respect to inputs: what a loss is made of can be trained."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.tape import MAX_NODES, patched
from course.debug.relations.program import Program, program_of
from course.state.nested import mapped, tensors_in

FAR = 1000.0
"""By so many times its own size, and 1 at least, is a row's derivative moved: far enough that what
it is compared with lies on the other side."""
ALIKE = 1e-4
"""Relative difference of two slopes that rounding makes."""


def by_inputs(session: Session) -> Iterator[Finding]:
    """A derivative with respect to the inputs that enters the loss itself has a graph.

    autograd.grad without create_graph gives numbers, as does functional.jacobian. They may be an
    attack or a step of a sampler, which go on into a network; a factor of what another network
    gives, as in a policy gradient; or weights of rows. If the loss compares them with something,
    row by row, and the weights of the network whose derivative it is are trained on that loss, the
    derivative should train them, too.
    """
    if not any(e.cut for e in session.loop.tape.of("autograd_grad")):
        raise NotChecked("no derivative with respect to inputs is taken without create_graph")
    program = program_of(session)
    one = _heard(program)
    for place, base in enumerate(one):
        up, down = (_heard(program, place, side * FAR) for side in (1, -1))
        if len(up) != len(one) or len(down) != len(one):
            raise NotChecked("a step takes another number of derivatives then")
        if base.trained and _is_compared(base, up[place], down[place]):
            yield Finding(
                "loss-without-gradient", "error",
                "The loss changes, row by row, with a derivative with respect to the inputs "
                f"{list(base.shape)} that was computed without create_graph=True: backward() "
                "treats it as a constant, and that part of the loss trains nothing.",
                {"shape": list(base.shape), "slope_of_loss": float(base.slope.abs().mean())},
                "du, = torch.autograd.grad(u.sum(), x, create_graph=True)",
            )  # fmt: skip
            return


@dataclass
class _Derivative:
    """One that was taken in a step without a graph, and what the loss makes of it."""

    shape: torch.Size
    leaf: Tensor
    leaves: set[int]
    """Ids of the weights and inputs that it depends on."""
    trained: bool = False
    """A backward of the step reaches such weights; and if other derivatives have a graph, one of
    them is taken at the same point: else this one may be what the others should become."""
    outputs: Tensor | None = None
    """The loss's slope at the outputs of the model in its first row."""

    @property
    def slope(self) -> Tensor:
        """The loss's slope in it; 0 where it goes into a network or nowhere."""
        found = self.leaf.grad
        return torch.zeros(self.shape) if found is None else found.detach()


def _heard(program: Program, place: int | None = None, move: float = 0.0) -> list[_Derivative]:
    """Derivatives of a step, of one of which the first row is moved by so many times its size.

    A leaf is added to each of them, whose gradient shows how the loss depends on it; what goes into
    a part of the model, or another network, is cut off first.
    """
    found: list[_Derivative] = []
    own = {id(p) for p in program.first().tape.watched}
    slopes: list[Tensor] = []
    within_one: list[bool] = []
    graphed: set[int] = set()

    def derive(original: Callable, outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if within_one:  # torch calls the function again by its name
            return original(outputs, inputs, *args, **kwargs)
        within_one.append(True)
        try:
            result = original(outputs, inputs, *args, **kwargs)
        finally:
            within_one.clear()
        if _has_graph(args, kwargs):
            graphed.update(id(x) for x in tensors_in(inputs) if x.is_leaf and id(x) not in own)
            return result
        leaves = set(_leaves(list(tensors_in(outputs))))
        if not own & leaves or not torch.is_grad_enabled():
            return result
        return added(inputs, result, leaves)

    def derive_all(original: Callable, function: Any, inputs: Any, *args: Any, **kwargs: Any):
        within_one.append(True)
        try:
            result = original(function, inputs, *args, **kwargs)
        finally:
            within_one.clear()
        has_graph = bool(kwargs.get("create_graph", args[0] if args else False))
        return (
            result
            if has_graph or not torch.is_grad_enabled()
            else added(inputs, result, {*own, *map(id, tensors_in(inputs))})
        )

    def added(inputs: Any, result: Any, leaves: set[int]) -> Any:
        new = {}
        for x, made in zip(tensors_in(inputs), tensors_in(result), strict=False):
            if x.is_leaf and id(x) not in own and made.dim() and len(made) > 1:
                leaf = torch.zeros_like(made)
                if place == len(found):
                    leaf[0] = move * (made.detach().abs().mean() + 1)
                found.append(_Derivative(leaf.shape, leaf.requires_grad_(), leaves))
                new[id(made)] = made + leaf
        return mapped(lambda t: new.get(id(t), t), result)

    def cut(original: Callable, module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if found and any(True for _ in module.parameters()):
            args, kwargs = mapped(partial(_without, [d.leaf for d in found]), (args, kwargs))
        return original(module, *args, **kwargs)

    def listen(_: object, args: object, output: object) -> None:
        t = next((t for t in tensors_in(output) if t.requires_grad and t.dim()), None)
        if t is not None and not slopes:
            slopes.append(torch.zeros_like(t[0]))
            t.register_hook(lambda slope: None if within_one else _add(slopes[0], slope[0]))

    @contextlib.contextmanager
    def listening() -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            stack.enter_context(patched(nn.Module, "__call__", cut))
            stack.enter_context(patched(torch.autograd, "grad", derive))
            for name in ("jacobian", "hessian"):
                stack.enter_context(patched(torch.autograd.functional, name, derive_all))
            yield

    step = program.step(
        program.batches[0], within=listening(),
        prepare=lambda: program.model.register_forward_hook(listen),
    )  # fmt: skip
    moved = {
        id(p) for e in step.tape.of("backward")
        for p, g in zip(step.tape.watched, e.info.get("after", ()), strict=False)
        if g is not None and bool(g.any())
    }  # fmt: skip
    for derivative in found:
        derivative.trained = bool(derivative.leaves & moved) and (
            not graphed or bool(derivative.leaves & graphed)
        )
        derivative.outputs = slopes[0] if slopes else None
    return found


def _has_graph(args: tuple, kwargs: dict[str, Any]) -> bool:
    return bool(kwargs.get("create_graph", args[2] if len(args) > 2 else False))


def _leaves(roots: list[Tensor]) -> dict[int, Tensor]:
    """Leaves of the graphs of these tensors, by id."""
    todo, seen, found = [t.grad_fn for t in roots if t.grad_fn is not None], set(), {}
    while todo and len(seen) < MAX_NODES:
        node = todo.pop()
        if node not in seen:
            seen.add(node)
            leaf = getattr(node, "variable", None)
            found |= {} if leaf is None else {id(leaf): leaf}
            todo += [following for following, _ in node.next_functions if following is not None]
    return found


def _add(to: Tensor, slope: Tensor) -> None:
    to += slope.detach()


def _without(leaves: list[Tensor], value: Any) -> Any:
    """A tensor cut off if its graph reaches one of these leaves."""
    if not leaves or not isinstance(value, Tensor) or value.grad_fn is None:
        return value
    reached = _leaves([value])
    return value.detach() if any(id(leaf) in reached for leaf in leaves) else value


def _is_compared(base: _Derivative, up: _Derivative, down: _Derivative) -> bool:
    """The loss has a least value in the first row's derivative, whatever those of the others are,
    and the rest of that row is not just weighed by it."""
    if not bool(base.slope.any()) or not all(d.slope.isfinite().all() for d in (up, down)):
        return False
    alone = all(_alike(d.slope[1:], base.slope[1:]) for d in (up, down))
    least = bool(((up.slope[0] > 0) & (down.slope[0] < 0)).any())
    return alone and least and not all(_is_weighed(base, d) for d in (up, down))


def _is_weighed(base: _Derivative, moved: _Derivative) -> bool:
    """What the loss wants of the first row's outputs is the same but for a factor."""
    one, other = base.outputs, moved.outputs
    if one is None or other is None or not bool(one.any()) or _alike(one, other):
        return False
    factor = float((one * other).sum() / (one * one).sum())
    return factor >= 0 and _alike(factor * one, other)


def _alike(one: Tensor, other: Tensor) -> bool:
    return float((one - other).abs().max()) <= ALIKE * float(one.abs().max())
