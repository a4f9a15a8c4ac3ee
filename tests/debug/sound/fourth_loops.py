"""Six of the fourth set: loops of their own, written before the doctor was read."""

import copy
import itertools

import torch
import torch.nn.functional as F
from torch import nn

from tests.debug.faulty.fourth.kit import accuracy, batches, blobs, mlp
from tests.debug.sound.programs import sound


@sound
def vae_with_kl_warmup():
    """The weight of the KL grows from 0, so the loss of a healthy run rises; latents are drawn."""
    x = torch.sigmoid(2 * torch.randn(320, 3) @ torch.randn(3, 24)).bernoulli()

    class VAE(nn.Module):
        def __init__(self):
            super().__init__()
            self.enc, self.dec = mlp(24, 32, 6), mlp(3, 32, 24)
            self.register_buffer("seen", torch.zeros((), dtype=torch.long))

        def forward(self, x):
            mu, logvar = self.enc(x).chunk(2, 1)
            z = mu + torch.randn_like(mu) * (0.5 * logvar).exp() if self.training else mu
            return self.dec(z), mu, logvar

    model = VAE()
    opt = torch.optim.Adam(model.parameters(), 3e-3)

    def loss_of(m, b):
        out, mu, logvar = m(b[0])
        recon = F.binary_cross_entropy_with_logits(out, b[0], reduction="none").sum(1)
        kl = 0.5 * (mu**2 + logvar.exp() - 1 - logvar).sum(1)
        return (recon + min(1.0, m.seen.item() / 80) * kl).mean()

    def train_step(batch):
        model.train()
        loss = loss_of(model, batch)
        opt.zero_grad()
        loss.backward()
        opt.step()
        model.seen += 1
        return loss.item()

    return dict(
        model=model,
        optimizer=opt,
        train_loader=batches(x[:256]),
        val_loader=batches(x[256:], shuffle=False),
        loss_of=loss_of,
        train_step=train_step,
    )


@sound
def bf16_accumulation_trainer():
    """bf16 autocast; an update per 4 micro-batches, weighed by their counts; the rest is used."""
    x, y = blobs(360, c=4)

    class Trainer:
        def __init__(self):
            self.model = nn.Sequential(
                nn.Linear(10, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 4)
            )
            self.optimizer = torch.optim.AdamW(self.model.parameters(), 5e-3)
            self.scheduler = torch.optim.lr_scheduler.OneCycleLR(
                self.optimizer, 1e-2, total_steps=4000
            )
            self.train_loader = batches(x[:280], y[:280], bs=16)
            self.val_loader = batches(x[280:], y[280:], shuffle=False)
            self.k = 4

        def loss_of(self, model, batch):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                logits = model(batch[0])
            return F.cross_entropy(logits.float(), batch[1])

        def update(self, group):
            n = sum(len(b[1]) for b in group)
            self.optimizer.zero_grad(set_to_none=True)
            total = 0.0
            for b in group:
                loss = self.loss_of(self.model, b) * len(b[1]) / n
                loss.backward()
                total += loss.item()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.scheduler.step()
            return total

        def train(self, n_steps):
            self.model.train()
            losses = []
            while len(losses) < n_steps:
                it = iter(self.train_loader)
                while group := list(itertools.islice(it, self.k)):
                    losses.append(self.update(group))
                    if len(losses) >= n_steps:
                        break
            return losses

        def save(self, path):
            torch.save(
                {
                    "m": self.model.state_dict(),
                    "o": self.optimizer.state_dict(),
                    "s": self.scheduler.state_dict(),
                },
                path,
            )

        def load(self, path):
            d = torch.load(path)
            self.model.load_state_dict(d["m"])
            self.optimizer.load_state_dict(d["o"])
            self.scheduler.load_state_dict(d["s"])

    t = Trainer()
    return dict(
        model=t.model,
        optimizer=t.optimizer,
        scheduler=t.scheduler,
        train_loader=t.train_loader,
        val_loader=t.val_loader,
        loss_of=t.loss_of,
        train=t.train,
        save=t.save,
        load=t.load,
        evaluate=accuracy(t.model, t.val_loader),
        num_classes=4,
    )


@sound
def hinge_gan_spectral():
    """Two critic updates an iteration, spectral norm; neither loss is meant to fall."""
    real = torch.randn(256, 2) @ torch.tensor([[1.0, 0.5], [0.0, 0.4]]) + 1
    sn = nn.utils.parametrizations.spectral_norm
    critic = nn.Sequential(sn(nn.Linear(2, 24)), nn.LeakyReLU(0.2), sn(nn.Linear(24, 1)))
    model = nn.ModuleDict({"generator": mlp(4, 24, 2), "critic": critic})
    opt_g = torch.optim.Adam(model["generator"].parameters(), 1e-3, betas=(0.0, 0.9))
    opt_d = torch.optim.Adam(critic.parameters(), 2e-3, betas=(0.0, 0.9))

    def train_step(batch):
        g = model["generator"]
        for half in batch[0].chunk(2):
            with torch.no_grad():
                fake = g(torch.randn(len(half), 4))
            loss = F.relu(1 - critic(half)).mean() + F.relu(1 + critic(fake)).mean()
            opt_d.zero_grad()
            loss.backward()
            opt_d.step()
        critic.requires_grad_(False)
        loss_g = -critic(g(torch.randn(32, 4))).mean()
        opt_g.zero_grad()
        loss_g.backward()
        opt_g.step()
        critic.requires_grad_(True)
        return loss_g.item()

    return dict(
        model=model, optimizer=[opt_g, opt_d], train_loader=batches(real), train_step=train_step
    )


@sound
def endless_generator_regression():
    """The loader never ends and never repeats: examples are made as they are asked for."""

    class Endless:
        def __iter__(self):
            while True:
                a, f = torch.rand(32, 1) + 0.5, torch.rand(32, 1) * 2 + 1
                t = torch.linspace(0, 3, 20)
                yield a * torch.sin(f * t) + 0.05 * torch.randn(32, 20), torch.cat([a, f], 1)

    model = mlp(20, 32, 2)
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    loader = Endless()

    def train(n_steps):
        losses = []
        for x, y in itertools.islice(loader, n_steps):
            loss = F.smooth_l1_loss(model(x), y, beta=0.1)
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
        return losses

    return dict(
        model=model,
        optimizer=opt,
        train_loader=loader,
        loss_fn=nn.SmoothL1Loss(beta=0.1),
        train=train,
    )


@sound
def byol_target_network():
    """A target network without gradients follows the online one; there are no labels."""
    x, _ = blobs(320, d=12, c=20, noise=0.4)

    class BYOL(nn.Module):
        def __init__(self):
            super().__init__()
            self.online = nn.Sequential(
                nn.Linear(12, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 8)
            )
            self.target = copy.deepcopy(self.online).requires_grad_(False)
            self.predict = nn.Sequential(
                nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 8)
            )

        def forward(self, a, b):
            p = self.predict(self.online(a))
            with torch.no_grad():
                t = self.target(b)
            return 2 - 2 * F.cosine_similarity(p, t, dim=1).mean()

    model = BYOL()
    opt = torch.optim.Adam([*model.online.parameters(), *model.predict.parameters()], 3e-3)

    def views(v):
        return v + 0.2 * torch.randn_like(v), v * (torch.rand_like(v) > 0.1)

    def loss_of(m, batch):
        a, b = views(batch[0])
        return 0.5 * (m(a, b) + m(b, a))

    def train_step(batch):
        model.train()
        loss = loss_of(model, batch)
        opt.zero_grad()
        loss.backward()
        opt.step()
        with torch.no_grad():
            for t, o in zip(model.target.parameters(), model.online.parameters(), strict=True):
                t.lerp_(o, 0.03)
        return loss.item()

    return dict(
        model=model,
        optimizer=opt,
        train_loader=batches(x[:256], drop_last=True),
        loss_of=loss_of,
        train_step=train_step,
    )


@sound
def quantiles_with_restarts():
    """Targets [B, 1] are meant to broadcast against three quantiles; the rate restarts."""
    x = torch.randn(384, 4)
    y = x[:, :1] + (0.3 + x[:, 1:2].abs()) * torch.randn(384, 1)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.inp, self.block, self.out = nn.Linear(4, 24), mlp(24, 24, 24), nn.Linear(24, 3)
            self.gain = nn.Parameter(torch.zeros(()))

        def forward(self, x):
            h = torch.relu(self.inp(x))
            return self.out(h + self.gain * self.block(h))

    q = torch.tensor([0.1, 0.5, 0.9])

    def pinball(pred, y):
        e = y - pred
        return torch.maximum(q * e, (q - 1) * e).sum(1).mean()

    model = Net()
    opt = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, nesterov=True)
    sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=24, T_mult=2)

    def train_step(batch):
        opt.zero_grad()
        loss = pinball(model(batch[0]), batch[1])
        loss.backward()
        opt.step()
        sched.step()
        return loss.item()

    return dict(
        model=model,
        optimizer=opt,
        scheduler=sched,
        loss_fn=pinball,
        train_step=train_step,
        train_loader=batches(x[:256], y[:256]),
        val_loader=batches(x[256:], y[256:], shuffle=False),
    )
