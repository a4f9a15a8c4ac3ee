"""Ten more of the twenty-second set: steps of another make, averages, orders, two optimizers."""

import copy
import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.debug.faulty.twenty_second.kit import (
    ConvNet,
    averaged,
    blobs,
    by_classes,
    by_cost,
    by_pairs,
    copying,
    corridor,
    feed,
    follow,
    gen,
    loaders,
    mlp,
    nearest,
    rated,
    seed,
    shapes,
    squared,
    successors,
)
from tests.debug.sound.programs import sound


@sound
def sharpness_aware_in_two_passes():
    """The weights climb to the worst point near by for the gradient, and come back for the step."""
    seed()
    tl, vl = loaders(blobs(320, 12, 4, 1, 0.6), blobs(202, 12, 4, 2, 0.6), 32)
    m = mlp(12, 32, 4)
    opt = torch.optim.SGD(m.parameters(), 0.05, momentum=0.9)
    crit = nn.CrossEntropyLoss()

    def step(b):
        m.train()
        params = list(m.parameters())
        opt.zero_grad()
        loss = crit(m(b[0]), b[1])
        loss.backward()
        with torch.no_grad():
            norm = torch.stack([p.grad.norm() for p in params]).norm() + 1e-12
            moves = [0.05 * p.grad / norm for p in params]
            for p, move in zip(params, moves, strict=True):
                p.add_(move)
        opt.zero_grad()
        crit(m(b[0]), b[1]).backward()
        with torch.no_grad():
            for p, move in zip(params, moves, strict=True):
                p.sub_(move)
        opt.step()
        return loss.item()

    return by_classes(m, opt, tl, vl, 4, crit, step)


@sound
def lbfgs_whole_set():
    """All rows are one batch, and a step runs the model several times."""
    seed()

    def data(n, s):
        x = torch.rand(n, 2, generator=gen(s)) * 2 - 1
        return x, torch.sin(3 * x[:, :1]) * x[:, 1:]

    m = mlp(2, 16, 1, act=nn.Tanh)
    opt = torch.optim.LBFGS(m.parameters(), lr=1.0, max_iter=4, line_search_fn="strong_wolfe")
    crit = nn.MSELoss()
    tl, vl = loaders(data(96, 1), data(101, 2), 96, 32)

    def step(b):
        m.train()

        def closure():
            opt.zero_grad()
            loss = crit(m(b[0]), b[1])
            loss.backward()
            return loss

        return float(opt.step(closure))

    return by_pairs(m, opt, tl, vl, crit, step, evaluate=squared(m, vl, "mse"))


class Tied(nn.Module):
    """The output layer shares the weight of the embedding."""

    def __init__(self, v):
        super().__init__()
        self.emb = nn.Embedding(v, 20, padding_idx=0)
        self.rnn = nn.GRU(20, 20, batch_first=True)
        self.head = nn.Linear(20, v, bias=False)
        self.head.weight = self.emb.weight

    def forward(self, x):
        return self.head(self.rnn(self.emb(x))[0])


@sound
def tied_lm_token_weighted():
    """A batch is a list of two micro-batches, whose losses are sums over tokens by the number of
    all tokens of the two."""
    seed()
    V = 13

    def data(n, s):
        ids = successors(n, 10, V - 1, s) + 1
        lengths = torch.randint(3, 11, (n,), generator=gen(s + 5))
        return TensorDataset(ids * (torch.arange(10) < lengths[:, None]))

    def collate(rows):
        return list(torch.stack([row[0] for row in rows]).split(16))

    m = Tied(V)
    nn.init.normal_(m.emb.weight, std=0.3)
    with torch.no_grad():
        m.emb.weight[0].zero_()
    opt = torch.optim.AdamW(m.parameters(), 1e-2)
    tl = feed(data(640, 1), 32, collate_fn=collate)
    vl = DataLoader(data(202, 2), 32, collate_fn=collate)

    def nll(model, ids):
        out, y = model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()
        return F.cross_entropy(out, y, ignore_index=0, reduction="sum")

    def tokens(parts):
        return sum(int((ids[:, 1:] != 0).sum()) for ids in parts)

    def loss_of(model, parts):
        return sum(nll(model, ids) for ids in parts) / tokens(parts)

    def step(parts):
        m.train()
        opt.zero_grad()
        n, total = tokens(parts), 0.0
        for ids in parts:
            loss = nll(m, ids) / n
            loss.backward()
            total += loss.item()
        nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        opt.step()
        return total

    def sums_of(model, parts):
        return {"nll": (sum(nll(model, ids) for ids in parts), tokens(parts))}

    mean = averaged(m, vl, sums_of)

    def evaluate():
        return {"perplexity": math.exp(mean()["nll"])}

    more = {"evaluate": evaluate, "declared": {"max_grad_norm": 1.0}}
    return by_cost(m, opt, tl, vl, loss_of, None, step=step, **more)


@sound
def double_dqn_hard_target():
    """The target is a copy that no optimizer has; it stands still for 50 steps, then jumps."""
    seed()
    m = mlp(6, 32, 2)
    target = copy.deepcopy(m).requires_grad_(False)
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    tl, vl = loaders(corridor(1024, 1), corridor(203, 2), 64)

    def values(model, b):
        q = model(b["obs"]).gather(1, b["action"][:, None])[:, 0]
        with torch.no_grad():
            best = model(b["next_obs"]).argmax(1, keepdim=True)
            after = target(b["next_obs"]).gather(1, best)[:, 0]
            return q, b["reward"] + 0.95 * after * (1 - b["done"])

    def loss_of(model, b):
        return F.smooth_l1_loss(*values(model, b))

    def sums_of(model, b):
        q, y = values(model, b)
        return {"td_error": ((q - y).abs().sum(), len(q)), "mean_q": (q.sum(), len(q))}

    step = copying(m, target, opt, loss_of, 50)
    return by_cost(m, opt, tl, vl, loss_of, sums_of, step=step)


@sound
def head_on_a_body_held_in_eval():
    """The body is frozen and stays in evaluation mode, its batch norm too; only the head learns."""
    seed()
    m = ConvNet()
    x, y = shapes(320, 9)
    pre = torch.optim.Adam(m.parameters(), 1e-2)
    for i in range(40):
        j = slice(32 * (i % 10), 32 * (i % 10) + 32)
        pre.zero_grad()
        F.cross_entropy(m(x[j]), y[j]).backward()
        pre.step()
    m.zero_grad(set_to_none=True)
    m.f.requires_grad_(False).eval()
    seed(1)
    m.out = nn.Linear(32, 2)

    def data(n, s):
        """The new task: which are of class 2?"""
        x, y = shapes(n, s)
        return x, (y == 2).long()

    tl, vl = loaders(data(320, 1), data(202, 2), 32)
    opt = torch.optim.Adam(m.out.parameters(), 3e-3)
    crit = nn.CrossEntropyLoss()

    def step(b):
        m.train()
        m.f.eval()
        opt.zero_grad()
        loss = crit(m(b[0]), b[1])
        loss.backward()
        opt.step()
        return loss.item()

    frozen = ["f." + name for name, _ in m.f.named_parameters()]
    return by_classes(m, opt, tl, vl, 2, crit, step, declared={"frozen": frozen})


@sound
def dropout_averaged_over_16_passes():
    """Dropout stays on in evaluation, which draws from a fork of the generator."""
    seed()
    tl, vl = loaders(blobs(320, 12, 4, 1, 0.6), blobs(202, 12, 4, 2, 0.6), 32)
    m = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Dropout(0.3), nn.Linear(48, 4))
    opt = torch.optim.Adam(m.parameters(), 3e-3)

    def evaluate():
        hits = nll = n = 0
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(5)
            was = m.training
            m.train()
            for x, y in vl:
                p = torch.stack([m(x).softmax(1) for _ in range(16)]).mean(0)
                hits += (p.argmax(1) == y).sum().item()
                nll += F.nll_loss(p.log(), y, reduction="sum").item()
                n += len(y)
            m.train(was)
        return {"accuracy": hits / n, "nll": nll / n}

    return by_classes(m, opt, tl, vl, 4, evaluate=evaluate)


@sound
def alternating_halves():
    """Even steps move the users only, odd ones the items only, by an optimizer each."""
    seed()
    g = gen(5)
    likes = torch.randn(40, 3, generator=g) @ torch.randn(3, 50, generator=g)
    cells = torch.randperm(2000, generator=g)[:1500]
    user, item = cells // 50, cells % 50
    rating = likes[user, item] + 0.1 * torch.randn(1500, generator=g)
    columns = {"user": user, "item": item, "rating": rating}
    train = {name: column[:1200] for name, column in columns.items()}
    tl, vl = loaders(train, {name: column[1200:] for name, column in columns.items()}, 64)
    m = nn.ModuleDict({"user": nn.Embedding(40, 5), "item": nn.Embedding(50, 5)})
    opts = [torch.optim.Adam(m[side].parameters(), 5e-2) for side in ("user", "item")]
    count = 0

    def told(model, b):
        return (model["user"](b["user"]) * model["item"](b["item"])).sum(-1)

    def loss_of(model, b):
        users, items = ((model[side](b[side]) ** 2).mean() for side in ("user", "item"))
        return F.mse_loss(told(model, b), b["rating"]) + 0.01 * users + 0.01 * items

    def step(b):
        nonlocal count
        m.zero_grad()
        loss = loss_of(m, b)
        loss.backward()
        opts[count % 2].step()
        count += 1
        return loss.item()

    def sums_of(model, b):
        return {"mse": (((told(model, b) - b["rating"]) ** 2).sum(), len(b["user"]))}

    mean = averaged(m, vl, sums_of)

    def evaluate():
        return {"rmse": math.sqrt(mean()["mse"])}

    return by_cost(m, opts, tl, vl, loss_of, None, step=step, evaluate=evaluate)


@sound
def mixup_smoothing_ema():
    """Mixed rows and smooth labels: the training loss stays above that of validation, where an
    average with its own statistics is scored."""
    seed()
    m = ConvNet()
    average = copy.deepcopy(m).requires_grad_(False)
    opt = torch.optim.AdamW(m.parameters(), 3e-3)
    crit = nn.CrossEntropyLoss(label_smoothing=0.1)
    tl, vl = loaders(shapes(480, 1), shapes(202, 2), 32)
    beta = torch.distributions.Beta(0.4, 0.4)

    def step(b):
        x, y = b
        m.train()
        share = beta.sample().item()
        other = torch.randperm(len(x))
        out = m(share * x + (1 - share) * x[other])
        loss = share * crit(out, y) + (1 - share) * crit(out, y[other])
        opt.zero_grad()
        loss.backward()
        opt.step()
        follow(average, m)
        return loss.item()

    more = {"evaluate": rated(average, vl), "declared": {"label_smoothing": 0.1}}
    return by_classes(m, opt, tl, vl, 3, crit, step, **more)


class OfFourClasses:
    """Batches of 8 rows from each of 4 classes; rows may come twice in a pass, or not at all."""

    def __init__(self, y, s):
        self.rows = [torch.where(y == c)[0] for c in range(int(y.max()) + 1)]
        self.g = gen(s)

    def __len__(self):
        return 15

    def of_class(self, c):
        rows = self.rows[c]
        return rows[torch.randint(0, len(rows), (8,), generator=self.g)]

    def __iter__(self):
        for _ in range(len(self)):
            classes = torch.randperm(len(self.rows), generator=self.g)[:4].sort().values
            yield torch.cat([self.of_class(c) for c in classes]).tolist()


@sound
def triplets_of_sorted_batches():
    """A sampler makes batches that are sorted by class, for a loss of the hardest pairs."""
    seed()
    x, y = blobs(480, 12, 6, 1, 1.2)
    m = mlp(12, 32, 8)
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    tl = DataLoader(TensorDataset(x, y), batch_sampler=OfFourClasses(y, 1))
    vl = feed(blobs(202, 12, 6, 2, 1.2), 40, shuffle=False)

    def loss_of(model, b):
        e, y = model(b[0]), b[1]
        d = torch.cdist(e, e)
        same = y[:, None] == y[None]
        near = d.masked_fill(same, float("inf")).min(1).values
        return F.softplus((d * same).max(1).values - near).mean()

    return by_cost(m, opt, tl, vl, loss_of, None, evaluate=nearest(m, (x, y), vl))


@sound
def skipgram_sparse():
    """Gradients are sparse, and most rows of the two tables do not move in a step."""
    seed()
    text = successors(1, 6000, 200, 1)[0]
    order = torch.randperm(11998, generator=gen(2))
    centre = torch.cat([text[:-1], text[1:]])[order]
    context = torch.cat([text[1:], text[:-1]])[order]
    train = {"centre": centre[:9600], "context": context[:9600]}
    tl, vl = loaders(train, {"centre": centre[9600:], "context": context[9600:]}, 64)
    tables = {name: nn.Embedding(200, 16, sparse=True) for name in ("inp", "out")}
    m = nn.ModuleDict(tables)
    nn.init.normal_(m["inp"].weight, std=0.1)
    nn.init.zeros_(m["out"].weight)
    opt = torch.optim.SparseAdam(list(m.parameters()), 1e-2)

    def costs(model, b, g=None):
        drawn = torch.randint(0, 200, (len(b["centre"]), 5), generator=g)
        v = model["inp"](b["centre"])
        near = (v * model["out"](b["context"])).sum(-1)
        far = torch.einsum("bd,bkd->bk", v, model["out"](drawn))
        return -(F.logsigmoid(near) + F.logsigmoid(-far).sum(1))

    def loss_of(model, b):
        return costs(model, b).mean()

    def evaluate():
        g = gen(3)

        def sums_of(model, b):
            return {"sgns_loss": (costs(model, b, g).sum(), len(b["centre"]))}

        return averaged(m, vl, sums_of)()

    return by_cost(m, opt, tl, vl, loss_of, None, evaluate=evaluate)
