"""Ten of the seventeenth set, of unusual make, by someone who had not seen the doctor."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, WeightedRandomSampler

from tests.debug.faulty.fourteenth.kit import pairloss
from tests.debug.faulty.seventeenth.kit import (
    Columns,
    TinyLM,
    averaged,
    begun,
    by_cost,
    by_pairs,
    evaluating,
    gen,
    language,
    loader,
    loaders,
    mlp,
    plain_step,
    set_up,
    squares,
)
from tests.debug.sound.programs import sound


def curve(g, n, noise=0.1):
    """Rows [n, 4] and a parabola of two of their numbers [n, 1]."""
    x = torch.randn(n, 4, generator=g)
    return x, x[:, :1] - 0.5 * x[:, 1:2] ** 2 + noise * torch.randn(n, 1, generator=g)


@sound
def electra_style_bidirectional_tagger():
    """A tagger sees the future on purpose, as tags depend on both sides."""
    g = begun(101)
    m = TinyLM(v=12, t=10, causal=False)
    m.head = nn.Linear(32, 3)

    def data(n):
        x = torch.randint(0, 12, (n, 10), generator=g)
        after = torch.cat([x[:, 1:], x[:, :1] * 0], 1)
        return Columns(ids=x, tags=(after > x).long() - (after < x).long() + 1)

    tl, vl = loaders(data(384), data(96), 12)

    def loss_of(model, b):
        return F.cross_entropy(model(b["ids"]).flatten(0, 1), b["tags"].flatten())

    def sums_of(model, b):
        hits = model(b["ids"]).argmax(-1) == b["tags"]
        return {"acc": (hits.sum(), hits.numel())}

    opt = torch.optim.AdamW(m.parameters(), 3e-3)
    return by_cost(m, opt, tl, vl, loss_of, sums_of, num_classes=3)


class Density(nn.Module):
    """A mean and the logarithm of a variance."""

    def __init__(self):
        super().__init__()
        self.body = mlp(1, 32, 32, 2, act=nn.Tanh)

    def forward(self, x):
        mu, lv = self.body(x).chunk(2, 1)
        return mu, lv.clamp(-8, 4)


@sound
def negative_gaussian_nll():
    """The negative log-likelihood of a density falls below 0, as it should."""
    g = begun(102)

    def data(n):
        x = torch.rand(n, 1, generator=g) * 2 - 1
        return x, torch.sin(3 * x) + (0.02 + 0.1 * x.abs()) * torch.randn(n, 1, generator=g)

    m = Density()
    tl, vl = loaders(data(512), data(128))
    opt = torch.optim.Adam(m.parameters(), 4e-3)

    def crit(out, y):
        mu, lv = out
        return (0.5 * lv + 0.5 * (y - mu) ** 2 * (-lv).exp()).mean()

    def sums_of(model, b):
        n = len(b[0])
        return {"nll": (crit(model(b[0]), b[1]) * n, n)}

    def clip():
        nn.utils.clip_grad_norm_(m.parameters(), 5.0)

    step = plain_step(m, opt, pairloss(crit), clip=clip)
    known = {"evaluate": averaged(m, vl, sums_of), "declared": {"max_grad_norm": 5.0}}
    return by_pairs(m, opt, tl, vl, crit, step, **known)


@sound
def tied_embedding_and_head():
    """The output layer has the embedding's weight: one parameter under two names."""
    g = begun(103)
    m = TinyLM()
    m.head = nn.Linear(32, 20, bias=False)
    nn.init.normal_(m.tok.weight, std=0.2)
    m.head.weight = m.tok.weight
    return language(m, g, held=96)


class Probe(nn.Module):
    """Random features, always in eval mode, and a readout."""

    def __init__(self):
        super().__init__()
        self.feat = nn.Sequential(nn.Linear(4, 96), nn.BatchNorm1d(96), nn.Tanh())
        self.feat.requires_grad_(False)
        self.out = nn.Linear(96, 1)

    def train(self, mode=True):
        super().train(mode)
        self.feat.eval()
        return self

    def forward(self, x):
        return self.out(self.feat(x))


@sound
def linear_probe_on_frozen_random_features():
    """A random layer is frozen, and its batch norm never moves; only the readout learns."""
    g = begun(106)
    m = Probe().train()
    tl, vl = loaders(curve(g, 512), curve(g, 128))
    opt = torch.optim.Adam(m.out.parameters(), 3e-2)
    frozen = [f"feat.{name}" for name, _ in m.feat.named_parameters()]
    known = {"evaluate": averaged(m, vl, squares), "declared": {"frozen": frozen}}
    return by_pairs(m, opt, tl, vl, nn.MSELoss(), **known)


class AlwaysDropping(nn.Module):
    def forward(self, x):
        return F.dropout(x, 0.2, training=True)


@sound
def mc_dropout_of_20_passes():
    """Dropout stays on in evaluate(), which takes the mean of 20 passes from a seed of its own."""
    g = begun(107)
    m = nn.Sequential(nn.Linear(4, 48), nn.ReLU(), AlwaysDropping(), nn.Linear(48, 1))
    tl = loader(curve(g, 512), 32)
    vl = DataLoader(TensorDataset(*curve(g, 128)), 32)

    def sums_of(model, b):
        passes = torch.stack([model(b[0]) for _ in range(20)])
        n = len(b[0])
        return {
            "mse": (((passes.mean(0) - b[1]) ** 2).sum(), n),
            "spread": (passes.std(0).sum(), n),
        }

    mean = averaged(m, vl, sums_of)

    def evaluate():
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return mean()

    known = {"evaluate": evaluate, "declared": {"mc_dropout": True}}
    return by_pairs(m, torch.optim.Adam(m.parameters(), 5e-3), tl, vl, nn.MSELoss(), **known)


class Stateful(nn.Module):
    """Goes on from the state of the chunk before, but for the first."""

    def __init__(self):
        super().__init__()
        self.rnn = nn.RNN(1, 16, batch_first=True)
        self.out = nn.Linear(16, 1)
        self.h = None

    def forward(self, b):
        if bool(b["start"]) or self.h is None:
            self.h = torch.zeros(1, len(b["x"]), 16)
        out, h = self.rnn(b["x"], self.h)
        self.h = h.detach()
        return self.out(out).squeeze(-1)


@sound
def truncated_bptt_stateful():
    """Chunks of long series in their order; the state is carried over, detached, and begins anew
    with each epoch."""
    g = begun(110)
    s = torch.zeros(8, 401)
    for t in range(1, 401):
        s[:, t] = 0.9 * s[:, t - 1] + 0.4 * torch.randn(8, generator=g)
    s = s + torch.sin(torch.arange(401.0) / 7)

    def chunks(low, high):
        return [
            {
                "x": s[:, i : i + 10, None],
                "y": s[:, i + 1 : i + 11],
                "start": torch.tensor(i == low),
            }
            for i in range(low, high, 10)
        ]

    tl, vl = chunks(0, 300), chunks(300, 400)
    m = Stateful()
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def loss_of(model, b):
        return F.mse_loss(model(b), b["y"])

    def sums_of(model, b):
        return {"mse": (((model(b) - b["y"]) ** 2).sum(), b["y"].numel())}

    mean = averaged(m, vl, sums_of)

    def evaluate():
        kept = m.h
        found = mean()
        m.h = kept
        return found

    def clip():
        nn.utils.clip_grad_norm_(m.parameters(), 1.0)

    step = plain_step(m, opt, loss_of, clip=clip)
    declared = {"max_grad_norm": 1.0, "stateful": True}
    known = {"val_loader": vl, "loss_of": loss_of, "evaluate": evaluate, "declared": declared}
    return set_up(m, opt, tl, step, **known)


@sound
def bottleneck_autoencoder_input_is_target():
    """The loader gives each row as its own target; a bottleneck keeps it from being copied."""
    g = begun(112)
    basis = torch.randn(3, 16, generator=g)

    def data(n):
        codes = torch.randn(n, 3, generator=g)
        x = codes @ basis + 0.1 * torch.randn(n, 16, generator=g)
        return x, x

    m = mlp(16, 24, 3, 24, 16, act=nn.Tanh)
    tl, vl = loaders(data(512), data(128))
    opt = torch.optim.Adam(m.parameters(), 4e-3)
    return by_pairs(m, opt, tl, vl, nn.MSELoss(), evaluate=averaged(m, vl, squares))


@sound
def oversampled_rare_class():
    """Rare examples come many times in an epoch of training; those of validation come as they
    are."""
    g = begun(113)
    c = torch.randn(2, 8, generator=g) * 0.6

    def data(n):
        y = (torch.rand(n, generator=g) < 0.06).long()
        return c[y] + torch.randn(n, 8, generator=g), y

    x, y = data(800)
    weight = 1.0 / torch.bincount(y).float()
    sampler = WeightedRandomSampler(weight[y], len(y), replacement=True, generator=gen(2))
    tl = DataLoader(TensorDataset(x, y), 32, sampler=sampler)
    vx, vy = data(400)
    vl = loader((vx, vy), 32, shuffle=False)
    m = mlp(8, 16, 2)

    def evaluate():
        with evaluating(m):
            found = m(vx).argmax(1)
            recalls = [(found[vy == k] == k).float().mean().item() for k in (0, 1)]
        return {"balanced_acc": 0.5 * sum(recalls)}

    opt = torch.optim.Adam(m.parameters(), 2e-3)
    return by_pairs(m, opt, tl, vl, num_classes=2, evaluate=evaluate)


class Stream(IterableDataset):
    """Rows without an end, each of which is new."""

    def __init__(self):
        self.g = gen(55)

    def __iter__(self):
        while True:
            x, y = curve(self.g, 1)
            yield x[0], y[0]


@sound
def infinite_stream_of_fresh_data():
    """A loader without length or end: nothing is seen twice."""
    g = begun(118)
    m = mlp(4, 24, 1)
    tl, vl = DataLoader(Stream(), 16), loader(curve(g, 128), 32, shuffle=False)
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    return by_pairs(m, opt, tl, vl, nn.MSELoss(), evaluate=averaged(m, vl, squares))


class Codebook(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = mlp(12, 32, 4)
        self.dec = mlp(4, 32, 12)
        self.book = nn.Embedding(16, 4)

    def forward(self, x):
        z = self.enc(x)
        q = self.book(torch.cdist(z, self.book.weight).argmin(1))
        return self.dec(z + (q - z).detach()), z, q


@sound
def straight_through_codebook():
    """The nearest code takes the gradient of what it stands for; each further term has one side
    detached."""
    g = begun(119)
    c = torch.randn(6, 12, generator=g) * 1.5

    def data(n):
        rows = c[torch.randint(0, 6, (n,), generator=g)]
        return Columns(x=rows + 0.3 * torch.randn(n, 12, generator=g))

    m = Codebook()
    tl, vl = loaders(data(512), data(128))
    nn.init.normal_(m.book.weight, std=0.3)

    def loss_of(model, b):
        out, z, q = model(b["x"])
        to_codes = F.mse_loss(q, z.detach()) + 0.25 * F.mse_loss(z, q.detach())
        return F.mse_loss(out, b["x"]) + to_codes

    def sums_of(model, b):
        error = (model(b["x"])[0] - b["x"]) ** 2
        return {"recon_mse": (error.mean(1).sum(), len(error))}

    return by_cost(m, torch.optim.Adam(m.parameters(), 3e-3), tl, vl, loss_of, sums_of)
