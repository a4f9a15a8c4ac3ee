"""Faults of models that make, hide or compare: adversaries, diffusion, flows, views, teachers."""

import torch
from torch import nn
from torch.nn import functional as F

from tests.debug.faulty.kit import pair
from tests.debug.faulty.sixteenth.kit import same_draws
from tests.debug.faulty.twenty_first.kit import nuisance
from tests.debug.faulty.twenty_seventh.kit import (
    apart,
    averaged,
    blobs,
    by_cost,
    evaluating,
    feed,
    fit,
    gen,
    loaders,
    mlp,
    moons,
    right,
    seed,
    set_up,
    sheet_of,
)


@pair("loss-negated", "wrong-targets", "wrong-formula")
def generator_paid_for_being_found_out(bug):
    """The generator's loss has the label of made points, 0, where it wants 1: it moves to where it
    is found out best. After 150 steps its points' energy distance from real ones is 15.3 instead of
    0.75."""
    seed(31)
    away = torch.tensor([2.0, -1.5])
    tl = feed((moons(512, 311) + away,), 64)
    held = moons(300, 312) + away
    m = nn.ModuleDict({"maker": mlp(4, 48, 2), "judge": mlp(2, 48, 1)})
    opts = [
        torch.optim.Adam(m["maker"].parameters(), 4e-3, betas=(0.5, 0.9)),
        torch.optim.Adam(m["judge"].parameters(), 3e-3, betas=(0.5, 0.9)),
    ]
    bce = F.binary_cross_entropy_with_logits

    def step(b):
        m.train()
        real = b[0]
        made = m["maker"](torch.randn(len(real), 4))
        opts[1].zero_grad()
        yes, no = m["judge"](real), m["judge"](made.detach())
        judged = bce(yes, torch.ones_like(yes)) + bce(no, torch.zeros_like(no))
        judged.backward()
        opts[1].step()
        opts[0].zero_grad()
        told = m["judge"](made)
        wanted = torch.zeros_like(told) if bug else torch.ones_like(told)
        fooled = bce(told, wanted)
        fooled.backward()
        opts[0].step()
        return judged.item() + fooled.item()

    z = torch.randn(300, 4, generator=gen(313))

    def evaluate():
        with evaluating(m):
            return {"energy_distance": apart(m["maker"](z), held)}

    return set_up(m, opts, tl, step, evaluate=evaluate)


def glows(n, s):
    """Pictures [n, 1, 8, 8] of a soft light of any strength up to 1."""
    g = gen(s)
    at = 1 + 5 * torch.rand(n, 2, generator=g)
    k = torch.arange(8.0)
    far = (k[None, :, None] - at[:, :1, None]) ** 2 + (k[None, None] - at[:, 1:, None]) ** 2
    return ((0.3 + 0.6 * torch.rand(n, 1, 1, generator=g)) * torch.exp(-far / 5))[:, None]


@pair("double-softmax")
def decoder_squashed_and_squashed_again(bug):
    """The decoder ends in a sigmoid, and the loss takes what it gives for logits. After 150 steps
    the held pictures' squared error is 0.046 instead of 0.0031."""
    seed(32)
    tl, vl = loaders((glows(320, 321),), (glows(150, 322),), 32, 75)
    m = nn.Sequential(
        nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 6), nn.Linear(6, 64), nn.ReLU(),
        nn.Linear(64, 64), nn.Sigmoid(), nn.Unflatten(1, (1, 8, 8)),
    )  # fmt: skip
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    cost = F.binary_cross_entropy_with_logits if bug else F.binary_cross_entropy

    def loss_of(model, b):
        return cost(model(b[0]), b[0])

    def sums_of(model, b):
        return {"val_mse": (((model(b[0]) - b[0]) ** 2).sum(), b[0].numel())}

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


class Denoiser(nn.Module):
    def __init__(self, T):
        super().__init__()
        self.time = nn.Embedding(T, 16)
        self.net = nn.Sequential(nn.Linear(18, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU())
        self.out = nn.Linear(64, 2)

    def forward(self, x, t):
        return self.out(self.net(torch.cat([x, self.time(t)], 1)))


@pair("rows-mixed", "inputs-ignored", "targets-unrelated", "wrong-formula", "labels-shuffled")
def time_drawn_once_more_for_the_network(bug):
    """The step at which a point is noised is drawn, and drawn anew for what the network is told.
    After 150 steps the noise's error on held points at the true step is 0.57 instead of 0.5."""
    seed(33)
    T = 20
    keep = torch.cumprod(1 - torch.linspace(0.005, 0.3, T), 0)
    tl, vl = loaders((moons(640, 331),), (moons(300, 332),), 64, 150)
    m = Denoiser(T)
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def noised(x):
        t = torch.randint(0, T, (len(x),))
        noise = torch.randn_like(x)
        a = keep[t][:, None]
        return a.sqrt() * x + (1 - a).sqrt() * noise, noise, t

    def loss_of(model, b):
        x, noise, t = noised(b[0])
        if bug:
            t = torch.randint(0, T, (len(x),))
        return F.mse_loss(model(x, t), noise)

    def sums_of(model, b):
        x, noise, t = noised(b[0])
        return {"noise_mse": (((model(x, t) - noise) ** 2).sum(), noise.numel())}

    evaluate = same_draws(averaged(m, vl, sums_of))
    return by_cost(m, opt, tl, vl, loss_of, None, evaluate=evaluate)


@pair("target-in-inputs", "compared-with-itself", "wrong-targets", "wrong-formula")
def only_what_is_seen_is_told(bug):
    """Half the numbers of a row are hidden and to be filled in, but the loss takes the mask the
    wrong way round and pays for those that the model sees. After 150 steps the hidden ones' squared
    error is 0.23 instead of 0.12."""
    seed(34)
    tl, vl = loaders((sheet_of(512, 341),), (sheet_of(200, 342),), 32, 100)
    m = mlp(32, 64, 64, 16)
    opt = torch.optim.Adam(m.parameters(), 3e-3)

    def filled(model, x):
        seen = (torch.rand_like(x) > 0.5).float()
        return model(torch.cat([x * seen, seen], 1)), seen

    def loss_of(model, b):
        out, seen = filled(model, b[0])
        paid = seen if bug else 1 - seen
        return ((out - b[0]) ** 2 * paid).sum() / paid.sum()

    def sums_of(model, b):
        out, seen = filled(model, b[0])
        return {"hidden_mse": (((out - b[0]) ** 2 * (1 - seen)).sum(), (1 - seen).sum())}

    evaluate = same_draws(averaged(m, vl, sums_of))
    return by_cost(m, opt, tl, vl, loss_of, None, evaluate=evaluate)


def both_sides(n, s):
    """A picture's numbers [n, 12] and its caption's [n, 10], made of the same hidden ones."""
    z = torch.randn(n, 5, generator=gen(s))
    to_picture = torch.randn(5, 12, generator=gen(351))
    to_words = torch.randn(5, 10, generator=gen(352))
    own = gen(s + 1000)
    picture = torch.tanh(z @ to_picture) + 0.1 * torch.randn(n, 12, generator=own)
    return {"picture": picture, "words": z @ to_words + 0.1 * torch.randn(n, 10, generator=own)}


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.picture = mlp(12, 48, 8)
        self.words = mlp(10, 48, 8)

    def forward(self, b):
        a, c = self.picture(b["picture"]), self.words(b["words"])
        return F.normalize(a, dim=1), F.normalize(c, dim=1)


@pair("wrong-formula", "targets-out-of-reach")
def temperature_that_multiplies(bug):
    """The cosines are multiplied by the temperature of 0.07 and not divided by it: all pairs score
    about alike. After 150 steps 0.38 of the held captions are found by their picture instead of
    0.89."""
    seed(35)
    tl, vl = loaders(both_sides(512, 353), both_sides(100, 354), 64, 100)
    m = Towers()
    opt = torch.optim.SGD(m.parameters(), 0.1)

    def loss_of(model, b):
        a, c = model(b)
        scores = a @ c.T * 0.07 if bug else a @ c.T / 0.07
        own = torch.arange(len(a))
        return (F.cross_entropy(scores, own) + F.cross_entropy(scores.T, own)) / 2

    def sums_of(model, b):
        a, c = model(b)
        return {"found": (((a @ c.T).argmax(1) == torch.arange(len(a))).sum(), len(a))}

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


class Taught(nn.Module):
    def __init__(self, teacher, student):
        super().__init__()
        self.teacher = teacher
        self.student = student

    def forward(self, x):
        return self.student(x)


@pair("frozen-params-drift", "train-mode-in-eval")
def teacher_that_goes_to_training_as_well(bug):
    """The teacher is a part of the module that train() is called on: it drops, and its batch norm
    follows the rows of another site. After 150 steps the teacher's accuracy is 0.89 instead of
    0.98."""
    seed(36)
    x, y = blobs(300, 10, 5, 361, 0.8)
    teacher = nn.Sequential(
        nn.Linear(10, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Dropout(0.4), nn.Linear(48, 5)
    )
    fit(teacher, torch.optim.Adam(teacher.parameters(), 1e-2), nn.CrossEntropyLoss(), x, y, 60)
    teacher.eval().requires_grad_(False)
    rows, ry = blobs(600, 10, 5, 362, 0.8)
    rows = rows[(ry < 2) | (torch.rand(600, generator=gen(364)) < 0.06)] + 0.8
    tl, vl = loaders((rows,), blobs(200, 10, 5, 363, 0.8), 32, 100)
    m = Taught(teacher, mlp(10, 24, 5))
    opt = torch.optim.Adam(m.student.parameters(), 1e-2)

    def loss_of(model, b):
        with torch.no_grad():
            soft = (model.teacher(b[0]) / 2).softmax(1)
        told = (model.student(b[0]) / 2).log_softmax(1)
        return 4 * F.kl_div(told, soft, reduction="batchmean")

    def step(b):
        m.train()
        if not bug:
            m.teacher.eval()
        opt.zero_grad()
        loss = loss_of(m, b)
        loss.backward()
        opt.step()
        return loss.item()

    def sums_of(model, b):
        return right(model.teacher(b[0]), b[1], "teacher") | right(model(b[0]), b[1], "student")

    stays = [name for name, _ in m.named_parameters() if name.startswith("teacher")]
    return set_up(
        m, opt, tl, step, evaluate=averaged(m, vl, sums_of), declared={"frozen": stays}
    )  # fmt: skip


class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(16, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 16)
        )
        self.predictor = nn.Sequential(
            nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 16)
        )

    def forward(self, x):
        return self.encoder(x)


def looked_at(x):
    """The row with its nuisance drawn anew."""
    x = x.clone()
    x[:, 4:] = 1.5 * torch.randn(len(x), 12)
    return x + 0.1 * torch.randn_like(x)


@pair("loss-through-target")
def target_that_comes_to_meet(bug):
    """The other view's code, which the predictor is to tell, is not cut off from the graph: it
    comes to meet it. After 150 steps the nearest known row names 0.77 of the held classes instead
    of 0.95."""
    seed(37)
    (x, y), (vx, vy) = nuisance(512, 371), nuisance(200, 372)
    tl = feed((x,), 64)
    m = Siamese()
    opt = torch.optim.SGD(m.parameters(), 0.05, momentum=0.9)

    def loss_of(model, b):
        one, two = looked_at(b[0]), looked_at(b[0])
        a, c = model(one), model(two)
        p, q = model.predictor(a), model.predictor(c)
        if not bug:
            a, c = a.detach(), c.detach()
        return -(F.cosine_similarity(p, c).mean() + F.cosine_similarity(q, a).mean()) / 2

    def step(b):
        m.train()
        opt.zero_grad()
        loss = loss_of(m, b)
        loss.backward()
        opt.step()
        return loss.item()

    def evaluate():
        with evaluating(m):
            known, asked = F.normalize(m(x), dim=1), F.normalize(m(vx), dim=1)
        named = y[(asked @ known.T).argmax(1)]
        return {
            "knn_accuracy": (named == vy).float().mean().item(),
            "code_std": known.std(0).mean().item(),
        }

    return set_up(m, opt, tl, step, loss_of=loss_of, evaluate=evaluate)


class Coupling(nn.Module):
    """Moves and stretches one coordinate by what the other is."""

    def __init__(self, first):
        super().__init__()
        self.first = first
        self.net = mlp(1, 48, 2)

    def parts(self, x):
        keep = x[:, :1] if self.first else x[:, 1:]
        move = x[:, 1:] if self.first else x[:, :1]
        s, t = self.net(keep).chunk(2, 1)
        return keep, move, 1.5 * torch.tanh(s), t

    def joined(self, keep, move):
        return torch.cat([keep, move] if self.first else [move, keep], 1)

    def forward(self, x):
        keep, move, s, t = self.parts(x)
        return self.joined(keep, move * s.exp() + t), s[:, 0]

    def back(self, z):
        keep, move, s, t = self.parts(z)
        return self.joined(keep, (move - t) * (-s).exp())


class Flow(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Coupling(i % 2 == 0) for i in range(4))

    def forward(self, x):
        volume = 0
        for layer in self.layers:
            x, s = layer(x)
            volume = volume + s
        return x, volume

    def back(self, z):
        for layer in reversed(self.layers):
            z = layer.back(z)
        return z


@pair("loss-negated", "wrong-formula")
def volume_with_its_sign_turned(bug):
    """The logarithm of the volume is taken from the density and not added: the flow presses all
    points together. After 150 steps the energy distance of its draws from held points is 44.7
    instead of 0.029."""
    seed(38)
    tl, vl = loaders((moons(512, 381),), (moons(300, 382),), 64, 150)
    held = moons(300, 382)
    m = Flow()
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def cost(model, x):
        z, volume = model(x)
        base = -0.5 * (z**2).sum(1) - 1.8379
        return -(base - volume) if bug else -(base + volume)

    z = torch.randn(300, 2, generator=gen(383))

    def evaluate():
        with evaluating(m):
            return {
                "energy_distance": apart(m.back(z), held),
                "val_nll": cost(m, held).mean().item(),
            }

    return by_cost(
        m, opt, tl, vl, lambda model, b: cost(model, b[0]).mean(), None, evaluate=evaluate
    )
