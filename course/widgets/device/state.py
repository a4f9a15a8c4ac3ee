"""CPU, GPU, or the loader first? Three questions, answered from the numbers of one training step.

torch counts arithmetic, memory and operations of the step (`cost`). The speeds of devices are
explicit assumptions: the round numbers in `DEVICES`, to be replaced by what
`course.data.throughput` measures on a machine. The answer can be a CPU.

Source: AI/ML engineering module, section 5; ledger S28, F92.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from course.widgets.base.settings import Checked, choice, slider
from course.widgets.device.cost import FLOAT, NETWORKS, Cost, cost

GB = 1e9
WORTH = 2.0
"""Speed-up from which a GPU is worth it: below, copies, queueing and its price outweigh it."""
USABLE = 0.9
"""Share of a device's memory available to the step; the rest goes to context and fragmentation."""
COPY = 12 * GB
"""Bytes per second from the host to a GPU: about that of a 16-lane PCIe 3 slot."""
STATES = {"SGD": 0, "momentum": FLOAT, "Adam": 2 * FLOAT}
"""Bytes of optimizer state per weight."""
BATCHES = (1, 4, 16, 64, 256, 1024, 4096)


@dataclass(frozen=True)
class Device:
    """A device's assumed speed in training, about half of the data sheet's figures."""

    memory: float
    fp32: float
    """Floating-point operations per second, sustained."""
    bf16: float
    per_operation: float
    """Seconds until the next operation can start, however small it is."""
    overlaps: bool
    """Whether operations are queued while others compute."""


DEVICES = {
    "CPU": Device(32 * GB, 0.3e12, 0.3e12, 3e-6, False),
    "GPU of 8 GB": Device(8 * GB, 5e12, 20e12, 8e-6, True),
    "GPU of 24 GB": Device(24 * GB, 20e12, 80e12, 8e-6, True),
    "GPU of 80 GB": Device(80 * GB, 30e12, 350e12, 8e-6, True),
}
GPUS = tuple(DEVICES)[1:]


@dataclass(frozen=True, kw_only=True)
class Settings(Checked):
    """The network and its step, the GPU considered, and the loader."""

    network: str = choice("convolutions, 32 × 32", tuple(NETWORKS), "network")
    batch_size: int = slider(64, BATCHES, "batch size", unit="examples")
    optimizer: str = choice("Adam", tuple(STATES), "optimizer")
    bf16: bool = choice(False, (False, True), "precision", names=("FP32", "BF16 autocast"))
    gpu: str = choice("GPU of 24 GB", GPUS, "GPU considered")
    load_ms: float = slider(
        1.0, (0.01, 0.1, 1.0, 10.0), "loading takes", unit="ms per example",
        hint="read, decode, augment, in one process",
    )  # fmt: skip
    workers: int = slider(4, (0, 1, 2, 4, 8, 16), "loader's workers")


def frame(settings: Settings) -> dict[str, Any]:
    """The three questions with their numbers, the answer, and the times over the batch size."""
    one = cost(settings.network, settings.bf16)
    times = _times(settings, one, settings.batch_size)
    memory = need(settings, one, settings.batch_size)
    most = largest_batch(settings, one, DEVICES[settings.gpu].memory)
    questions = [
        _enough(times),
        _fits(settings, memory, most),
        _keeps_up(settings, times),
    ]
    return {
        "parameters": one.parameters,
        "flops": one.flops * settings.batch_size,
        "operations": one.operations,
        "times": {name: value * 1e3 for name, value in times.items()},
        "memory": {name: value / GB for name, value in memory.items()},
        "needed": sum(memory.values()) / GB,
        "capacity": USABLE * DEVICES[settings.gpu].memory / GB,
        "largest": most,
        "gain": times["CPU"] / times["GPU"],
        "loop_gain": _loop(settings, times, "CPU") / _loop(settings, times, "GPU"),
        "questions": questions,
        "answer": answer(settings, questions, most, _fits_cpu(settings, memory)),
        "batches": list(BATCHES),
        "curves": _curves(settings, one),
        "needs": [sum(need(settings, one, size).values()) / GB for size in BATCHES],
        "without_batch": sum(need(settings, one, 0).values()) / GB,
    }


def step_seconds(device: Device, one: Cost, batch_size: int, bf16: bool) -> float:
    """Forward and backward of a prepared batch; for a GPU, the input is copied first."""
    arithmetic = one.flops * batch_size / (device.bf16 if bf16 else device.fp32)
    queueing = one.operations * device.per_operation
    if not device.overlaps:
        return arithmetic + queueing
    return max(arithmetic, queueing) + one.input_bytes * batch_size / COPY


def need(settings: Settings, one: Cost, batch_size: int) -> dict[str, float]:
    """Bytes of a step, by what they hold."""
    return {
        "weights": one.parameters * FLOAT,
        "gradients": one.parameters * FLOAT,
        "optimizer": one.parameters * STATES[settings.optimizer],
        "saved for backward": one.fixed_saved + one.saved * batch_size,
        "batch": one.input_bytes * batch_size,
    }


def largest_batch(settings: Settings, one: Cost, memory: float) -> int:
    """Number of examples that fit at once; 0 if not even one does."""
    fixed = sum(need(settings, one, 0).values())
    return max(0, math.floor((USABLE * memory - fixed) / (one.saved + one.input_bytes)))


def _times(settings: Settings, one: Cost, batch_size: int) -> dict[str, float]:
    """Seconds per batch: each device's step, and the loader's part."""
    return {
        "CPU": step_seconds(DEVICES["CPU"], one, batch_size, settings.bf16),
        "GPU": step_seconds(DEVICES[settings.gpu], one, batch_size, settings.bf16),
        "loader": settings.load_ms * 1e-3 * batch_size / max(1, settings.workers),
    }


def _loop(settings: Settings, times: dict[str, float], device: str) -> float:
    """Seconds per batch of the whole loop: workers load during the step, else in turn."""
    if settings.workers == 0:
        return times["loader"] + times[device]
    return max(times["loader"], times[device])


def _enough(times: dict[str, float]) -> dict[str, Any]:
    gain = times["CPU"] / times["GPU"]
    return {
        "asks": "Is there enough arithmetic?", "yes": gain >= WORTH,
        "says": f"step {_time(times['CPU'])} on the CPU, {_time(times['GPU'])} on the GPU: "
                f"{_short(gain)} times as fast; it is worth it from {WORTH:g} on",
    }  # fmt: skip


def _fits(settings: Settings, memory: dict[str, float], most: int) -> dict[str, Any]:
    needed, there = sum(memory.values()), USABLE * DEVICES[settings.gpu].memory
    return {
        "asks": "Does it fit?", "yes": settings.batch_size <= most,
        "says": f"{_gb(needed)} needed, {_gb(there)} usable; {most:,} examples fit at once",
    }  # fmt: skip


def _keeps_up(settings: Settings, times: dict[str, float]) -> dict[str, Any]:
    waits = "before each step" if settings.workers == 0 else "while the step runs"
    return {
        "asks": "Does the loader keep up?",
        "yes": settings.workers > 0 and times["loader"] <= times["GPU"],
        "says": f"a batch is loaded in {_time(times['loader'])} {waits}, the GPU's step takes "
                f"{_time(times['GPU'])}",
    }  # fmt: skip


def _fits_cpu(settings: Settings, memory: dict[str, float]) -> bool:
    return sum(memory.values()) <= USABLE * DEVICES["CPU"].memory


def answer(
    settings: Settings, questions: list[dict[str, Any]], most: int, fits_cpu: bool
) -> dict[str, Any]:
    """The answer: the first no decides. `stops` is its index; None for three times yes."""
    enough, fits, keeps_up = (question["yes"] for question in questions)
    if not enough and fits_cpu:
        return {"stops": 0, "says": "CPU: the step is too small for a GPU to gain much."}
    if most == 0:
        return {"stops": 1, "says": "Not this GPU: one example does not fit. Use a larger one, or "
                                    "split weights and states over several."}  # fmt: skip
    if not fits:
        windows = math.ceil(settings.batch_size / most)
        return {"stops": 1, "says": f"GPU with accumulation: {windows} micro-batches of at most "
                                    f"{most:,} make up the batch."}  # fmt: skip
    if not keeps_up:
        return {"stops": 2, "says": "Improve the loader first, with more workers or less work per "
                                    "example. Until then the GPU waits."}  # fmt: skip
    return {
        "stops": None,
        "says": "GPU: there is enough to compute, it fits, and the data arrive in time.",
    }


def _curves(settings: Settings, one: Cost) -> dict[str, list[float]]:
    """Milliseconds per example over the batch size."""
    made = [_times(settings, one, size) for size in BATCHES]
    return {
        name: [times[name] * 1e3 / size for times, size in zip(made, BATCHES, strict=True)]
        for name in ("CPU", "GPU", "loader")
    }


def _short(value: float) -> str:
    """Two digits, or whole thousands: 0.41, 65, 2,400."""
    return f"{value:.2g}" if value < 10 else f"{value:,.0f}"


def _time(seconds: float) -> str:
    return f"{_short(seconds * 1e3)} ms" if seconds < 1 else f"{_short(seconds)} s"


def _gb(count: float) -> str:
    return f"{_short(count / GB)} GB" if count >= 1e8 else f"{_short(count / 1e6)} MB"


def says(settings: Settings, frame: dict[str, Any]) -> str:
    """The three answers, and where they lead."""
    answers = ", ".join("yes" if one["yes"] else "no" for one in frame["questions"])
    return (
        f"Batches of {settings.batch_size:,}: arithmetic, memory, loader: {answers}. "
        f"{frame['answer']['says']}"
    )
