"""Sound set-ups whose batches or outputs have another form than [B, ...] and [B] are no fault."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from course.debug import climb, diagnose
from course.debug.probes.session import NotChecked
from course.debug.rungs.climbing import Climb


class OfDict(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 2)

    def forward(self, batch):
        return self.linear(batch["x"])


def as_dict(rows):
    return {"x": torch.stack([x for x, _ in rows])}, torch.stack([y for _, y in rows])


def test_inputs_in_a_dict_are_no_error():
    torch.manual_seed(0)
    inputs = torch.randn(96, 6)
    data = TensorDataset(inputs, (inputs[:, 0] > 0).long())
    model = OfDict()
    report = diagnose(
        {
            "model": model,
            "loss_fn": nn.CrossEntropyLoss(),
            "optimizer": torch.optim.Adam(model.parameters(), lr=0.05),
            "train_loader": DataLoader(data, 16, collate_fn=as_dict),
        }
    )
    assert report.findings == []


def test_batches_that_no_plain_step_can_take_are_not_called_an_error():
    model = nn.Linear(6, 2)
    report = diagnose(
        {
            "model": model,
            "loss_fn": nn.CrossEntropyLoss(),
            "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
            "train_loader": [{"a": torch.randn(4, 6), "b": torch.randn(4), "c": ["x"] * 4}],
        }
    )
    assert "raises" not in {finding.id for finding in report.findings}


class NextToken(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(20, 16), nn.Linear(16, 20)
        self.recurrent = nn.GRU(16, 16, batch_first=True)

    def forward(self, tokens):
        return self.head(self.recurrent(self.embedding(tokens))[0])


def loss_of_tokens(outputs, targets):
    return F.cross_entropy(outputs.reshape(-1, 20), targets.reshape(-1))


@pytest.mark.slow
def test_the_ladder_is_climbed_with_classes_along_the_last_axis():
    torch.manual_seed(0)
    rows = (torch.randint(0, 20, (200, 1)) + torch.arange(11)) % 20
    train, val = (TensorDataset(part[:, :-1], part[:, 1:]) for part in (rows[:160], rows[160:]))
    model = NextToken()
    climbed = climb(
        {
            "model": model,
            "loss_fn": loss_of_tokens,
            "optimizer": torch.optim.Adam(model.parameters(), lr=0.01),
            "train_loader": DataLoader(train, 16, shuffle=True),
            "val_loader": DataLoader(val, 16),
        }
    )
    assert climbed.failed is None, climbed


@pytest.mark.parametrize("shape,axis", [((4, 5, 3), 2), ((4, 3, 5), 1), ((4, 3, 2, 5), 1)])
def test_classes_are_looked_for_along_the_axis_that_the_targets_lack(shape, axis):
    asked = Climb.__new__(Climb)
    asked.__dict__["task"] = "classification"
    outputs = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    targets = torch.zeros([size for at, size in enumerate(shape) if at != axis], dtype=torch.long)
    assert torch.equal(asked.answers(outputs, targets), outputs.argmax(axis))
    with pytest.raises(NotChecked, match="axis 1 or 2"):
        asked.answers(torch.randn(4, 5, 5), torch.zeros(4, 5, dtype=torch.long))
