"""`course worked --device` on a device that is not the CPU: the same verdicts, step by step."""

import json
import sys

import pytest
import torch

from course import cli
from course.worked import catalogue, compute
from tests.sampling import sample
from tests.second_device import NAME, second_device

FOUND = ["N07", "N08", "N12", "N60"]
"""Here the second device once misbehaved: lists as indices, and ranges that stayed empty."""
IDS = sorted({*sample(list(catalogue()), 7), *FOUND})


@pytest.fixture
def second():
    with second_device() as device:
        yield device
    torch.set_default_device(None)


@pytest.mark.parametrize("id", IDS)
def test_a_worked_number_has_the_cpus_verdicts(id, second):
    with torch.device(second):
        there = compute(id).steps
    assert [(s.what, s.verdict) for s in there] == [(s.what, s.verdict) for s in compute(id).steps]


def course(monkeypatch, capsys, *words: str):
    """Exit status, standard output and standard error of the command."""
    monkeypatch.setattr(sys, "argv", ["course", *words])
    with pytest.raises(SystemExit) as left:
        cli.main()
    shown = capsys.readouterr()
    return left.value.code, shown.out, shown.err


def test_the_command_computes_there(second, monkeypatch, capsys):
    seen = []
    kept = torch.Tensor.backward
    monkeypatch.setattr(
        torch.Tensor, "backward", lambda loss, *a, **k: seen.append(loss.device) or kept(loss, *a)
    )
    code, out, _ = course(monkeypatch, capsys, "worked", "N19", "--json", "--device", NAME)
    assert code == 0 and {device.type for device in seen} == {NAME}
    torch.set_default_device(None)
    monkeypatch.undo()
    _, on_the_cpu, _ = course(monkeypatch, capsys, "worked", "N19", "--json")
    assert json.loads(out)["steps"] == json.loads(on_the_cpu)["steps"]


@pytest.mark.parametrize("command", ["worked", "claims"])
@pytest.mark.parametrize(
    ("device", "says"),
    [("gpu0", "'gpu0' is not a device. Use auto"), ("xpu:3", "device 'xpu:3': this torch")],
)
def test_a_device_that_is_not_there_is_one_line_and_exit_2(
    command, device, says, monkeypatch, capsys
):
    id = {"worked": "N19", "claims": "F26"}[command]
    code, out, err = course(monkeypatch, capsys, command, id, "--device", device)
    assert code == 2 and not out
    assert err.startswith(f"course: {says}") and err.count("\n") == 1
