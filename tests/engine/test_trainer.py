"""The trainer: the same run as a hand-written loop, and bad input refused before it can do harm."""

from __future__ import annotations

import json
import math
import os
import signal
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam
from torch.utils.data import DataLoader, Dataset, TensorDataset

import course.engine.step as step
from course.data import load
from course.data.workers import WorkerDiedError
from course.engine import (
    Callback,
    EngineError,
    History,
    Loss,
    NonFiniteError,
    TensorBoard,
    Trainer,
    evaluate,
    grad_norm,
    train_one_epoch,
    train_step,
)
from course.engine.callbacks import HOOKS


def make_model(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


def make_loader(num: int = 12, batch_size: int = 4, **changes) -> DataLoader:
    generator = torch.Generator().manual_seed(1)
    inputs = changes.get("inputs", torch.randn(num, 4, generator=generator))
    targets = changes.get("targets", torch.randint(0, 3, (num,), generator=generator))
    return DataLoader(TensorDataset(inputs, targets), batch_size)


def make_trainer(model=None, criterion=None, optimizer=None, **options) -> Trainer:
    model = model or make_model()
    return Trainer(
        model,
        criterion or nn.CrossEntropyLoss(),
        optimizer or SGD(model.parameters(), lr=0.1),
        **{"device": "cpu", **options},
    )


def weights_of(model: nn.Module) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in model.parameters()]


def assert_untouched(model: nn.Module, before: list[torch.Tensor]) -> None:
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), before, strict=True))


# The loop


def test_a_run_is_that_of_a_loop_written_by_hand(device):
    """Three epochs with Adam, clipping and validation, against plain torch, bit for bit."""
    loader, criterion = make_loader(14), nn.CrossEntropyLoss()
    model, plain = make_model().to(device), make_model().to(device)
    trainer = make_trainer(model, criterion, Adam(model.parameters()), max_norm=0.5, device=device)
    history = trainer.fit(loader, loader, epochs=3)

    optimizer = Adam(plain.parameters())
    for epoch in range(3):
        total = 0.0
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = criterion(plain(inputs.to(device)), targets.to(device))
            loss.backward()
            nn.utils.clip_grad_norm_(plain.parameters(), 0.5)
            optimizer.step()
            total += loss.item() * len(targets)
        assert history[epoch]["train_loss"] == pytest.approx(total / 14, rel=1e-12)
    assert_untouched(model, weights_of(plain))
    assert history[-1]["val_loss"] == evaluate(plain, loader, criterion)["loss"]


def test_digits_are_learned():
    data = load("digits")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    trainer = make_trainer(model, optimizer=Adam(model.parameters(), lr=3e-3), seed=0)
    history = trainer.fit(*data.loaders(64), epochs=12)
    assert history.best["val_accuracy"] > 0.95


def test_one_epoch_is_the_mean_loss_per_example():
    model, plain = make_model(), make_model()
    loader = make_loader(10)
    mean = train_one_epoch(model, loader, nn.CrossEntropyLoss(), SGD(model.parameters(), lr=1e-12))
    with torch.no_grad():
        inputs, targets = loader.dataset.tensors
        expected = nn.functional.cross_entropy(plain(inputs), targets).item()
    assert mean == pytest.approx(expected, rel=1e-6)


def test_train_mode_is_entered_and_frozen_layers_stay_frozen():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    model.eval()
    make_trainer(model).fit(make_loader(), epochs=1)
    assert model.training and model[1].training
    model[1].eval()
    before = model[1].running_mean.clone()
    make_trainer(model).fit(make_loader(), make_loader(), epochs=2)
    assert not model[1].training and torch.equal(model[1].running_mean, before)


def test_max_updates_ends_a_run_inside_an_epoch():
    history = make_trainer().fit(make_loader(), make_loader(), max_updates=5)
    assert [(line["epoch"], line["updates"]) for line in history] == [(1, 3), (2, 5)]


def test_an_iterable_without_a_length():
    class Stream:
        def __iter__(self):
            return iter(make_loader())

    history = make_trainer().fit(Stream(), epochs=2)
    assert history.column("updates") == [3, 6]


def test_compiling_keeps_the_plain_names(tmp_path):
    model = make_model()
    trainer = make_trainer(model, compile=False, run_dir=tmp_path / "run")
    trainer.forward = torch.compile(model, backend="eager")
    trainer.fit(make_loader(), epochs=1)
    saved = torch.load(tmp_path / "run" / "best.pt", weights_only=True)
    assert list(saved["model"]) == list(make_model().state_dict())


def test_the_same_seed_gives_the_same_run():
    def run(seed):
        model = make_model()
        loader = DataLoader(make_loader().dataset, 4, shuffle=True)
        make_trainer(model, seed=seed).fit(loader, epochs=2)
        return weights_of(model)

    assert_untouched_lists(run(3), run(3))
    assert not all(torch.equal(a, b) for a, b in zip(run(3), run(4), strict=True))


def assert_untouched_lists(one, two) -> None:
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


# Callbacks, bar, logs


class Recorder(Callback):
    def __init__(self) -> None:
        self.calls = []


for name in HOOKS:
    setattr(Recorder, name, lambda self, trainer, *rest, name=name: self.calls.append(name))


def test_eight_hooks_in_their_order(tmp_path):
    recorder = Recorder()
    trainer = make_trainer(callbacks=[recorder], run_dir=tmp_path / "run")
    trainer.fit(make_loader(), epochs=1, log_every=2)
    assert recorder.calls == [
        "on_fit_start",
        "on_epoch_start",
        *["on_update_end", "on_update_end", "on_log"],
        *["on_update_end", "on_log"],
        "on_validation_start",
        "on_epoch_end",
        "on_checkpoint",
        "on_fit_end",
    ]
    assert len(HOOKS) == 8


def test_a_hook_may_be_given_to_one_callback():
    seen = []
    callback = Callback()
    callback.on_epoch_end = lambda trainer: seen.append(trainer.progress.epoch)
    make_trainer(callbacks=[callback]).fit(make_loader(), epochs=2)
    assert len(seen) == 2


def test_a_callback_can_stop_the_run():
    class Stop(Callback):
        def on_update_end(self, trainer):
            if trainer.progress.update == 4:
                trainer.stop("enough")

    trainer = make_trainer(callbacks=[Stop()])
    history = trainer.fit(make_loader(), make_loader(), epochs=9)
    assert history[-1]["updates"] == 4 and trainer.progress.stopped == "enough"


def test_what_is_no_callback_is_refused():
    with pytest.raises(EngineError, match="none of the hooks"):
        make_trainer(callbacks=[print]).fit(make_loader(), epochs=1)


def test_the_last_hook_is_called_after_a_failure_too():
    class Failing(Recorder):
        def on_update_end(self, trainer):
            raise RuntimeError("mine")

    failing = Failing()
    with pytest.raises(RuntimeError, match="mine"):
        make_trainer(callbacks=[failing]).fit(make_loader(), epochs=1)
    assert failing.calls[-1] == "on_fit_end"


def test_the_bar_is_shown_when_asked_for(capsys):
    make_trainer().fit(make_loader(), epochs=2, progress=True)
    shown = capsys.readouterr()
    assert "epoch 2" in shown.err and shown.out == ""
    make_trainer().fit(make_loader(), epochs=2)  # nobody is watching a test
    assert capsys.readouterr().err == ""


def test_tensorboard_gets_every_number(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    trainer = make_trainer(callbacks=[TensorBoard()], run_dir=tmp_path / "run")
    history = trainer.fit(make_loader(), make_loader(), epochs=2, log_every=1)
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    assert {"update/train_loss", "update/lr", "epoch/val_accuracy"} <= set(events.Tags()["scalars"])
    values = [event.value for event in events.Scalars("epoch/val_loss")]
    assert values == pytest.approx(history.column("val_loss"), rel=1e-6)


def test_the_log_has_a_line_every_few_updates_and_every_epoch(tmp_path):
    trainer = make_trainer(run_dir=tmp_path / "run", max_norm=1.0)
    history = trainer.fit(make_loader(20), epochs=2, log_every=2)
    log = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    lines = [json.loads(line) for line in log]
    # every second update of the run, and each epoch's last
    assert [line["update"] for line in lines if line["kind"] == "update"] == [2, 4, 5, 6, 8, 10]
    epochs = [line for line in lines if line["kind"] == "epoch"]
    assert [line["train_loss"] for line in epochs] == history.column("train_loss")


def test_a_history_prints_as_a_table_and_as_json():
    history = make_trainer().fit(make_loader(), make_loader(), epochs=2)
    assert len(repr(history).splitlines()) == 3 and "val_accuracy" in repr(history)
    assert history._repr_html_().count("<tr>") == 3
    assert json.loads(history.to_json())["epochs"] == list(history)
    assert repr(History()) == "History: no epoch yet"


# Not finite


def with_nan(at: int) -> DataLoader:
    inputs = torch.randn(12, 4, generator=torch.Generator().manual_seed(1))
    inputs[at] = math.nan
    return make_loader(inputs=inputs)


@pytest.mark.parametrize("max_norm", [None, 1.0])
@pytest.mark.parametrize("accum_steps", [1, 2])
def test_a_nan_loss_is_raised_with_its_place_and_the_weights_untouched(max_norm, accum_steps):
    model, plain = make_model(), make_model()
    trainer = make_trainer(model, max_norm=max_norm, accum_steps=accum_steps)
    where = "epoch 1, batch 1" if accum_steps == 1 else "epoch 1, batches 0 to 1"
    with pytest.raises(
        NonFiniteError, match=f"{where}.*loss nan.*first in the gradient of 0.weight"
    ):
        trainer.fit(with_nan(5), epochs=2)
    if accum_steps == 1:  # the first batch was fine
        first = [next(iter(with_nan(5)))]
        optimizer = SGD(plain.parameters(), lr=0.1)
        train_step(plain, first, nn.CrossEntropyLoss(), optimizer, max_norm=max_norm)
    assert_untouched(model, weights_of(plain))


class RootAtZero(nn.Module):
    """A finite loss whose gradient is not: the root has no slope at 0."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 3), nn.Parameter(torch.zeros(3))

    def forward(self, inputs):
        return self.first(inputs) + self.second.abs().sqrt()


@pytest.mark.parametrize("max_norm", [None, 1.0])
def test_a_gradient_that_is_not_finite_is_found_under_a_finite_loss(max_norm, device):
    model = RootAtZero().to(device)
    before = weights_of(model)
    batch = [tuple(tensor.to(device) for tensor in next(iter(make_loader())))]
    with pytest.raises(NonFiniteError, match="first in the gradient of second: step not taken"):
        train_step(
            model,
            batch,
            nn.CrossEntropyLoss(),
            SGD(model.parameters(), lr=0.1),
            max_norm=max_norm,
            measure_norm=False,
        )
    assert_untouched(model, before)


def test_skipping_leaves_the_window_out_and_counts_it():
    model, plain = make_model(), make_model()
    history = make_trainer(model).fit(with_nan(5), epochs=1, on_nonfinite="skip")
    assert history[0]["skipped"] == 1 and history[0]["updates"] == 2
    batches = list(with_nan(5))
    train_one_epoch(
        plain, [batches[0], batches[2]], nn.CrossEntropyLoss(), SGD(plain.parameters(), lr=0.1)
    )
    assert_untouched(model, weights_of(plain))
    assert math.isfinite(history[0]["train_loss"])


def test_an_epoch_of_nothing_but_nan_ends_the_run():
    loader = make_loader(inputs=torch.full((12, 4), math.nan))
    with pytest.raises(NonFiniteError, match="all of its 3 windows"):
        make_trainer().fit(loader, max_updates=5, on_nonfinite="skip")


def test_a_window_without_any_target_is_refused():
    loader = make_loader(targets=torch.full((12,), -100))
    with pytest.raises(NonFiniteError, match="all targets masked"):
        make_trainer().fit(loader, epochs=1)


def test_an_epoch_whose_every_target_counts_nothing_says_so():
    model = make_model()

    def loss_of(model, batch):
        return Loss(0 * model(batch[0]).sum(), weight=0)

    trainer = Trainer(
        model, optimizer=SGD(model.parameters(), lr=0.1), loss_of=loss_of, device="cpu"
    )
    with pytest.raises(EngineError, match="epoch 1: no target counted"):
        trainer.fit(make_loader(), epochs=1)


def test_a_window_that_a_fused_optimizer_skipped_is_raised_at_the_end_of_the_epoch(monkeypatch):
    """As on an accelerator, where the finding stays a tensor that nothing waits for."""
    found = step.found_nonfinite
    monkeypatch.setattr(step, "found_nonfinite", lambda *a: torch.tensor(float(found(*a))))
    model = make_model()
    with pytest.raises(NonFiniteError, match=r"1 of \d windows .* skipped"):
        train_one_epoch(
            model, with_nan(5), nn.CrossEntropyLoss(), Adam(model.parameters(), fused=True)
        )
    assert all(torch.isfinite(parameter).all() for parameter in model.parameters())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_a_fused_optimizer_on_a_gpu_skips_by_itself_and_the_run_stops_at_the_log_point():
    model = make_model().cuda()
    before = weights_of(model)
    optimizer = Adam(model.parameters(), fused=True)
    trainer = make_trainer(model, optimizer=optimizer, device="cuda")
    with pytest.raises(NonFiniteError, match="update 2"):
        trainer.fit(with_nan(5), epochs=1)
    assert all(torch.isfinite(parameter).all() for parameter in model.parameters())
    assert not all(torch.equal(a, b) for a, b in zip(model.parameters(), before, strict=True))


# Bad input, before the first update


def refused(message: str, *, fit: dict | None = None, loader=None, **options) -> None:
    model = options.pop("model", None) or make_model()
    before = weights_of(model)
    with warnings.catch_warnings(), pytest.raises(EngineError, match=message):
        warnings.simplefilter("ignore")
        trainer = make_trainer(model, **options)
        trainer.fit(make_loader() if loader is None else loader, **{"epochs": 1, **(fit or {})})
    assert_untouched(model, before)


def test_accum_steps_below_one():
    for k in (0, -2, 1.5):
        refused(f"accum_steps = {k}: a step needs at least 1 micro-batch", accum_steps=k)
    with pytest.raises(EngineError, match="at least 1 micro-batch"):
        model = make_model()
        train_one_epoch(
            model, make_loader(), nn.CrossEntropyLoss(), SGD(model.parameters()), accum_steps=0
        )


def test_no_end():
    refused("epochs and max_updates are both None", fit={"epochs": None})


@pytest.mark.parametrize("name", ["epochs", "max_updates", "checkpoint_every", "log_every"])
def test_counts_below_one(name):
    refused(f"{name} = 0: expected 1 or more", fit={name: 0})


def test_an_unknown_policy():
    refused("expected raise or skip", fit={"on_nonfinite": "ignore"})


def test_an_unknown_monitor():
    with pytest.raises(EngineError, match="monitor = 'val_f1': no such number; an epoch has epoch"):
        make_trainer().fit(make_loader(), make_loader(), epochs=1, monitor="val_f1")
    with pytest.raises(EngineError, match="Pass in a val_loader"):
        make_trainer().fit(make_loader(), epochs=1, monitor="val_loss")


def test_an_optimizer_of_another_model():
    refused("none of the model's 4", optimizer=SGD(make_model().parameters(), lr=0.1))


def test_an_optimizer_without_parameters():
    optimizer = SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
    optimizer.param_groups[0]["params"] = []
    refused("holds no parameters", optimizer=optimizer)


def test_a_layer_replaced_after_the_optimizer_was_built():
    model = make_model()
    optimizer = SGD(model.parameters(), lr=0.1)
    model[2] = nn.Linear(8, 3)
    refused(r"lacks 2\.weight, 2\.bias: was a layer replaced", model=model, optimizer=optimizer)


def test_a_part_of_the_model_is_a_warning():
    model = make_model()
    with pytest.warns(UserWarning, match="2 trainable parameters are not in the optimizer"):
        make_trainer(model, optimizer=SGD(model[2].parameters(), lr=0.1))


def test_a_model_that_cannot_go_to_the_device():
    model = make_model().to("meta")
    with pytest.raises(EngineError, match="cannot go to cpu"):
        make_trainer(model)


def test_a_model_on_another_device():
    model = make_model().to("meta")
    with pytest.raises(EngineError, match="the model is on meta, but device = cpu"):
        optimizer = SGD(model.parameters(), lr=0.1)
        train_one_epoch(model, make_loader(), nn.CrossEntropyLoss(), optimizer, device="cpu")
    with pytest.raises(EngineError, match="the model is on meta, but device = cpu"):
        evaluate(model, make_loader(), nn.CrossEntropyLoss(), device="cpu")


def test_optimizer_state_follows_the_model(device):
    model = make_model()
    optimizer = Adam(model.parameters())
    train_step(model, [next(iter(make_loader()))], nn.CrossEntropyLoss(), optimizer)
    make_trainer(model, optimizer=optimizer, device=device).fit(make_loader(), epochs=1)
    assert optimizer.state[model[0].weight]["exp_avg"].device.type == device.type


@pytest.mark.parametrize(
    "loader", [[], DataLoader(TensorDataset(torch.zeros(3)), 4, drop_last=True)]
)
def test_an_empty_loader(loader):
    refused("training loader yields no batch", loader=loader)
    with pytest.raises(EngineError, match="yielded no batch"):
        model = make_model()
        train_one_epoch(model, loader, nn.CrossEntropyLoss(), SGD(model.parameters()))


def test_an_empty_validation_loader():
    with pytest.raises(EngineError, match="validation loader yields no batch"):
        make_trainer().fit(make_loader(), [], epochs=1)


def test_a_generator_that_is_used_up():
    with pytest.raises(EngineError, match="can be read only once, but epochs = 2"):
        make_trainer().fit((batch for batch in make_loader()), epochs=2)
    assert len(make_trainer().fit((batch for batch in make_loader()), epochs=1)) == 1


def test_a_batch_that_is_no_pair():
    refused("expected a pair", loader=[torch.zeros(2, 4)])
    refused("a tuple of 3, expected a pair", loader=[(1, 2, 3)])


TARGETS = {
    "labels run from 0 to 3, but the model has 3 outputs": torch.arange(12) % 4,
    "labels run from -1 to 1": torch.arange(12) % 3 - 1,
    "torch.int32: this criterion takes class indices": (torch.arange(12) % 3).int(),
    "torch.bool: this criterion takes class indices": torch.ones(12, dtype=torch.bool),
    "class indices must be whole numbers": torch.rand(12),
    r"targets are \[4, 1\].*squeeze": (torch.arange(12) % 3)[:, None],
    r"One-hot\? Use targets.argmax": torch.eye(3).long().repeat(4, 1),
}


@pytest.mark.parametrize("message", TARGETS)
def test_labels_that_do_not_fit_cross_entropy(message):
    refused(message, loader=make_loader(targets=TARGETS[message]))


def test_a_wrong_label_in_the_last_batch_is_found_before_the_first_update():
    targets = torch.zeros(12, dtype=torch.long)
    targets[-1] = 7
    refused("labels run from 0 to 7", loader=make_loader(targets=targets))


def test_a_wrong_label_that_comes_late_names_its_batch():
    batches = [*make_loader(), (torch.zeros(1, 4), torch.tensor([7]))]
    with pytest.raises(IndexError) as caught:
        make_trainer().fit(batches, epochs=1)
    assert "epoch 1, batch 3 (from 0)" in caught.value.__notes__[0]


@pytest.mark.parametrize("masked", [-100, 255])
def test_masked_labels_and_bytes_and_probabilities_are_no_mistake(masked):
    targets = torch.arange(12) % 3
    targets[::5] = masked
    criterion = nn.CrossEntropyLoss(ignore_index=masked)
    make_trainer(criterion=criterion).fit(make_loader(targets=targets), epochs=1)
    make_trainer().fit(make_loader(targets=(torch.arange(12) % 3).byte()), epochs=1)
    make_trainer().fit(make_loader(targets=torch.rand(12, 3).softmax(1)), epochs=1)


@pytest.mark.parametrize("criterion", [nn.MSELoss(), nn.BCEWithLogitsLoss()])
def test_outputs_and_targets_that_would_be_broadcast(criterion):
    refused("broadcast", criterion=criterion, loader=make_loader(targets=torch.rand(12)))


def test_whole_numbers_for_a_criterion_of_numbers():
    loader = make_loader(targets=torch.eye(3).long().repeat(4, 1))
    refused(r"torch\.int64.*targets\.float\(\)", criterion=nn.MSELoss(), loader=loader)


def test_a_loss_without_a_graph():
    refused("has no graph", criterion=lambda outputs, y: outputs.detach().sum())
    refused("expected a single number", criterion=lambda outputs, y: outputs.sum(1))
    refused("float, expected a single number", criterion=lambda outputs, y: 1.0)


@pytest.mark.parametrize("place", ["file", "below a file"])
def test_a_run_directory_that_cannot_be_written(tmp_path, place):
    blocked = tmp_path / "taken"
    blocked.write_text("")
    run_dir = blocked if place == "file" else blocked / "run"
    refused("cannot be written", run_dir=Path(run_dir))


def test_settings_of_the_wrong_kind():
    with pytest.raises(ValueError, match="expected 'min'"):
        make_trainer().fit(make_loader(), epochs=1, mode="lowest")
    with pytest.raises(ValueError, match="expected fp32"):
        make_trainer(precision="fp8")


def test_the_norm_in_the_history_is_the_norm_before_clipping():
    model, plain = make_model(), make_model()
    history = make_trainer(model, max_norm=1e-3).fit(make_loader(4), epochs=1)
    inputs, targets = next(iter(make_loader(4)))
    nn.functional.cross_entropy(plain(inputs), targets).backward()
    assert history[0]["grad_norm"] == pytest.approx(grad_norm(plain.parameters()).item(), rel=1e-6)


@pytest.mark.parametrize("max_norm", [0.0, -1.0, math.nan])
def test_a_ceiling_must_be_above_zero(max_norm):
    model = make_model()
    before = weights_of(model)
    with pytest.raises(ValueError, match="must be above 0"):
        make_trainer(model, max_norm=max_norm).fit(make_loader(), epochs=1)
    assert_untouched(model, before)


def test_a_step_needs_a_micro_batch():
    model = make_model()
    with pytest.raises(EngineError, match="no micro-batches"):
        train_step(model, [], nn.CrossEntropyLoss(), SGD(model.parameters(), lr=0.1))


class DiesInTheSecondBatch(Dataset):
    """Its worker is killed, as the system does when memory runs out."""

    def __len__(self):
        return 64

    def __getitem__(self, index):
        if index == 40:
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.randn(3), index % 2


@pytest.mark.slow
def test_a_worker_that_dies_while_fitting_is_explained():
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    loader = DataLoader(DiesInTheSecondBatch(), 8, num_workers=1)
    with pytest.raises(WorkerDiedError, match=r"SIGKILL.*memory"):
        Trainer(model, nn.CrossEntropyLoss(), optimizer).fit(loader, epochs=1, progress=False)
