"""evaluate: exact means, and a model that comes back as it came."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
import torchmetrics
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from course.engine import EngineError, evaluate


def data(num: int, seed: int = 0, masked: float = 0.0):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(num, 5, dtype=torch.float64, generator=generator)
    targets = torch.randint(0, 3, (num,), generator=generator)
    hidden = torch.rand(num, generator=generator) < masked
    hidden[0] = False
    return inputs, targets.masked_fill(hidden, -100)


@settings(max_examples=40, deadline=None)
@given(
    num=st.integers(1, 40),
    batch_size=st.integers(1, 12),
    masked=st.sampled_from([0.0, 0.6]),
    kind=st.sampled_from(["plain", "weights", "sum"]),
)
def test_loss_and_accuracy_are_those_of_one_big_batch(num, batch_size, masked, kind):
    weight = torch.tensor([0.2, 1.0, 5.0], dtype=torch.float64) if kind == "weights" else None
    inputs, targets = data(num, num, masked)
    torch.manual_seed(num)
    model = nn.Linear(5, 3).double()
    criterion = nn.CrossEntropyLoss(weight=weight, reduction="sum" if kind == "sum" else "mean")
    found = evaluate(model, DataLoader(TensorDataset(inputs, targets), batch_size), criterion)
    with torch.no_grad():
        outputs = model(inputs)
        expected = F.cross_entropy(outputs, targets, weight=weight).item()
    kept = targets >= 0
    accuracy = (outputs.argmax(1) == targets)[kept].double().mean().item()
    assert found["loss"] == pytest.approx(expected, rel=1e-12)
    assert found["accuracy"] == pytest.approx(accuracy, rel=1e-12)
    assert found["num_examples"] == num


def test_a_short_last_batch_counts_for_its_size():
    """N55: six batches of 16 at loss 1 and one of 4 at loss 2 are 1.04, not 1.142857."""
    targets = torch.tensor([1.0] * 96 + [2.0] * 4)
    loader = DataLoader(TensorDataset(torch.zeros(100), targets), 16)
    found = evaluate(nn.Identity(), loader, lambda _outputs, y: y.mean())
    assert found == {"loss": pytest.approx(1.04, abs=1e-12), "num_examples": 100}


def test_each_module_is_in_its_own_mode_again():
    model = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 3))
    model.train()
    model[1].eval()  # a frozen BatchNorm
    seen = []
    model[2].register_forward_hook(lambda m, *_: seen.append((m.training, torch.is_grad_enabled())))
    inputs, targets = data(8)
    evaluate(model, [(inputs.float(), targets)], nn.CrossEntropyLoss())
    assert seen == [(False, False)]
    assert [module.training for module in model] == [True, False, True, True] and model.training


def test_modes_come_back_after_an_exception():
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout())
    with pytest.raises(RuntimeError):
        evaluate(model, [(torch.zeros(1, 5), torch.zeros(1).long())], nn.CrossEntropyLoss())
    assert model.training and model[1].training and torch.is_grad_enabled()


def test_nothing_is_trained_and_no_buffer_moves():
    model = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)).double()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    evaluate(model, [data(8)], nn.CrossEntropyLoss())
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_an_empty_loader_is_an_error():
    with pytest.raises(EngineError, match="no batch"):
        evaluate(nn.Linear(2, 2), [], nn.CrossEntropyLoss())


def test_all_targets_masked_is_an_error():
    with pytest.raises(EngineError, match="no target counts"):
        batch = torch.zeros(2, 2), torch.full((2,), -100)
        evaluate(nn.Linear(2, 2), [batch], nn.CrossEntropyLoss())


def test_a_batch_that_is_no_pair_is_an_error():
    with pytest.raises(EngineError, match="pair"):
        evaluate(nn.Linear(2, 2), [torch.zeros(2, 2)], nn.CrossEntropyLoss())


def test_regression_has_no_accuracy():
    found = evaluate(nn.Linear(2, 1), [(torch.zeros(4, 2), torch.zeros(4, 1))], nn.MSELoss())
    assert set(found) == {"loss", "num_examples"}


def test_two_classes_by_one_logit_have_an_accuracy():
    outputs, targets = torch.tensor([[2.0], [-1.0], [3.0]]), torch.tensor([[1.0], [1.0], [1.0]])
    found = evaluate(nn.Identity(), [(outputs, targets)], nn.BCEWithLogitsLoss())
    assert found["accuracy"] == pytest.approx(2 / 3)


def test_further_metrics_are_pooled_over_batches(device):
    inputs, targets = data(30)
    model = nn.Linear(5, 3).double().to(device)
    metrics = {
        "f1": torchmetrics.F1Score("multiclass", num_classes=3, average="macro").to(device),
        "top2": lambda out, y: (out.topk(2).indices == y[:, None]).any(1).double(),
        "confidence": lambda out, _y: out.softmax(1).max(1).values.mean(),
    }
    loader = DataLoader(TensorDataset(inputs, targets), 7)
    found = evaluate(model, loader, nn.CrossEntropyLoss(), metrics=metrics)
    with torch.no_grad():
        outputs = model(inputs.to(device)).cpu()
    f1 = torchmetrics.functional.f1_score(
        outputs, targets, "multiclass", num_classes=3, average="macro"
    )
    top2 = (outputs.topk(2).indices == targets[:, None]).any(1).double().mean()
    assert found["f1"] == pytest.approx(f1.item())
    assert found["top2"] == pytest.approx(top2.item())
    assert found["confidence"] == pytest.approx(outputs.softmax(1).max(1).values.mean().item())
    assert evaluate(model, loader, nn.CrossEntropyLoss(), metrics=metrics) == found


class Unfinished:
    def update(self, outputs, targets):
        """Counts nothing, and has no compute()."""


class PerClass(Unfinished):
    def compute(self):
        return torch.ones(3)


@pytest.mark.parametrize(("metric", "says"), [
    (lambda out, y: torch.ones(len(y), 3), r"returned \[7, 3\] for 7 examples: expected one"),
    (lambda out, y: torch.ones(3), r"returned \[3\] for 7"),
    (lambda out, y: torch.ones(3, 3), r"returned \[3, 3\] for 7"),
    (lambda out, y: (0.5, 0.25), r"returned \[2\] for 7"),
    (lambda out, y: None, "returned None"),
    (Unfinished(), r"expected a function .* update\(\) and compute\(\)"),
    (PerClass(), r"compute\(\) returned \[3\], expected one number"),
], ids=["per token", "per class", "matrix", "pair", "none", "unfinished", "classes"])  # fmt: skip
def test_a_metric_that_is_no_mean_over_examples_is_refused(metric, says):
    loader = DataLoader(TensorDataset(*data(14)), 7)
    with pytest.raises(EngineError, match=f"metric 'own'.*{says}"):
        evaluate(nn.Linear(5, 3).double(), loader, nn.CrossEntropyLoss(), metrics={"own": metric})


def test_a_metric_per_example_may_keep_its_last_dimension():
    inputs, targets = data(14)
    found = evaluate(
        nn.Linear(5, 3).double(), DataLoader(TensorDataset(inputs, targets), 5),
        nn.CrossEntropyLoss(), metrics={"first": lambda out, y: y[:, None] == 0},
    )  # fmt: skip
    assert found["first"] == pytest.approx((targets == 0).double().mean().item())


@pytest.mark.parametrize("ignore_index", [0, 2, -100, 255])
@pytest.mark.parametrize("how", ["module", "measured"])
def test_ignored_targets_count_neither_as_right_nor_at_all(ignore_index, how):
    torch.manual_seed(ignore_index + 200)
    criterion = nn.CrossEntropyLoss(ignore_index=ignore_index)
    if how == "measured":

        def criterion(outputs, targets):
            return F.cross_entropy(outputs, targets, ignore_index=ignore_index)

    targets = torch.randint(0, 4, (60,))
    targets[::2] = ignore_index
    outputs = torch.randn(60, 4)
    batches = list(zip(outputs.split(20), targets.split(20), strict=True))
    found = evaluate(nn.Identity(), batches, criterion)["accuracy"]
    oracle = torchmetrics.Accuracy(
        "multiclass", num_classes=4, ignore_index=ignore_index, average="micro"
    )
    assert found == pytest.approx(float(oracle(outputs, targets)))
