"""Which device a run gets, and what is said of one that is not there."""

import pytest
import torch
from torch import nn

from course.engine import DeviceError, Trainer, choose_device


def test_auto_is_the_accelerator_where_there_is_one_and_else_the_cpu(device):
    there = torch.accelerator.current_accelerator(check_available=True)
    assert choose_device() == choose_device("auto") == (there or torch.device("cpu"))
    assert choose_device(device) == choose_device(str(device)) == device
    if device.type != "cpu":
        assert choose_device().type == device.type
        with pytest.raises(DeviceError, match=f"has [1-9], numbered from {device.type}:0"):
            choose_device(f"{device.type}:99")


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
