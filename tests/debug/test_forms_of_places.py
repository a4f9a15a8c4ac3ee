"""Totals, draws, mixtures, places and tables: sound makes, beside slips in them."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset, default_collate

from course.debug.probes import clearing, metric, sums
from course.debug.relations import (
    background,
    kept,
    lookups,
    mixed,
    rebatched,
    unread,
    written,
)
from tests.debug.told import cases, said


def gen(seed):
    return torch.Generator().manual_seed(seed)


def loader(*columns, size=16, shuffle=False, **more):
    return DataLoader(TensorDataset(*columns), size, shuffle=shuffle, **more)


def made(model, loss_of, train, val=None, scores=None, opt=None, **more):
    """A plain step, and the mean of what `scores` says of a batch over all examples."""
    opt = opt or torch.optim.SGD(model.parameters(), 0.05)

    def step(batch):
        model.train()
        opt.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        opt.step()
        return loss.item()

    def evaluate():
        model.eval()
        total, count = {}, 0
        with torch.no_grad():
            for batch in val:
                rows = len(batch[0])
                count += rows
                for name, value in scores(model, batch).items():
                    total[name] = total.get(name, 0.0) + float(value) * rows
        return {name: value / count for name, value in total.items()}

    return {
        "model": model, "optimizer": opt, "train_loader": train, "train_step": step,
        "val_loader": val, "evaluate": evaluate if scores else None, "loss_of": loss_of, **more,
    }  # fmt: skip


def blobs(rows, seed=1):
    y = torch.randint(0, 4, (rows,), generator=gen(seed))
    return torch.randn(4, 6, generator=gen(7))[y] + torch.randn(rows, 6, generator=gen(seed + 1)), y


def cross_entropy(model, batch):
    return F.cross_entropy(model(batch[0]), batch[1])


# Scores


class Drops(nn.Module):
    def forward(self, x):
        return F.dropout(x, 0.3, training=True)


def mean_of_roots(kind):
    """Root errors averaged over batches, or dropout in evaluation by a seed of its own."""
    torch.manual_seed(0)
    drops = [Drops()] if kind == "dropout stays on" else []
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), *drops, nn.Linear(16, 1))
    x = torch.randn(80, 6, generator=gen(3)) * torch.linspace(0.2, 3, 80)[:, None]
    val = loader(x, x[:, :1])

    def scores(m, batch):
        error = F.mse_loss(m(batch[0]), batch[1])
        return {"mse": error if drops else error.sqrt()}

    given = made(model, lambda m, b: F.mse_loss(m(b[0]), b[1]), loader(x, x[:, :1]), val, scores)
    evaluate = given["evaluate"]

    def seeded():
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return evaluate()

    return given | {"evaluate": seeded}


@cases(faulty=["by batch"], sound=["dropout stays on"])
def test_a_score_that_draws_is_not_held_against_other_batches(kind, is_told):
    assert bool(said(rebatched.in_one_batch, mean_of_roots(kind))) is is_told


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.old, self.new = nn.Linear(6, 8), nn.Linear(8, 4), nn.Linear(8, 4)

    def forward(self, x):
        return self.new(self.body(x))


@cases(faulty=["one head"], sound=["an older head"])
def test_an_accuracy_may_be_that_of_an_older_head(kind, is_told):
    torch.manual_seed(0)
    model, val = TwoHeads(), loader(*blobs(96, 4))
    given = made(model, cross_entropy, loader(*blobs(96)), val,
                 lambda m, b: {"acc": (m(b[0]).argmax(1) == b[1]).float().mean()},
                 num_classes=4)  # fmt: skip
    x, y = blobs(50, 9)

    def evaluate():
        scores = given_evaluate()
        with torch.no_grad():
            head = model.old(model.body(x)) if kind == "an older head" else -torch.eye(4)[y]
        return scores | {"final_acc": float((head.argmax(1) == y).float().mean())}

    given_evaluate = given["evaluate"]
    assert bool(said(metric.accuracy, given | {"evaluate": evaluate})) is is_told


@cases(
    faulty=["in place", "anew"],
    sound=["float32", "few", "scaled back", "each rounded"],
)
def test_totals_in_16_bits_do_not_stand_still(kind, is_told):
    torch.manual_seed(0)
    rows = 40 if kind == "few" else 1200
    model, val = nn.Linear(6, 4), loader(*blobs(rows, 4), size=2)

    def evaluate():
        total = torch.zeros((), dtype=torch.float32 if kind == "float32" else torch.bfloat16)
        whole = 0.0
        with torch.no_grad():
            for x, _ in val:
                hits = torch.tensor(float(len(x)))
                if kind == "each rounded":
                    whole += float(hits.bfloat16())
                elif kind == "anew":
                    total = total + hits.bfloat16()
                else:
                    total += hits
                if kind == "scaled back":
                    total *= 0.9
        return {"seen": float(total) + whole}

    given = made(model, cross_entropy, loader(*blobs(64)), val) | {"evaluate": evaluate}
    assert bool(said(sums.stands_still, given)) is is_told


# Steps


@cases(faulty=["cleared each time"], sound=["cleared once", "of the same rows"])
def test_parts_of_a_batch_that_is_a_dictionary(kind, is_told):
    torch.manual_seed(0)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.out = nn.Linear(6, 4)

        def forward(self, batch):
            return self.out(batch["x"])

    x, y = blobs(96)
    rows = [{"x": a, "y": b} for a, b in zip(x, y, strict=True)]
    train = DataLoader(rows, 16, collate_fn=default_collate)
    model = Net()
    opt = torch.optim.SGD(model.parameters(), 0.05)

    def step(batch):
        opt.zero_grad()
        for start in (0, 8):
            start = 0 if kind == "of the same rows" else start
            part = {k: v[start : start + 8] for k, v in batch.items()}
            if kind != "cleared once":
                opt.zero_grad()
            loss = F.cross_entropy(model(part), part["y"]) / 2
            loss.backward()
        opt.step()
        return loss.item()

    given = {"model": model, "optimizer": opt, "train_loader": train, "train_step": step,
             "loss_of": lambda m, b: F.cross_entropy(m(b), b["y"])}  # fmt: skip
    assert bool(said(clearing.thrown_away, given)) is is_told


@cases(
    faulty=["another order"],
    sound=["one order", "only inputs", "only labels", "as they are"],
)
def test_labels_of_mixtures_are_those_of_their_examples(kind, is_told):
    torch.manual_seed(0)

    def loss_of(model, batch):
        x, y = batch
        p = torch.randperm(len(x))
        q = torch.randperm(len(x)) if kind == "another order" else p
        left = x if kind in ("only labels", "as they are") else 0.7 * x + 0.3 * x[p]
        out = model(left)
        if kind in ("only inputs", "as they are"):
            return F.cross_entropy(out, y)
        return 0.7 * F.cross_entropy(out, y) + 0.3 * F.cross_entropy(out, y[q])

    given = made(nn.Linear(6, 4), loss_of, loader(*blobs(64)))
    assert bool(said(mixed.alike, given)) is is_told


class Grid(nn.Module):
    def __init__(self):
        super().__init__()
        self.found, self.box = nn.Linear(6, 9), nn.Linear(6, 18)

    def forward(self, x):
        return self.found(x), self.box(x).reshape(-1, 9, 2)


@cases(
    faulty=["all places"], sound=["where a flag is up", "a score reads them", "no flags are told"]
)
def test_zeros_without_a_target_are_not_learned(kind, is_told):
    torch.manual_seed(0)
    x = torch.randn(64, 6, generator=gen(1))
    flags = (torch.rand(64, 9, generator=gen(2)) < 0.3).float()
    table = (x[:, :2] + 1)[:, None] * flags[..., None]

    def loss_of(model, batch):
        found, box = model(batch[0])
        error = (box - batch[2]).square().sum(-1)
        error = (error * batch[1]).sum() / batch[1].sum() if kind == "where a flag is up" \
            else error.mean()  # fmt: skip
        return error + F.binary_cross_entropy_with_logits(found, batch[1])

    def scores(model, batch):
        _, box = model(batch[0])
        error = (box - batch[2]).abs().mean(-1)
        if kind == "a score reads them":
            return {"l1": error.mean()}
        return {"l1": (error * batch[1]).sum() / batch[1].sum()}

    model = Grid()
    if kind == "no flags are told":
        model.forward = lambda x: (model.found(x)[:, :5], model.box(x).reshape(-1, 9, 2))

        def loss_of(m, batch):
            return (m(batch[0])[1] - batch[2]).square().mean() + m(batch[0])[0].square().mean()

    data = loader(x, flags, table)
    assert bool(said(background.placeholders, made(model, loss_of, data, data, scores))) is is_told


# Tables and networks


@cases(faulty=["as many as users"], sound=["all items", "the most frequent"])
def test_negatives_are_drawn_from_their_own_table(kind, is_told):
    torch.manual_seed(0)
    users, items = nn.Embedding(20, 4), nn.Embedding(200, 4)
    model = nn.ModuleDict({"user": users, "item": items})
    end = 200 if kind == "all items" else 20
    most = 20 if kind == "the most frequent" else 200
    u, i = (torch.randint(0, n, (128,), generator=gen(n)) for n in (20, most))

    def loss_of(m, batch):
        j = torch.randint(0, end, batch[1].shape)
        one = m["user"](batch[0])
        return -F.logsigmoid((one * (m["item"](batch[1]) - m["item"](j))).sum(1)).mean()

    assert bool(said(lookups.in_range, made(model, loss_of, loader(u, i)))) is is_told


@cases(faulty=["the live one"], sound=["a copy", "not declared"])
def test_a_target_network_is_a_copy(kind, is_told):
    torch.manual_seed(0)
    live = nn.Linear(6, 4)
    model = nn.ModuleDict({"live": live, "target": copy.deepcopy(live)})
    if kind == "the live one":
        model["target"] = live
    names = [] if kind == "not declared" else ["target.weight", "target.bias"]
    given = made(model, lambda m, b: F.cross_entropy(m["live"](b[0]), b[1]), loader(*blobs(64)),
                 opt=torch.optim.SGD(live.parameters(), 0.1),
                 declared={"target_parameters": names})  # fmt: skip
    assert bool(said(kept.target_network, given)) is is_told


@cases(faulty=["masked together"], sound=["a copy is masked", "all of one class"])
def test_labels_are_not_masked_with_their_inputs(kind, is_told):
    torch.manual_seed(0)
    ids = torch.randint(0, 9, (96, 8), generator=gen(1))

    def collate(rows):
        ids = torch.stack([row[0] for row in rows])
        labels = ids if kind == "masked together" else ids.clone()
        hit = torch.rand(ids.shape, generator=gen(3)) < 0.3
        ids[hit] = 9
        labels = torch.full_like(labels, 2) if kind == "all of one class" else labels
        return ids, labels.masked_fill(~hit, -100)

    model = nn.Sequential(nn.Embedding(10, 8), nn.Linear(8, 10))
    given = made(model, lambda m, b: F.cross_entropy(m(b[0]).flatten(0, 1), b[1].flatten()),
                 loader(ids, collate_fn=collate))  # fmt: skip
    assert bool(said(written.masked_too, given)) is is_told


class Reads(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.first = nn.Parameter(torch.randn(1, 1, 8))
        self.words = nn.Embedding(10, 8)
        self.mix = nn.TransformerEncoderLayer(
            8, 2, 16, dropout=0.1, batch_first=kind != "along the batch"
        )
        self.out = nn.Linear(8, 4)
        self.kind = kind
        if kind == "begins at zero":
            nn.init.zeros_(self.out.weight), nn.init.zeros_(self.out.bias)

    def forward(self, batch):
        ids = batch["ids"]
        words = torch.cat([self.first.expand(len(ids), -1, -1), self.words(ids)], 1)
        return self.out(self.mix(0 * words if self.kind == "times zero" else words)[:, 0])


@pytest.mark.parametrize(
    ("kind", "ids"),
    [("along the batch", ["rows-mixed"]), ("times zero", ["inputs-ignored"]),
     ("batch first", []), ("begins at zero", [])],
)  # fmt: skip
def test_inputs_in_a_dictionary_are_read(kind, ids):
    torch.manual_seed(0)
    rows = [
        {"ids": row, "y": row[0] % 4} for row in torch.randint(0, 10, (64, 5), generator=gen(1))
    ]
    train = DataLoader(rows, 16, collate_fn=default_collate)
    given = made(Reads(kind), lambda m, b: F.cross_entropy(m(b), b["y"]), train)
    assert said(unread.inputs, given) == ids
