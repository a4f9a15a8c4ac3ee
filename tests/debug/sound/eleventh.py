"""Ten of the eleventh set, of unusual make, by an author who had not read the doctor."""

import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, IterableDataset

from tests.debug.faulty.eighth.kit import gen
from tests.debug.faulty.eleventh.kit import (
    Columns,
    criterion,
    deep,
    grouped,
    groups,
    markov,
    mean_cost,
    of_classes,
    rows,
    scored,
    share_right,
)
from tests.debug.faulty.sixth.kit import of_pairs, setup, stepper
from tests.debug.sound.programs import sound


@sound
def random_features_readout():
    """A readout is trained on random features that stay as they were drawn, are not in the
    optimizer, and are declared frozen."""
    model = nn.Sequential(nn.Linear(8, 128), nn.Tanh(), nn.Linear(128, 4))
    model[0].requires_grad_(False)
    opt = torch.optim.Adam(model[2].parameters(), 3e-3)
    loader, held = grouped(384, 192, noise=1.5)
    return setup(
        model, opt, loader, held, step=stepper(model, opt, of_classes), loss_fn=criterion,
        num_classes=4, evaluate=scored(model, held, "val_acc"),
        declared={"frozen": ["0.weight", "0.bias"]},
    )  # fmt: skip


@sound
def gaussian_nll_goes_negative():
    """A likelihood with a variance of its own for each row: the loss falls below 0, as that of a
    density may."""
    g = gen(1)
    x = torch.rand(512, 1, generator=g) * 4 - 2
    y = torch.sin(2 * x) + (0.02 + 0.03 * x.abs()) * torch.randn(512, 1, generator=g)
    loader, held = rows(x[:400], y[:400]), rows(x[400:], y[400:], shuffle=False)
    model = deep(1, 2, 48)
    opt = torch.optim.Adam(model.parameters(), 3e-3)

    def nll(out, y):
        mu, log_var = out.chunk(2, 1)
        return (0.5 * log_var + 0.5 * (y - mu) ** 2 * (-log_var).exp()).mean()

    def evaluate():
        return {"val_nll": mean_cost(model, held, of_pairs(nll))}

    step = stepper(model, opt, of_pairs(nll))
    return setup(model, opt, loader, held, step=step, loss_fn=nll, evaluate=evaluate)


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.branch = nn.Sequential(nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 32))
        self.gate = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return x + self.gate * self.branch(x)


@sound
def rezero_residual():
    """Gates of residual branches start at 0, and so does the head: at the first step the branches
    have no gradient."""
    model = nn.Sequential(nn.Linear(8, 32), Gated(), Gated(), Gated(), nn.Linear(32, 4))
    nn.init.zeros_(model[-1].weight)
    nn.init.zeros_(model[-1].bias)
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    loader, held = grouped(384, 192, noise=1.5)
    return setup(
        model, opt, loader, held, step=stepper(model, opt, of_classes), loss_fn=criterion,
        num_classes=4, evaluate=scored(model, held, "val_acc"),
    )  # fmt: skip


class Tied(nn.Module):
    def __init__(self, vocab=16, d=32):
        super().__init__()
        self.embed = nn.Embedding(vocab, d)
        self.rnn = nn.GRU(d, d, batch_first=True)
        self.head = nn.Linear(d, vocab)
        self.head.weight = self.embed.weight
        nn.init.normal_(self.embed.weight, std=0.2)

    def forward(self, tokens):
        return self.head(self.rnn(self.embed(tokens))[0])


@sound
def tied_embedding_lm():
    """What embeds tokens and what tells them apart is one parameter."""
    model = Tied()
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    loader, held = rows(markov(384, 17, 16, 1)), rows(markov(128, 17, 16, 2), shuffle=False)

    def loss_of(model, batch):
        tokens = batch[0]
        return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())

    def evaluate():
        return {"val_loss": mean_cost(model, held, loss_of)}

    step = stepper(model, opt, loss_of)
    return setup(model, opt, loader, held, step=step, loss_of=loss_of, evaluate=evaluate)


class Recommender(nn.Module):
    def __init__(self):
        super().__init__()
        self.users = nn.Embedding(60, 8, sparse=True)
        self.items = nn.Embedding(40, 8, sparse=True)
        self.tower = deep(24, 1)

    def forward(self, user, item):
        a, b = self.users(user), self.items(item)
        return self.tower(torch.cat([a, b, a * b], 1))[:, 0]


@sound
def sparse_embeddings_two_optimizers():
    """Sparse tables with an optimizer of their own: most of their rows have no gradient in a
    step."""
    users, items = torch.randn(60, 2, generator=gen(1)), torch.randn(40, 2, generator=gen(2))

    def make(n, seed):
        g = gen(seed)
        u, i = torch.randint(60, (n,), generator=g), torch.randint(40, (n,), generator=g)
        return Columns(user=u, item=i, click=((users[u] * items[i]).sum(1) > 0).float())

    model = Recommender()
    of_tables = torch.optim.SparseAdam([model.users.weight, model.items.weight], 2e-2)
    of_tower = torch.optim.Adam(model.tower.parameters(), 3e-3)
    loader = DataLoader(make(3000, 3), 64, shuffle=True, generator=gen(5))
    held = DataLoader(make(500, 4), 500)

    def loss_of(model, batch):
        out = model(batch["user"], batch["item"])
        return F.binary_cross_entropy_with_logits(out, batch["click"])

    def step(batch):
        model.train()
        of_tables.zero_grad()
        of_tower.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        of_tables.step()
        of_tower.step()
        return loss.item()

    def evaluate():
        model.eval()
        batch = next(iter(held))
        with torch.no_grad():
            hits = (model(batch["user"], batch["item"]) > 0) == (batch["click"] > 0.5)
        return {"val_acc": hits.float().mean().item()}

    return setup(
        model, [of_tables, of_tower], loader, held, step=step, loss_of=loss_of, evaluate=evaluate
    )


@sound
def focal_prior_bias():
    """4 % are positive, and the bias starts at the log-odds of that: a focal loss that starts low,
    and labels that are skewed, are meant."""

    def make(n, seed):
        g = gen(seed)
        y = (torch.rand(n, generator=g) < 0.04).float()
        return torch.randn(n, 8, generator=g) + y[:, None] * 1.2, y

    loader, held = rows(*make(1500, 1), batch=64), rows(*make(600, 2), shuffle=False)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1), nn.Flatten(0))
    nn.init.constant_(model[2].bias, math.log(0.04 / 0.96))

    def focal(out, y):
        p = torch.sigmoid(out)
        right = torch.where(y > 0.5, p, 1 - p)
        weight = torch.where(y > 0.5, 0.75, 0.25)
        each = F.binary_cross_entropy_with_logits(out, y, reduction="none")
        return (weight * (1 - right) ** 2 * each).sum() / y.sum().clamp(min=1)

    opt = torch.optim.Adam(model.parameters(), 3e-3)

    def evaluate():
        model.eval()
        x, y = held.dataset.tensors
        with torch.no_grad():
            out = model(x)
        above = out[y > 0.5][:, None] > out[y < 0.5][None]
        return {"auc": above.float().mean().item()}

    step = stepper(model, opt, of_pairs(focal))
    return setup(model, opt, loader, held, step=step, loss_fn=focal, evaluate=evaluate)


class Skipping(nn.Module):
    """Blocks that are left out at random in training, and count for their share in evaluation."""

    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Linear(8, 32), nn.Linear(32, 4)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 32))
            for _ in range(4)
        )

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            if not self.training:
                x = x + 0.7 * block(x)
            elif torch.rand(()) < 0.7:
                x = x + block(x)
        return self.head(x)


@sound
def stochastic_depth():
    """Whole blocks have no gradient in some steps."""
    model = Skipping()
    opt = torch.optim.AdamW(model.parameters(), 3e-3)
    loader, held = grouped(384, 192, noise=1.5)
    return setup(
        model, opt, loader, held, step=stepper(model, opt, of_classes), loss_fn=criterion,
        num_classes=4, evaluate=scored(model, held, "val_acc"),
    )  # fmt: skip


class Turned(torch.autograd.Function):
    """What it is given, whose gradient goes back against its own direction."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return -0.3 * gradient


class Adversarial(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 16))
        self.classes, self.domains = nn.Linear(16, 4), deep(16, 1, 16)

    def forward(self, x):
        return self.classes(self.features(x))


@sound
def domain_adversarial():
    """Features are to hide which of two domains they are of: a part of the loss stays near
    log 2."""
    model = Adversarial()
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    (x, y), (other_x, other_y) = groups(384, seed=1), groups(384, seed=2)
    other_x = other_x + 0.8
    columns = Columns(source=x, label=y, target=other_x)
    loader = DataLoader(columns, 32, shuffle=True, generator=gen(3))
    held = rows(other_x, other_y, shuffle=False)

    def loss_of(model, batch):
        source, target = model.features(batch["source"]), model.features(batch["target"])
        told = model.domains(Turned.apply(torch.cat([source, target])))[:, 0]
        which = torch.cat([torch.zeros(len(source)), torch.ones(len(target))])
        apart = F.binary_cross_entropy_with_logits(told, which)
        return criterion(model.classes(source), batch["label"]) + apart

    def evaluate():
        return {"target_acc": share_right(model, held)}

    step = stepper(model, opt, loss_of)
    return setup(
        model, opt, loader, held, step=step, loss_of=loss_of, evaluate=evaluate, num_classes=4
    )


@sound
def infinite_synthetic_stream():
    """Rows are made as they are asked for, without an end, an epoch, or a length."""
    w = torch.randn(6, generator=gen(1))

    class Stream(IterableDataset):
        g = gen(7)

        def __iter__(self):
            while True:
                x = torch.randn(6, generator=self.g)
                yield x, torch.tanh(x @ w)[None]

    loader = DataLoader(Stream(), 32)
    x = torch.randn(256, 6, generator=gen(8))
    held = rows(x, torch.tanh(x @ w)[:, None], shuffle=False)
    model = deep(6, 1)
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    huber = nn.HuberLoss()

    def evaluate():
        return {"val_huber": mean_cost(model, held, of_pairs(huber))}

    step = stepper(model, opt, of_pairs(huber))
    return setup(model, opt, loader, held, step=step, loss_fn=huber, evaluate=evaluate)


class Denoising(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode, self.decode = deep(20, 4), deep(4, 20)

    def forward(self, x):
        return self.decode(self.encode(x + 0.2 * torch.randn_like(x) if self.training else x))


@sound
def denoising_autoencoder_same_target():
    """Inputs are their own targets; the noise is added inside the model, in training alone."""
    g = gen(1)
    z = torch.randn(512, 3, generator=g)
    x = torch.tanh(z @ torch.randn(3, 20, generator=g))
    loader, held = rows(x[:400], x[:400]), rows(x[400:], x[400:], shuffle=False)
    model = Denoising()
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    mse = nn.MSELoss()

    def evaluate():
        return {"val_mse": mean_cost(model, held, of_pairs(mse))}

    step = stepper(model, opt, of_pairs(mse))
    return setup(model, opt, loader, held, step=step, loss_fn=mse, evaluate=evaluate)
