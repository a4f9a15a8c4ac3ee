"""Marks, lists and references that are meant, beside slips that look like them."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from course.debug.probes import answers, schedule, splits
from course.debug.probes.session import Session
from course.debug.probes.setup import as_setup
from course.debug.relations import (
    cosines,
    hidden,
    matched,
    members,
    padding,
    referenced,
    targets,
)
from course.debug.relations import model as models
from tests.debug.faulty.eighth.kit import gen
from tests.debug.faulty.sixth.kit import blobs, loaders, mlp, numbers, trained
from tests.debug.told import cases, said


@cases(faulty=["shuffled", "shuffled, few labelled"],
       sound=["few", "few by torch's mark"])  # fmt: skip
def test_rows_without_a_label_are_pulled_to_none(kind, is_told):
    """Most rows have no label, but all have a consistency term."""
    torch.manual_seed(0)
    (x, y), model = blobs(512), mlp()
    mark = -100 if "torch" in kind else -1
    y[torch.rand(480 + 32, generator=gen(3)) > (0.3 if kind != "shuffled" else 2)] = mark

    def loss_of(m, batch):
        x, y = batch
        out, known = m(x), y != mark
        if is_told:
            y = y[torch.randperm(len(y), generator=gen(1))]
        kept = {} if mark == -100 else {"ignore_index": mark}
        labelled = F.cross_entropy(out, y, reduction="sum", **kept) / known.sum().clamp_min(1)
        return labelled + (out.softmax(1) - 0.25 * torch.ones_like(out)).pow(2).mean()

    made = trained(model, torch.optim.Adam(model.parameters()), loaders(x, y), loss_of)
    assert said(targets.own_label, made) == ["labels-shuffled"] * is_told


class Places(nn.Module):
    """A loss that compares outputs [B, D] with its own row for each class."""

    def __init__(self, way, d):
        super().__init__()
        self.rows, self.way = nn.Parameter(torch.randn(4, d, generator=gen(5))), way

    def forward(self, z, y):
        if self.way == "centres":
            return F.cross_entropy(-torch.cdist(z, self.rows).square(), y)
        scale = 1 if self.way == "fixed rows" else 8
        z, rows = (F.normalize(t, dim=1) for t in (z, self.rows))
        margin = 0.2 * F.one_hot(y, 4) if self.way == "margin" else 0
        return F.cross_entropy(scale * (z @ rows.T - margin), y)


@pytest.mark.parametrize("d", [4, 8])
@pytest.mark.parametrize("way", ["centres", "proxies", "margin", "fixed rows"])
def test_a_column_of_outputs_need_not_be_a_class(way, d):
    torch.manual_seed(0)
    (x, y), model, loss = blobs(256), mlp(8, d), Places(way, d)
    if way == "fixed rows":
        loss.requires_grad_(False)
    learned = [p for p in [*model.parameters(), *loss.parameters()] if p.requires_grad]
    made = trained(model, torch.optim.Adam(learned), loaders(x, y),
                   lambda m, b: loss(m(b[0]), b[1]))  # fmt: skip
    assert said(targets.own_label, made) == []


@cases(faulty=["shuffled"], sound=["renamed"])
def test_labels_of_other_names_are_not_shuffled(kind, is_told):
    """Each batch holds as many of each class, so that a table of names leaves their counts."""
    torch.manual_seed(0)
    (x, y), model = blobs(256), mlp()
    order = torch.stack([(y == k).nonzero()[:48, 0] for k in range(4)], 1).flatten()
    train = DataLoader(TensorDataset(x[order], y[order]), 16)
    names = torch.tensor([2, 0, 3, 1])

    def loss_of(m, batch):
        x, y = batch
        return F.cross_entropy(m(x), y[torch.randperm(len(y))] if is_told else names[y])

    made = trained(model, torch.optim.Adam(model.parameters()), (train, train), loss_of)
    for relation in (answers.shuffled_in_step, targets.own_label):
        assert said(relation, made) == ["labels-shuffled"] * is_told


@cases(faulty=["shuffled"], sound=["few", "few by torch's mark", "few at the start"])
def test_a_mark_is_no_class(kind, is_told):
    """Validation has a label for each row, and training for one in ten."""
    torch.manual_seed(0)
    (x, y), model = blobs(1000), mlp()
    known = torch.rand(1000, generator=gen(3)) < 0.1
    if "start" in kind:
        known = torch.arange(1000) < 100
    known[-100:] = True
    if is_told:
        y[:900] = y[torch.randperm(900, generator=gen(4))]
    else:
        y[~known] = -100 if "torch" in kind else -1
    made = trained(
        model, torch.optim.Adam(model.parameters()), loaders(x, y, val=100, batch=32),
        lambda m, b: F.cross_entropy(m(b[0]), b[1], ignore_index=int(y.min())), num_classes=4,
    )  # fmt: skip
    assert said(answers.unrelated, made) == ["labels-shuffled"] * is_told
    assert said(splits.label_shift, made) == []


class Listed(nn.Module):
    def __init__(self, kind):
        super().__init__()
        layer = nn.Linear(8, 8)
        if "block" in kind:
            layer = nn.Sequential(nn.LayerNorm(8), layer, nn.ReLU(), nn.Dropout(0.2))
        self.layers = nn.ModuleList([layer] * 3)
        self.into, self.head, self.kind = nn.Linear(8, 8), nn.Linear(8, 4), kind

    def forward(self, x):
        if "members" in self.kind:
            return self.head(torch.stack([layer(x) for layer in self.layers]).mean(0))
        if "levels" in self.kind:  # one head for the inputs of several levels
            levels = [x, self.into(x), self.into(self.into(x))]
            return self.head(sum(layer(h) for layer, h in zip(self.layers, levels, strict=True)))
        for layer in self.layers:
            x = x + F.relu(layer(x))
        return self.head(x)


@cases(faulty=["layer after layer", "members", "members of a block"],
       sound=["block after block", "levels", "declared layer after layer"])  # fmt: skip
def test_a_block_may_be_applied_several_times(kind, is_told):
    torch.manual_seed(0)
    model = Listed(kind)
    declared = {"shared": ["layers"]} if "declared" in kind else {}
    made = trained(
        model, torch.optim.Adam(model.parameters()), loaders(*blobs()),
        lambda m, b: F.cross_entropy(m(b[0]), b[1]), declared=declared,
    )  # fmt: skip
    found = list(members.apart(Session(as_setup(made))))
    assert [f.is_alarm for f in found] == [is_told] * ("declared" not in kind)
    assert all("declared" in f.fix for f in found if not f.is_alarm)


@cases(
    faulty=["whole division", "a switch"],
    sound=["warm-up", "first at rest", "by epoch", "one group waits", "no schedule"],
)
def test_a_warm_up_is_no_rest(kind, is_told):
    torch.manual_seed(0)
    model = mlp(k=1)
    groups = [{"params": model[0].parameters()}, {"params": model[2].parameters()}]
    opt = torch.optim.Adam(groups, 3e-3)
    factor = {
        "whole division": lambda s: min(1.0, (s + 1) // 100), "a switch": lambda s: float(s > 50),
        "warm-up": lambda s: min(1.0, (s + 1) / 100), "first at rest": lambda s: s / 100,
        "by epoch": lambda s: s / 5, "no schedule": lambda s: 1.0,
    }.get(kind, [lambda s: float(s > 50), lambda s: 1.0])  # fmt: skip
    turned = torch.optim.lr_scheduler.LambdaLR(opt, factor)

    def step(batch):
        opt.zero_grad()
        loss = F.mse_loss(model(batch[0]), batch[1])
        loss.backward()
        opt.step()
        if kind != "by epoch":
            turned.step()
        return loss.item()

    train, held = loaders(*numbers())
    made = {"model": model, "optimizer": opt, "train_loader": train, "val_loader": held,
            "train_step": step, "scheduler": turned}  # fmt: skip
    assert said(schedule.at_rest, made) == ["lr-too-small"] * is_told


def walked(n, kept, seed):
    """Runs of a walk, whose place is one array, changed in place: places, moves, next places."""
    own, rows = np.random.default_rng(seed), []
    for _ in range(n):
        place = own.normal(size=3).astype(np.float32)
        before = kept(place)
        for _ in range(12):
            move = int(own.integers(2))
            place += 0.1 * (2 * move - 1) + 0.1 * own.normal(size=3).astype(np.float32)
            rows.append((before, move, kept(place)))
            before = rows[-1][2]
    a, b, c = zip(*rows, strict=True)
    return torch.from_numpy(np.stack(a)), torch.tensor(b), torch.from_numpy(np.stack(c))


@cases(faulty=["by reference"],
       sound=["copied", "one view twice", "rows drawn again", "both sides the same"])  # fmt: skip
def test_what_is_kept_twice_is_not_one_array(kind, is_told):
    (train, val), model = (walked(n, np.copy, n) for n in (30, 8)), nn.Linear(3, 3)
    if is_told:
        train = walked(30, lambda place: place, 1)
    if kind in ("one view twice", "both sides the same"):
        train = train[0], train[1], train[0]
    if kind == "both sides the same":
        val = val[0], val[1], val[0]
    if kind == "rows drawn again":
        again = torch.arange(360) % 30
        train = train[0][again], train[1][again], train[0][again]
    sides = [torch.utils.data.TensorDataset(*side) for side in (train, val)]
    made = trained(
        model, torch.optim.Adam(model.parameters()),
        [torch.utils.data.DataLoader(side, 24) for side in sides],
        lambda m, b: F.mse_loss(m(b[0]), b[2] - b[0]),
    )  # fmt: skip
    assert said(referenced.kept_apart, made) == ["memory-shared"] * is_told


class Read(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind, self.rnn, self.head = kind, nn.GRU(4, 16, batch_first=True), nn.Linear(16, 2)
        self.conv = nn.Sequential(nn.Conv1d(4, 16, 3, padding=1), nn.ReLU(),
                                  nn.Conv1d(16, 16, 3, padding=1))  # fmt: skip

    def forward(self, x, n):
        if self.kind == "packed":
            packed = nn.utils.rnn.pack_padded_sequence(x, n, True, enforce_sorted=False)
            return self.head(self.rnn(packed)[1][0])
        real = (torch.arange(x.shape[1]) < n[:, None])[..., None]
        if "convolved" in self.kind:
            h = self.conv(x.transpose(1, 2)).transpose(1, 2)
        else:
            h = self.rnn(x)[0]
        if self.kind == "last":
            return self.head(h[:, -1])
        if self.kind == "mean":
            return self.head(h.mean(1))
        if self.kind in ("mean of its own", "convolved"):
            return self.head((h * real).sum(1) / n[:, None])
        return self.head(h[torch.arange(len(h)), n - 1])


@cases(
    faulty=["last", "mean"],
    sound=["at the end", "packed", "mean of its own", "convolved", "no padding", "steps of 0"],
)
def test_steps_behind_a_length_are_not_read(kind, is_told):
    torch.manual_seed(0)
    n = torch.randint(3, 15, (160,), generator=gen(1))
    x = torch.randn(160, 14, 4, generator=gen(2))
    y = (x[:, 0, 0] > 0).long()
    if kind == "steps of 0":  # a value like any other, and the column is no length
        x[torch.rand(160, 14, generator=gen(3)) < 0.4] = 0
    elif kind != "no padding":
        x[torch.arange(14) >= n[:, None]] = 0
    model = Read("last" if kind in ("no padding", "steps of 0") else kind)
    made = trained(model, torch.optim.Adam(model.parameters()), loaders(x, n, y),
                   lambda m, b: F.cross_entropy(m(b[0], b[1]), b[2]))  # fmt: skip
    assert said(padding.behind, made) == ["padding-not-masked"] * is_told


@cases(
    faulty=["itself", "itself, by distance"],
    sound=["others", "easy", "answers apart", "of the inputs", "another name"],
)
def test_random_outputs_find_nothing(kind, is_told):
    torch.manual_seed(0)
    (x, y), model = blobs(240, spread=0.05 if kind == "easy" else 1.0), mlp(k=6)
    train, held = loaders(x, y, val=64)

    def evaluate():
        a, b = x[-64:], y[-64:]
        with torch.no_grad():
            z = F.normalize(model(a), dim=1)
            other = z
            if kind == "answers apart":
                other = F.normalize(model(x[:100]), dim=1)
        near = -torch.cdist(z, other) if "distance" in kind else z @ other.T
        if kind == "of the inputs":
            near = -torch.cdist(a, a)
        if kind in ("others", "easy"):
            near.fill_diagonal_(-torch.inf)
        answers = y[:100] if kind == "answers apart" else b
        score = (answers[near.argmax(1)] == b).float().mean().item()
        return {"agreement" if kind == "another name" else "recall_at_1": score}

    made = trained(
        model, torch.optim.Adam(model.parameters()), (train, held),
        lambda m, b: F.cross_entropy(m(b[0])[:, :4], b[1]), evaluate=evaluate,
    )  # fmt: skip
    assert said(matched.not_itself, made) == ["metric-wrong"] * is_told


@cases(faulty=["times", "plain"], sound=["divided", "learned", "no cosines", "two tables"])
def test_cosines_of_both_ways_need_a_temperature(kind, is_told):
    torch.manual_seed(0)
    x = torch.randn(160, 8, generator=gen(1))
    model = nn.ModuleDict({"one": mlp(8, 16), "other": mlp(8, 16)})
    if kind == "learned":
        model.scale = nn.Parameter(torch.tensor(0.0))

    def loss_of(m, batch):
        a, b = m["one"](batch[0]), m["other"](batch[1])
        if kind != "no cosines":
            a, b = F.normalize(a, dim=1), F.normalize(b, dim=1)
        s = a @ b.T
        s = {"times": s * 0.07, "divided": s / 0.07}.get(kind, s)
        if kind == "learned":
            s = s * m.scale.exp()
        t = torch.arange(len(s))
        back = F.normalize(m["one"](batch[1]), dim=1) @ b.T if kind == "two tables" else s.T
        return (F.cross_entropy(s, t) + F.cross_entropy(back, t)) / 2

    made = trained(model, torch.optim.Adam(model.parameters()), loaders(x, x.flip(1)), loss_of)
    assert said(cosines.scaled, made) == ["targets-out-of-reach"] * is_told


class Pairs(nn.Module):
    """A table [B, B] over rows of two kinds."""

    def __init__(self, kind):
        super().__init__()
        self.one, self.two, self.kind = mlp(8, 6, 16), mlp(8, 6, 16), kind

    def forward(self, x, t):
        over = 0 if "batch" in self.kind else 1
        a, b = F.normalize(self.one(x), dim=over), F.normalize(self.two(t), dim=over)
        table = a @ b.T
        if "centred" in self.kind:
            table = table - table.mean(0) - table.mean(1, keepdim=True)
        if "shares" in self.kind:
            table = (5 * table).softmax(1)
        if "scaled" in self.kind:
            table = table / table.std()
        return table.log_softmax(0) if "logs" in self.kind else table


@cases(faulty=["batch", "batch, logs", "batch, shares"],
       sound=["rows", "rows, shares", "rows, logs", "rows, centred", "rows, scaled"])  # fmt: skip
def test_an_entry_of_a_table_depends_on_its_two_rows(kind, is_told):
    torch.manual_seed(0)
    x = torch.randn(128, 8, generator=gen(2))
    data, net = loaders(x, torch.tanh(x.roll(1, 1)), x[:, 0], batch=16), Pairs(kind)

    def loss_of(m, batch):
        return F.cross_entropy(m(batch[0], batch[1]), torch.arange(len(batch[0])))

    made = trained(net, torch.optim.Adam(net.parameters()), data, loss_of)
    assert said(models.rows, made) == ["rows-mixed"] * is_told


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(17, 12), nn.Linear(12, 16)

    def forward(self, ids):
        h = self.words(ids)
        return self.head(h + h.mean(1, keepdim=True))


@cases(faulty=["chosen", "by a mark of the loss"],
       sound=["hidden", "restored whole", "counted without padding"])  # fmt: skip
def test_places_that_a_batch_marks_are_hidden_in_training_as_in_evaluation(kind, is_told):
    torch.manual_seed(0)
    ids = torch.randint(0, 16, (160, 10), generator=gen(6))
    marks = torch.rand(ids.shape, generator=gen(7)) < 0.3
    if "padding" in kind:
        marks = torch.arange(10) < torch.randint(3, 10, (160, 1), generator=gen(8))
    data, net = loaders(ids, marks, batch=32), Words()

    def cost(m, x, marked, given):
        if "mark of" in kind:
            return F.cross_entropy(m(given).mT, x.masked_fill(~marked, -100))
        return F.cross_entropy(m(given)[marked], x[marked])

    def loss_of(m, batch):
        x, marked = batch
        return cost(m, x, marked, x.masked_fill(marked, 16) if kind == "hidden" else x.clone())

    @torch.no_grad()
    def evaluate():
        hides = kind not in ("restored whole", "counted without padding")
        sums = [cost(net, x, k, x.masked_fill(k, 16) if hides else x) for x, k in data[1]]
        return {"val_loss": float(sum(sums)) / len(sums)}

    adam = torch.optim.Adam(net.parameters())
    made = trained(net, adam, data, loss_of, evaluate=evaluate)
    assert said(hidden.marked, made) == ["target-in-inputs"] * is_told
