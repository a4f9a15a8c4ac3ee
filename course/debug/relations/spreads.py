"""Relation on predicted spreads: what is a variance for the loss is no standard deviation later."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, distributions
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from course.debug.probes.functions import is_transformed
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.tape import patched
from course.debug.relations.joining import is_among
from course.debug.relations.program import program_of
from course.state.nested import tensors_in

NEAR = 1e-4
"""Relative difference of two tensors that are the same numbers, computed in two ways."""
LEAST_SPREAD = 1e-3
"""Distance from 1 below which a standard deviation and its square cannot be told apart, and spread
below which all are one constant, which may be in both roles by chance."""
LEAST_ROWS = 8
"""Numbers from which two tensors are equal by nothing but being the same."""
ROLES = ("a variance", "a standard deviation")
OTHER = {"variances": "deviations", "deviations": "variances"}
COMPARED = {"lt", "le", "gt", "ge"}
DIVIDED = {"div", "truediv", "true_divide"}
HANDED_ON = {"abs", "neg", "squeeze", "unsqueeze", "flatten", "reshape", "view", "detach"}
"""Functions by whose name what is known of their argument is known of their result."""


def one_role(session: Session) -> Iterator[Finding]:
    """Predicted numbers that are variances in training are none of standard deviations in
    evaluation, and the other way round.

    A variance is what `gaussian_nll_loss` gets, or what squared errors are divided by and whose
    logarithm is added; errors over a standard deviation are squared, or compared with a number.
    """
    for part, name in (
        (session.setup.evaluate, "evaluate()"),
        (session.setup.val_loader, "val_loader"),
    ):
        if part is None:
            raise NotChecked(f"no {name}")
    program, batches = program_of(session), session.val_epoch.batches
    if not batches:
        raise NotChecked("the val_loader is empty")
    leaves = [t for batch in batches for t in tensors_in(batch)]
    trained, rated = _Roles(leaves), _Roles(leaves)
    program.step(batches[0], within=trained.listening())
    if not trained.variances and not trained.deviations:
        raise NotChecked("the loss divides no errors by a predicted spread")
    with session.observe(), contextlib.suppress(Exception), rated.listening():
        session.setup.evaluate()
    for role, of, to in (("variances", *ROLES), ("deviations", *reversed(ROLES))):
        ones, others = getattr(trained, role), getattr(rated, OTHER[role])
        right = [*getattr(trained, OTHER[role]), *getattr(rated, role)]
        found = next((a for a in ones if any(_same(a, b) for b in others)), None)
        if found is None or any(_same(found, b) for b in right):
            continue
        yield Finding(
            "wrong-formula", "error",
            f"{found.numel()} predicted numbers (mean {float(found.mean()):.3g}) are {of} for the "
            f"loss, and the same numbers are {to} in evaluate(), e.g. where errors are divided by "
            "them: one of the two needs the square or its root, and intervals are too wide or too "
            "narrow.",
            {"numbers": found.numel(), "mean": float(found.mean()),
             "mean_of_squares": float(found.square().mean())},
            "loss = F.gaussian_nll_loss(mean, y, std**2)  # a variance, not a standard deviation",
        )  # fmt: skip
        return


def _same(one: Tensor, other: Tensor) -> bool:
    return (
        one.numel() == other.numel() >= LEAST_ROWS
        and min(float((one - 1).abs().mean()), float(one.std())) > LEAST_SPREAD
        and torch.allclose(one.flatten(), other.flatten(), rtol=NEAR, atol=0.0)
    )


class _Roles(TorchFunctionMode):
    """What errors are divided by or compared with, and in which role.

    Args:
        leaves: Tensors of the batches: among them are the targets.
    """

    def __init__(self, leaves: list[Tensor]) -> None:
        super().__init__()
        self.leaves = leaves
        self.deviations: list[Tensor] = []
        self._variances: list[Tensor] = []
        self._under: list[Tensor] = []
        self._logs: list[Tensor] = []
        self._known: dict[int, tuple[Tensor, str, Tensor | None]] = {}
        """By id: a tensor, what it is, and the spread that it was made with."""

    @property
    def variances(self) -> list[Tensor]:
        """With those under a squared error whose logarithm is taken as well."""
        both = [u for u in self._under if any(_same(u, log) for log in self._logs)]
        return [*self._variances, *both]

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        with patched(distributions.Normal, "__init__", self._normal), self:
            yield

    def _normal(
        self, original: Callable, law: Any, loc: Any, scale: Any, *args: Any, **kwargs: Any
    ):
        if isinstance(scale, Tensor) and scale.numel() > 1:
            self._note(self.deviations, scale)
        return original(law, loc, scale, *args, **kwargs)

    @staticmethod
    def _note(to: list[Tensor], spread: Any) -> None:
        if isinstance(spread, Tensor) and spread.is_floating_point():
            to.append(spread.detach().clone())

    def __torch_function__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None):
        kwargs = kwargs or {}
        result = function(*args, **kwargs)
        if is_transformed():
            return result
        if function is F.gaussian_nll_loss:
            self._note(self._variances, kwargs.get("var", args[2] if len(args) > 2 else None))
        name = getattr(function, "__name__", "").strip("_")
        if isinstance(result, Tensor) and args:
            self._see(name, args, result)
        return result

    def _is(self, value: Any) -> tuple[str, Tensor | None]:
        known = self._known.get(id(value))
        return (known[1], known[2]) if known is not None and known[0] is value else ("", None)

    def _keep(self, result: Tensor, kind: str, spread: Tensor | None) -> None:
        self._known[id(result)] = result, kind, spread

    def _see(self, name: str, args: Any, result: Tensor) -> None:
        one, two = args[0], args[1] if len(args) > 1 else None
        (kind, spread), (other, made_with) = self._is(one), self._is(two)
        squares = name == "square" or (name == "pow" and two == 2) or (
            name == "mul" and one is two)  # fmt: skip
        if squares:
            if kind == "standard":
                self._note(self.deviations, spread)
            elif kind == "error":
                self._keep(result, "square", None)
        elif name == "log" and isinstance(one, Tensor):
            self._note(self._logs, one)
        elif name in DIVIDED and isinstance(two, Tensor):
            if kind == "error":
                self._keep(result, "standard", two)
            elif kind == "square":
                self._note(self._under, two)
        elif name in COMPARED:
            self._compared((one, kind, spread), (two, other, made_with))
        elif name in ("add", "sub", "rsub") and isinstance(one, Tensor) and isinstance(two, Tensor):
            spread = made_with if other == "times" else two
            self._keep(result, "bound" if name == "add" else "error", spread)
        elif name in ("mul", "rmul") and isinstance(one, Tensor) != isinstance(two, Tensor):
            self._keep(result, "times", one if isinstance(one, Tensor) else two)
        elif name in HANDED_ON and kind:
            self._keep(result, kind, spread)

    def _compared(self, one: tuple, two: tuple) -> None:
        """Standard errors with a number, errors with a spread, or a target with mean and spread."""
        for (_, kind, spread), (b, other, made_with) in ((one, two), (two, one)):
            if kind == "standard" and isinstance(b, (int, float)):
                self._note(self.deviations, spread)
            elif kind == "error" and isinstance(b, Tensor) and not is_among(b, self.leaves):
                self._note(self.deviations, made_with if other == "times" else b)
            elif kind in ("bound", "error") and isinstance(b, Tensor):
                self._note(self.deviations, spread)
