"""What is compared with what: calls of an evaluation, micro-batches, classes of a batch, names."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset, random_split

from course.debug.probes import data, frozen
from course.debug.relations import arguments, epochs, padding, scoring
from tests.debug.told import cases, said


def gen(seed):
    return torch.Generator().manual_seed(seed)


class Rows(Dataset):
    def __init__(self, **columns):
        self.columns = columns

    def __len__(self):
        return len(next(iter(self.columns.values())))

    def __getitem__(self, i):
        return {name: column[i] for name, column in self.columns.items()}


def of(model, loss_of, train, val=None, evaluate=None, **more):
    opt = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], 3e-3)
    made = dict(model=model, optimizer=opt, train_loader=train, loss_of=loss_of, **more)
    return made | {k: v for k, v in (("val_loader", val), ("evaluate", evaluate)) if v is not None}


def scored(model, val, score):
    """evaluate() in eval mode: the mean of what is scored of each batch."""

    def evaluate():
        model.eval()
        with torch.no_grad():
            found = [score(model, batch) for batch in val]
        model.train()
        return {name: sum(float(f[name]) for f in found) / len(found) for name in found[0]}

    return evaluate


class Language(nn.Module):
    def __init__(self, words=9):
        super().__init__()
        self.read, self.say = nn.Embedding(words, 16), nn.Linear(16, words)

    def forward(self, ids):
        return self.say(self.read(ids))


@cases(faulty=("of one call", "asked twice"), sound=("of shorter rows", "with a loss of each"))
def test_an_accuracy_may_be_of_another_call_than_the_loss(kind, is_told):
    torch.manual_seed(0)
    model, ids = Language(4), torch.randint(0, 4, (96, 8), generator=gen(1))
    ids[:, -1] = 0

    def cost(said, targets):
        return F.cross_entropy(said.flatten(0, 1), targets.flatten())

    def score(model, batch):
        ids = batch["ids"]
        said, next_ids = model(ids[:, :-1]), ids[:, 1:]
        found = {"loss": cost(said, next_ids)}
        if "shorter" in kind or "each" in kind:
            said, next_ids = model(ids[:, :4])[:, -1:] + 5 * F.one_hot(ids[:, 4:5], 4), ids[:, 4:5]
            found |= {"loss_of_last": cost(said, next_ids)} if "each" in kind else {}
            return found | {"accuracy": (said.argmax(2) == next_ids).float().mean()}
        said = model(ids[:, :-1]) if kind == "asked twice" else said
        return found | {"accuracy": (next_ids < 2).float().mean()}

    train, val = DataLoader(Rows(ids=ids), 16), DataLoader(Rows(ids=ids.flip(0)), 16)
    made = of(model, lambda m, b: cost(m(b["ids"][:, :-1]), b["ids"][:, 1:]), train, val,
              scored(model, val, score))  # fmt: skip
    assert said(scoring.accuracy, made) == ["metric-wrong"] * is_told


class Pooled(nn.Module):
    """A mean over the steps of rows, of padding too if it is not masked."""

    def __init__(self, masked):
        super().__init__()
        self.read, self.say, self.masked = (
            nn.Embedding(9, 16, padding_idx=0),
            nn.Linear(16, 9),
            masked,
        )

    def forward(self, ids):
        real = (ids != 0).float()[..., None] if self.masked else torch.ones(*ids.shape, 1)
        h = (self.read(ids) * real).cumsum(1).flip(1)[:, :1] / real.sum(1, keepdim=True)
        return self.say(self.read(ids) + h)


@cases(
    faulty=("micro-batches, unmasked", "two languages, unmasked"),
    sound=("micro-batches", "two languages", "one language is not padded"),
)
def test_rows_are_cut_only_where_every_part_of_the_batch_is_padded(kind, is_told):
    def padded(seed, n=64):
        ids = torch.randint(1, 9, (n, 10), generator=gen(seed))
        lengths = torch.randint(3, 11, (n, 1), generator=gen(seed + 9))
        return ids if "is not" in kind and seed == 2 else ids * (torch.arange(10) < lengths)

    torch.manual_seed(0)
    ids, others = padded(1), padded(2)
    if "micro" in kind:
        train = DataLoader(TensorDataset(ids), 32, collate_fn=lambda rows: list(
            torch.stack([r for (r,) in rows]).split(16)))  # fmt: skip
    else:
        train = DataLoader(Rows(source=ids, target=others), 32)

    def loss_of(model, batch):
        parts = batch if isinstance(batch, list) else [batch["source"], batch["target"]]
        costs = [F.cross_entropy(model(i[:, :-1]).transpose(1, 2), i[:, 1:], ignore_index=0,
                                 reduction="sum") for i in parts]  # fmt: skip
        return sum(costs) / sum((i[:, 1:] != 0).sum() for i in parts)

    made = of(Pooled("unmasked" not in kind), loss_of, train)
    assert said(padding.behind, made) == ["padding-not-masked"] * is_told


@cases(
    faulty=("sorted", "sorted, two classes to a batch"),
    sound=("as many of each", "halves", "a quarter", "pairs of all"),
)
def test_only_the_order_of_batches_says_that_the_data_is_sorted(kind, is_told):
    number, size = 12, 32
    if kind in ("halves", "a quarter"):  # one class first, in each batch
        first = 16 if kind == "halves" else 8
        y = torch.cat([torch.tensor([1] * first + [0] * (size - first))] * number)
    elif kind in ("as many of each", "pairs of all"):
        drawn = [torch.randperm(6, generator=gen(n))[:2 if "pairs" in kind else 4].sort().values
                 for n in range(number)]  # fmt: skip
        y = torch.cat([d.repeat_interleave(size // len(d)) for d in drawn])
    else:
        each = 16 if "two" in kind else 80
        y = torch.arange(number * size) // each
    x = torch.randn(len(y), 8, generator=gen(3))
    train = DataLoader(TensorDataset(x, y), size)
    made = of(nn.Linear(8, int(y.max()) + 1), lambda m, b: F.cross_entropy(m(b[0]), b[1]), train)
    assert said(data.single_class, made) == ["single-class-batches"] * is_told


class Body(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.middle, self.head = nn.Linear(8, 32), nn.Linear(32, 32), nn.Linear(32, 4)

    def forward(self, x):
        return self.head(self.middle(self.stem(x).relu()).relu())


@cases(
    faulty=("new head, declared", "new head", "new head, registered first"),
    sound=("trained head", "head is declared", "all at random", "nothing is frozen", "small head"),
)
def test_a_head_that_stays_at_its_first_weights_is_told(kind, is_told):
    torch.manual_seed(0)
    model = Body()
    for layer in (model.stem, model.middle, model.head)[: 3 if kind == "trained head" else 2]:
        if kind != "all at random":
            nn.init.normal_(layer.weight, std=0.4)  # as if it had been trained
    if "registered" in kind:
        model._modules = {name: model._modules[name] for name in ("head", "stem", "middle")}
    if kind == "small head":
        model.head = nn.Linear(4, 4)
        model.middle = nn.Linear(32, 4)
        nn.init.normal_(model.middle.weight, std=0.4)
    if kind != "nothing is frozen":
        for layer in (model.stem, model.head):
            layer.requires_grad_(False)
        model.middle.weight.requires_grad_(False)
    declared = {"new head, declared": ["stem"], "head is declared": ["stem", "middle", "head"]}
    more = {"declared": {"frozen": declared[kind]}} if kind in declared else {}
    x = torch.randn(128, 8, generator=gen(4))
    train = DataLoader(TensorDataset(x, torch.randint(0, 4, (128,), generator=gen(5))), 16)
    made = of(model, lambda m, b: F.cross_entropy(m(b[0]), b[1]), train, **more)
    assert said(frozen.frozen, made) == ["frozen-params"] * is_told


@cases(
    faulty=("two are exchanged", "all in turn"),
    sound=("as they are", "other classes are frequent", "moved by a step", "half are noise",
           "two classes", "two look alike"),
)  # fmt: skip
def test_overlapping_classes_are_named_alike_on_both_sides(kind, is_told):
    number = 2 if kind == "two classes" else 4
    centres = 2.5 * torch.eye(4, 6)[:number]
    if kind == "moved by a step":
        centres = 1.3 * torch.arange(4.0)[:, None].expand(4, 6)
    if kind == "two look alike":
        centres[1] = centres[0]

    def drawn(n, seed):
        y = torch.randint(0, number, (n,), generator=gen(seed))
        return centres[y] + torch.randn(n, 6, generator=gen(seed + 1)), y

    (x, y), (new, labels) = drawn(480, 1), drawn(200, 7)
    if kind == "two are exchanged":
        labels = torch.tensor([2, 1, 0, 3])[labels]
    elif kind == "all in turn":
        labels = (labels + 1) % 4
    elif kind == "other classes are frequent":
        keep = (labels == 0) | (torch.rand(200, generator=gen(9)) < 0.4)
        new, labels = new[keep], labels[keep]
    elif kind == "moved by a step":
        new = new + centres[1]
    elif kind == "half are noise":
        noisy = torch.rand(200, generator=gen(9)) < 0.5
        labels = torch.where(noisy, torch.randint(0, 4, (200,), generator=gen(3)), labels)
    elif kind == "two classes":
        labels = torch.where(torch.rand(200, generator=gen(9)) < 0.6, 1 - labels, labels)
    train, val = (DataLoader(TensorDataset(*t), 40) for t in ((x, y), (new, labels)))
    made = of(nn.Linear(6, 4), lambda m, b: F.cross_entropy(m(b[0]), b[1]), train, val)
    assert said(epochs.same_names, made) == ["labels-renamed"] * is_told


class Matcher(nn.Module):
    """Two tables of one size, or one for both."""

    def __init__(self, kind):
        super().__init__()
        self.user, self.kind = nn.Embedding(40, 8), kind
        self.item = self.user if kind in ("symmetric", "differences") else nn.Embedding(40, 8)
        self.bias = nn.Embedding(40, 1)

    def forward(self, user, item):
        if self.kind == "differences":
            return (self.bias(user) - self.bias(item))[:, 0]
        return (self.user(user) * self.item(item)).sum(1)


@cases(
    faulty=("exchanged", "by name", "one data set"),
    sound=("alike", "symmetric", "differences", "both ways in evaluate", "both ways in training",
           "tuples of two kinds", "turned at random", "one column"),
)  # fmt: skip
def test_columns_are_the_same_inputs_of_the_model_on_both_sides(kind, is_told):
    torch.manual_seed(0)
    user, item = (torch.randint(0, 40, (256,), generator=gen(s)) for s in (1, 2))
    item = user if kind == "one column" else item
    rating, model = torch.randn(256, generator=gen(3)), Matcher(kind)
    if kind in ("one data set", "tuples of two kinds"):
        rows = TensorDataset(user, item, rating)
        train, val = (DataLoader(r, 32) for r in random_split(rows, [192, 64], gen(4)))
        if kind == "tuples of two kinds":
            val = DataLoader(TensorDataset(item, user, rating), 32)
        names = (0, 1, 2)
    else:
        rows = [Rows(user=user[s], item=item[s], rating=rating[s])
                for s in (slice(192), slice(192, None))]  # fmt: skip
        train, val = (DataLoader(r, 32) for r in rows)
        names = ("user", "item", "rating")

    def loss_of(model, b):
        u, i, r = (b[name] for name in names)
        if kind == "by name":
            return F.mse_loss(model(item=u, user=i), r)
        if kind == "both ways in training":
            return F.mse_loss(model(u, i) + model(i, u), r)
        if kind == "turned at random" and torch.rand(()) < 0.5:
            u, i = i, u
        return F.mse_loss(model(u, i) if kind in ("alike", "by name") else model(i, u), r)

    def score(model, b):
        u, i, r = (b[name] for name in names)
        said = model(u, i)
        said = said + model(i, u) if kind == "both ways in evaluate" else said
        return {"mse": F.mse_loss(said, r)}

    made = of(model, loss_of, train, val, scored(model, val, score))
    assert said(arguments.as_in_training, made) == ["covariate-shift"] * is_told


@pytest.mark.parametrize("reads", ["*", "dict"])
def test_inputs_without_names_of_their_own_go_by_their_places(reads):
    class Any(Matcher):
        def forward(self, *given):
            given = tuple(given[0].values()) if reads == "dict" else given
            return super().forward(*given[:2])

    torch.manual_seed(0)
    model = Any("")
    user, item = (torch.randint(0, 40, (128,), generator=gen(s)) for s in (1, 2))
    train, val = (DataLoader(Rows(user=user, item=item), 32) for _ in range(2))

    def call(model, a, b):
        return model({"one": a, "two": b} if reads == "dict" else a, *[b] * (reads == "*"))

    def score(model, b):
        return {"mse": call(model, b["user"], b["item"]).pow(2).mean()}

    made = of(model, lambda m, b: call(m, b["item"], b["user"]).pow(2).mean(), train, val,
              scored(model, val, score))  # fmt: skip
    assert said(arguments.as_in_training, made) == ["covariate-shift"]
