"""A batch is whatever the user's data is: one seam says what it costs."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import SGD

from course.engine import EngineError, Loss, Trainer, evaluate, train_one_epoch, train_step

X = torch.randn(24, 5, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()


class Net(nn.Module):
    """Takes a dictionary and gives two outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(5, 2)

    def forward(self, row):
        return {"logits": self.linear(row["x"]), "extra": row["x"].sum()}


def make_net() -> Net:
    torch.manual_seed(0)
    return Net()


def rows(*sizes: int) -> list[dict]:
    parts = zip(X.split(sizes), Y.split(sizes), strict=True)
    return [{"x": x, "labels": y, "id": [f"row{i}" for i in range(len(x))]} for x, y in parts]


def loss_of(model, row) -> Loss:
    logits = model(row)["logits"]
    value = F.cross_entropy(logits, row["labels"])
    return Loss(value, len(row["labels"]), logits, row["labels"])


def test_a_run_over_dictionaries_is_the_loop_by_hand():
    ours, theirs = make_net(), make_net()
    optimizer = SGD(theirs.parameters(), lr=0.5, momentum=0.9)
    for _ in range(2):
        for row in rows(8, 8, 8):
            optimizer.zero_grad()
            F.cross_entropy(theirs(row)["logits"], row["labels"]).backward()
            optimizer.step()
    trainer = Trainer(
        ours, optimizer=SGD(ours.parameters(), lr=0.5, momentum=0.9), loss_of=loss_of, device="cpu"
    )
    history = trainer.fit(rows(8, 8, 8), rows(8, 8, 8), epochs=2, progress=False)
    assert torch.equal(ours.linear.weight, theirs.linear.weight)
    logits = theirs({"x": X})["logits"]
    assert history[-1]["val_accuracy"] == pytest.approx((logits.argmax(1) == Y).float().mean())
    assert history[-1]["val_loss"] == pytest.approx(F.cross_entropy(logits, Y).item(), rel=1e-6)


@pytest.mark.parametrize("sizes", [(24,), (12, 12), (6, 6, 6, 6), (3, 5, 16), (1, 23)])
def test_micro_batches_that_weigh_unequally_move_as_one_batch(sizes):
    ours, theirs = make_net().double(), make_net().double()
    F.cross_entropy(theirs.linear(X.double()), Y).backward()
    batches = [row | {"x": row["x"].double()} for row in rows(*sizes)]
    report = train_step(ours, batches, optimizer=SGD(ours.parameters(), lr=0.0), loss_of=loss_of)
    torch.testing.assert_close(
        ours.linear.weight.grad, theirs.linear.weight.grad, rtol=1e-12, atol=0
    )
    assert report.loss == pytest.approx(F.cross_entropy(theirs.linear(X.double()), Y).item())
    assert report.weight == 24


def test_equal_micro_batches_have_the_bits_of_the_usual_loop():
    ours, theirs = make_net(), make_net()
    for row in rows(6, 6, 6, 6):
        (F.cross_entropy(theirs(row)["logits"], row["labels"]) / 4).backward()
    batches = rows(6, 6, 6, 6)
    train_step(ours, batches, optimizer=SGD(ours.parameters(), lr=0.0), loss_of=loss_of)
    assert torch.equal(ours.linear.weight.grad, theirs.linear.weight.grad)


def test_masked_tokens_weigh_by_what_is_left_of_them():
    labels = Y.clone()
    labels[:7] = -100  # the first micro-batch counts 1 of 8, its mean would be too heavy
    parts = [{"x": x, "labels": y} for x, y in zip(X.split(8), labels.split(8), strict=True)]

    def per_token(model, row):
        logits = model(row)["logits"]
        kept = (row["labels"] != -100).sum()
        return Loss(F.cross_entropy(logits, row["labels"]), kept, logits, row["labels"])

    ours, theirs = make_net(), make_net()
    F.cross_entropy(theirs.linear(X), labels).backward()
    train_step(ours, parts, optimizer=SGD(ours.parameters(), lr=0.0), loss_of=per_token)
    torch.testing.assert_close(ours.linear.weight.grad, theirs.linear.weight.grad)
    found = evaluate(ours, parts, loss_of=per_token)
    assert found["loss"] == pytest.approx(F.cross_entropy(theirs.linear(X), labels).item())


def test_a_sum_enters_backward_as_a_sum_and_is_reported_as_a_mean():
    def summed(model, row):
        value = F.cross_entropy(model(row)["logits"], row["labels"], reduction="sum")
        return Loss(value, len(row["labels"]), sums=True)

    ours, theirs = make_net(), make_net()
    F.cross_entropy(theirs.linear(X), Y, reduction="sum").backward()
    report = train_step(ours, rows(5, 19), optimizer=SGD(ours.parameters(), lr=0.0), loss_of=summed)
    torch.testing.assert_close(ours.linear.weight.grad, theirs.linear.weight.grad)
    assert report.loss == pytest.approx(F.cross_entropy(theirs.linear(X), Y).item())


def of_class_one(model, row):
    """A loss of the examples of class 1 alone, which a batch may lack."""
    kept = row["labels"] == 1
    value = F.cross_entropy(model(row)["logits"][kept], row["labels"][kept])
    return Loss(value, int(kept.sum()))


def test_a_batch_of_weight_zero_counts_nothing_in_its_window():
    first, second = ({"x": X[label == Y], "labels": Y[label == Y]} for label in (0, 1))
    ours, theirs = make_net(), make_net()
    of_class_one(theirs, second).value.backward()
    for window in ([first, second], [second, first]):
        report = train_step(
            ours, window, optimizer=SGD(ours.parameters(), lr=0.0), loss_of=of_class_one
        )
        torch.testing.assert_close(ours.linear.weight.grad, theirs.linear.weight.grad)
        assert report.loss == pytest.approx(of_class_one(theirs, second).value.item())


@pytest.mark.parametrize("num", [1, 2])
def test_a_window_of_weight_zero_has_gradients_of_zero(num):
    row = {"x": X[Y == 0], "labels": Y[Y == 0]}
    model = make_net()
    before = model.linear.weight.detach().clone()
    report = train_step(
        model, [row] * num, optimizer=SGD(model.parameters(), lr=0.1), loss_of=of_class_one
    )
    assert torch.equal(model.linear.weight, before)
    assert report.loss == 0 and report.weight == 0


def test_a_gradient_penalty_is_validated_with_a_graph_and_says_so():
    def penalised(model, row):
        x = row["x"].clone().requires_grad_(True)
        logits = model(row | {"x": x})["logits"]
        slope = torch.autograd.grad(logits.sum(), x, create_graph=model.training)[0]
        return Loss(F.cross_entropy(logits, row["labels"]) + slope.square().mean(), len(x))

    model = make_net()
    with pytest.warns(UserWarning, match="validation builds graphs too"):
        found = evaluate(model, rows(8, 16), loss_of=penalised)
    expected = F.cross_entropy(model.linear(X), Y) + model.linear.weight.sum(0).square().mean()
    assert found["loss"] == pytest.approx(expected.item(), rel=1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = Trainer(
            model, optimizer=SGD(model.parameters(), lr=0.1), loss_of=penalised, device="cpu"
        )
        assert len(trainer.fit(rows(8, 16), rows(8, 16), epochs=2, progress=False)) == 2


class Counting:
    """Carries a state from batch to batch, as a recurrent net's hidden state is carried."""

    def __init__(self) -> None:
        self.carried, self.starts = 0.0, 0

    def start_pass(self) -> None:
        self.carried, self.starts = 0.0, self.starts + 1

    def state_dict(self):
        return {"carried": self.carried}

    def load_state_dict(self, state):
        self.carried = state["carried"]

    def __call__(self, model, row):
        value = F.cross_entropy(model(row)["logits"] * (1 + self.carried), row["labels"])
        self.carried += float(row["x"].mean().detach())
        return Loss(value, len(row["labels"]))


def test_carried_state_starts_each_pass_is_put_back_after_validation_and_resumed(tmp_path):
    def run(directory, updates, resume=None):
        model, carrying = make_net(), Counting()
        optimizer = SGD(model.parameters(), lr=0.5)
        trainer = Trainer(
            model, optimizer=optimizer, loss_of=carrying, device="cpu", run_dir=directory
        )
        trainer.fit(rows(8, 8, 8), rows(12, 12), max_updates=updates, resume=resume, progress=False)
        return model.linear.weight, carrying

    whole, _ = run(tmp_path / "whole", 5)
    _, carrying = run(tmp_path / "cut", 4)  # inside the second epoch, then validated
    assert carrying.carried == pytest.approx(float(X[:8].mean()), rel=1e-5)
    resumed, _ = run(tmp_path / "cut", 5, resume="auto")
    assert torch.equal(resumed, whole)


def test_one_epoch_takes_it_too():
    model = make_net()
    optimizer = SGD(model.parameters(), lr=0.1)
    first = train_one_epoch(model, rows(12, 12), optimizer=optimizer, loss_of=loss_of)
    assert train_one_epoch(model, rows(12, 12), optimizer=optimizer, loss_of=loss_of) < first


@pytest.mark.parametrize(("returned", "says"), [
    (lambda m, b: 1.0, "returned a float, expected a Loss"),
    (lambda m, b: {"loss": 1}, "returned a dict, expected a Loss"),
    (lambda m, b: Loss(m(b)["logits"]), r"returned \[8, 2\], expected a single number"),
    (lambda m, b: Loss(torch.ones(())), "the loss has no graph"),
    (lambda m, b: Loss(m(b)["logits"].sum(), -3), "gave the weight -3: expected .* above 0"),
    (lambda m, b: Loss(m(b)["logits"].sum(), torch.ones(3)), "the weight tensor"),
    (lambda m, b: Loss(m(b)["logits"].sum(), torch.tensor(-1.0)), "the weight tensor"),
    (lambda m, b: Loss(m(b)["logits"].sum(), "8"), "the weight '8'"),
])  # fmt: skip
def test_what_is_no_loss_is_refused(returned, says):
    model = make_net()
    trainer = Trainer(
        model, optimizer=SGD(model.parameters(), lr=0.1), loss_of=returned, device="cpu"
    )
    with pytest.raises(EngineError, match=says):
        trainer.fit(rows(8, 16), epochs=1, progress=False)


PERFECT = nn.Embedding.from_pretrained(10 * torch.eye(7))


@pytest.mark.parametrize("length", [1, 5, 7])
def test_a_language_models_accuracy_is_found_whatever_its_length(length):
    def flat(outputs, targets):
        return F.cross_entropy(outputs.flatten(0, 1), targets.flatten())

    tokens = torch.randint(0, 7, (20, length))
    wrong = tokens.clone()
    wrong[:5] = (wrong[:5] + 1) % 7
    assert evaluate(PERFECT, [(tokens, wrong)], flat)["accuracy"] == 0.75


def test_metrics_of_targets_in_a_dictionary_count_examples():
    targets = {"a": torch.zeros(10, dtype=torch.long), "b": torch.zeros(10)}

    def criterion(outputs, targets):
        return F.cross_entropy(outputs, targets["a"])

    found = evaluate(
        nn.Linear(5, 2),
        [(X[:10], targets)],
        criterion,
        metrics={"one": lambda o, t: torch.ones(())},
    )
    assert found["one"] == 1.0
