"""Sound scripts on real data; each docstring says what looks odd and why it is right."""

from __future__ import annotations

import copy

from sklearn.datasets import load_breast_cancer, load_diabetes
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from tests.debug.faulty.kit import F, nn, torch
from tests.debug.faulty.reported import CLASSES, digits_data, script, small_cnn, table_data
from tests.debug.sound.programs import sound


@sound
def noise_and_shifts_on_the_fly():
    """Every epoch sees other pixels of the same images."""
    (x, y), (v, w) = digits_data()

    class Augmented(Dataset):
        def __len__(self):
            return len(x)

        def __getitem__(self, i):
            moved = torch.roll(x[i], int(torch.randint(-1, 2, ())), dims=-1)
            return moved + 0.1 * torch.randn_like(moved), y[i]

    loader = DataLoader(Augmented(), 32, shuffle=True)
    return script(
        small_cnn(), ((x, y), (v, w)), nn.CrossEntropyLoss(), train_loader=loader, **CLASSES
    )


@sound
def pairs_same_or_not():
    """Two digits side by side: neither a neighbour nor a line tells whether they are the same."""
    (x, y), (v, w) = digits_data()

    def paired(images, labels):
        own = torch.Generator().manual_seed(2)
        partner = torch.randint(len(images), (len(images),), generator=own)
        for i in range(0, len(images), 2):
            same = (labels == labels[i]).nonzero()[:, 0]
            partner[i] = same[torch.randint(len(same), (), generator=own)]
        return torch.cat([images, images[partner]], 1), (labels == labels[partner]).float()[:, None]

    model = nn.Sequential(nn.Conv2d(2, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 36, 1))
    return script(model, (paired(x, y), paired(v, w)), nn.BCEWithLogitsLoss(), task="binary")


@sound
def sum_of_two_digits_modulo_ten():
    """Ten classes that look shuffled to a neighbour and to a line, and are not."""
    (x, y), (v, w) = digits_data()

    def added(images, labels):
        other = torch.randperm(len(images), generator=torch.Generator().manual_seed(2))
        return torch.cat([images, images[other]], 1), (labels + labels[other]) % 10

    model = nn.Sequential(nn.Flatten(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))
    return script(model, (added(x, y), added(v, w)), nn.CrossEntropyLoss(), **CLASSES)


@sound
def rotations_to_be_told():
    """Self-supervised: which quarter turn was applied; the labels of the digits are not used."""
    (x, _), (v, _) = digits_data()

    class Turned(Dataset):
        def __init__(self, images):
            self.images = images

        def __len__(self):
            return len(self.images)

        def __getitem__(self, i):
            turns = int(torch.randint(4, ()))
            return torch.rot90(self.images[i], turns, (1, 2)), turns

    model = nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(576, 4))
    return script(
        model, ((x, x), (v, v)), nn.CrossEntropyLoss(), num_classes=4, task="classification",
        train_loader=DataLoader(Turned(x), 32, shuffle=True), val_loader=DataLoader(Turned(v), 64),
    )  # fmt: skip


@sound
def streaming_rows():
    """An iterable data set without a length, the batches made inside."""
    (x, y), val = table_data(load_breast_cancer, torch.long)

    class Stream(IterableDataset):
        def __iter__(self):
            for i in torch.randperm(len(x)).split(32):
                yield x[i], y[i]

    model = nn.Sequential(nn.Linear(30, 16), nn.ReLU(), nn.Linear(16, 2))
    loader = DataLoader(Stream(), batch_size=None)
    return script(
        model, ((x, y), val), nn.CrossEntropyLoss(), num_classes=2, train_loader=loader,
        task="classification",
    )  # fmt: skip


@sound
def distillation():
    """A teacher's soft answers beside the labels; the teacher is frozen and in eval mode."""
    model, teacher = small_cnn(), small_cnn().eval().requires_grad_(False)
    s = script(model, digits_data(), nn.CrossEntropyLoss(), **CLASSES)

    def train_step(batch):
        x, y = batch
        s["optimizer"].zero_grad()
        out = model(x)
        soft = F.kl_div(
            (out / 4).log_softmax(1), (teacher(x) / 4).softmax(1), reduction="batchmean"
        )
        (0.5 * F.cross_entropy(out, y) + 8 * soft).backward()
        s["optimizer"].step()
        return F.cross_entropy(out, y).item()

    return s | {"train_step": train_step}


@sound
def counts_by_poisson():
    """Counts as targets, the log-rate as output; the loss falls below 0."""
    (x, y), (v, w) = table_data(load_diabetes)
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1), nn.Flatten(0))
    data = ((x, (y / 25).round()), (v, (w / 25).round()))
    return script(model, data, nn.PoissonNLLLoss(), task="regression")


@sound
def polyak_average_swapped_in():
    """torch's own AveragedModel, scored instead of the model and updated after every step."""
    model = small_cnn()
    s = script(model, digits_data(), nn.CrossEntropyLoss(), **CLASSES)
    average = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9), use_buffers=True
    )
    inner = s["train_step"]

    def train_step(batch):
        loss = inner(batch)
        average.update_parameters(model)
        return loss

    @torch.no_grad()
    def evaluate():
        average.eval()
        hits = sum((average(x).argmax(1) == y).sum().item() for x, y in s["val_loader"])
        return {"val_accuracy": hits / 597}

    return s | {"train_step": train_step, "evaluate": evaluate}


@sound
def ordinal_targets_cumulative():
    """Classes 0 to 4 as four yes/no answers, one for each threshold passed."""
    (x, y), (v, w) = table_data(load_diabetes)

    def steps(t):
        return (t[:, None] > torch.tensor([80.0, 120.0, 170.0, 230.0])).float()

    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 4))
    return script(model, ((x, steps(y)), (v, steps(w))), nn.BCEWithLogitsLoss(), task="multilabel")


@sound
def focal_loss_on_few_positives():
    """Easy examples hardly count, so that the first losses are tiny."""
    (x, y), (v, w) = table_data(load_breast_cancer)

    def focal(out, targets):
        p = torch.sigmoid(out)
        hit = p * targets + (1 - p) * (1 - targets)
        return ((1 - hit) ** 2 * -hit.clamp_min(1e-7).log()).mean()

    model = nn.Sequential(nn.Linear(30, 16), nn.ReLU(), nn.Linear(16, 1), nn.Flatten(0))
    return script(model, ((x, y), (v, w)), focal, task="binary")


@sound
def frozen_norm_in_eval_mode():
    """Fine-tuning with small batches: batch norm is frozen and kept in eval mode."""
    model = small_cnn()
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    for m in norms:
        m.requires_grad_(False)
    s = script(model, digits_data(), nn.CrossEntropyLoss(), size=4,
               declared={"frozen": ["1", "5"]}, **CLASSES)  # fmt: skip

    def train_step(batch):
        model.train()
        for m in norms:
            m.eval()
        s["optimizer"].zero_grad()
        loss = F.cross_entropy(model(batch[0]), batch[1])
        loss.backward()
        s["optimizer"].step()
        return loss.item()

    return s | {"train_step": train_step}


@sound
def heavy_l1_of_the_weights():
    """Training minimises more than the reported loss."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    s = script(model, digits_data(), nn.CrossEntropyLoss(), **CLASSES)

    def train_step(batch):
        s["optimizer"].zero_grad()
        loss = F.cross_entropy(model(batch[0]), batch[1])
        (loss + 1e-3 * sum(p.abs().sum() for p in model.parameters())).backward()
        s["optimizer"].step()
        return loss.item()

    return s | {"train_step": train_step}


@sound
def reinforce():
    """A policy gradient: the loss is no measure of anything and may be negative."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))
    s = script(model, digits_data(), nn.CrossEntropyLoss(), **CLASSES)

    def train_step(batch):
        x, y = batch
        policy = torch.distributions.Categorical(logits=model(x))
        action = policy.sample()
        reward = (action == y).float()
        s["optimizer"].zero_grad()
        loss = -(policy.log_prob(action) * (reward - reward.mean())).mean()
        loss.backward()
        s["optimizer"].step()
        return loss.item()

    return s | {"train_step": train_step}


@sound
def restarts_from_the_best_when_worse():
    """Weights are put back where a step made the loss of the batch much worse."""
    model = small_cnn()
    s = script(model, digits_data(), nn.CrossEntropyLoss(), **CLASSES)
    inner = s["train_step"]

    def train_step(batch):
        before = copy.deepcopy(model.state_dict())
        loss = inner(batch)
        with torch.no_grad():
            if F.cross_entropy(model(batch[0]), batch[1]) > 3 * loss:
                model.load_state_dict(before)
        return loss

    return s | {"train_step": train_step}


@sound
def unshuffled_time_series_windows():
    """Windows in order of time, each overlapping the next; a gap before validation."""
    t = torch.arange(1000) / 10
    series = torch.sin(t) + 0.5 * torch.sin(3.1 * t) + 0.1 * torch.randn(1000)
    rows = series.unfold(0, 21, 1)
    data = ((rows[:700, :20], rows[:700, 20:]), (rows[730:, :20], rows[730:, 20:]))
    train = DataLoader(TensorDataset(*data[0]), 32)
    model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 1))
    return script(model, data, nn.MSELoss(), task="regression", train_loader=train)
