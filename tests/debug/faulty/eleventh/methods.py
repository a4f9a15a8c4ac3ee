"""Faults of methods: a generator's optimizer, a policy's draw, a shared table, a graph's nodes."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from tests.debug.faulty.eighth.kit import gen
from tests.debug.faulty.eleventh.kit import Columns, deep, mean_cost, rows
from tests.debug.faulty.kit import pair
from tests.debug.faulty.sixth.kit import of_pairs, setup, stepper


@pair("optimizer-holds-another")
def gan_g_opt_has_d(bug):
    """The generator's optimizer holds the critic, too, and trains it to be fooled: what is made
    ends 26 away from what is real, and not 0.7."""
    spread, centre = torch.tensor([0.3, 0.6]), torch.tensor([2.0, -1.0])
    real = torch.randn(512, 2, generator=gen(1)) * spread + centre
    loader = rows(real)
    model = nn.ModuleDict({"g": deep(4, 2), "d": deep(2, 1)})
    make, critic = model["g"], model["d"]
    words = {"lr": 1e-3, "betas": (0.5, 0.999)}
    opt_d = torch.optim.Adam(critic.parameters(), **words)
    opt_g = torch.optim.Adam((model if bug else make).parameters(), **words)
    cost = nn.BCEWithLogitsLoss()

    def step(batch):
        model.train()
        x = batch[0]
        ones, zeros = torch.ones(len(x), 1), torch.zeros(len(x), 1)
        fake = make(torch.randn(len(x), 4))
        loss_d = cost(critic(x), ones) + cost(critic(fake.detach()), zeros)
        opt_d.zero_grad()
        loss_d.backward()
        opt_d.step()
        loss_g = cost(critic(fake), ones)
        opt_g.zero_grad()
        loss_g.backward()
        opt_g.step()
        return loss_d.item() + loss_g.item()

    def evaluate():
        model.eval()
        with torch.no_grad():
            made = make(torch.randn(1000, 4, generator=gen(9)))
        return {
            "mean_gap": (made.mean(0) - real.mean(0)).norm().item(),
            "std_gap": (made.std(0) - real.std(0)).norm().item(),
        }

    return setup(model, [opt_d, opt_g], loader, step=step, evaluate=evaluate)


@pair("wrong-formula")
def reinforce_resampled_action(bug):
    """The reward is that of one draw, and the log-probability that of another: 37 % are won
    instead of 92 %."""
    w = torch.randn(6, 4, generator=gen(3))

    def make(n, seed):
        x = torch.randn(n, 6, generator=gen(seed))
        return Columns(obs=x, reward=F.one_hot((x @ w).argmax(1), 4).float())

    loader = DataLoader(make(512, 1), 64, shuffle=True, generator=gen(4))
    held = DataLoader(make(256, 2), 256)
    model = deep(6, 4)
    opt = torch.optim.Adam(model.parameters(), 5e-3)

    def loss_of(model, batch):
        law = torch.distributions.Categorical(logits=model(batch["obs"]))
        action = law.sample()
        won = batch["reward"].gather(1, action[:, None])[:, 0]
        log_prob = law.log_prob(law.sample() if bug else action)
        return -(log_prob * (won - won.mean())).mean()

    def evaluate():
        model.eval()
        batch = next(iter(held))
        with torch.no_grad():
            best = model(batch["obs"]).argmax(1, True)
        return {"greedy_reward": batch["reward"].gather(1, best).mean().item()}

    step = stepper(model, opt, loss_of)
    return setup(model, opt, loader, held, step=step, loss_of=loss_of, evaluate=evaluate)


class Machine(nn.Module):
    """A factorisation machine over users, items and kinds, whose numbers share one table."""

    def __init__(self, sizes, moves_numbers):
        super().__init__()
        self.factors = nn.Embedding(sum(sizes), 6)
        self.weights = nn.Embedding(sum(sizes), 1)
        self.bias = nn.Parameter(torch.zeros(1))
        nn.init.normal_(self.factors.weight, std=0.1)
        nn.init.zeros_(self.weights.weight)
        self.register_buffer("offsets", torch.tensor([0, *sizes[:-1]]).cumsum(0))
        self.moves_numbers = moves_numbers

    def forward(self, ids):
        if self.moves_numbers:
            ids = ids + self.offsets
        v = self.factors(ids)
        crossed = 0.5 * (v.sum(1) ** 2 - (v**2).sum(1)).sum(1)
        return self.bias + self.weights(ids).sum((1, 2)) + crossed


@pair("rows-mixed")
def fm_offset_forgotten(bug):
    """Users, items and kinds share rows of a table that has room for all of them. An error of 1.1
    instead of 0.45."""
    sizes = [50, 40, 10]
    g = gen(2)
    of_users, of_items = torch.randn(50, generator=g), torch.randn(40, generator=g)
    users = torch.randn(50, 3, generator=g) * 0.5
    items = torch.randn(40, 3, generator=g) * 0.5

    def make(n, seed):
        g = gen(seed)
        ids = torch.stack([torch.randint(k, (n,), generator=g) for k in sizes], 1)
        user, item = ids[:, 0], ids[:, 1]
        liked = of_users[user] + of_items[item] + (users[user] * items[item]).sum(1)
        return ids, liked + 0.2 * torch.randn(n, generator=g)

    model = Machine(sizes, moves_numbers=not bug)
    opt = torch.optim.Adam(model.parameters(), 1e-2, weight_decay=1e-5)
    loader, held = rows(*make(1500, 1), batch=64), rows(*make(400, 2), shuffle=False)
    loss_fn = nn.MSELoss()
    loss_of = of_pairs(loss_fn)

    def evaluate():
        return {"val_rmse": mean_cost(model, held, loss_of) ** 0.5}

    step = stepper(model, opt, loss_of)
    return setup(model, opt, loader, held, step=step, loss_fn=loss_fn, evaluate=evaluate)


class Graph(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(24, 48), nn.Linear(48, 3)

    def forward(self, x, adj):
        return self.second(adj @ F.relu(self.first(adj @ x)))


@pair("trains-on-validation")
def gcn_loss_all_nodes(bug):
    """The loss is of all nodes, those that are kept for validation among them: all of these are
    right, where it should be 56 %."""
    n, g = 150, gen(5)
    y = torch.randint(3, (n,), generator=g)
    x = F.one_hot(y, 3).float().repeat(1, 8) * 0.5 + torch.randn(n, 24, generator=g)
    likely = torch.where(y[:, None] == y[None], 0.035, 0.02)
    adj = (torch.rand(n, n, generator=g) < likely).float()
    adj = (((adj + adj.T) > 0).float() + torch.eye(n)).clamp(max=1)
    degree = adj.sum(1).rsqrt()
    adj = degree[:, None] * adj * degree[None]
    mask = torch.rand(n, generator=g) < 0.4
    model = Graph()
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    loader = [{"x": x, "adj": adj, "y": y, "train_mask": mask, "val_mask": ~mask}]

    def loss_of(model, batch):
        out = model(batch["x"], batch["adj"])
        if bug:
            return F.cross_entropy(out, batch["y"])
        return F.cross_entropy(out[batch["train_mask"]], batch["y"][batch["train_mask"]])

    def evaluate():
        model.eval()
        with torch.no_grad():
            hits = model(x, adj).argmax(1) == y
        return {
            "train_acc": hits[mask].float().mean().item(),
            "val_acc": hits[~mask].float().mean().item(),
        }

    step = stepper(model, opt, loss_of)
    return setup(model, opt, loader, step=step, loss_of=loss_of, evaluate=evaluate, num_classes=3)
