"""Which device a run gets, and what is said of one that is not there."""

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from course.engine import DeviceError, Trainer, choose_device, evaluate
from course.engine.placement import same_device, widest_float


def test_auto_is_the_accelerator_where_there_is_one_and_else_the_cpu(device):
    there = torch.accelerator.current_accelerator(check_available=True)
    assert choose_device() == choose_device("auto") == (there or torch.device("cpu"))
    assert choose_device(device) == choose_device(str(device)) == device
    if device.type != "cpu":
        assert choose_device().type == device.type
        with pytest.raises(DeviceError, match=f"has [1-9], numbered from {device.type}:0"):
            choose_device(f"{device.type}:99")


def test_an_accelerator_without_a_number_is_the_current_one(monkeypatch):
    monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: 1)
    one, other, current = (torch.device(name) for name in ("cuda:0", "cuda", "cuda:1"))
    assert same_device(other, current) and same_device(current, other)
    assert not same_device(one, other) and not same_device(one, current)
    assert not same_device(torch.device("cpu"), other) and same_device(one, one)


def test_apples_gpus_sum_in_float32(monkeypatch):
    """They have no float64: any tensor of it there is an error."""
    assert widest_float(torch.device("mps")) is torch.float32
    monkeypatch.setattr("course.engine.evaluation.widest_float", lambda device: torch.float32)
    batches = [(torch.randn(4, 3), torch.zeros(4).long())] * 3
    metrics = {"margin": lambda outputs, targets: outputs.amax(1)}
    with NoFloat64():
        evaluate(nn.Linear(3, 2), batches, nn.CrossEntropyLoss(), metrics=metrics)


class NoFloat64(TorchDispatchMode):
    """As on a device that has no float64."""

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        found = operator(*args, **(kwargs or {}))
        assert all(
            one.dtype != torch.float64 for one in tree_leaves(found) if hasattr(one, "dtype")
        )
        return found


@pytest.mark.parametrize("name", ["gpu0", "", [], 1.5])
def test_what_is_not_a_device_is_named_with_some_that_are(name):
    with pytest.raises(DeviceError, match=r"is not a device\. Use auto, cpu, cuda"):
        choose_device(name)


@pytest.mark.parametrize("name", ["cuda", "xpu:7", "meta", "xla"])
def test_a_device_that_is_not_here_is_one_line_with_why_and_what_to_use(name):
    if torch.device(name).type in (choose_device().type, "cpu"):
        pytest.skip(f"there is {name}")
    model = nn.Linear(1, 1)
    with pytest.raises(DeviceError, match=r"cannot compute there \(.+\)") as fault:
        Trainer(model, nn.MSELoss(), torch.optim.SGD(model.parameters()), device=name)
    text = str(fault.value)
    assert f"'{name}'" in text and text.endswith("Use auto or cpu.")
    assert len(text.splitlines()) == 1 and len(text) < 250
