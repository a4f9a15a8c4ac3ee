"""A class graded on another device: the same points, and a device that is absent or is lost.

Graders are processes of their own: `with_second_device` has it there in every one of them.
"""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import nbformat
import pytest
import torch
from torch import nn

from autograde import bank, check, devices
from autograde.answers import answer_of
from autograde.classroom import marking
from autograde.classroom.assignment import exercises_version
from autograde.classroom.release import release
from course.engine import DeviceError
from tests import second_device as backend
from tests.sampling import THOROUGH
from tests.short_class import hand_in, short_class

NAME = "01a-tensors-and-autograd"


@pytest.fixture(scope="module")
def handed_in(tmp_path_factory):
    """A class directory with one right, one blank and one hard-coded submission."""
    folder = short_class(tmp_path_factory.mktemp("class") / "class", NAME)
    solved = nbformat.read(folder / "source" / NAME / f"{NAME}.ipynb", as_version=4)
    released = nbformat.read(release(folder, NAME), as_version=4)
    for student, notebook in (("ada", solved), ("ben", released), ("cuda", solved)):
        if student == "cuda":
            for cell in notebook.cells:
                if cell.metadata.get("nbgrader", {}).get("solution") and "def " in cell.source:
                    cell.source += "\n" + _hard_coded(cell.source)
        hand_in(folder, student, NAME, notebook)
    return folder


def _hard_coded(source):
    """The same function over again, for a machine that has a GPU."""
    name = source.split("def ")[1].split("(")[0]
    return f'def {name}(*given, **named):\n    return torch.ones(3, device="cuda")\n'


def graded(folder, device, environment, *, trusted):
    """Exit status and words of a class run, and all verdicts."""
    command = [
        sys.executable,
        "-m",
        "autograde.cli",
        "grade",
        NAME,
        "--dir",
        str(folder),
        "--force",
    ]
    command += ["--device", device, "--jobs", "1", "--answer-timeout", "60"]
    command += ["--trust-submissions"] if trusted else []
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500)
    found = {
        path.stem: json.loads(path.read_text("utf-8"))
        for path in (folder / "verdicts" / NAME).glob("*.json")
    }
    return ran, found


@pytest.mark.slow
def test_a_class_gets_the_same_points_on_either_device(handed_in, with_second_device, isolation):
    by_device = {}
    for device in ("cpu", "second_device"):
        ran, verdicts = graded(handed_in, device, with_second_device, trusted=isolation.trusted)
        assert "3 of 3 submissions graded" in ran.stdout, ran.stderr
        assert {verdict["device"] for verdict in verdicts.values()} == {device}
        by_device[device] = {
            student: {
                check["grade_id"]: (check["points"], check["status"]) for check in v["checks"]
            }
            for student, v in verdicts.items()
        }
    assert by_device["cpu"] == by_device["second_device"]
    points = {s: sum(p for p, _ in checks.values()) for s, checks in by_device["cpu"].items()}
    assert points["ben"] == 0 < points["cuda"] < points["ada"]
    words = " ".join(check["message"] for check in verdicts["cuda"]["checks"])
    assert "write .to(device) instead of .cuda()" in " ".join(words.split()), words


@pytest.mark.slow
def test_a_device_that_is_not_there_is_said_in_one_line_and_nothing_is_graded(handed_in):
    before = {path: path.read_bytes() for path in (handed_in / "verdicts").rglob("*.json")}
    ran, _ = graded(handed_in, "xpu:3", dict(os.environ), trusted=True)
    assert ran.returncode == 2
    assert ran.stderr.startswith("autograde: device 'xpu:3': this torch")
    assert len(ran.stderr.splitlines()) == 1
    assert before == {path: path.read_bytes() for path in (handed_in / "verdicts").rglob("*.json")}


LOSES = '''
import json, torch
from autograde.sandbox.isolation import Isolation
from autograde.sandbox.limits import Limits
from autograde.sandbox.session import StudentSession
from autograde import bank
exercise = bank.load("{id}")
case = exercise.cases(exercise.parts[0], 0)[0]
with StudentSession(None, Limits(), Isolation(trusted=True), "second_device") as session:
    session.run("lost = False\\nimport os")
    session.run("""
def loses(*given, **named):
    global lost
    lost = True
    raise RuntimeError("CUDA error: device-side assert triggered")
def honest(*given, **named):
    if lost:
        raise RuntimeError("CUDA error: device-side assert triggered")
    raise ValueError("still here")
""")
    first = os = session.process.pid
    texts = [session.ask(exercise.id, name, case).text for name in ("honest", "loses", "honest")]
    print(json.dumps([texts, first != session.process.pid]))
'''


@pytest.mark.slow
def test_an_answer_that_costs_the_process_its_device_costs_itself_alone(with_second_device):
    script = LOSES.format(id="03a.clip")
    ran = subprocess.run(
        [sys.executable, "-c", script], env=with_second_device, capture_output=True, text=True,
        timeout=300,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    texts, is_another = json.loads(ran.stdout)
    assert ["still here" in text for text in texts] == [True, False, True]
    assert "device-side assert" in texts[1] and is_another


class InProcess:
    """A student's session without a process of its own: the right answers, computed here."""

    def __init__(self, folder, limits, isolation, device):
        self.device, self.ended = device, ""
        self.asked, self.noted = 0, set()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def run(self, source):
        return []

    def ask(self, id, function, case):
        self.asked += 1
        self.before_an_answer()
        exercise = bank.load(id)
        return answer_of(exercise, exercise.right[0], case, device=torch.device(self.device))

    def before_an_answer(self):
        pass


def clip_job(folder, device):
    """A notebook that holds one check, for a grader."""
    named = {"grade_id": "clip", "grade": True, "solution": False, "locked": True, "points": 4}
    cell = nbformat.v4.new_code_cell("check('03a.clip', f)", metadata={"nbgrader": named})
    calls = {"clip": {"exercise_id": "03a.clip", "function": "f", "parts": "all"}}
    return {
        "path": "submitted/ada/a/a.ipynb",
        "folder": str(folder),
        "text": nbformat.writes(nbformat.v4.new_notebook(cells=[cell])),
        "assignment": {
            "cells": [cell], "calls": calls, "released": {}, "given": [],
            "exercises": exercises_version(("03a.clip",)),
        },
        "limits": {},
        "isolation": {"trusted": True, "hidden": []},
        "seed": 1,
        "device": device,
    }  # fmt: skip


@pytest.mark.parametrize("at", [1, 3])
def test_where_a_device_vanishes_meanwhile_nobody_is_graded_until_it_is_back(
    at, monkeypatch, tmp_path
):
    """Its answers fail from then on: that must not cost the student anything."""

    def vanish(session):
        if session.asked == at:
            lost.setattr(backend, "_run", _no_device)

    monkeypatch.setattr(marking, "StudentSession", InProcess)
    with backend.second_device() as device, monkeypatch.context() as lost:
        lost.setattr(InProcess, "before_an_answer", vanish)
        result = marking.mark(clip_job(tmp_path, str(device)))
        assert not result["graded"] and "checks" not in result
        assert "the bus is empty" in result["reason"]
        assert result["reason"].endswith("Run autograde grade again.")
        lost.undo()
        (check,) = marking.mark(clip_job(tmp_path, str(device)))["checks"]
        assert check["points"] == check["max_points"] > 0


def _no_device(*_):
    raise RuntimeError("the bus is empty")


def test_check_follows_the_notebooks_device(monkeypatch):
    seen = []

    def clip_grads(parameters, max_norm):
        parameters = list(parameters)
        seen.append(parameters[0].device.type)
        raise ValueError("seen")

    shell = SimpleNamespace(user_ns={})
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    with backend.second_device() as device:
        for said in (None, device, "auto", "no such device", "meta", 3):
            shell.user_ns["device"] = said
            check("03a.clip", clip_grads)
    assert dict.fromkeys(seen) == dict.fromkeys(["cpu", backend.NAME])
    assert devices.of_notebook() == torch.device("cpu")


SEED_ALL = ["05.run", "03d.recompute", "03g.load", "05.setup"]
"""Exercises that train or build while they are drawn or asked; the last takes ten seconds."""


@pytest.mark.parametrize("id", SEED_ALL if THOROUGH else SEED_ALL[:2])
def test_drawing_and_grading_leave_the_devices_random_numbers_alone(id):
    """Graded on the CPU, torch.manual_seed() in an answer seeds every device all the same."""
    exercise = bank.load(id)
    with backend.second_device() as second:
        torch.manual_seed(123)
        before = backend.GENERATOR.get_state()
        case = exercise.cases(exercise.parts[0], 3)[0]
        for device in ("cpu", second):
            answer_of(exercise, exercise.reference, case, device=torch.device(device))
            assert torch.equal(backend.GENERATOR.get_state(), before), device


@pytest.mark.parametrize(
    ("name", "words"),
    [("gpu0", "is not a device"), ("cuda:9", "Use auto or cpu|counted from"), ("", "is not")],
)
def test_a_device_that_is_not_there_is_refused_before_the_first_case(name, words):
    with pytest.raises(DeviceError, match=words):
        check("03a.clip", pytest.fail, device=name)


def test_tensors_of_two_devices_are_told_how_to_meet(device):
    if device.type == "cpu":
        pytest.skip("one device is not two")

    def clip_grads(parameters, max_norm):
        for parameter in parameters:
            parameter.grad += torch.zeros(parameter.shape, device="cpu")

    message = " ".join(check("03a.clip", clip_grads, device=str(device), seed=0).message.split())
    assert "Expected all tensors to be on the same device" in message
    assert "torch.zeros(3, device=inputs.device)" in message


BREAKS = {
    "cross-entropy": lambda x, y: nn.functional.cross_entropy(x, y),
    "2-d cross-entropy": lambda x, y: nn.functional.cross_entropy(x[..., None], y[:, None]),
    "negative label": lambda x, y: nn.functional.nll_loss(x, -y, ignore_index=-100),
    "gather": lambda x, y: x.gather(1, y[:, None]),
    "index": lambda x, y: x[y],
    "column": lambda x, y: x[:, y],
    "one-hot": lambda x, y: nn.functional.one_hot(y, 3),
    "embedding": lambda x, y: nn.functional.embedding(y, x),
    "margin": lambda x, y: nn.functional.multi_margin_loss(x, y),
    "scatter": lambda x, y: torch.zeros(3).scatter_(0, y, 1.0),
    "index_add": lambda x, y: torch.zeros(3).index_add_(0, y, torch.ones(4)),
    "take": lambda x, y: torch.ones(3).take(y),
    "index_select": lambda x, y: x.index_select(0, y),
    "index_put": lambda x, y: torch.zeros(3).index_put_((y,), torch.ones(4)),
    "multinomial": lambda x, y: torch.multinomial(-torch.ones(3), 1),
    "bernoulli": lambda x, y: torch.bernoulli(torch.full((3,), 2.0)),
    "bce": lambda x, y: nn.functional.binary_cross_entropy(x * 9, torch.ones(4, 3)),
}


@pytest.mark.parametrize("name", BREAKS)
def test_what_would_cost_a_process_its_gpu_is_known_by_what_the_cpu_says(name):
    x, y = torch.randn(4, 3), torch.tensor([0, 1, 2, 7])
    with pytest.raises((RuntimeError, IndexError)) as raised:
        BREAKS[name](x, y)
    assert devices.breaks_a_gpu(str(raised.value))


def test_a_function_whose_index_is_out_of_range_never_reaches_the_device():
    seen = []

    def clip_grads(parameters, max_norm):
        seen.append(next(iter(parameters)).device.type)
        return torch.ones(3)[torch.tensor([7])]

    with backend.second_device() as device:
        verdict = check("03a.clip", clip_grads, device=str(device)).verdict
    assert set(seen) == {"cpu"} and "out of bounds" in verdict.parts[0].raised.text


def test_a_device_that_is_lost_is_said_with_what_to_do(monkeypatch):
    exercise = bank.load("03a.clip")
    with backend.second_device() as device, monkeypatch.context() as lost:
        lost.setattr(backend, "_run", _no_device)
        with pytest.raises(DeviceError, match=r"restart the kernel.*device = 'cpu'") as raised:
            check(exercise.id, exercise.right[0], device=str(device))
    assert "was lost meanwhile" in str(raised.value)
