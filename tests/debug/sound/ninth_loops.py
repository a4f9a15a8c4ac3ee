"""Ten more of the ninth set, whose loops, models or data look odd, by the same author."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, IterableDataset, Sampler, TensorDataset

from tests.debug.faulty.eighth.kit import gen, predict
from tests.debug.faulty.seventh.kit import saved, texts
from tests.debug.faulty.sixth.kit import (
    accuracy,
    blobs,
    loaders,
    mlp,
    numbers,
    of_pairs,
    pictures,
    setup,
    small_conv,
    stepper,
    trained,
    trained_pairs,
)
from tests.debug.sound.programs import sound


class Tied(nn.Module):
    def __init__(self, vocab, d=16):
        super().__init__()
        self.embed = nn.Embedding(vocab, d)
        nn.init.normal_(self.embed.weight, std=d**-0.5)
        self.rnn = nn.GRU(d, d, batch_first=True)
        self.decode = nn.Linear(d, vocab)
        self.decode.weight = self.embed.weight

    def forward(self, ids):
        return self.decode(self.rnn(self.embed(ids))[0])


@sound
def one_matrix_in_and_out():
    """The output layer's weight is the embedding itself; parameters() lists it once, the optimizer
    holds it once, and both uses train it. Row 0 stands for "begin" and "end"."""
    ids = F.pad(texts(480, seed=701), (1, 0))
    loader, held = loaders(ids, val=80, batch=40)
    model = Tied(12)
    decay = [p for p in model.parameters() if p.ndim > 1]
    rest = [p for p in model.parameters() if p.ndim <= 1]
    opt = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.05}, {"params": rest, "weight_decay": 0.0}], lr=4e-3
    )

    def loss_of(model, batch):
        ids = batch[0]
        out, goal = model(ids[:, :-1]), ids[:, 1:]
        upto_end = torch.cat([torch.ones_like(goal[:, :1]), goal[:, :-1]], 1) != 0
        return F.cross_entropy(out[upto_end], goal[upto_end])

    return trained(model, opt, (loader, held), loss_of)


class Ordinal(nn.Module):
    """One score and four rising cuts; classes have an order."""

    def __init__(self, d, k):
        super().__init__()
        self.score = nn.Sequential(nn.Linear(d, 16), nn.Tanh(), nn.Linear(16, 1, bias=False))
        self.first = nn.Parameter(torch.tensor(-1.5))
        self.gaps = nn.Parameter(torch.zeros(k - 2))

    def forward(self, x):
        cuts = torch.cat([self.first[None], self.first + F.softplus(self.gaps).cumsum(0)])
        return self.score(x) - cuts  # logit of "more than class j"


@sound
def stars_by_cuts():
    """Ordinal regression: five classes but four outputs, trained by binary cross-entropy against
    staircase targets; the class is the number of cuts passed, no argmax."""
    g = gen(711)
    x = torch.randn(480, 6, generator=g)
    worth = x @ torch.tensor([1.0, 0.8, -0.6, 0.4, 0.0, 0.0]) + 0.3 * torch.randn(480, generator=g)
    y = torch.bucketize(worth, torch.tensor([-1.5, -0.5, 0.5, 1.5]))
    loader, held = loaders(x, y, val=120, batch=20)
    model = Ordinal(6, 5)
    opt = torch.optim.Adam(model.parameters(), 1e-2)

    def stairs(out, y):
        return F.binary_cross_entropy_with_logits(out, (y[:, None] > torch.arange(4)).float())

    def evaluate():
        out, t = predict(model, held)
        pred = (out > 0).sum(1)
        return {
            "accuracy": (pred == t).float().mean().item(),
            "off_by": (pred - t).abs().float().mean().item(),
        }

    return trained_pairs(model, opt, (loader, held), stairs, evaluate=evaluate)


class Recomputing(nn.Module):
    def __init__(self, d, k, depth=3):
        super().__init__()
        self.stem, self.out = nn.Linear(d, 24), nn.Linear(24, k)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(24), nn.Linear(24, 24), nn.GELU(), nn.Dropout(0.1))
            for _ in range(depth)
        )

    def forward(self, x):
        h = self.stem(x)
        for block in self.blocks:
            h = h + (checkpoint(block, h, use_reentrant=False) if self.training else block(h))
        return self.out(h)


@sound
def forgets_and_computes_again():
    """Gradient checkpointing: blocks run twice in training (dropout's draws are kept the same) and
    plainly in evaluation. Gradients are cleared at the end of the step rather than before."""
    x, y = blobs(n=400, d=12, k=5, seed=721, spread=2.0)
    loader, held = loaders(x / 2, y, val=100, batch=20)
    model = Recomputing(12, 5)
    opt = torch.optim.AdamW(model.parameters(), 3e-3, weight_decay=0.05)

    def train_step(batch):
        model.train()
        loss = F.cross_entropy(model(batch[0]), batch[1])
        loss.backward()
        opt.step()
        opt.zero_grad(set_to_none=True)
        return loss.item()

    return setup(
        model,
        opt,
        loader,
        held,
        step=train_step,
        loss_fn=nn.CrossEntropyLoss(),
        num_classes=5,
        evaluate=accuracy(model, held),
    )


class Codebook(nn.Module):
    """A vector-quantised autoencoder; the gradient goes straight through the choice of code."""

    def __init__(self, d=12, h=32, z=4, codes=12):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(d, h), nn.ReLU(), nn.Linear(h, z))
        self.dec = nn.Sequential(nn.Linear(z, h), nn.ReLU(), nn.Linear(h, d))
        self.codes = nn.Parameter(0.5 * torch.randn(codes, z))

    def forward(self, x):
        z = self.enc(x)
        q = self.codes[torch.cdist(z, self.codes).argmin(1)]
        price = F.mse_loss(q, z.detach()) + 0.25 * F.mse_loss(z, q.detach())
        return self.dec(z + (q - z).detach()), price


@sound
def straight_through_the_codebook():
    """The nearest code is chosen by argmin, which has no gradient; z + (q - z).detach() hands the
    decoder's gradient to the encoder, and the codes learn from their own term. The inputs are
    the targets."""
    g = gen(731)
    y = torch.randint(0, 8, (440,), generator=g)
    x = torch.randn(8, 12, generator=g)[y] + 0.2 * torch.randn(440, 12, generator=g)
    loader, held = loaders(x, val=80, batch=30)
    model = Codebook()
    opt = torch.optim.Adam(model.parameters(), 4e-3)

    def loss_of(model, batch):
        out, price = model(batch[0])
        return F.mse_loss(out, batch[0]) + price

    def evaluate():
        model.eval()
        with torch.no_grad():
            err = torch.cat([(model(b[0])[0] - b[0]) ** 2 for b in held])
        model.train()
        return {"reconstruction": err.mean().item()}

    return trained(model, opt, (loader, held), loss_of, evaluate=evaluate)


class ByLength(Sampler):
    """Batches of sentences of about the same length, in random order, and shuffled within a
    jitter."""

    def __init__(self, lengths, size):
        self.lengths, self.size = torch.as_tensor(lengths).float(), size

    def __len__(self):
        return (len(self.lengths) + self.size - 1) // self.size

    def __iter__(self):
        order = (self.lengths + 2 * torch.rand(len(self.lengths))).argsort()
        pieces = list(order.split(self.size))
        for k in torch.randperm(len(pieces)).tolist():
            yield pieces[k].tolist()


class MaxPooled(nn.Module):
    def __init__(self, vocab, d=16, k=2):
        super().__init__()
        self.embed = nn.Embedding(vocab, d, padding_idx=0)
        self.conv, self.out = nn.Conv1d(d, 24, 3, padding=1), nn.Linear(24, k)

    def forward(self, ids):
        real = (ids != 0)[:, None]
        h = F.relu(self.conv(self.embed(ids).transpose(1, 2)))
        return self.out(h.masked_fill(~real, 0.0).amax(-1))


@sound
def batches_of_one_length():
    """A batch sampler sorts by jittered length and shuffles the batches, so batches differ in width
    and number of rows but each sentence comes once a pass; nothing depends on the padding."""
    g = gen(741)
    rows = []
    for _ in range(400):
        ids = torch.randint(2, 16, (int(torch.randint(3, 18, (1,), generator=g)),), generator=g)
        y = int(torch.randint(0, 2, (1,), generator=g))
        if y:
            at = int(torch.randint(0, len(ids) - 1, (1,), generator=g))
            ids[at], ids[at + 1] = 3, 5
        else:
            ids[ids == 5] = 6
        rows.append((ids, y))

    def collate(items):
        return (
            nn.utils.rnn.pad_sequence([i for i, _ in items], batch_first=True),
            torch.tensor([y for _, y in items]),
        )

    loader = DataLoader(
        rows[:320], batch_sampler=ByLength([len(i) for i, _ in rows[:320]], 16), collate_fn=collate
    )
    held = DataLoader(rows[320:], 16, collate_fn=collate)
    model = MaxPooled(16)
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    return trained_pairs(model, opt, (loader, held), nn.CrossEntropyLoss(), num_classes=2)


class Critics(nn.Module):
    def __init__(self, z=3, h=32):
        super().__init__()
        self.z = z
        self.generator = nn.Sequential(nn.Linear(z, h), nn.ReLU(), nn.Linear(h, 2))
        self.critic = nn.Sequential(
            nn.Linear(2, h), nn.LeakyReLU(0.2), nn.Linear(h, h), nn.LeakyReLU(0.2), nn.Linear(h, 1)
        )


@sound
def critic_with_gradient_penalty():
    """WGAN-GP: three critic steps for one of the generator, a penalty on the gradient's norm (a
    backward through a backward), and a loss that is an unbounded difference of means."""
    g = gen(751)
    angle = 6.283 * torch.rand(480, generator=g)
    real = torch.stack([1.5 * angle.cos(), angle.sin()], 1) + 0.1 * torch.randn(480, 2, generator=g)
    loader = DataLoader(TensorDataset(real), 60, shuffle=True)
    gan = Critics()
    opt_g = torch.optim.Adam(gan.generator.parameters(), 1e-3, betas=(0.0, 0.9))
    opt_d = torch.optim.Adam(gan.critic.parameters(), 2e-3, betas=(0.0, 0.9))

    def train_step(batch):
        (real,) = batch
        gan.train()
        for _ in range(3):
            with torch.no_grad():
                fake = gan.generator(torch.randn(len(real), gan.z))
            mix = real.lerp(fake, torch.rand(len(real), 1)).requires_grad_(True)
            (slope,) = torch.autograd.grad(gan.critic(mix).sum(), mix, create_graph=True)
            loss_d = (
                gan.critic(fake).mean()
                - gan.critic(real).mean()
                + 5 * ((slope.norm(dim=1) - 1) ** 2).mean()
            )
            opt_d.zero_grad()
            loss_d.backward()
            opt_d.step()
        gan.critic.requires_grad_(False)
        loss_g = -gan.critic(gan.generator(torch.randn(len(real), gan.z))).mean()
        opt_g.zero_grad()
        loss_g.backward()
        opt_g.step()
        gan.critic.requires_grad_(True)
        return loss_d.item()

    fixed = torch.randn(300, 3, generator=g)

    def evaluate():
        gan.eval()
        with torch.no_grad():
            made = gan.generator(fixed)
        gan.train()
        near = torch.cdist(made, real)
        return {"chamfer": (near.min(0).values.mean() + near.min(1).values.mean()).item()}

    return setup(gan, [opt_g, opt_d], loader, step=train_step, evaluate=evaluate)


class Endless(IterableDataset):
    """Simulated on demand, never the same twice; a pass is what we call sixteen batches."""

    def __init__(self, batch, batches):
        self.batch, self.batches = batch, batches
        self.rng = gen(761)

    def __len__(self):
        return self.batches

    def __iter__(self):
        for _ in range(self.batches):
            yield simulate(self.batch, self.rng)


def simulate(n, rng):
    """Where a thrown ball comes down, from its speed and angle (scaled)."""
    speed, angle = 0.5 + torch.rand(n, generator=rng), torch.rand(n, generator=rng) * 1.5
    return torch.stack([2 * speed - 2, 2 * angle - 1.5], 1), (speed**2 * torch.sin(2 * angle))[
        :, None
    ]


@sound
def simulated_on_demand():
    """The training data are an endless simulation without a fixed set: nothing is ever seen twice
    and there is no shuffle; the validation rows were simulated once, from another seed."""
    loader = DataLoader(Endless(32, 16), batch_size=None)
    held = DataLoader(TensorDataset(*simulate(128, gen(762))), 32)
    model = mlp(2, 1, 32)
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    return trained_pairs(model, opt, (loader, held), nn.MSELoss())


@sound
def one_cycle_over_all_steps():
    """OneCycleLR, stepped after every batch as it wants to be, cycles the rate up and down and
    Adam's beta the other way; the schedule stops being stepped when its steps are used up."""
    x, y, _ = pictures(n=360, seed=771)
    loader, held = loaders(x, y, val=72, batch=24)
    model = small_conv()
    opt = torch.optim.Adam(model.parameters(), 1e-3)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        opt, max_lr=1e-2, total_steps=25 * len(loader), pct_start=0.3
    )
    plain = stepper(model, opt, of_pairs(F.cross_entropy))

    def train_step(batch):
        loss = plain(batch)
        if scheduler.last_epoch < scheduler.total_steps - 1:
            scheduler.step()
        return loss

    return setup(
        model,
        opt,
        loader,
        held,
        step=train_step,
        loss_fn=nn.CrossEntropyLoss(),
        num_classes=2,
        evaluate=accuracy(model, held),
        scheduler=scheduler,
        declared={"scheduler_unit": "batch"},
        **saved(model=model, optimizer=opt, scheduler=scheduler),
    )


@sound
def rows_blended_with_other_rows():
    """Mixup: each row is blended with another one of the batch by one permutation, and the loss is
    blended by the same share. The training loss stays high because no blended row is pure."""
    x, y = blobs(n=400, d=10, k=4, seed=781, spread=1.8)
    loader, held = loaders(x / 2, y, val=100, batch=20)
    model = mlp(10, 4, 48)
    opt = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, nesterov=True)
    share_of = torch.distributions.Beta(0.4, 0.4)

    def train_step(batch):
        model.train()
        x, y = batch
        share, other = share_of.sample(), torch.randperm(len(x))
        out = model(share * x + (1 - share) * x[other])
        loss = share * F.cross_entropy(out, y) + (1 - share) * F.cross_entropy(out, y[other])
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.item()

    return setup(
        model,
        opt,
        loader,
        held,
        step=train_step,
        loss_fn=nn.CrossEntropyLoss(),
        num_classes=4,
        evaluate=accuracy(model, held),
    )


class RandomFeatures(nn.Module):
    """Cosines of fixed random projections (buffers), and a linear layer on them that learns."""

    def __init__(self, d, features, width=0.5):
        super().__init__()
        self.register_buffer("w", width * torch.randn(d, features))
        self.register_buffer("b", 6.2832 * torch.rand(features))
        self.out = nn.Linear(features, 1)

    def forward(self, x):
        return self.out(torch.cos(x @ self.w + self.b) * (2 / self.w.shape[1]) ** 0.5)


@sound
def random_features_never_trained():
    """Random Fourier features: the first layer is a fixed random buffer, saved with the model, and
    only the linear layer behind it is trained, at a rate that looks large and suits it."""
    x, y = numbers(n=480, d=4, seed=791)
    loader, held = loaders(x, y, val=100, batch=20)
    model = RandomFeatures(4, 200)
    opt = torch.optim.SGD(model.parameters(), 0.3, momentum=0.9)
    return trained_pairs(
        model, opt, (loader, held), nn.MSELoss(), **saved(model=model, optimizer=opt)
    )
