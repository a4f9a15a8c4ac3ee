"""Sound programs in which one loader or one stream gives both sides, and faults that look alike."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, IterableDataset

from course.debug.probes import metric, shifted, splits
from course.debug.relations import renumbered
from tests.debug.faulty.eleventh.kit import Columns
from tests.debug.faulty.thirteenth.kit import gen, loader, mlp
from tests.debug.faulty.twelfth.kit import pack
from tests.debug.told import cases, said

ROWS = 120


def adam(model):
    return torch.optim.Adam(model.parameters(), 1e-3)


class Graph(nn.Module):
    """A batch, with all that is in it, is what the model gets."""

    def __init__(self):
        super().__init__()
        self.f = mlp(10, 16, 4)

    def forward(self, x):
        return self.f(x)


@cases(
    faulty=["all rows", "all rows, one mask"],
    sound=["two masks", "one mask", "two lists", "mask outside", "another mask"],
)
def test_one_table_for_both_sides_is_told_apart_by_masks(kind, is_told):
    torch.manual_seed(0)
    x, y = torch.randn(ROWS, 10, generator=gen(1)), torch.randint(0, 4, (ROWS,), generator=gen(2))
    mask = torch.rand(ROWS, generator=gen(3)) < 0.5
    batch = {"x": x, "y": y}
    if "one mask" in kind or kind == "another mask":
        batch["mask"] = mask
    if kind == "two masks":
        batch |= {"train": mask, "val": ~mask}
    if kind == "two lists":
        batch |= {"train": mask.nonzero()[:, 0], "val": (~mask).nonzero()[:, 0]}
    val = [batch | {"mask": ~mask}] if kind == "another mask" else None

    def loss_of(model, b):
        out = model(b["x"])
        if is_told:
            return F.cross_entropy(out, b["y"])
        rows = b.get("mask", b.get("train", mask))
        return F.cross_entropy(out[rows], b["y"][rows])

    model, both = Graph(), [batch]
    made = pack(model, adam(model), both, loss_of, val_loader=val or both)
    assert bool(said(metric.which_data, made)) == is_told
    assert bool(said(splits.split, made)) == is_told


@cases(faulty=["rows"], sound=["masks"])
def test_a_score_may_read_the_one_table_from_the_loader_of_training(kind, is_told):
    torch.manual_seed(0)
    x, y = torch.randn(ROWS, 10, generator=gen(1)), torch.randint(0, 4, (ROWS,), generator=gen(2))
    mask = torch.rand(ROWS, generator=gen(3)) < 0.5
    table = {"x": x, "y": y, "mask": mask}
    if kind == "masks":
        train, val = (DataLoader([table], batch_size=None) for _ in range(2))
    else:
        train, val = (loader(Columns(x=x[m], y=y[m], mask=mask[m]), 32) for m in (mask, ~mask))
    model = Graph()

    def loss_of(m, b):
        return F.cross_entropy(m(b["x"])[b["mask"]], b["y"][b["mask"]])

    def evaluate():
        hits = [(model(b["x"]).argmax(1) == b["y"])[~b["mask"] | is_told] for b in train]
        return {"accuracy": torch.cat(hits).float().mean().item()}

    made = pack(model, adam(model), train, loss_of, val_loader=val, evaluate=evaluate)
    assert said(metric.which_data, made) == ["evaluates-training-data"] * is_told


class Stream(IterableDataset):
    """Examples without end: made anew, of a few, or harder and harder in one of two ways."""

    def __init__(self, kind, seed, scale=1.0):
        self.kind, self.scale, self.own, self.made = kind, scale, gen(seed), 0
        self.few = torch.randn(20, 6, generator=self.own)

    def __iter__(self):
        while True:
            self.made += 1
            x = torch.randn(6, generator=self.own) * self.scale
            if self.kind == "few":
                x = self.few[int(torch.randint(0, 20, (1,), generator=self.own))]
            if self.kind == "longer":
                x[2 + self.made // 4000 :] = 0
            if self.kind == "louder":
                x *= 1 + self.made / 1000
            yield {"x": x, "y": x.sum()}


def distance(model, b):
    return F.mse_loss(model(b["x"])[:, 0], b["y"])


@cases(faulty=["few"], sound=["new"])
def test_one_stream_gives_both_sides_only_where_it_makes_new_examples(kind, is_told):
    torch.manual_seed(0)
    model, both = mlp(6, 16, 1), DataLoader(Stream(kind, 4), 16)
    assert bool(said(metric.which_data, pack(model, adam(model), both, distance,
                                             val_loader=both))) == is_told  # fmt: skip


@cases(faulty=["scaled", "scaled stream"], sound=["longer", "louder"])
def test_a_stream_on_its_way_to_the_scale_of_validation_is_not_preprocessed_otherwise(
    kind, is_told
):
    torch.manual_seed(0)
    model, scale = mlp(6, 16, 1), 0.1 if is_told else 1.0
    x, v = torch.randn(400, 6, generator=gen(5)) * scale, torch.randn(200, 6, generator=gen(6))
    v = 5 * v if kind == "louder" else v
    train = loader(Columns(x=x, y=x.sum(1)), 32)
    if kind != "scaled":
        train = DataLoader(Stream(kind, 7, scale), 32)
    val = loader(Columns(x=v, y=v.sum(1)), 32, shuffle=False)
    made = pack(model, adam(model), train, distance, val_loader=val)
    assert bool(said(shifted.covariate_shift, made)) == is_told


@cases(faulty=["scaled", "scaled, then its own"], sound=["its own", "from noise", "written"])
def test_what_a_model_is_fed_of_its_own_is_no_data(kind, is_told):
    torch.manual_seed(0)
    x, v = torch.randn(256, 6, generator=gen(1)), torch.randn(96, 6, generator=gen(2))
    model, v = mlp(6, 16, 6), 10 * v if is_told else v
    held = loader(Columns(x=v), 32, shuffle=False)

    def evaluate():
        with torch.no_grad():
            for b in held:
                drawn = torch.tensor(5.0) * torch.randn(b["x"].shape, generator=gen(3))
                x = drawn if kind == "from noise" else b["x"]
                kept = torch.zeros(6, *x.shape)
                for step in range(1 if kind == "scaled" else 6):
                    kept[step] = 30 * model(x)
                    x = kept[step] if kind == "written" else x + 30 * model(x)
        return {"mean": float(x.mean())}

    def loss_of(m, b):
        return F.mse_loss(m(b["x"]), -b["x"])

    made = pack(model, adam(model), loader(Columns(x=x), 32), loss_of, val_loader=held,
                evaluate=evaluate)  # fmt: skip
    assert said(shifted.covariate_shift, made) == ["covariate-shift"] * is_told


class OfIds(nn.Module):
    def __init__(self):
        super().__init__()
        self.level = nn.Embedding(400, 1)

    def forward(self, ids):
        return self.level(ids)[:, 0]


@cases(
    faulty=["numbered anew", "labels numbered anew"],
    sound=["numbered once", "new names", "row numbers", "place in a household", "group number"],
)
def test_a_name_keeps_its_number_in_validation(kind, is_told):
    torch.manual_seed(0)
    g = gen(8)
    raw = torch.randperm(900, generator=g)[:30]
    names = [raw[torch.randint(0, 30, (n,), generator=g)] for n in (300, 60)]
    names[1] = names[1][names[1] != names[0].min()]
    if kind == "new names":
        names[1] = names[1] + 1000
    once = torch.cat(names).unique()
    anew = kind in ("numbered anew", "labels numbered anew", "new names", "group number")
    ids = [torch.searchsorted(n.unique() if anew and i else once, n)
           for i, n in enumerate(names)]  # fmt: skip
    if kind == "row numbers":
        ids, names = [torch.arange(len(n)) for n in names], [n * 1000 + torch.arange(len(n))
                                                             for n in names]  # fmt: skip
    if kind == "place in a household":
        ids = [torch.randint(0, 6, n.shape, generator=g) for n in names]
    y = [raw.float()[i % 30] / 900 for i in ids]
    parts = [Columns(id=i, name=n, y=t) for i, n, t in zip(ids, names, y, strict=True)]
    model = OfIds()
    if kind in ("labels numbered anew", "group number"):
        model = mlp(1, 16, 40)

    def loss_of(m, b):
        if kind == "labels numbered anew":
            return F.cross_entropy(m(b["y"][:, None]), b["id"])
        if kind == "group number":
            return (m(b["y"][:, None])[:, 0] - b["y"]).abs().mean()
        return F.mse_loss(m(b["id"]), b["y"])

    train, val = (loader(part, 32) for part in parts)
    made = pack(model, adam(model), train, loss_of, val_loader=val)
    assert said(renumbered.in_validation, made) == ["labels-renamed"] * is_told
