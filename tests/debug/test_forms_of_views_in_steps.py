"""What a step makes itself: views, noise, returns, and what reaches which network."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from course.debug.probes import sums
from course.debug.relations import (
    background,
    boxes,
    competing,
    contrasted,
    credited,
    denoised,
    idle,
    policy,
    rivals,
)
from tests.debug.told import cases, said


def made(model, cost, data, evaluate=None, **more) -> dict:
    """A set-up whose step costs what `cost(batch)` gives."""
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)

    def train_step(batch) -> float:
        optimizer.zero_grad()
        loss = cost(batch)
        loss.backward()
        optimizer.step()
        return loss.item()

    found = {"model": model, "optimizer": optimizer, "train_loader": DataLoader(data, 16),
             "train_step": train_step, **more}  # fmt: skip
    return found | ({} if evaluate is None else {"evaluate": evaluate})


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@cases(faulty=["cut"], sound=["whole", "resting", "no part"])
def test_an_optimizer_that_steps_has_a_gradient(kind, is_told):
    g, d = nn.Linear(4, 2), nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
    both = [torch.optim.Adam(part.parameters(), 1e-3) for part in (g, d)]

    def train_step(batch) -> float:
        (real,) = batch
        fake = g(torch.randn(len(real), 4))
        both[1].zero_grad()
        seen = real if kind == "no part" else fake.detach()
        loss_d = F.softplus(-d(real)).mean() + F.softplus(d(seen)).mean()
        loss_d.backward()
        both[1].step()
        both[0].zero_grad()
        fake = fake.detach() if kind in ("cut", "no part") else fake
        loss_g = F.softplus(-d(real if kind == "no part" else fake)).mean()
        if kind != "resting":
            loss_g.backward()
        both[0].step()
        return loss_d.item()

    setup = {"model": nn.ModuleDict({"g": g, "d": d}), "optimizer": both, "train_step": train_step,
             "train_loader": DataLoader(TensorDataset(torch.randn(96, 2) + 2), 16)}  # fmt: skip
    assert said(idle.without_gradient, setup) == ["loss-without-gradient"] * is_told


@cases(faulty=["one", "one in halves"], sound=["two", "two in halves", "a sum of losses", "plain"])
def test_two_views_of_a_step_are_two_draws(kind, is_told):
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))

    def cost(batch):
        first = batch[0] if kind == "plain" else batch[0] + torch.randn_like(batch[0])
        second = batch[0] + torch.randn_like(batch[0]) if kind.startswith("two") else first
        if kind.endswith("in halves"):
            one, two = model(torch.cat([first, second])).chunk(2)
        else:
            one, two = model(first), model(second)
        if kind == "a sum of losses":
            return F.mse_loss(one, batch[0][:, :4]) + F.l1_loss(two, batch[0][:, :4])
        table = F.normalize(one, dim=1) @ F.normalize(two, dim=1).T / 0.2
        return F.cross_entropy(table, torch.arange(len(table)))

    setup = made(model, cost, TensorDataset(torch.randn(96, 8)))
    assert said(contrasted.with_itself, setup) == ["compared-with-itself"] * is_told


@cases(faulty=["rows", "implied"], sound=["classes", "both", "one place"])
def test_classes_compete_and_not_rows(kind, is_told):
    model = nn.Conv1d(2, 3, 3, padding=1) if kind != "one place" else nn.Linear(2, 3)
    shape = (96, 2) if kind == "one place" else (96, 2, 10)
    labels = torch.randint(3, (96,) if kind == "one place" else (96, 10))

    def cost(batch):
        outputs, classes = model(batch[0]), F.one_hot(batch[1], 3).movedim(-1, 1)
        axis = None if kind == "implied" else 1 if kind == "classes" else 0
        share = F.softmax(outputs, dim=axis)
        balance = outputs.log_softmax(1).mean() if kind == "both" else 0.0
        return 1 - (share * classes).sum() / classes.sum() - balance

    setup = made(model, cost, TensorDataset(torch.randn(shape), labels))
    assert said(competing.for_a_place, setup) == ["rows-mixed"] * is_told


@cases(
    faulty=["divergence", "cross-entropy", "by hand"],
    sound=["classes", "pairs of rows", "turned", "weights of rows", "own shares"],
)
def test_a_teachers_shares_are_of_the_classes(kind, is_told):
    teacher, model = nn.Linear(4, 5), nn.Linear(4, 16 if kind == "pairs of rows" else 5)

    def cost(batch):
        (x,) = batch
        mine = model(x) @ model(x).T if kind == "turned" else model(x)
        with torch.no_grad():
            told = teacher(x) @ teacher(x).T if kind in ("turned", "pairs of rows") else teacher(x)
            soft = told.softmax(1 if kind == "classes" else 0)
        if kind == "own shares":
            soft = mine.softmax(0)
        if kind == "cross-entropy":
            return F.cross_entropy(mine, soft)
        if kind == "by hand":
            return -(soft * mine.log_softmax(1)).sum(1).mean()
        if kind == "weights of rows":
            return -(soft * mine).sum()
        return F.kl_div(mine.log_softmax(1), soft.T if kind == "turned" else soft,
                        reduction="batchmean")  # fmt: skip

    setup = made(model, cost, TensorDataset(torch.randn(96, 4)))
    assert said(competing.of_a_teacher, setup) == ["rows-mixed"] * is_told


@cases(
    faulty=["answers", "means"],
    sound=["against", "against by means", "of the rows", "one aim"],
)
def test_a_generator_does_not_help_to_be_found_out(kind, is_told):
    g, d = nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
    both = [torch.optim.Adam(part.parameters(), 1e-3) for part in (g, d)]

    def cost(out, answer):
        if kind == "one aim":  # two halves of one model that take turns
            return F.mse_loss(out, out.detach().roll(1, 0))
        way = 1 - 2 * answer
        return way * out.mean() if "means" in kind else F.softplus(way * out).mean()

    def train_step(batch) -> float:
        (real,) = batch
        fake = g(real if kind == "of the rows" else torch.randn_like(real))  # e.g. a watermark
        both[1].zero_grad()
        loss_d = cost(d(real), 1) + cost(d(fake.detach()), 0)
        loss_d.backward()
        both[1].step()
        both[0].zero_grad()
        cost(d(fake), int("against" in kind)).backward()
        both[0].step()
        return loss_d.item()

    setup = {"model": nn.ModuleDict({"g": g, "d": d}), "optimizer": both, "train_step": train_step,
             "train_loader": DataLoader(TensorDataset(torch.randn(96, 2) + 2), 16)}  # fmt: skip
    assert said(rivals.found_out, setup) == ["loss-negated"] * is_told


@cases(
    faulty=["power", "square", "by hand", "distance"],
    sound=["cut off", "cut off, square", "no values"],
)
def test_an_advantage_does_not_pull_on_the_critic(kind, is_told):
    model, right = nn.Linear(4, 4), torch.randn(4, 3)

    def cost(batch):
        outputs = model(batch[0])
        law = torch.distributions.Categorical(logits=outputs[:, :3])
        actions, values = law.sample(), outputs[:, 3]
        paid = (batch[0] @ right).gather(1, actions[:, None])[:, 0]
        better = paid - (values.detach() if kind == "no values" else values)
        weight = better if is_told else better.detach()
        if kind == "distance":
            miss = F.mse_loss(values, paid)
        elif kind == "by hand":
            miss = (values - paid) ** 2
        else:
            miss = better.square() if "square" in kind else better.pow(2)
        return 0.5 * miss.mean() - (law.log_prob(actions) * weight).mean()

    setup = made(model, cost, TensorDataset(torch.randn(96, 4)))
    assert said(policy.baseline, setup) == ["loss-through-baseline"] * is_told


@cases(faulty=["past", "past, scaled"], sound=["future", "future, scaled", "own", "given", "whole"])
def test_an_action_is_weighed_by_what_it_leads_to(kind, is_told):
    model, right = nn.Linear(4, 3), torch.randn(4, 3)

    def cost(batch):
        law = torch.distributions.Categorical(logits=model(batch[0]))
        actions = law.sample()
        paid = ((batch[0] @ right).argmax(-1) == actions).float()
        after = paid.flip(1).cumsum(1).flip(1)
        before = paid.cumsum(1) - paid
        weight = {"past": before, "futu": after, "own": paid, "give": batch[0][..., 0],
                  "whol": paid.sum(1, keepdim=True).expand_as(paid)}[kind[:4]]  # fmt: skip
        if kind.endswith("scaled"):
            weight = (weight - weight.mean()) / weight.std()
        return -(law.log_prob(actions) * weight).mean()

    setup = made(model, cost, TensorDataset(torch.randn(96, 5, 4)))
    assert said(credited.by_its_own, setup) == ["wrong-formula"] * is_told


@cases(
    faulty=["noisy", "noisy, joined"],
    sound=["clean", "clean, joined", "scored as noisy", "small", "blind"],
)
def test_a_model_that_should_denoise_is_shown_what_is_clean(kind, is_told):
    size = 0.02 if kind == "small" else 0.5

    class Blind(nn.Module):
        """Each output is made of all inputs but its own."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(6, 6))

        def forward(self, x):
            return x @ (self.weight * (1 - torch.eye(6)))

    model = Blind() if kind == "blind" else nn.Linear(6, 6)
    val = DataLoader(TensorDataset(torch.randn(48, 6)), 16)

    def cost(batch):
        noisy = batch[0] + size * torch.randn_like(batch[0])
        return F.mse_loss(model(noisy), batch[0] if kind.startswith("clean") else noisy)

    def evaluate() -> dict:
        generator, total = torch.Generator().manual_seed(0), 0.0
        with torch.no_grad():
            held = [x for (x,) in val]
            for x in [torch.cat(held)] if "joined" in kind else held:
                noisy = x + 0.5 * torch.randn(x.shape, generator=generator)
                truth = noisy if kind == "scored as noisy" else x
                total += float(((model(noisy) - truth) ** 2).mean())
        return {"mse": total / len(val)}

    setup = made(model, cost, TensorDataset(torch.randn(96, 6)), evaluate, val_loader=val)
    assert said(denoised.own_input, setup) == ["wrong-targets"] * is_told


def of_cells(*, everywhere: bool, corners: bool) -> dict:
    """Each picture has one box in one of four cells; new models predict boxes without a size."""

    def rows(number: int) -> TensorDataset:
        cell = torch.randint(4, (number,))
        there = F.one_hot(cell, 4).float()
        box = torch.cat([torch.rand(number, 2), 0.3 + torch.rand(number, 2)], 1)
        table = there[..., None] * box[:, None]
        return TensorDataset(torch.cat([there, box], 1), there, table)

    class Boxes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.there, self.box = nn.Linear(8, 4), nn.Linear(8, 16)
            nn.init.constant_(self.box.bias, -0.5)

        def forward(self, x):
            return self.there(x), self.box(x).view(-1, 4, 4)

    model, val = Boxes(), DataLoader(rows(64), 16)

    def cost(batch):
        x, there, table = batch
        told, found = model(x)
        on = slice(None) if everywhere else there > 0
        return F.binary_cross_entropy_with_logits(told, there) + F.mse_loss(found[on], table[on])

    def ends(b):
        if corners:
            return b[:, :2], b[:, 2:]
        return b[:, :2] - b[:, 2:] / 2, b[:, :2] + b[:, 2:] / 2

    def evaluate() -> dict:
        total = 0.0
        with torch.no_grad():
            for x, there, table in val:
                (low, high), (start, end) = (ends(b[there > 0]) for b in (model(x)[1], table))
                both = (torch.minimum(high, end) - torch.maximum(low, start)).clamp(min=0).prod(1)
                either = (high - low).clamp(min=0).prod(1) + (end - start).clamp(min=0).prod(1)
                total += float((both / (either - both + 1e-9)).sum())
        return {"mean_iou": total / 64}

    return made(model, cost, rows(192), evaluate, val_loader=val)


@pytest.mark.parametrize("everywhere", [True, False])
def test_boxes_of_cells_without_one_play_no_part(everywhere):
    setup = of_cells(everywhere=everywhere, corners=False)
    assert said(background.placeholders, setup) == ["padding-in-the-loss"] * everywhere


@pytest.mark.parametrize("corners", [True, False])
def test_a_score_of_boxes_in_some_cells_takes_corners(corners):
    setup = of_cells(everywhere=False, corners=corners)
    assert said(boxes.scored, setup) == ["metric-wrong"] * corners


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.long])
def test_hits_that_become_many_are_counted_in_enough_digits(kind):
    rows = torch.randn(1200, 4)
    labels = (rows[:, 0] > 0).long() + 8 * (rows[:, 1] > 0).long()
    model = nn.Linear(4, 40)
    nn.init.constant_(model.bias[30:], 2.0)  # at first it never hits
    val = DataLoader(TensorDataset(rows, labels), 3)

    def evaluate() -> dict:
        hits = torch.zeros((), dtype=kind)
        with torch.no_grad():
            for x, y in val:
                hits += (model(x).argmax(1) == y).sum()
        return {"acc": hits.item() / 1200}

    setup = made(model, lambda b: F.cross_entropy(model(b[0]), b[1]),
                 TensorDataset(rows, labels), evaluate, val_loader=val)  # fmt: skip
    setup["optimizer"].param_groups[0]["lr"] = 0.1
    assert said(sums.stands_still, setup) == ["metric-wrong"] * (kind is torch.bfloat16)
