"""Faults of models that choose: actions, ends, negatives, lists, nodes of a graph, teachers."""

import torch
from torch import nn
from torch.nn import functional as F

from tests.debug.faulty.eighteenth.kit import (
    Columns,
    averaged,
    begun,
    by_cost,
    by_pairs,
    evaluating,
    loader,
    loaders,
    mlp,
    plain_step,
    set_up,
)
from tests.debug.faulty.kit import pair


@pair("wrong-formula")
def reinforce_resample(bug):
    """The log-probability is that of a second draw, the reward that of the first. After 400 steps
    mean_reward is 0.265 instead of 0.98."""
    g = begun(40)
    w = torch.randn(6, 4, generator=g)
    train, held = ((torch.randn(n, 6, generator=g),) for n in (640, 200))
    tl, vl = loaders(train, held, 32)
    m = mlp(6, 32, 4)
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def reward(states, actions):
        return ((states @ w).argmax(1) == actions).float()

    def step(b):
        m.train()
        states = b[0]
        d = torch.distributions.Categorical(logits=m(states))
        actions = d.sample()
        r = reward(states, actions)
        log_prob = d.log_prob(d.sample() if bug else actions)
        opt.zero_grad()
        (-(log_prob * (r - r.mean())).mean()).backward()
        opt.step()
        return -r.mean().item()

    def sums_of(model, b):
        r = reward(b[0], model(b[0]).argmax(1))
        return {"mean_reward": (r.sum(), len(r))}

    return set_up(m, opt, tl, step, val_loader=vl, evaluate=averaged(m, vl, sums_of))


class QNet(nn.Module):
    """Values of two actions in six places, and the same of a network that follows."""

    def __init__(self):
        super().__init__()
        self.online = mlp(6, 32, 2)
        self.target = mlp(6, 32, 2)
        self.target.load_state_dict(self.online.state_dict())
        self.target.requires_grad_(False)

    def forward(self, places):
        return self.online(F.one_hot(places, 6).float())


def q_learning(number, no_done, sync_every=0):
    """Walks along six places, paid for at the end. The target network follows slowly, or is copied
    whole every so many steps."""
    g = begun(number)
    gamma = 0.95

    def data(n):
        place = torch.randint(6, (n,), generator=g)
        action = torch.randint(2, (n,), generator=g)
        after = (place + 2 * action - 1).clamp(min=0)
        done = (after >= 6).float()
        return Columns(s=place, a=action, r=done, s2=after.clamp(max=5), done=done)

    tl, vl = loaders(data(800), data(200), 32)
    m = QNet()
    opt = torch.optim.Adam(m.online.parameters(), 3e-3)
    steps = 0

    def loss_of(model, b):
        with torch.no_grad():
            later = model.target(F.one_hot(b["s2"], 6).float()).max(1).values
            goes_on = 1 if no_done else 1 - b["done"]
            target = b["r"] + gamma * later * goes_on
        return F.smooth_l1_loss(model(b["s"]).gather(1, b["a"][:, None]).squeeze(1), target)

    learn = plain_step(m, opt, loss_of)

    def step(b):
        nonlocal steps
        loss = learn(b)
        steps += 1
        if not sync_every:
            with torch.no_grad():
                pairs = zip(m.target.parameters(), m.online.parameters(), strict=True)
                for late, own in pairs:
                    late.lerp_(own, 0.05)
        elif steps % sync_every == 0:
            m.target.load_state_dict(m.online.state_dict())
        return loss

    def evaluate():
        with evaluating(m):
            values = m(torch.arange(6)).max(1).values
        true = gamma ** torch.arange(5, -1, -1).float()
        return {
            "max_q": values.max().item(),
            "q_error": (values - true).abs().mean().item(),
            "largest_possible_return": 1.0,
        }

    return by_cost(m, opt, tl, vl, loss_of, None, step=step, evaluate=evaluate)


@pair("terminal-bootstrapped")
def dqn_terminal(bug):
    """The target goes on past the end of an episode. After 400 steps max_q is 11.6 instead of 1,
    the largest return that there is."""
    return q_learning(41, bug)


@pair("same-draws")
def bpr_same_negatives(bug):
    """The seed is set again in each step: the same 16 items are the negatives for ever. After 400
    steps recall_at_10 is 0.304 instead of 0.662."""
    g = begun(42)
    users, items = 60, 160
    likes = torch.randn(users, 4, generator=g) @ torch.randn(4, items, generator=g)
    best = likes.topk(16, 1).indices
    best = best.gather(1, torch.rand(users, 16, generator=g).argsort(1))
    seen, held = best[:, :12], best[:, 12:]
    user = torch.arange(users)[:, None].expand(users, 12)
    known = torch.zeros(users, items, dtype=torch.bool)
    known[torch.arange(users)[:, None], seen] = True

    class Factors(nn.Module):
        def __init__(self):
            super().__init__()
            self.u = nn.Embedding(users, 12)
            self.i = nn.Embedding(items, 12)
            nn.init.normal_(self.u.weight, std=0.1)
            nn.init.normal_(self.i.weight, std=0.1)

        def forward(self, u, i):
            return (self.u(u) * self.i(i)).sum(-1)

    tl = loader((user.reshape(-1), seen.reshape(-1)), 16, drop_last=True)
    vl = loader((torch.arange(users), held), 16, shuffle=False)
    m = Factors()

    def loss_of(model, b):
        u, i = b
        if bug:
            torch.manual_seed(42)
        j = torch.randint(items, i.shape)
        unseen = ~known[u, j]
        gap = model(u, i) - model(u, j)
        return -(F.logsigmoid(gap) * unseen).sum() / unseen.sum().clamp(min=1)

    def sums_of(model, b):
        u, wanted = b
        scores = (model.u(u) @ model.i.weight.T).masked_fill(known[u], -1e9)
        top = scores.topk(10, 1).indices
        return {"recall_at_10": ((top[:, :, None] == wanted[:, None]).any(1).sum(), wanted.numel())}

    return by_cost(m, torch.optim.Adam(m.parameters(), 1e-2), tl, vl, loss_of, sums_of)


@pair("rows-mixed")
def listwise_wrong_dim(bug):
    """The softmax of a list runs over the queries instead of over the documents of one. After 400
    steps ndcg_at_5 is 0.662 instead of 0.968."""
    g = begun(43)

    def data(n, documents=8):
        def drawn():
            return torch.randn(n, documents, generator=g)

        query = 1.5 * torch.randn(n, 1, generator=g)
        own = drawn()
        signs = [2 * query - own + 0.4 * drawn(), own + 1.5 * drawn(), drawn()]
        return torch.stack(signs, -1), query + own

    tl, vl = loaders(data(320), data(90), vbs=32)
    m = nn.Sequential(mlp(3, 24, 1), nn.Flatten(1))
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    dim = 0 if bug else 1
    discount = 1 / torch.log2(torch.arange(5) + 2.0)

    def listnet(scores, relevance):
        return -(relevance.softmax(dim) * scores.log_softmax(dim)).sum(dim).mean()

    def sums_of(model, b):
        x, relevance = b
        gain = relevance - relevance.min(1, keepdim=True).values

        def total(scores):
            order = scores.argsort(1, descending=True)[:, :5]
            return (gain.gather(1, order) * discount).sum(1)

        return {"ndcg_at_5": ((total(model(x)) / total(relevance)).sum(), len(x))}

    return by_pairs(m, opt, tl, vl, listnet, evaluate=averaged(m, vl, sums_of))


class GCN(nn.Module):
    def __init__(self, d, k):
        super().__init__()
        self.a = nn.Linear(d, 32)
        self.b = nn.Linear(32, k)

    def forward(self, x, adj):
        return self.b(adj @ F.relu(self.a(adj @ x)))


def one_graph(number, all_nodes):
    """90 nodes of three kinds, half of them to train on; nodes of a kind are linked more often."""
    g = begun(number)
    n, k = 90, 3
    y = torch.randint(k, (n,), generator=g)
    linked = torch.where(y[:, None] == y[None], 0.06, 0.03)
    edges = (torch.rand(n, n, generator=g) < linked).float().triu(1)
    adj = edges + edges.T + torch.eye(n)
    scale = adj.sum(1).rsqrt()
    adj = scale[:, None] * adj * scale
    x = 0.35 * torch.eye(k)[y] @ torch.randn(k, 40, generator=g) + torch.randn(n, 40, generator=g)
    own = torch.zeros(n, dtype=torch.bool)
    own[torch.randperm(n, generator=g)[:45]] = True
    graph = {"x": x, "adj": adj, "y": y, "train_mask": own, "val_mask": ~own}
    m = GCN(40, k)
    opt = torch.optim.Adam(m.parameters(), 1e-2, weight_decay=5e-4)

    def loss_of(model, b):
        out, labels = model(b["x"], b["adj"]), b["y"]
        if not all_nodes:
            out, labels = out[b["train_mask"]], labels[b["train_mask"]]
        return F.cross_entropy(out, labels)

    def evaluate():
        with evaluating(m):
            hits = (m(x, adj).argmax(1) == y).float()
        return {"train_acc": hits[own].mean().item(), "val_acc": hits[~own].mean().item()}

    return by_cost(m, opt, [graph], [graph], loss_of, None, evaluate=evaluate, num_classes=k)


@pair("trains-on-validation")
def gcn_mask_missing(bug):
    """The mask of the training nodes is not applied to the loss. After 400 steps val_acc is 1
    instead of 0.556."""
    return one_graph(44, bug)


@pair("missing-log-softmax")
def distill_kl_prob(bug):
    """kl_div gets the student's probabilities instead of their logarithms. After 400 steps
    kl_to_teacher is 1.84 instead of 0.061."""
    g = begun(45)
    teacher = mlp(8, 32, 5)
    teacher.eval().requires_grad_(False)
    with torch.no_grad():
        teacher[-1].weight.mul_(8)
    tl, vl = loaders(*(Columns(x=torch.randn(n, 8, generator=g)) for n in (512, 150)))
    m = mlp(8, 24, 5)
    T = 2.0

    def loss_of(model, b):
        out, soft = model(b["x"]) / T, (teacher(b["x"]) / T).softmax(1)
        said = out.softmax(1) if bug else out.log_softmax(1)
        return F.kl_div(said, soft, reduction="batchmean") * T * T

    def sums_of(model, b):
        out, true = model(b["x"]), teacher(b["x"])
        n = len(out)
        return {
            "agreement": ((out.argmax(1) == true.argmax(1)).sum(), n),
            "kl_to_teacher": (F.kl_div(out.log_softmax(1), true.softmax(1), reduction="sum"), n),
        }

    opt = torch.optim.Adam(m.parameters(), 3e-3)
    return by_cost(m, opt, tl, vl, loss_of, sums_of, num_classes=5)
