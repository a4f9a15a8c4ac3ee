"""Which execution path to take: a chain of questions, the first of which that fails decides.

Each path multiplies what the one before it does, mistakes included, so correctness comes first, and
a resource is added only where the measurement says that it is the one that is short.

Source: Engineering module, §5, device decision tree and execution paths; ledger S28, T30, T31.
"""

from __future__ import annotations

from dataclasses import dataclass

from course.data.throughput import WAITING

LAUNCH_BOUND_MS = 1.0
"""Below it a step is mostly launches: each of some hundred operators costs about 10 µs of Python
and driver, which no accelerator makes faster."""


@dataclass(frozen=True, kw_only=True)
class Situation:
    """What was measured about a run before anything is made faster."""

    right_on_one: bool
    """It overfits one batch and repeats by its seed, on one device."""
    step_ms: float
    """Median of a training step on a batch that lies ready, on the CPU."""
    waiting: float = 0.0
    """Share of the loop in which no step runs."""
    has_gpu: bool = False
    fits: bool = True
    """Weights, gradients, state and activations of the batch fit into the device's memory."""
    fits_at_one: bool = True
    """They fit at a micro-batch of one example."""
    on_gpu: bool = False
    """The step has been moved to the GPU already, and is still too slow."""
    half_precision: bool = False
    """Autocast is on already."""
    compiled: bool = False
    """torch.compile is on already, or does not pay here."""
    num_devices: int = 1


@dataclass(frozen=True, kw_only=True)
class Advice:
    """One path, and why."""

    path: str
    """A key of `PATHS`, or `correctness` or `loader`."""
    because: str

    def __str__(self) -> str:
        return f"{self.path}: {self.because}"


PATHS = {
    "cpu": "small models, tests, CI",
    "gpu": "large products in large batches",
    "amp": "a GPU with 16-bit units, once the metric is the same",
    "compile": "a stable model with stable shapes and few graph breaks",
    "accumulate": "the batch does not fit, micro-batches do",
    "recompute": "one example does not fit",
    "distributed": "one device is used fully, and takes too long",
}
"""What each path is for."""


def advise(at: Situation) -> Advice:
    """The one thing to do next.

    >>> advise(Situation(right_on_one=True, step_ms=0.4, has_gpu=True)).path
    'cpu'
    """
    if not at.right_on_one:
        return _take("correctness", "a faster run of a wrong program is wrong sooner")
    if at.waiting > WAITING:
        return _take("loader", f"no step runs in {at.waiting:.0%} of the loop: feed it first")
    if not at.fits_at_one:
        return _take("recompute", "one example does not fit: keep fewer activations")
    if not at.fits:
        return _take("accumulate", "the batch does not fit, and one example does")
    if not at.on_gpu and (not at.has_gpu or at.step_ms < LAUNCH_BOUND_MS):
        why = "there is no GPU" if not at.has_gpu else f"a step of {at.step_ms:g} ms is launches"
        return _take("cpu", why)
    if not at.on_gpu:
        return _take("gpu", f"a step of {at.step_ms:g} ms holds enough arithmetic")
    if not at.half_precision:
        return _take("amp", "the largest gain of a line on a GPU; compare the metric")
    if not at.compiled:
        return _take("compile", "the arithmetic is small now; fuse what is left")
    if at.num_devices > 1:
        return _take("distributed", "one device does all it can")
    return _take("gpu", "nothing is left to switch on: a smaller model, or more devices")


def _take(path: str, because: str) -> Advice:
    return Advice(path=path, because=because)
