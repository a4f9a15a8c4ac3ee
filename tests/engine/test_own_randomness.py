"""Data that draws by itself: a run broken off and resumed still ends with the same bits.

The draws come from the global generators, or from one that the data set, a transform in it or the
collate function holds; in this process or in workers; broken off inside an epoch and at its end.
"""

from __future__ import annotations

import gc
import random
import sys
import warnings
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import SGD
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    TensorDataset,
    default_collate,
    get_worker_info,
)

sys.path.insert(0, str(Path(__file__).parent))
from tiny_job import assert_same_bits

from course.data import make_loader
from course.data.sampling import ResumableBatchSampler
from course.engine import Callback, CheckpointError, Loss, Trainer
from course.state.generators import own_generators, put_back, state_of
from tests.sampling import sample

NUM, BATCH, ACCUM = 24, 3, 2  # 8 batches, 4 updates an epoch
X = torch.randn(NUM, 5, generator=torch.Generator().manual_seed(1))
Y = X[:, :3].argmax(1)


def from_global() -> float:
    return float(torch.rand(())) + np.random.rand() + random.random()


class Jitter:
    """A transform that holds its generator, as many do."""

    def __init__(self, draw) -> None:
        self.draw = draw

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs + 0.3 * self.draw()


def rand_of(generator: torch.Generator) -> float:
    return float(torch.rand((), generator=generator))


DRAWS = {
    "global": lambda: from_global,
    "torch": lambda: partial(rand_of, torch.Generator().manual_seed(2)),
    "numpy": lambda: np.random.default_rng(2).random,
    "philox in a closure": lambda: closure_over(np.random.Generator(np.random.Philox(2))),
    "RandomState": lambda: np.random.RandomState(2).rand,
    "Python": lambda: random.Random(2).random,
}


def closure_over(generator):
    return lambda: generator.random()


class Drawing(Dataset):
    def __init__(self, draw) -> None:
        self.transforms = [Jitter(draw)]

    def __len__(self) -> int:
        return NUM

    def __getitem__(self, index: int):
        return self.transforms[0](X[index]), Y[index]


class DrawingStream(IterableDataset):
    def __init__(self, draw) -> None:
        self.transform = Jitter(draw)

    def __iter__(self):
        info = get_worker_info()
        share = (info.id, info.num_workers) if info else (0, 1)
        for index in range(share[0], NUM, share[1]):
            yield self.transform(X[index]), Y[index]


class Mixing:
    """A collate function that draws."""

    def __init__(self, draw) -> None:
        self.draw = draw

    def __call__(self, examples):
        inputs, targets = default_collate(examples)
        return inputs + 0.3 * self.draw(), targets


def make(kind: str, draw, workers: int, **options) -> DataLoader:
    options |= {"num_workers": workers}
    if workers:
        options |= {"multiprocessing_context": "fork"}
    if kind == "make_loader":
        return make_loader(Drawing(draw), BATCH, shuffle=True, seed=3, **options)
    if kind == "collate":
        data = TensorDataset(X, Y)
        return make_loader(data, BATCH, shuffle=True, collate_fn=Mixing(draw), **options)
    if kind == "augment of a drawing set":
        return make_loader(Drawing(draw), BATCH, shuffle=True, augment=torch.neg, **options)
    if kind == "our sampler":
        return DataLoader(Drawing(draw), batch_sampler=ResumableBatchSampler(NUM, BATCH), **options)
    if kind == "plain":
        return DataLoader(Drawing(draw), BATCH, shuffle=True, **options)
    return DataLoader(DrawingStream(draw), BATCH, **options)


def trainer_of(run_dir: Path | None, *callbacks) -> Trainer:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.2), nn.Linear(8, 3))
    optimizer = SGD(model.parameters(), lr=0.1, momentum=0.9)
    return Trainer(
        model, nn.CrossEntropyLoss(), optimizer, accum_steps=ACCUM, device="cpu", seed=4,
        callbacks=callbacks, run_dir=run_dir,
    )  # fmt: skip


class BreakAt(Callback):
    """Breaks the run off after an update, or after the checkpoint of an epoch's end."""

    def __init__(self, update: int, at_end: bool) -> None:
        self.update, self.at_end = update, at_end

    def on_checkpoint(self, trainer: Trainer) -> None:
        progress = trainer.progress
        if progress.update == self.update and (progress.micro_batch == 0) == self.at_end:
            raise KeyboardInterrupt


OPTIONS = {"epochs": 3, "checkpoint_every": 1, "progress": False}


def whole(loader) -> list:
    trainer = trainer_of(None)
    trainer.fit(loader, **OPTIONS)
    return [p.detach() for p in trainer.model.parameters()]


def broken_and_resumed(make_one, run_dir: Path, update: int, at_end: bool) -> list:
    with pytest.raises(KeyboardInterrupt):
        trainer_of(run_dir, BreakAt(update, at_end)).fit(make_one(), **OPTIONS)
    torch.manual_seed(99), np.random.seed(99), random.seed(99)
    trainer = trainer_of(run_dir)
    trainer.fit(make_one(), resume="auto", **OPTIONS)
    return [p.detach() for p in trainer.model.parameters()]


KINDS = ["make_loader", "collate", "augment of a drawing set", "our sampler", "plain", "stream"]
PLACES = [(4, True), (6, False)]


@pytest.mark.parametrize("draws", DRAWS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_a_resumed_run_ends_with_the_same_bits_in_this_process(kind, draws, tmp_path):
    assert_resumed_is_whole(lambda: make(kind, DRAWS[draws](), 0), tmp_path)


@pytest.mark.parametrize("kind,draws", sample([*product(KINDS, ["global", "numpy"])], every=5))
@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_a_resumed_run_ends_with_the_same_bits_with_workers(kind, draws, tmp_path):
    assert_resumed_is_whole(lambda: make(kind, DRAWS[draws](), 2), tmp_path)


def assert_resumed_is_whole(make_one, tmp_path) -> None:
    expected = whole(make_one())
    for update, at_end in PLACES:
        assert_same_bits(
            broken_and_resumed(make_one, tmp_path / str(update), update, at_end), expected
        )


def test_the_draws_matter():
    """Else all of this would hold for data that draws nothing."""
    weights = [whole(make("plain", draw, 0)) for draw in (DRAWS["torch"](), lambda: 0.0)]
    assert not torch.equal(weights[0][0], weights[1][0])


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_draws_in_workers_are_new_in_each_epoch():
    loader = make("make_loader", from_global, 2)
    first, second = (torch.cat([inputs for inputs, _ in loader]).sort(0).values for _ in range(2))
    assert not torch.equal(first, second)


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_keyed_draws_survive_workers_that_outlive_the_epoch(tmp_path):
    def make_one():
        return make("make_loader", from_global, 2, persistent_workers=True)

    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="a resumed run would not match this one")
        found = broken_and_resumed(make_one, tmp_path / "run", 6, False)
    assert_same_bits(found, whole(make_one()))


@pytest.mark.parametrize(
    "kind,draws,reason",
    [
        ("plain", "global", "keep their random number generators"),
        ("make_loader", "numpy", "each has its own Generator"),
        ("stream", "Python", "each has its own Random"),
    ],
)
@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_what_cannot_be_repeated_is_said_before_the_first_update(kind, draws, reason, tmp_path):
    loader = make(kind, DRAWS[draws](), 2, persistent_workers=True)
    trainer = trainer_of(tmp_path / "run")
    with pytest.warns(UserWarning, match=f"not match this one bit for bit.*{reason}"):
        trainer.fit(loader, max_updates=1, progress=False)


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_nothing_is_said_of_tensors_nor_of_a_run_that_keeps_no_checkpoint(tmp_path):
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="a resumed run would not match this one")
        keep = {"persistent_workers": True, "multiprocessing_context": "fork", "num_workers": 1}
        trainer_of(tmp_path / "run").fit(
            DataLoader(TensorDataset(X, Y), BATCH, **keep), max_updates=1, progress=False
        )
        trainer_of(None).fit(
            DataLoader(Drawing(from_global), BATCH, **keep), max_updates=1, progress=False
        )


def test_another_loader_than_the_runs_is_refused(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        trainer_of(tmp_path / "run", BreakAt(4, True)).fit(
            make("plain", DRAWS["numpy"](), 0), **OPTIONS
        )
    with pytest.raises(CheckpointError, match="has 0 generators, but it had 1"):
        trainer_of(tmp_path / "run").fit(
            make("plain", from_global, 0), resume="auto", **OPTIONS
        )  # fmt: skip


@pytest.mark.parametrize(
    "generator",
    [
        torch.Generator().manual_seed(5), np.random.default_rng(5), np.random.RandomState(5),
        random.Random(5), np.random.Generator(np.random.SFC64(5)),
        np.random.Generator(np.random.MT19937(5)),
    ],
    ids=["torch", "PCG64", "RandomState", "random", "SFC64", "MT19937"],
)  # fmt: skip
def test_a_state_goes_through_a_checkpoint_and_back(generator, tmp_path):
    def draw() -> list[float]:
        if isinstance(generator, torch.Generator):
            return torch.randn(5, generator=generator).tolist()
        gauss = getattr(generator, "standard_normal", None)
        return [gauss() if gauss else generator.gauss(0, 1) for _ in range(5)]

    draw()
    torch.save(state_of(generator), tmp_path / "state")
    expected = draw()
    put_back(generator, torch.load(tmp_path / "state", weights_only=True))
    assert draw() == expected


def test_generators_are_found_once_and_in_the_same_order():
    shared = torch.Generator()
    loader = DataLoader(
        Drawing(np.random.default_rng(0).random), batch_sampler=BatchSampler(range(3), 2, False),
        generator=shared,
    )  # fmt: skip
    loader.dataset.also, loader.dataset.itself = shared, loader.dataset
    kinds = [type(g).__name__ for g in own_generators(loader)]
    assert sorted(kinds) == ["Generator", "Generator"] and len(set(own_generators(loader))) == 2
    assert own_generators(loader) == own_generators(loader)


@pytest.mark.filterwarnings("ignore:This DataLoader will create", "ignore:a resumed run would not")
def test_workers_end_with_their_loader_though_the_trainer_is_part_of_a_cycle():
    """Collected with a cycle, queues close before the workers are told, which are ended after 5 s
    each, and not with 0."""
    loader = make("plain", from_global, 2, persistent_workers=True)
    trainer = trainer_of(None)
    trainer.fit(loader, max_updates=1, progress=False)
    workers = loader._iterator._workers
    del loader, trainer
    gc.collect()
    assert all(worker.exitcode == 0 for worker in workers)


class Noisy(nn.Module):
    """Adds noise from `draw`; its offset, a plain tensor made by the first forward, follows."""

    def __init__(self, draw=None) -> None:
        super().__init__()
        self.linear, self.draw = nn.Linear(5, 3), draw

    def forward(self, inputs):
        if self.draw is None:
            mean = inputs.mean(0)
            self.offset = 0.9 * self.offset + mean if hasattr(self, "offset") else mean
            return self.linear(inputs - self.offset)
        return self.linear(inputs + self.draw())


class NoisyLoss(nn.Module):
    def __init__(self, draw) -> None:
        super().__init__()
        self.draw = draw

    def forward(self, outputs, targets):
        return F.cross_entropy(outputs * (1 + self.draw()), targets)


SHARED = torch.Generator()


def loss_by_a_global(model, batch):
    outputs = model(batch[0] + torch.rand(1, generator=SHARED))
    return Loss(F.cross_entropy(outputs, batch[1]), len(batch[1]))


def of_a_model(run_dir, callbacks, draw):
    """A run of a model with noise, or with an offset where nothing is drawn."""
    return _of(run_dir, callbacks, Noisy(draw), criterion=nn.CrossEntropyLoss())


def of_a_criterion(run_dir, callbacks, draw):
    return _of(run_dir, callbacks, nn.Linear(5, 3), criterion=NoisyLoss(draw))


def of_a_loss_of(run_dir, callbacks, draw):
    def loss_of(model, batch):
        return Loss(F.cross_entropy(model(batch[0] + draw()), batch[1]), len(batch[1]))

    return _of(run_dir, callbacks, nn.Linear(5, 3), loss_of=loss_of)


def of_a_global(run_dir, callbacks, draw):
    SHARED.manual_seed(3)
    return _of(run_dir, callbacks, nn.Linear(5, 3), loss_of=loss_by_a_global)


def of_a_step(run_dir, callbacks, draw):
    model = nn.Linear(5, 3)

    def step(step, batch):
        loss = F.cross_entropy(step.models["one"](batch[0] + draw()), batch[1])
        step.descend("one", loss)
        return loss

    optimizer = {"one": SGD(model.parameters(), lr=0.1)}
    return Trainer(
        {"one": model}, optimizer=optimizer, step=step, device="cpu", run_dir=run_dir,
        callbacks=callbacks, seed=4,
    )  # fmt: skip


def _of(run_dir, callbacks, model, **loss):
    torch.manual_seed(0)
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    optimizer = SGD(model.parameters(), lr=0.1)
    return Trainer(
        model, **loss, optimizer=optimizer, device="cpu", run_dir=run_dir, callbacks=callbacks,
        seed=4,
    )  # fmt: skip


HELD = [*product([of_a_model, of_a_criterion, of_a_loss_of, of_a_step], ["torch", "numpy"])]


@pytest.mark.parametrize("build,kind", [*HELD, (of_a_global, "torch"), (of_a_model, None)])
@pytest.mark.parametrize("update,at_end", PLACES)
def test_a_model_a_loss_and_a_step_that_draw_resume_with_the_same_bits(
    build, kind, update, at_end, tmp_path
):
    loader = [(X[i : i + 6], Y[i : i + 6]) for i in range(0, NUM, 6)]

    def fit(run_dir, *callbacks):
        torch.manual_seed(0)
        trainer = build(run_dir, callbacks, DRAWS[kind]() if kind else None)
        trainer.fit(loader, resume="auto", **OPTIONS)
        return [p.detach() for p in trainer.model.parameters()]

    expected = fit(None)
    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path / "run", BreakAt(update, at_end))
    SHARED.manual_seed(99)
    assert_same_bits(fit(tmp_path / "run"), expected)


def test_a_model_with_another_number_of_generators_is_refused(tmp_path):
    loader = [(X, Y)]
    of_a_model(tmp_path / "run", (), DRAWS["torch"]()).fit(loader, epochs=1)
    with pytest.raises(CheckpointError, match="hold 0 generators, but held 1"):
        of_a_model(tmp_path / "run", (), lambda: 0.0).fit(loader, epochs=2, resume="auto")
