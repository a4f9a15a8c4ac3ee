"""Two dresses each of the bugs that the doctor missed in a stranger's set, and their relations."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset

from course.debug import diagnose
from course.debug.relations import (
    blended,
    codes,
    encoded,
    epochs,
    listed,
    padding,
    pieces,
    plateau,
    preferred,
    targets,
)
from tests.debug.faulty import PAIRS, tenth
from tests.debug.faulty.sixth.kit import (
    blobs,
    loaders,
    mean_loss,
    mlp,
    numbers,
    of_pairs,
    sentences,
    setup,
    stepper,
    trained,
)
from tests.debug.told import assert_told_apart, said
from tests.sampling import sample

HERE = {p.name: p for p in PAIRS if any(hasattr(part, p.name) for part in tenth.PARTS)}
TOLD = [name for name in HERE if name not in tenth.MISSED]


def test_all_programs_of_the_tenth_set_are_tried():
    assert len(HERE) == 26


@pytest.mark.parametrize("name", sample(TOLD, 20))
def test_the_fault_is_named_first_and_its_twin_is_left_alone(name):
    assert_told_apart(HERE[name])


@pytest.mark.parametrize("name", tenth.MISSED)
def test_what_is_missed_is_not_said_to_be_another_fault(name):
    faulty = diagnose(HERE[name].make(True))
    assert faulty.ok, f"{tenth.MISSED[name]}: {faulty}"


def regressed(x, y, **more):
    torch.manual_seed(0)
    model = mlp(x.shape[1], 1)
    both = DataLoader(TensorDataset(x, y), 16, shuffle=True), DataLoader(TensorDataset(x, y), 16)
    opt = torch.optim.SGD(model.parameters(), 0.05)
    return trained(model, opt, both, of_pairs(F.mse_loss), **more)


@pytest.mark.parametrize("way", ["log", "falls", "noisy", "powers", "alone", "few"])
def test_a_column_that_orders_all_targets_is_told_but_not_where_it_is_the_curve(way):
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(200, 3, generator=g), torch.randn(200, generator=g)
    column = {
        "log": y.exp(), "falls": -y.sigmoid(), "few": (2 * y).round(),
        "noisy": y.exp() + 0.05 * torch.rand(200, generator=g),
    }.get(way, y.exp())  # fmt: skip
    parts = {"powers": [column, column**2, column**3], "alone": [column]}
    x = torch.stack(parts.get(way, [*x.T, column]), 1)
    told = said(encoded.monotone, regressed(x, y[:, None]))
    assert told == ["target-in-inputs"] * (way in ("log", "falls"))


class Counted(Dataset):
    """Rows, or pieces of a series without overlap, and a length."""

    def __init__(self, x, length, span=1):
        self.x, self.length, self.span = x, length, span

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        piece = self.x[i * self.span : (i + 1) * self.span]
        return piece.flatten(), piece.sum(0)[:1]


@pytest.mark.parametrize(
    ("length", "span", "told"), [(20, 1, True), (320, 1, False), (20, 16, False), (30, 1, False)]
)
def test_a_length_that_counts_batches_is_told_but_not_one_that_counts_pieces(length, span, told):
    data = Counted(torch.randn(320, 4), length, span)
    model = mlp(4 * span, 1)
    loader = DataLoader(data, 16, shuffle=True)
    opt = torch.optim.SGD(model.parameters(), 0.01)
    made = trained(model, opt, (loader, loader), of_pairs(F.mse_loss))
    assert said(epochs.counted_in_rows, made) == ["few-examples-drawn"] * told


@pytest.mark.parametrize("way", ["exchanged", "right", "decay", "sometimes"])
def test_weights_that_go_back_to_the_start_by_one_share_are_told(way):
    torch.manual_seed(0)
    train, held = loaders(*blobs(n=256), val=64)
    model = mlp()
    kept = copy.deepcopy(model)
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    plain, calls = stepper(model, opt, of_pairs(F.cross_entropy)), []

    def step(batch):
        loss = plain(batch)
        calls.append(loss)
        with torch.no_grad():
            for a, b in zip(model.parameters(), kept.parameters(), strict=True):
                if way == "exchanged" or (way == "sometimes" and len(calls) % 3 == 0):
                    a.lerp_(b, 0.02)
                elif way == "decay":
                    a.mul_(0.98)
                elif way == "right":
                    b.lerp_(a, 0.02)
        return loss

    made = setup(model, opt, train, held, step=step, average=kept)
    assert said(blended.back, made) == ["updates-undone"] * (way == "exchanged")


def keeping(better, at_the_end=True):
    """A loop that keeps the weights whose loss is `better` than the best so far."""
    torch.manual_seed(0)
    train, held = loaders(*blobs(n=256), val=64, batch=32)
    model = mlp()
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    loss_of = of_pairs(F.cross_entropy)
    step, score = stepper(model, opt, loss_of), mean_loss(model, held, loss_of)

    def train_for(steps):
        best, state = None, None
        for done in range(steps):
            batch = [*train][done % len(train)]
            step(batch)
            if (done + 1) % len(train) == 0:
                now = score()["loss"]
                if best is None or better(now, best):
                    best, state = now, copy.deepcopy(model.state_dict())
        if at_the_end and state is not None:
            model.load_state_dict(state)

    return setup(model, opt, train, held, step=step, evaluate=score) | {"train": train_for}


@pytest.mark.parametrize(
    ("better", "told"),
    [(float.__gt__, True), (float.__lt__, False), (lambda now, best: True, False)],
    ids=["the worst", "the best", "the last"],
)
def test_a_keeper_of_weights_that_score_badly_is_told(better, told):
    assert said(preferred.by_score, keeping(better)) == ["keeps-worse-weights"] * told


@pytest.mark.parametrize("mode", ["min", "max"])
def test_a_plateau_of_training_losses_is_waited_for_downwards(mode):
    torch.manual_seed(0)
    train, held = loaders(*numbers(n=160), val=32, batch=32)
    model = mlp(8, 1)
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, mode=mode)
    loss_of = of_pairs(F.mse_loss)
    step = stepper(model, opt, loss_of)

    def train_for(steps):
        for _ in range(steps // len(train)):
            scheduler.step(sum(step(batch) for batch in train) / len(train))

    score = mean_loss(model, held, loss_of)
    made = setup(model, opt, train, held, step=step, evaluate=score, scheduler=scheduler)
    made["train"] = train_for
    assert said(plateau.told, made) == ["scheduler-misplaced"] * (mode == "max")


@pytest.mark.parametrize(
    ("cut", "by_piece", "told"),
    [(100, True, True), (100, False, False), (30, True, False), (90, True, False)],
)
def test_a_short_last_piece_counts_for_its_length(cut, by_piece, told):
    """A file of 312 or 300 rows: pieces of one length may be averaged, and 42 of 90 move little."""
    torch.manual_seed(0)
    x, y = numbers(n=300 if cut == 30 else 312)
    y[300:] += 3 if cut == 100 else 0
    held = [(x[at : at + cut], y[at : at + cut]) for at in range(0, len(x), cut)]
    model = mlp(8, 1)

    def evaluate():
        model.eval()
        with torch.no_grad():
            errors = [((model(a) - b) ** 2).flatten() for a, b in held]
        model.train()
        means = torch.stack([e.mean() for e in errors])
        return {"mse": (means.mean() if by_piece else torch.cat(errors).mean()).item()}

    train = DataLoader(TensorDataset(x, y), 20, shuffle=True)
    opt = torch.optim.SGD(model.parameters(), 0.01)
    made = trained(model, opt, (train, held), of_pairs(F.mse_loss), evaluate=evaluate)
    assert said(pieces.weighed, made) == ["metric-batch-mean"] * told


class Tags(nn.Module):
    """A tag per token from the token alone, or from the mean of the row too."""

    def __init__(self, reads_all):
        super().__init__()
        self.table, self.out, self.reads_all = nn.Embedding(12, 16), nn.Linear(16, 3), reads_all

    def forward(self, ids):
        h = self.table(ids)
        return self.out(h + h.mean(1, keepdim=True) if self.reads_all else h)


@pytest.mark.parametrize(
    ("reads_all", "ignored", "told"),
    [(False, False, ["padding-in-the-loss"]), (False, True, []),
     (True, True, ["padding-not-masked"])],
)  # fmt: skip
def test_padding_that_costs_is_told_from_padding_that_is_read(reads_all, ignored, told):
    torch.manual_seed(0)
    ids, _ = sentences()
    y = (ids % 3).masked_fill(ids == 0, -100 if ignored else 0)
    train, held = loaders(ids, y)
    model = Tags(reads_all)
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    loss_of = lambda m, b: F.cross_entropy(m(b[0]).transpose(1, 2), b[1])  # noqa: E731
    assert said(padding.behind, trained(model, opt, (train, held), loss_of)) == told


@pytest.mark.parametrize("way", ["swapped", "right", "labels apart"])
def test_exchanged_shares_of_a_mixture_are_told_from_another_order(way):
    torch.manual_seed(0)
    train, held = loaders(*blobs(n=320), val=64)
    model = mlp()
    opt = torch.optim.Adam(model.parameters(), 1e-2)

    def loss_of(m, batch):
        x, y = batch
        order = torch.arange(len(x)).roll(3)
        if way == "labels apart":
            return F.cross_entropy(m(x), y[order])
        out, share = m(0.8 * x + 0.2 * x[order]), 0.2 if way == "swapped" else 0.8
        return share * F.cross_entropy(out, y) + (1 - share) * F.cross_entropy(out, y[order])

    told = {"swapped": ["wrong-targets"], "right": [], "labels apart": ["labels-shuffled"]}
    made = trained(model, opt, (train, held), loss_of)
    assert said(targets.own_label, made) == told[way]


class Listed(Dataset):
    """Rows and labels, each in an order of its own."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


def as_text(number):
    return torch.tensor(sorted(range(number), key=str))


@pytest.mark.parametrize(
    ("way", "told"),
    [("right", False), ("inputs as text", True), ("labels as text", True), ("off by one", True),
     ("any order", False), ("windows", False)],
)  # fmt: skip
def test_labels_that_fit_in_the_order_of_text_are_told_but_no_series(way, told):
    """A series of noise whose next value is asked for: the label before is in the window."""
    x, y = numbers(n=200)
    order = {"inputs as text": as_text(200), "off by one": torch.arange(200).roll(1)}
    x = x[order.get(way, torch.arange(200))]
    if way == "labels as text":
        y = y[as_text(200)]
    elif way == "any order":
        y = y[torch.randperm(200, generator=torch.Generator().manual_seed(0))]
    elif way == "windows":
        series = torch.randn(209, generator=torch.Generator().manual_seed(0))
        x, y = series.unfold(0, 8, 1)[:200], series[8:208, None]
    model = mlp(8, 1)
    loader = DataLoader(Listed(x, y), 20, shuffle=True)
    opt = torch.optim.SGD(model.parameters(), 0.01)
    made = trained(model, opt, (loader, loader), of_pairs(F.mse_loss))
    assert said(listed.another_order, made) == ["labels-shuffled"] * told


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(40, 8), nn.Linear(8, 1)

    def forward(self, ids):
        return self.out(self.table(ids).mean(1))


@pytest.mark.parametrize(
    ("way", "told"),
    [("once", False), ("on each side", True), ("other ones", False), ("noise", False)],
)
def test_words_that_are_numbered_on_each_side_are_told_but_not_words_of_one_side(way, told):
    g = torch.Generator().manual_seed(0)
    worth = torch.randn(20, generator=g)
    ids, new = (torch.randint(0, 20, (n, 6), generator=g) for n in (240, 120))
    y, w = (worth[t].sum(1, keepdim=True) for t in (ids, new))
    if way == "on each side":
        new = torch.randperm(20, generator=g)[new]
    elif way == "other ones":  # e.g. users that are met in validation alone
        new, w = new + 20, worth[torch.randperm(20, generator=g)][new].sum(1, keepdim=True)
    elif way == "noise":
        w = w[torch.randperm(120, generator=g)]
    model = Reader()
    train, held = (DataLoader(TensorDataset(*t), 24) for t in ((ids, y), (new, w)))
    opt = torch.optim.SGD(model.parameters(), 0.01)
    made = trained(model, opt, (train, held), of_pairs(F.mse_loss))
    assert said(codes.same_meaning, made) == ["covariate-shift"] * told
