"""Numbers taken for what they are not: shares for scores, a divergence for a reward, a variance."""

import torch
from torch import nn
from torch.distributions import Bernoulli, Categorical, Normal
from torch.nn import functional as F

from course.debug.relations import bonuses, restored, spreads, squeezed
from tests.debug.faulty.eleventh.kit import Columns
from tests.debug.faulty.thirteenth.kit import gen, loader, mlp
from tests.debug.faulty.twelfth.kit import pack
from tests.debug.told import cases, said


def of(model, loss_of, data, **more):
    opt = torch.optim.Adam(model.parameters(), 1e-3)
    return pack(model, opt, loader(data, 32), loss_of, **more)


@cases(
    faulty=["categorical", "by hand", "rows chosen", "cross-entropy", "bernoulli", "in the model"],
    sound=["probs", "log of shares", "twice a logarithm", "read by attention", "weight of a logit",
           "logits"],
)  # fmt: skip
def test_no_softmax_is_taken_of_what_a_softmax_gave(kind, is_told):
    torch.manual_seed(0)
    x, a = torch.randn(320, 6, generator=gen(1)), torch.randint(0, 3, (320,), generator=gen(2))
    model = mlp(6, 16, 3)
    if kind == "in the model":
        model = nn.Sequential(model, nn.Softmax(-1))

    def log_prob(scores, a):
        shares = scores.softmax(-1)
        every = {
            "by hand": lambda: shares.log_softmax(-1).gather(1, a[:, None])[:, 0],
            "rows chosen": lambda: shares[a > 0].squeeze(0).log_softmax(-1)[:, 0],
            "cross-entropy": lambda: -F.cross_entropy(shares, a, reduction="none"),
            "bernoulli": lambda: Bernoulli(logits=scores[:, 0].sigmoid()).log_prob((a > 0).float()),
            "in the model": lambda: Categorical(logits=scores).log_prob(a),
            "categorical": lambda: Categorical(logits=shares).log_prob(a),
            "probs": lambda: Categorical(probs=shares).log_prob(a),
            "log of shares": lambda: Categorical(logits=shares.log()).log_prob(a),
            "twice a logarithm": lambda: scores.log_softmax(-1).log_softmax(-1)[:, 0],
            "read by attention": lambda: (shares @ torch.eye(3)).log_softmax(-1)[:, 0],
            "weight of a logit": lambda: F.logsigmoid(scores[:, 0] * scores[:, 1].sigmoid()),
            "logits": lambda: Categorical(logits=scores).log_prob(a),
        }  # fmt: skip
        return every[kind]()

    made = of(model, lambda m, b: -log_prob(m(b["x"]), b["a"]).mean(), Columns(x=x, a=a))
    assert said(squeezed.again, made) == ["double-softmax"] * is_told


class Coder(nn.Module):
    """A code with noise, read again: what comes out, the mean and the spread's raw number."""

    def __init__(self):
        super().__init__()
        self.into, self.out = mlp(8, 16, 6), mlp(3, 16, 8)

    def forward(self, x):
        mean, raw = self.into(x).chunk(2, 1)
        return self.out(mean + torch.randn_like(mean) * (0.5 * raw).exp()), mean, raw


@cases(
    faulty=["minus", "minus, by scale", "half of it"],
    sound=["plus", "entropy", "critic", "unlike targets", "targets of a part", "hinge"],
)
def test_a_part_without_data_is_not_lowered_without_end(kind, is_told):
    torch.manual_seed(0)
    x = torch.randn(320, 8, generator=gen(3))

    def loss_of(model, b):
        r, mean, raw = model(b["x"])
        kl = 0.5 * (mean**2 + raw.exp() - 1 - raw).sum(1)
        std = F.softplus(raw)
        more = {
            "minus": -kl, "plus": kl, "half of it": -0.1 * 0.5 * (mean**2).sum(1),
            "minus, by scale": -(0.5 * (std**2 + mean**2) - std.log()).sum(1),
            "entropy": kl - 2 * raw.sum(1), "critic": -mean.sum(1),
            "unlike targets": -((mean - b["x"][:, :3]) ** 2).sum(1),
            "targets of a part": ((mean - b["x"][:, :3]) ** 2).sum(1),
            "hinge": -(mean**2).sum(1).clamp(max=25.0),
        }[kind]  # fmt: skip
        return (((r - b["x"]) ** 2).sum(1) + more).mean()

    assert said(bonuses.without_end, of(Coder(), loss_of, Columns(x=x))) == (
        ["loss-negated"] * is_told
    )


@cases(
    faulty=["its input", "its input, by hand"],
    sound=["clean", "another noise", "narrow", "rated by its input", "what is left", "next frame"],
)
def test_what_restores_is_trained_on_what_rates_it(kind, is_told):
    torch.manual_seed(0)
    g = gen(4)
    clean = torch.randn(400, 3, generator=g) @ torch.randn(3, 8, generator=g)
    parts = {"noisy": clean + torch.randn(400, 8, generator=g), "clean": clean,
             "other": clean + torch.randn(400, 8, generator=g)}  # fmt: skip
    model = mlp(8, 2 if kind == "narrow" else 32, 8)
    asked = {"clean": "clean", "another noise": "other"}.get(kind, "noisy")
    rated = "noisy" if kind in ("rated by its input", "next frame") else "clean"
    val = loader(Columns(**{n: t[320:] for n, t in parts.items()}), 40, shuffle=False)

    def loss_of(m, b):
        out = m(b["noisy"])
        if kind == "its input, by hand":
            return (out - b["noisy"]).abs().mean()
        return F.mse_loss(out, b["noisy"] - b["clean"] if kind == "what is left" else b[asked])

    def evaluate():
        model.eval()
        with torch.no_grad():
            off = [(model(b["noisy"]) - b[rated]).square().mean().item() for b in val]
        return {"mse": sum(off) / len(off)}

    data = Columns(**{n: t[:320] for n, t in parts.items()})
    made = of(model, loss_of, data, val_loader=val, evaluate=evaluate)
    assert said(restored.asked_for, made) == ["wrong-targets"] * is_told


@cases(
    faulty=["standardised", "within", "between", "a law", "by hand", "the other way round"],
    sound=["squared for the loss", "root in the score", "chi square", "weights", "one for all",
           "a law for both", "by hand for both"],
)  # fmt: skip
def test_what_is_a_variance_for_the_loss_is_one_in_the_score(kind, is_told):
    torch.manual_seed(0)
    x = torch.randn(400, 5, generator=gen(5))
    y = x[:, 0] + (0.2 + x[:, 1].abs()) * torch.randn(400, generator=gen(6))
    model = mlp(5, 16, 2)

    def predicted(b):
        mean, raw = model(b["x"]).unbind(1)
        spread = F.softplus(raw) + 1e-3
        return mean, torch.full_like(spread, 0.7) + 0 * raw if kind == "one for all" else spread

    def loss_of(_, b):
        (mean, spread), y = predicted(b), b["y"]
        if kind in ("by hand", "by hand for both"):
            return ((y - mean) ** 2 / spread + spread.log()).mean()
        if kind in ("a law for both", "the other way round"):
            return -Normal(mean, spread).log_prob(y).mean()
        return F.gaussian_nll_loss(mean, y, spread**2 if kind == "squared for the loss" else spread)

    def score(b):
        (mean, s), y = predicted(b), b["y"]
        return {
            "within": lambda: ((y - mean).abs() < 1.96 * s).float().mean(),
            "between": lambda: ((y > mean - 1.96 * s) & (y < mean + 1.96 * s)).float().mean(),
            "a law": lambda: -Normal(mean, s).log_prob(y).mean(),
            "a law for both": lambda: -Normal(mean, s).log_prob(y).mean(),
            "by hand": lambda: (((y - mean) / s) ** 2).mean(),
            "the other way round": lambda: F.gaussian_nll_loss(mean, y, s),
            "root in the score": lambda: (((y - mean) / s.sqrt()).abs() < 1).float().mean(),
            "chi square": lambda: ((y - mean) ** 2 / s).mean(),
            "by hand for both": lambda: ((y - mean) ** 2 / s + s.log()).mean(),
            "weights": lambda: ((y - mean) / s).sum() / (1 / s).sum(),
        }.get(kind, lambda: (((y - mean) / s).abs() < 1).float().mean())()  # fmt: skip

    val = loader(Columns(x=x[320:], y=y[320:]), 40, shuffle=False)

    def evaluate():
        with torch.no_grad():
            return {"score": sum(score(b).item() for b in val) / len(val)}

    data = Columns(x=x[:320], y=y[:320])
    made = of(model, loss_of, data, val_loader=val, evaluate=evaluate)
    assert said(spreads.one_role, made) == ["wrong-formula"] * is_told
