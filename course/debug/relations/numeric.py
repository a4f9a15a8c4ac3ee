"""Relation on functions with a hand-written backward: it is the gradient of what they compute."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.thresholds import MOST, ROUNDED, TINY
from course.debug.relations.program import program_of

NUDGE = 1e-4
"""Of an input's own size: a difference over twice that is off by 1e-8, and by 1e-3 where a function
computes in single precision whatever it gets."""
OFF = 0.02
"""Relative difference of the two slopes that no double precision makes."""
TIMES = 5
"""Directions that are tried, of which the middle one counts: a kink lies on the way of few."""
MOST_NUMBERS = 200_000
"""Numbers of the inputs up to which a dozen calls in double precision cost little."""


def custom(session: Session) -> Iterator[Finding]:
    """The backward of an autograd.Function gives the derivative of its forward.

    If the forward returns its input unchanged, or is flat, a different gradient is intended:
    reversed, clipped, or straight through.
    """
    kinds = [k for k in _below(Function) if not k.__module__.startswith("torch.")]
    if not kinds:
        raise NotChecked("the author defines no autograd.Function")
    calls: dict[type, tuple] = {}
    with contextlib.ExitStack() as stack:
        for kind in kinds:
            stack.enter_context(_heard(kind, calls))
        program_of(session).step(program_of(session).batches[0], again=True)
    if not calls:
        raise NotChecked("a step calls no autograd.Function of the author's")
    for kind, args in calls.items():
        with session.observe(), contextlib.suppress(NotChecked):
            off = _slopes_off(kind, args)
            if off >= OFF:
                yield Finding(
                    "wrong-gradient", "error",
                    f"backward of {kind.__name__} does not give the derivative of its forward: "
                    f"over {TIMES} directions its median deviation from the numerical derivative "
                    f"is {off:.0%}.",
                    {"off": off, "function": kind.__name__},
                    f"torch.autograd.gradcheck({kind.__name__}.apply, x.double().requires_grad_())",
                )  # fmt: skip
                return


def _below(kind: type) -> list[type]:
    return [found for one in kind.__subclasses__() for found in (one, *_below(one))]


@contextlib.contextmanager
def _heard(kind: type, calls: dict[type, tuple]) -> Iterator[None]:
    """The arguments of the first call of a function's forward."""
    own, forward = vars(kind).get("forward"), kind.forward
    skipped = 0 if _has_own_context(kind) else 1

    def listen(*args: Any) -> Any:
        if kind not in calls:
            calls[kind] = tuple(a.detach().clone() if isinstance(a, Tensor) else a
                                for a in args[skipped:])  # fmt: skip
        return forward(*args)

    kind.forward = staticmethod(listen)
    try:
        yield
    finally:
        if own is None:
            del kind.forward
        else:
            kind.forward = own


def _has_own_context(kind: type) -> bool:
    """forward() takes no ctx, which setup_context() gets."""
    return kind.setup_context is not Function.setup_context


def _slopes_off(kind: type, args: tuple) -> float:
    """Median relative difference of the slope by backward and by numbers, of some directions.

    Raises:
        NotChecked: The forward is the identity, flat, or random; or there is nothing to move.
    """
    moved = [n for n, a in enumerate(args) if isinstance(a, Tensor) and a.is_floating_point()]
    if not moved or sum(args[n].numel() for n in moved) > MOST_NUMBERS:
        raise NotChecked("no numbers, or too many")
    own = torch.Generator().manual_seed(0)
    given = [args[n].detach().cpu().double() for n in moved]

    def value(inputs: list[Tensor]) -> Tensor:
        new = dict(zip(moved, inputs, strict=True))
        result = kind.apply(*(new.get(n, a) for n, a in enumerate(args)))
        if not isinstance(result, Tensor) or not result.is_floating_point():
            raise NotChecked("the function returns several tensors")
        return result

    try:
        offs = [_one_way(value, given, own) for _ in range(TIMES)]
    except NotChecked:
        raise
    except Exception as error:
        raise NotChecked(f"it raises {type(error).__name__} in double precision") from error
    return median(offs)


def _one_way(value: Any, given: list[Tensor], own: torch.Generator) -> float:
    ways = [torch.randn(x.shape, generator=own, dtype=x.dtype) for x in given]
    sizes = [NUDGE * (float(x.abs().mean()) + NUDGE) for x in given]
    with torch.no_grad():
        base, again = value(given), value(given)
        up = value([x + s * w for x, s, w in zip(given, sizes, ways, strict=True)])
        down = value([x - s * w for x, s, w in zip(given, sizes, ways, strict=True)])
    if not torch.equal(base, again):
        raise NotChecked("the function draws at random")
    if any(base.numel() == x.numel() and torch.allclose(base.flatten(), x.flatten())
           for x in given):  # fmt: skip
        raise NotChecked("the function returns its input unchanged")
    change = (up - down) / (2 * max(sizes))
    flat = change.abs() <= ROUNDED * change.abs().amax().clamp_min(TINY)
    if float(flat.double().mean()) > MOST:
        raise NotChecked("the function is flat nearly everywhere")
    out = torch.randn(change.shape, generator=own, dtype=change.dtype) * ~flat
    leaves = [x.clone().requires_grad_() for x in given]
    gradients = torch.autograd.grad(value(leaves), leaves, out, allow_unused=True)
    if any(g is None for g in gradients):
        raise NotChecked("an input has no gradient, which may be intended")
    by_backward = sum(
        float((g * w).sum()) * s / max(sizes)
        for g, w, s in zip(gradients, ways, sizes, strict=True)
    )
    numerical = float((out * change).sum())
    return abs(by_backward - numerical) / max(float((out * change).norm()), abs(numerical), TINY)
