"""Ten of the eighth set, of unusual make, by an author who had not read the doctor."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.debug.faulty.eighth.kit import gen, predict
from tests.debug.faulty.seventh.kit import saved
from tests.debug.faulty.sixth.kit import (
    accuracy,
    blobs,
    chain,
    loaders,
    mean_loss,
    mlp,
    numbers,
    of_pairs,
    pictures,
    setup,
    small_conv,
    stepper,
)
from tests.debug.sound.programs import sound


@sound
def density_above_one():
    """A Gaussian likelihood with learnt spread: the loss falls below zero, as densities may."""
    x, y = numbers(n=192, seed=60)
    y = 0.05 * y
    loader, val_loader = loaders(x, y)
    model = mlp(8, 2)
    opt = torch.optim.Adam(model.parameters(), 5e-3)

    def loss_of(model, batch):
        mean, log_var = model(batch[0]).chunk(2, 1)
        return F.gaussian_nll_loss(mean, batch[1], log_var.exp())

    step = stepper(model, opt, loss_of)
    return setup(
        model,
        opt,
        loader,
        val_loader,
        step=step,
        loss_of=loss_of,
        task="regression",
        evaluate=mean_loss(model, val_loader, loss_of),
    )


@sound
def climbs_the_likelihood():
    """The optimizer maximises; the training step makes the objective, and reports its negative."""
    x, y = blobs(n=160, seed=61)
    loader, val_loader = loaders(x, y)
    model = mlp()
    opt = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, maximize=True)

    def train_step(batch):
        opt.zero_grad()
        log_p = model(batch[0]).log_softmax(1).gather(1, batch[1][:, None]).mean()
        log_p.backward()
        opt.step()
        return -log_p.item()

    return setup(
        model,
        opt,
        loader,
        val_loader,
        step=train_step,
        num_classes=4,
        evaluate=accuracy(model, val_loader),
    )


@sound
def frozen_word_vectors():
    """Pretrained vectors of words are frozen and not in the optimizer; padding is left out of
    the mean by a mask."""
    g = gen(62)
    ids = torch.randint(1, 40, (192, 12), generator=g)
    lengths = torch.randint(3, 13, (192,), generator=g)
    ids[torch.arange(12)[None] >= lengths[:, None]] = 0
    vectors = torch.randn(40, 10, generator=g)
    vectors[0] = 0
    tone = vectors[:, 0]
    y = (tone[ids].sum(1) > 0).long()
    loader, val_loader = loaders(ids, y, val=48)

    class Bag(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding.from_pretrained(vectors, freeze=True, padding_idx=0)
            self.body = mlp(10, 2, 16)

        def forward(self, ids):
            known = (ids != 0).float()[..., None]
            return self.body((self.words(ids) * known).sum(1) / known.sum(1))

    model = Bag()
    opt = torch.optim.AdamW(model.body.parameters(), 5e-3)
    step = stepper(model, opt, of_pairs(F.cross_entropy))
    return setup(
        model,
        opt,
        loader,
        val_loader,
        loss_fn=nn.CrossEntropyLoss(),
        num_classes=2,
        train_step=step,
        evaluate=accuracy(model, val_loader),
        declared={"frozen": ["words"]},
    )


@sound
def norm_kept_still_while_tuning():
    """Fine-tuning with small batches: batch norm stays in eval mode on purpose, its weights
    still learn."""
    x, y, _ = pictures(n=128, seed=63)

    class Tuned(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8)
            self.head = nn.Linear(32, 2)
            with torch.no_grad():  # statistics of the "pretraining"
                for _ in range(30):
                    self.norm(self.conv(x[:96]))

        def forward(self, x):
            x = F.adaptive_max_pool2d(self.norm(self.conv(x)).relu(), 2)
            return self.head(x.flatten(1))

        def train(self, mode=True):
            super().train(mode)
            self.norm.eval()
            return self

    model = Tuned().train()
    loader, val_loader = loaders(x, y, batch=4)
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    loss_fn = nn.CrossEntropyLoss()
    step = stepper(model, opt, of_pairs(loss_fn))
    return setup(
        model,
        opt,
        loader,
        val_loader,
        step=step,
        loss_fn=loss_fn,
        num_classes=2,
        evaluate=accuracy(model, val_loader),
        **saved(model=model, optimizer=opt),
    )


@sound
def dropout_left_on_by_design():
    """Monte Carlo dropout: evaluation averages 24 draws with dropout on; its generator state is
    put back, so that training's draws do not depend on it."""
    x, y = blobs(n=192, seed=64, spread=1.5)
    loader, val_loader = loaders(x, y, val=48)
    model = nn.Sequential(nn.Linear(8, 48), nn.ReLU(), nn.Dropout(0.2), nn.Linear(48, 4))
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    step = stepper(model, opt, of_pairs(F.cross_entropy))

    def evaluate():
        hits = total = 0
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(1)
            model.train()
            for x, y in val_loader:
                p = torch.stack([model(x).softmax(1) for _ in range(24)]).mean(0)
                hits += (p.argmax(1) == y).sum().item()
                total += len(y)
        return {"accuracy_of_the_mean_of_draws": hits / total}

    return setup(
        model,
        opt,
        loader,
        val_loader,
        step=step,
        loss_fn=nn.CrossEntropyLoss(),
        num_classes=4,
        evaluate=evaluate,
    )


@sound
def long_text_in_running_pieces():
    """Truncated backpropagation: batches are consecutive pieces of eight long texts, in order;
    the state is handed on, detached, and cleared at each start of the texts."""
    g = gen(65)
    follows = torch.randperm(12, generator=g)
    text = torch.randint(0, 12, (8, 161), generator=g)
    for t in range(1, 161):
        keep = torch.rand(8, generator=g) < 0.85
        text[:, t] = torch.where(keep, follows[text[:, t - 1]], text[:, t])
    loader = [(text[:, i : i + 10], text[:, i + 1 : i + 11], i == 0) for i in range(0, 160, 10)]

    class Language(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb, self.rnn = nn.Embedding(12, 12), nn.GRU(12, 24, batch_first=True)
            self.out = nn.Linear(24, 12)

        def forward(self, ids, state=None):
            h, state = self.rnn(self.emb(ids), state)
            return self.out(h), state

    model = Language()
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    carried = {"state": None}

    def train_step(batch):
        ids, after, first = batch
        out, state = model(ids, None if first else carried["state"])
        carried["state"] = state.detach()
        loss = F.cross_entropy(out.flatten(0, 1), after.flatten())
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        return loss.item()

    return setup(
        model,
        opt,
        loader,
        step=train_step,
        declared={"max_grad_norm": 1.0},
    )


class Lion(torch.optim.Optimizer):
    """Moves by the sign of a mixture of momentum and gradient; decay apart from it."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.99), weight_decay=0.01):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            a, b = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                m = self.state[p].setdefault("momentum", torch.zeros_like(p))
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.sub_(group["lr"] * (a * m + (1 - a) * p.grad).sign())
                m.lerp_(p.grad, 1 - b)


@sound
def moves_by_signs():
    """A custom optimizer (Lion): all entries move by the same amount, small gradients too."""
    x, y = numbers(n=192, seed=66)
    loader, val_loader = loaders(x, y)
    model = mlp(8, 1)
    opt = Lion(model.parameters(), 2e-3)
    loss_of = of_pairs(F.mse_loss)
    step = stepper(model, opt, loss_of)
    return setup(
        model,
        opt,
        loader,
        val_loader,
        step=step,
        loss_fn=nn.MSELoss(),
        task="regression",
        evaluate=mean_loss(model, val_loader, loss_of),
        **saved(model=model, optimizer=opt),
    )


@sound
def two_gradients_an_update():
    """Sharpness-aware minimisation: climb a little, take the gradient there, go back, step."""
    x, y = blobs(n=160, seed=67, spread=1.5)
    loader, val_loader = loaders(x, y)
    model = mlp()
    opt = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    loss_fn = nn.CrossEntropyLoss()

    def train_step(batch):
        model.train()
        opt.zero_grad()
        loss = loss_fn(model(batch[0]), batch[1])
        loss.backward()
        params = list(model.parameters())
        norm = torch.stack([p.grad.norm() for p in params]).norm() + 1e-12
        climbs = [0.05 * p.grad / norm for p in params]
        with torch.no_grad():
            for p, c in zip(params, climbs, strict=False):
                p.add_(c)
        opt.zero_grad()
        loss_fn(model(batch[0]), batch[1]).backward()
        with torch.no_grad():
            for p, c in zip(params, climbs, strict=False):
                p.sub_(c)
        opt.step()
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
    )


@sound
def mixes_pictures_and_labels():
    """Mixup in the collate function: inputs and one-hot labels mixed alike; validation has plain
    pictures and one-hot labels."""
    x, y, _ = pictures(n=144, seed=68)
    y = F.one_hot(y, 2).float()

    def mixed(rows):
        x, y = (torch.stack(c) for c in zip(*rows, strict=False))
        share = torch.distributions.Beta(0.4, 0.4).sample((len(x),))
        other = torch.randperm(len(x))
        wide = share[:, None, None, None]
        return (
            wide * x + (1 - wide) * x[other],
            share[:, None] * y + (1 - share[:, None]) * y[other],
        )

    loader = DataLoader(TensorDataset(x[:112], y[:112]), 16, shuffle=True, collate_fn=mixed)
    val_loader = DataLoader(TensorDataset(x[112:], y[112:]), 16)
    model = small_conv()
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    loss_fn = nn.CrossEntropyLoss()
    step = stepper(model, opt, of_pairs(loss_fn))

    def evaluate():
        out, y = predict(model, val_loader)
        return {"accuracy": (out.argmax(1) == y.argmax(1)).float().mean().item()}

    return setup(
        model,
        opt,
        loader,
        val_loader,
        step=step,
        loss_fn=loss_fn,
        num_classes=2,
        evaluate=evaluate,
    )


@sound
def fills_in_the_hidden_words():
    """Masked language model: looks both ways, and most targets are -100; hidden words are
    replaced by a sign of their own."""
    ids = chain(n=192, length=12, seed=69)
    ids[ids == 0] = 1
    hidden = 12

    def hide(rows):
        ids = torch.stack(rows)
        chosen = torch.rand(ids.shape) < 0.2
        chosen[torch.arange(len(ids)), torch.randint(0, ids.shape[1], (len(ids),))] = True
        return ids.masked_fill(chosen, hidden), ids.masked_fill(~chosen, -100)

    loader = DataLoader(ids[:160], 16, shuffle=True, collate_fn=hide)
    val_loader = DataLoader(ids[160:], 16, collate_fn=hide)

    class Filler(nn.Module):
        def __init__(self, d=24):
            super().__init__()
            self.emb, self.place = nn.Embedding(13, d), nn.Parameter(0.1 * torch.randn(12, d))
            layer = nn.TransformerEncoderLayer(d, 2, 48, dropout=0.0, batch_first=True)
            self.body, self.out = nn.TransformerEncoder(layer, 1), nn.Linear(d, 12)

        def forward(self, ids):
            return self.out(self.body(self.emb(ids) + self.place))

    model = Filler()
    opt = torch.optim.Adam(model.parameters(), 5e-3)

    def loss_of(m, b):
        return F.cross_entropy(m(b[0]).flatten(0, 1), b[1].flatten(), ignore_index=-100)

    step = stepper(model, opt, loss_of)
    return setup(
        model,
        opt,
        loader,
        val_loader,
        step=step,
        loss_of=loss_of,
    )
