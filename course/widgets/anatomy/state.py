"""One training step, taken apart: real tensors after each of the six operations.

The layer, input and target of the chapter's worked step (N09): two outputs, MSE, SGD. Each state is
reached by really running the operations up to it, in the order that the settings give, so the
effects of the two wrong orders are shown, not just described.

Source: Training-loop chapter, c3; engineering module, §1 and §4; ledger S04, S23, S27, N09, N10.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from course.widgets.base.settings import Checked, choice, slider, steps
from course.worked.one_step import T, W, X

OPERATIONS = {
    "zero_grad": ("optimizer.zero_grad()", "clears .grad: what an earlier step left there is gone"),
    "forward": ("outputs = model(inputs)", "multiplies and adds; saves what backward needs"),
    "loss": ("loss = criterion(outputs, targets)", "one number, with its graph"),
    "backward": (
        "loss.backward()",
        "fills .grad along the graph; weights stay; the graph is freed",
    ),
    "step": ("optimizer.step()", "moves the weights by −lr · .grad; .grad stays"),
    "schedule": ("scheduler.step()", "changes only lr, for the next step"),
}

ORDERS = {
    "right": tuple(OPERATIONS),
    "never": tuple(name for name in OPERATIONS if name != "zero_grad"),
    "late": ("forward", "loss", "backward", "zero_grad", "step", "schedule"),
}


@dataclass(frozen=True, kw_only=True)
class Settings(Checked):
    """How far the step has got, and how it is written."""

    done: int = slider(0, steps(0, 12, 1), "operations done")
    order: str = choice(
        "right",
        tuple(ORDERS),
        "written",
        names=("in the right order", "without zero_grad()", "zero_grad() after backward()"),
    )
    lr: float = slider(0.01, (0.001, 0.01, 0.05, 0.1, 0.3, 0.5), "learning rate")
    gamma: float = choice(0.5, (1.0, 0.5, 0.1), "schedule: lr times")


def frame(settings: Settings) -> dict[str, Any]:
    """The code with the line that has just run, and the tensors before and after it."""
    order = ORDERS[settings.order]
    torch_step = _Step(settings)
    before, history = torch_step.tensors(), [torch_step.loss_now()]
    name = ""
    for number in range(settings.done):
        name = order[number % len(order)]
        before = torch_step.tensors()
        getattr(torch_step, name)()
        if name == "step":
            history.append(torch_step.loss_now())
    after = torch_step.tensors()
    return {
        "code": [OPERATIONS[one][0] for one in order],
        "line": (settings.done - 1) % len(order) if settings.done else None,
        "operation": name,
        "does": OPERATIONS[name][1] if name else "nothing has run yet: .grad does not exist",
        "update": (settings.done + len(order) - 1) // len(order),
        "tensors": [_shown(key, before[key], after[key]) for key in after],
        "losses": history,
    }


class _Step:
    """The chapter's layer in torch, its operations as methods."""

    def __init__(self, settings: Settings) -> None:
        self.layer = torch.nn.utils.skip_init(nn.Linear, 2, 2, dtype=torch.float64)
        with torch.no_grad():
            self.layer.weight.copy_(torch.tensor(W, dtype=torch.float64))
            self.layer.bias.zero_()
        self.inputs, self.targets = (torch.tensor(v, dtype=torch.float64) for v in (X, T))
        self.optimizer = torch.optim.SGD(self.layer.parameters(), lr=settings.lr)
        self.gamma = settings.gamma
        self.outputs: Tensor | None = None
        self.value: Tensor | None = None

    def zero_grad(self) -> None:
        self.optimizer.zero_grad()

    def forward(self) -> None:
        self.outputs = self.layer(self.inputs)

    def loss(self) -> None:
        self.value = nn.functional.mse_loss(self.outputs, self.targets)

    def backward(self) -> None:
        self.value.backward()

    def step(self) -> None:
        self.optimizer.step()

    def schedule(self) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] *= self.gamma

    def loss_now(self) -> float:
        """The loss with the current weights."""
        with torch.no_grad():
            return nn.functional.mse_loss(self.layer(self.inputs), self.targets).item()

    def tensors(self) -> dict[str, Any]:
        """All tensors as plain numbers; None for those that do not exist."""
        layer = self.layer
        return {
            "inputs": self.inputs.tolist(),
            "targets": self.targets.tolist(),
            "outputs": None if self.outputs is None else self.outputs.tolist(),
            "loss": None if self.value is None else self.value.item(),
            "weight": layer.weight.tolist(),
            "bias": layer.bias.tolist(),
            "weight.grad": None if layer.weight.grad is None else layer.weight.grad.tolist(),
            "bias.grad": None if layer.bias.grad is None else layer.bias.grad.tolist(),
            "lr": self.optimizer.param_groups[0]["lr"],
        }


def touched() -> dict[str, dict[str, str]]:
    """What each operation of the second update does to each tensor, in the right order.

    Returns:
        By operation, then by tensor: `new`, `changed`, `gone`, or `same`.
    """
    count, found = len(OPERATIONS), {}
    for number, name in enumerate(OPERATIONS, start=count + 1):
        before, after = (frame(Settings(done=done))["tensors"] for done in (number - 1, number))
        found[name] = {
            now["name"]: "gone" if then["values"] and not now["values"] else now["state"]
            for then, now in zip(before, after, strict=True)
        }
        found[name] = {k: "same" if v == "none" else v for k, v in found[name].items()}
    return found


NOTES = {
    "inputs": "[2]", "targets": "[2]", "outputs": "[2] = W x + b", "loss": "mean (y − t)²",
    "weight": "[2, 2]", "bias": "[2]", "weight.grad": "[2, 2]", "bias.grad": "[2]",
    "lr": "of the optimizer",
}  # fmt: skip


def _shown(name: str, before: Any, after: Any) -> dict[str, Any]:
    if after is None:
        state = "none"
    elif before is None:
        state = "new"
    else:
        state = "same" if before == after else "changed"
    return {"name": name, "values": after, "state": state, "note": NOTES[name]}


def says(settings: Settings, frame: dict[str, Any]) -> str:
    """The operation and what it changed."""
    moved = [one["name"] for one in frame["tensors"] if one["state"] in ("new", "changed")]
    what = f"changes {', '.join(moved)}" if moved else "changes nothing shown here"
    if not settings.done:
        return "Before the first operation: there are weights and data, but no gradients."
    return f"Operation {settings.done}, {frame['operation']}, {what}."
