"""Two processes train on the CPU, then the same on the second device.

    torchrun --nproc-per-node 2 tests/engine/ddp_second_job.py FOLDER

Windows of micro-batches of which the last is trailing, a last batch of which the processes get
unlike shares, a criterion with weights of its own, clipping, validation, checkpoints. Each process
writes weights and history to FOLDER.
"""

from __future__ import annotations

import faulthandler
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from course.data import make_loader
from course.engine import Trainer, num_ranks, process_group, rank, seed_everything
from tests.second_device import NAME, register, second_device

LONGEST_S = 200
"""After so many seconds a process says where each of its threads stands, and ends: alone it takes
ten, and beside four others on two cores a minute."""


class Copies(dist.ProcessGroup):
    """What the processes of the second device talk through: gloo, over copies on the CPU."""

    calls = 0
    """Collectives of tensors on the second device."""

    def __init__(self, store: Any, rank: int, size: int, timeout: Any) -> None:
        super().__init__(rank, size)
        self.gloo = dist.ProcessGroupGloo(store, rank, size, timeout)
        gloo = dist.ProcessGroup.BackendType.GLOO
        self._register_backend(torch.device("cpu"), gloo, self.gloo)
        self._set_default_backend(gloo)

        self.kept: list[Tensor] = []
        """Every copy that gloo was given. Its threads drop theirs under a lock; the last to hold a
        tensor that Python made needs Python's own lock for it, which who ends the group may hold:
        both would wait for ever."""

    def getBackendName(self) -> str:
        return "copies"

    def allreduce(self, tensors: list[Tensor], opts: Any = None) -> Any:
        return self._over_copies(tensors, lambda copies: self.gloo.allreduce(copies, opts))

    def broadcast(self, tensors: list[Tensor], opts: Any = None) -> Any:
        return self._over_copies(tensors, lambda copies: self.gloo.broadcast(copies, opts))

    def allgather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any = None) -> Any:
        def call(copies: list[Tensor]) -> Any:
            given = [part.detach().cpu() for part in inputs]
            self.kept += given
            return self.gloo.allgather([copies], given, opts)

        return self._over_copies(outputs[0], call)

    def barrier(self, opts: Any = None) -> Any:
        return self.gloo.barrier(opts)

    def _over_copies(self, tensors: list[Tensor], call: Callable[[list[Tensor]], Any]) -> Any:
        Copies.calls += any(tensor.device.type == NAME for tensor in tensors)
        copies = [tensor.detach().cpu() for tensor in tensors]
        self.kept += copies
        call(copies).wait()
        for tensor, copy in zip(tensors, copies, strict=True):
            tensor.detach().copy_(copy)
        done = torch.futures.Future()
        done.set_result(tensors)
        return torch._C._distributed_c10d._create_work_from_future(done)


class Head(nn.Module):
    """A criterion that has weights."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(self.linear(outputs), targets)


def train(device: torch.device, run_dir: Path) -> dict[str, Any]:
    """The run's weights and its history."""
    seed_everything(0)
    inputs = torch.randn(50, 4)
    data = TensorDataset(inputs, inputs[:, :3].argmax(1))
    share = {"rank": rank(), "num_ranks": num_ranks()}
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).to(device)
    torch.manual_seed(rank())  # the criterion's weights begin otherwise in each process
    criterion = Head().to(device)
    optimizer = torch.optim.AdamW([*model.parameters(), *criterion.parameters()], lr=0.05)
    trainer = Trainer(
        model, criterion, optimizer, accum_steps=3, max_norm=1.0, device=device, run_dir=run_dir
    )
    history = trainer.fit(
        make_loader(data, 15, shuffle=True, seed=1, **share),
        make_loader(data, 16, **share),
        epochs=2,
        progress=False,
    )
    assert next(model.parameters()).device == device
    parts = {"model": model, "criterion": criterion}
    weights = {
        name: {k: v.cpu() for k, v in part.state_dict().items()} for name, part in parts.items()
    }
    losses = [[epoch["train_loss"], epoch["val_loss"]] for epoch in history.epochs]
    return {"weights": weights, "losses": losses, "collectives": Copies.calls}


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    torch.set_num_threads(1)
    faulthandler.dump_traceback_later(LONGEST_S, exit=True)
    register()
    dist.Backend.register_backend("copies", Copies, devices=[NAME])
    with second_device() as second, process_group() as device:
        assert device == second and dist.get_backend() == "copies"
        found = {name: train(where, folder / name)
                 for name, where in (("cpu", torch.device("cpu")), ("second", second))}  # fmt: skip
        torch.save(found, folder / f"{rank()}.pt")
