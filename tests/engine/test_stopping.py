"""When to stop, by the lecture's traces."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.optim import SGD
from torch.utils.data import DataLoader, IterableDataset

from course.engine import SWA, EarlyStopping, History, KeepBest, Trainer, read_run
from course.engine.improvement import better


def stops_at(trace, **options) -> int | None:
    stopping = EarlyStopping(**options)
    return next((i for i, value in enumerate(trace) if stopping.update(value, epoch=i)), None)


NAN = math.nan


@pytest.mark.parametrize(
    ("trace", "options", "index"),
    [
        ([1, 0.9, 0.8, 0.81, 0.82, 0.83], {"patience": 3}, 5),
        ([1 - 1e-5 * i for i in range(20)], {"patience": 5, "min_delta": 1e-4}, 5),
        ([1 - 2e-4 * i for i in range(20)], {"patience": 5, "min_delta": 1e-4}, None),
        ([NAN] * 9, {"patience": 5}, 4),
        ([NAN, *[1 - 0.1 * i for i in range(9)]], {"patience": 2}, None),
        ([1, 0.5, 0.5], {"patience": 0}, 2),
        ([1, 0.5, 0.5], {"patience": 1}, 2),
    ],
)
def test_the_lectures_traces(trace, options, index):
    """N53, and what patience 0 means."""
    assert stops_at(trace, **options) == index


@pytest.mark.parametrize(
    "bad", [{"patience": -1}, {"patience": True}, {"min_delta": -0.1}, {"mode": "lowest"}]
)
def test_bad_settings_are_refused(bad):
    with pytest.raises(ValueError, match="expected"):
        EarlyStopping(**bad)


def test_better():
    assert better(1.0, None) and better(0.9, 1.0) and not better(1.0, 1.0)
    assert better(1.1, 1.0, mode="max") and not better(0.9, 1.0, mode="max")
    assert not better(NAN, None) and not better(-math.inf, 1.0)


def trainer_and_batch(**options):
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    trainer = Trainer(
        model, nn.CrossEntropyLoss(), SGD(model.parameters(), lr=0.1), device="cpu", **options
    )
    return trainer, [(torch.randn(8, 3), torch.randint(0, 2, (8,)))]


class Never(nn.Module):
    """A metric that gets worse and worse."""

    value = 0.0

    def __call__(self, _outputs, _targets):
        self.value += 1.0
        return torch.tensor(self.value)


def test_a_run_stops_and_says_why():
    trainer, batch = trainer_and_batch(
        callbacks=[EarlyStopping(patience=2, monitor="val_worse", mode="min")]
    )
    history = trainer.fit(batch, batch, epochs=50, metrics={"worse": Never()})
    assert len(history) == 3
    assert "val_worse has not improved for 2 epochs (best 1, epoch 1)" in trainer.progress.stopped


def test_keep_best_gives_back_copies_of_the_best_weights():
    keep = KeepBest()
    trainer, batch = trainer_and_batch(callbacks=[keep])
    history = trainer.fit(batch, batch, epochs=5, monitor="val_loss", mode="max")
    assert history.best["epoch"] == 1
    last = trainer.model.weight.detach().clone()
    keep.restore(trainer)
    assert not torch.equal(trainer.model.weight, last)
    again, batch = trainer_and_batch()
    again.fit(batch, epochs=1)
    torch.testing.assert_close(trainer.model.weight, again.model.weight, rtol=0, atol=0)


def test_the_best_of_a_history_is_the_first_of_equals_and_never_nan():
    history = History("val_loss", "min")
    for epoch, loss in enumerate([NAN, 0.5, 0.4, 0.4, NAN, 0.6], start=1):
        history.add({"epoch": epoch, "val_loss": loss})
    assert history.best == {"epoch": 3, "val_loss": 0.4}
    empty = History("val_loss", "min")
    empty.add({"epoch": 1, "val_loss": NAN})
    with pytest.raises(LookupError, match="no epoch has a finite val_loss"):
        _ = empty.best


def in_parts(directory, make_callback, parts):
    """A run of 3 epochs of 4 updates, cut after each of `parts` and resumed."""
    generator = torch.Generator().manual_seed(0)
    batches = [(torch.randn(8, 3, generator=generator), torch.arange(8) % 2) for _ in range(4)]
    for number, max_updates in enumerate([*parts, None]):
        callback = make_callback()
        trainer, _ = trainer_and_batch(callbacks=[callback], run_dir=directory)
        resume = "auto" if number else None
        history = trainer.fit(
            batches, batches, epochs=3, max_updates=max_updates, resume=resume, progress=False
        )
    return trainer, callback, history


def test_an_epoch_in_which_a_run_ends_is_no_epoch_to_wait_for(tmp_path):
    def make():
        return EarlyStopping(patience=3, monitor="val_loss", mode="max")  # it always falls

    trainer, _, whole = in_parts(tmp_path / "whole", make, [])
    assert trainer.progress.stopped is None and len(whole) == 3
    trainer, callback, history = in_parts(tmp_path / "cut", make, [1, 2, 3, 5, 6])
    assert trainer.progress.update == 12 and callback.waited == 2
    assert history.column("updates") == [1, 2, 3, 4, 5, 6, 8, 12]


def test_the_direction_of_its_own_number_is_known_in_a_resumed_run_too(tmp_path):
    def make():
        return EarlyStopping(patience=3, monitor="val_accuracy")

    _, callback, history = in_parts(tmp_path / "run", make, [4])
    assert callback.best == max(history.column("val_accuracy"))


def test_weights_are_averaged_once_for_each_whole_epoch(tmp_path):
    _, whole, _ = in_parts(tmp_path / "whole", lambda: SWA(1), [])
    _, cut, _ = in_parts(tmp_path / "cut", lambda: SWA(1), [3, 4, 6])
    assert cut.averaged.n_averaged == whole.averaged.n_averaged == 3
    assert torch.equal(cut.model.weight, whole.model.weight)


def test_the_end_of_a_loader_without_a_length_has_one_line(tmp_path):
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(zip(torch.eye(3).repeat(4, 1), torch.arange(12) % 2, strict=True))

    for max_updates, resume in ((3, None), (None, "auto")):
        trainer, batch = trainer_and_batch(run_dir=tmp_path / "run")
        history = trainer.fit(
            DataLoader(Stream(), 4), batch, epochs=2, max_updates=max_updates, resume=resume,
            progress=False,
        )  # fmt: skip
    assert history.column("updates") == [3, 6]
    lines = [line for line in read_run(tmp_path / "run").metrics() if line["kind"] == "epoch"]
    assert [line["updates"] for line in lines] == [3, 6]
