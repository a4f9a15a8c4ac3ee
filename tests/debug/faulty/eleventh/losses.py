"""Faults of losses: labels that compete, shapes, scales, signs, sides, and targets."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from tests.debug.faulty.eighth.kit import gen
from tests.debug.faulty.eleventh.kit import (
    Columns,
    deep,
    groups,
    mean_cost,
    of_classes,
    rows,
    share_right,
)
from tests.debug.faulty.kit import pair
from tests.debug.faulty.sixth.kit import of_pairs, setup, stepper


@pair("classes-compete")
def multilabel_ce(bug):
    """Rows of several labels get a cross-entropy of one: labels compete, and no threshold tells
    which hold. An F1 of 0.83 instead of 0.95."""
    w = torch.randn(10, 6, generator=gen(8))

    def make(n, seed):
        x = torch.randn(n, 10, generator=gen(seed))
        return x, (x @ w > 1.0).float()

    loader, held = rows(*make(512, 1)), rows(*make(192, 2), shuffle=False)
    model = deep(10, 6)
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    loss_fn = nn.CrossEntropyLoss() if bug else nn.BCEWithLogitsLoss()

    def evaluate():
        model.eval()
        x, y = held.dataset.tensors
        with torch.no_grad():
            p = (torch.sigmoid(model(x)) > 0.5).float()
        return {
            "micro_f1": (2 * (p * y).sum() / (p.sum() + y.sum())).item(),
            "label_acc": (p == y).float().mean().item(),
        }

    step = stepper(model, opt, of_pairs(loss_fn))
    return setup(model, opt, loader, held, step=step, loss_fn=loss_fn, evaluate=evaluate)


@pair("broadcast-loss")
def regress_broadcast(bug):
    """Outputs [B, 1] meet targets [B]: each is pulled to the mean. 3 % are explained instead of
    97 %."""

    def make(n, seed):
        x = torch.randn(n, 5, generator=gen(seed))
        return x, x[:, 0] * 2 - x[:, 1] + torch.sin(2 * x[:, 2])

    loader, held = rows(*make(512, 1)), rows(*make(192, 2), shuffle=False)
    model = deep(5, 1)
    opt = torch.optim.Adam(model.parameters(), 3e-3)

    def loss_fn(out, y):
        return F.mse_loss(out, y) if bug else F.mse_loss(out.squeeze(1), y)

    def evaluate():
        x, y = held.dataset.tensors
        model.eval()
        with torch.no_grad():
            error = ((model(x)[:, 0] - y) ** 2).mean()
        return {"r2": (1 - error / y.var()).item()}

    step = stepper(model, opt, of_pairs(loss_fn))
    return setup(model, opt, loader, held, step=step, loss_fn=loss_fn, evaluate=evaluate)


class Variational(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))
        self.decode = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64))

    def forward(self, x):
        mu, log_var = self.encode(x).chunk(2, -1)
        z = mu + torch.randn_like(mu) * (log_var / 2).exp() if self.training else mu
        return self.decode(z), mu, log_var


def squares(n, seed):
    g = gen(seed)
    x = torch.zeros(n, 8, 8)
    for i in range(n):
        r, c = torch.randint(0, 6, (2,), generator=g).tolist()
        x[i, r : r + 3, c : c + 3] = 1
    return x.flatten(1)


@pair("wrong-formula")
def vae_kl_sum_recon_mean(bug):
    """A divergence is summed over all rows and latents, and the error is a mean over pixels: the
    latents collapse to a spread of 0.0003, and not 1.3."""
    model = Variational()
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    loader, held = rows(squares(384, 1)), rows(squares(96, 2), shuffle=False)

    def loss_of(model, batch):
        x = batch[0]
        out, mu, log_var = model(x)
        kl = -0.5 * (1 + log_var - mu**2 - log_var.exp()).sum()
        if bug:
            return F.binary_cross_entropy_with_logits(out, x) + kl
        return (F.binary_cross_entropy_with_logits(out, x, reduction="sum") + kl) / len(x)

    def evaluate():
        model.eval()
        x = held.dataset.tensors[0]
        with torch.no_grad():
            out, mu, _ = model(x)
        return {
            "recon_bce": F.binary_cross_entropy_with_logits(out, x).item(),
            "latent_std": mu.std(0).mean().item(),
        }

    step = stepper(model, opt, loss_of)
    return setup(model, opt, loader, held, step=step, loss_of=loss_of, evaluate=evaluate)


def couples(n, seed, no):
    """Two rows and whether they are of one group; half of them are. `no` stands for: they are
    not."""
    x, y = groups(2 * n, k=5, seed=seed, noise=1.5)
    a, groups_a, b, groups_b = x[:n], y[:n], x[n:].clone(), y[n:].clone()
    for i in range(n // 2):
        alike = (groups_a == groups_a[i]).nonzero()[:, 0]
        b[i], groups_b[i] = x[alike[(i * 7) % len(alike)]], groups_a[i]
    return Columns(a=a, b=b, same=torch.where(groups_a == groups_b, 1, no))


@pair("wrong-targets")
def cosine_embedding_zero_labels(bug):
    """A loss of pairs that wants 1 and -1 gets 1 and 0: what differs costs nothing, and all rows
    end in one place, with a cosine of 1.0 and not 0.04 between those that differ."""
    no = 0 if bug else -1
    loader = DataLoader(couples(384, 1, no), 32, shuffle=True, generator=gen(4))
    held = DataLoader(couples(128, 2, no), 128)
    model = deep(8, 16)
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    criterion = nn.CosineEmbeddingLoss(margin=0.2)

    def loss_of(model, batch):
        return criterion(model(batch["a"]), model(batch["b"]), batch["same"])

    def evaluate():
        model.eval()
        batch = next(iter(held))
        with torch.no_grad():
            cosines = F.cosine_similarity(model(batch["a"]), model(batch["b"]))
        yes, others = cosines[batch["same"] == 1], cosines[batch["same"] != 1]
        return {
            "auc": (yes[:, None] > others[None]).float().mean().item(),
            "mean_sim_diff_pairs": others.mean().item(),
        }

    step = stepper(model, opt, loss_of)
    return setup(model, opt, loader, held, step=step, loss_of=loss_of, evaluate=evaluate)


@pair("loss-negated")
def margin_rank_swapped(bug):
    """What is not relevant is ranked above what is. The gain that is reached falls from 0.82 to
    0.62, instead of rising to 0.98."""
    w = torch.randn(10, generator=gen(3))

    def relevance(x):
        return x @ w + torch.sin(3 * x[..., 0])

    def make(n, seed):
        g = gen(seed)
        a, b = torch.randn(n, 10, generator=g), torch.randn(n, 10, generator=g)
        first = (relevance(a) > relevance(b))[:, None]
        return Columns(pos=torch.where(first, a, b), neg=torch.where(first, b, a))

    loader = DataLoader(make(512, 1), 32, shuffle=True, generator=gen(4))
    lists = torch.randn(64, 10, 10, generator=gen(8))
    held = DataLoader(Columns(docs=lists, relevance=relevance(lists)), 64)
    model = deep(10, 1)
    opt = torch.optim.Adam(model.parameters(), 3e-3)

    def loss_of(model, batch):
        yes, no = model(batch["pos"])[:, 0], model(batch["neg"])[:, 0]
        higher, lower = (no, yes) if bug else (yes, no)
        return F.margin_ranking_loss(higher, lower, torch.ones_like(yes), margin=1.0)

    def evaluate():
        model.eval()
        batch = next(iter(held))
        with torch.no_grad():
            scores = model(batch["docs"])[..., 0]
        gain = batch["relevance"].argsort(1).argsort(1).float()
        discount = 1 / torch.log2(torch.arange(10) + 2.0)
        reached = (gain.gather(1, scores.argsort(1, True)) * discount).sum(1)
        best = (gain.sort(1, True)[0] * discount).sum(1)
        return {"ndcg": (reached / best).mean().item()}

    step = stepper(model, opt, loss_of)
    return setup(model, opt, loader, held, step=step, loss_of=loss_of, evaluate=evaluate)


@pair("missing-log-softmax")
def distill_kl_no_log(bug):
    """kl_div gets probabilities in place of their logarithms: the loss is no divergence, and what
    is not sure costs 2.4 instead of 1.1."""
    w = torch.randn(8, 4, generator=gen(1)) * 0.6
    teacher = nn.Linear(8, 4, bias=False)
    teacher.weight.data.copy_(w.T)
    teacher.eval().requires_grad_(False)
    x = torch.randn(512, 8, generator=gen(2))
    held_x = torch.randn(192, 8, generator=gen(3))

    def drawn(x, seed):
        return torch.multinomial(teacher(x).softmax(1), 1, generator=gen(seed))[:, 0]

    loader, held = rows(x, drawn(x, 5)), rows(held_x, drawn(held_x, 6), shuffle=False)
    model = deep(8, 4)
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    heat = 2.0

    def loss_of(model, batch):
        x, y = batch
        out = model(x)
        with torch.no_grad():
            goal = F.softmax(teacher(x) / heat, 1)
        mine = F.softmax(out / heat, 1) if bug else F.log_softmax(out / heat, 1)
        away = F.kl_div(mine, goal, reduction="batchmean") * heat * heat
        return 0.9 * away + 0.1 * F.cross_entropy(out, y)

    def evaluate():
        return {
            "val_acc": share_right(model, held),
            "val_nll": mean_cost(model, held, of_classes),
        }

    step = stepper(model, opt, loss_of)
    return setup(
        model, opt, loader, held, step=step, loss_of=loss_of, evaluate=evaluate, num_classes=4
    )


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = deep(4, 2, 64)

    def forward(self, x, t):
        share = t[:, None] / 40.0
        return self.net(torch.cat([x, share, torch.sin(6 * share)], 1))


@pair("targets-unrelated")
def diffusion_new_noise(bug):
    """The noise that is asked for is drawn anew, and is not what was added: there is nothing to
    learn, and the error stays above 1 instead of 0.5."""
    g = gen(1)
    angle = torch.rand(512, generator=g) * 6.283
    ring = torch.stack([angle.cos(), angle.sin()], 1) + 0.05 * torch.randn(512, 2, generator=g)
    loader, held = rows(ring[:400]), rows(ring[400:], shuffle=False)
    kept = torch.cumprod(1 - torch.linspace(1e-3, 0.15, 40), 0)
    model = Denoiser()
    opt = torch.optim.Adam(model.parameters(), 3e-3)

    def loss_of(model, batch):
        x = batch[0]
        t = torch.randint(40, (len(x),))
        share = kept[t][:, None]
        noise = torch.randn_like(x)
        out = model(share.sqrt() * x + (1 - share).sqrt() * noise, t)
        return F.mse_loss(out, torch.randn_like(x) if bug else noise)

    def evaluate():
        return {"val_eps_mse": mean_cost(model, held, loss_of)}

    step = stepper(model, opt, loss_of)
    return setup(model, opt, loader, held, step=step, loss_of=loss_of, evaluate=evaluate)


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(10, 32), nn.ReLU())
        self.kind, self.price = nn.Linear(32, 3), nn.Linear(32, 1)

    def forward(self, x):
        h = self.trunk(x)
        return {"kind": self.kind(h), "price": self.price(h)[:, 0]}


@pair("frozen-params")
def multitask_lost_loss(bug):
    """The second loss replaces the first, = in place of +=: a head is never trained, and 31 % of
    its answers are right instead of 81 %."""
    w = torch.randn(10, generator=gen(3))

    def make(n, seed):
        x = torch.randn(n, 10, generator=gen(seed))
        kind = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
        return Columns(x=x, kind=kind, price=(x @ w) / 3)

    model = TwoHeads()
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    loader = DataLoader(make(512, 1), 32, shuffle=True, generator=gen(4))
    held = DataLoader(make(192, 2), 64)

    def loss_of(model, batch):
        out = model(batch["x"])
        loss = F.cross_entropy(out["kind"], batch["kind"])
        if bug:
            loss = F.mse_loss(out["price"], batch["price"])
        else:
            loss = loss + F.mse_loss(out["price"], batch["price"])
        return loss

    def evaluate():
        model.eval()
        hits, errors = [], []
        with torch.no_grad():
            for batch in held:
                out = model(batch["x"])
                hits.append(out["kind"].argmax(1) == batch["kind"])
                errors.append((out["price"] - batch["price"]) ** 2)
        return {
            "kind_acc": torch.cat(hits).float().mean().item(),
            "price_mse": torch.cat(errors).mean().item(),
        }

    step = stepper(model, opt, loss_of)
    return setup(model, opt, loader, held, step=step, loss_of=loss_of, evaluate=evaluate)
