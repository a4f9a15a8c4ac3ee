"""Slips in formulas: programs that learn by another rule than the method's, beside sound ones."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

from course.debug import diagnose
from course.debug.relations import (
    attention,
    foretold,
    networks,
    policy,
    reductions,
    settings,
    variances,
    weighing,
)
from tests.debug.faulty import PAIRS, formulas
from tests.debug.faulty.sixth.kit import blobs, loaders, mlp, of_pairs, setup, trained
from tests.debug.told import assert_told_apart, said
from tests.sampling import sample

HERE = {p.name: p for p in PAIRS if any(hasattr(part, p.name) for part in formulas.PARTS)}
TOLD = [name for name in HERE if name not in formulas.MISSED]


def test_all_programs_are_tried():
    assert len(HERE) == 41 and len(HERE) - len(TOLD) == len(formulas.MISSED)


@pytest.mark.parametrize("name", sample(TOLD, 30))
def test_the_fault_is_named_first_and_its_twin_is_left_alone(name):
    assert_told_apart(HERE[name])


@pytest.mark.parametrize("name", sample([*formulas.MISSED], 2))
def test_what_is_missed_is_not_said_to_be_another_fault(name):
    faulty = diagnose(HERE[name].make(True))
    assert faulty.ok, f"{formulas.MISSED[name]}: {faulty}"


def of(loss_of, *columns, model=None, **more):
    torch.manual_seed(0)
    model = model or mlp()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    return trained(model, optimizer, loaders(*columns), loss_of, **more)


@pytest.mark.parametrize(
    ("way", "told"),
    [("log_var", []), ("log_std", []), ("softplus", []), ("squared", []), ("ones", []),
     ("no divergence", []), ("variance", ["wrong-formula"]),
     ("softplus as both", ["wrong-formula"])],
)  # fmt: skip
def test_a_variance_is_a_standard_deviation_squared(way, told):
    def loss_of(m, b):
        mu, raw = m(b[0]).chunk(2, 1)
        std = {"log_var": (0.5 * raw).exp(), "log_std": raw.exp(), "variance": raw.exp(),
               "softplus": F.softplus(raw), "softplus as both": F.softplus(raw),
               "squared": raw.exp(), "ones": raw.exp() ** 0, "no divergence": raw.exp(),
               }[way]  # fmt: skip
        z = mu + std * torch.randn_like(std)
        kl = {
            "log_var": lambda: -0.5 * (1 + raw - mu**2 - raw.exp()),
            "log_std": lambda: -0.5 * (1 + 2 * raw - mu**2 - (2 * raw).exp()),
            "variance": lambda: -0.5 * (1 + raw - mu**2 - raw.exp()),
            "softplus": lambda: 0.5 * (mu**2 + std**2 - 2 * std.log() - 1),
            "softplus as both": lambda: 0.5 * (mu**2 + F.softplus(raw) - std.log() - 1),
            "squared": lambda: 0.5 * (mu.square() + std.square() - 2 * raw - 1),
            "ones": lambda: 0.5 * (mu**2 + raw.exp()),
            "no divergence": lambda: 0 * mu,
        }[way]()
        return F.mse_loss(z, b[0][:, :2]) + kl.sum(1).mean()

    assert said(variances.squared, of(loss_of, blobs()[0])) == told


@pytest.mark.parametrize(
    ("way", "told"),
    [("means", []), ("sums", []), ("penalty", []), ("contrast", []), ("both", ["wrong-formula"]),
     ("noise", []), ("batch norm", [])],
)  # fmt: skip
def test_terms_are_means_over_rows_or_sums(way, told):
    model = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4)) if way == "batch norm" else mlp()

    def loss_of(m, b):
        x, y = b
        out = m(x + torch.randn_like(x)) if way == "noise" else m(x)
        error = F.cross_entropy(out, y, reduction="sum" if way in ("sums", "penalty") else "mean")
        if way in ("sums", "both"):
            return error + 0.1 * out.square().sum()
        if way == "penalty":
            return error + sum(p.square().sum() for p in m.parameters())
        if way == "contrast":
            return error + (out @ out.T).logsumexp(1).sum()
        return error + 0.1 * out.square().sum(1).mean()

    assert said(reductions.alike, of(loss_of, *blobs(), model=model)) == told


class Mixing(nn.Module):
    """Weights over keys, over queries, or over queries and then shared out over keys again."""

    def __init__(self, way):
        super().__init__()
        self.way, self.head = way, nn.Linear(4, 3)

    def forward(self, x):
        scores = x @ x.transpose(1, 2)
        if self.way == "keys":
            weights = F.dropout(F.softmax(scores, dim=-1), 0.1, self.training)
        elif self.way == "queries":
            weights = F.dropout(scores.softmax(1), 0.1, self.training)
        else:
            weights = torch.softmax(scores, 1)
            weights = weights / weights.sum(2, keepdim=True)
        return self.head((weights @ x).mean(1))


@pytest.mark.parametrize("way", ["keys", "queries", "slots"])
def test_attention_is_a_mean_over_what_it_sums(way):
    torch.manual_seed(0)
    x, y = torch.randn(96, 6, 4), torch.randint(0, 3, (96,))
    made = of(of_pairs(F.cross_entropy), x, y, model=Mixing(way))
    assert said(attention.summed, made) == ["rows-mixed"] * (way == "queries")


@pytest.mark.parametrize(
    ("way", "told"),
    [("classes", []), ("batch", ["rows-mixed"]), ("table", []), ("features", ["rows-mixed"]),
     ("lengths", [])],
)  # fmt: skip
def test_a_softmax_does_not_run_down_the_batch(way, told):
    def loss_of(m, b):
        out = m(b[0])
        if way in ("classes", "batch"):
            return F.nll_loss(out.log_softmax(1 if way == "classes" else 0), b[1])
        z = F.normalize(out, dim=0 if way == "features" else 1)
        scores = z @ z.T / 0.1
        one = torch.arange(len(z))
        down = -scores.log_softmax(0).diag().mean() if way == "table" else 0.0
        return F.cross_entropy(scores, one) + down

    assert said(attention.of_a_row, of(loss_of, *blobs())) == told


@pytest.mark.parametrize(
    ("betas", "told"),
    [((0.9, 0.999), []), ((0.5, 0.9), []), ((0.9, 0.9), []), ((0.99, 0.9), ["wrong-formula"])],
)
def test_betas_have_their_order(betas, told):
    made = of(of_pairs(F.cross_entropy), *blobs())
    made["optimizer"] = torch.optim.AdamW(made["model"].parameters(), 1e-3, betas=betas)
    assert said(settings.betas, made) == told


@pytest.mark.parametrize(
    ("own", "told"),
    [({"learning_rate": 1e-2}, ["lr-too-small"]), ({"Learning-Rate": 1e-5}, ["lr-too-large"]),
     ({"wd": 0.1}, ["weight-decay-misplaced"]), ({"weigth_decay": 0}, ["weight-decay-misplaced"]),
     ({"learning_rate": 1e-2, "lr": 1e-2}, []), ({"learning_rate": 1e-3}, []),
     ({"lr_scale": 0.1}, []), ({"lr_mult": 10.0}, []), ({"name": "head", "layer": 3}, []),
     ({"base_lr": 0.1, "max_lr": 1.0, "min_lr": 0.0, "initial_lr": 1e-3}, []),
     ({"max_momentum": 0.95, "base_momentum": 0.8, "lr_decay": 0.1}, []),
     ({"momentum": 0.9}, []), ({"no_weight_decay": True, "learning_rate_2": 0.1}, [])],
    ids=lambda own: "-".join(own) or "silent",
)  # fmt: skip
def test_a_group_names_its_settings_as_the_optimizer_reads_them(own, told):
    model = mlp()
    opt = torch.optim.AdamW([{"params": model.parameters()} | own], 1e-3)
    held = opt.param_groups[0]
    made = trained(model, opt, loaders(*blobs()), of_pairs(F.cross_entropy))
    assert said(settings.names, made) == told
    assert opt.param_groups[0] is held and type(held) is dict


class Scaled(torch.optim.SGD):
    """Reads what its groups call `learning_rate`, elsewhere."""


@pytest.mark.parametrize("way", ["nobody", "sets", "decays", "all settings", "own"])
def test_a_setting_that_the_loop_reads_is_no_slip(way):
    made = of(of_pairs(F.cross_entropy), *blobs())
    key = "wd" if way == "decays" else "learning_rate"
    kind = Scaled if way == "own" else torch.optim.SGD
    opt = kind([{"params": made["model"].parameters(), key: 0.05}], 1e-3)

    def step(b):
        for group in opt.param_groups:
            if way == "sets":
                group["lr"] = group["learning_rate"] / 2
            elif way == "decays":
                for p in group["params"]:
                    p.data.mul_(1 - group["lr"] * group["wd"])
            elif way == "all settings":
                dict(group.items())
        loss = F.cross_entropy(made["model"](b[0]), b[1])
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.item()

    del made["train"]
    made |= {"optimizer": opt, "train_step": step}
    assert said(settings.names, made) == ["lr-too-small"] * (way == "nobody")


@pytest.mark.parametrize("way", ["counts", "shares", "all alike"])
def test_a_sampler_draws_the_rare_more_often(way):
    torch.manual_seed(0)
    y = torch.multinomial(torch.tensor([0.7, 0.2, 0.1]), 200, replacement=True)
    counts = torch.bincount(y).double()
    weights = {"counts": counts, "shares": 1 / counts, "all alike": counts**0}[way][y]
    model = mlp(8, 3)
    loader = DataLoader(
        TensorDataset(torch.randn(200, 8), y), 16, sampler=WeightedRandomSampler(weights, 200)
    )
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    made = setup(model, optimizer, loader, loss_fn=F.cross_entropy)
    assert said(weighing.drawn, made) == ["class-weights-inverted"] * (way == "counts")


@pytest.mark.parametrize(
    ("way", "told"),
    [("rare more", []), ("alike", []), ("rare less", ["class-weights-inverted"]), ("dice", []),
     ("shares", ["class-weights-inverted"])],
)  # fmt: skip
def test_a_rare_answer_weighs_no_less(way, told):
    torch.manual_seed(0)
    y = (torch.rand(400, 1) < 0.15).float()
    x = torch.randn(400, 8) + y
    model = nn.Sequential(mlp(8, 1), nn.Sigmoid()) if way == "shares" else mlp(8, 1)

    def loss_of(m, b):
        out, y = m(b[0]), b[1]
        p = out if way == "shares" else out.sigmoid()
        if way == "dice":
            return 1 - (2 * (p * y).sum() + 1) / ((p + y).sum() + 1)
        yes, no = {"rare more": (0.85, 0.15), "alike": (1, 1)}.get(way, (0.15, 0.85))
        each = yes * y * p.clamp_min(1e-6).log() + no * (1 - y) * (1 - p).clamp_min(1e-6).log()
        return -each.mean()

    assert said(weighing.answers, of(loss_of, x, y, model=model)) == told


@pytest.mark.parametrize(
    ("way", "told"),
    [("as is", []), ("turned", []), ("one answer", ["wrong-targets"]), ("two critics", [])],
)
def test_a_critic_is_told_two_answers(way, told):
    torch.manual_seed(0)
    maker, critic, other = mlp(4, 2), mlp(2, 1), mlp(2, 1)
    both = nn.ModuleDict({"maker": maker, "critic": critic, "other": other})
    makes = torch.optim.Adam(maker.parameters(), 1e-3)
    tells = torch.optim.Adam([*critic.parameters(), *other.parameters()], 1e-3)
    cost = F.binary_cross_entropy_with_logits

    def step(batch):
        (real,) = batch
        fake = maker(torch.randn(len(real), 4))
        yes, no = torch.ones(len(real), 1), torch.zeros(len(real), 1)
        if way == "turned":
            yes, no = no, yes
        told = cost(critic(real), yes) + cost(
            critic(fake.detach()), yes if way == "one answer" else no
        )
        if way == "two critics":
            told = told + cost(other(real), yes) + cost(other(fake.detach()), no)
        tells.zero_grad()
        told.backward()
        tells.step()
        made = cost(critic(fake), yes) + (cost(other(fake), yes) if way == "two critics" else 0)
        makes.zero_grad()
        made.backward()
        makes.step()
        return told.item() + made.item()

    made = setup(both, [makes, tells], loaders(torch.randn(128, 2))[0], step=step)
    assert said(networks.both_answers, made) == told


@pytest.mark.parametrize(
    ("way", "told"),
    [("bonus", []), ("none", []), ("punished", ["loss-negated"]), ("weighed examples", [])],
)
def test_what_wins_nothing_is_no_reason_to_be_sure(way, told):
    g = torch.Generator().manual_seed(3)
    states, actions = torch.randn(128, 8, generator=g), torch.randint(0, 4, (128,), generator=g)
    won = (actions == states[:, :4].argmax(1)).float() + 0.1

    def loss_of(m, b):
        logs = m(b[0]).log_softmax(1)
        each = -(b[2] * logs.gather(1, b[1][:, None])[:, 0]).mean()
        entropy = -(logs.exp() * logs).sum(1).mean()
        return each + {"bonus": -0.01, "punished": 0.01}.get(way, 0.0) * entropy

    assert said(policy.explores, of(loss_of, states, actions, won)) == told


@pytest.mark.parametrize(
    ("way", "told"),
    [("past", []), ("centred", ["target-in-inputs"]), ("a sine", []), ("unrelated", [])],
)
def test_a_column_of_both_sides_holds_what_comes_next(way, told):
    g = torch.Generator().manual_seed(6)
    series = torch.sin(torch.arange(400) / 6)
    if way != "a sine":
        series = series + 0.2 * torch.randn(400, generator=g)
    left = 2 if way == "centred" else 4
    mean = F.avg_pool1d(F.pad(series[None, None], (left, 4 - left), mode="replicate"), 5, 1)[0, 0]
    if way == "unrelated":
        mean = torch.randn(400, generator=g)
    x = torch.stack([torch.stack([series, mean], 1)[i : i + 10] for i in range(380)])
    y = series[10:390, None]
    model = nn.Sequential(nn.Flatten(), nn.Linear(20, 1))
    assert said(foretold.exactly, of(of_pairs(F.mse_loss), x, y, model=model)) == told
