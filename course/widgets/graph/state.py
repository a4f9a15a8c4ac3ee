"""Backward through a small graph, node by node: what is saved, what flows, where `.grad` appears.

The graph is torch's own: nodes, their order, the gradients between them and the saved tensors are
read from it while it runs. Each forward pass records a new graph, so it contains only the branch
that the data take.

Source: Lecture 3, "Autograd · the dynamic tape"; Engineering module, §2; ledger S25, S12, C38.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from course.widgets.base.settings import Checked, choice, slider, steps, toggle
from course.widgets.graph.backward import MOST_NODES, Event, Passes
from course.widgets.graph.expressions import EXPRESSIONS, NAMES, Expression

SECOND = {
    "new": "after a new forward pass",
    "cleared": "after .grad = None and a new forward pass",
    "kept": "through the same graph, retain_graph=True",
    "freed": "through the same graph",
}


@dataclass(frozen=True, kw_only=True)
class Settings(Checked):
    """Which expression, and how far backward has got."""

    expression: str = choice("layers", tuple(EXPRESSIONS), "loss", names=NAMES)
    done: int = slider(4, steps(0, MOST_NODES, 1), "backward has run", unit="nodes")
    scale: float = slider(
        1.0, (-1.0, -0.5, 0.5, 1.0, 2.0), "first leaf times", hint="a, w, w1 or x"
    )
    again: str = choice("new", tuple(SECOND), "second backward", names=tuple(SECOND.values()))
    data: bool = toggle(False, "data require a gradient", hint="x and y are leaves too")
    retain: bool = toggle(False, "retain_grad() on results")


def frame(settings: Settings) -> dict[str, Any]:
    """The code, boxes with their contents, edges, and the node that has just run."""
    passes = _passes(
        settings.expression, settings.scale, settings.data, settings.again, settings.retain
    )
    expression, done = EXPRESSIONS[settings.expression], min(settings.done, len(passes.events))
    past = passes.events[:done]
    event = past[-1] if past else None
    now = [one for one in past if one.round == event.round] if event else []
    code = _code(expression, passes)
    return {
        "code": code,
        "line": _line(code, event.name, expression, passes) if event else None,
        "boxes": [_box(name, expression, passes, now, done) for name in passes.tensors],
        "edges": _edges(expression, passes),
        "handed": [name for name, _ in event.handed] if event else [],
        "event": _shown(event) if event else None,
        "of": len(passes.reached),
        "does": _does(event, passes.states[done].grads),
    }


@lru_cache(maxsize=512)
def _passes(expression: str, scale: float, data: bool, again: str, retain: bool) -> Passes:
    return Passes(EXPRESSIONS[expression], scale, data, again, retain)


def _code(expression: Expression, passes: Passes) -> list[str]:
    leaves = [
        f"{name} = tensor({passes.values[name]}"
        + (", requires_grad=True)" if leaf.requires_grad else ")")
        for name, leaf in passes.leaves.items()
    ]
    return [*leaves, *expression.code(), "loss.backward()"]


def _line(code: list[str], name: str, expression: Expression, passes: Passes) -> int:
    """The line that made a tensor; of two branches, the one that ran."""
    sources = [one for one in expression.places[name].sources if one in passes.tensors]
    made = [number for number, line in enumerate(code) if line.lstrip().startswith(f"{name} = ")]
    return next(n for n in made if all(re.search(rf"\b{one}\b", code[n]) for one in sources))


def _box(
    name: str, expression: Expression, passes: Passes, now: list[Event], done: int
) -> dict[str, Any]:
    """One tensor: what it is, and the gradient it has received so far in this pass."""
    tensor, place, state = passes.tensors[name], expression.places[name], passes.states[done]
    arrived = [value for event in now for to, value in event.handed if to == name]
    if name == "loss" and now:
        arrived = [now[0].received]
    return {
        "name": name,
        "at": list(place.at),
        "symbol": place.symbol,
        "leaf": tensor.is_leaf,
        "asks": tensor.requires_grad,
        "node": passes.node_names[name],
        "reached": name in passes.reached,
        "value": passes.values[name],
        "saved": state.saved.get(name, []),
        "arrived": total(arrived),
        "grad": state.grads[name],
        "ran": name in [event.name for event in now],
        "running": bool(now) and now[-1].name == name,
    }


def _edges(expression: Expression, passes: Passes) -> list[dict[str, Any]]:
    """Edges from each tensor to those computed from it, and whether a gradient can flow back."""
    there = passes.tensors
    return [
        {"from": source, "to": name,
         "taped": name in passes.reached and there[source].requires_grad}
        for name in there
        for source in expression.places[name].sources
        if source in there
    ]  # fmt: skip


def _shown(event: Event) -> dict[str, Any]:
    return {
        "round": event.round, "number": event.number, "name": event.name, "node": event.node,
        "received": event.received, "handed": [list(pair) for pair in event.handed],
        "error": event.error,
    }  # fmt: skip


def _does(event: Event | None, grads: dict[str, Any]) -> str:
    """What the node did, in one sentence."""
    if event is None:
        return "The forward pass has recorded the graph. No node has run; no tensor has a .grad."
    if event.error:
        return f"{event.node} of {event.name} raises RuntimeError: {event.error}."
    came = f"{event.node} of {event.name} receives {text(event.received)}"
    if event.node == "AccumulateGrad":
        return f"{came} and adds it: {event.name}.grad is now {text(grads[event.name])}."
    return f"{came} and passes on " + ", ".join(
        f"{text(value)} to {name}" for name, value in event.handed
    ) + "."  # fmt: skip


def says(settings: Settings, frame: dict[str, Any]) -> str:
    """Which node has just run, and what it did."""
    event = frame["event"]
    if event is None:
        return frame["does"]
    return f"Backward {event['round']}, node {event['number']} of {frame['of']}: {frame['does']}"


def total(values: list[Any]) -> Any:
    """The sum of the gradients that have arrived; None if there are none."""
    if not values:
        return None
    if isinstance(values[0], list):
        return [sum(column) for column in zip(*values, strict=True)]
    return sum(values)


def text(value: Any) -> str:
    """A number or a list of them, with a real minus."""
    if isinstance(value, list):
        return "[" + ", ".join(map(text, value)) + "]"
    return f"{value + 0.0:.4g}".replace("-", "−")
