"""After a window that is not finite: neither the weights nor the buffers keep anything of it."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn
from torch.optim import SGD
from torch.utils.data import DataLoader, TensorDataset

from course.engine import NonFiniteError, Trainer, evaluate


class RunningMean(nn.Module):
    """Keeps a running mean by a new tensor each time, and has a mask that only repeats itself."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("mask", torch.ones(1).expand(4))
        self.register_buffer("later", None)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * inputs.detach().mean(0)
            self.later = self.mean
        return (inputs - self.mean) * self.mask


def model_with(norm: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(norm, nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


def batches(device: str = "cpu") -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [
        (
            torch.randn(4, 4, generator=generator).to(device),
            torch.randint(0, 3, (4,), generator=generator).to(device),
        )
        for _ in range(8)
    ]


def spoiled(index: int, value: float, device: str = "cpu") -> list:
    made = batches(device)
    made[index][0][1, 2] = value
    return made


def plain_loop(model: nn.Module, windows: list[list], lr: float = 0.1) -> None:
    """The loop by hand, without the engine."""
    optimizer = SGD(model.parameters(), lr=lr)
    for window in windows:
        optimizer.zero_grad()
        for inputs, targets in window:
            (nn.functional.cross_entropy(model(inputs), targets) / len(window)).backward()
        optimizer.step()


@pytest.mark.parametrize("norm", [nn.BatchNorm1d(4), RunningMean()], ids=["BatchNorm", "replaced"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("bad", [0, 5], ids=["first of all", "second of its window"])
@pytest.mark.filterwarnings("ignore:BatchNorm with accum_steps")
def test_a_skipped_window_leaves_no_trace_in_the_buffers(norm, value, bad, device):
    model = model_with(copy.deepcopy(norm)).to(device)
    by_hand = copy.deepcopy(model)
    loader = spoiled(bad, value, device)
    trainer = Trainer(
        model, nn.CrossEntropyLoss(), SGD(model.parameters(), lr=0.1), accum_steps=2, device=device
    )
    history = trainer.fit(loader, batches(device), epochs=1, on_nonfinite="skip")
    windows = [loader[i : i + 2] for i in range(0, 8, 2) if bad not in (i, i + 1)]
    plain_loop(by_hand, windows)
    assert history[0]["skipped"] == 1 and math.isfinite(history[0]["val_loss"])
    for name, tensor in by_hand.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], tensor, msg=lambda m, n=name: n + m)


def test_a_buffer_that_its_layer_replaces_is_the_same_tensor_after_a_skip():
    model = model_with(RunningMean())
    before, number = model[0].mean, model[0].mean.clone()
    trainer = Trainer(model, nn.CrossEntropyLoss(), SGD(model.parameters(), lr=0.1), device="cpu")
    with pytest.raises(NonFiniteError, match="all of its 1 windows"):
        trainer.fit(spoiled(0, math.nan)[:1], epochs=1, on_nonfinite="skip")
    assert model[0].mean is before and torch.equal(before, number)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_a_fused_optimizer_puts_buffers_back_without_being_waited_for():
    model = model_with(nn.BatchNorm1d(4)).cuda()
    by_hand = copy.deepcopy(model)
    loader = spoiled(3, math.nan, "cuda")
    optimizer = SGD(model.parameters(), lr=0.1, fused=True)
    trainer = Trainer(model, nn.CrossEntropyLoss(), optimizer, device="cuda")
    trainer.fit(loader, epochs=1, on_nonfinite="skip")
    plain_loop(by_hand, [[batch] for i, batch in enumerate(loader) if i != 3])
    for name, tensor in by_hand.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], tensor)


def test_raising_says_which_buffer_the_batch_got_into():
    model = model_with(nn.BatchNorm1d(4))
    trainer = Trainer(model, nn.CrossEntropyLoss(), SGD(model.parameters(), lr=0.1), device="cpu")
    with pytest.raises(NonFiniteError, match=r"left nan or inf in 0\.running_mean: load the last"):
        trainer.fit(spoiled(2, math.nan), epochs=1)


def test_raising_says_nothing_of_buffers_that_hold_inf_by_design():
    class Masked(nn.Linear):
        def __init__(self) -> None:
            super().__init__(4, 3)
            self.register_buffer("mask", torch.full((3, 3), -math.inf).triu(1))

    model = Masked()
    trainer = Trainer(model, nn.CrossEntropyLoss(), SGD(model.parameters(), lr=0.1), device="cpu")
    with pytest.raises(NonFiniteError) as error:
        trainer.fit(spoiled(0, math.nan), epochs=1)
    assert "mask:" not in str(error.value)


def test_evaluation_after_a_skip_is_what_torch_says():
    """The whole point: a validation loss of nan for ever after one bad batch."""
    model = model_with(nn.BatchNorm1d(4))
    data = DataLoader(TensorDataset(*map(torch.cat, zip(*spoiled(2, math.nan), strict=True))), 4)
    trainer = Trainer(model, nn.CrossEntropyLoss(), SGD(model.parameters(), lr=0.1), device="cpu")
    trainer.fit(data, epochs=2, on_nonfinite="skip")
    clean = batches()
    seen = evaluate(model, clean, nn.CrossEntropyLoss(), device="cpu")["loss"]
    model.eval()
    with torch.no_grad():
        inputs, targets = (torch.cat(part) for part in zip(*clean, strict=True))
        expected = nn.functional.cross_entropy(model(inputs), targets).item()
    assert seen == pytest.approx(expected, rel=1e-6)
