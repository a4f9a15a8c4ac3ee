"""Ranks 0 to 5 and what each dimension means; a classifier from images to the loss, with shapes.

Shapes, parameter counts and bytes are those of real modules and tensors, made without storage.

Source: Engineering module, §1 and §3; ledger S24, S26, T02, N42, N43.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from course.widgets.base.settings import Checked, slider, steps
from course.widgets.shapes.ranks import CHANNELS, CLASSES, PIXELS, RUNGS, SIDE, answer

NAMES = ("images", "flatten", "hidden", "ReLU", "dropout", "logits", "loss")
"""The stations: the input, the output of each layer, the loss."""
DIMENSIONS = (("B", "C", "H", "W"), *[("B", "F")] * 4, ("B", "classes"), ())


@dataclass(frozen=True, kw_only=True)
class Settings(Checked):
    """A rank, a station, and the two sizes to choose."""

    at: int = slider(3, steps(1, len(NAMES), 1), "station", unit=f"of {len(NAMES)}")
    batch_size: int = slider(64, (1, 16, 64, 256, 1024), "batch size", unit="examples")
    width: int = slider(128, (16, 32, 128, 512, 1024), "width", unit="units")
    rank: int = slider(4, steps(0, 5, 1), "rank")


def frame(settings: Settings) -> dict[str, Any]:
    """The six ranks, the seven stations, and the total memory."""
    stations = _stations(settings.batch_size, settings.width)
    rung, asked = RUNGS[settings.rank], (settings.rank, settings.batch_size)
    return {
        "rungs": [_rung(rank, settings.batch_size) for rank in range(len(RUNGS))],
        "answers": {
            "right": [rung.right, answer(*asked, wrong=False)],
            "wrong": [rung.wrong, answer(*asked, wrong=True)],
            "mistake": rung.mistake,
        },
        "stations": stations,
        "now": settings.at - 1,
        "parameters": sum(station["parameters"] for station in stations),
        "parameter_bytes": sum(station["parameter_bytes"] for station in stations),
        "tensor_bytes": sum(station["bytes"] for station in stations if not station["view"]),
    }


def _rung(rank: int, batch_size: int) -> dict[str, Any]:
    rung = RUNGS[rank]
    made = torch.empty(rung.shape(batch_size), dtype=rung.dtype, device="meta")
    return {
        "what": rung.what, "short": rung.short, "names": list(rung.dimensions),
        "shape": list(made.shape), "bytes": made.nbytes,
    }  # fmt: skip


@lru_cache
def _stations(batch_size: int, width: int) -> list[dict[str, Any]]:
    """Follow the batch through the layers: its shape after each, and the layer's parameters."""
    with torch.device("meta"):
        layers = network(width)
        images = torch.empty(batch_size, CHANNELS, SIDE, SIDE)
        labels = torch.empty(batch_size, dtype=torch.int64)
    values, found = images, [_station(0, "images", images, images, ())]
    for number, layer in enumerate(layers, start=1):
        before, values = values, layer(values)
        found.append(_station(number, _words(layer), before, values, tuple(layer.parameters())))
    loss = nn.functional.cross_entropy(values, labels)
    return [*found, _station(len(found), "cross_entropy", values, loss, ())]


def network(width: int) -> nn.Sequential:
    """The lecture's classifier, of any width."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(PIXELS, width), nn.ReLU(), nn.Dropout(), nn.Linear(width, CLASSES)
    )


def _station(
    number: int, line: str, before: Tensor, after: Tensor, held: tuple[Tensor, ...]
) -> dict[str, Any]:
    return {
        "name": NAMES[number], "line": line, "names": list(DIMENSIONS[number]),
        "shape": list(after.shape), "bytes": after.nbytes,
        "view": after._is_view(),  # flatten returns a view of the same numbers
        "parameters": sum(one.numel() for one in held),
        "parameter_bytes": sum(one.nbytes for one in held),
        "weights": [list(one.shape) for one in held],
        "from": list(before.shape),
    }  # fmt: skip


def _words(layer: nn.Module) -> str:
    if isinstance(layer, nn.Linear):
        return f"Linear({layer.in_features}, {layer.out_features})"
    return f"Dropout({layer.p})" if isinstance(layer, nn.Dropout) else f"{type(layer).__name__}()"


def says(settings: Settings, frame: dict[str, Any]) -> str:
    """The station's tensor and parameters, and the rank with torch's answer to the mistake."""
    station, rung = frame["stations"][frame["now"]], frame["rungs"][settings.rank]
    wrong, said = frame["answers"]["wrong"]
    return (
        f"Station {settings.at}, {station['name']}: {station['shape']}, "
        f"{station['parameters']:,} of {frame['parameters']:,} parameters. "
        f"Rank {settings.rank}, {rung['what']}: {rung['shape']}; {wrong}: {said}"
    )
