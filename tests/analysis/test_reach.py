"""What reaches an attribute of a module, against the module's own methods."""

import torch
from torch import nn

from course.analysis.reach import Reach, reach


class Seven(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.scale = nn.Parameter(torch.ones(2))
        self.frozen = nn.Parameter(torch.ones(2), requires_grad=False)
        self.register_buffer("mean", torch.zeros(2))
        self.register_buffer("mask", torch.ones(2), persistent=False)
        self.offset = torch.zeros(2, requires_grad=True)
        self.blocks = [nn.Linear(2, 2)]
        self.names = ["a", "b"]


def test_each_way_to_keep_a_tensor_is_trained_moved_and_saved_as_the_lecture_says():
    nothing = Reach(False, False, False)
    assert reach(Seven()) == {
        "offset": nothing,
        "blocks": nothing,
        "scale": Reach(True, True, True),
        "frozen": Reach(False, True, True),
        "mean": Reach(False, True, True),
        "mask": Reach(False, True, False),
        "layer": Reach(True, True, True),
    }


def test_the_module_is_as_it_was():
    module = Seven()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    reach(module)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert module.layer.weight.dtype == torch.float32


def test_containers_reach_what_a_list_does_not():
    module = nn.Module()
    module.listed = nn.ModuleList([nn.Linear(2, 2)])
    module.by_name = nn.ModuleDict({"a": nn.BatchNorm1d(2)})
    module.held = nn.ParameterList([torch.ones(2)])
    module.plain = {"a": nn.Linear(2, 2)}
    found = reach(module)
    assert found["listed"] == found["held"] == Reach(True, True, True)
    assert found["by_name"] == Reach(False, True, True)  # its running statistics are not trained
    assert found["plain"] == Reach(False, False, False)
