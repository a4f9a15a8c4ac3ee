"""Two further dresses each of faults of the data: flips, views, tables, masks."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

from course.debug.relations import encoded, flips, lookups, masks, noise, rebatched, views
from tests.debug.faulty.dresses import dress, numbers, setup, stepping, trained_by
from tests.debug.faulty.fourth.kit import Dicts, batches, blobs, mlp

# A picture is flipped, what says where is not


class Dots(Dataset):
    """A bright dot in noise, flipped in every second reading, and its place in pixels."""

    def __init__(self, n, axis, flip, move):
        own = torch.Generator().manual_seed(n)
        self.axis, self.flip, self.move = axis, flip, move
        self.at = torch.randint(0, 9, (n, 2), generator=own)
        self.pictures = 0.1 * torch.randn(n, 1, 9, 9, generator=own)
        self.pictures[torch.arange(n), 0, self.at[:, 0], self.at[:, 1]] += 3

    def __len__(self):
        return len(self.at)

    def __getitem__(self, i):
        picture, at = self.pictures[i], self.at[i].float()
        if self.flip and torch.rand(()) < 0.5:
            picture = picture.flip(self.axis)
            if self.move:
                at[self.axis] = 8 - at[self.axis]
        return self.given(picture, at)

    def given(self, picture, at):
        return picture, at


@dress(flips.left_behind, "augmentation-mismatch")
def place_of_a_dot(bug):
    train, val = Dots(96, -2, True, not bug), Dots(40, -2, False, True)
    model = nn.Sequential(nn.Flatten(), mlp(81, 16, 2))
    loader = DataLoader(train, 16, shuffle=True)
    return setup(model, loader, val_loader=DataLoader(val, 20), loss_fn=nn.SmoothL1Loss())


class Sides(Dots):
    """Whether the dot is in the right half, by name."""

    def given(self, picture, at):
        return {"image": picture, "right": int(at[1] > 4)}


@dress(flips.left_behind, "augmentation-mismatch")
def side_of_a_dot(bug):
    train, val = Sides(96, -1, True, not bug), Sides(60, -1, False, True)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(196, 2))
    cost = lambda m, b: F.cross_entropy(m(b["image"]), b["right"])  # noqa: E731
    return trained_by(cost, model, DataLoader(train, 16), val_loader=DataLoader(val, 20))


# Rows of a table that cannot be named


class Averaged(nn.Module):
    def __init__(self, rows, k):
        super().__init__()
        self.table, self.head = nn.Embedding(rows, 8), nn.Linear(8, k)

    def forward(self, ids):
        return self.head(self.table(ids.long() if ids.dtype == torch.uint8 else ids.int()).mean(1))


@dress(lookups.reachable, "uint8-arithmetic")
def words_kept_in_bytes(bug):
    ids = torch.randint(0, 500, (96, 12))
    y = (ids.sum(1) > 3000).long()
    ids = ids.to(torch.uint8) if bug else ids
    return setup(Averaged(500, 2), batches(ids, y), loss_fn=nn.CrossEntropyLoss())


class OfAPlace(nn.Module):
    def __init__(self):
        super().__init__()
        self.place, self.rest = nn.Embedding(200, 4), nn.Linear(6, 4)
        self.out = nn.Linear(4, 1)

    def forward(self, place, x):
        return self.out(torch.tanh(self.place(place.int() % 200) + self.rest(x))).squeeze(1)


@dress(lookups.reachable, "uint8-arithmetic")
def places_kept_in_signed_bytes(bug):
    x, y = numbers()
    place = torch.randint(0, 127 if bug else 200, (96,))
    place[0] = 127
    place = place.to(torch.int8) if bug else place
    cost = lambda m, b: F.mse_loss(m(b["place"], b["x"]), b["y"])  # noqa: E731
    loader = DataLoader(Dicts(place=place, x=x, y=y), 96)
    return trained_by(cost, OfAPlace(), loader)


# A column made with the row's own answer


def with_means(bug, y, groups, cut, others):
    """A column with the mean answer of a row's group: of the training rows, or of the others."""
    column = torch.empty(len(y))
    for i in range(len(y)):
        near = (groups[:cut] == groups[i]).clone()
        if i < cut and not bug:
            near[i] = False
        column[i] = y[:cut][near].mean() if near.any() else y[:cut].mean()
    return torch.cat([others, column[:, None]], 1)


@dress(encoded.own_answer, "target-in-inputs")
def mean_price_of_a_street(bug):
    x = torch.randn(300, 3)
    y = x[:, 0] - x[:, 1] + torch.randn(300)
    x = with_means(bug, y, torch.randint(100, (300,)), 200, x)
    loss_fn = lambda out, y: F.l1_loss(out.squeeze(1), y)  # noqa: E731
    return setup(mlp(4, 8, 1), batches(x[:200], y[:200]), loss_fn=loss_fn,
                 val_loader=batches(x[200:], y[200:], shuffle=False))  # fmt: skip


@dress(encoded.own_answer, "target-in-inputs")
def share_of_a_rare_word(bug):
    x = torch.randn(320, 2)
    y = (x.sum(1) + torch.randn(320) > 0).long()
    x = with_means(bug, y.float(), torch.randint(160, (320,)), 240, x)
    return setup(mlp(3, 8, 2), batches(x[:240], y[:240], bs=24), loss_fn=nn.CrossEntropyLoss(),
                 val_loader=batches(x[240:], y[240:], shuffle=False))  # fmt: skip


# Two views that are one


class Views(Dataset):
    def __init__(self, things, view, once):
        self.things, self.view, self.once = things, view, once

    def __len__(self):
        return len(self.things)

    def __getitem__(self, i):
        one = self.view(self.things[i])
        return {"a": one, "b": one.clone() if self.once else self.view(self.things[i])}


@dress(views.drawn_apart, "compared-with-itself")
def two_crops_of_a_picture(bug):
    def crop(picture):
        top, left = torch.randint(0, 5, (2,)).tolist()
        return picture[..., top : top + 8, left : left + 8]

    def cost(model, batch):
        a, b = model(torch.cat([batch["a"], batch["b"]])).chunk(2)
        spread = F.relu(1 - torch.cat([a, b]).std(0)).mean()
        return F.mse_loss(a, b) + spread

    loader = DataLoader(Views(torch.randn(64, 1, 12, 12), crop, bug), 16, shuffle=True)
    return trained_by(cost, nn.Sequential(nn.Flatten(), mlp(64, 16, 8)), loader)


@dress(views.drawn_apart, "compared-with-itself")
def two_noisy_series(bug):
    def cost(model, batch):
        a, b = (model(batch[k].unsqueeze(2))[1][0] for k in ("a", "b"))
        return F.cross_entropy(a @ b.T, torch.arange(len(a)))

    view = lambda t: t + 0.3 * torch.randn(t.shape)  # noqa: E731
    loader = DataLoader(Views(torch.randn(64, 9), view, bug), 16, drop_last=True)
    return trained_by(cost, nn.GRU(1, 8, batch_first=True), loader)


# Noise that is the same in every step


@dress(noise.anew, "same-draws")
def corrupted_alike(bug):
    x, _ = numbers()
    own = torch.Generator()

    def cost(model, batch):
        if bug:
            own.manual_seed(7)
        hidden = torch.rand(batch[0].shape, generator=own) < 0.3
        return F.smooth_l1_loss(model(batch[0].masked_fill(hidden, 0)), batch[0])

    return trained_by(cost, mlp(6, 16, 6), batches(x, bs=24))


@dress(noise.anew, "same-draws")
def seeded_for_the_record(bug):
    x, y = blobs(96)
    model = mlp(10, 8, 3)
    step = stepping(model, torch.optim.SGD(model.parameters(), 0.05), lambda m, b: F.cross_entropy(
        m(b[0] + 0.2 * torch.randn(b[0].shape)), b[1]))  # fmt: skip

    def train_step(batch):
        if bug:
            torch.manual_seed(42)
        return step(batch)

    return setup(model, batches(x, y)) | {"train_step": train_step}


@dress(noise.seen, "targets-unrelated")
def noise_of_another_draw(bug):
    x, _ = blobs(96)

    def cost(model, batch):
        t, first = torch.rand(len(batch[0]), 1), torch.randn(batch[0].shape)
        aim = torch.randn_like(first) if bug else first
        return F.mse_loss(model(torch.cat([(1 - t) * batch[0] + t * first, t], 1)), aim)

    return trained_by(cost, mlp(11, 16, 10), batches(x))


@dress(noise.seen, "targets-unrelated")
def clean_picture_goes_in(bug):
    x = torch.randn(48, 1, 6, 6)

    def cost(model, batch):
        noise = torch.randn(batch["x"].shape)
        said = model(batch["x"] if bug else 0.6 * batch["x"] + 0.8 * noise)
        return (said - noise).abs().mean()

    model = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 1, 3, padding=1))
    return trained_by(cost, model, DataLoader(Dicts(x=x), 16))


# Examples that no validation batch holds


@dress(rebatched.whole, "validation-cut-short")
def last_batch_dropped(bug):
    x, y = blobs(140)
    val = batches(x[96:], y[96:], shuffle=False, drop_last=bug)
    return setup(mlp(10, 8, 3), batches(x[:96], y[:96]), loss_fn=nn.CrossEntropyLoss(),
                 val_loader=val)  # fmt: skip


@dress(rebatched.whole, "validation-cut-short")
def ten_rows_in_eights(bug):
    x, y = numbers(58)
    val = DataLoader(Dicts(x=x[48:], y=y[48:]), 8, drop_last=bug)
    cost = lambda m, b: F.mse_loss(m(b["x"]).squeeze(1), b["y"])  # noqa: E731
    return trained_by(cost, nn.Linear(6, 1), DataLoader(Dicts(x=x[:48], y=y[:48]), 8),
                      val_loader=val)  # fmt: skip


# Rows that a mask holds out


@dress(masks.held_out, "trains-on-validation")
def people_who_know_each_other(bug):
    x, y = torch.randn(60, 5), torch.randn(60)
    near = (torch.rand(60, 60) < 0.1).float().softmax(1)
    known = torch.arange(60) % 3 > 0
    model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1))

    def cost(model, batch):
        out = (batch["near"] @ model(batch["x"])).squeeze(1)
        off = (out - batch["y"]).abs()
        return off.mean() if bug else off[batch["mask"]].mean()

    train, val = ({"x": x, "near": near, "y": y, "mask": m} for m in (known, ~known))
    return trained_by(cost, model, [train], val_loader=[val])


@dress(masks.held_out, "trains-on-validation")
def one_table_with_three_masks(bug):
    x, y = blobs(90)
    part = torch.randint(3, (90,))

    def cost(model, batch):
        x, y, train, *_ = batch
        logits = model(x)
        return F.cross_entropy(logits, y) if bug else F.cross_entropy(logits[train], y[train])

    return trained_by(cost, mlp(10, 8, 3), [(x, y, part == 0, part == 1, part == 2)])
