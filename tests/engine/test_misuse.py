"""Misuse ends in one clear sentence, before a weight moves: value seen, what was expected, next."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import LBFGS, SGD
from torch.optim.lr_scheduler import CosineAnnealingLR, ReduceLROnPlateau, StepLR
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from course.engine import (
    SWA,
    Callback,
    CheckpointError,
    EarlyStopping,
    EngineError,
    Loss,
    Trainer,
    evaluate,
    read_runs,
    train_one_epoch,
    train_step,
)
from course.lr_finder import lr_find

X = torch.randn(16, 6, generator=torch.Generator().manual_seed(0))
Y = torch.arange(16) % 3
CE = nn.CrossEntropyLoss()


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(6, 3)


def loader(x=X, y=Y, **options):
    return DataLoader(TensorDataset(x, y), 8, **options)


def trainer(criterion=CE, optimizer=None, net=None, **options) -> Trainer:
    net = net or model()
    optimizer = optimizer or SGD(net.parameters(), lr=0.1)
    return Trainer(net, criterion, optimizer, device="cpu", **options)


def fit(data=None, val=None, *, epochs=1, make=None, **options):
    """Fit with these options; those of the trainer in `make`."""
    options = {"epochs": epochs, "progress": False, **options}
    return trainer(**(make or {})).fit(loader() if data is None else data, val, **options)


def scheduled(make):
    net = model()
    optimizer = SGD(net.parameters(), lr=0.1)
    return {"net": net, "optimizer": optimizer, "scheduler": make(optimizer)}


class Misspelt(Callback):
    def on_epoch_ends(self, trainer):
        raise AssertionError


class NoArguments(Callback):
    def on_epoch_end(self):
        raise AssertionError


class Broken(nn.Module):
    def forward(self, outputs, targets):
        raise ValueError("this metric is broken")


def triple(batch):
    return [torch.stack(part) for part in zip(*[(x, y, y) for x, y in batch], strict=True)]


MISUSE = {
    # Batches
    "single examples": (
        lambda: fit(list(zip(X, Y, strict=True))), "single examples, not batches. Make batches"),
    "single rows of numbers": (
        lambda: fit(list(zip(X, X[:, 0], strict=True)), make={"criterion": nn.MSELoss()}),
        "single examples, not batches"),
    "arrays": (lambda: fit([(X.numpy(), Y.numpy())]), "targets are a ndarray, expected a tensor"),
    # Model, criterion, optimizer
    "swapped": (lambda: Trainer(model(), SGD(model().parameters(), lr=0.1), CE),
                "optimizer is a CrossEntropyLoss"),
    "model class": (lambda: Trainer(nn.ReLU, CE, SGD(model().parameters(), lr=0.1)),
                    r"model is the class ReLU. Create an instance: ReLU\(\)"),
    "model function": (lambda: Trainer(lambda x: x, CE, SGD(model().parameters(), lr=0.1)),
                       "model is a function, expected an nn.Module"),
    "criterion class": (lambda: trainer(nn.CrossEntropyLoss), "criterion is the class"),
    "criterion by name": (lambda: trainer("mse"), "criterion = 'mse': it cannot be called"),
    "no criterion": (lambda: trainer(None), "neither criterion nor loss_of"),
    "criterion and loss_of": (lambda: trainer(loss_of=lambda m, b: 0), "both given"),
    "loss_of in third place": (lambda: Trainer(model(), SGD(model().parameters(), lr=0.1),
                                               loss_of=lambda m, b: 0), "there is no optimizer"),
    "optimizer class": (lambda: trainer(optimizer=SGD), "optimizer is the class SGD"),
    "no optimizer": (lambda: Trainer(model(), CE), "there is no optimizer"),
    "two optimizers": (lambda: trainer(optimizer=[SGD(model().parameters(), lr=0.1)] * 2),
                       "optimizer is a list of 2"),
    "LBFGS": (lambda: trainer(optimizer=LBFGS(model().parameters())), "needs a closure"),
    "scheduler class": (lambda: trainer(scheduler=StepLR), "scheduler = .*built with"),
    "schedule in a wrong unit": (lambda: trainer(schedule_per="batch"), "schedule_per = 'batch'"),
    "plateau without a metric": (
        lambda: trainer(**scheduled(ReduceLROnPlateau)), "needs a metric"),
    "a cosine of another length": (
        lambda: fit(epochs=3, make=scheduled(lambda o: CosineAnnealingLR(o, 2))),
        "2 steps long.*check_schedule=False"),
    # Settings
    "accum_steps as text": (lambda: trainer(accum_steps="2"), "accum_steps = '2'"),
    "accum_steps 0": (lambda: trainer(accum_steps=0), "accum_steps = 0"),
    "max_norm as text": (lambda: trainer(max_norm="1"), "max_norm = '1'"),
    "max_norm True": (lambda: trainer(max_norm=True), "max_norm = True"),
    "precision": (lambda: trainer(precision="float16"), "expected fp32, bf16 or fp16"),
    "seed as text": (lambda: trainer(seed="a"), "seed = 'a'"),
    "seed below 0": (lambda: trainer(seed=-1), "seed = -1"),
    "run_dir a number": (lambda: trainer(run_dir=3), "run_dir = 3"),
    "one callback": (lambda: trainer(callbacks=EarlyStopping()), "expected a list"),
    "callback class": (lambda: trainer(callbacks=[EarlyStopping]), "EarlyStopping is a class"),
    "a function as callback": (lambda: trainer(callbacks=[print]), "has none of the hooks"),
    "a misspelt hook": (lambda: trainer(callbacks=[Misspelt()]), "Is on_epoch_end meant"),
    "a hook without the trainer": (lambda: trainer(callbacks=[NoArguments()]),
                                   r"on_epoch_end is called with \(trainer\)"),
    "patience below 0": (lambda: EarlyStopping(patience=-1), "patience = -1"),
    "patience as text": (lambda: EarlyStopping(patience="3"), "patience = '3'"),
    # fit
    "epochs as text": (lambda: fit(epochs="3"), "epochs = '3': expected a whole number"),
    "half an epoch": (lambda: fit(epochs=1.5), "epochs = 1.5: expected a whole number"),
    "epochs True": (lambda: fit(epochs=True), "epochs = True"),
    "no epochs": (lambda: fit(epochs=None), "would never end"),
    "log_every 0": (lambda: fit(log_every=0), "log_every = 0"),
    "log_every None": (lambda: fit(log_every=None), "log_every = None"),
    "on_nonfinite": (lambda: fit(on_nonfinite="ignore"), "on_nonfinite = 'ignore'"),
    "on_change": (lambda: fit(on_change="yes"), "on_change = 'yes'"),
    "metrics as a list": (lambda: fit(metrics=["accuracy"]), r"metrics = \['accuracy'\]"),
    "metric class": (lambda: fit(val=loader(), metrics={"m": nn.L1Loss}), "metric 'm' is"),
    "metric called loss": (lambda: fit(val=loader(), metrics={"loss": nn.L1Loss()}),
                           "would overwrite the loss"),
    "monitor a function": (lambda: fit(monitor=max), "monitor = "),
    "monitor without val_loader": (lambda: fit(monitor="val_loss"), "Pass in a val_loader"),
    "monitor misspelt": (lambda: fit(val=loader(), monitor="val_acc"), "an epoch has .*accuracy"),
    "monitor without direction": (
        lambda: fit(val=loader(), monitor="val_joy", metrics={"joy": lambda o, t: o.sum(1)}),
        "lower or a higher value better"),
    "mode": (lambda: fit(val=loader(), mode="best"), "mode = 'best'"),
    "early stopping on nothing": (
        lambda: fit(val=loader(), make={"callbacks": [EarlyStopping(monitor="val_f1")]}),
        "EarlyStopping: no 'val_f1'"),
    # Data
    "a data set": (lambda: fit(TensorDataset(X, Y)), r"Make batches of it: DataLoader\(train_set"),
    "a data set for validation": (lambda: fit(val=TensorDataset(X, Y)), "val_loader is a data set"),
    "a tensor": (lambda: fit(X), "train_loader is a Tensor"),
    "a text": (lambda: fit("train"), "train_loader is a str"),
    "a number": (lambda: fit(3), "train_loader is a int, which yields no batches"),
    "a loader class": (lambda: fit(DataLoader), "train_loader is a DataLoader, expected"),
    "an iterator for two epochs": (lambda: fit(iter(loader()), epochs=2), "can be read only once"),
    "no batch": (lambda: fit([]), "the training loader yields no batch"),
    "no batch for validation": (lambda: fit(val=[]), "the validation loader yields no batch"),
    "triples": (lambda: fit(loader(collate_fn=triple)), "a list of 3, expected a pair.*loss_of="),
    "no targets": (lambda: fit([(X, None)], make={"criterion": lambda o, t: o.mean()}),
                   "targets are None"),
    "targets without a tensor": (lambda: fit([(X, {})], make={"criterion": lambda o, t: o.mean()}),
                                 "hold no tensor"),
    "one-hot, whole numbers": (lambda: fit([(X, F.one_hot(Y))]), "One-hot"),
    "targets of float": (lambda: fit([(X, Y.float())]), "class indices must be whole numbers"),
    "a class too many": (lambda: fit([(X, Y + 1)]), "labels run from 1 to 3"),
    "targets with a dimension more": (lambda: fit([(X, Y[:, None])]), "Try targets.squeeze"),
    "[B, 3] against [B]": (lambda: fit([(X, Y.float())], make={"criterion": nn.MSELoss()}),
                           "broadcast, and each output compared with every target"),
    "[B, 1] against [B] in evaluate": (
        lambda: evaluate(nn.Linear(6, 1), [(X, Y.float())], nn.MSELoss()),
        "broadcast, and each output"),
    "[B, 1] against [B] in a function": (
        lambda: evaluate(nn.Linear(6, 1), [(X, Y.float())], lambda o, t: F.mse_loss(o, t)),
        r"\[16, 1\] and targets \[16\]"),
    "one loss per example": (lambda: fit(make={"criterion": nn.CrossEntropyLoss(reduction="none")}),
                             "reduction='none'"),
    "a loss without a graph": (lambda: fit(make={"criterion": lambda o, t: o.detach().mean()}),
                               "the loss has no graph"),
    "a loss as a number": (lambda: fit(make={"criterion": lambda o, t: 1.0}), "returned float"),
    # Other doors
    "evaluate without a criterion": (lambda: evaluate(model(), loader()), "neither criterion nor"),
    "a step without an optimizer": (lambda: train_step(model(), [(X, Y)], CE), "no optimizer"),
    "a step without a batch": (
        lambda: train_step(model(), [], CE, SGD(model().parameters(), lr=0.1)), "no micro-batches"),
    "an epoch without a batch": (
        lambda: train_one_epoch(model(), [], CE, SGD(model().parameters(), lr=0.1)), "no batch"),
    "a finder over a data set": (
        lambda: lr_find(model(), CE, SGD(model().parameters(), lr=0.1), TensorDataset(X, Y)),
        "loader is a data set"),
    "a finder without a loss": (
        lambda: lr_find(model(), optimizer=SGD(model().parameters(), lr=0.1), loader=loader()),
        "neither criterion nor loss_of"),
    "a finder with a class": (
        lambda: lr_find(model(), CE, SGD, loader()), "optimizer is the class SGD"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISUSE)
def test_misuse_ends_in_a_sentence(name):
    misuse, says = MISUSE[name]
    with pytest.raises(ValueError, match=says) as caught:
        misuse()
    assert isinstance(caught.value, EngineError)
    text = str(caught.value)
    assert text.endswith((".", "?")) and len(text) < 600
    assert re.search(r"[A-Z]\w+ |:|\?", text), "what to do next is missing"


class Stream(IterableDataset):
    def __iter__(self):
        return iter([(X[i], Y[i]) for i in range(8)])


SOUND = {
    "a stream for validation": lambda: fit(val=DataLoader(Stream(), 4)),
    "labels that are never drawn": lambda: fit(
        loader(y=torch.where(torch.arange(16) < 8, Y, -1),
               sampler=torch.utils.data.SubsetRandomSampler(range(8)))),
    "texts first in the targets": lambda: fit(
        DataLoader([(X[i], {"id": f"row{i}", "y": Y[i]}) for i in range(16)], 4),
        make={"criterion": lambda o, t: F.cross_entropy(o, t["y"])}),
    "a cosine that is meant to rise again": lambda: fit(
        epochs=3, make=scheduled(lambda o: CosineAnnealingLR(o, 1)) | {"check_schedule": False}),
    "numbers of NumPy": lambda: fit(epochs=np.int64(1), make={"accum_steps": np.int64(2)}),
    "an accuracy to watch": lambda: fit(val=loader(), monitor="val_accuracy"),
    "a schedule that looks at accuracy": lambda: fit(
        val=loader(), monitor="val_accuracy", make=scheduled(
            lambda o: ReduceLROnPlateau(o, mode="max")) | {"schedule_per": "metric"}),
    "an iterator for one epoch": lambda: fit(iter(loader())),
    "a loss alone": lambda: Trainer(
        net := model(), optimizer=SGD(net.parameters(), lr=0.1),
        loss_of=lambda m, batch: CE(m(batch[0]), batch[1])).fit(loader(), loader(), epochs=1),
    "a finder over dictionaries": lambda: lr_find(
        net := model(), optimizer=SGD(net.parameters(), lr=0.1), loader=[{"x": X, "y": Y}],
        loss_of=lambda m, row: Loss(CE(m(row["x"]), row["y"])), rule="decade", steps=20),
}  # fmt: skip


@pytest.mark.parametrize("name", SOUND)
def test_what_is_sound_is_not_refused(name):
    assert SOUND[name]() is not None


def test_a_metric_that_fails_does_so_before_the_first_update():
    net = model()
    before = net.weight.detach().clone()
    with pytest.raises(ValueError, match="this metric is broken") as caught:
        trainer(net=net).fit(loader(), loader(), epochs=1, metrics={"m": Broken()})
    assert "tried before the first update" in "".join(caught.value.__notes__)
    assert torch.equal(net.weight, before)


def test_a_direction_that_contradicts_the_name_is_warned_of():
    with pytest.warns(UserWarning, match="keeps the worst epoch"):
        fit(val=loader(), monitor="val_accuracy", mode="min")


def test_the_direction_comes_from_the_name():
    history = fit(val=loader(), monitor="val_accuracy", epochs=5)
    assert history.best["val_accuracy"] == max(history.column("val_accuracy"))


class OwnCheck(Callback):
    def check(self):
        return True

    def on_epoch_end(self, trainer):
        self.check()


class OwnReset(Callback):
    def reset(self, num):
        self.num = num

    def on_epoch_end(self, trainer):
        pass


class OnlyState(Callback):
    def state_dict(self):
        return {}

    def on_epoch_end(self, trainer):
        pass


@pytest.mark.parametrize(
    ("callback", "says"),
    [
        (OwnCheck(), r"check is called with \(trainer, names\).*or give it another name"),
        (OwnReset(), r"reset is called with \(\).*Write def reset\(self\), or"),
        (OnlyState(), r"has state_dict but no load_state_dict.*def load_state_dict\(self, state\)"),
    ],
)
def test_methods_that_are_called_by_chance_are_said_when_the_trainer_is_made(callback, says):
    with pytest.raises(EngineError, match=says):
        trainer(callbacks=[callback])


class OwnError(EngineError):
    def __init__(self, what, number):
        super().__init__(f"{what} {number}")


def test_an_error_of_a_class_of_ones_own_arrives_with_its_place():
    def loss_of(model, batch):
        raise OwnError("mine", 2)

    net = model()
    run = Trainer(net, optimizer=SGD(net.parameters(), lr=0.1), loss_of=loss_of, device="cpu")
    with pytest.raises(OwnError, match="mine 2") as caught:
        run.fit(loader(), epochs=1, progress=False)
    assert "epoch 1, batch 0" in caught.value.__notes__[0]


@pytest.mark.parametrize("resume", [True, 3])
def test_resume_is_a_path(resume):
    with pytest.raises(CheckpointError, match=rf"resume = {resume}: .* use resume='auto'"):
        fit(resume=resume)


def test_what_would_pass_in_silence_is_said():
    nan = loader(torch.full_like(X, torch.nan))
    with pytest.warns(
        UserWarning, match="epoch 1: val_loss is nan, so it cannot be the best"
    ) as seen:
        fit(val=nan, epochs=3)
    assert sum("val_loss is nan" in str(warning.message) for warning in seen) == 1
    with pytest.warns(UserWarning, match=r"SWA\(start=50\) in a run of 1 epochs averages nothing"):
        fit(make={"callbacks": [SWA(50)]})
    with pytest.raises(EngineError, match="/nope: no such directory"):
        read_runs("/nope")
