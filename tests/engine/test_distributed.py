"""Two real processes train as one does on the same global batches."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from course.engine.distributed import everybodys, num_ranks, process_group, rank, summed
from tests.sampling import THOROUGH
from tests.second_device import NAME, second_device

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples" / "train_digits.py"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
# Shares of unlike size, a short last batch, and a trailing window of fewer micro-batches.
OPTIONS = ["--epochs", "2", "--dropout", "0", "--batch-size", "51", "--accum-steps", "3"]


@pytest.mark.slow
def test_two_processes_train_as_one(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["", *OPTIONS, "--run-dir", str(tmp_path / "one")])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    runpy.run_path(str(SCRIPT), run_name="__main__")

    done = subprocess.run(
        [*TORCHRUN, str(SCRIPT), *OPTIONS, "--run-dir", str(tmp_path / "two")],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("best: epoch") == 1  # rank 0 alone speaks
    assert capsys.readouterr().out.splitlines()[-1] in done.stdout

    one, two = (torch.load(tmp_path / n / "last.pt", weights_only=True) for n in ("one", "two"))
    torch.testing.assert_close(one["model"], two["model"], rtol=1e-3, atol=2e-5)
    for a, b in zip(one["history"]["epochs"], two["history"]["epochs"], strict=True):
        assert a["updates"] == b["updates"]
        assert b["train_loss"] == pytest.approx(a["train_loss"], rel=1e-5)
        assert b["val_loss"] == pytest.approx(a["val_loss"], rel=1e-4)
        assert b["val_accuracy"] == pytest.approx(a["val_accuracy"], abs=0.003)
    assert two["setup"]["processes"] == 2 and len(two["processes"]) == 2
    assert not torch.equal(*(process["rng"]["torch"] for process in two["processes"]))


def test_alone_nothing_is_joined():
    with process_group() as device:
        assert rank() == 0 and num_ranks() == 1 and isinstance(device, torch.device)
    assert everybodys(3) == [3]
    assert summed({"loss": 2.0}, torch.device("cpu")) == {"loss": 2.0}


@pytest.mark.parametrize("backend,there", [("copies", True), ("gloo", False), (None, False)])
def test_another_accelerator_is_taken_where_its_processes_can_talk(backend, there, monkeypatch):
    """Gloo, which torch names for MPS, is the CPU's: processes that share it compute there."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.accelerator, "set_device_index", lambda device: None)
    monkeypatch.setenv("LOCAL_RANK", "3")
    known = torch.distributed.Backend.default_device_backend_map
    monkeypatch.setattr(
        torch.distributed.Backend, "default_device_backend_map",
        known | ({NAME: backend} if backend else {}),
    )  # fmt: skip
    with second_device() as second, process_group() as device:
        assert device == (second if there else torch.device("cpu"))


def test_more_processes_than_gpus_are_told_how_many_may_start(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(ValueError, match="Start at most 2"), process_group():
        pass


CRITERION = """
import sys, torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import TensorDataset
from course.data import make_loader
from course.engine import Trainer, num_ranks, process_group, rank

class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
    def forward(self, outputs, targets):
        return F.cross_entropy(self.linear(outputs), targets)

torch.set_num_threads(1)
with process_group() as device:
    x = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
    data = TensorDataset(x, x[:, :3].argmax(1))
    loader = make_loader(data, 15, rank=rank(), num_ranks=num_ranks())
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    torch.manual_seed(rank())  # its weights begin otherwise in each process
    criterion = Head()
    optimizer = torch.optim.SGD([*model.parameters(), *criterion.parameters()], lr=0.5)
    trainer = Trainer(model, criterion, optimizer, accum_steps=3, max_norm=1.0, device=device)
    trainer.fit(loader, epochs=3, progress=False)
    path = f"{sys.argv[1]}/{num_ranks()}-{rank()}"
    torch.save([model.state_dict(), criterion.state_dict()], path)
"""


@pytest.mark.slow
def test_a_criterion_with_weights_trains_as_in_one_process(tmp_path):
    script = tmp_path / "job.py"
    script.write_text(CRITERION)
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT)}
    for start in ([sys.executable], TORCHRUN):
        done = subprocess.run(
            [*start, str(script), str(tmp_path)],
            env=environment, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-2000:]
    alone, first, second = (torch.load(tmp_path / name) for name in ("1-0", "2-0", "2-1"))
    for part in (0, 1):
        for name, tensor in alone[part].items():
            assert torch.equal(first[part][name], second[part][name])
            torch.testing.assert_close(first[part][name], tensor, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.skipif(not THOROUGH, reason="ten seconds of processor time: make thorough")
def test_two_processes_on_the_second_device_end_with_the_cpus_bits(tmp_path):
    """Gradients, weights of windows, findings and sums cross through gloo, over copies.

    A job that waits for ever ends itself, and says where each of its threads stands.
    """
    job = Path(__file__).with_name("ddp_second_job.py")
    done = subprocess.run(
        [*TORCHRUN, str(job), str(tmp_path)],
        env=os.environ | {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    waits = "Timeout (" in done.stderr
    assert not waits, f"the two waited for each other, here:\n{done.stderr[-9000:]}"
    assert done.returncode == 0, done.stderr[-3000:]
    first, other = (torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1))
    for found in (first, other):
        assert found["cpu"]["collectives"] == 0 < found["second"]["collectives"]
        assert found["second"]["losses"] == found["cpu"]["losses"] == first["cpu"]["losses"]
        for part, weights in found["second"]["weights"].items():
            for name, weight in weights.items():
                assert torch.equal(weight, found["cpu"]["weights"][part][name]), name
                assert torch.equal(weight, first["cpu"]["weights"][part][name]), name
    assert any(epoch[0] != first["cpu"]["losses"][0][0] for epoch in first["cpu"]["losses"])


VALIDATED = """
import sys, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from course.data import make_loader
from course.engine import EMA, EarlyStopping, Trainer, evaluate, load_weights, num_ranks
from course.engine import process_group, rank

class Seen:  # of each process's own share
    def reset(self):
        self.num = torch.rand(()).item()
    def update(self, outputs, targets):
        self.num += len(targets)
    def compute(self):
        return self.num + rank()

torch.set_num_threads(1)
found = {}
with process_group() as device:
    torch.manual_seed(0)
    x, v = torch.randn(64, 5), torch.randn(40, 5)
    data, held_out = (TensorDataset(t, (t.sum(1) > 0).long()) for t in (x, v))
    share = {"rank": rank(), "num_ranks": num_ranks()}
    for callbacks in ([EarlyStopping(1)], [EarlyStopping(1), EMA(0.5)]):
        for name, val_loader in (
            ("whole", DataLoader(held_out, 20)), ("shares", make_loader(held_out, 20, **share))
        ):
            torch.manual_seed(0)
            model = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
            scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
            name += str(len(callbacks))
            trainer = Trainer(
                model, nn.CrossEntropyLoss(), optimizer, scheduler=scheduler,
                schedule_per="metric", callbacks=callbacks, device=device,
                run_dir=f"{sys.argv[1]}/{name}",
            )
            history = trainer.fit(
                make_loader(data, 8, shuffle=True, **share), val_loader, epochs=6,
                metrics={"seen": Seen()}, progress=False,
            )
            load_weights(model, f"{sys.argv[1]}/{name}/best.pt")
            true = evaluate(model, DataLoader(held_out, 20), nn.CrossEntropyLoss(), device=device)
            found[name] = [dict(line) for line in history], history.best["val_loss"], true["loss"]
    torch.save(found, f"{sys.argv[1]}/{rank()}.pt")
"""


@pytest.mark.slow
def test_all_processes_decide_by_the_numbers_of_the_weights_that_are_saved(tmp_path):
    """Their running statistics and their metrics differ; rate, stop and best epoch must not."""
    first, second = what_two_processes_save(VALIDATED, tmp_path)
    assert first == second
    for _, best, true in first.values():
        assert best == pytest.approx(true, rel=1e-6)


def what_two_processes_save(script: str, folder: Path) -> list[Any]:
    """What each process of a script has put into `<its rank>.pt` of the folder."""
    job = folder / "job.py"
    job.write_text(script)
    done = subprocess.run(
        [*TORCHRUN, str(job), str(folder)],
        env=os.environ | {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in (0, 1)]


UNLIKE = """
import sys, torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import TensorDataset
from course.data import make_loader
from course.engine import Loss, Trainer, num_ranks, process_group, rank

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head, self.spare = nn.Linear(4, 3), nn.Linear(3, 3), nn.Linear(3, 3)
    def forward(self, inputs):
        return self.head(self.body(inputs))

def by_parts(model, batch):
    return Loss(F.cross_entropy(model.head(model.body(batch[0])), batch[1]))

torch.set_num_threads(1)
with process_group() as device:
    x = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
    data = TensorDataset(x, x[:, :3].argmax(1))
    loader = make_loader(data, 8, rank=rank(), num_ranks=num_ranks())
    notes = []
    for loss in ({"loss_of": by_parts}, {"criterion": nn.CrossEntropyLoss()}):
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        try:
            Trainer(model, optimizer=optimizer, device=device, **loss).fit(loader, epochs=1)
        except Exception as error:
            notes.append(error.__notes__[-1])
    torch.save(notes, f"{sys.argv[1]}/{rank()}.pt")
"""


@pytest.mark.slow
def test_what_the_wrapper_of_several_processes_refuses_is_explained(tmp_path):
    for parts, unused in what_two_processes_save(UNLIKE, tmp_path):
        assert "calling parts such as model.head" in parts
        assert "Freeze what is not used" in unused
