"""A second set in other dress, written after the relations and before they were tried on it."""

import copy
import math

import numpy as np
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.data import Dataset, Subset

from tests.debug.faulty.kinds import (
    VOCAB,
    Rows,
    flat,
    load,
    own,
    padded,
    perceptron,
    program,
    text,
)  # fmt: skip
from tests.debug.faulty.kit import F, nn, pair, torch


def label_cost(model, batch):
    return F.cross_entropy(model(batch["ids"], batch["mask"]), batch["label"])


@pair("one-hot-labels", "empty-targets", "wrong-targets")
def one_hot_rows_with_empty_ones(bug):
    """A class map without an entry for one class gives rows of zeros."""

    def rows(n, seed):
        x = flat(n, seed)
        hot = F.one_hot(x[:, :4].argmax(1), 4).float()
        if bug:
            hot[:, 3] = 0
        return Rows(x=x, y=hot)

    def cost(model, batch):
        return F.cross_entropy(model(batch["x"]), batch["y"])

    return program(perceptron(4), load(rows(192, 0)), load(rows(64, 1), shuffle=False), cost)


@pair("accum-trailing-window")
def last_window_of_an_epoch_cleared(bug):
    """Windows of 4 in epochs of 14 batches: the last two are cleared at the next epoch's start."""
    x = flat(14 * 16)
    data = load(Rows(x=x, y=x[:, :3].argmax(1)))
    model = perceptron(3)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def train(n_steps):
        losses = []
        while len(losses) < n_steps:
            optimizer.zero_grad()
            for number, batch in enumerate(data, start=1):
                loss = F.cross_entropy(model(batch["x"]), batch["y"])
                held = 2 if not bug and number > 12 else 4
                (loss / held).backward()
                losses.append(loss.item())
                if number % 4 == 0 or (not bug and number == len(data)):
                    optimizer.step()
                    optimizer.zero_grad()
                if len(losses) == n_steps:
                    return losses
        return losses

    return {"model": model, "loss_fn": F.cross_entropy, "optimizer": optimizer,
            "train_loader": data, "train": train, "declared": {"accumulate": 4}}  # fmt: skip


@pair("dataset-changes-itself")
def normalised_in_place_behind_a_subset(bug):
    class Table(Dataset):
        def __init__(self, n, seed):
            self.rows = (flat(n, seed) * 3 + 5).numpy()
            self.labels = self.rows[:, :3].argmax(1)

        def __len__(self):
            return len(self.rows)

        def __getitem__(self, index):
            row = self.rows[index]
            if bug:
                row -= 5
                row /= 3
            else:
                row = (row - 5) / 3
            return {"x": torch.from_numpy(row.copy()), "y": int(self.labels[index])}

    train, val = (Subset(Table(n, s), range(n)) for n, s in ((192, 0), (64, 1)))
    return program(perceptron(3), load(train), load(val, shuffle=False),
                   lambda m, b: F.cross_entropy(m(b["x"]), b["y"]))  # fmt: skip


class Fit:
    """A trainer that keeps its best weights while it trains, and can forget to go back to it."""

    def __init__(self, *, alias=False, stays_in_eval=False):
        self.model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 3))
        self.optimizer = torch.optim.Adam(self.model.parameters(), 3e-3)
        data = [Rows(x=x, y=x[:, :3].argmax(1)) for x in (flat(192, 0), flat(64, 1))]
        self.train_loader, self.val_loader = load(data[0]), load(data[1], shuffle=False)
        self.loss_fn, self.best, self.alias = F.cross_entropy, {"loss": math.inf}, alias
        self.stays_in_eval = stays_in_eval

    def train_step(self, batch):
        if not self.stays_in_eval:
            self.model.train()
        self.optimizer.zero_grad()
        loss = self.loss_fn(self.model(batch["x"]), batch["y"])
        loss.backward()
        self.optimizer.step()
        if loss.item() < self.best["loss"]:
            state = self.model.state_dict()
            self.best = {"loss": loss.item(),
                         "weights": state if self.alias else copy.deepcopy(state)}  # fmt: skip
        return loss.item()

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        hits = torch.cat([self.model(b["x"]).argmax(1) == b["y"] for b in self.val_loader])
        if not self.stays_in_eval:
            self.model.train()
        return {"val_accuracy": hits.float().mean().item()}


@pair("checkpoint-by-reference")
def best_kept_in_the_step_by_reference(bug):
    return Fit(alias=bug)


@pair("eval-mode-in-training")
def never_back_to_train_mode(bug):
    made = Fit(stays_in_eval=bug)
    if bug:
        made.model.eval()
    return made


@pair("uint8-arithmetic", "wrapped-bytes")
def mean_image_subtracted_from_bytes(bug):
    """numpy bytes minus numpy bytes wrap around."""
    pictures = np.random.default_rng(0).integers(0, 256, (200, 1, 6, 6), dtype=np.uint8)
    mean = pictures.mean(0).astype(np.uint8)

    class Pictures(Dataset):
        def __init__(self, rows):
            self.rows = rows

        def __len__(self):
            return len(self.rows)

        def __getitem__(self, index):
            raw = self.rows[index]
            less = raw - mean if bug else raw.astype(np.float32) - mean
            bright = int(raw.mean() > 127)
            return {"x": torch.from_numpy(less.astype(np.float32)) / 255, "y": bright}

    model = nn.Sequential(nn.Flatten(), *perceptron(2, 36))
    train, val = Pictures(pictures[:144]), Pictures(pictures[144:])
    return program(model, load(train), load(val, shuffle=False),
                   lambda m, b: F.cross_entropy(m(b["x"]), b["y"]))  # fmt: skip


@pair("broadcast-loss")
def distance_by_hand_broadcast(bug):
    def rows(n, seed):
        x = flat(n, seed)
        return Rows(x=x, y=x[:, 0] - x[:, 1])

    def cost(model, batch):
        out = model(batch["x"])
        return ((out if bug else out[:, 0]) - batch["y"]).abs().mean()

    return program(perceptron(1), load(rows(192, 0)), load(rows(64, 1), shuffle=False), cost)


@pair("frozen-params")
def encoder_under_no_grad(bug):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.encode, self.head = nn.Sequential(nn.Linear(8, 16), nn.Tanh()), nn.Linear(16, 3)

        def forward(self, x):
            with torch.set_grad_enabled(not bug and torch.is_grad_enabled()):
                h = self.encode(x)
            return {"logits": self.head(h)}

    def rows(n, seed):
        x = flat(n, seed)
        return Rows(x=x, y=x[:, :3].argmax(1))

    return program(Net(), load(rows(192, 0)), load(rows(64, 1), shuffle=False),
                   lambda m, b: F.cross_entropy(m(b["x"])["logits"], b["y"]))  # fmt: skip


class Bag(nn.Module):
    """The mean of embeddings; `length` says how many of them count."""

    def __init__(self, over_all):
        super().__init__()
        self.embed, self.head, self.over_all = nn.Embedding(VOCAB, 16), nn.Linear(16, 2), over_all

    def forward(self, ids, length):
        h = self.embed(ids)
        if self.over_all:
            return self.head(h.mean(1))
        inside = torch.arange(ids.shape[1])[None] < length[:, None]
        return self.head((h * inside[..., None]).sum(1) / length[:, None])


@pair("padding-not-masked")
def padding_embedded_in_a_bag(bug):
    def rows(n, seed):
        found = padded(n, seed)
        return Rows(ids=found["ids"], length=found["mask"].sum(1), label=found["label"])

    return program(Bag(bug), load(rows(192, 0)), load(rows(64, 1), shuffle=False),
                   lambda m, b: F.cross_entropy(m(b["ids"], b["length"]), b["label"]))  # fmt: skip


@pair("padding-not-masked")
def last_state_is_of_the_padding(bug):
    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(VOCAB, 12), nn.Linear(16, 2)
            self.gru = nn.GRU(12, 16, batch_first=True)

        def forward(self, ids, mask):
            h = self.embed(ids)
            if bug:
                return self.head(self.gru(h)[0][:, -1])
            packed = pack_padded_sequence(h, mask.sum(1), batch_first=True, enforce_sorted=False)
            return self.head(self.gru(packed)[1][0])

    return program(Reader(), load(Rows(**padded())), load(Rows(**padded(64, 1)), shuffle=False),
                   label_cost)  # fmt: skip


@pair("padding-not-masked", "mask-ignored")
def attention_mask_inverted(bug):
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(VOCAB, 16), nn.Linear(16, 2)
            self.block = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)

        def forward(self, ids, mask):
            ignored = mask if bug else ~mask
            if bug:
                ignored = ignored & ~mask.all(1, keepdim=True)
            h = self.block(self.embed(ids), src_key_padding_mask=ignored)
            return self.head(h[:, 0])

    return text(Encoder(), label_cost)


@pair("metric-wrong")
def threshold_on_logits(bug):
    """Several labels each: logits above 0.5 are taken for probabilities above 0.5."""

    def rows(n, seed):
        x = flat(n, seed)
        return Rows(x=x, y=(x[:, :5] > 0).float())

    def cost(model, batch):
        return F.binary_cross_entropy_with_logits(model(batch["x"]), batch["y"])

    def metric(model, batch):
        out = model(batch["x"])
        said = out > 0.5 if bug else out > 0
        return (said.float() == batch["y"]).float().mean().item()

    model = perceptron(5)
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    data, val = load(rows(192, 0)), load(rows(64, 1), shuffle=False)
    for _ in range(4):
        for batch in data:
            optimizer.zero_grad()
            cost(model, batch).backward()
            optimizer.step()
    return program(model, data, val, cost, optimizer, metric=metric,
                   loss_fn=F.binary_cross_entropy_with_logits)  # fmt: skip


@pair("augmented-validation")
def random_crops_in_validation(bug):
    class Crops(Dataset):
        def __init__(self, n, seed, random):
            self.x = torch.randn(n, 1, 8, 8, generator=own(seed)).cumsum(3)
            self.random = random

        def __len__(self):
            return len(self.x)

        def __getitem__(self, index):
            i, j = torch.randint(0, 3, (2,)).tolist() if self.random else (1, 1)
            return {"image": self.x[index][:, i : i + 6, j : j + 6],
                    "label": int(self.x[index].mean() > 0)}  # fmt: skip

    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(128, 2))
    return program(model, load(Crops(192, 0, True)), load(Crops(64, 1, bug), shuffle=False),
                   lambda m, b: F.cross_entropy(m(b["image"]), b["label"]))  # fmt: skip


@pair("rows-mixed")
def recurrent_along_the_batch(bug):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.gru = nn.Embedding(VOCAB, 12), nn.GRU(12, 16, batch_first=not bug)
            self.head = nn.Linear(16, 3)

        def forward(self, ids, mask):
            return self.head(self.gru(self.embed(ids))[0])

    def cost(model, batch):
        tags = batch["tags"].masked_fill(~batch["mask"], -100)
        return F.cross_entropy(model(batch["ids"], batch["mask"]).flatten(0, 1), tags.flatten())

    return text(Net(), cost)
