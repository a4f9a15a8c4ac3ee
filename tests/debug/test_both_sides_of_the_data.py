"""Data that is another in the second epoch, in validation or behind a mask: each relation is tried
on several dresses of a fault, and on the sound programs that look like it."""

import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset

from course.data import group_split, takes
from course.debug import climb, diagnose
from course.debug.probes import multiples, splits
from course.debug.relations import (
    cycled,
    factors,
    label_maps,
    masks,
)
from tests.debug.faulty.thirteenth.kit import gen, loader, mlp
from tests.debug.faulty.twelfth.kit import pack
from tests.debug.told import cases, said


def adam(model):
    return torch.optim.Adam(model.parameters(), 3e-3)


@pytest.mark.parametrize("groups", ["none", "by side", "a pair"])
@pytest.mark.parametrize("factor", [1.0, 0.7], ids=["alike", "darker"])
def test_the_ladder_and_the_doctor_agree_on_takes_of_objects(groups, factor):
    """Neither takes an object that is on one side for a shift; both see inputs that are darker."""
    found = takes(600, name="digits", seed=1)
    train, val = group_split(found.groups.numpy(), seed=1)
    x, y = found.images.float().unsqueeze(1) / 128 - 1, found.labels.long()
    model = nn.Sequential(nn.Flatten(), mlp(64, 16, 10))
    made = dict(
        model=model, loss_fn=nn.CrossEntropyLoss(), optimizer=adam(model), num_classes=10,
        train_loader=DataLoader(TensorDataset(x[train], y[train]), 64, shuffle=True),
        val_loader=DataLoader(TensorDataset(x[val] * factor, y[val]), 256),
    )  # fmt: skip
    sides = found.groups[train], found.groups[val]
    if groups != "none":
        made["groups"] = (
            sides if groups == "a pair" else dict(zip(("train", "val"), sides, strict=True))
        )
    looks = [text.split(":")[0] for text in climb(made, top=1)[1].warnings]
    notes = [finding.id for finding in diagnose(made).findings]
    assert looks == notes == ["covariate-shift"] * (factor != 1)


@pytest.mark.parametrize("repeated", [1, 6], ids=["once", "rare rows repeated"])
@pytest.mark.parametrize("missing", [False, True], ids=["all classes", "one class missing"])
def test_label_shift_is_seen_where_an_input_is_a_single_number(missing, repeated):
    """One id per example; rare rows that are repeated for training are no shift."""
    ids = torch.arange(600)
    labels = torch.where(ids % 30 == 0, 3, ids % 3)
    train, val = ids[ids % 4 > 0], ids[ids % 4 == 0]
    train = train[labels[train] != 2] if missing else train
    rare = train[labels[train] == 3].repeat(repeated)
    train = torch.cat([train[labels[train] != 3], rare])
    model = nn.Sequential(nn.Embedding(600, 8), nn.Linear(8, 4))
    made = dict(
        model=model, loss_fn=nn.CrossEntropyLoss(), optimizer=adam(model), num_classes=4,
        train_loader=DataLoader(TensorDataset(train, labels[train]), 32, shuffle=True),
        val_loader=DataLoader(TensorDataset(val, labels[val]), 64),
    )  # fmt: skip
    assert ("label-shift" in said(splits.label_shift, made)) == missing


@pytest.mark.parametrize("shuffled", [True, False])
def test_groups_are_in_the_order_of_the_data_set_even_if_the_loader_shuffles(shuffled):
    """Rows of a patient share six of twelve numbers."""
    who = torch.arange(300).repeat_interleave(5)
    x = torch.randn(1500, 12, generator=gen(3))
    x[:, :6] = torch.randn(300, 6, generator=gen(4))[who]
    train, val = group_split(who.numpy(), 0.3)
    y, model = torch.randint(0, 2, (1500,), generator=gen(5)), mlp(12, 16, 2)
    data = TensorDataset(x[train], y[train])
    made = dict(
        model=model, loss_fn=nn.CrossEntropyLoss(), optimizer=adam(model),
        train_loader=DataLoader(data, 100, shuffle=shuffled),
        val_loader=[(x[val], y[val])],
    )  # fmt: skip
    assert said(splits.told_apart, made) == ["covariate-shift"]
    assert not said(splits.told_apart, made | {"groups": (who[train], who[val])})


class Shifted(Dataset):
    def __init__(self, is_random=True):
        self.x, self.is_random = torch.randn(64, 12, generator=gen(6)), is_random

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        noise = torch.randn(12) if self.is_random else 0
        return self.x[i] + noise, self.x[i, :2]


@cases(
    faulty=["cycle", "list", "cycle in train"],
    sound=["again", "fixed items", "last rows dropped", "drawn in the step", "one pass"],
)
def test_the_second_epoch_reads_the_data_again(kind, is_told):
    torch.manual_seed(0)
    tr = loader(Shifted(kind not in ("fixed items", "last rows dropped")), 16)
    if kind == "last rows dropped":
        tr = loader(Shifted(False), 15, drop_last=True)
    model = mlp(12, 16, 2)
    opt = adam(model)

    def step(batch):
        x, y = batch
        opt.zero_grad()
        loss = F.mse_loss(model(x + (torch.randn(x.shape) if "step" in kind else 0)), y)
        loss.backward()
        opt.step()
        return loss.item()

    def endless():
        while True:
            yield from tr

    kept = list(tr) if kind == "list" else []
    going = {"again": endless, "one pass": endless}.get(kind, lambda: itertools.cycle(kept or tr))()

    def train(n):
        it = itertools.cycle(tr) if kind == "cycle in train" else going
        return [step(next(it)) for _ in range(n)]

    made = pack(model, opt, tr, loss_fn=F.mse_loss, step=step, train=train)
    assert bool(said(cycled.read_again, made)) == is_told


def _regions(n, size, seed):
    """Maps of four classes in no order: blocks with discs on them."""
    g = gen(seed)
    side = torch.arange(size)
    maps = torch.zeros(n, size, size, dtype=torch.long)
    for m in maps:
        for _ in range(4):
            y, x = torch.randint(0, size, (2,), generator=g).tolist()
            r = int(torch.randint(3, 7, (1,), generator=g))
            inside = (side[:, None] - y) ** 2 + (side - x) ** 2 < r * r
            m[inside] = int(torch.randint(0, 4, (1,), generator=g))
    return maps


@cases(
    faulty=["halved", "enlarged", "cut off", "turned"],
    sound=["nearest", "rings on both sides", "grey levels", "read by the model"],
)
def test_label_maps_are_not_interpolated(kind, is_told):
    torch.manual_seed(0)
    train, val = _regions(80, 24, 11), _regions(40, 24, 12)

    def sized(maps, size, mode):
        return F.interpolate(maps[:, None].float(), size, mode=mode)[:, 0]

    if kind == "enlarged":
        train, val = sized(train, 64, "bilinear").round(), sized(val, 64, "nearest")
    elif kind == "turned":
        way = torch.tensor([[0.9, 0.43, 0.0], [-0.43, 0.9, 0.0]]).expand(80, 2, 3)
        places = F.affine_grid(way, (80, 1, 24, 24), align_corners=False)
        train = F.grid_sample(train[:, None].float(), places, align_corners=False)[:, 0].round()
    elif kind == "nearest":
        train, val = sized(train, 12, "nearest"), sized(val, 12, "nearest")
    elif kind == "rings on both sides":
        train, val = (sized(m, 64, "bilinear").round() for m in (train, val))
    else:
        train, val = sized(train, 12, "bilinear"), sized(val, 12, "nearest")
        train = train.floor() if kind == "cut off" else train.round()
        if kind == "grey levels":
            train, val = (m * 30 + torch.randint(0, 30, m.shape) for m in (train, val))
    train, val = train.long(), val.long()
    model = nn.Embedding(4, 2) if kind == "read by the model" else nn.Conv2d(1, 4, 3, padding=1)

    def loss_of(model, batch):
        x, m = batch
        if kind == "read by the model":
            return F.mse_loss(model(m).mean(-1), x[:, 0])
        return F.cross_entropy(model(x), m.clamp_max(3))

    tr, va = (loader((torch.randn(len(m), 1, *m.shape[1:]), m), 8) for m in (train, val))
    made = pack(model, adam(model), tr, loss_of, val_loader=va)
    assert bool(said(label_maps.interpolated, made)) == is_told


@cases(
    faulty=["numbered apart", "items numbered apart"],
    sound=["one table", "drifted", "nothing to learn", "few rows", "other users"],
)
def test_ids_of_pairs_mean_the_same_on_both_sides(kind, is_told):
    torch.manual_seed(0)
    g = gen(13)
    p, q = (torch.randn(n, 3, generator=g) for n in (60, 40))
    u, i = (torch.randint(0, n, (3000,), generator=g) for n in (60, 40))
    r = (p[u] * q[i]).sum(1) + 0.2 * torch.randn(3000, generator=g)
    if kind == "nothing to learn":
        r = torch.randn(3000, generator=g)
    elif kind == "drifted":  # tastes have changed by as much as they were, and the level
        new = p + 0.7 * torch.randn(60, 3, generator=g)
        r[2400:] = 2 + (new[u[2400:]] * q[i[2400:]]).sum(1)
    a = slice(0, 200 if kind == "few rows" else 2400)
    v, j = u[2400:], i[2400:]
    if kind in ("numbered apart", "few rows"):
        v = (v * 7 + 3) % 60
    elif kind == "items numbered apart":
        j = (j * 3 + 7) % 40
    elif kind == "other users":  # with numbers of their own
        v = v + 60

    class Factors(nn.Module):
        def __init__(self):
            super().__init__()
            self.u, self.i = nn.Embedding(120, 4), nn.Embedding(40, 4)

        def forward(self, u, i):
            return (self.u(u) * self.i(i)).sum(1)

    model = Factors()
    made = pack(
        model, adam(model), loader((u[a], i[a], r[a]), 64),
        lambda m, b: F.mse_loss(m(b[0], b[1]), b[2]), val_loader=loader((v, j, r[2400:]), 64),
    )  # fmt: skip
    assert bool(said(factors.ids_mean_the_same, made)) == is_told


@cases(
    faulty=["all rows", "all rows, by hand", "all rows, of lists"],
    sound=["train mask", "both but the test's", "train list"],
)
def test_no_row_of_a_mask_that_is_held_out_is_trained_on(kind, is_told):
    """Also where other labels of these rows hardly change the loss, as at the start."""
    torch.manual_seed(0)
    x, y = torch.randn(120, 10, generator=gen(14)), torch.randint(0, 4, (120,), generator=gen(15))
    part = torch.rand(120, generator=gen(16))
    batch = {"x": x, "y": y, "train": part < 0.5, "val": (part >= 0.5) & (part < 0.7),
             "test": part >= 0.7}  # fmt: skip
    if "list" in kind:
        batch = {n: t.nonzero()[:, 0] if t.dtype == torch.bool else t for n, t in batch.items()}

    class Whole(nn.Module):
        def __init__(self):
            super().__init__()
            self.f = mlp(10, 16, 4)

        def forward(self, b):
            return self.f(b["x"])

    model = Whole()
    nn.init.normal_(model.f[-1].weight, 0, 1e-3)
    nn.init.zeros_(model.f[-1].bias)

    def loss_of(model, b):
        out = model(b)
        if kind == "all rows, by hand":
            return -out.log_softmax(1)[torch.arange(120), b["y"]].mean()
        rows = b["train"] if kind in ("train mask", "train list") else slice(None)
        if kind == "both but the test's":
            rows = b["train"] | b["val"]
        return F.cross_entropy(out[rows], b["y"][rows])

    assert bool(said(masks.held_out, pack(model, adam(model), [batch], loss_of))) == is_told


@pytest.mark.parametrize("kind", ["a generator", "a list"])
def test_what_evaluate_has_read_to_its_end_is_not_said_to_have_been_empty(kind):
    torch.manual_seed(0)
    x, y = torch.randn(128, 6, generator=gen(1)), torch.randint(3, (128,), generator=gen(2))
    model = mlp(6, 16, 3)
    held = [(x[i : i + 32], y[i : i + 32]) for i in range(0, 128, 32)] * (kind == "a generator")
    held = (batch for batch in held) if kind == "a generator" else held

    def evaluate():
        with torch.no_grad():
            hits = [float((model(a).argmax(1) == b).float().mean()) for a, b in held]
        return {"accuracy": sum(hits) / max(1, len(hits))}

    report = diagnose(pack(model, adam(model), loader((x, y), 32), loss_fn=nn.CrossEntropyLoss(),
                           evaluate=evaluate, val_loader=held, num_classes=3))  # fmt: skip
    ids = {finding.id for finding in report.alarms}
    assert ("loader-exhausted" in ids) == (kind == "a generator"), str(report)
    assert ("empty-loader" in ids) == (kind == "a list"), str(report)


def rows_of_a_kind(kind):
    """Rows [N, 12] in random order, of which a part is held out."""
    x, at = torch.randn(200, 12, generator=gen(1)), torch.arange(12.0)
    if kind == "windows of growth":
        return 1.1 ** (torch.arange(200)[:, None] + at)
    if kind == "shapes times sizes":
        return (torch.arange(200) // 20 + 1)[:, None] * torch.sin(
            at * (torch.arange(200) % 20 + 1)[:, None])  # fmt: skip
    if kind == "few numbers":
        return (torch.rand(200, 12, generator=gen(2)) < 0.2) * (1.0 + torch.arange(200)[:, None])
    if kind == "of all sizes":
        return torch.cat([x, (1 + torch.rand(200, 1, generator=gen(3))) * x])
    if kind == "with noise":
        return torch.cat([x, 1.3 * x + 1e-3 * torch.randn(200, 12, generator=gen(4))])
    return torch.cat([x, {"louder": 1.3, "darker": 0.5}.get(kind, 1.0) * x])


@cases(faulty=["louder", "darker"],
       sound=["windows of growth", "shapes times sizes", "few numbers", "of all sizes",
              "with noise"])  # fmt: skip
def test_validation_rows_are_no_training_rows_times_one_number(kind, is_told):
    x = rows_of_a_kind(kind)
    x = x[torch.randperm(len(x), generator=gen(5))]
    sides = [loader((part, (part[:, 0] > 0).long()), 32) for part in (x[60:], x[:60])]
    model = mlp(12, 8, 2)
    made = pack(model, adam(model), sides[0], loss_fn=F.cross_entropy, val_loader=sides[1])
    assert said(multiples.scaled, made) == ["leak-overlap"] * is_told
