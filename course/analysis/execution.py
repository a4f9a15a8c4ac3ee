"""Which execution path to take: a chain of questions; the first that fails decides.

Each path scales up what the one before it does, mistakes included, so correctness comes first, and
a resource is added only if measurements show that it is the bottleneck.

Source: Engineering module, §5, device decision tree and execution paths; ledger S28, T30, T31.
"""

from __future__ import annotations

from dataclasses import dataclass

from course.data.throughput import WAITING

LAUNCH_BOUND_MS = 1.0
"""Below this a step is mostly overhead: each of a few hundred operators costs about 10 µs in Python
and the driver, which no accelerator makes faster."""


@dataclass(frozen=True, kw_only=True)
class Situation:
    """Measurements of a run, taken before anything is made faster."""

    right_on_one: bool
    """It overfits one batch and is reproducible with its seed, on one device."""
    step_ms: float
    """Median time of a training step on a prepared batch, on the CPU."""
    waiting: float = 0.0
    """Share of the loop's time in which no step runs."""
    has_gpu: bool = False
    fits: bool = True
    """Weights, gradients, state and the batch's activations fit into the device's memory."""
    fits_at_one: bool = True
    """They fit with a micro-batch of one example."""
    on_gpu: bool = False
    """The step already runs on the GPU, and is still too slow."""
    half_precision: bool = False
    """Autocast is already on."""
    compiled: bool = False
    """torch.compile is already on, or does not pay off here."""
    num_devices: int = 1


@dataclass(frozen=True, kw_only=True)
class Advice:
    """One path, and the reason."""

    path: str
    """A key of `PATHS`, or `correctness` or `loader`."""
    because: str

    def __str__(self) -> str:
        return f"{self.path}: {self.because}"


PATHS = {
    "cpu": "small models, tests, CI",
    "gpu": "large matrix products in large batches",
    "amp": "a GPU with 16-bit units, if the metric stays the same",
    "compile": "a stable model with stable shapes and few graph breaks",
    "accumulate": "the batch does not fit, but micro-batches do",
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
        return _take("correctness", "a faster run of a wrong program is only wrong sooner")
    if at.waiting > WAITING:
        return _take(
            "loader",
            f"no step runs in {at.waiting:.0%} of the loop's time: speed up the loader first",
        )
    if not at.fits_at_one:
        return _take("recompute", "even one example does not fit: keep fewer activations")
    if not at.fits:
        return _take("accumulate", "the batch does not fit, but one example does")
    if not at.on_gpu and (not at.has_gpu or at.step_ms < LAUNCH_BOUND_MS):
        why = (
            "there is no GPU"
            if not at.has_gpu
            else (f"a step of {at.step_ms:g} ms is mostly launch overhead")
        )
        return _take("cpu", why)
    if not at.on_gpu:
        return _take("gpu", f"a step of {at.step_ms:g} ms holds enough arithmetic")
    if not at.half_precision:
        return _take("amp", "the largest gain from one line on a GPU; compare the metric")
    if not at.compiled:
        return _take("compile", "the arithmetic is fast now; fuse what is left")
    if at.num_devices > 1:
        return _take("distributed", "one device is used fully")
    return _take("gpu", "there is nothing left to switch on: use a smaller model, or more devices")


def _take(path: str, because: str) -> Advice:
    return Advice(path=path, because=because)
