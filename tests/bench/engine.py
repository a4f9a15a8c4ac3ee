"""What the engine costs beside hand-written loops and beside the frameworks a student might take.

    python -m tests.bench.engine [--rounds 15] [--no-peers] [--compiled | --parts]

(a) the plainest loop over a DataLoader; (b) the fastest loop we can write by hand: fused optimizer,
batches cut from memory. Neither records a loss, looks for nan or can be resumed. Goals: the engine
with the loader and optimizer of (a) at most 1.03 times (a), with those of (b) at most 1.05 times.
The engine leaves out torch's labels for its profiler (`course.engine.unprofiled`); (c) is (b) with
the same done by hand, to show what the rest of the engine costs.

Two more loops do by hand what the engine is asked for: clipping (goal 1.03), and a checkpoint after
each epoch, the best one, and a log (goal 1.05). `compile="step"` is timed beside (b) with forward
pass and loss compiled, and beside a hand-written step in one graph: at most 1.10 times the faster.

Last seen on the digits MLP, in processor time: 0.97 of (a), 0.97 of (b), clipped 0.92 of the loop
that clips, with run_dir 1.04 of the loop that writes. compile="step", by the clock, in terms of the
faster compiled loop: small CNN 1.03 to 1.05; MLP 1.09, in epochs of 29 updates of 0.16 ms. torch's
guards, which notice a layer that is frozen or replaced on the way, are tried at the first update of
an epoch, and at each where code of others runs between (1.21 then).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import logging
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.optim import Adam
from torch.utils.data import DataLoader, TensorDataset

from course.data.loading import InMemoryLoader
from course.engine import Callback, Trainer
from tests.bench.harness import Ratio, interleaved, ratio, report

GOALS = {
    "engine beside (a)": 1.03,
    "engine beside (b)": 1.05,
    "engine, clipped": 1.03,
    "engine with run_dir": 1.05,
    'engine, compile="step"': 1.10,
}
BATCH = 64
WARM_UP = 5
"""Epochs in which graphs are made; a short last batch has one of its own."""


class Job:
    """A model, its data and how long to train; each call of `model()` builds it afresh."""

    def __init__(self, name: str, epochs: int) -> None:
        self.name, self.epochs = name, epochs
        torch.manual_seed(0)
        if name == "digits MLP":
            inputs, targets = load_digits(return_X_y=True)
            self.inputs = torch.tensor(inputs, dtype=torch.float32) / 16
            self.targets = torch.tensor(targets)
        else:
            self.inputs = torch.randn(8 * BATCH, 1, 28, 28)
            self.targets = torch.randint(0, 10, (8 * BATCH,))
        self.updates = epochs * -(-len(self.inputs) // BATCH)
        self.dataset = TensorDataset(self.inputs, self.targets)
        self.criterion = nn.CrossEntropyLoss()

    def model(self) -> nn.Module:
        if self.name == "digits MLP":
            return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
        return nn.Sequential(
            *(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(16 * 7 * 7, 10)),
        )

    def loader(self) -> DataLoader:
        return DataLoader(self.dataset, BATCH, shuffle=True)


def plain(job: Job, *, max_norm: float | None = None, record: Record | None = None) -> None:
    """(a); clipped, or with a record, if that is asked for."""
    model, loader = job.model(), job.loader()
    optimizer = Adam(model.parameters())
    for epoch in range(job.epochs):
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = job.criterion(model(inputs), targets)
            loss.backward()
            if max_norm is not None:
                nn.utils.clip_grad_norm_(model.parameters(), max_norm)
            optimizer.step()
            if record is not None:
                record.count(loss, len(targets))
        if record is not None:
            record.save(epoch, model, optimizer)


def fastest(job: Job) -> None:
    """(b)"""
    model = job.model()
    optimizer = Adam(model.parameters(), fused=True)
    for _ in range(job.epochs):
        for rows in torch.randperm(len(job.inputs)).split(BATCH):
            optimizer.zero_grad()
            inputs, targets = job.inputs.index_select(0, rows), job.targets.index_select(0, rows)
            loss = job.criterion(model(inputs), targets)
            loss.backward()
            optimizer.step()


def fastest_unlabelled(job: Job) -> None:
    """(c)"""
    model = job.model()
    parameters = list(model.parameters())
    optimizer = Adam(parameters, fused=True)
    for _ in range(job.epochs):
        for rows in torch.randperm(len(job.inputs)).split(BATCH):
            for parameter in parameters:
                parameter.grad = None
            inputs, targets = job.inputs.index_select(0, rows), job.targets.index_select(0, rows)
            loss = job.criterion(model(inputs), targets)
            loss.backward()
            type(optimizer).step.__wrapped__(optimizer)


def engine(job: Job, **options) -> None:
    model = job.model()
    trainer = Trainer(model, job.criterion, Adam(model.parameters()), device="cpu", **options)
    trainer.fit(job.loader(), epochs=job.epochs, progress=False)


def engine_fast(job: Job) -> None:
    model = job.model()
    trainer = Trainer(model, job.criterion, Adam(model.parameters(), fused=True), device="cpu")
    loader = InMemoryLoader(job.inputs, job.targets, BATCH, shuffle=True)
    trainer.fit(loader, epochs=job.epochs, progress=False)


class Record:
    """A log line every 50 updates, and after each epoch a checkpoint and the best one."""

    def __init__(self, folder: str) -> None:
        self.folder, self.best, self.updates, self.total = Path(folder), math.inf, 0, 0.0

    def count(self, loss: torch.Tensor, num_examples: int) -> None:
        self.total += loss.item() * num_examples
        self.updates += 1
        if self.updates % 50 == 0:
            with open(self.folder / "log.jsonl", "a") as file:
                file.write(json.dumps({"update": self.updates, "loss": loss.item()}) + "\n")

    def save(self, epoch: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        state = {"model": model.state_dict(), "epoch": epoch}
        if self.total < self.best:
            self.best = self.total
            save_whole(state, self.folder / "best.pt")
        state |= {"optimizer": optimizer.state_dict(), "rng": torch.get_rng_state()}
        save_whole(state, self.folder / "last.pt")
        self.total = 0.0


def recorded(job: Job) -> None:
    """(a) with a record."""
    with tempfile.TemporaryDirectory() as folder:
        plain(job, record=Record(folder))


def save_whole(state: dict, path: Path) -> None:
    """On the disk before it has its name."""
    partial_path = path.with_suffix(".partial")
    with open(partial_path, "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial_path, path)


def engine_recorded(job: Job) -> None:
    with tempfile.TemporaryDirectory() as folder:
        engine(job, run_dir=folder)


def compiled_forward(job: Job) -> Callable[[], None]:
    """(b) with forward pass and loss compiled: an epoch of it."""
    model = job.model()
    optimizer = Adam(model.parameters(), fused=True)
    cost = torch.compile(lambda inputs, targets: job.criterion(model(inputs), targets))

    def step(inputs: torch.Tensor, targets: torch.Tensor) -> None:
        optimizer.zero_grad()
        cost(inputs, targets).backward()
        optimizer.step()

    return lambda: epoch_of(job, step)


def compiled_whole(job: Job, careful: bool = False) -> Callable[[], None]:
    """The whole step in one graph, by hand: an epoch of it.

    With no look at what it computes, or `careful`: it measures the gradients' norm, and where that
    or the loss is not finite, weights and state stay as they are.
    """
    model = job.model()
    parameters = list(model.parameters())
    optimizer = Adam(parameters, capturable=False)
    update = type(optimizer).step.__wrapped__.__wrapped__
    job.criterion(model(job.inputs[:BATCH]), job.targets[:BATCH]).backward()
    optimizer.step()  # makes its state
    states = [value for state in optimizer.state.values() for value in state.values()]
    moving = [*parameters, *states] if careful else []

    def step(inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor | None:
        before = [tensor.detach().clone() for tensor in moving]
        loss = job.criterion(model(inputs), targets)
        grads = torch.autograd.grad(loss, parameters)
        norm = torch.stack([grad.square().sum() for grad in grads]).sum() if careful else None
        with torch.no_grad():
            for parameter, grad in zip(parameters, grads, strict=True):
                parameter.grad.copy_(grad)
            update(optimizer)
            for tensor, old in zip(moving, before, strict=True):
                tensor.copy_(torch.where(torch.isfinite(loss + norm), tensor, old))
        return norm

    compiled = torch.compile(step, fullgraph=True, dynamic=False)
    with torch._dynamo.config.patch(trace_autograd_ops=True):
        epoch_of(job, compiled)
    return lambda: epoch_of(job, compiled)


def epoch_of(job: Job, step: Callable[[torch.Tensor, torch.Tensor], None]) -> None:
    for rows in torch.randperm(len(job.inputs)).split(BATCH):
        step(job.inputs.index_select(0, rows), job.targets.index_select(0, rows))


class Beside(Callback):
    """Times epochs of loops by hand between those of a trainer, since a graph is made per run."""

    def __init__(self, loops: dict[str, Callable[[], None]], name: str) -> None:
        self.loops, self.name = loops, name
        self.seconds: dict[str, list[float]] = {each: [] for each in (*loops, name)}

    def on_epoch_start(self, _trainer: Trainer) -> None:
        for name, loop in self.loops.items():
            started = time.perf_counter()
            loop()
            self.seconds[name].append(time.perf_counter() - started)
        self.started = time.perf_counter()

    def on_epoch_end(self, _trainer: Trainer) -> None:
        self.seconds[self.name].append(time.perf_counter() - self.started)


def beside_compiled(job: Job, rounds: int) -> dict[str, Ratio]:
    """`compile="step"` and the loops by hand, in terms of the faster compiled one."""
    model = job.model()
    plain_optimizer = Adam(model.parameters(), fused=True)

    def plain_step(inputs: torch.Tensor, targets: torch.Tensor) -> None:
        plain_optimizer.zero_grad()
        job.criterion(model(inputs), targets).backward()
        plain_optimizer.step()

    loops = {
        "(b) fastest loop": lambda: epoch_of(job, plain_step),
        "(d) compiled forward": compiled_forward(job),
        "(e) compiled, one graph": compiled_whole(job),
        "(f) (e) that looks for nan": compiled_whole(job, careful=True),
    }
    beside = Beside(loops, 'engine, compile="step"')
    net = job.model()
    optimizer = Adam(net.parameters(), fused=True)
    trainer = Trainer(
        net, job.criterion, optimizer, compile="step", callbacks=[beside], device="cpu"
    )
    loader = InMemoryLoader(job.inputs, job.targets, BATCH, shuffle=True)
    trainer.fit(loader, epochs=rounds + WARM_UP, progress=False)
    if trainer.one_graph.refused:
        print(trainer.one_graph.refused)
    seconds = {name: times[WARM_UP:] for name, times in beside.seconds.items()}
    base = min(("(d) compiled forward", "(e) compiled, one graph"),
               key=lambda name: statistics.median(seconds[name]))  # fmt: skip
    units = job.updates // job.epochs
    return {name: ratio(times, seconds[base], units) for name, times in seconds.items()}


def ignite(job: Job) -> None:
    from ignite.engine import Engine

    model = job.model()
    optimizer = Adam(model.parameters())

    def update(_engine, batch):
        model.train()
        optimizer.zero_grad()
        loss = job.criterion(model(batch[0]), batch[1])
        loss.backward()
        optimizer.step()
        return loss.detach()

    Engine(update).run(job.loader(), max_epochs=job.epochs)


def accelerate(job: Job) -> None:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    model = job.model()
    model, optimizer, loader = accelerator.prepare(model, Adam(model.parameters()), job.loader())
    for _ in range(job.epochs):
        for inputs, targets in loader:
            optimizer.zero_grad()
            accelerator.backward(job.criterion(model(inputs), targets))
            optimizer.step()


def lightning(job: Job, **options) -> None:
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = job.model()

        def training_step(self, batch, _index):
            return job.criterion(self.net(batch[0]), batch[1])

        def configure_optimizers(self):
            return Adam(self.parameters())

    quiet = dict.fromkeys(
        ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False
    )
    trainer = lightning.Trainer(accelerator="cpu", max_epochs=job.epochs, **quiet, **options)
    trainer.fit(Module(), job.loader())


def fastai(job: Job) -> None:
    from fastai.callback.progress import ProgressCallback  # noqa: F401 (gives Learner no_bar)
    from fastai.data.core import DataLoaders
    from fastai.learner import Learner
    from fastai.optimizer import OptimWrapper

    loaders = DataLoaders(job.loader(), job.loader(), device=torch.device("cpu"))
    learner = Learner(
        loaders,
        job.model(),
        loss_func=job.criterion,
        opt_func=partial(OptimWrapper, opt=Adam),
        train_bn=False,
    )
    learner._do_epoch_validate = lambda *_: None  # the others do not validate either
    with learner.no_bar(), learner.no_logging():
        learner.fit(job.epochs, 1e-3)


def skorch(job: Job) -> None:
    from skorch import NeuralNetClassifier

    net = NeuralNetClassifier(
        job.model(),
        criterion=nn.CrossEntropyLoss,
        optimizer=Adam,
        lr=1e-3,
        batch_size=BATCH,
        max_epochs=job.epochs,
        iterator_train__shuffle=True,
        train_split=None,
        verbose=0,
    )
    net.fit(job.inputs, job.targets)


PEERS = {
    "ignite": ignite,
    "accelerate": accelerate,
    "lightning": lightning,
    "fastai": fastai,
    "skorch": skorch,
}


def peers_here() -> dict[str, Callable[[Job], None]]:
    """Those that are installed; says which are not."""
    here = {name: f for name, f in PEERS.items() if importlib.util.find_spec(name)}
    if missing := [name for name in PEERS if name not in here]:
        print(f"not installed, so not measured: {', '.join(missing)} (pip install .[bench])")
    return here


def peak_memory_mib(variant: str) -> float:
    """Highest resident memory of a fresh process that trains the CNN once."""
    code = f"from tests.bench import engine as b; b.train_and_report({variant!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def train_and_report(variant: str) -> None:
    """In the fresh process: train, then print the peak in MiB."""
    torch.manual_seed(0)
    globals()[variant](Job("small CNN", epochs=10))
    status = Path("/proc/self/status").read_text()  # ru_maxrss would count the parent's memory
    print(int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, help="Turns of each; 15, and 9 with --parts.")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--compiled", action="store_true", help="Only compile='step'.")
    parser.add_argument("--parts", action="store_true", help="Only clipping and run_dir.")
    settings = parser.parse_args()
    settings.rounds = settings.rounds or (9 if settings.parts else 15)
    torch.set_num_threads(settings.threads)
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning").setLevel(logging.ERROR)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    peers = {} if settings.no_peers else peers_here()

    groups = {}
    if settings.compiled:
        for job in (Job("digits MLP", epochs=30), Job("small CNN", epochs=3)):
            title = f"{job.name}, compiled, beside the faster compiled loop"
            groups[title] = beside_compiled(job, rounds=10 * settings.rounds)
        report("engine_compiled", groups, goals=GOALS)
        return
    for job in (Job("digits MLP", epochs=30), Job("small CNN", epochs=3)):
        ours = {"(a) plain loop": plain, "engine beside (a)": engine}
        fast = {"(b) fastest loop": fastest, "engine beside (b)": engine_fast}
        parts = (
            (
                "loop, clipped",
                {
                    "loop, clipped": partial(plain, max_norm=1.0),
                    "engine, clipped": partial(engine, max_norm=1.0),
                },
            ),
            (
                "loop with record",
                {"loop with record": recorded, "engine with run_dir": engine_recorded},
            ),
        )
        for base, variants in (
            parts
            if settings.parts
            else (
                *parts,
                ("(a) plain loop", ours),
                ("(b) fastest loop", fast),
                ("(a) plain loop", ours | fast | {"(c) unlabelled": fastest_unlabelled} | peers),
            )
        ):
            bound = {name: partial(variant, job) for name, variant in variants.items()}
            rounds = settings.rounds if len(variants) == 2 else max(settings.rounds // 3, 3)
            title = f"{job.name}, {job.updates} updates, beside {base}"
            title += "" if len(variants) == 2 else ", everybody"
            groups[title] = interleaved(bound, base=base, rounds=rounds, units=job.updates)

    if settings.parts:
        report("engine_parts", groups, goals=GOALS)
        return
    memory = {name: peak_memory_mib(name) for name in ("plain", "engine", "fastest", "engine_fast")}
    print("\npeak memory, MiB:", {name: round(value, 1) for name, value in memory.items()})
    report("engine", groups, goals=GOALS, peak_memory_mib=memory)


if __name__ == "__main__":
    main()
