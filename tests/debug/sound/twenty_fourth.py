"""Ten of the twenty-fourth set, of unusual make, by someone who had not seen the doctor."""

import torch
from torch import nn
from torch.distributions import Categorical
from torch.nn import functional as F
from torch.utils.data import DataLoader, Sampler, WeightedRandomSampler

from tests.debug.faulty.twenty_fourth.kit import (
    VAE,
    Bandit,
    Scorer,
    averaged,
    blobs,
    by_classes,
    by_cost,
    chain,
    costed,
    evaluating,
    feed,
    frozen,
    gen,
    halves,
    loaders,
    mlp,
    patterns,
    plain_step,
    rebuilt,
    right,
    seed,
    set_up,
    sheets,
    small_conv,
    then,
    unscored,
)
from tests.debug.sound.programs import sound
from tests.debug.sound.sixteenth_loops import Reversed


class Tuned(nn.Module):
    """A head on a body that is frozen and stays in evaluation mode."""

    def __init__(self, x):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(12, 64), nn.BatchNorm1d(64), nn.ReLU())
        with torch.no_grad():
            for _ in range(50):
                self.body(x)
        self.body.requires_grad_(False)
        self.head = nn.Linear(64, 4)

    def train(self, mode=True):
        super().train(mode)
        self.body.eval()
        return self

    def forward(self, x):
        return self.head(self.body(x))


@sound
def frozen_body_always_in_eval():
    """The body is frozen, and train() leaves it in evaluation mode."""
    seed(62)
    train, held = halves(320, 12, 4)
    tl, vl = loaders(train, held, 32, 64)
    m = Tuned(train[0]).train()
    opt = torch.optim.Adam(m.head.parameters(), 1e-2)
    return by_classes(m, opt, tl, vl, 4, declared={"frozen": frozen(m)})


@sound
def passes_with_dropout_averaged():
    """Dropout stays on in evaluation on purpose: the probabilities of 20 passes are averaged."""
    seed(64)
    tl, vl = loaders(*halves(320, 12, 4, 1.4), 32, 64)
    m = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Dropout(0.3), nn.Linear(48, 4))
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def evaluate():
        hits = n = 0
        with evaluating(m), torch.random.fork_rng(devices=[]):
            m[2].train()
            torch.manual_seed(0)
            for x, y in vl:
                p = sum(m(x).softmax(1) for _ in range(20)) / 20
                hits += (p.argmax(1) == y).sum().item()
                n += len(y)
        return {"mc_accuracy": hits / n}

    return by_classes(m, opt, tl, vl, 4, evaluate=evaluate)


@sound
def kl_weight_rises_from_zero():
    """The weight of the KL term rises from 0 to 1 over 100 steps: the loss may go up although all
    is well."""
    seed(66)
    tl, vl = sheets()
    m = VAE(16, 4, lambda mu, lv: mu + torch.randn_like(mu) * (0.5 * lv).exp())
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    steps = 0

    def loss_of(model, b):
        out, mu, lv = model(b[0])
        kl = 0.5 * (mu**2 + lv.exp() - 1 - lv).sum(1).mean()
        return 5 * ((out - b[0]) ** 2).sum(1).mean() + min(1.0, steps / 100) * kl

    def after():
        nonlocal steps
        steps += 1

    def sums_of(model, b):
        return {"rec_mse": rebuilt(model, b)}

    step = then(plain_step(m, opt, loss_of), after)
    return set_up(m, opt, tl, step, val_loader=vl, evaluate=averaged(m, vl, sums_of))


@sound
def reinforce_loss_goes_nowhere():
    """The policy's loss stays about 0 while the reward rises, by a baseline from the batch."""
    seed(67)
    bandit = Bandit()
    opt = torch.optim.Adam(bandit.model.parameters(), 5e-3)

    def loss_of(model, b):
        dist = Categorical(logits=model(b[0]))
        a = dist.sample()
        r = bandit.reward(b[0], a)
        return -((r - r.mean()).detach() * dist.log_prob(a)).mean()

    return unscored(bandit.model, opt, bandit.loader, loss_of, bandit.evaluate)


class Buckets(Sampler):
    """Batches of like length, in another order in each epoch."""

    def __init__(self, lengths, size):
        self.order = lengths.argsort()
        self.size = size
        self.g = gen(0)

    def __len__(self):
        return len(self.order) // self.size

    def __iter__(self):
        batches = self.order.split(self.size)
        places = torch.randperm(len(batches), generator=self.g)
        return (batches[i].tolist() for i in places)


class Pooled(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = mlp(2, 24, 16)
        self.out = nn.Linear(16, 1)

    def forward(self, x, n):
        is_real = (torch.arange(x.shape[1])[None] < n[:, None])[..., None]
        return self.out((self.body(x) * is_real).sum(1) / n[:, None]).squeeze(1)


@sound
def batches_of_like_length():
    """Sequences are sorted by length and batched by it; the order of the batches is shuffled."""
    seed(70)

    def data(n):
        lengths = torch.randint(3, 20, (n,))
        x = torch.randn(n, 20, 2)
        rows = [x[i, : lengths[i]] for i in range(n)]
        means = [row[:, 0].mean() for row in rows]
        return lengths, list(zip(rows, lengths, means, strict=True))

    def collate(rows):
        x, n, y = zip(*rows, strict=True)
        padded = nn.utils.rnn.pad_sequence(x, batch_first=True)
        return {"x": padded, "len": torch.stack(n), "y": torch.stack(y)}

    lengths, train = data(320)
    _, held = data(100)
    tl = DataLoader(train, batch_sampler=Buckets(lengths, 32), collate_fn=collate)
    vl = DataLoader(held, 32, collate_fn=collate)
    m = Pooled()
    opt = torch.optim.Adam(m.parameters(), 1e-2)

    def loss_of(model, b):
        return F.mse_loss(model(b["x"], b["len"]), b["y"])

    return by_cost(m, opt, tl, vl, loss_of, costed(loss_of, "y", "mse"))


@sound
def minority_oversampled_in_training_only():
    """The rare class is drawn often in training, with replacement; validation keeps its share."""
    seed(71)

    def data(n):
        y = (torch.rand(n) < 0.1).long()
        return torch.randn(n, 10) + 1.2 * y[:, None] * (torch.arange(10) < 4), y

    train, held = data(500), data(300)
    weights = torch.where(train[1] == 1, 9.0, 1.0)
    sampler = WeightedRandomSampler(weights, 500, generator=gen(0))
    tl = feed(train, 32, shuffle=False, sampler=sampler)
    vl = feed(held, 64, shuffle=False)
    m = mlp(10, 16, 2)
    opt = torch.optim.Adam(m.parameters(), 3e-3)

    def evaluate():
        with evaluating(m):
            told = torch.cat([m(x).argmax(1) for x, _ in vl])
        is_rare = held[1] == 1
        return {
            "recall_rare": (told[is_rare] == 1).float().mean().item(),
            "recall_common": (told[~is_rare] == 0).float().mean().item(),
        }

    return by_classes(m, opt, tl, vl, 2, evaluate=evaluate)


@sound
def tied_embeddings():
    """Head and embedding share one weight, which the optimizer has once."""
    seed(72)
    V, T = 17, 14
    tl, vl = loaders({"ids": chain(320, T, V, 1)}, {"ids": chain(100, T, V, 2)}, 32, 50)
    m = Scorer(V, 24, is_tied=True)
    opt = torch.optim.Adam(m.parameters(), 1e-2)

    def loss_of(model, b):
        return F.cross_entropy(model(b["ids"][:, :-1]).transpose(1, 2), b["ids"][:, 1:])

    sums_of = costed(loss_of, "ids", "val_loss")
    return by_cost(m, opt, tl, vl, loss_of, sums_of, num_classes=V)


@sound
def noise_that_grows_with_the_input():
    """A mean and a variance are learned: the loss is a density's, and rightly below 0."""
    seed(73)

    def data(n):
        x = torch.rand(n, 1) * 4 - 2
        return {"x": x, "y": torch.sin(2 * x) + (0.02 + 0.05 * x.abs()) * torch.randn(n, 1)}

    tl, vl = loaders(data(640), data(150), 32, 50)
    m = mlp(1, 48, 48, 2, act=nn.Tanh)
    opt = torch.optim.Adam(m.parameters(), 1e-2)

    def loss_of(model, b):
        mean, raw = model(b["x"]).chunk(2, 1)
        return F.gaussian_nll_loss(mean, b["y"], F.softplus(raw) + 1e-4)

    return by_cost(m, opt, tl, vl, loss_of, costed(loss_of, "x", "nll"))


@sound
def repeated_augmentation():
    """Each batch holds every picture twice, in two random views, and its label twice."""
    seed(74)
    base = torch.randn(4, 1, 8, 8)

    def collate(rows):
        x, y = (torch.stack(column) for column in zip(*rows, strict=True))
        x = x.repeat(2, 1, 1, 1)
        bright = 1 + 0.1 * torch.randn(len(x), 1, 1, 1)
        return x * bright + 0.1 * torch.randn_like(x), y.repeat(2)

    tl = feed(patterns(320, base, 0.8), 16, collate_fn=collate)
    vl = feed(patterns(150, base, 0.8), 50, shuffle=False)
    m = small_conv()
    return by_classes(m, torch.optim.Adam(m.parameters(), 3e-3), tl, vl, 4)


class Domains(nn.Module):
    """Classes, and the domain behind a layer that turns gradients round."""

    def __init__(self):
        super().__init__()
        self.body = mlp(12, 32, 16)
        self.kind = nn.Linear(16, 4)
        self.domain = mlp(16, 16, 1)

    def forward(self, x):
        h = torch.relu(self.body(x))
        return self.kind(h), self.domain(Reversed.apply(h)).squeeze(1)


@sound
def moved_domain_by_reversal():
    """A layer turns the gradient of the domain's loss round; the other domain has no labels."""
    seed(76)
    shift = torch.zeros(12)
    shift[:2] = 1.5
    (x, y), (vx, vy) = halves(320, 12, 4)
    target = blobs(320, 12, 4, 3)[0] + shift
    tl = feed({"source": x, "label": y, "target": target}, 32)
    vl = feed((vx + shift, vy), 50, shuffle=False)
    m = Domains()
    opt = torch.optim.Adam(m.parameters(), 3e-3)

    def loss_of(model, b):
        n = len(b["source"])
        kind, domain = model(torch.cat([b["source"], b["target"]]))
        due = torch.cat([torch.zeros(n), torch.ones(len(b["target"]))])
        of_domain = F.binary_cross_entropy_with_logits(domain, due)
        return F.cross_entropy(kind[:n], b["label"]) + of_domain

    def sums_of(model, b):
        return right(model(b[0])[0], b[1], "target_accuracy")

    return by_cost(m, opt, tl, vl, loss_of, sums_of, num_classes=4)
