"""What chance or one answer for all explains is no fault: repeats, and scores of constants."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from course.debug.probes.session import Session
from course.debug.probes.setup import as_setup
from course.debug.relations import direction
from tests.debug.faulty import PAIRS
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


RATE = 4e-3
"""At which the metric has moved after a few dozen steps, but not yet by more than chance."""


class Factors(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.user, self.item = nn.Embedding(30, 8), nn.Embedding(40, 8)
        for table in (self.user, self.item):
            nn.init.normal_(table.weight, std=0.1)

    def forward(self, user, item):
        return (self.user(user) * self.item(item)).sum(-1)


def of_pairs(*, sign: float) -> dict:
    """What each user chose, told apart from what they did not; few such pairs are scored."""
    torch.manual_seed(0)
    likes = (torch.randn(30, 3) @ torch.randn(3, 40)) > 1
    users, chosen = likes.nonzero().T
    other = torch.stack([(~likes[u]).nonzero()[torch.randint((~likes[u]).sum(), ())][0]
                         for u in users])  # fmt: skip
    order = torch.randperm(len(users))
    train, val = (TensorDataset(users[n], chosen[n], other[n]) for n in (order[120:], order[:120]))
    model = Factors()
    optimizer = torch.optim.Adam(model.parameters(), RATE)

    def ahead(batch):
        return model(batch[0], batch[1]) - model(batch[0], batch[2])

    def train_step(batch) -> float:
        optimizer.zero_grad()
        loss = -F.logsigmoid(sign * ahead(batch)).mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    def evaluate() -> dict:
        with torch.no_grad():
            return {"auc": float((ahead(val.tensors) > 0).float().mean())}

    return {"model": model, "optimizer": optimizer, "train_loader": DataLoader(train, 64),
            "val_loader": DataLoader(val, 64), "train_step": train_step,
            "evaluate": evaluate}  # fmt: skip


@pytest.mark.parametrize(("sign", "told"), [(-1.0, True), (1.0, False)])
def test_a_share_of_few_rows_is_given_more_steps_to_move(sign, told):
    session = Session(as_setup(of_pairs(sign=sign)))
    start = direction.evaluation_of(session).first["auc"]
    noise = direction.chance(direction.evaluation_of(session), start)
    first = direction.Way(direction.LONG)
    ends, further = direction._ends(session, "auc", start, noise, first)
    assert not ends
    assert further == (direction.Way(direction.LONGER) if told else None)
    made = list(direction.follows(session))
    assert [f.evidence["steps"] for f in made] == [direction.LONGER] * told


@pytest.mark.parametrize("bug", [True, False])
def test_tables_of_which_few_rows_are_read_are_moved_faster(bug):
    """At its own rate the score falls in either direction, by less than chance in one."""
    setup = next(p for p in PAIRS if p.name == "ranking_turned_round").make(bug)
    made = list(direction.follows(Session(as_setup(setup))))
    assert [f.evidence["times_the_rate"] for f in made] == [direction.FASTER] * bug
