"""The update of a window equals the big batch's; the big batch is torch's own criterion on it."""

from __future__ import annotations

import warnings
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.optim import SGD
from torch.utils.data import DataLoader, TensorDataset

from course.engine import (
    EngineError,
    NonFiniteError,
    Trainer,
    Window,
    train_one_epoch,
    train_step,
    windows,
)
from course.engine.window import weighing
from tests.second_device import second_device

CLASSES, FEATURES = 4, 5
TIGHT = {"rtol": 1e-12, "atol": 1e-12}


def make_model(seed: int = 0, device: torch.device | str = "cpu") -> nn.Module:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(FEATURES, 6), nn.Tanh(), nn.Linear(6, CLASSES))
    return model.double().to(device)


def make_batch(num: int, seed: int, masked: float = 0.0, device="cpu"):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(num, FEATURES, dtype=torch.float64, generator=generator)
    targets = torch.randint(0, CLASSES, (num,), generator=generator)
    hidden = torch.rand(num, generator=generator) < masked
    hidden[0] = False  # at least one target of the window counts
    return inputs.to(device), targets.masked_fill(hidden, -100).to(device)


def plain_update(model, inputs, targets, criterion, lr: float = 0.5) -> list[torch.Tensor]:
    """Weights after one step of gradient descent on the joined batch, in plain torch."""
    grads = torch.autograd.grad(criterion(model(inputs), targets), list(model.parameters()))
    return [(p - lr * g).detach() for p, g in zip(model.parameters(), grads, strict=True)]


def weighted(device="cpu"):
    return torch.tensor([0.1, 3.0, 1.0, 0.4], dtype=torch.float64, device=device)


class Masked(nn.Module):
    """A criterion of somebody's own, which says what it divides by."""

    def forward(self, outputs, targets):
        per_target = F.cross_entropy(outputs, targets.clamp(min=0), reduction="none")
        counts = self.weight_of(targets)
        return (per_target * (targets >= 0)).sum() / counts

    def weight_of(self, targets):
        return (targets >= 0).sum().item()


CRITERIA = {
    "cross-entropy": lambda device: nn.CrossEntropyLoss(),
    "class weights": lambda device: nn.CrossEntropyLoss(weight=weighted(device)),
    "label smoothing and class weights": lambda device: nn.CrossEntropyLoss(
        weight=weighted(device), label_smoothing=0.1
    ),
    "sum": lambda device: nn.CrossEntropyLoss(reduction="sum"),
    "sum and class weights": lambda device: nn.CrossEntropyLoss(
        weight=weighted(device), reduction="sum"
    ),
    "function": lambda device: F.cross_entropy,
    "partial": lambda device: partial(F.cross_entropy, weight=weighted(device)),
    "own": lambda device: Masked(),
}


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 7), min_size=1, max_size=5),
    name=st.sampled_from(sorted(CRITERIA)),
    masked=st.sampled_from([0.0, 0.5, 0.9]),
    seed=st.integers(0, 2**16),
)
def test_a_window_moves_the_weights_as_its_joined_batch_does(sizes, name, masked, seed):
    criterion = CRITERIA[name]("cpu")
    inputs, targets = make_batch(sum(sizes), seed, masked)
    model = make_model(seed)
    expected = plain_update(model, inputs, targets, criterion)
    big_loss = criterion(model(inputs), targets).item()
    micro_batches = list(zip(inputs.split(sizes), targets.split(sizes), strict=True))

    report = train_step(model, micro_batches, criterion, SGD(model.parameters(), lr=0.5))

    torch.testing.assert_close(list(model.parameters()), expected, **TIGHT)
    counted = report.weight if "sum" in name else 1.0  # a report is always a mean
    assert report.loss * counted == pytest.approx(big_loss, rel=1e-12)


@pytest.mark.parametrize("name", sorted(CRITERIA))
def test_every_criterion_on_every_device(name, device):
    criterion = CRITERIA[name](device)
    inputs, targets = make_batch(8, 3, 0.5, device)
    model = make_model(device=device)
    expected = plain_update(model, inputs, targets, criterion)
    micro_batches = list(zip(inputs.split([3, 3, 2]), targets.split([3, 3, 2]), strict=True))
    train_step(model, micro_batches, criterion, SGD(model.parameters(), lr=0.5))
    torch.testing.assert_close(list(model.parameters()), expected, **TIGHT)


@pytest.mark.parametrize(
    ("criterion", "targets"),
    [
        (nn.MSELoss(), torch.randn(8, CLASSES, dtype=torch.float64)),
        (nn.BCEWithLogitsLoss(), torch.rand(8, CLASSES, dtype=torch.float64)),
        (F.l1_loss, torch.randn(8, CLASSES, dtype=torch.float64)),
        (nn.MSELoss(reduction="sum"), torch.randn(8, CLASSES, dtype=torch.float64)),
        (nn.CrossEntropyLoss(), torch.rand(8, CLASSES, dtype=torch.float64).softmax(1)),
        (lambda out, y: (out - y).square().mean(), torch.randn(8, CLASSES, dtype=torch.float64)),
    ],
)
def test_criteria_whose_targets_are_numbers(criterion, targets):
    inputs, _ = make_batch(8, 1)
    model = make_model()
    expected = plain_update(model, inputs, targets, criterion)
    micro_batches = list(zip(inputs.split([5, 3]), targets.split([5, 3]), strict=True))
    train_step(model, micro_batches, criterion, SGD(model.parameters(), lr=0.5))
    torch.testing.assert_close(list(model.parameters()), expected, **TIGHT)


def test_targets_of_several_dimensions_count_one_by_one():
    inputs = torch.randn(6, 3, 4, dtype=torch.float64)
    targets = torch.randint(0, 3, (6, 4))
    targets[0, :3] = targets[4, :] = -100
    model = nn.Conv1d(3, 3, 1).double()
    expected = plain_update(model, inputs, targets, nn.CrossEntropyLoss())
    micro_batches = list(zip(inputs.split([4, 2]), targets.split([4, 2]), strict=True))
    train_step(model, micro_batches, nn.CrossEntropyLoss(), SGD(model.parameters(), lr=0.5))
    torch.testing.assert_close(list(model.parameters()), expected, **TIGHT)


def test_a_micro_batch_whose_targets_are_all_masked_counts_nothing(device):
    inputs, targets = make_batch(6, 5, device=device)
    targets[2:4] = -100
    model = make_model(device=device)
    expected = plain_update(model, inputs, targets, nn.CrossEntropyLoss())
    micro_batches = list(zip(inputs.split(2), targets.split(2), strict=True))
    train_step(model, micro_batches, nn.CrossEntropyLoss(), SGD(model.parameters(), lr=0.5))
    torch.testing.assert_close(list(model.parameters()), expected, **TIGHT)


@pytest.mark.parametrize("num", [1, 2, 3])
@pytest.mark.parametrize("there", [False, True], ids=["here", "there"])
def test_a_window_whose_targets_are_all_masked_is_refused(num, there):
    """One micro-batch or several: a mean over nothing is nan."""
    masked = (torch.randn(2, FEATURES, dtype=torch.float64), torch.full((2,), -100))
    with second_device() as second:
        device = second if there else torch.device("cpu")
        model = make_model(device=device)
        batches = [tuple(part.to(device) for part in masked)] * num
        with pytest.raises(NonFiniteError, match=r"loss nan.*all targets masked"):
            train_step(model, batches, nn.CrossEntropyLoss(), SGD(model.parameters(), lr=0.5))


@settings(max_examples=20, deadline=None)
@given(
    num=st.integers(1, 30),
    batch_size=st.integers(1, 8),
    accum_steps=st.integers(1, 9),
    seed=st.integers(0, 999),
)
def test_an_epoch_is_a_chain_of_big_batch_updates(num, batch_size, accum_steps, seed):
    """Short last micro-batch, trailing window, K above the epoch: all fall out of the sizes."""
    inputs, targets = make_batch(num, seed, 0.3)
    model, plain = make_model(seed), make_model(seed)
    criterion = nn.CrossEntropyLoss(weight=weighted())
    loader = DataLoader(TensorDataset(inputs, targets), batch_size)
    window = batch_size * accum_steps
    for x, y in zip(inputs.split(window), targets.split(window), strict=True):
        if (y >= 0).any():
            updated = plain_update(plain, x, y, criterion)
            for parameter, value in zip(plain.parameters(), updated, strict=True):
                parameter.data = value
    if any(not (y >= 0).any() for y in targets.split(window)):
        return  # a window without any target is refused; tested elsewhere

    train_one_epoch(
        model, loader, criterion, SGD(model.parameters(), lr=0.5), accum_steps=accum_steps
    )

    torch.testing.assert_close(
        list(model.parameters()), list(plain.parameters()), rtol=1e-10, atol=1e-12
    )


@pytest.mark.parametrize(("num", "k", "updates"), [(10_000, 4, 79), (20_000, 4, 157), (96, 2, 2)])
def test_updates_an_epoch_are_the_ceiling(num, k, updates):
    """N03: 10,000 examples in batches of 32, K = 4, are 79 updates, not the slide's 78."""
    loader = DataLoader(TensorDataset(torch.zeros(num)), 32)
    assert len(list(windows(loader, k))) == updates


def test_nothing_leaks_from_one_epoch_into_the_next():
    """5 batches in windows of 2 leave one over: it is spent in its own epoch."""
    inputs, targets = make_batch(10, 0)
    loader = DataLoader(TensorDataset(inputs, targets), 2)
    model, other = make_model(), make_model()
    trainer = Trainer(
        model, nn.CrossEntropyLoss(), SGD(model.parameters(), lr=0.1), accum_steps=2, device="cpu"
    )
    history = trainer.fit(loader, epochs=2)
    for _ in range(2):
        for x, y in zip(inputs.split(4), targets.split(4), strict=True):
            updated = plain_update(other, x, y, nn.CrossEntropyLoss(), lr=0.1)
            for parameter, value in zip(other.parameters(), updated, strict=True):
                parameter.data = value
    assert [line["updates"] for line in history] == [3, 6]
    torch.testing.assert_close(list(model.parameters()), list(other.parameters()), **TIGHT)


def test_the_lectures_numbers():
    """N19: w moves from 0 to 0.8 by two micro-batches, as by one batch of both examples."""
    model = nn.Linear(1, 1, bias=False).double()
    nn.init.zeros_(model.weight)
    pairs = [
        (torch.tensor([[2.0]]), torch.tensor([[1.0]])),
        (torch.tensor([[3.0]]), torch.tensor([[2.0]])),
    ]
    pairs = [(x.double(), y.double()) for x, y in pairs]
    report = train_step(model, pairs, nn.MSELoss(), SGD(model.parameters(), lr=0.1))
    assert model.weight.item() == pytest.approx(0.8, abs=1e-15)
    assert report.loss == pytest.approx(2.5, abs=1e-15)
    assert report.grad_norm == pytest.approx(8.0, abs=1e-15)


def test_stale_gradients_do_not_count():
    inputs, targets = make_batch(4, 2)
    model = make_model()
    expected = plain_update(model, inputs, targets, nn.CrossEntropyLoss())
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 1e6)
    train_step(model, [(inputs, targets)], nn.CrossEntropyLoss(), SGD(model.parameters(), lr=0.5))
    torch.testing.assert_close(list(model.parameters()), expected, **TIGHT)


def test_batch_norm_is_said_once_to_be_the_exception():
    model = nn.Sequential(nn.Linear(FEATURES, 6), nn.BatchNorm1d(6), nn.Linear(6, CLASSES)).double()
    inputs, targets = make_batch(12, 0)
    trainer = Trainer(
        model, nn.CrossEntropyLoss(), SGD(model.parameters(), lr=0.1), accum_steps=2, device="cpu"
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer.fit(DataLoader(TensorDataset(inputs, targets), 3), epochs=3)
    assert [str(w.message)[:29] for w in caught] == ["BatchNorm with accum_steps = "]


def test_no_reduction_is_refused():
    inputs, targets = make_batch(4, 2)
    model = make_model()
    with pytest.raises(EngineError, match="reduction='none'"):
        train_step(
            model,
            [(inputs, targets)],
            nn.CrossEntropyLoss(reduction="none"),
            SGD(model.parameters(), lr=0.5),
        )


def test_shares_sum_to_one():
    window = Window.of(
        [(None, torch.zeros(n).long()) for n in (3, 3, 2)], weighing(nn.CrossEntropyLoss())
    )
    assert window.shares() == pytest.approx([3 / 8, 3 / 8, 2 / 8])


@pytest.mark.parametrize("accum_steps", [1, 2])
def test_a_summed_loss_over_masked_targets_alone_counts_nothing(accum_steps):
    torch.manual_seed(0)
    parts = [(torch.randn(4, 3), torch.randint(0, 2, (4,))) for _ in range(2)]
    masked = (torch.randn(4, 3), torch.full((4,), -100))
    losses = []
    for batches in (parts, [masked, masked, *parts]):
        model = nn.Linear(3, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        for parameter in model.parameters():
            nn.init.ones_(parameter)
        criterion = nn.CrossEntropyLoss(reduction="sum")
        trainer = Trainer(model, criterion, optimizer, accum_steps=accum_steps, device="cpu")
        losses.append(trainer.fit(batches, epochs=1)[0]["train_loss"])
    assert losses[1] == losses[0]
    assert train_step(model, [masked], criterion, optimizer).loss == 0.0
