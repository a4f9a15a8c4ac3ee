"""Pairs whose fault lies in the model."""

import copy

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.debug.faulty.kit import pair
from tests.debug.faulty.seventh.kit import saved, wave, windows
from tests.debug.faulty.sixth.kit import (
    accuracy,
    blobs,
    loaders,
    mean_loss,
    numbers,
    of_pairs,
    sentences,
    setup,
    stepper,
)


class Adapted(nn.Module):
    """A frozen linear layer with a low-rank addition."""

    def __init__(self, base, rank, both_zero):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Parameter(torch.zeros(rank, base.in_features))
        self.up = nn.Parameter(torch.zeros(base.out_features, rank))
        nn.init.kaiming_uniform_(self.down, a=5**0.5)
        if both_zero:
            nn.init.zeros_(self.down)

    def forward(self, x):
        return self.base(x) + 2 * (x @ self.down.T @ self.up.T)


@pair("bad-start")
def adapters_for_a_task(bug):
    """Both matrices of the low-rank adapters start at zero; each one's gradient is a product with
    the other, so they stay zero for ever. Costs only the new head learns, the adapters do
    nothing."""
    x, y = blobs(n=192, k=4, spread=1.6, seed=3)
    base = nn.Sequential(
        nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 2)
    )
    tuned = torch.optim.Adam(base.parameters(), 1e-2)
    for _ in range(40):
        tuned.zero_grad()
        F.cross_entropy(base(x), (x[:, 0] > 0).long()).backward()
        tuned.step()
    model = nn.Sequential(
        Adapted(base[0], 4, bug), nn.ReLU(), Adapted(base[2], 4, bug), nn.ReLU(), nn.Linear(16, 4)
    )
    loader, held = loaders(x, y)
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 5e-3)
    loss_fn = nn.CrossEntropyLoss()
    step = stepper(model, opt, of_pairs(loss_fn))
    return setup(
        model,
        opt,
        loader,
        held,
        step=step,
        loss_fn=loss_fn,
        num_classes=4,
        evaluate=accuracy(model, held),
        declared={"frozen": ["0.base.weight", "0.base.bias", "2.base.weight", "2.base.bias"]},
        **saved(model=model, optimizer=opt),
    )


class Fourier(nn.Module):
    def __init__(self, kept):
        super().__init__()
        freq = 0.25 * torch.randn(8, 32)
        if kept:
            self.register_buffer("freq", freq)
        else:
            self.freq = freq
        self.head = nn.Linear(64, 1)

    def forward(self, x):
        h = x @ self.freq
        return self.head(torch.cat([h.sin(), h.cos()], -1))


@pair("buffer-not-registered", "checkpoint-incomplete")
def fourier_features(bug):
    """The random frequencies are a plain attribute: not in the state dict, not moved by .to().
    Costs a model loaded in a new process has other frequencies and predicts nonsense."""
    x, y = numbers(n=224, seed=1)
    loader, held = loaders(x, y)
    model = Fourier(kept=not bug)
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    loss_fn = nn.MSELoss()
    loss_of = of_pairs(loss_fn)
    step = stepper(model, opt, loss_of)

    def save():
        return {
            "model": {k: v.clone() for k, v in model.state_dict().items()},
            "optimizer": copy.deepcopy(opt.state_dict()),
        }

    def load(state):
        model.load_state_dict(state["model"])
        opt.load_state_dict(copy.deepcopy(state["optimizer"]))

    return setup(
        model,
        opt,
        loader,
        held,
        step=step,
        loss_fn=loss_fn,
        task="regression",
        save=save,
        load=load,
        evaluate=mean_loss(model, held, loss_of),
    )


class Encoder(nn.Module):
    """Reads the sentence behind a first mark and answers from the place of the mark."""

    def __init__(self, batch_first=True, vocab=12, d=24, mark=12, mask=None):
        super().__init__()
        self.mark, self.mask = mark, mask
        self.emb = nn.Embedding(vocab + 1, d)
        self.pos = nn.Parameter(0.1 * torch.randn(11, d))
        layer = nn.TransformerEncoderLayer(d, 2, 48, dropout=0.0, batch_first=batch_first)
        self.body = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(d, 2)

    def forward(self, x):
        x = torch.cat([torch.full_like(x[:, :1], self.mark), x], 1)
        h = self.emb(x) + self.pos[: x.shape[1]]
        h = self.body(h, src_key_padding_mask=self.mask(x)) if self.mask else self.body(h)
        return self.head(h[:, 0])


def majority(n, seed, full):
    x, _ = sentences(n=n, seed=seed)
    if full:
        x = torch.where(x == 0, torch.randint(1, 12, x.shape), x)
    low, high = ((x > 0) & (x < 6)).sum(1), (x >= 6).sum(1)
    return x, (low > high).long()


@pair("rows-mixed")
def complaints_sorted(bug):
    """TransformerEncoderLayer is left at batch_first=False and fed [batch, time, features]:
    attention runs over the batch. Costs a prediction depends on who else is in the batch, and a
    sentence's answer place never sees its own words."""
    x, y = majority(288, 2, full=True)
    loader, held = loaders(x, y, val=48)
    model = Encoder(batch_first=not bug)
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    loss_fn = nn.CrossEntropyLoss()
    return setup(
        model,
        opt,
        loader,
        held,
        loss_fn=loss_fn,
        train_step=stepper(model, opt, of_pairs(loss_fn)),
        evaluate=accuracy(model, held),
    )


@pair("padding-not-masked")
def tickets_padded(bug):
    """src_key_padding_mask is given True for real tokens (as other libraries want it), where
    PyTorch means True = leave out. Costs the model attends to padding only and to no word."""
    x, y = majority(288, 5, full=False)
    loader, held = loaders(x, y, val=48)
    model = Encoder(mask=(lambda t: t != 0) if bug else (lambda t: t == 0))
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    loss_fn = nn.CrossEntropyLoss()
    step = stepper(model, opt, of_pairs(loss_fn))
    return setup(
        model, opt, loader, held, step=step, loss_fn=loss_fn, evaluate=accuracy(model, held)
    )


class Dropping(nn.Module):
    def __init__(self, always):
        super().__init__()
        self.always = always
        self.a, self.b = nn.Linear(8, 24), nn.Linear(24, 4)

    def forward(self, x):
        h = F.relu(self.a(x))
        h = F.dropout(h, 0.5) if self.always else F.dropout(h, 0.5, self.training)
        return self.b(h)


@pair("train-mode-in-eval")
def wines_told_apart(bug):
    """F.dropout without training=self.training: it drops in eval mode too (its default is
    training=True). Costs noisy and worse predictions in use, evaluation differs from call to
    call."""
    x, y = blobs(n=320, k=4, spread=1.6, seed=12)
    loader, held = loaders(x, y, val=80)
    model = Dropping(bug)
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    loss_fn = nn.CrossEntropyLoss()
    return setup(
        model, opt, loader, held, loss_fn=loss_fn, num_classes=4, evaluate=accuracy(model, held)
    )


@pair("targets-out-of-reach", "range-not-normalised")
def spectra_compressed(bug):
    """The autoencoder ends in a sigmoid, but the spectra are standardised (mean 0, deviation 1):
    all values below 0 or above 1 cannot be produced. Costs a large reconstruction error that no
    training takes away."""
    g = torch.Generator().manual_seed(4)
    base = torch.randn(3, 20, generator=g)
    x = torch.randn(224, 3, generator=g) @ base + 0.1 * torch.randn(224, 20, generator=g)
    x = (x - x[:192].mean(0)) / x[:192].std(0)
    loader, held = loaders(x, x)
    layers = [
        nn.Linear(20, 32),
        nn.ReLU(),
        nn.Linear(32, 4),
        nn.Linear(4, 32),
        nn.ReLU(),
        nn.Linear(32, 20),
    ]
    model = nn.Sequential(*layers, nn.Sigmoid()) if bug else nn.Sequential(*layers)
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    return setup(model, opt, loader, held, loss_fn=nn.MSELoss(), task="regression")


def swish_of(short):
    class Swish(torch.autograd.Function):
        """x * sigmoid(x), keeping the input only."""

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * torch.sigmoid(x)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            s = torch.sigmoid(x)
            return grad * (s * (1 - s) if short else s * (1 + x * (1 - s)))

    class Layer(nn.Module):
        def forward(self, x):
            return Swish.apply(x)

    return Layer


@pair("wrong-gradient")
def thrifty_activation(bug):
    """A memory-saving autograd Function for x * sigmoid(x) returns the slope of sigmoid alone: s (1
    - s) for s (1 + x (1 - s)). Costs layers below get gradients several times too small and wrong
    for large |x|; training is slow and ends higher."""
    x, y = numbers(n=224, seed=2)
    y = 2 * y + x[:, :1] * x[:, 1:2]
    loader, held = loaders(x, y)
    act = swish_of(bug)
    model = nn.Sequential(nn.Linear(8, 32), act(), nn.Linear(32, 32), act(), nn.Linear(32, 1))
    opt = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    loss_fn = nn.MSELoss()
    loss_of = of_pairs(loss_fn)
    step = stepper(model, opt, loss_of)
    return setup(
        model,
        opt,
        loader,
        held,
        step=step,
        loss_fn=loss_fn,
        task="regression",
        evaluate=mean_loss(model, held, loss_of),
        **saved(model=model, optimizer=opt),
    )


class Forecaster(nn.Module):
    def __init__(self, keep):
        super().__init__()
        self.keep, self.h = keep, None
        self.gru = nn.GRU(1, 24, batch_first=True)
        self.head = nn.Linear(24, 1)

    def forward(self, x):
        start = self.h if self.keep and self.h is not None and self.h.shape[1] == len(x) else None
        out, h = self.gru(x[..., None], start)
        self.h = h.detach()
        return self.head(out[:, -1])


@pair("state-carried", "depends-on-order")
def load_curve(bug):
    """The GRU starts each batch from the hidden state that the last, unrelated batch of shuffled
    windows left. Costs predictions depend on the batch before: they cannot be repeated, and the
    evaluation changes with what ran before it."""
    x, y = windows(wave(n=300, walk=0.02), width=6)
    train = TensorDataset(x[: -48 - 6], y[: -48 - 6])
    loader = DataLoader(train, 16, shuffle=True, drop_last=True)
    held = DataLoader(TensorDataset(x[-48:], y[-48:]), 16)
    model = Forecaster(keep=bug)
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    loss_fn = nn.MSELoss()
    loss_of = of_pairs(loss_fn)
    return setup(
        model,
        opt,
        loader,
        held,
        loss_fn=loss_fn,
        task="regression",
        train_step=stepper(model, opt, loss_of),
        evaluate=mean_loss(model, held, loss_of),
    )
