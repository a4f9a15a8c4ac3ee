"""What chance or one answer for all explains is no fault: repeats, and scores of constants."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from course.debug.relations import direction
from tests.debug.told import said


def of_labels(*, sign: float, scores: tuple[str, ...]) -> dict:
    """Ten rare labels; a new network calls half of them, one that has begun to learn calls none."""
    torch.manual_seed(0)
    weights = torch.randn(16, 10)

    def data(number: int) -> TensorDataset:
        inputs = torch.randn(number, 16)
        return TensorDataset(inputs, (inputs @ weights + torch.randn(number, 10) > 3.5).float())

    train, val = DataLoader(data(600), 32), DataLoader(data(210), 32)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    criterion = nn.BCEWithLogitsLoss()

    def train_step(batch) -> float:
        optimizer.zero_grad()
        loss = sign * criterion(model(batch[0]), batch[1])
        loss.backward()
        optimizer.step()
        return loss.item()

    def evaluate() -> dict:
        model.eval()
        with torch.no_grad():
            outputs = torch.cat([model(x) for x, _ in val])
        model.train()
        told, true = outputs > 0, torch.cat([y for _, y in val]) > 0
        recall = float((told & true).sum() / true.sum())
        return {k: {"recall": recall, "acc": float((told == true).float().mean())}[k]
                for k in scores}  # fmt: skip

    return {"model": model, "optimizer": optimizer, "train_loader": train, "val_loader": val,
            "train_step": train_step, "evaluate": evaluate}  # fmt: skip


@pytest.mark.parametrize("scores", [("recall",), ("recall", "acc")])
def test_recall_alone_does_not_tell_the_sign_of_a_loss(scores):
    assert said(direction.follows, of_labels(sign=1.0, scores=scores)) == []


def test_another_score_next_to_recall_does():
    made = of_labels(sign=-1.0, scores=("recall", "acc"))
    assert said(direction.follows, made) == ["loss-negated"]


@pytest.mark.parametrize(("name", "one"), [
    ("recall", True), ("val_precision", True), ("micro_f1", True), ("recall@5", False),
    ("precision_at_1", False), ("recall10", False), ("val_acc", False), ("hit_rate", False),
])  # fmt: skip
def test_scores_of_an_order_are_not_raised_by_one_answer(name, one):
    assert direction.is_one_sided(name) == one
