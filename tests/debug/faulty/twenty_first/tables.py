"""Faults of tables: ranked items, nodes of a graph, policies and their values."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from tests.debug.faulty.kit import pair
from tests.debug.faulty.twenty_first.kit import (
    by_cost,
    evaluating,
    feed,
    gen,
    mean_eval,
    mlp,
    plain_step,
    seed,
    set_up,
)


class Factors(nn.Module):
    def __init__(self, users, items, d=8):
        super().__init__()
        self.u = nn.Embedding(users, d)
        self.i = nn.Embedding(items, d)
        nn.init.normal_(self.u.weight, std=0.1)
        nn.init.normal_(self.i.weight, std=0.1)

    def forward(self, u, i):
        return (self.u(u) * self.i(i)).sum(-1)


class Likes(Dataset):
    """What a user likes beside something that is not known to be liked."""

    def __init__(self, liked, known):
        self.pos = liked.nonzero()
        self.known = known
        self.g = gen(9)

    def __len__(self):
        return len(self.pos)

    def __getitem__(self, k):
        user, item = self.pos[k].tolist()
        while True:
            other = int(torch.randint(0, self.known.shape[1], (1,), generator=self.g))
            if not self.known[user, other]:
                return {"user": user, "pos": item, "neg": other}


@pair("loss-negated")
def bpr_subtracts_the_wrong_way(bug):
    """The loss of a pair is -logsigmoid(neg - pos): it falls while the ranking turns over. After
    300 steps auc is 0.096 instead of 0.92."""
    seed(7)
    users, items = 40, 60
    g = gen(3)
    tastes = torch.randn(users, 4, generator=g) @ torch.randn(4, items, generator=g)
    liked = tastes > 1.0
    held = liked & (torch.rand(users, items, generator=g) < 0.2)
    tl = feed(Likes(liked & ~held, liked & ~held), 64)
    likes = Likes(held, liked)
    vl = DataLoader([likes[k] for k in range(len(likes))], 64)
    m = Factors(users, items)
    opt = torch.optim.Adam(m.parameters(), 1e-2, weight_decay=1e-4)

    def loss_of(model, b):
        pos, neg = model(b["user"], b["pos"]), model(b["user"], b["neg"])
        return -F.logsigmoid(neg - pos if bug else pos - neg).mean()

    def hits(model, b):
        return model(b["user"], b["pos"]) > model(b["user"], b["neg"])

    evaluate = mean_eval(m, vl, {"auc": hits})
    return by_cost(m, opt, tl, vl, loss_of, None, evaluate=evaluate)


class GCN(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.a = nn.Linear(d, 32)
        self.b = nn.Linear(32, 3)

    def forward(self, x, adj):
        return self.b(adj @ F.relu(self.a(adj @ x)))


@pair("trains-on-validation")
def gcn_train_mask_forgotten(bug):
    """The loss runs over all nodes of a graph, those of validation among them. After 300 steps
    val_acc is 1 instead of 0.7."""
    seed(8)
    g = gen(4)
    n = 120
    y = torch.randint(0, 3, (n,), generator=g)
    x = torch.randn(n, 32, generator=g) + F.one_hot(y, 32).float()
    is_same = y[:, None] == y[None]
    edges = torch.rand(n, n, generator=g) < torch.where(is_same, 0.05, 0.01)
    edges = edges.float().triu(1)
    edges = edges + edges.T + torch.eye(n)
    scale = edges.sum(1).rsqrt()
    adj = scale[:, None] * edges * scale[None]
    train_mask = torch.rand(n, generator=g) < 0.5
    data = {"x": x, "adj": adj, "y": y, "train_mask": train_mask, "val_mask": ~train_mask}
    m = GCN()
    opt = torch.optim.Adam(m.parameters(), 1e-2, weight_decay=5e-3)

    def loss_of(model, b):
        out = model(b["x"], b["adj"])
        if bug:
            return F.cross_entropy(out, b["y"])
        return F.cross_entropy(out[b["train_mask"]], b["y"][b["train_mask"]])

    def evaluate():
        with evaluating(m):
            hits = (m(x, adj).argmax(1) == y).float()
        trained, held = hits[train_mask].mean(), hits[~train_mask].mean()
        return {"train_acc": trained.item(), "val_acc": held.item()}

    return by_cost(m, opt, [data], [data], loss_of, None, evaluate=evaluate, num_classes=3)


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = mlp(2, 24, 2, act=nn.Tanh)
        self.critic = mlp(2, 24, 1, act=nn.Tanh)

    def forward(self, s):
        return self.actor(s), self.critic(s).squeeze(-1)


def rollout(m, places, g, T=6):
    """Walks on a line, half a step left or right at a time; the reward is -|place|."""
    log_probs, values, rewards = [], [], []
    for t in range(T):
        logits, value = m(torch.stack([places, torch.full_like(places, (T - t) / T)], 1))
        p = logits.softmax(1)[:, 1]
        a = (torch.rand(len(places), generator=g) < p.detach()).float()
        taken = F.log_softmax(logits, 1).gather(1, a.long()[:, None]).squeeze(1)
        log_probs.append(taken)
        values.append(value)
        places = places + (a - 0.5)
        rewards.append(-places.abs())
    total, returns = torch.zeros_like(places), []
    for reward in reversed(rewards):
        total = reward + 0.99 * total
        returns.insert(0, total)
    return tuple(torch.stack(part) for part in (log_probs, values, returns, rewards))


@pair("optimizer-stale-params")
def critic_not_in_optimizer(bug):
    """The optimizer holds the actor alone, and the critic never learns. After 300 steps
    value_explained is -2.72 instead of 0.724."""
    seed(17)
    starts = torch.rand(512, generator=gen(1)) * 4 - 2
    tl = feed((starts,), 16)
    m = ActorCritic()
    opt = torch.optim.Adam((m.actor if bug else m).parameters(), 5e-3)
    g = gen(3)

    def loss_of(model, batch):
        log_probs, values, returns, _ = rollout(model, batch[0], g)
        policy = -(log_probs * (returns - values.detach())).mean()
        return policy + 0.5 * F.mse_loss(values, returns)

    def evaluate():
        with evaluating(m):
            _, values, returns, rewards = rollout(m, torch.linspace(-2, 2, 101), gen(9))
        explained = 1 - ((returns - values) ** 2).mean() / returns.var()
        return {
            "mean_return": rewards.sum(0).mean().item(),
            "value_explained": explained.item(),
        }

    step = plain_step(m, opt, loss_of)
    return set_up(m, opt, tl, step, evaluate=evaluate, loss_of=loss_of)
