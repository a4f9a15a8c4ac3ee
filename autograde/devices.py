"""The device on which answers are computed: values of `--device` and `check(device=...)`.

Cases are drawn on the CPU from the same seed whatever the device, so one submission gets one
verdict on each. In a class run, only the requested device is visible: a notebook graded on the CPU
sees no GPU, even if there is one.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from glob import glob
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

FILES = {"cuda": ("nvidia*", "kfd", "dri/renderD*")}
"""Under /dev, by kind of device: NVIDIA's, and AMD's, which torch calls cuda, too."""
OUT_OF_RANGE = re.compile(
    r"out of (?:bounds|range)|Class values must be|non-negative integral|between 0 and 1|p_in >= 0"
    r"|probability tensor contains"
)
"""What torch says on the CPU where a GPU's kernel asserts and takes the process's GPU with it."""
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
    found = (path for pattern in patterns for path in glob(f"/dev/{pattern}"))
    return tuple(sorted(path[len("/dev/") :] for path in found if _is_device(path)))


def _is_device(path: str) -> bool:
    """No folder, as that of rights to share a GPU (`nvidia-caps`)."""
    return stat.S_ISCHR(os.stat(path).st_mode)


def is_lost(text: str) -> bool:
    """Whether an exception's text says that its process cannot use the GPU any more."""
    return any(words in text for words in LOST)


def breaks_a_gpu(text: str) -> bool:
    """Whether what raised this on the CPU would cost a process its GPU."""
    return OUT_OF_RANGE.search(text) is not None


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


def must_compute_here(device: str, exercise_id: str) -> None:
    """That this notebook's process computes on the device.

    Raises:
        DeviceError: It does not: a kernel of the GPU has stopped, with what to do about it.
    """
    from course.engine import DeviceError

    try:
        must_compute(device)
    except DeviceError as fault:
        raise DeviceError(
            f"{fault}. A kernel on the GPU has stopped, most often for an index out of range: a "
            "label that is no class, or a position that is not there. From then on this notebook "
            "cannot use the GPU: restart the kernel. To see the line that did it, set "
            f"device = 'cpu' and run your cells up to check('{exercise_id}', ...) again."
        ) from None


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
