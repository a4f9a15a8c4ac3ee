"""Loaders, targets, criteria and schedules that are right and unlike the usual ones."""

from __future__ import annotations

import copy
import math
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.lr_scheduler import (
    ChainedScheduler,
    CosineAnnealingLR,
    LinearLR,
    MultiStepLR,
    SequentialLR,
    StepLR,
)  # fmt: skip
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SubsetRandomSampler,
    TensorDataset,
)  # fmt: skip

from course.debug import diagnose, watch
from course.engine import (
    EMA,
    Callback,
    CheckpointError,
    EngineError,
    KeepBest,
    NonFiniteError,
    Trainer,
    evaluate,
    load_weights,
    train_step,
    warmup_cosine,
)
from course.engine.record import compare, read_run
from course.lr_finder import lr_find
from course.state import seed_everything

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(48, 6, generator=GENERATOR)
Y = torch.randint(0, 3, (48,), generator=GENERATOR)
ROWS = TensorDataset(X, Y)


def mlp(dtype=torch.float32):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).to(dtype)


def sgd(model, lr=0.1, **options):
    return torch.optim.SGD(model.parameters(), lr=lr, **options)


def trained(loader, *, criterion=None, scheduler=None, per="epoch", epochs=2, **options):
    model = mlp()
    optimizer = sgd(model)
    made = scheduler(optimizer) if scheduler else None
    trainer = Trainer(
        model, criterion or nn.CrossEntropyLoss(), optimizer, scheduler=made, schedule_per=per,
        seed=0, device="cpu", **options,
    )  # fmt: skip
    return trainer, trainer.fit(loader, DataLoader(ROWS, 16), epochs=epochs, progress=False)


class Stream(IterableDataset):
    """Rows one after another; nobody knows how many."""

    def __iter__(self):
        return iter(zip(X, Y, strict=True))


def test_a_loader_over_a_stream_without_a_length_is_trained():
    _, history = trained(DataLoader(Stream(), 8), epochs=3)
    assert [epoch["updates"] for epoch in history.epochs] == [6, 12, 18]


class Halt(Exception):
    pass


class Break(Callback):
    """Raises after so many updates, as a run that was killed between two checkpoints."""

    def __init__(self, after):
        self.after = after

    def on_update_end(self, trainer):
        if trainer.progress.update == self.after:
            raise Halt


class Noisy(torch.utils.data.Dataset):
    def __len__(self):
        return len(X)

    def __getitem__(self, index):
        return X[index] + 0.1 * torch.randn(6), Y[index]


def nested():
    sampler = RandomSampler(ROWS, generator=torch.Generator().manual_seed(1))
    return DataLoader(ROWS, batch_sampler=BatchSampler(sampler, 8, False))


def persistent():
    return DataLoader(ROWS, 8, shuffle=True, num_workers=1, persistent_workers=True)


@pytest.mark.parametrize("loader_of", [nested, persistent])
def test_a_run_resumed_in_its_second_epoch_ends_with_the_same_bits(loader_of, tmp_path):
    def run(folder, resume=None, callbacks=()):
        model = mlp()
        trainer = Trainer(
            model, nn.CrossEntropyLoss(), sgd(model), seed=0, run_dir=folder, device="cpu",
            callbacks=callbacks,
        )  # fmt: skip
        loader = loader_of()
        try:
            trainer.fit(loader, epochs=3, checkpoint_every=1, resume=resume, progress=False)
        finally:  # a worker left behind would keep open whatever else this process has open
            if loader._iterator is not None:
                loader._iterator._shutdown_workers()
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    others = set(torch.multiprocessing.active_children())
    whole = run(tmp_path / "whole")
    with pytest.raises(Halt):
        run(tmp_path / "broken", callbacks=[Break(9)])
    assert torch.equal(run(tmp_path / "broken", resume="auto"), whole)
    assert set(torch.multiprocessing.active_children()) <= others


def test_a_distributed_sampler_inside_a_batch_sampler_is_told_the_epoch():
    sampler = DistributedSampler(ROWS, num_replicas=1, rank=0)
    trained(DataLoader(ROWS, batch_sampler=BatchSampler(sampler, 8, False)), epochs=3)
    assert sampler.epoch == 2


def test_milestones_survive_a_checkpoint(tmp_path):
    def schedule(optimizer):
        parts = [LinearLR(optimizer, 0.1, total_iters=4), MultiStepLR(optimizer, [2, 5])]
        return SequentialLR(optimizer, parts, [8])

    def run(folder, resume=None, callbacks=()):
        model = mlp()
        optimizer = sgd(model)
        trainer = Trainer(
            model, nn.CrossEntropyLoss(), optimizer, scheduler=schedule(optimizer), seed=0,
            schedule_per="update", run_dir=folder, device="cpu", callbacks=callbacks,
        )  # fmt: skip
        trainer.fit(
            DataLoader(ROWS, 8), epochs=3, checkpoint_every=1, resume=resume, progress=False
        )
        return optimizer.param_groups[0]["lr"], model[0].weight.detach().clone()

    whole = run(tmp_path / "whole")
    with pytest.raises(Halt):
        run(tmp_path / "broken", callbacks=[Break(7)])
    lr, weight = run(tmp_path / "broken", resume="auto")
    assert lr == whole[0] == pytest.approx(0.001) and torch.equal(weight, whole[1])


def test_a_table_that_grew_during_validation_can_be_trained_with():
    class Positions(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.table = nn.Linear(4, 3), None

        def forward(self, x):
            if self.table is None or len(self.table) < x.shape[1]:
                self.table = torch.arange(1.0, x.shape[1] + 1)[:, None]
            return (self.linear(x) * self.table[: x.shape[1]]).mean(1)

    short = [(torch.randn(8, 5, 4), Y[:8])]
    long = [(torch.randn(8, 9, 4), Y[:8])]
    model = Positions()
    Trainer(model, nn.CrossEntropyLoss(), sgd(model), device="cpu").fit(
        short, long, epochs=2, progress=False
    )


def two_losses(outputs, targets):
    return F.cross_entropy(outputs, targets[0]) + F.mse_loss(outputs[:, 0], targets[1])


def test_targets_of_several_tensors_are_weighed_by_their_examples():
    inputs, values = X.double(), torch.randn(48, dtype=torch.float64)
    weights = []
    for cuts in ([10], [8, 2]):
        model = mlp(torch.float64)
        batches = zip(*(t[:10].split(cuts) for t in (inputs, Y, values)), strict=True)
        train_step(model, [(x, (y, z)) for x, y, z in batches], two_losses, sgd(model))
        weights.append(model[0].weight.detach().clone())
    assert torch.allclose(*weights, rtol=0, atol=1e-12)


def test_targets_of_several_tensors_are_evaluated_by_their_loss():
    batches = [(X[:10], (Y[:10], X[:10, 0])), (X[10:14], (Y[10:14], X[10:14, 0]))]
    model = mlp()
    expected = (10 * two_losses(model(X[:10]), batches[0][1])
                + 4 * two_losses(model(X[10:14]), batches[1][1])) / 14  # fmt: skip
    found = evaluate(model, batches, two_losses)
    assert found["loss"] == pytest.approx(expected.item(), rel=1e-6)
    assert found["num_examples"] == 14 and "accuracy" not in found


@pytest.mark.parametrize("dtype", [torch.long, torch.uint8])
def test_a_micro_batch_of_weight_zero_counts_nothing(dtype):
    """Its mean is 0 / 0; uint8 labels would index the class weights as a mask."""
    targets = torch.tensor([0, 0, 0, 0, 1, 2, 1, 2], dtype=dtype)
    weight = torch.tensor([0.0, 1.0, 1.0], dtype=torch.float64)
    criterion = nn.CrossEntropyLoss(weight=weight)

    def loss_of(outputs, labels):
        return criterion(outputs, labels.long())

    used = criterion if dtype is torch.long else loss_of
    inputs = X[:8].double()
    model, twin = mlp(torch.float64), mlp(torch.float64)
    whole = train_step(model, [(inputs, targets)], used, sgd(model))
    if dtype is torch.long:
        parts = [(inputs[:4], targets[:4]), (inputs[4:], targets[4:])]
        report = train_step(twin, parts, used, sgd(twin))
        assert report.loss == pytest.approx(whole.loss, abs=1e-12)
        assert torch.allclose(model[0].weight, twin[0].weight, rtol=0, atol=1e-12)
    assert evaluate(model, [(inputs, targets)], used).get("accuracy", 0.0) <= 1.0


def test_sparse_gradients_are_looked_at_too():
    def embedding():
        torch.manual_seed(0)
        return nn.EmbeddingBag(5, 3, sparse=True)

    model, plain = embedding(), embedding()
    indices = torch.tensor([[0, 1], [2, 1]])
    train_step(model, [(indices, Y[:2])], nn.CrossEntropyLoss(), sgd(model))
    F.cross_entropy(plain(indices), Y[:2]).backward()
    sgd(plain).step()
    assert torch.equal(model.weight, plain.weight)
    with torch.no_grad():
        model.weight.fill_(math.inf)
    with pytest.raises(NonFiniteError):
        train_step(model, [(indices, Y[:2])], nn.CrossEntropyLoss(), sgd(model))


def test_chained_schedules_are_counted():
    def schedule(optimizer):
        return ChainedScheduler([CosineAnnealingLR(optimizer, T_max=2), StepLR(optimizer, 5)])

    trainer, _ = trained(DataLoader(ROWS, 16), scheduler=schedule, epochs=2)
    assert trainer.optimizer.param_groups[0]["lr"] == pytest.approx(0.0, abs=1e-12)


def test_a_schedule_may_end_where_max_updates_ends_the_run():
    model = mlp()
    optimizer = sgd(model)
    schedule = warmup_cosine(optimizer, warmup=2, total=10)
    trainer = Trainer(
        model, nn.CrossEntropyLoss(), optimizer, scheduler=schedule, schedule_per="update"
    )
    trainer.fit(DataLoader(ROWS, 8), epochs=100, max_updates=10, progress=False)
    assert trainer.progress.update == 10


def test_deterministic_algorithms_stay_asked_for():
    torch.use_deterministic_algorithms(True)
    try:
        trained(DataLoader(ROWS, 16), epochs=1)
        assert torch.are_deterministic_algorithms_enabled()
    finally:
        torch.use_deterministic_algorithms(False)


def step_lr(gamma):
    return partial(StepLR, step_size=1, gamma=gamma)


@pytest.mark.parametrize(
    ("first", "second", "named"),
    [
        ({}, {"criterion": nn.CrossEntropyLoss(label_smoothing=0.3)}, "criterion.label_smoothing"),
        ({"criterion": partial(F.cross_entropy, label_smoothing=0.1)},
         {"criterion": partial(F.cross_entropy, label_smoothing=0.3)}, "criterion.label_smoothing"),
        ({"scheduler": step_lr(0.9)}, {"scheduler": step_lr(0.1)}, "scheduler.gamma"),
        ({"loader": DataLoader(ROWS, 8, sampler=SubsetRandomSampler(range(24)))},
         {"loader": DataLoader(ROWS, 8, sampler=SubsetRandomSampler(range(24, 48)))}, "data.train"),
    ],
    ids=["criterion", "partial", "schedule", "rows"],
)  # fmt: skip
def test_two_runs_that_differ_in_one_thing_are_told_which(first, second, named, tmp_path):
    for name, options in (("a", first), ("b", second)):
        options = dict(options)
        loader = options.pop("loader", DataLoader(ROWS, 16))
        trained(loader, run_dir=tmp_path / name, **options)
    verdict = compare(read_run(tmp_path / "a"), read_run(tmp_path / "b")).verdict
    assert "Nothing" not in verdict and named in verdict


def test_a_resumed_run_began_with_the_same_rate(tmp_path):
    trained(DataLoader(ROWS, 16), scheduler=step_lr(0.5), run_dir=tmp_path / "whole", epochs=4)
    trained(DataLoader(ROWS, 16), scheduler=step_lr(0.5), run_dir=tmp_path / "parts", epochs=2)
    model = mlp()
    optimizer = sgd(model)
    trainer = Trainer(model, nn.CrossEntropyLoss(), optimizer, scheduler=step_lr(0.5)(optimizer),
                      seed=0, device="cpu", run_dir=tmp_path / "parts")  # fmt: skip
    trainer.fit(DataLoader(ROWS, 16), DataLoader(ROWS, 16), epochs=4, resume="auto", progress=False)
    changed = compare(read_run(tmp_path / "whole"), read_run(tmp_path / "parts")).changed
    assert changed == {}


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
def test_read_only_memory_is_never_written(tmp_path):
    np.save(tmp_path / "x.npy", X.numpy())
    inputs = torch.from_numpy(np.load(tmp_path / "x.npy", mmap_mode="r"))
    model = mlp()
    batches = list(zip(inputs.split(8), Y.split(8), strict=True))
    lr_find(model, nn.CrossEntropyLoss(), sgd(model), batches, steps=20, rule="decade", sweeps=1)
    loader = DataLoader(TensorDataset(inputs, Y), 8)
    diagnose({"model": model, "loss_fn": nn.CrossEntropyLoss(), "optimizer": sgd(model),
              "train_loader": loader, "num_classes": 3})  # fmt: skip
    assert torch.equal(inputs, X)


def test_watch_stands_steps_inside_backward():
    model = mlp()
    optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}

    def step(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(step)
    before = copy.deepcopy(model.state_dict())
    with watch(model, list(optimizers.values())) as seen:
        for _ in range(20):
            F.cross_entropy(model(X), Y).backward()
    assert seen.updates >= 20 and not model._forward_pre_hooks
    assert not torch.equal(before["0.weight"], model[0].weight)


class Misstated(IterableDataset):
    """Says 40 rows and gives 48, as a sharded stream may."""

    def __len__(self):
        return 40

    def __iter__(self):
        return iter(zip(X, Y, strict=True))


def test_a_run_over_a_loader_that_misstates_its_length_can_be_resumed(tmp_path):
    trained(DataLoader(Misstated(), 8), run_dir=tmp_path / "a", epochs=2)
    _, history = trained(DataLoader(Misstated(), 8), run_dir=tmp_path / "b", epochs=1)
    model = mlp()
    trainer = Trainer(
        model, nn.CrossEntropyLoss(), sgd(model), seed=0, device="cpu", run_dir=tmp_path / "b"
    )
    history = trainer.fit(
        DataLoader(Misstated(), 8), DataLoader(ROWS, 16), epochs=2, resume="auto", progress=False
    )
    assert [epoch["updates"] for epoch in history.epochs] == [6, 12]


def test_a_plateau_schedule_that_looks_the_other_way_is_refused():
    model = mlp()
    optimizer = sgd(model)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
    trainer = Trainer(
        model, nn.CrossEntropyLoss(), optimizer, scheduler=schedule, schedule_per="metric"
    )
    with pytest.raises(EngineError, match="mode='min' but fit has mode='max' for val_accuracy"):
        trainer.fit(DataLoader(ROWS, 16), DataLoader(ROWS, 16), epochs=2,
                    monitor="val_accuracy", mode="max")  # fmt: skip


def test_weights_are_untouched_where_the_optimizer_does_not_fit(tmp_path):
    trained(DataLoader(ROWS, 16), run_dir=tmp_path / "run", epochs=1)
    model = mlp()
    before = model[0].weight.detach().clone()
    groups = [{"params": [p]} for p in model.parameters()]
    trainer = Trainer(model, nn.CrossEntropyLoss(), torch.optim.SGD(groups, lr=0.1), device="cpu")
    with pytest.raises(CheckpointError, match="optimizer or schedule differs"):
        trainer.fit(DataLoader(ROWS, 16), DataLoader(ROWS, 16), epochs=2, resume=tmp_path / "run",
                    progress=False)  # fmt: skip
    assert torch.equal(model[0].weight, before)


def lazy():
    torch.manual_seed(0)
    return nn.Sequential(nn.LazyLinear(8), nn.LazyBatchNorm1d(), nn.ReLU(), nn.LazyLinear(3))


def test_a_lazy_model_is_made_by_the_first_update_as_by_hand(tmp_path):
    def run(directory, **options):
        model = lazy()
        callbacks = [*options.pop("callbacks", ()), EMA(0.9)]
        trainer = Trainer(
            model, nn.CrossEntropyLoss(), sgd(model), device="cpu", seed=1, run_dir=directory,
            callbacks=callbacks,
        )  # fmt: skip
        trainer.fit(DataLoader(ROWS, 16), DataLoader(ROWS, 16), epochs=2, progress=False, **options)
        return model.state_dict()

    by_hand = lazy()
    optimizer = sgd(by_hand)
    seed_everything(1)
    for _ in range(2):
        for inputs, targets in DataLoader(ROWS, 16):
            optimizer.zero_grad()
            F.cross_entropy(by_hand(inputs), targets).backward()
            optimizer.step()
    whole = run(tmp_path / "whole")
    assert all(torch.equal(whole[name], value) for name, value in by_hand.state_dict().items())
    with pytest.raises(Halt):
        run(tmp_path / "killed", callbacks=[Break(4)])
    resumed = run(tmp_path / "killed", resume="auto")
    assert all(torch.equal(whole[name], value) for name, value in resumed.items())


def test_a_run_may_be_stopped_before_its_next_epoch():
    class Enough(Callback):
        def on_epoch_start(self, trainer):
            if trainer.progress.epoch == 2:
                trainer.stop("enough")

    _, history = trained(DataLoader(ROWS, 16), epochs=5, callbacks=[Enough()])
    assert len(history.epochs) == 1


def test_label_maps_in_bytes_are_refused_before_torch_stumbles():
    """torch takes uint8 classes as [B] only; of maps it says 'expected scalar type Long'."""
    model = nn.Conv2d(1, 3, 1)
    inputs, maps = torch.randn(4, 1, 2, 2), torch.ones(4, 2, 2, dtype=torch.uint8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    trainer = Trainer(model, nn.CrossEntropyLoss(), optimizer, device="cpu")
    with pytest.raises(EngineError, match=r"torch.uint8: .*targets.long\(\)"):
        trainer.fit(DataLoader(TensorDataset(inputs, maps), 4), epochs=1, progress=False)
    trainer.fit(DataLoader(TensorDataset(inputs, maps.long()), 4), epochs=1, progress=False)


class Negated(nn.Linear):
    """Its second version stores the weight negated, and converts what the first has written."""

    _version = 2

    def _load_from_state_dict(self, state, prefix, metadata, *rest):
        if (metadata.get("version") or 1) < 2:
            state[prefix + "weight"] = -state[prefix + "weight"]
        super()._load_from_state_dict(state, prefix, metadata, *rest)


def test_a_module_finds_the_version_that_wrote_a_checkpoint(tmp_path):
    def trainer(model, callbacks=()):
        return Trainer(
            model, nn.CrossEntropyLoss(), sgd(model), callbacks=callbacks, run_dir=tmp_path / "run"
        )

    batches = [(torch.randn(4, 3), torch.randint(0, 2, (4,)))]
    trained, best = Negated(3, 2), KeepBest()
    first = trainer(trained, [best])
    first.fit(batches, epochs=1)
    weight = trained.weight.detach().clone()
    best.restore(first)
    assert torch.equal(trained.weight, weight)
    loaded = Negated(3, 2)
    load_weights(loaded, tmp_path / "run" / "best.pt")
    assert torch.equal(loaded.weight, weight)
    resumed, best = Negated(3, 2), KeepBest()
    second = trainer(resumed, [best])
    second.fit(batches, epochs=1, resume="auto")
    assert torch.equal(resumed.weight, weight)
    best.restore(second)
    assert torch.equal(resumed.weight, weight)


class Masked(TensorDataset):
    """Masks a part of each row's targets when it is fetched, as masked language models do."""

    def __getitem__(self, index):
        inputs, targets = super().__getitem__(index)
        return inputs, targets.masked_fill(torch.arange(6) > index % 6, -100)


class MaskingLoader(DataLoader):
    """Does it when a batch is loaded."""

    def __iter__(self):
        for inputs, targets in super().__iter__():
            kept = torch.arange(6) <= targets.sum(1, keepdim=True) % 6
            yield inputs, targets.where(kept, -100)


@pytest.mark.parametrize(
    "load",
    [
        lambda x, y, size: DataLoader(Masked(x, y), size),
        lambda x, y, size: MaskingLoader(TensorDataset(x, y), size),
    ],
    ids=["data set", "loader"],
)
def test_targets_that_a_subclass_masks_are_not_weighed(load):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(8, 4, 6, generator=generator)
    y = torch.randint(0, 4, (8, 6), generator=generator)
    weights = []
    for size, accum_steps in ((8, 1), (1, 8)):
        torch.manual_seed(0)
        model = nn.Conv1d(4, 4, 1)
        trainer = Trainer(model, nn.CrossEntropyLoss(), sgd(model, 1.0), accum_steps=accum_steps)
        trainer.fit(load(x, y, size), max_updates=1)
        weights.append(model.weight.detach().cpu())
    torch.testing.assert_close(*weights)


def test_labels_that_a_subclass_shifts_are_not_refused():
    class Shifted(TensorDataset):
        def __getitem__(self, index):
            inputs, targets = super().__getitem__(index)
            return inputs, targets - 1

    Trainer(model := mlp(), nn.CrossEntropyLoss(), sgd(model)).fit(
        DataLoader(Shifted(X, Y + 1), 16), epochs=1
    )
