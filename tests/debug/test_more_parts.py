"""Everyday bugs of batches with more parts than inputs and targets, as trainers write them."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, Subset

from course.debug import diagnose
from tests.debug.faulty.sixth.kit import (
    blobs,
    loaders,
    mlp,
    pictures,
    setup,
    stepper,
    trained_pairs,
)


class Named(Dataset):
    """Rows with a label, an id and a name."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return {"id": i, "label": self.y[i], "features": self.x[i], "name": f"row {i}"}


class Answering(nn.Module):
    """Gives a dictionary."""

    def __init__(self, end=None):
        super().__init__()
        self.net, self.end = mlp(), end or nn.Identity()

    def forward(self, features):
        return {"logits": self.end(self.net(features))}


def cost(model, batch):
    return F.cross_entropy(model(batch["features"])["logits"], batch["label"])


def named(*, end=None, shuffle=True, overlap=0, axis=1, eps=1e-8, copied=False, carried=False):
    torch.manual_seed(0)
    x, y = blobs(n=240, spread=1.5)
    order = torch.arange(240) if shuffle else torch.cat([y[:180].argsort(), torch.arange(180, 240)])
    x, y = x[order], y[order]
    loader = DataLoader(Named(x[: 180 + overlap], y[: 180 + overlap]), 4, shuffle=shuffle)
    held = DataLoader(Named(x[180:], y[180:]), 4)
    model = Answering(end)
    learner = copy.deepcopy(model) if copied else model
    optimizer = torch.optim.Adam(learner.parameters(), 1e-3, eps=eps)
    sums = {"hits": 0, "seen": 0}

    def evaluate():
        if not carried:
            sums.update(hits=0, seen=0)
        model.eval()
        with torch.no_grad():
            for batch in held:
                said = model(batch["features"])["logits"].argmax(axis)
                sums["hits"] += (said == batch["label"]).sum().item()
                sums["seen"] += len(said)
        model.train()
        return {"accuracy": sums["hits"] / sums["seen"]}

    step = stepper(learner, optimizer, cost)
    more = {} if copied else {"loss_of": cost}
    return setup(model, optimizer, loader, held, step=step, evaluate=evaluate, **more)


FAULTS = {
    "double-softmax": {"end": nn.Softmax(-1)},
    "single-class-batches": {"shuffle": False},
    "leak-overlap": {"overlap": 30},
    "metric-wrong": {"axis": 0},
    "lr-too-small": {"eps": 100.0},
    "optimizer-holds-another": {"copied": True},
    "metric-not-reset": {"carried": True},
}


@pytest.mark.parametrize("told", FAULTS)
def test_an_everyday_bug_is_told_where_batches_have_ids_and_names(told):
    report = diagnose(named(**FAULTS[told]))
    assert report.alarms and report.alarms[0].id == told, str(report)


def test_batches_with_ids_and_names_are_left_alone():
    report = diagnose(named())
    assert report.ok and "metric.accuracy" in report.checked, str(report)


class Sentences(Dataset):
    """Token ids of any length and whether one of them is 1."""

    def __init__(self, seed, n=160):
        g = torch.Generator().manual_seed(seed)
        lengths = torch.randint(4, 12, (n,), generator=g).tolist()
        self.rows = [torch.randint(1, 8, (k,), generator=g) for k in lengths]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i], int((self.rows[i] == 1).any())


class Reader(nn.Module):
    """Works out its own loss from the labels."""

    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(8, 16), nn.Linear(16, 2)

    def forward(self, ids, mask, labels):
        logits = self.out((self.embed(ids) * mask[..., None]).amax(1))
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}


def read(*, seed=1, shuffled=False):
    torch.manual_seed(0)

    def collate(rows):
        ids = nn.utils.rnn.pad_sequence([ids for ids, _ in rows], batch_first=True)
        labels = torch.tensor([label for _, label in rows])
        if shuffled:
            labels = labels[torch.randperm(len(labels))]
        return {"ids": ids, "mask": (ids != 0).float(), "labels": labels}

    loader = DataLoader(Sentences(0), 16, shuffle=True, collate_fn=collate)
    held = DataLoader(Subset(Sentences(seed), range(40)), 16, collate_fn=collate)
    model = Reader()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    loss_of = lambda m, batch: m(**batch)["loss"]  # noqa: E731
    step = stepper(model, optimizer, loss_of)
    return setup(model, optimizer, loader, held, step=step, loss_of=loss_of)


@pytest.mark.parametrize(
    ("fault", "told"),
    [({}, []), ({"shuffled": True}, ["labels-shuffled"]), ({"seed": 0}, ["leak-overlap"])],
)
def test_sentences_with_labels_that_the_model_gets_are_asked_too(fault, told):
    report = diagnose(read(**fault))
    assert [a.id for a in report.alarms][:1] == told, str(report)


@pytest.mark.parametrize("raw", [True, False])
def test_a_loss_of_shares_that_gets_raw_numbers_is_told(raw):
    torch.manual_seed(0)
    x, _, masks = pictures(160)
    model = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1))

    def dice(out, y):
        p, y = (out if raw else out.sigmoid()).flatten(1), y.flatten(1)
        return 1 - ((2 * (p * y).sum(1) + 1) / (p.sum(1) + y.sum(1) + 1)).mean()

    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    report = diagnose(trained_pairs(model, optimizer, loaders(x, masks[:, None]), dice))
    assert [a.id for a in report.alarms][:1] == ["missing-log-softmax"] * raw, str(report)


class Filler(nn.Module):
    """Hides the places by itself, unless `shows`, and is told which they are."""

    def __init__(self, shows):
        super().__init__()
        self.shows = shows
        self.net = nn.Sequential(nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, 12))

    def forward(self, x, hidden):
        seen = x if self.shows else x.masked_fill(hidden, 0.0)
        return self.net(torch.cat([seen, hidden.float()], 1))


@pytest.mark.parametrize("shows", [True, False])
def test_a_model_that_hides_the_places_itself_does_not_see_the_targets(shows):
    torch.manual_seed(0)
    x = torch.tanh(torch.randn(300, 3) @ torch.randn(3, 12)) + 0.1 * torch.randn(300, 12)
    model = Filler(shows)
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)

    def loss_of(m, batch):
        hidden = torch.rand_like(batch[0]) < 0.35
        return (m(batch[0], hidden) - batch[0])[hidden].square().mean()

    step = stepper(model, optimizer, loss_of)
    report = diagnose(setup(model, optimizer, *loaders(x, val=80, batch=20), step=step))
    assert [a.id for a in report.alarms] == ["target-in-inputs"] * shows, str(report)


@pytest.mark.parametrize("mark, told", [(-1, []), (9, ["label-out-of-range"])])
def test_a_label_below_the_classes_may_mark_an_example_without_one(mark, told):
    """Two thirds are unlabelled, in training only."""
    torch.manual_seed(0)
    x, y = blobs(n=420, k=4)
    unlabelled = (torch.rand(420) < 0.65) & (torch.arange(420) < 320)
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)

    def loss_of(m, batch):
        inputs, targets = batch
        known = targets != mark
        cost = F.cross_entropy(m(inputs), targets, ignore_index=mark, reduction="sum")
        return cost / known.sum().clamp(min=1)

    sides = loaders(x, torch.where(unlabelled, mark, y), val=100, batch=32)
    step = stepper(model, optimizer, loss_of)
    found = diagnose(setup(model, optimizer, *sides, step=step, loss_of=loss_of, num_classes=4))
    assert [a.id for a in found.alarms if a.id != "label-shift"] == told, str(found)
    assert bool(told) or found.ok, str(found)
