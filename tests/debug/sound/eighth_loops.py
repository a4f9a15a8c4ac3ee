"""Ten of the eighth set whose loop or data are unusual."""

import copy

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, Sampler, TensorDataset

from tests.debug.faulty.eighth.kit import gen
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
    stepper,
)
from tests.debug.sound.programs import sound


@sound
def cleans_noise_with_noise():
    """Noise2Noise: input and target are two noisy takes of one picture; the loss cannot go below
    the noise, yet the output is cleaner than either."""
    _, _, clean = pictures(n=160, seed=70)
    clean = clean[:, None]

    class Takes(Dataset):
        def __init__(self, rows):
            self.rows = rows

        def __len__(self):
            return len(self.rows)

        def __getitem__(self, i):
            c = clean[self.rows[i]]
            return c + 0.3 * torch.randn_like(c), c + 0.3 * torch.randn_like(c)

    loader = DataLoader(Takes(range(128)), 16, shuffle=True)
    g = gen(70)
    val = DataLoader(
        TensorDataset(clean[128:] + 0.3 * torch.randn(32, 1, 8, 8, generator=g), clean[128:]), 16
    )
    model = nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(12, 12, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(12, 1, 1),
    )
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    loss_of = of_pairs(F.mse_loss)
    step = stepper(model, opt, loss_of)
    return setup(
        model,
        opt,
        loader,
        step=step,
        loss_fn=nn.MSELoss(),
        task="regression",
        evaluate=mean_loss(model, val, loss_of),
    )


@sound
def clients_send_their_change():
    """Federated averaging with a server optimizer: a batch is a round of four clients; each
    trains a copy, the server takes the mean change, weighed by the rows, for its gradient."""
    x, y = blobs(n=400, seed=71)
    x_val, y_val = x[320:], y[320:]
    sizes = [20, 60, 100, 140]
    parts = list(zip(x[:320].split(sizes), y[:320].split(sizes), strict=False))
    loader = DataLoader(list(range(4)), batch_size=4, shuffle=True)
    held = DataLoader(TensorDataset(x_val, y_val), 16)
    model = mlp()
    opt = torch.optim.SGD(model.parameters(), 1.0, momentum=0.5)

    def loss_of(model, clients):
        rows = [parts[int(c)] for c in clients]
        total = sum(F.cross_entropy(model(a), b, reduction="sum") for a, b in rows)
        return total / sum(len(b) for _, b in rows)

    def train_step(clients):
        opt.zero_grad()
        before = loss_of(model, clients).item()
        count = sum(len(parts[int(c)][1]) for c in clients)
        for p in model.parameters():
            p.grad = torch.zeros_like(p)
        for c in clients:
            a, b = parts[int(c)]
            own = copy.deepcopy(model)
            local = torch.optim.SGD(own.parameters(), 0.05)
            for _ in range(3):
                local.zero_grad()
                F.cross_entropy(own(a), b).backward()
                local.step()
            with torch.no_grad():
                for p, q in zip(model.parameters(), own.parameters(), strict=False):
                    p.grad += (p - q) * len(b) / count
        opt.step()
        return before

    return setup(
        model,
        opt,
        loader,
        step=train_step,
        num_classes=4,
        loss_of=loss_of,
        evaluate=accuracy(model, held),
    )


@sound
def newton_like_on_all_rows():
    """L-BFGS with a closure, all rows in the one batch, always the same, as it must be."""
    x, y = numbers(n=160, seed=72)
    train = [(x[:128], y[:128])]
    held = [(x[128:], y[128:])]
    model = nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 1))
    opt = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4, history_size=6)

    def loss_of(m, b):
        return F.mse_loss(m(b[0]), b[1]) + 1e-3 * sum((p**2).sum() for p in m.parameters())

    def train_step(batch):
        def closure():
            opt.zero_grad()
            loss = loss_of(model, batch)
            loss.backward()
            return loss

        return opt.step(closure).item()

    return setup(
        model,
        opt,
        train,
        held,
        step=train_step,
        loss_of=loss_of,
        task="regression",
    )


@sound
def recommender_with_two_optimizers():
    """Bayesian personalised ranking: sparse embeddings under SparseAdam, the rest under Adam;
    negatives are drawn in the loader, never an item that the user has."""
    g = gen(73)
    users, items = 40, 30
    taste, kind = torch.randn(users, 4, generator=g), torch.randn(items, 4, generator=g)
    liked = (taste @ kind.T).topk(8, 1).indices
    has = torch.zeros(users, items, dtype=torch.bool).scatter_(1, liked, True)
    order = torch.rand(users, 8, generator=g).argsort(1)
    liked = liked.gather(1, order)
    rows = [(u, int(i)) for u in range(users) for i in liked[u, :6]]

    class Triples(Dataset):
        def __len__(self):
            return len(rows)

        def __getitem__(self, n):
            u, i = rows[n]
            j = int(torch.randint(0, items, ()))
            while has[u, j]:
                j = int(torch.randint(0, items, ()))
            return u, i, j

    loader = DataLoader(Triples(), 24, shuffle=True)

    class Factors(nn.Module):
        def __init__(self):
            super().__init__()
            self.user = nn.Embedding(users, 8, sparse=True)
            self.item = nn.Embedding(items, 8, sparse=True)
            self.mix = nn.Linear(8, 8, bias=False)

        def forward(self, u, i):
            return (self.mix(self.user(u)) * self.item(i)).sum(-1)

    model = Factors()
    opts = [
        torch.optim.SparseAdam([model.user.weight, model.item.weight], 1e-2),
        torch.optim.Adam(model.mix.parameters(), 5e-3),
    ]

    def loss_of(model, batch):
        u, i, j = batch
        return -F.logsigmoid(model(u, i) - model(u, j)).mean()

    def train_step(batch):
        loss = loss_of(model, batch)
        for opt in opts:
            opt.zero_grad()
        loss.backward()
        for opt in opts:
            opt.step()
        return loss.item()

    def evaluate():
        with torch.no_grad():
            u = torch.arange(users)
            score = model.item.weight @ model.mix(model.user(u)).T
            score = score.T.clone()
            score.scatter_(1, liked[:, :6], float("-inf"))
            top = score.topk(5, 1).indices
            hits = (top[:, :, None] == liked[:, None, 6:]).any(1).float().mean()
        return {"recall_at_5": hits.item()}

    return setup(
        model,
        opts,
        loader,
        step=train_step,
        loss_of=loss_of,
        evaluate=evaluate,
    )


@sound
def two_towers_and_a_temperature():
    """Pictures and their captions in two towers; the target of each row is its own number in the
    batch; a learnt temperature, clamped, without weight decay."""
    g = gen(74)
    what = torch.randn(224, 4, generator=g)
    a = torch.tanh(what @ torch.randn(4, 10, generator=g)) + 0.1 * torch.randn(224, 10, generator=g)
    b = what @ torch.randn(4, 7, generator=g) + 0.1 * torch.randn(224, 7, generator=g)
    train = TensorDataset(a[:192], b[:192])
    loader = DataLoader(train, 24, shuffle=True, drop_last=True)
    val_loader = DataLoader(TensorDataset(a[192:], b[192:]), 32)

    class Towers(nn.Module):
        def __init__(self):
            super().__init__()
            self.left, self.right = mlp(10, 8), mlp(7, 8)
            self.log_scale = nn.Parameter(torch.tensor(2.0))

        def forward(self, a, b):
            a, b = F.normalize(self.left(a), dim=1), F.normalize(self.right(b), dim=1)
            return self.log_scale.clamp(max=4.6).exp() * a @ b.T

    model = Towers()
    opt = torch.optim.AdamW(
        [
            {"params": [p for n, p in model.named_parameters() if n != "log_scale"]},
            {"params": [model.log_scale], "weight_decay": 0.0},
        ],
        lr=5e-3,
        weight_decay=0.01,
    )

    def loss_of(model, batch):
        near = model(*batch)
        own = torch.arange(len(near))
        return (F.cross_entropy(near, own) + F.cross_entropy(near.T, own)) / 2

    step = stepper(model, opt, loss_of)

    def evaluate():
        model.eval()
        with torch.no_grad():
            found = [model(*batch).argmax(1) for batch in val_loader]
        model.train()
        return {
            "found": torch.cat([(f == torch.arange(len(f))).float() for f in found]).mean().item()
        }

    return setup(
        model,
        opt,
        loader,
        val_loader,
        step=step,
        loss_of=loss_of,
        evaluate=evaluate,
    )


@sound
def begins_as_the_identity():
    """Each residual branch ends in zeros: at the start only those last layers have a gradient,
    and the model's answers do not come from the branches yet."""
    x, y = blobs(n=192, seed=75, spread=1.5)
    loader, val_loader = loaders(x, y, val=48)

    class Branch(nn.Module):
        def __init__(self, d):
            super().__init__()
            self.norm, self.a, self.b = nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.Linear(2 * d, d)
            nn.init.zeros_(self.b.weight)
            nn.init.zeros_(self.b.bias)

        def forward(self, x):
            return x + self.b(F.gelu(self.a(self.norm(x))))

    model = nn.Sequential(
        nn.Linear(8, 24), Branch(24), Branch(24), Branch(24), nn.LayerNorm(24), nn.Linear(24, 4)
    )
    opt = torch.optim.AdamW(model.parameters(), 5e-3)
    return setup(
        model,
        opt,
        loader,
        val_loader,
        loss_fn=nn.CrossEntropyLoss(),
        num_classes=4,
        evaluate=accuracy(model, val_loader),
    )


@sound
def warms_up_from_nothing():
    """Linear warm-up over 20 steps from a 50th of the rate, then cosine: stepped each batch, and
    declared so."""
    x, y = blobs(n=288, seed=76, spread=1.5)
    loader, val_loader = loaders(x, y)
    model = mlp()
    opt = torch.optim.AdamW(model.parameters(), 1e-2)
    lrs = torch.optim.lr_scheduler
    sched = lrs.SequentialLR(
        opt,
        [lrs.LinearLR(opt, 0.02, total_iters=20), lrs.CosineAnnealingLR(opt, 400)],
        milestones=[20],
    )
    loss_fn = nn.CrossEntropyLoss()

    def train_step(batch):
        model.train()
        loss = loss_fn(model(batch[0]), batch[1])
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        return loss.item()

    return setup(
        model,
        opt,
        loader,
        val_loader,
        step=train_step,
        scheduler=sched,
        loss_fn=loss_fn,
        num_classes=4,
        evaluate=accuracy(model, val_loader),
        declared={"scheduler_unit": "batch"},
        **saved(model=model, optimizer=opt, scheduler=sched),
    )


@sound
def private_gradients():
    """DP-SGD: gradients of each row by vmap, each clipped to 1, summed, noise added, divided by
    the size of the batch. Noisy on purpose."""
    x, y = blobs(n=352, seed=77)
    loader, val_loader = loaders(x, y, batch=32)
    model = mlp()
    opt = torch.optim.SGD(model.parameters(), 0.3)

    def one(params, x, y):
        return F.cross_entropy(torch.func.functional_call(model, params, (x[None],)), y[None])

    each = torch.func.vmap(torch.func.grad_and_value(one), in_dims=(None, 0, 0))

    def train_step(batch):
        params = {n: p.detach() for n, p in model.named_parameters()}
        grads, losses = each(params, *batch)
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in grads.values()]).norm(dim=0)
        share = (1.0 / norms.clamp(min=1e-6)).clamp(max=1.0)
        for name, p in model.named_parameters():
            g = torch.einsum("b,b...->...", share, grads[name])
            p.grad = (g + 0.3 * torch.randn_like(g)) / len(losses)
        opt.step()
        opt.zero_grad()
        return losses.mean().item()

    return setup(
        model,
        opt,
        loader,
        val_loader,
        step=train_step,
        loss_fn=nn.CrossEntropyLoss(),
        num_classes=4,
        evaluate=accuracy(model, val_loader),
    )


@sound
def easy_rows_first():
    """A curriculum: each epoch opens to harder rows until all are in, shuffled within; later
    epochs are the whole of the data."""
    x, y = numbers(n=224, seed=78)
    x_train, y_train, x_val, y_val = x[:176], y[:176], x[176:], y[176:]
    hardness = x_train.norm(dim=1).argsort()

    class Opening(Sampler):
        def __init__(self):
            self.epoch = 0

        def __iter__(self):
            share = min(1.0, 0.5 + 0.1 * self.epoch)
            self.epoch += 1
            open_rows = hardness[: int(share * len(hardness))]
            return iter(open_rows[torch.randperm(len(open_rows))].tolist())

        def __len__(self):
            return int(min(1.0, 0.5 + 0.1 * self.epoch) * len(hardness))

    loader = DataLoader(TensorDataset(x_train, y_train), 16, sampler=Opening())
    val_loader = DataLoader(TensorDataset(x_val, y_val), 16)
    model = mlp(8, 1)
    opt = torch.optim.Adam(model.parameters(), 5e-3)
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


@sound
def one_matrix_for_both_ends():
    """A language model whose output layer is its embedding (tied), with logits scaled and
    padding left out of the loss; token 0 is padding and is never foretold."""
    ids = chain(n=256, length=12, seed=79)
    loader, val_loader = loaders(ids[:, :-1], ids[:, 1:], val=48)

    class Tied(nn.Module):
        def __init__(self, d=24):
            super().__init__()
            self.emb = nn.Embedding(12, d)
            self.rnn = nn.GRU(d, d, batch_first=True)
            self.out = nn.Linear(d, 12, bias=False)
            self.out.weight = self.emb.weight

        def forward(self, ids):
            return self.out(self.rnn(self.emb(ids))[0]) / 24**0.5

    model = Tied()
    opt = torch.optim.Adam(model.parameters(), 1e-2)

    def sums(m, b):
        return F.cross_entropy(
            m(b[0]).flatten(0, 1), b[1].flatten(), ignore_index=0, reduction="sum"
        )

    def loss_of(m, b):
        return sums(m, b) / (b[1] != 0).sum()

    step = stepper(model, opt, loss_of)

    def evaluate():
        model.eval()
        with torch.no_grad():
            loss = sum(sums(model, b).item() for b in val_loader)
        model.train()
        return {"loss_per_token": loss / sum((b[1] != 0).sum().item() for b in val_loader)}

    return setup(
        model,
        opt,
        loader,
        val_loader,
        step=step,
        loss_of=loss_of,
        evaluate=evaluate,
        **saved(model=model, optimizer=opt),
    )
