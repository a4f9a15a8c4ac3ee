"""EMA and SWA: torch's own averages, known to validation, the best checkpoint and resume."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import nn
from torch.optim import SGD
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from course.engine import EMA, SWA, Callback, EngineError, KeepBest, Trainer, load_weights

X = torch.randn(24, 4, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()
BATCHES = list(zip(X.split(8), Y.split(8), strict=True))
CRITERION = nn.CrossEntropyLoss()


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 2))


class Kill(Callback):
    def on_update_end(self, trainer):
        if trainer.progress.update == 5:
            raise KeyboardInterrupt


def fit(average, directory=None, *, more=(), resume=None, epochs=4):
    model = make_model()
    trainer = Trainer(
        model, CRITERION, SGD(model.parameters(), lr=0.5), device="cpu",
        callbacks=[average, *more], run_dir=directory,
    )  # fmt: skip
    history = trainer.fit(
        BATCHES, BATCHES, epochs=epochs, resume=resume, checkpoint_every=1, progress=False
    )
    return model, history


def by_hand(make, *, each_update: bool, start: int = 1, epochs: int = 4):
    model, losses = make_model(), []
    averaged, optimizer = make(model), SGD(model.parameters(), lr=0.5)
    for epoch in range(1, epochs + 1):
        model.train()
        for inputs, targets in BATCHES:
            optimizer.zero_grad()
            CRITERION(model(inputs), targets).backward()
            optimizer.step()
            if each_update:
                averaged.update_parameters(model)
        if not each_update and epoch >= start:
            averaged.update_parameters(model)
        judged = averaged.module if each_update or epoch >= start else model
        judged.eval()
        with torch.no_grad():
            losses.append(CRITERION(judged(X), Y).item())
    return averaged.module, losses


KINDS = {
    "EMA": (
        lambda: EMA(decay=0.7),
        lambda: by_hand(
            lambda m: AveragedModel(m, multi_avg_fn=get_ema_multi_avg_fn(0.7), use_buffers=True),
            each_update=True,
        ),
    ),
    "SWA": (
        lambda: SWA(start=2),
        lambda: by_hand(lambda m: AveragedModel(m, use_buffers=True), each_update=False, start=2),
    ),
}


def assert_same(ours: nn.Module, theirs: nn.Module) -> None:
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(ours.state_dict()[name], tensor), name


@pytest.mark.parametrize("kind", KINDS)
def test_the_average_is_torchs_and_validation_takes_it(kind):
    make, hand = KINDS[kind]
    average = make()
    _, history = fit(average)
    theirs, losses = hand()
    assert_same(average.model, theirs)
    assert [line["val_loss"] for line in history] == pytest.approx(losses, rel=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_run_goes_on_with_its_average(kind, tmp_path):
    make, hand = KINDS[kind]
    with pytest.raises(KeyboardInterrupt):
        fit(make(), tmp_path / "run", more=[Kill()])
    average = make()
    _, history = fit(average, tmp_path / "run", resume="auto")
    assert_same(average.model, hand()[0])
    best = make_model()
    load_weights(best, tmp_path / "run" / "best.pt")
    best.eval()
    assert CRITERION(best(X), Y).item() == pytest.approx(history.best["val_loss"], rel=1e-5)


def test_a_new_run_starts_a_new_average():
    average = EMA(decay=0.9)
    fit(average)
    first = {name: tensor.clone() for name, tensor in average.model.state_dict().items()}
    fit(average)
    assert all(torch.equal(average.model.state_dict()[name], first[name]) for name in first)


def test_settings_that_average_nothing_are_refused():
    with pytest.raises(EngineError, match="decay = 'a': expected a number"):
        EMA("a")
    with pytest.raises(EngineError, match=r"decay = 1\.5"):
        EMA(decay=1.5)
    with pytest.raises(EngineError, match="expected an epoch, counted from 1"):
        SWA(start=0)


def test_a_callback_that_holds_some_other_model_does_not_replace_the_judged_one(tmp_path):
    """Distillation: the teacher is neither validated nor saved as the best model."""

    class Distillation(Callback):
        def __init__(self) -> None:
            self.model = make_model().requires_grad_(False)

        def on_epoch_end(self, trainer):
            pass

    plain, expected = fit(Distillation.__new__(Distillation), epochs=2)  # no teacher yet
    model, history = fit(Distillation(), tmp_path / "run", epochs=2)
    assert history.column("val_loss") == expected.column("val_loss")
    best = make_model()
    load_weights(best, tmp_path / "run" / "best.pt")
    assert torch.equal(best[0].weight, model[0].weight)
    assert torch.equal(model[0].weight, plain[0].weight)


class Annealed(nn.Module):
    """Its outputs depend on a plain number and a plain tensor, which change during the run."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.alpha, self.mean = nn.Linear(4, 2), 0.0, torch.zeros(4)
        self.draw = torch.Generator().manual_seed(0)

    def forward(self, inputs):
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * inputs.mean(0)
        noise = torch.rand(1, generator=self.draw)
        return self.linear(inputs - self.mean) * (self.alpha + noise)


class Anneal(Callback):
    def on_epoch_start(self, trainer):
        trainer.model.alpha = float(trainer.progress.epoch)


@pytest.mark.parametrize("average", [lambda: EMA(0.5), lambda: SWA(2)], ids=["EMA", "SWA"])
def test_what_is_not_averaged_is_as_in_the_trained_model_also_in_a_resumed_run(average, tmp_path):
    def fit(directory, average, epochs=4, resume=None):
        torch.manual_seed(0)
        model = Annealed()
        trainer = Trainer(
            model, CRITERION, SGD(model.parameters(), lr=0.5), device="cpu",
            callbacks=[Anneal(), average], run_dir=directory,
        )  # fmt: skip
        history = trainer.fit(BATCHES, BATCHES, epochs=epochs, resume=resume, progress=False)
        assert average.model.alpha == model.alpha == 4.0 or epochs < 4
        assert epochs < 4 or torch.equal(average.model.mean, model.mean)
        return history.column("val_loss")

    expected = fit(None, average())
    fit(tmp_path / "run", average(), epochs=2)
    assert fit(tmp_path / "run", average(), resume="auto") == expected


class WithExtra(nn.Linear):
    """Its state_dict also holds what is no tensor."""

    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.extra = {"scale": 1.0}

    def get_extra_state(self):
        return self.extra

    def set_extra_state(self, state):
        self.extra = state


def of_model(model, *callbacks):
    optimizer = SGD(model.parameters(), lr=0.1)
    return Trainer(model, CRITERION, optimizer, callbacks=callbacks, device="cpu")


@pytest.mark.parametrize(
    "callback", [KeepBest, EMA, lambda: SWA(1)], ids=["KeepBest", "EMA", "SWA"]
)
def test_a_state_of_more_than_tensors_is_kept_and_averaged(callback):
    callback = callback()
    trainer = of_model(WithExtra(4, 2), callback)
    trainer.fit(BATCHES, epochs=2)
    if isinstance(callback, KeepBest):
        trainer.model.extra = {"scale": 2.0}
        callback.restore(trainer)
        assert trainer.model.extra == {"scale": 1.0}


@pytest.mark.filterwarnings("ignore:.*weight_norm.*deprecated")
def test_what_cannot_be_copied_after_an_epoch_is_said_before_the_first_update():
    model = nn.utils.weight_norm(nn.Linear(4, 2))
    with pytest.raises(
        EngineError, match=r"SWA averages into a copy.*parametrizations.weight_norm"
    ):
        of_model(model, SWA(2)).fit(BATCHES, epochs=3)
    model = WithExtra(4, 2)
    model.extra = {"lock": threading.Lock()}
    with pytest.raises(EngineError, match=r"KeepBest copies.*get_extra_state"):
        of_model(model, KeepBest()).fit(BATCHES, epochs=3)
