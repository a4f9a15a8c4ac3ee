"""The device on which answers are computed: values of `--device` and `check(device=...)`.

Cases are drawn on the CPU from the same seed whatever the device, so one submission gets one
verdict on each. In a class run, only the requested device is visible: a notebook graded on the CPU
sees no GPU, even if there is one.
"""

from __future__ import annotations

import sys
from glob import glob
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

FILES = {"cuda": ("nvidia*", "kfd", "dri/renderD*")}
"""Under /dev, by kind of device: NVIDIA's, and AMD's, which torch calls cuda, too."""
LOST = ("CUDA error", "HIP error", "device-side assert")
"""In the text of an exception after which a process cannot use its GPU any more."""


def of_notebook() -> torch.device:
    """The notebook's own choice: its variable `device`, if that names a device that is here."""
    import torch

    from course.engine import DeviceError, choose_device

    said = _variable("device")
    try:
        return choose_device(said if isinstance(said, (str, torch.device)) else "cpu")
    except DeviceError:
        return torch.device("cpu")


def _variable(name: str) -> Any:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return shell.user_ns.get(name) if shell else None


def files(device: str) -> tuple[str, ...]:
    """The files of /dev that a process needs for a device, e.g. `nvidia0`; none for the CPU."""
    patterns = FILES.get(device.partition(":")[0], ())
    return tuple(sorted(path[len("/dev/") :] for p in patterns for path in glob(f"/dev/{p}")))


def is_lost(text: str) -> bool:
    """Whether an exception's text says that its process cannot use the GPU any more."""
    return any(words in text for words in LOST)


def must_compute(device: str) -> None:
    """That this process, which no answer can harm, still computes where answers were computed.

    Raises:
        DeviceError: It does not: the device is lost, and answers that failed there prove nothing.
    """
    import torch

    from course.engine import DeviceError

    if device == "cpu":
        return
    try:
        torch.ones(1).to(device).sum().item()
    except RuntimeError as fault:
        why = str(fault).partition("\n")[0]
        raise DeviceError(f"device '{device}' was lost meanwhile: {why}") from None


def advice(text: str) -> str:
    """What to do about an exception that mentions devices; empty for any other."""
    if "Expected all tensors to be on the same device" in text:
        return (
            " Create new tensors on the device of the given ones, e.g. torch.zeros(3, "
            "device=inputs.device), and move others with .to(inputs.device)."
        )
    if "Found no NVIDIA driver" in text or "Torch not compiled with CUDA" in text:
        return " There is no GPU here: write .to(device) instead of .cuda() or 'cuda'."
    return ""
