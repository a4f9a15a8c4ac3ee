"""Eleven of the seventh set, of unusual make, by an author who had not read the doctor."""

import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset

from tests.debug.faulty.seventh.kit import saved, texts, wave, windows
from tests.debug.faulty.sixth.kit import (
    accuracy,
    blobs,
    loaders,
    mean_loss,
    mlp,
    of_pairs,
    pictures,
    setup,
    stepper,
)
from tests.debug.sound.programs import sound


@sound
def spread_and_mean():
    """A density's negative log-likelihood: the loss is rightly below zero. Two outputs, one
    target."""
    g = torch.Generator().manual_seed(1)
    x = torch.rand(288, 2, generator=g)
    y = x[:, :1] + (0.02 + 0.1 * x[:, 1:]) * torch.randn(288, 1, generator=g)
    loader, held = loaders(x, y)
    model = nn.Sequential(nn.Linear(2, 24), nn.Tanh(), nn.Linear(24, 2))
    opt = torch.optim.Adam(model.parameters(), 5e-3)

    def loss_fn(out, target):
        log_var = out[:, 1:].clamp(-10, 5)
        return 0.5 * (log_var + (target - out[:, :1]) ** 2 * torch.exp(-log_var)).mean()

    step = stepper(model, opt, of_pairs(loss_fn))
    return setup(
        model,
        opt,
        loader,
        held,
        step=step,
        loss_fn=loss_fn,
        task="regression",
        **saved(model=model, optimizer=opt),
    )


@sound
def log_probabilities_twice():
    """The model gives log_softmax and the loss is cross_entropy: log_softmax of log-probabilities
    is the same again."""
    x, y = blobs(n=224, spread=1.4, seed=2)
    loader, held = loaders(x, y)
    model = nn.Sequential(*mlp(), nn.LogSoftmax(-1))
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    return setup(
        model,
        opt,
        loader,
        held,
        loss_fn=nn.CrossEntropyLoss(),
        num_classes=4,
        evaluate=accuracy(model, held),
    )


class Transferred(nn.Module):
    """A frozen body whose norms stay in eval mode whatever is asked, and a head to train."""

    def __init__(self, body, k):
        super().__init__()
        self.body, self.head = body.requires_grad_(False), nn.Linear(16, k)

    def train(self, mode=True):
        super().train(mode)
        self.body.eval()
        return self

    def forward(self, x):
        return self.head(self.body(x))


@sound
def norms_at_rest():
    """Transfer: the frozen body with batch norm stays in eval mode while the rest trains; the
    optimizer has the head only."""
    x, y = blobs(n=256, k=3, spread=1.3, seed=5)
    body = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU())
    for _ in range(30):
        body(x[:200] + 0.1)
    loader, held = loaders(x, y)
    model = Transferred(body, 3)
    opt = torch.optim.SGD(model.head.parameters(), 0.1, momentum=0.9)
    loss_fn = nn.CrossEntropyLoss()
    step = stepper(model, opt, of_pairs(loss_fn))
    return setup(
        model,
        opt,
        loader,
        held,
        step=step,
        loss_fn=loss_fn,
        num_classes=3,
        evaluate=accuracy(model, held),
        declared={"frozen": [f"body.{n}" for n, _ in body.named_parameters()]},
        **saved(model=model, optimizer=opt),
    )


@sound
def dropout_left_on():
    """Monte-Carlo dropout: evaluate means 20 passes with dropout on, on purpose, from generator
    states it restores."""
    x, y = blobs(n=256, spread=1.5, seed=6)
    loader, held = loaders(x, y)
    model = nn.Sequential(nn.Linear(8, 48), nn.ReLU(), nn.Dropout(0.3), nn.Linear(48, 4))
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    loss_fn = nn.CrossEntropyLoss()
    step = stepper(model, opt, of_pairs(loss_fn))

    def evaluate():
        before = model.training
        model.train()
        with torch.random.fork_rng(), torch.no_grad():
            torch.manual_seed(0)
            hits = [
                (sum(model(a).softmax(-1) for _ in range(20)).argmax(-1) == b).float()
                for a, b in held
            ]
        model.train(before)
        return {"accuracy": torch.cat(hits).mean().item()}

    return setup(
        model,
        opt,
        loader,
        held,
        step=step,
        loss_fn=loss_fn,
        num_classes=4,
        evaluate=evaluate,
        **saved(model=model, optimizer=opt),
    )


@sound
def few_answers_possible():
    """A questionnaire of five yes/no questions and noisy outcomes: only 32 different rows exist, so
    held-out people rightly answer as training people did (with other outcomes at times)."""
    g = torch.Generator().manual_seed(9)
    x = torch.randint(0, 2, (400, 5), generator=g).float()
    p = torch.sigmoid(2 * x[:, 0] - 3 * x[:, 1] * x[:, 2] + x[:, 4] - 0.5)
    y = (torch.rand(400, generator=g) < p).float()[:, None]
    loader, held = loaders(x, y, val=100)
    model = mlp(5, 1, 16)
    opt = torch.optim.AdamW(model.parameters(), 5e-3)
    loss_fn = nn.BCEWithLogitsLoss()
    return setup(model, opt, loader, held, loss_fn=loss_fn, task="binary")


@sound
def history_reaches_back():
    """Forecasting split by time: the first held-out windows rightly read the last known training
    numbers as inputs; all held-out targets come later than every training number."""
    series = wave(n=320, walk=0.03)
    cut, width = 250, 12
    x, y = windows(series[:cut], width)
    later, wanted = windows(series[cut - width :], width)
    loader = DataLoader(TensorDataset(x, y), 16, shuffle=True)
    held = DataLoader(TensorDataset(later, wanted), 16)
    model = nn.Sequential(nn.Linear(width, 32), nn.ReLU(), nn.Linear(32, 1))
    opt = torch.optim.Adam(model.parameters(), 3e-3)
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


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, by):
        ctx.by = by
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -ctx.by * grad, None


class TwoSites(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(8, 32), nn.ReLU())
        self.label, self.site = nn.Linear(32, 3), nn.Linear(32, 2)

    def forward(self, x):
        h = self.trunk(x)
        return self.label(h), self.site(Reverse.apply(h, 0.3))


@sound
def sites_made_alike():
    """Domain-adversarial training: the gradient of the site head is turned round on its way into
    the trunk, so that gradcheck rightly disagrees and the site loss is not to fall far."""
    x, y = blobs(n=288, k=3, spread=1.2, seed=11)
    site = torch.randint(0, 2, (288,))
    x = x + 0.8 * site[:, None] * torch.tensor([1.0, 0, 0, -1, 0, 0, 1, 0])
    loader, held = loaders(x, y, site)
    model = TwoSites()
    opt = torch.optim.Adam(model.parameters(), 5e-3)

    def loss_of(m, batch):
        label, where = m(batch[0])
        return F.cross_entropy(label, batch[1]) + F.cross_entropy(where, batch[2])

    def evaluate():
        with torch.no_grad():
            hits = [(model(b[0])[0].argmax(-1) == b[1]).float() for b in held]
        return {"accuracy": torch.cat(hits).mean().item()}

    step = stepper(model, opt, loss_of)
    return setup(
        model,
        opt,
        loader,
        held,
        step=step,
        loss_of=loss_of,
        evaluate=evaluate,
        **saved(model=model, optimizer=opt),
    )


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.image, self.text = nn.Linear(64, 12), nn.Embedding(20, 12)
        self.log_heat = nn.Parameter(torch.tensor(math.log(5.0)))

    def forward(self, image, words):
        a = F.normalize(self.image(image.flatten(1)), dim=-1)
        b = F.normalize(self.text(words).mean(1), dim=-1)
        return self.log_heat.exp() * a @ b.T


@sound
def pictures_and_captions():
    """Two towers: the diagonal of the similarity matrix is the right answer, for it compares a
    picture with its own caption; a row's loss rightly depends on the other rows of the batch."""
    x, y, masks = pictures(n=192, seed=3)
    at = torch.where(y == 0, masks.sum(2).argmax(1), masks.sum(1).argmax(1))
    words = torch.stack([y, 2 + at], 1)
    loader = DataLoader(TensorDataset(x[:160], words[:160]), 16, shuffle=True, drop_last=True)
    held = DataLoader(TensorDataset(x[160:], words[160:]), 16)
    model = Towers()
    opt = torch.optim.Adam(model.parameters(), 5e-3)

    def loss_of(m, batch):
        near = m(*batch)
        right = torch.arange(len(near))
        return 0.5 * (F.cross_entropy(near, right) + F.cross_entropy(near.T, right))

    step = stepper(model, opt, loss_of)
    return setup(
        model, opt, loader, held, step=step, loss_of=loss_of, **saved(model=model, optimizer=opt)
    )


class Hidden(Dataset):
    """Masked tokens: the inputs have a mark at 20 % of the places, the targets are -100 at all
    others. Training draws the places anew each time; held-out rows have theirs fixed."""

    def __init__(self, text, seed=None):
        self.text, self.seed = text, seed

    def __len__(self):
        return len(self.text)

    def __getitem__(self, i):
        g = None if self.seed is None else torch.Generator().manual_seed(self.seed + i)
        x = self.text[i]
        chosen = (torch.rand(len(x), generator=g) < 0.2) & (x > 0)
        chosen[0] |= not chosen.any()
        return torch.where(chosen, 12, x), torch.where(chosen, x, -100)


class Filler(nn.Module):
    def __init__(self, d=24):
        super().__init__()
        self.emb = nn.Embedding(13, d, padding_idx=0)
        self.rnn = nn.GRU(d, d, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * d, 12)

    def forward(self, x):
        return self.head(self.rnn(self.emb(x))[0])


@sound
def words_hidden():
    """Masked language model: a two-way GRU may see both sides, for the words asked for are hidden;
    most targets are -100; fixed seeds for the held-out places only."""
    text = texts(256)
    loader = DataLoader(Hidden(text[:208]), 16, shuffle=True)
    held = DataLoader(Hidden(text[208:], seed=100), 16)
    model = Filler()
    opt = torch.optim.Adam(model.parameters(), 1e-2)

    def loss_fn(logits, target):
        return F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=-100)

    step = stepper(model, opt, of_pairs(loss_fn))
    return setup(
        model, opt, loader, held, step=step, loss_fn=loss_fn, **saved(model=model, optimizer=opt)
    )


@sound
def hardest_quarter():
    """Hard-example mining: the mean of the largest quarter of the losses of a batch; most rows of a
    batch rightly have no gradient."""
    x, y = blobs(n=288, spread=1.2, seed=18)
    loader, held = loaders(x, y, batch=32)
    model = mlp()
    opt = torch.optim.Adam(model.parameters(), 3e-3)

    def loss_fn(logits, target):
        each = F.cross_entropy(logits, target, reduction="none")
        return each.topk(max(1, len(each) // 4)).values.mean()

    return setup(
        model, opt, loader, held, loss_fn=loss_fn, num_classes=4, evaluate=accuracy(model, held)
    )


class Coded(nn.Module):
    """An autoencoder through a code book, with the straight-through estimate."""

    def __init__(self, d=12, size=8, codes=24):
        super().__init__()
        self.into = nn.Linear(d, size)
        self.book = nn.Parameter(0.5 * torch.randn(codes, size))
        self.out = nn.Linear(size, d)

    def forward(self, x):
        z = self.into(x)
        q = self.book[torch.cdist(z, self.book).argmin(-1)]
        return self.out(z + (q - z).detach()), z, q


@sound
def code_book():
    """Vector quantisation: detached parts in the loss on purpose, straight-through gradient past
    the argmin, targets equal to the inputs."""
    x, _ = blobs(n=256, d=12, k=6, spread=0.4, seed=20)
    x = x / x[:224].std()
    loader, held = loaders(x, x)
    model = Coded()
    opt = torch.optim.Adam(model.parameters(), 5e-3)

    def loss_of(m, batch):
        out, z, q = m(batch[0])
        return (
            F.mse_loss(out, batch[1]) + F.mse_loss(q, z.detach()) + 0.25 * F.mse_loss(z, q.detach())
        )

    step = stepper(model, opt, loss_of)
    return setup(model, opt, loader, held, step=step, loss_of=loss_of)
