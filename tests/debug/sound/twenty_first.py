"""Ten of the twenty-first set, of unusual make, by someone who had not seen the doctor."""

import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset

from tests.debug.faulty.twenty_first.kit import (
    SimSiam,
    SmallGPT,
    TwoViews,
    blobs,
    by_cost,
    by_errors,
    by_rows,
    chains,
    curve,
    evaluating,
    feed,
    gen,
    loaders,
    mean_eval,
    mlp,
    nearest,
    nuisance,
    plain_step,
    rights,
    seed,
    set_up,
)
from tests.debug.sound.programs import sound
from tests.debug.sound.sixteenth_loops import Reversed


class Masking(Dataset):
    """Tokens of which some are hidden; only the hidden ones are targets."""

    def __init__(self, x, is_fixed):
        self.x = x
        self.is_fixed = is_fixed
        self.g = gen(3)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        x = self.x[i]
        picked = torch.rand(len(x), generator=gen(i) if self.is_fixed else self.g) < 0.2
        picked[i % len(x)] = True
        return {"ids": x.masked_fill(picked, 12), "labels": x.masked_fill(~picked, -100)}


@sound
def masked_lm_bidirectional():
    """No causal mask, and the targets are the inputs; but those that are scored are hidden."""
    seed(101)
    train, held = chains(512, 12, 12, 1, 0.95), chains(200, 12, 12, 2, 0.95)
    tl, vl = loaders(Masking(train, False), Masking(held, True), 16, 50)
    m = SmallGPT(V=13, causal=False)
    opt = torch.optim.AdamW(m.parameters(), 3e-3)

    def loss_of(model, b):
        return F.cross_entropy(model(b["ids"]).transpose(1, 2), b["labels"], ignore_index=-100)

    def hits(model, b):
        return (model(b["ids"]).argmax(-1) == b["labels"])[b["labels"] != -100]

    evaluate = mean_eval(m, vl, {"masked_acc": hits})
    return by_cost(m, opt, tl, vl, loss_of, None, evaluate=evaluate, num_classes=13)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(4, 16) * 0.2)
        self.b = nn.Parameter(torch.zeros(4))
        self.c = nn.Parameter(torch.zeros(16))

    def forward(self, x):
        return F.linear(F.linear(x, self.w, self.b), self.w.T, self.c)


@sound
def decoder_has_the_encoders_weight():
    """The target is the input, and encoder and decoder share one weight."""
    seed(102)
    g = gen(1)
    x = torch.randn(640, 3, generator=g) @ torch.randn(3, 16, generator=g)
    tl, vl = loaders((x[:512], x[:512]), (x[512:], x[512:]), 32, 64)
    m = Tied()
    return by_errors(m, torch.optim.Adam(m.parameters(), 5e-3), tl, vl)


@sound
def gan_two_d_steps():
    """The discriminator makes two steps for one of the generator, which freezes it meanwhile, and
    the losses do not fall."""
    seed(103)
    x = 2 + 0.5 * torch.randn(512, 2, generator=gen(1))
    tl = feed((x,), 32, drop_last=True)
    G = mlp(4, 32, 2)
    D = mlp(2, 32, 1, act=lambda: nn.LeakyReLU(0.2))
    m = nn.ModuleDict({"G": G, "D": D})
    og, od = (torch.optim.Adam(part.parameters(), 2e-3, betas=(0.5, 0.99)) for part in (G, D))
    noise = gen(2)

    def step(batch):
        real = batch[0]
        m.train()
        for _ in range(2):
            with torch.no_grad():
                fake = G(torch.randn(len(real), 4, generator=noise))
            od.zero_grad()
            (F.softplus(-D(real)).mean() + F.softplus(D(fake)).mean()).backward()
            od.step()
        D.requires_grad_(False)
        og.zero_grad()
        loss = F.softplus(-D(G(torch.randn(len(real), 4, generator=noise)))).mean()
        loss.backward()
        og.step()
        D.requires_grad_(True)
        return loss.item()

    def evaluate():
        with evaluating(m):
            fake = G(torch.randn(400, 4, generator=gen(5)))
        return {"centre_error": (fake.mean(0) - 2).norm().item()}

    return set_up(m, [og, od], tl, step, evaluate=evaluate)


class Reservoir(nn.Module):
    def __init__(self):
        super().__init__()
        self.res = nn.RNN(1, 64, batch_first=True)
        self.out = nn.Linear(64, 1)
        with torch.no_grad():
            self.res.weight_hh_l0.copy_(0.9 * torch.linalg.qr(torch.randn(64, 64))[0])
        self.res.requires_grad_(False)

    def forward(self, x):
        return self.out(self.res(x)[0][:, -1]).squeeze(-1)


@sound
def reservoir_readout():
    """The recurrent part is random and stays so: only what reads it is trained."""
    seed(104)
    x = torch.randn(640, 8, 1, generator=gen(1))
    y = x[:, -3, 0]
    m = Reservoir()
    opt = torch.optim.Adam(m.out.parameters(), 1e-2)
    tl, vl = loaders((x[:512], y[:512]), (x[512:], y[512:]), 32)
    frozen = ["res." + name for name, _ in m.res.named_parameters()]
    return by_rows(m, opt, tl, vl, declared={"frozen": frozen})


@sound
def chunks_of_one_series():
    """Pieces of the same series in order, with a state that goes on from one to the next; it is
    warmed up on the pieces trained on before those of validation."""
    seed(105)
    g = gen(1)
    rows, T, length = 8, 400, 10
    u = torch.randn(rows, T, 1, generator=g)
    y = torch.zeros(rows, T)
    level = torch.zeros(rows)
    for t in range(T):
        level = 0.95 * level + 0.3 * u[:, t, 0]
        y[:, t] = level

    def piece(i):
        return {"x": u[:, i : i + length], "y": y[:, i : i + length], "start": i == 0}

    tl = [piece(i) for i in range(0, 300, length)]
    vl = [piece(i) for i in range(300, T, length)]
    m = nn.ModuleDict({"rnn": nn.GRU(1, 16, batch_first=True), "out": nn.Linear(16, 1)})
    opt = torch.optim.Adam(m.parameters(), 1e-2)
    state = {"h": None}

    def run(b, h):
        out, h = m["rnn"](b["x"], None if b["start"] else h)
        return m["out"](out).squeeze(-1), h.detach()

    def step(b):
        m.train()
        opt.zero_grad()
        told, state["h"] = run(b, state["h"])
        loss = F.mse_loss(told, b["y"])
        loss.backward()
        opt.step()
        return loss.item()

    def evaluate():
        total, n, h = 0.0, 0, None
        with evaluating(m):
            for b in tl:
                _, h = run(b, h)
            for b in vl:
                told, h = run(b, h)
                total += ((told - b["y"]) ** 2).sum().item()
                n += told.numel()
        return {"val_mse": total / n}

    return set_up(m, opt, tl, step, evaluate=evaluate, val_loader=vl)


@sound
def gaussian_nll_negative():
    """The likelihood of a density is above one, and the loss rightly below zero."""
    seed(106)
    g = gen(1)
    x = torch.rand(700, 1, generator=g) * 2 - 1
    y = x[:, 0] * 0.5 + (0.02 + 0.1 * x[:, 0].abs()) * torch.randn(700, generator=g)
    tl, vl = loaders((x[:512], y[:512]), (x[512:], y[512:]), 32)
    m = mlp(1, 24, 2)
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def costs(m, b):
        mu, logvar = m(b[0]).unbind(1)
        return 0.5 * (logvar + (b[1] - mu) ** 2 / logvar.exp() + math.log(2 * math.pi))

    def loss_of(m, b):
        return costs(m, b).mean()

    evaluate = mean_eval(m, vl, {"val_nll": costs})
    return by_cost(m, opt, tl, vl, loss_of, None, evaluate=evaluate)


@sound
def uneven_parts_by_all_tokens():
    """Micro-batches of 5, 5, 5 and 1 rows, each loss a sum over the count of the batch's tokens."""
    seed(107)

    def texts(n, s):
        x = chains(n, 10, 8, s)
        lengths = torch.randint(4, 11, (n,), generator=gen(s))
        x[torch.arange(10)[None] >= lengths[:, None]] = 8
        return (x,)

    tl, vl = loaders(texts(512, 1), texts(128, 2), 16, 32)
    m = nn.Sequential(nn.Embedding(9, 16), nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))
    opt = torch.optim.AdamW(m.parameters(), 5e-3)

    def targets(x):
        return torch.where(x[:, 1:] == 8, -100, x[:, 1:])

    def nll(x):
        out = m(x[:, :-1]).transpose(1, 2)
        return F.cross_entropy(out, targets(x), ignore_index=-100, reduction="sum")

    def step(batch):
        x = batch[0]
        m.train()
        opt.zero_grad()
        n = (targets(x) != -100).sum()
        total = 0.0
        for part in x.split(5):
            loss = nll(part) / n
            loss.backward()
            total += loss.item()
        opt.step()
        return total

    def evaluate():
        total = n = 0
        with evaluating(m):
            for (x,) in vl:
                total += nll(x).item()
                n += (targets(x) != -100).sum().item()
        return {"val_ppl": math.exp(total / n)}

    more = {"val_loader": vl, "num_classes": 8, "declared": {"accumulate": 4}}
    return set_up(m, opt, tl, step, evaluate=evaluate, **more)


class DomainNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(8, 32), nn.ReLU())
        self.cls = nn.Linear(32, 3)
        self.dom = nn.Linear(32, 2)

    def forward(self, x):
        return self.cls(self.enc(x))


@sound
def encoder_climbs_the_domain_loss():
    """A gradient is reversed on purpose: the encoder is to tell two domains apart no more."""
    seed(108)
    x, y = blobs(512, 8, 3, 1)
    shift = torch.full((8,), 1.0)
    vx, vy = blobs(300, 8, 3, 3)
    train = (x, y, blobs(512, 8, 3, 2)[0] + shift)
    tl, vl = loaders(train, (vx + shift, vy), 32, 64)
    m = DomainNet()
    opt = torch.optim.Adam(m.parameters(), 2e-3)

    def loss_of(m, b):
        source, y, target = b
        h = m.enc(torch.cat([source, target]))
        domain = torch.cat([torch.zeros(len(source)), torch.ones(len(target))]).long()
        told = m.dom(Reversed.apply(h))
        return F.cross_entropy(m.cls(h[: len(source)]), y) + F.cross_entropy(told, domain)

    score = rights(m, vl)

    def evaluate():
        return {"target_acc": score()["val_acc"]}

    return by_cost(m, opt, tl, vl, loss_of, None, evaluate=evaluate, num_classes=3)


@sound
def simsiam_of_two_rates():
    """A negative loss and no labels; the predictor's rate is four times the encoder's."""
    seed(109)
    known, held = nuisance(256, 1), nuisance(128, 2)
    tl = feed(TwoViews(known[0]), 32, drop_last=True)
    m = SimSiam()
    groups = [
        {"params": m.enc.parameters(), "lr": 0.05},
        {"params": m.pred.parameters(), "lr": 0.2},
    ]
    opt = torch.optim.SGD(groups, momentum=0.9)

    def loss_of(m, b):
        z1, z2 = m(b["view1"]), m(b["view2"])
        first = F.cosine_similarity(m.pred(z1), z2.detach()).mean()
        second = F.cosine_similarity(m.pred(z2), z1.detach()).mean()
        return -(first + second) / 2

    step = plain_step(m, opt, loss_of)
    return set_up(m, opt, tl, step, evaluate=nearest(m, known, held), loss_of=loss_of)


class SeededDropout(nn.Module):
    """Dropout that stays on in evaluation and draws from a generator of its own."""

    def __init__(self, p):
        super().__init__()
        self.p = p
        self.g = gen(0)

    def forward(self, x):
        return x * (torch.rand(x.shape, generator=self.g) > self.p) / (1 - self.p)


@sound
def mc_dropout_of_a_seeded_layer():
    """Dropout stays on in evaluation by design: 16 passes are averaged, from one seed each time."""
    seed(113)
    held = curve(200, 2)
    tl, vl = loaders(curve(512, 1), held, 32, 200)
    drop = SeededDropout(0.1)
    m = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), drop, nn.Linear(64, 1), nn.Flatten(0))
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def evaluate():
        kept = drop.g.get_state()
        drop.g.manual_seed(7)
        with evaluating(m):
            told = torch.stack([torch.cat([m(x) for x, _ in vl]) for _ in range(16)])
        drop.g.set_state(kept)
        errors = (told.mean(0) - held[1]) ** 2
        return {"val_mse": errors.mean().item(), "mean_std": told.std(0).mean().item()}

    return by_rows(m, opt, tl, vl, evaluate=evaluate)
