"""Backward passes as torch runs them: which node runs when, what it receives and what it passes on.

Every node of the real graph gets two hooks. The hook before it records the state in which it
starts, and the hook after it records the gradients that it gives to each of its inputs. Nothing is
computed here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from course.widgets.graph.expressions import Expression

MOST_NODES = 20
"""Two passes through the largest graph: the two layers, with all four leaves requiring
gradients."""
FREED = "saved tensors after they have already been freed"
"""A part of torch's message that identifies a second pass through a freed graph."""


@dataclass
class Event:
    """One node that has run, or has failed."""

    round: int
    """Which backward pass, from 1."""
    number: int
    """Which node of the pass, from 1."""
    name: str
    """The tensor that the node belongs to; for a leaf, the one whose `.grad` it adds to."""
    node: str
    """The node's class in torch."""
    received: Any
    handed: list[tuple[str, Any]] = field(default_factory=list)
    """The gradients it passes on, by the tensor whose node receives them."""
    error: str = ""


@dataclass
class State:
    """The state between two nodes."""

    grads: dict[str, Any]
    """`.grad` of every tensor; None if there is none."""
    saved: dict[str, list[str] | None]
    """The tensors that a node keeps; None once they are freed."""


class Passes:
    """One forward pass, then backward passes until `MOST_NODES` nodes have run.

    Args:
        expression: What is computed.
        scale: Factor of the first leaf.
        data: Whether the data also require a gradient.
        second: `new` and `cleared` compute the loss again before each pass except the first, and
            `cleared` sets `.grad` to None; `kept` and `freed` reuse the first graph.
        retain: Whether `retain_grad()` was called on every operation's result.
    """

    def __init__(
        self, expression: Expression, scale: float, data: bool, second: str, retain: bool
    ) -> None:
        self.expression, self.second, self.retain = expression, second, retain
        first = next(iter(expression.leaves))
        self.leaves = {
            name: torch.tensor(value, dtype=torch.float64) * (scale if name == first else 1.0)
            for name, value in expression.leaves.items()
        }
        for name, leaf in self.leaves.items():
            leaf.requires_grad_(data or name not in expression.data)
        self.events: list[Event] = []
        self.states: list[State] = []
        """Before the first node, and after each."""
        self._forward()
        self.values = {name: one.tolist() for name, one in self.tensors.items()}
        self.nodes = {name: one.grad_fn for name, one in self.tensors.items()}
        self.node_names = {name: n.name() if n else "" for name, n in self.nodes.items()}
        self.reached = set(self._owners.values())
        self._run()

    def _forward(self) -> None:
        self.tensors = self.expression.function(**self.leaves)
        self.tensors["loss"] = self.tensors.pop("loss")  # last, whichever branch made it
        if self.retain:
            for one in self.tensors.values():
                if not one.is_leaf:
                    one.retain_grad()
        nodes = reachable(self.tensors["loss"].grad_fn)
        self._owners = {node: self._owner(node) for node in nodes}

    def _owner(self, node: Any) -> str:
        """The tensor that a node has made, or whose `.grad` it adds to."""
        for name, one in self.tensors.items():
            if one.grad_fn is node or one is getattr(node, "variable", None):
                return name
        raise AssertionError(f"{node.name()} belongs to no named tensor")

    def _run(self) -> None:
        while len(self.events) < MOST_NODES and not (self.events and self.events[-1].error):
            if self.events and self.second in ("new", "cleared"):
                if self.second == "cleared":
                    for leaf in self.leaves.values():
                        leaf.grad = None
                self._forward()
            self._backward(self.events[-1].round + 1 if self.events else 1)

    def _backward(self, round: int) -> None:
        begun: list[Event] = []
        hooks = [hook for node in self._owners for hook in self._watch(node, round, begun)]
        try:
            self.tensors["loss"].backward(retain_graph=self.second == "kept")
        except RuntimeError as fault:
            if FREED not in str(fault):
                raise
            begun[-1].error = str(fault).split(" (or ")[0]
        for hook in hooks:
            hook.remove()
        self.events += begun
        self.states.append(self._state())

    def _watch(self, node: Any, round: int, begun: list[Event]) -> Iterator[Any]:
        def before(received: tuple[Tensor, ...]) -> None:
            if begun or not self.states:  # a pass begins in the state in which the last one ended
                self.states.append(self._state())
            event = Event(round, len(begun) + 1, self._owners[node], node.name().split("::")[-1],
                          received[0].tolist())  # fmt: skip
            begun.append(event)

        def after(handed: tuple[Tensor | None, ...], received: tuple[Tensor, ...]) -> None:
            begun[-1].handed = [
                (self._owners[source], one.tolist())
                for one, (source, _) in zip(handed, node.next_functions, strict=False)
                if one is not None and source is not None
            ]

        yield node.register_prehook(before)
        yield node.register_hook(after)

    def _state(self) -> State:
        owned = {owner: node for node, owner in self._owners.items()}
        return State(
            grads={
                name: one.grad.tolist()
                if (one.is_leaf or one.retains_grad) and one.grad is not None
                else None
                for name, one in self.tensors.items()
            },
            saved={name: self._saved(node) for name, node in owned.items()},
        )

    def _saved(self, node: Any) -> list[str] | None:
        try:
            kept = [getattr(node, key) for key in sorted(dir(node)) if key.startswith("_saved_")]
        except RuntimeError:
            return None
        return [self._named(one) for one in kept if isinstance(one, Tensor)]

    def _named(self, kept: Tensor) -> str:
        for name, one in self.tensors.items():
            if one.data_ptr() == kept.data_ptr():
                return name
        return f"{kept.item():g}"


def reachable(node: Any) -> list[Any]:
    """The nodes that backward runs, from the loss's down to the leaves'."""
    found, queue = [], [node]
    while queue:
        one = queue.pop(0)
        if one is not None and one not in found:
            found.append(one)
            queue += [source for source, _ in one.next_functions]
    return found
