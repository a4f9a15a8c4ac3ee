"""Faults inside of models: attention, recurrence, adapters, custom functions, statistics."""

from types import SimpleNamespace

import torch
from torch import nn
from torch.nn import functional as F

from tests.debug.faulty.eighth.kit import gen
from tests.debug.faulty.kit import pair
from tests.debug.faulty.seventh.kit import saved
from tests.debug.faulty.sixth.kit import (
    accuracy,
    blobs,
    chain,
    loaders,
    looped,
    mean_loss,
    mlp,
    numbers,
    of_pairs,
    pictures,
    sentences,
    setup,
    stepper,
)


class Adapter(nn.Module):
    """A frozen linear layer and a low-rank path beside it."""

    def __init__(self, base, rank, blank):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Parameter(torch.zeros(rank, base.in_features))
        self.up = nn.Parameter(torch.zeros(base.out_features, rank))
        if not blank:
            nn.init.kaiming_uniform_(self.down, a=5**0.5)

    def forward(self, x):
        return self.base(x) + 2.0 * (x @ self.down.T) @ self.up.T


@pair("bad-start")
def adapters_of_two_zeros(bug):
    """Both factors of the low-rank adapters begin at zero: each one's gradient is the other, so
    that neither ever moves. Costs: the fine-tuning does nothing at all. Twin: the lower factor
    random, the upper zero."""
    x, y = blobs(n=192, seed=30)
    torch.manual_seed(30)
    base = mlp()
    fit = torch.optim.Adam(base.parameters(), 1e-2)
    for _ in range(40):  # pretrained on other names of the classes
        fit.zero_grad()
        F.cross_entropy(base(x[:160]), (y[:160] + 1) % 4).backward()
        fit.step()
    model = nn.Sequential(Adapter(base[0], 4, bug), nn.ReLU(), Adapter(base[2], 4, bug))
    loader, val_loader = loaders(x, y)
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 2e-2)
    step = stepper(model, opt, of_pairs(F.cross_entropy))
    return SimpleNamespace(
        model=model,
        optimizer=opt,
        train_loader=loader,
        val_loader=val_loader,
        loss_fn=nn.CrossEntropyLoss(),
        num_classes=4,
        train_step=step,
        train=looped(loader, step),
        evaluate=accuracy(model, val_loader),
        declared={"frozen": ["0.base.weight", "0.base.bias", "2.base.weight", "2.base.bias"]},
    )


@pair("sees-the-future")
def mask_of_the_other_convention(bug):
    """scaled_dot_product_attention takes True for "may look"; the mask is made as for
    nn.MultiheadAttention, True for "must not" (upper triangle). Costs: each place sees itself
    and what follows, among it its target; generation is nonsense."""
    ids = chain(n=320, length=12, seed=31)
    ids[ids == 0] = 1
    loader, val_loader = loaders(ids[:, :-1], ids[:, 1:])

    class Block(nn.Module):
        def __init__(self, d):
            super().__init__()
            self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
            self.first, self.second = nn.LayerNorm(d), nn.LayerNorm(d)
            self.feed = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

        def forward(self, x):
            b, t, d = x.shape
            q, k, v = (
                p.view(b, t, 2, d // 2).transpose(1, 2)
                for p in self.qkv(self.first(x)).chunk(3, -1)
            )
            mask = torch.ones(t, t, dtype=torch.bool)
            mask = mask.triu() if bug else mask.tril()
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
            x = x + self.out(mixed.transpose(1, 2).reshape(b, t, d))
            return x + self.feed(self.second(x))

    class Language(nn.Module):
        def __init__(self, vocab=12, d=24, length=16):
            super().__init__()
            self.emb, self.place = nn.Embedding(vocab, d), nn.Embedding(length, d)
            self.blocks = nn.Sequential(Block(d), Block(d))
            self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, vocab)

        def forward(self, ids):
            x = self.emb(ids) + self.place(torch.arange(ids.shape[1]))
            return self.head(self.norm(self.blocks(x)))

    model = Language()
    opt = torch.optim.AdamW(model.parameters(), 5e-3)

    def loss_of(m, b):
        return F.cross_entropy(m(b[0]).flatten(0, 1), b[1].flatten())

    step = stepper(model, opt, loss_of)
    return setup(
        model,
        opt,
        loader,
        val_loader,
        step=step,
        loss_of=loss_of,
        num_classes=12,
        evaluate=mean_loss(model, val_loader, loss_of),
        **saved(model=model, optimizer=opt),
    )


@pair("padding-not-masked")
def reads_the_last_place(bug):
    """The RNN's state behind the padding stands for the sentence, not that at its last word.
    Costs: answers depend on how far the batch is padded; short sentences are half forgotten."""
    ids, lengths = sentences(n=224, length=40, seed=32)
    y = (ids[torch.arange(224), lengths - 1] > 6).long()
    loader, val_loader = loaders(ids, y, val=64)

    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(12, 12)
            self.rnn = nn.RNN(12, 24, batch_first=True)
            self.out = nn.Linear(24, 2)

        def forward(self, ids):
            h, _ = self.rnn(self.emb(ids))
            if bug:
                return self.out(h[:, -1])
            last = (ids != 0).sum(1) - 1
            return self.out(h[torch.arange(len(h)), last])

    model = Reader()
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    return setup(
        model,
        opt,
        loader,
        val_loader,
        loss_fn=nn.CrossEntropyLoss(),
        num_classes=2,
        evaluate=accuracy(model, val_loader),
    )


@pair("rows-mixed", "depends-on-order")
def lstm_takes_rows_for_time(bug):
    """The batches are [batch, time, features], the LSTM was made without batch_first: it runs
    along the rows of the batch. Costs: an answer depends on its neighbours in the batch, and the
    series itself is never read but for its last value."""
    g = gen(33)
    y = torch.randint(0, 3, (192,), generator=g)
    t = torch.arange(14.0)
    pitch = torch.tensor([0.4, 0.9, 1.6])[y][:, None]
    x = torch.sin(t * pitch + 6.28 * torch.rand(192, 1, generator=g))
    x = torch.stack([x, torch.cos(t * pitch)], -1) + 0.3 * torch.randn(192, 14, 2, generator=g)
    loader, val_loader = loaders(x, y, val=48)

    class Listener(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.LSTM(2, 24, batch_first=not bug)
            self.out = nn.Linear(24, 3)

        def forward(self, x):
            return self.out(self.rnn(x)[0][:, -1])

    model = Listener()
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    step = stepper(model, opt, of_pairs(F.cross_entropy))
    return setup(
        model,
        opt,
        loader,
        val_loader,
        loss_fn=nn.CrossEntropyLoss(),
        num_classes=3,
        train_step=step,
        evaluate=accuracy(model, val_loader),
    )


@pair("wrong-gradient")
def backward_of_the_wrong_tensor(bug):
    """A lean autograd function for tanh saves its input and takes it for its output in the
    backward: 1 - x**2, which is negative where |x| > 1. Costs: saturated units are driven the
    wrong way; learning is poor. gradcheck would tell."""

    class LeanTanh(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x.tanh()
            ctx.save_for_backward(x if bug else y)
            return y

        @staticmethod
        def backward(ctx, grad):
            (y,) = ctx.saved_tensors
            return grad * (1 - y**2)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = nn.Linear(8, 32), nn.Linear(32, 32), nn.Linear(32, 1)

        def forward(self, x):
            x = LeanTanh.apply(self.a(x))
            return self.c(LeanTanh.apply(self.b(x)))

    x, y = numbers(n=224, seed=34)
    loader, val_loader = loaders(4 * x, y, val=64)
    model = Net()
    opt = torch.optim.Adam(model.parameters(), 3e-3)
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
    )


@pair("state-carried")
def remembers_the_batch_before(bug):
    """The recurrent state is kept (detached) from one batch to the next though the rows are
    shuffled series of their own. Costs: an answer depends on what other rows were seen before;
    evaluations cannot be repeated."""
    g = gen(35)
    x = torch.randn(192, 8, 3, generator=g)
    y = (x[..., 0].cumsum(1)[:, -1:] / 3) + 0.1 * torch.randn(192, 1, generator=g)
    loader, val_loader = loaders(x, y, val=48)

    class Summer(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.out = nn.GRU(3, 24, batch_first=True), nn.Linear(24, 1)
            self.state = None

        def forward(self, x):
            state = self.state
            if state is not None and state.shape[1] != len(x):
                state = None
            h, state = self.rnn(x, state)
            if bug:
                self.state = state.detach()
            return self.out(h[:, -1])

    model = Summer()
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    loss_of = of_pairs(F.mse_loss)
    step = stepper(model, opt, loss_of)
    return setup(
        model,
        opt,
        loader,
        val_loader,
        loss_fn=nn.MSELoss(),
        task="regression",
        train_step=step,
        evaluate=mean_loss(model, val_loader, loss_of),
    )


@pair("buffer-not-registered", "checkpoint-incomplete", "checkpoint-changes-model")
def normaliser_left_behind(bug):
    """The running mean and spread of the observations are plain tensors: no checkpoint holds
    them. Costs: a restored model gets its inputs unscaled and is useless. Twin: register_buffer."""

    class Normalise(nn.Module):
        def __init__(self, d):
            super().__init__()
            for name, value in (
                ("mean", torch.zeros(d)),
                ("square", torch.ones(d)),
                ("seen", torch.zeros(())),
            ):
                if bug:
                    setattr(self, name, value)
                else:
                    self.register_buffer(name, value)

        def forward(self, x):
            if self.training:
                with torch.no_grad():
                    self.seen += 1
                    rate = 1 / self.seen.clamp(max=50)
                    self.mean.lerp_(x.mean(0), rate)
                    self.square.lerp_((x**2).mean(0), rate)
            return (x - self.mean) / (self.square - self.mean**2).clamp(min=1e-4).sqrt()

    class Policy(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale, self.body = Normalise(5), mlp(5, 3)

        def forward(self, x):
            return self.body(self.scale(x))

    g = gen(36)
    x = torch.randn(192, 5, generator=g)
    y = (x @ torch.randn(5, 3, generator=g)).argmax(1)  # the expert's action
    x = x * torch.tensor([0.01, 1.0, 30.0, 5.0, 0.2]) + torch.tensor([0.0, 3.0, 80.0, -9.0, 0.0])
    loader, val_loader = loaders(x, y, val=48)
    model = Policy()
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    step = stepper(model, opt, of_pairs(F.cross_entropy))
    return setup(
        model,
        opt,
        loader,
        val_loader,
        step=step,
        loss_fn=nn.CrossEntropyLoss(),
        num_classes=3,
        evaluate=accuracy(model, val_loader),
        **saved(model=model, optimizer=opt),
    )


@pair("frozen-params-drift")
def frozen_but_for_its_statistics(bug):
    """The pretrained backbone takes no gradients, yet model.train() lets its batch norm take new
    running statistics from small batches of other data. Costs: the "frozen" features change
    under the head; the other heads that share it break. Twin: the backbone is kept in eval mode."""

    class Tuned(nn.Module):
        def __init__(self):
            super().__init__()
            self.backbone = nn.Sequential(
                nn.Conv2d(1, 8, 3, padding=1),
                nn.BatchNorm2d(8),
                nn.ReLU(),
                nn.AdaptiveMaxPool2d(2),
                nn.Flatten(),
            )
            self.head = nn.Linear(32, 2)

        def forward(self, x):
            return self.head(self.backbone(x))

        def train(self, mode=True):
            super().train(mode)
            if not bug:
                self.backbone.eval()
            return self

    model = Tuned()
    x, y, _ = pictures(n=160, seed=37)
    torch.manual_seed(37)
    fit = torch.optim.Adam(model.parameters(), 1e-2)
    nn.Module.train(model)
    for rows in torch.arange(160).chunk(8) * 5:  # pretraining on darker pictures of another tone
        fit.zero_grad()
        F.cross_entropy(nn.Module.__call__(model, 0.5 * x[rows] - 0.2), y[rows]).backward()
        fit.step()
    model.backbone.requires_grad_(False)
    model.head.reset_parameters()
    model.train()
    loader, val_loader = loaders(x, y, val=48, batch=8)
    opt = torch.optim.Adam(model.head.parameters(), 1e-2)
    step = stepper(model, opt, of_pairs(F.cross_entropy))
    return setup(
        model,
        opt,
        loader,
        val_loader,
        step=step,
        loss_fn=nn.CrossEntropyLoss(),
        num_classes=2,
        evaluate=accuracy(model, val_loader),
        declared={"frozen": ["backbone"]},
    )
