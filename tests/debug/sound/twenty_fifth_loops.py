"""Ten of the twenty-fifth set whose loops are of unusual make."""

import copy

import torch
from torch import nn
from torch.func import functional_call, grad
from torch.nn import functional as F

from tests.debug.faulty.fourteenth.kit import energy
from tests.debug.faulty.twenty_fifth.kit import (
    BarNet,
    Flat,
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
    right,
    row_squares,
    seed,
    set_up,
    sup_step,
    words,
)
from tests.debug.sound.programs import sound


@sound
def steps_with_a_closure():
    """LBFGS calls the loss several times in a step."""
    seed(71)
    tl, vl = loaders(house(320, 711), house(160, 712), 320, 160)
    m = Flat(6, 16, 1)
    opt = torch.optim.LBFGS(m.parameters(), max_iter=4, line_search_fn="strong_wolfe")
    crit = nn.MSELoss()

    def step(b):
        m.train()

        def closure():
            opt.zero_grad()
            loss = crit(m(b[0]), b[1])
            loss.backward()
            return loss

        return opt.step(closure).item()

    evaluate = averaged(m, vl, row_squares)
    return by_pairs(m, opt, tl, vl, crit, step, evaluate=evaluate, task="regression")


@sound
def climbed_before_each_step():
    """Sharpness-aware: up to the worst near point, the gradient there, back, and the step."""
    seed(72)
    tl, vl = loaders(*halves(256, 12, 4, 1.4), 32, 64)
    m = mlp(12, 32, 4)
    opt = torch.optim.SGD(m.parameters(), 0.05, momentum=0.9)
    crit = nn.CrossEntropyLoss()

    def step(b):
        x, y = b
        m.train()
        opt.zero_grad()
        loss = crit(m(x), y)
        loss.backward()
        with torch.no_grad():
            norm = torch.stack([p.grad.norm() for p in m.parameters()]).norm()
            up = [0.05 * p.grad / (norm + 1e-12) for p in m.parameters()]
            for p, e in zip(m.parameters(), up, strict=True):
                p.add_(e)
        opt.zero_grad()
        crit(m(x), y).backward()
        with torch.no_grad():
            for p, e in zip(m.parameters(), up, strict=True):
                p.sub_(e)
        opt.step()
        return loss.item()

    evaluate = averaged(m, vl, class_sums)
    return by_pairs(m, opt, tl, vl, crit, step, evaluate=evaluate, num_classes=4)


@sound
def gradients_as_values():
    """The gradients come from torch.func and are put into .grad by hand."""
    seed(73)
    tl, vl = loaders(*halves(320, 12, 4), 32, 64)
    m = mlp(12, 32, 4)
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    crit = nn.CrossEntropyLoss()

    def cost(params, x, y):
        loss = crit(functional_call(m, params, (x,)), y)
        return loss, loss

    def step(b):
        params = {name: p.detach() for name, p in m.named_parameters()}
        grads, loss = grad(cost, has_aux=True)(params, *b)
        for name, p in m.named_parameters():
            p.grad = grads[name]
        opt.step()
        return loss.item()

    evaluate = averaged(m, vl, class_sums)
    return by_pairs(m, opt, tl, vl, crit, step, evaluate=evaluate, num_classes=4)


class Stream(nn.Module):
    def __init__(self, V):
        super().__init__()
        self.emb = nn.Embedding(V, 16)
        self.gru = nn.GRU(16, 32, batch_first=True)
        self.out = nn.Linear(32, V)

    def forward(self, ids, h=None):
        states, h = self.gru(self.emb(ids), h)
        return self.out(states), h


@sound
def state_goes_on_through_a_text():
    """Eight texts are read in parts; the state goes on from part to part, cut off from its past,
    and begins anew with the texts."""
    seed(74)
    V, T = 10, 16

    def parts(n, s):
        text = words(8, n * T + 1, V, s)
        return [
            {"ids": text[:, k * T : k * T + T], "told": text[:, k * T + 1 : k * T + T + 1],
             "begins": k == 0}
            for k in range(n)
        ]  # fmt: skip

    tl, vl = parts(20, 1), parts(8, 2)
    m = Stream(V)
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    kept = {"h": None}

    def step(b):
        m.train()
        out, h = m(b["ids"], None if b["begins"] else kept["h"])
        kept["h"] = h.detach()
        loss = F.cross_entropy(out.flatten(0, 1), b["told"].flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.item()

    def evaluate():
        cost, n, h = 0.0, 0, None
        with evaluating(m):
            for b in vl:
                out, h = m(b["ids"], None if b["begins"] else h)
                told = b["told"].flatten()
                cost += F.cross_entropy(out.flatten(0, 1), told, reduction="sum").item()
                n += told.numel()
        return {"val_loss": cost / n}

    return set_up(m, opt, tl, step, val_loader=vl, evaluate=evaluate)


@sound
def mean_of_weights_with_its_own_statistics():
    """The mean of the weights on the way is scored; its batch norm's statistics are taken from the
    training rows first."""
    seed(75)
    tl, vl = loaders(bars(256, 751), bars(160, 752), 32, 64)
    m = BarNet()
    mean = torch.optim.swa_utils.AveragedModel(m)
    opt = torch.optim.SGD(m.parameters(), 0.05, momentum=0.9)
    crit = nn.CrossEntropyLoss()
    still = feed((tl.dataset.tensors[0],), 64, shuffle=False)
    step = sup_step(m, opt, crit, lambda: mean.update_parameters(m))
    counted = averaged(mean, vl, class_sums)

    def evaluate():
        torch.optim.swa_utils.update_bn(still, mean)
        return counted()

    return by_pairs(m, opt, tl, vl, crit, step, evaluate=evaluate, num_classes=4)


@sound
def learned_to_be_tuned():
    """Each batch holds tasks; a step of tuning within a task is differentiated through."""
    seed(76)

    def tasks(n, s):
        g = gen(s)
        size = 0.5 + 2 * torch.rand(n, 1, 1, generator=g)
        phase = 3.14 * torch.rand(n, 1, 1, generator=g)
        x = 6 * torch.rand(n, 20, 1, generator=g) - 3
        return x, size * torch.sin(x + phase)

    tl, vl = loaders(tasks(320, 1), tasks(64, 2), 8, 64)
    m = mlp(1, 32, 32, 1)
    opt = torch.optim.Adam(m.parameters(), 3e-3)

    def after_tuning(model, x, y):
        """The cost of a task's last 10 points after a step on its first 10."""
        params = dict(model.named_parameters())
        with torch.enable_grad():
            cost = F.mse_loss(functional_call(model, params, (x[:10],)), y[:10])
            grads = torch.autograd.grad(cost, list(params.values()), create_graph=True)
        tuned = {k: p - 0.05 * g for (k, p), g in zip(params.items(), grads, strict=True)}
        return F.mse_loss(functional_call(model, tuned, (x[10:],)), y[10:])

    def loss_of(model, b):
        return torch.stack([after_tuning(model, x, y) for x, y in zip(*b, strict=True)]).mean()

    def sums_of(model, b):
        return {"tuned_mse": (loss_of(model, b) * len(b[0]), len(b[0]))}

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


@sound
def law_of_motion_in_the_loss():
    """A curve that starts at 1 and is to obey u' = -2 u: gradients by the inputs are needed in
    evaluation too."""
    seed(77)
    tl, vl = loaders((2 * torch.rand(320, 1),), (2 * torch.rand(100, 1),), 32, 100)
    m = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def residual(model, t):
        with torch.enable_grad():
            t = t.detach().requires_grad_()
            u = model(t)
            du = torch.autograd.grad(u.sum(), t, create_graph=True)[0]
            return du + 2 * u

    def loss_of(model, b):
        start = model(torch.zeros(1, 1)) - 1
        return residual(model, b[0]).pow(2).mean() + start.pow(2).mean()

    def sums_of(model, b):
        n = len(b[0])
        off = (model(b[0]) - torch.exp(-2 * b[0])).abs().sum()
        return {"residual": (residual(model, b[0]).detach().pow(2).sum(), n), "off": (off, n)}

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.EmbeddingBag(200, 16, mode="sum", sparse=True)
        self.out = nn.Linear(16, 3)

    def forward(self, ids):
        return self.out(self.emb(ids))


@sound
def sparse_rows_with_an_optimizer_of_their_own():
    """The table of words has sparse gradients and SparseAdam, the head has AdamW; few words occur
    in a batch."""
    seed(78)

    def texts(n, s):
        g = gen(s)
        y = torch.randint(0, 3, (n,), generator=g)
        ids = torch.randint(0, 200, (n, 12), generator=g)
        own = torch.rand(n, 12, generator=g) < 0.5
        return torch.where(own, ids // 3 * 3 % 198 + y[:, None], ids), y

    tl, vl = loaders(texts(384, 1), texts(160, 2), 32, 64)
    m = Bag()
    opts = [
        torch.optim.SparseAdam(list(m.emb.parameters()), 1e-2),
        torch.optim.AdamW(m.out.parameters(), 5e-3),
    ]
    crit = nn.CrossEntropyLoss()

    def step(b):
        m.train()
        for opt in opts:
            opt.zero_grad()
        loss = crit(m(b[0]), b[1])
        loss.backward()
        for opt in opts:
            opt.step()
        return loss.item()

    evaluate = averaged(m, vl, class_sums)
    return by_pairs(m, opts, tl, vl, crit, step, evaluate=evaluate, num_classes=3)


class Speaker(nn.Module):
    """Tells a row of words from a vector, reading its own words or given ones."""

    def __init__(self, V):
        super().__init__()
        self.start = nn.Linear(V, 32)
        self.emb = nn.Embedding(V + 1, 16)
        self.cell = nn.GRUCell(16, 32)
        self.out = nn.Linear(32, V)
        self.V = V

    def forward(self, x, T, given=None, share=0.0):
        h = torch.tanh(self.start(x))
        word = torch.full((len(x),), self.V)
        outs = []
        for t in range(T):
            h = self.cell(self.emb(word), h)
            outs.append(self.out(h))
            word = outs[-1].argmax(1)
            if given is not None:
                word = torch.where(torch.rand(len(x)) < share, given[:, t], word)
        return torch.stack(outs, 1)


@sound
def reads_its_own_words_more_and_more():
    """Scheduled sampling: in training a word that was told is read in place of the right one, at
    first rarely."""
    seed(79)
    V, T = 8, 6

    def rows(n, s):
        first = torch.randint(0, V, (n,), generator=gen(s))
        ids = (first[:, None] + 3 * torch.arange(T) + (torch.arange(T) ** 2)) % V
        return F.one_hot(first, V).float() + 0.2 * torch.randn(n, V, generator=gen(s + 1)), ids

    tl, vl = loaders(rows(320, 1), rows(160, 3), 32, 64)
    m = Speaker(V)
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    share = {"given": 1.0}

    def step(b):
        x, ids = b
        m.train()
        opt.zero_grad()
        out = m(x, T, ids, share["given"])
        loss = F.cross_entropy(out.flatten(0, 1), ids.flatten())
        loss.backward()
        opt.step()
        share["given"] = max(0.25, share["given"] * 0.99)
        return loss.item()

    def sums_of(model, b):
        return right(model(b[0], T), b[1], "word_accuracy")

    evaluate = averaged(m, vl, sums_of)
    return set_up(m, opt, tl, step, val_loader=vl, evaluate=evaluate)


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.G = mlp(4, 32, 2)
        self.D = mlp(2, 32, 1)
        self.slow = copy.deepcopy(self.G).requires_grad_(False)

    def forward(self, z):
        return self.G(z)


@sound
def critic_takes_three_steps_for_one():
    """A hinge loss, three steps of the critic for one of the generator, and a slow copy of the
    generator that is scored."""
    seed(80)

    def points(n, s):
        g = gen(s)
        x = torch.randn(n, 1, generator=g)
        return (torch.cat([x + 2, 0.5 * x**2 - 1], 1) + 0.2 * torch.randn(n, 2, generator=g),)

    tl, vl = loaders(points(512, 1), points(300, 2), 64, 300)
    m = Pair()
    opt_g = torch.optim.Adam(m.G.parameters(), 2e-3, betas=(0.5, 0.9))
    opt_d = torch.optim.Adam(m.D.parameters(), 2e-3, betas=(0.5, 0.9))

    def step(b):
        (x,) = b
        for _ in range(3):
            made = m.G(torch.randn(len(x), 4)).detach()
            loss = F.relu(1 - m.D(x)).mean() + F.relu(1 + m.D(made)).mean()
            opt_d.zero_grad()
            loss.backward()
            opt_d.step()
        m.D.requires_grad_(False)
        own = -m.D(m.G(torch.randn(len(x), 4))).mean()
        opt_g.zero_grad()
        own.backward()
        opt_g.step()
        m.D.requires_grad_(True)
        with torch.no_grad():
            for s, p in zip(m.slow.parameters(), m.G.parameters(), strict=True):
                s.lerp_(p, 0.1)
        return loss.item()

    z = torch.randn(300, 4, generator=gen(800))

    def evaluate():
        with evaluating(m):
            return {"sample_distance": energy(m.slow(z), next(iter(vl))[0])}

    return set_up(m, [opt_g, opt_d], tl, step, val_loader=vl, evaluate=evaluate)
