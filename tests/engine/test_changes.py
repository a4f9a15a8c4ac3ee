"""What a run's next step depends on comes back, what has changed is said, and damage is noticed."""

from __future__ import annotations

import errno
import os

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import SGD, Adam
from torch.utils.data import DataLoader, Dataset, Sampler, TensorDataset

from course.engine import (
    EMA,
    Callback,
    CheckpointError,
    EarlyStopping,
    EngineError,
    Trainer,
    checkpoint,
    warmup_cosine,
)

X = torch.randn(32, 6, generator=torch.Generator().manual_seed(0))
Y = X[:, :3].argmax(1)


class Kill(Callback):
    def __init__(self, at: int) -> None:
        self.at = at

    def on_update_end(self, trainer):
        if trainer.progress.update == self.at:
            raise KeyboardInterrupt


class Head(nn.Module):
    """A criterion with weights of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, outputs, targets):
        return F.cross_entropy(self.linear(outputs), targets)


def fit(directory, *, criterion=None, lr=0.1, loader=None, epochs=3, kill=None, total=None,
        resume="auto", on_change="refuse", weight_decay=0.0, **options):  # fmt: skip
    torch.manual_seed(1)
    model, criterion = nn.Linear(6, 3), criterion or nn.CrossEntropyLoss()
    parameters = [*model.parameters()]
    if isinstance(criterion, nn.Module):
        parameters += criterion.parameters()
    optimizer = SGD(parameters, lr=lr, momentum=0.9, weight_decay=weight_decay)
    if total:
        options |= {"scheduler": warmup_cosine(optimizer, warmup=1, total=total)}
        options |= {"schedule_per": "update"}
    trainer = Trainer(
        model, criterion, optimizer, run_dir=directory, device="cpu",
        callbacks=[Kill(kill)] if kill else [], **options,
    )  # fmt: skip
    loader = loader or DataLoader(TensorDataset(X, Y), 8)
    try:
        history = trainer.fit(
            loader, epochs=epochs, resume=resume, on_change=on_change, checkpoint_every=1,
            progress=False,
        )  # fmt: skip
    except KeyboardInterrupt:
        return model, None
    return model, history


def test_a_criterion_with_weights_is_resumed_with_them(tmp_path):
    torch.manual_seed(2)
    whole = Head()
    expected, _ = fit(tmp_path / "whole", criterion=whole)
    for at in (3, 12):
        torch.manual_seed(2)
        first, second = Head(), Head()
        fit(tmp_path / f"cut{at}", criterion=first, kill=at)
        model, _ = fit(tmp_path / f"cut{at}", criterion=second)
        assert torch.equal(model.weight, expected.weight)
        assert torch.equal(second.linear.weight, whole.linear.weight)


class Weighted(nn.Module):
    """A criterion of the user's own, around class weights."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.CrossEntropyLoss(torch.tensor([1.0, 3.0, 0.3]))

    def forward(self, outputs, targets):
        return self.inner(outputs, targets)


def test_a_measured_weighting_is_resumed_to_the_bit(tmp_path):
    """A window is summed in another order before the criterion is measured than after it."""
    masked = torch.where(torch.arange(32) % 3 == 0, -100, Y)
    options = {"loader": DataLoader(TensorDataset(X, masked), 5), "accum_steps": 3}
    for make in (lambda: lambda outputs, targets: F.cross_entropy(outputs, targets), Weighted):
        expected, _ = fit(None, criterion=make(), resume=None, **options)
        directory = tmp_path / type(make()).__name__
        fit(directory, criterion=make(), kill=2, **options)
        model, _ = fit(directory, criterion=make(), **options)
        assert torch.equal(model.weight, expected.weight)


class Curriculum(Sampler):
    """Counts its epochs by itself: each one starts at another row."""

    def __init__(self) -> None:
        self.passes = 0

    def __iter__(self):
        self.passes += 1
        return iter([(i * (2 * self.passes + 1) + self.passes) % 32 for i in range(32)])

    def __len__(self) -> int:
        return 32


@pytest.mark.parametrize("at", [2, 4, 6, 9])
def test_a_sampler_that_counts_epochs_by_itself_goes_on_counting(tmp_path, at):
    def loader():
        return DataLoader(TensorDataset(X, Y), 8, sampler=Curriculum())

    expected, _ = fit(tmp_path / "whole", loader=loader())
    fit(tmp_path / "cut", loader=loader(), kill=at)
    model, _ = fit(tmp_path / "cut", loader=loader())
    assert torch.equal(model.weight, expected.weight)


CHANGES = {
    "rate": ({"lr": 0.01}, r"optimizer\.lr 0\.1 -> 0\.01"),
    "decay": ({"weight_decay": 0.5}, r"optimizer\.weight_decay 0\.0 -> 0\.5"),
    "clipping": ({"max_norm": 0.5}, r"max_norm None -> 0\.5"),
    "criterion": ({"criterion": nn.CrossEntropyLoss(label_smoothing=0.1)}, "label_smoothing"),
    "data": ({"loader": DataLoader(TensorDataset(X + 1, Y), 8)}, r"data\.hash"),
    "seed": ({"seed": 3}, "seed None -> 3"),
    "batch size": ({"loader": DataLoader(TensorDataset(X, Y), 10)}, "batch_size 8 -> 10"),
    "order": (
        {"loader": DataLoader(TensorDataset(X, Y), 8, shuffle=True)},
        "shuffle False -> True",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_has_changed_is_said_before_anything_moves(tmp_path, name):
    options, says = CHANGES[name]
    fit(tmp_path / "run", epochs=1)
    with pytest.raises(CheckpointError, match=rf"changed since it was written: .*{says}.*accept"):
        fit(tmp_path / "run", epochs=2, **options)
    _, history = fit(tmp_path / "run", epochs=2, on_change="accept", **options)
    assert len(history) == 2


def net(*, activation=nn.ReLU, dropout=0.1, frozen=False):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(6, 6), activation(), nn.Dropout(dropout), nn.Linear(6, 3))
    model[0].weight.requires_grad_(not frozen)
    return model


BATCHES = list(zip(X.split(8), Y.split(8), strict=True))
INSIDE = {
    "activation": ({"model": net(activation=nn.Tanh)}, r"model\.1 ReLU\(\) -> Tanh\(\)"),
    "dropout": ({"model": net(dropout=0.9)}, r"model\.2 Dropout\(p=0\.1.*Dropout\(p=0\.9"),
    "frozen": ({"model": net(frozen=True)}, r"Linear\(.*\) with weight frozen"),
    "average": ({"average": EMA(0.5)}, r"callback\.EMA\.decay 0\.9 -> 0\.5"),
    "validation": ({"val": BATCHES[:2]}, r"validation\.num_examples 32 -> 16, validation\.hash"),
    "batches": ({"batches": [(2 * x, y) for x, y in BATCHES]}, r"data\.hash"),
}


def fit_net(directory, *, model=None, average=None, val=BATCHES, batches=BATCHES, order=range(4),
            epochs=2, **options):  # fmt: skip
    model = model or net()
    parameters = [list(model.parameters())[i] for i in order]
    trainer = Trainer(
        model, nn.CrossEntropyLoss(), Adam(parameters, lr=0.01), run_dir=directory, device="cpu",
        callbacks=[average or EMA(0.9)],
    )  # fmt: skip
    return trainer.fit(batches, val, epochs=epochs, resume="auto", progress=False, **options)


@pytest.mark.parametrize("name", INSIDE)
def test_what_has_changed_in_the_model_the_callbacks_or_the_batches_is_said(tmp_path, name):
    options, says = INSIDE[name]
    fit_net(tmp_path, epochs=1)
    with pytest.raises(CheckpointError, match=f"changed since it was written: .*{says}"):
        fit_net(tmp_path, **options)
    assert len(fit_net(tmp_path, on_change="accept", **options)) == 2


def test_parameters_in_another_order_are_refused_in_any_case(tmp_path):
    fit_net(tmp_path, epochs=1)
    with pytest.raises(CheckpointError, match=r"parameter 0 was 0\.weight there but is 0\.bias"):
        fit_net(tmp_path, order=(1, 0, 2, 3), on_change="accept")
    assert len(fit_net(tmp_path)) == 2


def test_checkpoints_of_earlier_versions_are_still_resumed(tmp_path):
    fit_net(tmp_path, epochs=1)
    state = checkpoint.load(tmp_path / "last.pt")
    for name in ("architecture", "parameters"):
        del state[name]
    for name in list(state["settings"]):
        if name.startswith(("batch_size", "shuffle", "callback.", "validation.")):
            del state["settings"][name]
    state["settings"] |= {"data.num_examples": 4, "data.hash": None}
    for name in ("validation", "weighting", "modules"):
        del state["processes"][0][name]
    checkpoint.save(state, tmp_path / "last.pt")
    assert len(fit_net(tmp_path)) == 2


def test_accepted_settings_are_those_of_the_new_call(tmp_path):
    fit(tmp_path / "run", epochs=1)
    _, history = fit(tmp_path / "run", epochs=2, lr=0.01, on_change="accept")
    assert [line["lr"] for line in history] == [0.1, 0.01]
    with pytest.raises(EngineError, match="expected refuse or accept"):
        fit(tmp_path / "run", epochs=3, on_change="ask")


def test_a_longer_schedule_is_accepted_with_its_length(tmp_path):
    fit(tmp_path / "run", epochs=2, total=8)
    with pytest.raises(CheckpointError, match=r"scheduler\.total 8 -> 12"):
        fit(tmp_path / "run", epochs=3, total=12)
    _, history = fit(tmp_path / "run", epochs=3, total=12, on_change="accept")
    _, fresh = fit(tmp_path / "fresh", epochs=3, total=12)
    assert history[-1]["lr"] == fresh[-1]["lr"]


def test_more_epochs_are_no_change(tmp_path):
    fit(tmp_path / "run", epochs=1)
    _, history = fit(tmp_path / "run", epochs=2)
    _, whole = fit(tmp_path / "whole", epochs=2)
    assert [line["train_loss"] for line in history] == [line["train_loss"] for line in whole]


def test_a_callback_forgets_its_last_run():
    stopping, lengths = EarlyStopping(patience=2), []
    for lr in (0.5, 1e-3):
        model = nn.Linear(6, 3)
        trainer = Trainer(
            model, nn.CrossEntropyLoss(), SGD(model.parameters(), lr=lr), callbacks=[stopping]
        )
        loader = DataLoader(TensorDataset(X, Y), 8)
        lengths.append(len(trainer.fit(loader, loader, epochs=6, progress=False)))
    assert lengths == [6, 6]


def test_one_flipped_bit_is_noticed(tmp_path):
    path = tmp_path / "last.pt"
    state = {"weights": torch.randn(500), "name": "run", "numbers": [1, 2.5]}
    checkpoint.save(state, path)
    whole = path.read_bytes()
    generator = torch.Generator().manual_seed(0)
    noticed = 0
    for _ in range(200):
        at, bit = (int(torch.randint(n, (), generator=generator)) for n in (len(whole), 8))
        damaged = bytearray(whole)
        damaged[at] ^= 1 << bit
        path.write_bytes(bytes(damaged))
        try:
            loaded = checkpoint.load(path)
        except CheckpointError:
            noticed += 1
        else:  # in the padding, or a date: nothing that is read
            assert torch.equal(loaded["weights"], state["weights"])
            assert (loaded["name"], loaded["numbers"]) == ("run", [1, 2.5])
    assert noticed > 100


def test_a_full_disk_is_said_and_leaves_no_part_of_a_file(tmp_path, monkeypatch):
    path = tmp_path / "last.pt"
    checkpoint.save({"weights": torch.zeros(3)}, path)

    def full(_descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CheckpointError, match=r"No space left on device.*Free some disk space"):
        checkpoint.save({"weights": torch.ones(3)}, path)
    assert [file.name for file in tmp_path.iterdir()] == ["last.pt"]
    assert checkpoint.load(path)["weights"].tolist() == [0, 0, 0]
    with pytest.raises(CheckpointError, match="No space left"):  # before the first update
        fit(tmp_path / "run", resume=None)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"settings": '])
def test_a_broken_record_does_not_block_a_resume(tmp_path, text):
    fit(tmp_path / "run", epochs=1)
    (tmp_path / "run" / "run.json").write_text(text)
    with pytest.warns(UserWarning, match=r"run\.json\.broken"):
        _, history = fit(tmp_path / "run", epochs=2)
    assert len(history) == 2


def test_nothing_is_written_where_the_run_cannot_work(tmp_path):
    with pytest.raises(EngineError, match="no such number"):
        trainer, loader = _trainer(tmp_path / "run"), DataLoader(TensorDataset(X, Y), 8)
        trainer.fit(loader, loader, epochs=1, monitor="val_acc")
    assert not (tmp_path / "run").exists()


def _trainer(directory):
    model = nn.Linear(6, 3)
    return Trainer(model, nn.CrossEntropyLoss(), SGD(model.parameters(), lr=0.1), run_dir=directory)


class Counting(nn.Module):
    """Scales its outputs by how often it was called: a plain number and an unsaved buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm, self.calls = nn.Linear(6, 3), nn.BatchNorm1d(3), 0
        self.linear.weight.requires_grad_(False)
        self.register_buffer("scale", torch.ones(()), persistent=False)

    def forward(self, inputs):
        if self.training:
            self.calls += 1
            self.scale *= 1.01
        return self.norm(self.linear(inputs)) * self.scale + 0.01 * self.calls


class Thaw(Callback):
    """In epoch 2 the weights are trained from then on, and the BatchNorm is frozen."""

    def on_epoch_start(self, trainer):
        if trainer.progress.epoch == 2:
            trainer.model.linear.weight.requires_grad_(True)
            trainer.model.norm.eval()


def test_what_a_model_holds_outside_its_state_dict_comes_back(tmp_path):
    def train(directory, epochs, model=None):
        torch.manual_seed(1)
        model = model or Counting()
        trainer = Trainer(
            model, nn.CrossEntropyLoss(), SGD(model.parameters(), lr=0.1), device="cpu",
            callbacks=[Thaw()], run_dir=directory,
        )  # fmt: skip
        batches = [(X[:16], Y[:16]), (X[16:], Y[16:])]
        trainer.fit(batches, epochs=epochs, resume="auto", progress=False)
        return model

    expected = train(None, 5)
    same_process = train(tmp_path / "run", 3)
    train(tmp_path / "run", 4, same_process)
    model = train(tmp_path / "run", 5)  # and a new process
    assert torch.equal(model.linear.weight, expected.linear.weight)
    assert torch.equal(model.scale, expected.scale) and model.calls == expected.calls == 10
    assert model.linear.weight.requires_grad and model.training and not model.norm.training


class Stop(Callback):
    """A time limit, say."""

    def on_update_end(self, trainer):
        if trainer.progress.update == 5:
            trainer.stop(None)


def test_a_stopped_run_stays_stopped_and_says_how_to_continue_it(tmp_path):
    def train(directory, callbacks, **options):
        torch.manual_seed(1)
        model, batches = nn.Linear(6, 3), list(zip(X.split(8), Y.split(8), strict=True))
        optimizer = SGD(model.parameters(), lr=0.1, momentum=0.9)
        trainer = Trainer(
            model, nn.CrossEntropyLoss(), optimizer, callbacks=callbacks, run_dir=directory
        )
        trainer.fit(batches, epochs=3, resume="auto", progress=False, **options)
        return model, trainer.progress

    expected, _ = train(None, [])
    _, progress = train(tmp_path / "run", [Stop()])
    assert progress.stopped == "no reason was given"
    with pytest.warns(UserWarning, match=r"stopped after update 5 .*on_change='accept'"):
        _, progress = train(tmp_path / "run", [])
    assert progress.update == 5
    model, progress = train(tmp_path / "run", [], on_change="accept")
    assert progress.update == 12 and progress.stopped is None
    assert torch.equal(model.weight, expected.weight)


class Growing(Dataset):
    """More rows in each epoch, as its callback says: by a number, or in a list."""

    def __init__(self, num: int, *, listed: bool) -> None:
        self.num = None if listed else num
        self.rows = list(range(num)) if listed else None

    def __len__(self) -> int:
        return len(self.rows) if self.num is None else self.num

    def __getitem__(self, index: int):
        return X[index], Y[index]

    def grow(self) -> None:
        if self.num is None:
            self.rows += [len(self.rows), len(self.rows) + 1]
        else:
            self.num += 2


class Grow(Callback):
    def on_epoch_end(self, trainer):
        trainer.batches.loader.dataset.grow()


def fit_growing(directory, epochs, *, num=8, listed=False, **options):
    torch.manual_seed(1)
    model, loader = nn.Linear(6, 3), DataLoader(Growing(num, listed=listed), 4, shuffle=True)
    trainer = Trainer(
        model, nn.CrossEntropyLoss(), SGD(model.parameters(), lr=0.1), run_dir=directory, seed=1,
        callbacks=[Grow()],
    )  # fmt: skip
    trainer.fit(loader, epochs=epochs, resume="auto", progress=False, **options)
    return model.weight


def test_a_data_set_that_grows_is_resumed(tmp_path):
    expected = fit_growing(None, 4)
    fit_growing(tmp_path / "counted", 3)
    assert torch.equal(fit_growing(tmp_path / "counted", 4), expected)
    fit_growing(tmp_path / "listed", 3, listed=True)
    with pytest.raises(CheckpointError, match=r"was 4 there but is 2 here.*on_change='accept'"):
        fit_growing(tmp_path / "listed", 4, listed=True)
    resumed = fit_growing(tmp_path / "listed", 4, num=14, listed=True, on_change="accept")
    assert torch.equal(resumed, expected)


class Adds(Callback):
    """A second group of parameters from epoch 2 on."""

    def on_epoch_start(self, trainer):
        if trainer.progress.epoch == 2 and len(trainer.optimizer.param_groups) == 1:
            trainer.optimizer.add_param_group({"params": [trainer.model[3].weight], "lr": 0.001})


def fit_adding(directory, epochs, *, before=False):
    model = net(dropout=0.0)
    optimizer = Adam([model[0].weight], lr=0.01)
    if before:
        optimizer.add_param_group({"params": [model[3].weight], "lr": 0.001})
    trainer = Trainer(
        model.requires_grad_(True), nn.CrossEntropyLoss(), optimizer, run_dir=directory,
        callbacks=[Adds()],
    )  # fmt: skip
    trainer.fit(BATCHES, epochs=epochs, resume="auto", progress=False)
    return model[3].weight


@pytest.mark.filterwarnings("ignore:.*trainable parameters are not in the optimizer")
def test_parameter_groups_that_a_callback_adds_are_added_before_a_resume(tmp_path):
    expected = fit_adding(None, 4)
    fit_adding(tmp_path / "run", 3)
    with pytest.raises(CheckpointError, match="that a callback adds during the run are"):
        fit_adding(tmp_path / "run", 4)
    assert torch.equal(fit_adding(tmp_path / "run", 4, before=True), expected)
