"""A module is built, stepped, moved, saved and loaded: which tensors does each operation reach?

A small network stores a scale and two layers in the ways that the settings choose. Everything shown
is measured on it: what `named_parameters()` and `state_dict()` list, where `.grad` is filled, which
values an optimizer's step changes, which dtypes `.to()` changes, which values a new module has
after `load_state_dict()`. `.to(torch.float64)` stands for every move; a move to a GPU works the
same way.

Source: Lecture 3, "nn.Module · the container"; ledger S11, T07, F01, F02, F03, F04.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from course.widgets.base.settings import Checked, choice, slider, steps

SCALES = {
    "tensor": "self.scale = torch.rand(2)",
    "asking": "self.scale = torch.rand(2, requires_grad=True)",
    "parameter": "self.scale = nn.Parameter(torch.rand(2))",
    "frozen": "self.scale = nn.Parameter(torch.rand(2), requires_grad=False)",
    "buffer": 'self.register_buffer("scale", torch.rand(2))',
    "passing": 'self.register_buffer(\n            "scale", torch.rand(2), persistent=False)',
}
BLOCKS = {
    "list": "self.blocks = [linear(), linear()]",
    "dict": 'self.blocks = {"a": linear(), "b": linear()}',
    "ModuleList": "self.blocks = nn.ModuleList([linear(), linear()])",
    "ModuleDict": 'self.blocks = nn.ModuleDict({"a": linear(), "b": linear()})',
}
OPERATIONS = (
    "model = Net()",
    "loss.backward()",
    "optimizer.step()",
    "model.to(torch.float64)",
    "new.load_state_dict(saved)",
)
"""What happens to the module, in this order; `saved` is `model.state_dict()`."""
WAYS = ("parameter", "grad", "stepped", "moved", "saved")


@dataclass(frozen=True, kw_only=True)
class Settings(Checked):
    """How the module stores its tensors, and which operation has just run."""

    scale: str = choice(
        "tensor",
        tuple(SCALES),
        "scale is",
        names=(
            "a plain tensor",
            "a tensor with requires_grad",
            "an nn.Parameter",
            "a frozen nn.Parameter",
            "a buffer",
            "a non-persistent buffer",
        ),
    )
    blocks: str = choice(
        "list",
        tuple(BLOCKS),
        "blocks are in",
        names=("a list", "a dict", "an nn.ModuleList", "an nn.ModuleDict"),
    )
    at: int = slider(3, steps(1, 5, 1), "operation", unit=f"of {len(OPERATIONS)}")


class Net(nn.Module):
    """The module on the page: one registered layer, a scale, and two more layers."""

    def __init__(self, scale: str, blocks: str) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self._keep_scale(scale, torch.rand(2))
        linears = [nn.Linear(2, 2, bias=False) for _ in range(2)]
        named = dict(zip("ab", linears, strict=True))
        kinds = {"ModuleList": nn.ModuleList, "ModuleDict": nn.ModuleDict, "dict": dict}
        self.blocks = kinds.get(blocks, list)(named if "ict" in blocks else linears)

    def _keep_scale(self, how: str, drawn: Tensor) -> None:
        if how in ("buffer", "passing"):
            self.register_buffer("scale", drawn, persistent=how == "buffer")
        elif how in ("parameter", "frozen"):
            self.scale = nn.Parameter(drawn, requires_grad=how == "parameter")
        else:
            self.scale = drawn.requires_grad_(how == "asking")

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.layer(inputs) * self.scale
        for block in self.listed():
            hidden = block(hidden)
        return hidden

    def listed(self) -> list[nn.Module]:
        """The blocks in order, however they are stored."""
        return list(self.blocks.values() if hasattr(self.blocks, "values") else self.blocks)

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor that forward uses, by a readable name."""
        keys = list(self.blocks) if hasattr(self.blocks, "keys") else [0, 1]
        names = [f"blocks.{key}.weight" for key in keys]
        found = {"layer.weight": self.layer.weight, "layer.bias": self.layer.bias}
        found["scale"] = self.scale
        return found | dict(zip(names, (one.weight for one in self.listed()), strict=True))


def frame(settings: Settings) -> dict[str, Any]:
    """The code, what reaches each tensor, both listings, and every tensor before and after."""
    walk = _walk(settings.scale, settings.blocks)
    code, chosen = _code(settings)
    return {
        "code": code,
        "chosen": chosen,
        "operations": list(OPERATIONS),
        "rows": walk["rows"],
        "parameters": walk["parameters"],
        "state_dict": walk["state_dict"],
        "numbers": walk["numbers"],
        "tensors": walk["moments"][settings.at - 1],
        "forward": walk["forward"][settings.at - 1],
    }


@lru_cache
def _walk(scale: str, blocks: str) -> dict[str, Any]:
    """Everything measured on one module, from its construction to a loaded copy."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(3)
        model, inputs = Net(scale, blocks), torch.randn(8, 2)
        torch.default_generator.manual_seed(4)
        new = Net(scale, blocks).to(torch.float64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    built = _values(model)
    listings = _listings(model)
    model(inputs).square().mean().backward()
    grads = [tensor.grad is not None for tensor in model.tensors().values()]
    optimizer.step()
    stepped = _values(model)
    model.to(torch.float64)
    dtypes = [tensor.dtype == torch.float64 for tensor in model.tensors().values()]
    forward = _forward(model, inputs.double())
    new.load_state_dict(model.state_dict())
    loaded = _values(new)
    moved = [stepped[name] != built[name] for name in built]
    rows = [
        {"name": name, "parameter": name in listings["names"], "grad": grads[i],
         "stepped": moved[i], "moved": dtypes[i], "saved": name in model.state_dict()}
        for i, name in enumerate(built)
    ]  # fmt: skip
    return {
        **listings,
        "rows": rows,
        "moments": _moments(rows, built, stepped, loaded),
        "forward": ["runs in float32"] * 3 + [forward, _forward(new, inputs.double())],
    }


def _values(model: Net) -> dict[str, list]:
    return {name: tensor.tolist() for name, tensor in model.tensors().items()}


def _listings(model: Net) -> dict[str, Any]:
    """What the module lists, and how many of the numbers that forward uses this covers."""
    parameters, used = dict(model.named_parameters()), model.tensors()
    return {
        "names": set(parameters),
        "parameters": [[name, list(p.shape), p.requires_grad] for name, p in parameters.items()],
        "state_dict": [[name, list(t.shape)] for name, t in model.state_dict().items()],
        "numbers": {
            "used": sum(tensor.numel() for tensor in used.values()),
            "parameters": sum(p.numel() for p in parameters.values()),
            "saved": sum(tensor.numel() for tensor in model.state_dict().values()),
        },
    }


def _forward(model: Net, inputs: Tensor) -> str:
    """The result of a forward pass in float64: torch's error, or that it runs."""
    try:
        model(inputs)
    except RuntimeError as fault:
        return f"raises RuntimeError: {str(fault).splitlines()[0]}"
    return "runs in float64"


def _moments(rows: list[dict], built: dict, stepped: dict, loaded: dict) -> list[list[dict]]:
    """Per operation, each tensor's values, whether it was touched, and a note in words."""
    after = (built, built, stepped, stepped, loaded)
    notes = (
        ("", "built", "built"),
        ("grad", ".grad filled", "no .grad"),
        ("stepped", "moved by step()", "not moved"),
        ("moved", "float64", "still float32"),
        ("saved", "as saved", "not saved: new random values"),
    )
    moments = []
    for values, (way, yes, no) in zip(after, notes, strict=True):
        moment = []
        for row in rows:
            reached = way == "" or row[way]
            state = "new" if way == "" else "changed" if reached else "none"
            moment.append({"name": row["name"], "values": values[row["name"]], "state": state,
                           "note": yes if reached else no})  # fmt: skip
        moments.append(moment)
    return moments


def _code(settings: Settings) -> tuple[list[str], list[int]]:
    """The module's source as a student would write it, and which of its lines are chosen."""
    blocks = "self.blocks.values()" if "ict" in settings.blocks else "self.blocks"
    head = [
        "class Net(nn.Module):",
        "    def __init__(self):",
        "        super().__init__()",
        "        self.layer = nn.Linear(2, 2)",
    ]
    ways = f"        {SCALES[settings.scale]}\n        {BLOCKS[settings.blocks]}".splitlines()
    forward = [
        "",
        "    def forward(self, inputs):",
        "        hidden = self.layer(inputs) * self.scale",
        f"        for block in {blocks}:",
        "            hidden = block(hidden)",
        "        return hidden",
    ]
    return head + ways + forward, list(range(len(head), len(head) + len(ways)))


def says(settings: Settings, frame: dict[str, Any]) -> str:
    """What is left out, in one sentence."""
    count = {way: sum(row[way] for row in frame["rows"]) for way in WAYS}
    total = len(frame["rows"])
    operation = frame["operations"][settings.at - 1]
    return (
        f"After {operation}: of {total} tensors that forward uses, step() moves {count['stepped']},"
        f" .to() {count['moved']}, and state_dict() holds {count['saved']}."
    )
