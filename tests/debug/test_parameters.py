"""The parameter report, held against torch's own listings and sums."""

import pytest
import torch
from torch import nn

from course.debug import parameter_report


class Odd(nn.Module):
    """Everything that a model can hold, and can lose."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8))
        self.head = nn.Linear(8, 3)
        self.head.weight.requires_grad_(False)
        self.layers = [nn.Linear(3, 3, bias=False)]
        self.by_name = {"a": [nn.Parameter(torch.zeros(2))]}
        self.scale = torch.ones(5, requires_grad=True)
        self.width = 7


def test_totals_are_torchs():
    model = Odd()
    report = parameter_report(model)
    assert report.total == sum(p.numel() for p in model.parameters())
    assert report.trainable == sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert report.frozen == 24 == report.total - report.trainable
    assert report.buffers == sum(b.numel() for b in model.buffers())
    names = [entry.name for entry in report.entries if entry.kind != "lost"]
    assert sorted(names) == sorted(model.state_dict())


def test_what_lies_in_plain_containers_is_called_lost():
    lost = {entry.name: entry.shape for entry in parameter_report(Odd()).lost}
    assert lost == {"layers[0].weight": (3, 3), "by_name['a'][0]": (2,), "scale": (5,)}
    assert "Not registered: layers[0].weight" in str(parameter_report(Odd()))


def test_a_registered_model_has_lost_nothing():
    model = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.ModuleList([nn.LSTM(2, 2)])})
    assert not parameter_report(model).lost


def test_what_the_optimizer_lacks_is_named():
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model[1].parameters(), lr=0.1)
    report = parameter_report(model, optimizer)
    assert [entry.name for entry in report.forgotten] == ["0.weight", "0.bias"]
    assert [entry.optimized for entry in report.entries] == [False, False, True, True]
    assert not parameter_report(model, torch.optim.SGD(model.parameters(), lr=0.1)).forgotten
    assert parameter_report(model).entries[0].optimized is None


def test_a_frozen_parameter_is_not_called_forgotten():
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    model[0].requires_grad_(False)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    assert not parameter_report(model, optimizer).forgotten


def test_tied_weights_count_once():
    tied = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    tied[1].weight = tied[0].weight
    report = parameter_report(tied)
    assert report.total == 16 and len(report.entries) == 2
    assert report.entries[1].shared_with == "0.weight" and "as 0.weight" in str(report)


def test_it_reads_as_text_and_as_a_table():
    report = parameter_report(nn.Linear(1000, 2))
    assert "2 × 1000" in str(report) and "2,002 in parameters" in str(report)
    assert "<table" in report._repr_html_() and "weight" in report._repr_html_()


@pytest.mark.parametrize("bad", [None, [nn.Linear(1, 1)], torch.zeros(2)])
def test_what_is_no_module_is_refused(bad):
    with pytest.raises(TypeError, match=r"nn\.Module"):
        parameter_report(bad)


def test_parameters_instead_of_an_optimizer_are_refused():
    model = nn.Linear(1, 1)
    with pytest.raises(TypeError, match=r"torch\.optim\.Optimizer"):
        parameter_report(model, list(model.parameters()))
