"""How a criterion weighs its batch is measured; the oracle is the criterion on the joined batch."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import SGD

from course.engine import EngineError, NonFiniteError, Trainer, evaluate, train_step
from course.engine.loss_of import PairLoss
from course.engine.weighing import measure

CLASS_WEIGHTS = torch.tensor([0.2, 1.0, 3.0], dtype=torch.float64)
PAD = 0


def batches(*, masked: int = -100) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    parts = [
        (
            torch.randn(n, 6, dtype=torch.float64, generator=generator),
            torch.randint(1 if masked == PAD else 0, 3, (n,), generator=generator),
        )
        for n in (7, 4, 1)
    ]
    parts[0][1][:6] = masked
    parts[1][1][:2] = masked
    return parts


class Wrapped(nn.Module):
    def __init__(self, **options) -> None:
        super().__init__()
        self.ce = nn.CrossEntropyLoss(**options)

    def forward(self, outputs, targets):
        return self.ce(outputs, targets)

    def bound(self, outputs, targets):
        return self.ce(outputs, targets)


class Focal(nn.Module):
    def forward(self, outputs, targets):
        each = F.cross_entropy(outputs, targets.clamp(min=0), reduction="none")
        return ((1 - (-each).exp()) ** 2 * each).mean()


def padded(outputs, targets):
    return F.cross_entropy(outputs, targets, ignore_index=PAD)


CRITERIA = {
    "function with sum": (lambda o, t: F.cross_entropy(o, t, reduction="sum"), -100),
    "function with a mask": (lambda o, t: F.cross_entropy(o, t), -100),
    "function with its own mask": (padded, PAD),
    "function with class weights": (
        lambda o, t: F.cross_entropy(o, t, weight=CLASS_WEIGHTS), -100,
    ),
    "module that holds a loss": (Wrapped(), -100),
    "module that holds a loss with a mask": (Wrapped(ignore_index=PAD), PAD),
    "module that holds class weights": (Wrapped(weight=CLASS_WEIGHTS), -100),
    "bound method": (Wrapped(ignore_index=PAD).bound, PAD),
    "partial of a module": (partial(nn.CrossEntropyLoss()), -100),
    "compiled": (torch.compile(nn.CrossEntropyLoss(), backend="eager"), -100),
    "subclass": (type("Mine", (nn.CrossEntropyLoss,), {})(ignore_index=PAD), PAD),
    "focal, over all": (Focal(), -100),
    "scaled": (lambda o, t: 0.1 * F.cross_entropy(o, t) , -100),
    "numbers": (lambda o, t: (o - t[:, None]).abs().mean(), -100),
}  # fmt: skip


def make_model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Linear(6, 3).double()


@pytest.mark.parametrize("name", CRITERIA)
@pytest.mark.parametrize("through", ["trainer", "step"])
def test_the_gradient_is_the_joined_batchs(name, through):
    criterion, masked = CRITERIA[name]
    data = batches(masked=masked)
    inputs, targets = (torch.cat(parts) for parts in zip(*data, strict=True))
    ours, theirs = make_model(), make_model()
    criterion(theirs(inputs), targets).backward()
    optimizer = SGD(ours.parameters(), lr=0.0)
    if through == "trainer":
        Trainer(ours, criterion, optimizer, accum_steps=3, device="cpu").fit(
            data, epochs=1, progress=False
        )
    else:
        train_step(ours, data, criterion, optimizer)
    torch.testing.assert_close(ours.weight.grad, theirs.weight.grad, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("name", [n for n in CRITERIA if n != "function with sum"])
def test_validation_gives_the_joined_batchs_loss(name):
    criterion, masked = CRITERIA[name]
    data = batches(masked=masked)
    inputs, targets = (torch.cat(parts) for parts in zip(*data, strict=True))
    model = make_model()
    expected = criterion(model(inputs), targets).item()
    assert evaluate(model, data, criterion)["loss"] == pytest.approx(expected, rel=1e-9)


def test_a_sum_is_reported_as_a_mean_however_it_is_written():
    x, y, model = torch.randn(64, 6), torch.randn(64, 1), nn.Linear(6, 1)
    data = list(zip(x.split(16), y.split(16), strict=True))
    known = evaluate(model, data, nn.MSELoss(reduction="sum"))["loss"]
    own = evaluate(model, data, lambda o, t: F.mse_loss(o, t, reduction="sum"))["loss"]
    assert own == pytest.approx(known)


def contrastive(outputs, targets):
    return torch.logsumexp((outputs @ outputs.T).flatten(), 0)


def test_a_criterion_that_mixes_examples_is_refused_in_a_window_of_several():
    model = make_model()
    trainer = Trainer(model, contrastive, SGD(model.parameters(), lr=0.1), accum_steps=2)
    data = [(x, y.clamp(min=0)) for x, y in batches()]
    with pytest.raises(EngineError, match=r"neither the sum nor a mean.*weight_of.*accum_steps=1"):
        trainer.fit(data, epochs=1, progress=False)
    before = model.weight.detach().clone()
    Trainer(model, contrastive, SGD(model.parameters(), lr=0.1)).fit(data, epochs=1, progress=False)
    assert not torch.equal(model.weight, before)  # one batch per update needs no weights


def own_entropy(outputs, targets):
    return F.cross_entropy(outputs, targets)


def test_a_first_batch_without_a_loss_is_measured_later():
    model = make_model()
    masked = (torch.randn(3, 6, dtype=torch.float64), torch.full((3,), -100))
    optimizer = SGD(model.parameters(), lr=0.1)
    trainer = Trainer(model, own_entropy, optimizer, accum_steps=2, device="cpu")
    data = [masked, masked, *batches()]
    with pytest.raises(NonFiniteError, match=r"loss nan.*all targets masked"):
        trainer.fit(data, epochs=1, progress=False)
    trainer.fit(data, epochs=1, progress=False, on_nonfinite="skip")
    assert trainer.loss_of.measured.kind == "mean over unmasked targets"


class Sharpened(nn.CrossEntropyLoss):
    """A focal loss built on torch's, whose mean it takes itself."""

    def __init__(self):
        super().__init__(reduction="none")

    def forward(self, outputs, targets):
        each = super().forward(outputs, targets)
        return ((1 - torch.exp(-each)) ** 2 * each).mean()


def test_a_mean_of_single_losses_is_taken_at_any_batch_size():
    x, y = torch.randn(8, 6, dtype=torch.float64), torch.arange(8) % 3
    ours, theirs = make_model(), make_model()
    Sharpened()(theirs(x), y).backward()
    singles = list(zip(x.split(1), y.split(1), strict=True))
    train_step(ours, singles, Sharpened(), SGD(ours.parameters(), lr=0.0))
    torch.testing.assert_close(ours.weight.grad, theirs.weight.grad)


def test_measuring_draws_nothing_and_changes_no_buffer():
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, outputs, targets):
            self.calls += 1
            return F.cross_entropy(F.dropout(outputs, 0.5), targets)

    criterion, model = Counting(), make_model()
    data = [(x, y.clamp(min=0)) for x, y in batches()]
    torch.manual_seed(3)
    Trainer(model, criterion, SGD(model.parameters(), lr=0.1)).fit(data, epochs=1, progress=False)
    assert criterion.calls == 3
    theirs = make_model()
    torch.manual_seed(3)
    optimizer = SGD(theirs.parameters(), lr=0.1)
    for inputs, targets in data:
        optimizer.zero_grad()
        F.cross_entropy(F.dropout(theirs(inputs), 0.5), targets).backward()
        optimizer.step()
    assert torch.equal(model.weight, theirs.weight)


def test_the_record_says_how_a_criterion_weighs(tmp_path):
    from course.engine import read_run

    model = make_model()
    trainer = Trainer(model, padded, SGD(model.parameters(), lr=0.1), run_dir=tmp_path / "run")
    trainer.fit(batches(masked=PAD), epochs=1, progress=False)
    found = read_run(tmp_path / "run").content["weighting"]
    assert found == "mean over unmasked targets (ignore_index 0)"


class Counting(nn.Module):
    """Cross entropy that holds how often each class is drawn, or weighs by it."""

    def __init__(self, *, weighs: bool) -> None:
        super().__init__()
        self.register_buffer("counts", torch.tensor([50.0, 3.0, 20.0], dtype=torch.float64))
        self.weighs = weighs

    def forward(self, outputs, targets):
        return F.cross_entropy(outputs, targets, weight=self.counts if self.weighs else None)


@pytest.mark.parametrize("weighs", [False, True])
@pytest.mark.parametrize("only", [0, 2])
def test_a_first_batch_of_one_class_says_nothing_of_class_weights(weighs, only):
    (outputs, _), generator = batches()[0], torch.Generator().manual_seed(1)
    model, criterion = nn.Linear(6, 3, dtype=torch.float64), Counting(weighs=weighs)
    loss_of = PairLoss(criterion)
    one_class = torch.full((len(outputs),), only)
    train_step(model, [(outputs, one_class)], loss_of=loss_of, optimizer=SGD(model.parameters(), 0))
    data = [(outputs, torch.randint(0, 3, (len(outputs),), generator=generator)) for _ in range(2)]
    joined = (torch.cat([x for x, _ in data]), torch.cat([y for _, y in data]))
    with torch.no_grad():
        expected = criterion(model(joined[0]), joined[1]).item()
    assert evaluate(model, data, loss_of=loss_of)["loss"] == pytest.approx(expected)


WIDTH = 7
"""What a criterion may hold besides: it is tried as `ignore_index`, and no class has the number."""


class Masked(nn.Module):
    """A criterion that holds torch's own."""

    def __init__(self, weights):
        super().__init__()
        self.inner = nn.CrossEntropyLoss(weights, ignore_index=-1)

    def forward(self, outputs, targets):
        return self.inner(outputs, targets)


@pytest.mark.parametrize("holds", [False, True])
def test_on_a_device_no_target_is_tried_that_is_no_class(device, holds):
    held, tried = torch.ones(2, device=device) if holds else None, []

    def criterion(outputs, targets):
        tried.append((targets.device.type, targets.max().item()))
        loss = F.multi_margin_loss(outputs, targets, p=2) * WIDTH
        return loss if held is None else loss * held.mean()

    outputs, targets = torch.randn(12, 3, device=device), torch.arange(12, device=device) % 3
    assert measure(criterion, [(outputs, targets)]).kind == "mean over unmasked targets"
    assert any(largest > 2 for _, largest in tried) == (not holds or device.type == "cpu")
    assert all(largest <= 2 for where, largest in tried if where != "cpu")


@pytest.mark.parametrize("weights", [None, [1.0, 2.0, 5.0]])
def test_on_a_device_masks_and_class_weights_are_found_as_on_the_cpu(device, weights):
    weights = None if weights is None else torch.tensor(weights)
    criterion = Masked(weights).to(device)
    outputs, targets = torch.randn(12, 3, device=device), torch.arange(12, device=device) % 3
    targets[::4] = -1
    measured = measure(criterion, [(outputs, targets)])
    weight = measured.weigher[0](targets)
    expected = 9 if weights is None else weights[targets[targets >= 0].cpu()].sum().item()
    assert float(weight) == expected and measured.known
    assert "ignore_index -1" in measured.kind
    assert not isinstance(weight, torch.Tensor) or weight.device.type == device.type
