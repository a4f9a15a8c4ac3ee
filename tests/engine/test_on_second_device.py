"""The engine on a device that is not the CPU: same bits, resumed both ways, few transfers."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset

from course.engine import Loss, Trainer, evaluate, train_step
from course.engine.precision import Precision
from course.lr_finder import lr_find
from tests.second_device import counted, second_device

NUM, BATCH = 24, 4
OPTIMIZERS = {"SGD": partial(SGD, lr=0.1, momentum=0.9), "Adam": partial(Adam, lr=0.01)}


@pytest.fixture
def second():
    with second_device() as device:
        yield device


def make_parts(optimizer: str = "Adam"):
    """Model and optimizer, both on the CPU: the trainer moves them."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    return model, OPTIMIZERS[optimizer](model.parameters())


def make_loader() -> DataLoader:
    draw = torch.Generator().manual_seed(1)
    inputs, targets = torch.randn(NUM, 4, generator=draw), torch.randint(3, (NUM,), generator=draw)
    order = torch.Generator().manual_seed(2)
    return DataLoader(TensorDataset(inputs, targets), BATCH, shuffle=True, generator=order)


def run(device, *, optimizer="Adam", epochs=3, **options):
    model, moves = make_parts(optimizer)
    scheduler = StepLR(moves, 2, 0.5)
    trainer = Trainer(
        model,
        nn.CrossEntropyLoss(),
        moves,
        scheduler=scheduler,
        accum_steps=2,
        max_norm=0.5,
        seed=0,
        device=device,
        run_dir=options.pop("run_dir", None),
    )
    trainer.fit(make_loader(), make_loader(), epochs=epochs, progress=False, **options)
    return trainer


def assert_same_bits(found: nn.Module, expected: nn.Module) -> None:
    expected = expected.state_dict()
    for name, value in found.state_dict().items():
        assert torch.equal(value.cpu(), expected[name].cpu()), name


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_run_ends_with_the_cpus_bits(optimizer, second):
    there, here = run(second, optimizer=optimizer), run("cpu", optimizer=optimizer)
    assert next(there.model.parameters()).device == second
    assert_same_bits(there.model, here.model)
    assert there.history.epochs[-1]["val_loss"] == here.history.epochs[-1]["val_loss"]


@pytest.mark.parametrize("first,then", [("cpu", "second"), ("second", "cpu"), ("second", "second")])
def test_a_run_goes_on_from_the_other_devices_checkpoint(first, then, second, tmp_path):
    where = {"cpu": torch.device("cpu"), "second": second}
    run(where[first], epochs=1, run_dir=tmp_path / "run")
    resumed = run(where[then], run_dir=tmp_path / "run", resume="auto")
    assert_same_bits(resumed.model, run("cpu").model)


def test_auto_takes_the_accelerator(second):
    model, optimizer = make_parts()
    trainer = Trainer(model, nn.CrossEntropyLoss(), optimizer)
    assert trainer.device.type == second.type


def test_the_optimizer_is_handed_the_parameters_that_the_move_made(second):
    model, optimizer = make_parts()
    old = list(model.parameters())
    Trainer(model, nn.CrossEntropyLoss(), optimizer, device=second)
    held = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    assert all(a is b for a, b in zip(held, model.parameters(), strict=True))
    assert all(a is not b for a, b in zip(held, old, strict=True))


@pytest.mark.parametrize("fused,waits", [(True, 0), (False, 1)])
def test_an_update_copies_its_batch_and_waits_at_most_once(fused, waits, second):
    """Two copies per batch, of inputs and targets. An optimizer that cannot skip a step by itself
    is waited for once per update; everything else is read once per epoch.
    """

    def of_epochs(epochs: int):
        model, _ = make_parts()
        optimizer = Adam(model.to(second).parameters(), fused=fused)
        trainer = Trainer(model, nn.CrossEntropyLoss(), optimizer, max_norm=0.5, device=second)
        with counted() as counts:
            trainer.fit(make_loader(), epochs=epochs, progress=False, log_every=10**6)
        return counts

    short, long = of_epochs(2), of_epochs(6)
    epochs, updates = 4, 4 * NUM // BATCH
    assert long.to_device - short.to_device == 2 * updates
    assert 0 <= long.waits - short.waits - waits * updates <= 4 * epochs
    assert long.to_cpu - short.to_cpu <= 4 * epochs


def test_evaluation_and_the_learning_rate_finder(second):
    results = []
    for device in (torch.device("cpu"), second):
        model, _ = make_parts()
        model.to(device)
        optimizer = Adam(model.parameters(), lr=0.01)
        scores = evaluate(model, make_loader(), nn.CrossEntropyLoss(), device=device)
        curve = lr_find(model, nn.CrossEntropyLoss(), optimizer, make_loader(), steps=20)
        results.append((scores, curve.suggestion))
    assert results[0] == results[1]


@pytest.mark.parametrize("masked", [0, 1, 2])
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_micro_batches_of_weight_zero_there_move_nothing_and_overflow_nothing(
    masked, precision, second
):
    """The first ones have no weight to assume for the others."""
    torch.manual_seed(0)
    x = torch.randn(100, 8)
    grads = []
    for device, weights in ((second, [0.0] * masked + [100.0, 50.0]), ("cpu", [100.0, 50.0])):
        torch.manual_seed(0)
        model = nn.Linear(8, 2).to(device)

        def loss_of(model, batch):
            return Loss(model(batch[0]).float().square().mean(), batch[1])

        batches = [(x.to(device), torch.tensor(weight, device=device)) for weight in weights]
        made = Precision(precision, device)
        report = train_step(
            model, batches, optimizer=SGD(model.parameters(), lr=0.0), loss_of=loss_of,
            precision=made, on_nonfinite="skip",
        )  # fmt: skip
        assert not report.found_nonfinite
        grads.append(model.weight.grad.cpu())
    torch.testing.assert_close(*grads, rtol=1e-5 if precision == "fp32" else 0.01, atol=1e-4)
