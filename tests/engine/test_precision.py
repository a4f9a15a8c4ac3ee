"""fp32, bf16 and fp16: what is 16 bit, what is not, and what an overflow does."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam
from torch.utils.data import DataLoader, TensorDataset

from course.engine import Trainer, step_decay, train_step
from course.engine.precision import Precision


def batch(device):
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(16, 8, generator=generator)
    return inputs.to(device), torch.randint(0, 3, (16,), generator=generator).to(device)


def make_model(device) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)).to(device)


@pytest.mark.parametrize("name", ["bf16", "fp16"])
def test_activations_are_16_bit_and_what_is_updated_is_32(name, device):
    """F112."""
    model, seen = make_model(device), []
    model.register_forward_hook(lambda _m, _i, outputs: seen.append(outputs.dtype))
    precision = Precision(name, device)
    optimizer = Adam(model.parameters())
    train_step(model, [batch(device)], nn.CrossEntropyLoss(), optimizer, precision=precision)
    assert seen == [torch.bfloat16 if name == "bf16" else torch.float16]
    for parameter in model.parameters():
        assert parameter.dtype == parameter.grad.dtype == torch.float32
        assert optimizer.state[parameter]["exp_avg"].dtype == torch.float32


@pytest.mark.parametrize("name", ["bf16", "fp16"])
def test_a_step_is_close_to_that_of_fp32(name, device):
    norms, weights = {}, {}
    for each in ("fp32", name):
        model = make_model(device)
        report = train_step(
            model,
            [batch(device)],
            nn.CrossEntropyLoss(),
            SGD(model.parameters(), lr=0.1),
            precision=Precision(each, device),
            max_norm=0.05,
        )
        norms[each] = report.grad_norm
        weights[each] = torch.cat([p.detach().flatten() for p in model.parameters()])
    assert norms[name] == pytest.approx(norms["fp32"], rel=0.02)  # unscaled before it is measured
    moved = weights["fp32"] - torch.cat(
        [p.detach().flatten() for p in make_model(device).parameters()]
    )
    assert (weights[name] - weights["fp32"]).norm() < 0.05 * moved.norm()


def test_bf16_never_has_a_scaler(device):
    assert Precision("bf16", device).scaler is None
    assert Precision("fp32", device).scaler is None
    assert Precision("fp16", device).scaler is not None


def test_an_fp16_overflow_skips_the_step_and_halves_the_scale(device):
    """F116."""
    model, precision = make_model(device), Precision("fp16", device)
    before = [parameter.clone() for parameter in model.parameters()]
    inputs, targets = batch(device)
    scale = precision.scaler.get_scale()
    report = train_step(
        model,
        [(inputs * 1e30, targets)],
        nn.CrossEntropyLoss(),
        SGD(model.parameters(), lr=0.1),
        precision=precision,
    )
    assert report.found_nonfinite is True
    assert precision.scaler.get_scale() == scale / 2
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), before, strict=True))


@pytest.mark.filterwarnings("error")
def test_a_schedule_does_not_count_a_skipped_update(device):
    model = make_model(device)
    inputs, targets = batch(device)
    inputs = torch.cat([inputs * 1e30, inputs])  # the first window overflows
    loader = DataLoader(TensorDataset(inputs, targets.repeat(2)), 16)
    optimizer = SGD(model.parameters(), lr=1.0)
    trainer = Trainer(
        model,
        nn.CrossEntropyLoss(),
        optimizer,
        scheduler=step_decay(optimizer, every=1, gamma=0.5),
        schedule_per="update",
        precision="fp16",
        device=device,
    )
    history = trainer.fit(loader, epochs=1)
    assert history[0]["skipped"] == 1 and history[0]["updates"] == 1
    assert optimizer.param_groups[0]["lr"] == 0.5


def test_an_unknown_precision_is_refused():
    with pytest.raises(ValueError, match="expected fp32, bf16 or fp16"):
        Precision("int8")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize("name", ["fp32", "bf16", "fp16"])
def test_training_on_a_gpu_with_fused_optimizer_and_pinned_batches(name):
    inputs, targets = batch("cpu")
    loader = DataLoader(TensorDataset(inputs, targets), 4, pin_memory=True)
    model = make_model("cpu")
    trainer = Trainer(
        model,
        nn.CrossEntropyLoss(),
        Adam(model.cuda().parameters(), lr=0.01, fused=True),
        precision=name,
        device="cuda",
    )
    history = trainer.fit(loader, loader, epochs=30)
    assert history.best["val_loss"] < 0.5 * history[0]["val_loss"]
