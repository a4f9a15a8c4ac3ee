"""Loader and model on one clock: the timeline of an epoch, and what each stage passes on.

`course.analysis.timeline` simulates the timeline with the rules of torch's DataLoader; the epoch's
time is compared with a closed form if all batches take equally long. What the stages pass on comes
from a real loader over the digits.

Source: Lecture 3, "Dataset → DataLoader → device" and "CPU loads while the GPU computes"; ledger
S13, S30, T08.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from course.analysis.timeline import BatchTimes, epoch_time, most_held, timeline
from course.widgets.base.settings import Checked, choice, slider, steps

SHOWN = 12
"""Batches on the timeline: enough for a slow one and three rounds of four workers."""
SLOW_EVERY = 7
"""One in this many batches is slow: not a multiple of 2, 3 or 4, so every worker gets one."""
WORKERS = (0, 1, 2, 3, 4)
WAITS = 0.02
"""A loader or model idle for a smaller share of the epoch than this does not count as waiting."""
BATCH_SIZE = 4


@dataclass(frozen=True, kw_only=True)
class Settings(Checked):
    """How long a batch takes on each side, and how much is loaded ahead."""

    num_workers: int = slider(0, WORKERS, "num_workers", hint="0: the training loop loads")
    load_ms: int = slider(
        30, (5, 10, 20, 30, 40, 60, 80), "load a batch", unit="ms", hint="fetch, transform, collate"
    )
    step_ms: int = slider(
        10, (5, 10, 20, 40, 80), "compute on it", unit="ms", hint="copy to the device and step"
    )
    prefetch_factor: int = slider(
        2, steps(1, 4, 1), "prefetch_factor", hint="batches requested ahead, per worker"
    )
    slow_factor: int = choice(
        1, (1, 4, 8), "one batch in 7 takes",
        names=("as long as the others", "4 times as long", "8 times as long"),
    )  # fmt: skip
    num_batches: int = slider(200, (12, 50, 200, 1_000), "batches per epoch")


def frame(settings: Settings) -> dict[str, Any]:
    """The first batches on the clock, the epoch by number of workers, and which side waits."""
    batches = _play(settings, settings.num_workers)
    rows = [_row(settings, num_workers) for num_workers in WORKERS]
    now = rows[settings.num_workers]
    mean_load = sum(_loads(settings)) / settings.num_batches
    return {
        "now": now,
        "gain": rows[0]["epoch_s"] / now["epoch_s"],
        "enough": math.ceil(mean_load / settings.step_ms),
        "mean_load": mean_load,
        "waits": _who_waits(now),
        "lanes": _lanes(settings.num_workers),
        "loads": [[one.worker, one.load_start, one.load_end] for one in batches[:SHOWN]],
        "steps": [[one.step_start, one.step_end] for one in batches[:SHOWN]],
        "gaps": _gaps(batches[:SHOWN]),
        "rows": rows,
        "floor_s": settings.num_batches * settings.step_ms / 1000,
        "stages": _stages(),
    }


def _loads(settings: Settings) -> list[float]:
    first = SLOW_EVERY // 2 - 1
    return [
        settings.load_ms * (settings.slow_factor if index % SLOW_EVERY == first else 1)
        for index in range(settings.num_batches)
    ]


def _play(settings: Settings, num_workers: int) -> list[BatchTimes]:
    return timeline(
        _loads(settings),
        settings.step_ms,
        num_workers=num_workers,
        prefetch_factor=settings.prefetch_factor,
    )


def _row(settings: Settings, num_workers: int) -> dict[str, Any]:
    """A simulated epoch with this many workers, and by the closed form if it applies."""
    batches = _play(settings, num_workers)
    total, count = batches[-1].step_end, settings.num_batches
    formula = epoch_time(count, settings.load_ms, settings.step_ms, num_workers)
    loading = sum(_loads(settings)) / max(num_workers, 1)
    return {
        "num_workers": num_workers,
        "epoch_s": total / 1000,
        "formula_s": formula / 1000 if settings.slow_factor == 1 else None,
        "model_idle": 1 - count * settings.step_ms / total,
        "first_s": batches[0].step_start / 1000,
        "workers_idle": 1 - loading / total if num_workers else None,
        "held": most_held(batches),
    }


def _who_waits(row: dict[str, Any]) -> str:
    """Which side waits; the unavoidable wait for the first batch does not count."""
    model = row["model_idle"] - row["first_s"] / row["epoch_s"] > WAITS
    if row["num_workers"] == 0:
        return "both, in turn"
    workers = row["workers_idle"] > WAITS
    return {
        (True, True): "both, in turn",
        (True, False): "the model",
        (False, True): "the workers",
        (False, False): "nobody",
    }[model, workers]


def _lanes(num_workers: int) -> list[str]:
    return [f"worker {n + 1}" for n in range(num_workers)] or ["loop loads"]


def _gaps(batches: list[BatchTimes]) -> list[list[float]]:
    """Stretches in which the model has no batch."""
    free, found = 0.0, []
    for one in batches:
        if one.step_start > free:
            found.append([free, one.step_start])
        free = one.step_end
    return found


@cache
def _stages() -> list[dict[str, str]]:
    """What each stage of a real loader passes on, with numbers from the digits."""
    from course.data.datasets import load

    data = load("digits")
    generator = torch.Generator().manual_seed(3)
    loader = DataLoader(data.train_dataset, BATCH_SIZE, shuffle=True, generator=generator)
    positions = next(iter(loader.batch_sampler))
    examples = [loader.dataset[position] for position in positions]
    inputs, targets = loader.collate_fn(examples)
    image, label = examples[0]
    features = inputs[0].numel()
    logits = nn.Linear(features, data.num_classes, device="meta")(inputs.flatten(1).to("meta"))
    loop, worker = "the loop", "a worker; without workers the loop"
    made = (
        ("data set", "read by fetch", f"{len(loader.dataset):,} examples"),
        ("sampler", loop, f"position {positions[0]}, position {positions[1]}, ..."),
        ("batch sampler", loop, f"positions {positions}"),
        ("fetch", worker, f"{BATCH_SIZE} times (image {list(image.shape)}, label {int(label)})"),
        ("collate", worker, f"inputs {list(inputs.shape)}, targets {list(targets.shape)}"),
        ("to device", loop, "the same batch, where the model is"),
        ("model", "the device", f"logits {list(logits.shape)}"),
    )  # fmt: skip
    return [{"name": name, "who": who, "gives": gives} for name, who, gives in made]


def says(settings: Settings, frame: dict[str, Any]) -> str:
    """The time of the epoch and which side waits, in one sentence."""
    now = frame["now"]
    return (
        f"{settings.num_workers} workers: an epoch takes {now['epoch_s']:.3g} s, the model is idle "
        f"for {now['model_idle']:.0%} of it; waiting: {frame['waits']}."
    )
