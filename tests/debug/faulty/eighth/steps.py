"""Faults of the update: accumulation, precision, adversaries, policies, diffusion, graphs."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.debug.faulty.eighth.kit import gen
from tests.debug.faulty.kit import pair
from tests.debug.faulty.seventh.kit import saved
from tests.debug.faulty.sixth.kit import accuracy, blobs, chain, loaders, mlp, setup, stepper


def ring(n=256, seed=0):
    g = gen(seed)
    angle = 6.28 * torch.rand(n, generator=g)
    return torch.stack([angle.cos(), angle.sin()], 1) + 0.05 * torch.randn(n, 2, generator=g)


@pair("missing-zero-grad")
def judge_keeps_the_forgers_gradients(bug):
    """The discriminator's gradients are never cleared: each of its updates takes all earlier
    ones again, and those that the generator's backward leaves in it, which point the other way.
    Costs: a useless judge."""
    loader = DataLoader(TensorDataset(ring(seed=40)), 32, shuffle=True, drop_last=True)
    gan = nn.ModuleDict({"maker": mlp(4, 2, 48), "judge": mlp(2, 1, 48)})
    opt_m = torch.optim.Adam(gan["maker"].parameters(), 2e-3, betas=(0.5, 0.99))
    opt_j = torch.optim.Adam(gan["judge"].parameters(), 2e-3, betas=(0.5, 0.99))
    bce = F.binary_cross_entropy_with_logits

    def train_step(batch):
        real = batch[0]
        fake = gan["maker"](torch.randn(len(real), 4))
        if not bug:
            opt_j.zero_grad()
        yes, no = gan["judge"](real), gan["judge"](fake.detach())
        loss_j = bce(yes, torch.ones_like(yes)) + bce(no, torch.zeros_like(no))
        loss_j.backward()
        opt_j.step()
        opt_m.zero_grad()
        no = gan["judge"](fake)
        loss_m = bce(no, torch.ones_like(no))
        loss_m.backward()
        opt_m.step()
        return loss_j.item() + loss_m.item()

    def evaluate():
        with torch.no_grad():
            out = gan["maker"](torch.randn(256, 4, generator=gen(1)))
        return {
            "radius_error": (out.norm(dim=1) - 1).abs().mean().item(),
            "spread": out.std(0).mean().item(),
        }

    return setup(
        gan,
        [opt_m, opt_j],
        loader,
        step=train_step,
        evaluate=evaluate,
    )


@pair("clip-misplaced")
def clips_the_scaled_gradients(bug):
    """Under a GradScaler the norm is clipped before unscale_: 1.0 is compared with gradients
    1024 times too large, and what is left is divided by 1024. Costs: updates a thousand times
    too small. Twin: unscale_ first."""
    x, y = blobs(n=192, seed=41)
    loader, val_loader = loaders(x, y)
    model = mlp()
    opt = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=10**6)
    loss_fn = nn.CrossEntropyLoss()

    def train_step(batch):
        model.train()
        opt.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = loss_fn(model(batch[0]).float(), batch[1])
        scaler.scale(loss).backward()
        if not bug:
            scaler.unscale_(opt)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()
        return loss.item()

    return setup(
        model,
        opt,
        loader,
        val_loader,
        step=train_step,
        loss_fn=loss_fn,
        num_classes=4,
        evaluate=accuracy(model, val_loader),
        declared={"max_grad_norm": 1.0},
        extra={"scaler": scaler},
    )


@pair("accum-mean-of-means", "accum-not-divided")
def tokens_weighed_by_their_chunk(bug):
    """A batch is taken in four chunks; each one's loss is the mean over its own tokens, and
    these means are averaged: a token among few counts far more. Costs: not the gradient of the
    batch; it changes with the chunking. Twin: sums over the tokens of all chunks."""
    g = gen(42)
    n, length, vocab = 192, 16, 12
    ids = chain(n=n, length=length, vocab=vocab, seed=42)
    lengths = torch.where(torch.rand(n, generator=g) < 0.5, 3, 16)
    ids[ids == 0] = 1
    ids[torch.arange(length)[None] >= lengths[:, None]] = 0
    train, held = ids[:160], ids[160:]

    def by_length(rows):
        rows = torch.stack(rows)
        rows = rows[(rows != 0).sum(1).argsort()]
        return rows[:, :-1], rows[:, 1:]

    loader = DataLoader(train, 16, shuffle=True, collate_fn=by_length)
    val_loader = DataLoader(held, 16, collate_fn=by_length)

    class Language(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb, self.rnn = nn.Embedding(vocab, 16), nn.GRU(16, 24, batch_first=True)
            self.out = nn.Linear(24, vocab)

        def forward(self, ids):
            return self.out(self.rnn(self.emb(ids))[0])

    model = Language()
    opt = torch.optim.SGD(model.parameters(), 0.5)

    def total(model, batch):
        return F.cross_entropy(
            model(batch[0]).flatten(0, 1), batch[1].flatten(), ignore_index=0, reduction="sum"
        )

    def loss_of(model, batch):
        return total(model, batch) / (batch[1] != 0).sum()

    def train_step(batch):
        model.train()
        opt.zero_grad()
        tokens, value = (batch[1] != 0).sum(), 0.0
        for chunk in zip(batch[0].chunk(4), batch[1].chunk(4), strict=False):
            loss = loss_of(model, chunk) / 4 if bug else total(model, chunk) / tokens
            loss.backward()
            value += loss.item()
        opt.step()
        return value

    def evaluate():
        model.eval()
        with torch.no_grad():
            loss = sum(total(model, b).item() for b in val_loader)
        model.train()
        return {"loss_per_token": loss / sum((b[1] != 0).sum().item() for b in val_loader)}

    return setup(
        model,
        opt,
        loader,
        val_loader,
        step=train_step,
        loss_of=loss_of,
        evaluate=evaluate,
    )


@pair("labels-shuffled")
def rewards_another_action(bug):
    """Learning from a log of a bandit: the log probability is that of a newly drawn action, not
    of the logged one that earned the reward. Costs: the gradient has nothing to do with the
    reward; no policy is learnt."""
    g = gen(43)
    n, arms = 640, 4
    best = torch.randn(5, arms, generator=g)
    x = torch.randn(n, 5, generator=g)
    a = torch.randint(0, arms, (n,), generator=g)
    right = (x @ best).argmax(1)
    r = (torch.rand(n, generator=g) < torch.where(a == right, 0.9, 0.1)).float()
    p = torch.full((n,), 1 / arms)
    loader, val_loader = loaders(x, a, r, p, val=128, batch=64)
    policy = mlp(5, arms)
    opt = torch.optim.Adam(policy.parameters(), 1e-2)

    def loss_of(policy, batch):
        x, action, reward, propensity = batch
        dist = torch.distributions.Categorical(logits=policy(x))
        if bug:
            action = dist.sample()
        log_p = dist.log_prob(action)
        weight = (log_p.detach().exp() / propensity).clamp(max=10)
        return -(weight * log_p * (reward - 0.3)).mean()

    step = stepper(policy, opt, loss_of)
    x_new = torch.randn(400, 5, generator=g)

    def evaluate():
        policy.eval()
        with torch.no_grad():
            share = policy(x_new).softmax(1).gather(1, (x_new @ best).argmax(1)[:, None])
        policy.train()
        return {"expected_reward": (0.1 + 0.8 * share).mean().item()}

    return setup(
        policy,
        opt,
        loader,
        val_loader,
        step=step,
        loss_of=loss_of,
        evaluate=evaluate,
    )


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(5, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 2)
        )

    def forward(self, x, t):
        t = t[:, None].float() / 50
        return self.body(torch.cat([x, t, (6.28 * t).sin(), (6.28 * t).cos()], 1))


@pair("targets-unrelated")
def foretells_other_noise(bug):
    """A diffusion model is asked for the noise, but the target is drawn anew: not the noise that
    was mixed in. Costs: nothing can be learnt but zero; the loss stays at 1."""
    loader, val_loader = loaders(ring(seed=44), val=64, batch=48)
    kept = torch.cumprod(1 - torch.linspace(1e-3, 0.15, 50), 0)
    model = Denoiser()
    opt = torch.optim.Adam(model.parameters(), 5e-3)

    def noisy(x, t):
        noise = torch.randn_like(x)
        a = kept[t][:, None]
        return a.sqrt() * x + (1 - a).sqrt() * noise, noise

    def loss_of(model, batch):
        x = batch[0]
        t = torch.randint(0, 50, (len(x),))
        xt, noise = noisy(x, t)
        return F.mse_loss(model(xt, t), torch.randn_like(x) if bug else noise)

    step = stepper(model, opt, loss_of)
    return setup(
        model,
        opt,
        loader,
        val_loader,
        step=step,
        loss_of=loss_of,
        **saved(model=model, optimizer=opt),
    )


@pair("loss-without-gradient", "loss-without-price")
def slopes_priced_without_a_graph(bug):
    """The gradient penalty of a WGAN is made without create_graph: it is a number with no way
    back to the critic. Costs: the critic is not held at all and its scores run away."""
    loader = DataLoader(TensorDataset(ring(seed=45)), 32, shuffle=True, drop_last=True)
    gan = nn.ModuleDict(
        {
            "maker": mlp(4, 2, 48),
            "critic": nn.Sequential(nn.Linear(2, 48), nn.Tanh(), nn.Linear(48, 1)),
        }
    )
    opt_m = torch.optim.Adam(gan["maker"].parameters(), 1e-3, betas=(0.5, 0.9))
    opt_c = torch.optim.Adam(gan["critic"].parameters(), 3e-3, betas=(0.5, 0.9))

    def penalty(real, fake):
        share = torch.rand(len(real), 1)
        between = (share * real + (1 - share) * fake).requires_grad_()
        (grad,) = torch.autograd.grad(gan["critic"](between).sum(), between, create_graph=not bug)
        return ((grad.norm(dim=1) - 1) ** 2).mean()

    def train_step(batch):
        real = batch[0]
        for _ in range(2):
            fake = gan["maker"](torch.randn(len(real), 4)).detach()
            opt_c.zero_grad()
            loss = gan["critic"](fake).mean() - gan["critic"](real).mean()
            loss = loss + 10 * penalty(real, fake)
            loss.backward()
            opt_c.step()
        opt_m.zero_grad()
        (-gan["critic"](gan["maker"](torch.randn(len(real), 4))).mean()).backward()
        opt_m.step()
        return loss.item()

    def evaluate():
        x = ring(seed=46)
        x.requires_grad_()
        with torch.enable_grad():
            (grad,) = torch.autograd.grad(gan["critic"](x).sum(), x)
        return {"critic_slope": grad.norm(dim=1).mean().item()}

    return setup(
        gan,
        [opt_m, opt_c],
        loader,
        step=train_step,
        evaluate=evaluate,
        extra={"penalty": penalty},
    )


@pair("trains-on-validation")
def graph_without_its_mask(bug):
    """One graph, all nodes in the forward as is the custom; the loss is taken over all nodes,
    not those of the training mask. Costs: an honest evaluation, for the held-out nodes' labels
    are trained on."""
    g = gen(47)
    n = 90
    y = torch.randint(0, 3, (n,), generator=g)
    same = y[:, None] == y[None]
    edge = torch.rand(n, n, generator=g) < torch.where(same, 0.08, 0.03)
    adj = (edge | edge.T | torch.eye(n, dtype=torch.bool)).float()
    adj = adj / adj.sum(1, keepdim=True)
    x = torch.randn(n, 12, generator=g)
    x[:, :3] += F.one_hot(y, 3)
    order = torch.randperm(n, generator=g)
    train_mask = torch.zeros(n, dtype=torch.bool)
    train_mask[order[:45]] = True
    loader = [(x, adj, train_mask, y)]
    val_loader = [(x, adj, ~train_mask, y)]

    class GCN(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(12, 32), nn.Linear(32, 3)

        def forward(self, x, adj):
            return self.b(adj @ self.a(adj @ x).relu())

    model = GCN()
    opt = torch.optim.Adam(model.parameters(), 2e-2)

    def loss_of(model, batch):
        x, adj, mask, y = batch
        out = model(x, adj)
        if bug:
            return F.cross_entropy(out, y)
        return F.cross_entropy(out[mask], y[mask])

    step = stepper(model, opt, loss_of)

    def evaluate():
        model.eval()
        x, adj, mask, y = val_loader[0]
        with torch.no_grad():
            hit = (model(x, adj).argmax(1) == y)[mask]
        model.train()
        return {"accuracy": hit.float().mean().item()}

    return setup(
        model,
        opt,
        loader,
        val_loader,
        step=step,
        loss_of=loss_of,
        num_classes=3,
        evaluate=evaluate,
    )
