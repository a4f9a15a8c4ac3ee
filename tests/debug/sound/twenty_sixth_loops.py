"""Ten more of the twenty-sixth set: loops of unusual make, each right."""

import copy

import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F
from torch.nn.utils.parametrizations import spectral_norm

from tests.debug.faulty.fifteenth.kit import energy
from tests.debug.faulty.twenty_sixth.kit import (
    averaged,
    bars,
    by_cost,
    by_pairs,
    class_sums,
    evaluating,
    feed,
    gen,
    halves,
    house,
    loaders,
    mlp,
    next_sums,
    plain_step,
    row_squares,
    seed,
    set_up,
    words,
)
from tests.debug.sound.programs import sound


@sound
def step_from_where_it_is_worst():
    """Sharpness-aware steps: the weights go uphill, the gradient there is taken, the weights go
    back, and that gradient moves them."""
    seed(91)
    train, held = halves(400, 12, 5)
    tl, vl = loaders(train, held, 40, 75)
    m = mlp(12, 48, 5)
    opt = torch.optim.SGD(m.parameters(), 0.05, momentum=0.9)
    crit = nn.CrossEntropyLoss()

    def step(b):
        m.train()
        opt.zero_grad()
        loss = crit(m(b[0]), b[1])
        loss.backward()
        norm = torch.stack([p.grad.norm() for p in m.parameters()]).norm() + 1e-12
        before = [p.detach().clone() for p in m.parameters()]
        with torch.no_grad():
            for p in m.parameters():
                p.add_(0.05 * p.grad / norm)
        opt.zero_grad()
        crit(m(b[0]), b[1]).backward()
        with torch.no_grad():
            for p, was in zip(m.parameters(), before, strict=True):
                p.copy_(was)
        opt.step()
        return loss.item()

    return by_pairs(m, opt, tl, vl, crit, step, num_classes=5)


class Critics(nn.Module):
    def __init__(self):
        super().__init__()
        self.G = mlp(4, 32, 2)
        self.D = nn.Sequential(
            spectral_norm(nn.Linear(2, 32)), nn.ReLU(), spectral_norm(nn.Linear(32, 1))
        )


@sound
def critic_with_a_bounded_slope():
    """A critic by spectral norm, three of its steps to one of the generator, hinge losses: what is
    reported is the critic's, and can rise."""
    seed(92)
    g = gen(920)
    x = torch.randn(640, 2, generator=g) * 0.4 + torch.tensor([1.0, -1.0])
    tl = feed((x,), 64)
    m = Critics()
    o_g = torch.optim.Adam(m.G.parameters(), 3e-3, betas=(0.0, 0.9))
    o_d = torch.optim.Adam(m.D.parameters(), 3e-3, betas=(0.0, 0.9))
    done = {"steps": 0}

    def step(b):
        m.train()
        real = b[0]
        o_d.zero_grad()
        fake = m.G(torch.randn(len(real), 4)).detach()
        loss = F.relu(1 - m.D(real)).mean() + F.relu(1 + m.D(fake)).mean()
        loss.backward()
        o_d.step()
        done["steps"] += 1
        if done["steps"] % 3 == 0:
            o_g.zero_grad()
            (-m.D(m.G(torch.randn(len(real), 4))).mean()).backward()
            o_g.step()
        return loss.item()

    z = torch.randn(300, 4, generator=g)

    def evaluate():
        with evaluating(m):
            return {"energy": energy(m.G(z), x[:300])}

    return set_up(m, [o_d, o_g], tl, step, evaluate=evaluate)


@sound
def start_that_learns_to_be_adapted():
    """Each batch holds tasks of their own, lines of unlike slope; the loss is that of weights one
    inner step away, and its gradient goes through that step."""
    seed(93)

    def tasks(n, s):
        g = gen(s)
        slope, base = torch.randn(n, 1, 1, generator=g), torch.randn(n, 1, 1, generator=g)
        x = 4 * torch.rand(n, 10, 1, generator=g) - 2
        return {"x": x, "y": slope * x + base}

    tl, vl = loaders(tasks(200, 931), tasks(60, 932), 4, 20)
    m = mlp(1, 24, 1)
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def after(model, x, y):
        w = dict(model.named_parameters())
        with torch.enable_grad():
            inner = F.mse_loss(functional_call(model, w, (x[:5],)), y[:5])
            grads = torch.autograd.grad(inner, list(w.values()), create_graph=True)
        moved = {k: p - 0.05 * g for (k, p), g in zip(w.items(), grads, strict=True)}
        return F.mse_loss(functional_call(model, moved, (x[5:],)), y[5:])

    def loss_of(model, b):
        return torch.stack([after(model, x, y) for x, y in zip(b["x"], b["y"], strict=True)]).mean()

    def sums_of(model, b):
        return {"mse_after_a_step": (loss_of(model, b) * len(b["x"]), len(b["x"]))}

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


@sound
def gradient_guessed_from_tries():
    """Evolution: 16 pairs of random moves are tried and the gradient is put together by hand,
    without a backward pass."""
    seed(94)
    train, held = halves(400, 8, 3, 0.7)
    tl, vl = loaders(train, held, 80, 75)
    m = nn.Linear(8, 3)
    opt = torch.optim.SGD(m.parameters(), 0.2)
    size = sum(p.numel() for p in m.parameters())

    @torch.no_grad()
    def step(b):
        m.train()
        at = nn.utils.parameters_to_vector(m.parameters()).clone()

        def cost(v):
            nn.utils.vector_to_parameters(v, m.parameters())
            return F.cross_entropy(m(b[0]), b[1])

        total = torch.zeros(size)
        for _ in range(16):
            e = torch.randn(size)
            total += (cost(at + 0.05 * e) - cost(at - 0.05 * e)) / 0.1 * e / 16
        loss = cost(at).item()
        first = 0
        for p in m.parameters():
            p.grad = total[first : first + p.numel()].view_as(p).clone()
            first += p.numel()
        opt.step()
        return loss

    return by_pairs(m, opt, tl, vl, None, step, num_classes=3)


class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.EmbeddingBag(200, 16, mode="mean", sparse=True)
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        return self.head(self.words(x))


@sound
def sparse_rows_and_a_dense_head():
    """The embedding has sparse gradients and an optimizer for such; the head has one of its own.
    Words that no row has do not move."""
    seed(95)

    def rows(n, s):
        g = gen(s)
        y = torch.randint(0, 3, (n,), generator=g)
        own = 40 * y[:, None] + torch.randint(0, 40, (n, 10), generator=g)
        other = torch.randint(0, 150, (n, 10), generator=g)
        return torch.where(torch.rand(n, 10, generator=g) < 0.4, own, other), y

    tl, vl = loaders(rows(480, 951), rows(200, 952), 40, 100)
    m = Bag()
    opts = [
        torch.optim.SparseAdam(m.words.parameters(), 2e-2),
        torch.optim.Adam(m.head.parameters(), 5e-3),
    ]

    def step(b):
        m.train()
        for o in opts:
            o.zero_grad()
        loss = F.cross_entropy(m(b[0]), b[1])
        loss.backward()
        for o in opts:
            o.step()
        return loss.item()

    return by_pairs(
        m, opts, tl, vl, None, step, num_classes=3, evaluate=averaged(m, vl, class_sums)
    )


class Again(nn.Module):
    def __init__(self):
        super().__init__()
        self.begin = nn.Linear(6, 32)
        self.block = nn.Linear(32, 32)
        self.end = nn.Linear(32, 1)

    def forward(self, x):
        h = self.begin(x)
        for _ in range(6):
            h = h + 0.3 * torch.tanh(self.block(h))
        return self.end(h)[:, 0]


@sound
def one_block_six_times_over():
    """One block is gone through six times; the step is made by L-BFGS, which takes the loss of a
    batch several times over."""
    seed(96)
    tl, vl = loaders(house(480, 961), house(200, 962), 240, 100)
    m = Again()
    opt = torch.optim.LBFGS(m.parameters(), 0.3, max_iter=3, history_size=5)
    crit = nn.MSELoss()

    def step(b):
        m.train()

        def closure():
            opt.zero_grad()
            loss = crit(m(b[0]), b[1])
            loss.backward()
            return loss

        return opt.step(closure).item()

    return by_pairs(
        m, opt, tl, vl, crit, step, task="regression", evaluate=averaged(m, vl, row_squares)
    )


@sound
def walk_through_the_posterior():
    """Langevin steps: noise is added to the weights after each update; scored is the mean of the
    answers of weights kept on the way."""
    seed(97)
    train, held = halves(400, 10, 4)
    tl, vl = loaders(train, held, 40, 75)
    m = mlp(10, 24, 4)
    opt = torch.optim.SGD(m.parameters(), 0.05, weight_decay=1e-3)
    kept = []
    done = {"steps": 0}

    def step(b):
        m.train()
        opt.zero_grad()
        loss = F.cross_entropy(m(b[0]), b[1])
        loss.backward()
        opt.step()
        with torch.no_grad():
            for p in m.parameters():
                p.add_(0.004 * torch.randn_like(p))
        done["steps"] += 1
        if done["steps"] % 10 == 0:
            kept.append(copy.deepcopy(m.state_dict()))
            del kept[:-8]
        return loss.item()

    def evaluate():
        hits = n = 0
        with evaluating(m):
            for x, y in vl:
                states = kept or [dict(m.state_dict())]
                p = sum(functional_call(m, w, (x,)).softmax(1) for w in states)
                hits += (p.argmax(1) == y).sum().item()
                n += len(y)
        return {"val_acc": hits / n}

    return by_pairs(m, opt, tl, vl, None, step, num_classes=4, evaluate=evaluate)


@sound
def hardest_of_the_batch():
    """Triplets of the farthest alike and the nearest unlike in the batch: the loss stays near its
    margin for long while the neighbours become right."""
    seed(98)
    train, held = halves(400, 12, 5, 1.0)
    tl, vl = loaders(train, held, 50, 75)
    m = mlp(12, 64, 8)
    opt = torch.optim.Adam(m.parameters(), 3e-3)

    def loss_of(model, b):
        z = F.normalize(model(b[0]), dim=1)
        far = torch.cdist(z, z)
        alike = b[1][:, None] == b[1][None]
        worst = (far * alike).max(1).values
        nearest = far.masked_fill(alike, 9).min(1).values
        return F.softplus(5 * (worst - nearest + 0.2)).mean() / 5

    def evaluate():
        with evaluating(m):
            z, vz = F.normalize(m(train[0]), dim=1), F.normalize(m(held[0]), dim=1)
        near = torch.cdist(vz, z).topk(5, largest=False).indices
        told = F.one_hot(train[1][near], 5).sum(1).argmax(1)
        return {"knn_acc": (told == held[1]).float().mean().item()}

    return set_up(
        m, opt, tl, plain_step(m, opt, loss_of), val_loader=vl, loss_of=loss_of, evaluate=evaluate
    )


@sound
def half_precision_for_a_share():
    """The forward pass is in bfloat16 by autocast, the weights are in float32, and the norm of the
    gradients is clipped by what it was before."""
    seed(99)
    tl, vl = loaders(bars(320, 991, 0.8), bars(160, 992, 0.8), 32, 80)
    m = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(128, 4),
    )  # fmt: skip
    opt = torch.optim.AdamW(m.parameters(), 3e-3)
    norms = []

    def step(b):
        m.train()
        opt.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.cross_entropy(m(b[0]).float(), b[1])
        loss.backward()
        limit = 2 * sorted(norms)[len(norms) // 2] if len(norms) > 5 else 10.0
        norms.append(float(nn.utils.clip_grad_norm_(m.parameters(), limit)))
        del norms[:-20]
        opt.step()
        return loss.item()

    return by_pairs(m, opt, tl, vl, None, step, num_classes=4)


class Gated(nn.Module):
    def __init__(self, V=18, d=24):
        super().__init__()
        self.emb = nn.Embedding(V, d)
        self.rnn = nn.GRU(d, d, batch_first=True)
        self.head = nn.Linear(d, V, bias=False)
        self.head.weight = self.emb.weight

    def forward(self, x):
        return self.head(self.rnn(self.emb(x))[0])


@sound
def tied_head_with_smoothing_and_warm_up():
    """The head is the embedding's weight, the loss is smoothed and bounded below by more than 0,
    and the rate rises for 30 steps and then falls with the root."""
    seed(100)
    tl, vl = feed(words(320, 16, 18, 1001), 16), feed(words(160, 16, 18, 1002), 40, shuffle=False)
    m = Gated()
    opt = torch.optim.AdamW(m.parameters(), 1e-2)
    rate = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda k: min((k + 1) / 30, (30 / (k + 1)) ** 0.5)
    )

    def loss_of(model, x):
        out = model(x[:, :-1]).flatten(0, 1)
        return F.cross_entropy(out, x[:, 1:].flatten(), label_smoothing=0.1)

    return by_cost(
        m, opt, tl, vl, loss_of, next_sums, step=plain_step(m, opt, loss_of, rate),
        scheduler=rate, declared={"scheduler_unit": "batch", "label_smoothing": 0.1},
        num_classes=18,
    )  # fmt: skip
