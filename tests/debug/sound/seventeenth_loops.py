"""Ten more of the seventeenth set: climbs, critics, warm-ups, averages, closures, noise, masks."""

import copy

import torch
from torch import nn
from torch.nn import functional as F

from tests.debug.faulty.seventeenth.kit import (
    Columns,
    averaged,
    begun,
    blobs,
    by_cost,
    by_pairs,
    costed,
    evaluating,
    gen,
    loader,
    loaders,
    mlp,
    set_up,
    squares,
)
from tests.debug.faulty.thirteenth.kit import sup_step
from tests.debug.sound.programs import sound
from tests.debug.sound.seventeenth import curve


def groups(g):
    return loaders(blobs(g, 400), blobs(g, 150))


@sound
def sam_up_and_back():
    """Two backward passes per update; the weights are moved up between them and put back."""
    g = begun(104)
    m = mlp(10, 24, 4)
    opt = torch.optim.SGD(m.parameters(), 0.05, momentum=0.9)
    tl, vl = groups(g)
    crit, weights = nn.CrossEntropyLoss(), list(m.parameters())

    def step(b):
        opt.zero_grad()
        loss = crit(m(b[0]), b[1])
        loss.backward()
        norm = torch.stack([p.grad.norm() for p in weights]).norm() + 1e-12
        kept = [p.detach().clone() for p in weights]
        with torch.no_grad():
            for p in weights:
                p.add_(p.grad * (0.05 / norm))
        opt.zero_grad()
        crit(m(b[0]), b[1]).backward()
        with torch.no_grad():
            for p, was in zip(weights, kept, strict=True):
                p.copy_(was)
        opt.step()
        return loss.item()

    return by_pairs(m, opt, tl, vl, crit, step, num_classes=4)


@sound
def wgan_clipped_critic():
    """Three steps of the critic per update, losses of either sign, weights clamped in place."""
    g = begun(105)
    real = torch.randn(512, 2, generator=g) * 0.5 + torch.tensor([1.0, 1.0])
    m = nn.ModuleDict({"gen": mlp(4, 16, 2), "critic": mlp(2, 24, 1)})
    maker, critic = m["gen"], m["critic"]
    og = torch.optim.RMSprop(maker.parameters(), 1e-3)
    oc = torch.optim.RMSprop(critic.parameters(), 2e-3)
    tl = loader(Columns(x=real), 32)

    def step(b):
        x = b["x"]
        for _ in range(3):
            oc.zero_grad()
            with torch.no_grad():
                fake = maker(torch.randn(len(x), 4))
            loss = critic(fake).mean() - critic(x).mean()
            loss.backward()
            oc.step()
            with torch.no_grad():
                for p in critic.parameters():
                    p.clamp_(-0.1, 0.1)
        critic.requires_grad_(False)
        og.zero_grad()
        (-critic(maker(torch.randn(len(x), 4))).mean()).backward()
        og.step()
        critic.requires_grad_(True)
        return loss.item()

    def evaluate():
        with evaluating(m):
            fake = maker(torch.randn(400, 4, generator=gen(3)))
            return {"mean_gap": (fake.mean(0) - real.mean(0)).norm().item()}

    return set_up(m, [og, oc], tl, step, evaluate=evaluate)


@sound
def warmup_from_zero():
    """The rate begins at exactly 0, so the first step moves nothing, and falls as an inverse square
    root after its warm-up."""
    g = begun(108)
    m = mlp(10, 24, 4)
    opt = torch.optim.AdamW(m.parameters(), 1e-2)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda k: min(k / 20, (20 / max(k, 1)) ** 0.5)
    )
    tl, vl = groups(g)
    crit = nn.CrossEntropyLoss(label_smoothing=0.1)
    step = sup_step(m, opt, crit, scheduler.step)
    declared = {"scheduler_unit": "batch", "label_smoothing": 0.1, "warmup_steps": 20}
    known = {"scheduler": scheduler, "num_classes": 4, "declared": declared}
    return by_pairs(m, opt, tl, vl, crit, step, **known)


@sound
def fgsm_adversarial_training():
    """The inputs get gradients, and half of the loss is on inputs moved along their signs."""
    g = begun(109)
    m = mlp(10, 32, 4)
    opt = torch.optim.Adam(m.parameters(), 4e-3)
    tl, vl = groups(g)
    crit = nn.CrossEntropyLoss()

    def step(b):
        x = b[0].clone().requires_grad_(True)
        (slope,) = torch.autograd.grad(crit(m(x), b[1]), x)
        moved = (x + 0.2 * slope.sign()).detach()
        opt.zero_grad()
        loss = 0.5 * crit(m(b[0]), b[1]) + 0.5 * crit(m(moved), b[1])
        loss.backward()
        opt.step()
        return loss.item()

    return by_pairs(m, opt, tl, vl, crit, step, num_classes=4)


class Follower(nn.Module):
    """A predictor of what an average of its own encoder makes of the other view."""

    def __init__(self):
        super().__init__()
        self.online = nn.Sequential(
            nn.Linear(12, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 8)
        )
        self.pred = mlp(8, 16, 8)
        self.target = copy.deepcopy(self.online).requires_grad_(False)

    def forward(self, x):
        return self.pred(self.online(x))


@sound
def byol_stop_gradient_target():
    """The target encoder gets no gradient and is in no optimizer: it follows as an average."""
    g = begun(111)
    c = torch.randn(20, 12, generator=g)

    def data(n):
        z = c[torch.randint(0, 20, (n,), generator=g)]
        a, b = (z + 0.5 * torch.randn(n, 12, generator=g) for _ in range(2))
        return Columns(a=a, b=b)

    m = Follower()
    opt = torch.optim.Adam([p for p in m.parameters() if p.requires_grad], 3e-3)
    tl, vl = loaders(data(512), data(128), drop_last=True)

    def loss_of(model, b):
        with torch.no_grad():
            of_a, of_b = model.target(b["a"]), model.target(b["b"])
        alike = F.cosine_similarity(model(b["a"]), of_b), F.cosine_similarity(model(b["b"]), of_a)
        return (2 - alike[0] - alike[1]).mean()

    def step(b):
        m.train()
        opt.zero_grad()
        loss = loss_of(m, b)
        loss.backward()
        opt.step()
        with torch.no_grad():
            for t, o in zip(m.target.parameters(), m.online.parameters(), strict=True):
                t.lerp_(o, 0.02)
        return loss.item()

    averages = [f"target.{name}" for name, _ in m.target.named_parameters()]
    declared = {"ema_parameters": averages, "ema_decay": 0.98}
    return by_cost(m, opt, tl, vl, loss_of, costed(loss_of, "a"), step=step, declared=declared)


@sound
def lbfgs_with_closure():
    """The optimizer asks for the loss several times per update, on full batches."""
    g = begun(114)
    m = mlp(4, 12, 1, act=nn.Tanh)
    opt = torch.optim.LBFGS(
        m.parameters(), lr=0.5, max_iter=4, history_size=5, line_search_fn="strong_wolfe"
    )
    tl = loader(curve(g, 128), 128, shuffle=False)
    vl = loader(curve(g, 64), 64, shuffle=False)
    crit = nn.MSELoss()

    def step(b):
        def closure():
            opt.zero_grad()
            loss = crit(m(b[0]), b[1])
            loss.backward()
            return loss

        return opt.step(closure).item()

    return by_pairs(m, opt, tl, vl, crit, step, evaluate=averaged(m, vl, squares))


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(11, 12, padding_idx=0)
        self.rnn = nn.RNN(12, 24, batch_first=True)
        self.out = nn.Linear(24, 11)

    def forward(self, x):
        return self.out(self.rnn(self.emb(x))[0])


@sound
def accumulation_by_token_count():
    """Micro-batches add up sums over tokens, which are divided once by the number of them."""
    g = begun(115)
    m = Counter()
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def data(n):
        lengths = torch.randint(4, 13, (n,), generator=g)
        first = torch.randint(0, 10, (n, 1), generator=g)
        stride = torch.randint(1, 3, (n, 1), generator=g)
        place = torch.arange(12)[None]
        return Columns(ids=((first + place * stride) % 10 + 1) * (place < lengths[:, None]))

    tl, vl = loaders(data(384), data(96), 24)

    def total(model, x):
        out = model(x[:, :-1]).flatten(0, 1)
        return F.cross_entropy(out, x[:, 1:].flatten(), ignore_index=0, reduction="sum")

    def loss_of(model, b):
        return total(model, b["ids"]) / (b["ids"][:, 1:] > 0).sum()

    def step(b):
        opt.zero_grad()
        x, summed = b["ids"], 0.0
        for part in x.split(8):
            loss = total(m, part)
            loss.backward()
            summed += loss.item()
        n = (x[:, 1:] > 0).sum()
        for p in m.parameters():
            p.grad.div_(n)
        opt.step()
        return summed / n.item()

    def sums_of(model, b):
        return {"loss": (total(model, b["ids"]), (b["ids"][:, 1:] > 0).sum())}

    declared = {"accumulate": 3}
    return by_cost(m, opt, tl, vl, loss_of, sums_of, step=step, declared=declared)


@sound
def langevin_gradient_noise():
    """Noise is added to the gradients before each step."""
    g = begun(116)
    m = mlp(4, 24, 1, act=nn.Tanh)
    opt = torch.optim.SGD(m.parameters(), 0.05)
    tl, vl = loaders(curve(g, 512), curve(g, 128))
    crit = nn.MSELoss()

    def step(b):
        opt.zero_grad()
        loss = crit(m(b[0]), b[1])
        loss.backward()
        for p in m.parameters():
            p.grad.add_(torch.randn_like(p) * 0.02)
        opt.step()
        return loss.item()

    known = {"evaluate": averaged(m, vl, squares), "declared": {"gradient_noise": 0.02}}
    return by_pairs(m, opt, tl, vl, crit, step, **known)


class Clicks(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.EmbeddingBag(200, 16, mode="mean", sparse=True)
        self.out = mlp(16, 24, 1)

    def forward(self, ids):
        return self.out(self.emb(ids)).squeeze(1)


@sound
def sparse_and_dense_optimizers():
    """One optimizer for an embedding with sparse gradients, another for the rest."""
    g = begun(117)
    w = torch.randn(200, generator=g)

    def data(n):
        x = torch.randint(0, 200, (n, 6), generator=g)
        return Columns(items=x, click=(w[x].mean(1) > 0).float())

    m = Clicks()
    sparse = torch.optim.SparseAdam(m.emb.parameters(), 2e-2)
    dense = torch.optim.AdamW(m.out.parameters(), 5e-3)
    tl, vl = loaders(data(1024), data(256))

    def loss_of(model, b):
        return F.binary_cross_entropy_with_logits(model(b["items"]), b["click"])

    def step(b):
        for opt in (sparse, dense):
            opt.zero_grad()
        loss = loss_of(m, b)
        loss.backward()
        for opt in (sparse, dense):
            opt.step()
        return loss.item()

    def sums_of(model, b):
        hits = (model(b["items"]) > 0) == (b["click"] > 0)
        return {"acc": (hits.sum(), len(hits))}

    return by_cost(m, [sparse, dense], tl, vl, loss_of, sums_of, step=step)


@sound
def pruned_weights_held_at_zero():
    """60 % of a layer's weights are set to 0 again after each update, by a fixed mask."""
    g = begun(120)
    m = mlp(10, 48, 4)
    sizes = m[0].weight.detach().abs()
    mask = (sizes > sizes.flatten().quantile(0.6)).float()
    m[0].weight.data.mul_(mask)
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    tl, vl = groups(g)
    crit = nn.CrossEntropyLoss()

    def step(b):
        opt.zero_grad()
        loss = crit(m(b[0]), b[1])
        loss.backward()
        opt.step()
        with torch.no_grad():
            m[0].weight.mul_(mask)
        return loss.item()

    return by_pairs(m, opt, tl, vl, crit, step, num_classes=4)
