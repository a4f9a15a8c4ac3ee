"""What is kept, averaged, cleared or left between steps: the fault is named, what only looks so
is left alone."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from course.debug.relations import averages, evaluated, kept, networks, weights
from tests.debug.faulty.dresses import adversaries, trained_by
from tests.debug.faulty.fourth.kit import accuracy, batches, blobs, mlp
from tests.debug.told import cases, said


def classified(model=None, **more):
    x, y = blobs(96)
    model = model or mlp(10, 16, 3)
    found = trained_by(lambda m, b: F.cross_entropy(m(b[0]), b[1]), model, batches(x, y))
    return found | {"evaluate": accuracy(model, batches(x, y, shuffle=False))} | more


def trained(keep, model=None):
    """A set-up whose train() ends with what `keep(model, number, state)` has left in `state`."""
    found = classified(model)
    model, step, state = found["model"], found.pop("train_step"), {}
    every = list(found["train_loader"])

    def train(n_steps):
        for number in range(n_steps):
            step(every[number % len(every)])
            keep(model, number, state)
        model.load_state_dict(state["kept"])

    return found | {"train": train, "loss_fn": nn.CrossEntropyLoss()}


def the_last(model, number, state):
    state["kept"] = copy.deepcopy(model.state_dict())


def the_last_by_reference(model, number, state):
    state["kept"] = model.state_dict()


def the_first(model, number, state):
    state.setdefault("kept", copy.deepcopy(model.state_dict()))


def the_mean(model, number, state):
    """Of 0.99: after a few steps nearly the first weights, and of no moment of the training."""
    new = copy.deepcopy(model.state_dict())
    old = state.get("kept", new)
    state["kept"] = {name: old[name].lerp(new[name], 0.01) for name in new}


@pytest.mark.parametrize(
    ("keep", "relation", "bug"),
    [
        (the_last, kept.by_reference, []),
        (the_last_by_reference, kept.by_reference, ["checkpoint-by-reference"]),
        (the_last, kept.undone, []),
        (the_mean, kept.undone, []),
        (the_first, kept.undone, ["keeps-worse-weights"]),
    ],
)
def test_weights_that_are_put_back_are_a_copy_and_no_worse(keep, relation, bug):
    torch.manual_seed(0)
    assert said(relation, trained(keep)) == bug


@pytest.mark.parametrize("momentum", [0.99, 0.1, None])
def test_statistics_of_the_last_batch_alone_are_named(momentum):
    torch.manual_seed(0)
    model = mlp(10, 16, 3)
    model.insert(1, nn.BatchNorm1d(16, momentum=momentum))
    bug = ["ema-decay"] if momentum == 0.99 else []
    assert said(averages.statistics, classified(model)) == bug
    x, y = blobs(96)
    whole = classified(model, train_loader=batches(x, y, bs=96))
    assert not said(averages.statistics, whole)


@pytest.mark.parametrize("buffers", [False, True])
@pytest.mark.parametrize("scored", [False, True])
def test_an_average_that_is_scored_needs_the_statistics_too(buffers, scored):
    torch.manual_seed(0)
    model = mlp(10, 16, 3)
    model.insert(1, nn.BatchNorm1d(16))
    mean = copy.deepcopy(model).requires_grad_(False)
    found = classified(model)
    step, data = found["train_step"], batches(*blobs(96), shuffle=False)

    def train_step(batch):
        loss = step(batch)
        with torch.no_grad():
            for a, b in zip(mean.parameters(), model.parameters(), strict=True):
                a.lerp_(b, 0.1)
            for a, b in zip(mean.buffers(), model.buffers(), strict=True):
                a.copy_(b if buffers else a)
        return loss

    found |= {"train_step": train_step, "extra": {"mean": mean}}
    found["evaluate"] = accuracy(mean if scored else model, data)
    bug = ["average-without-statistics"] if scored and not buffers else []
    assert said(averages.whole, found) == bug


class Heads(nn.Module):
    """One trunk, two answers."""

    def __init__(self):
        super().__init__()
        self.trunk, self.one, self.two = mlp(10, 16, 8), nn.Linear(8, 3), nn.Linear(8, 1)


@pytest.mark.parametrize("cleared", ["between", "before", "after an attack"])
def test_a_loss_whose_gradients_are_cleared_before_the_step_is_named(cleared):
    torch.manual_seed(0)
    model, (x, y) = Heads(), blobs(96)
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)

    def train_step(batch):
        x, y = batch
        optimizer.zero_grad()
        if cleared == "after an attack":
            x = x.clone().requires_grad_()
            F.cross_entropy(model.one(model.trunk(x)), y).backward()
            x = (x + 0.1 * x.grad.sign()).detach()
            optimizer.zero_grad()
        F.cross_entropy(model.one(model.trunk(x)), y).backward()
        if cleared == "between":
            optimizer.zero_grad()
        loss = model.two(model.trunk(x)).squeeze(1).sub(y).square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    made = dict(model=model, optimizer=optimizer, train_loader=batches(x, y), train_step=train_step)
    bug = ["grads-cleared-before-step"] if cleared == "between" else []
    assert said(weights.cleared, made) == bug


@pytest.mark.parametrize("shared", [True, False])
def test_a_trunk_shared_on_purpose_is_no_generator_without_detach(shared):
    """Two answers that pull the trunk apart: it takes both gradients, its own head one."""
    torch.manual_seed(0)
    x, y = blobs(96)

    def own(m, batch):
        hidden = m["own"][0](batch[0])
        return F.mse_loss((m["own"][1] if shared else m["other"])(hidden), batch[0][:, :1])

    def other(m, batch):
        return F.mse_loss(m["other"](m["own"][0](batch[0])), -batch[0][:, :1])

    body = nn.Sequential(mlp(10, 16, 8), nn.Linear(8, 1)) if shared else nn.Sequential(
        mlp(10, 16, 8))  # fmt: skip
    made = adversaries(other, own, body, nn.Linear(8, 1)) | {"train_loader": batches(x, y)}
    assert said(networks.left_over, made) == ([] if shared else ["missing-zero-grad"])


@pytest.mark.parametrize("every", [1, 4])
@pytest.mark.parametrize("late", [True, False])
def test_gradients_that_the_generator_leaves_in_the_critic_are_named(late, every):
    """Unlike those of a slow part, which steps on four calls of the same loss."""
    torch.manual_seed(0)
    model = nn.ModuleDict({"fast": mlp(3, 8, 3), "slow": mlp(3, 8, 1)})
    fast, slow = (torch.optim.Adam(model[k].parameters(), 1e-3) for k in ("fast", "slow"))
    calls = [0]

    def train_step(batch):
        calls[0] += 1
        fake = model["fast"](torch.randn(len(batch[0]), 3))
        if every == 1:
            _clear(slow, not late)
            loss = model["slow"](fake.detach()).mean() - model["slow"](batch[0]).mean()
            loss.backward()
            slow.step()
            _clear(slow, late)
        fast.zero_grad()
        loss = F.softplus(-model["slow"](fake)).mean()
        loss.backward()
        fast.step()
        if every > 1 and calls[0] % every == 0:
            slow.step()
            slow.zero_grad()
        return loss.item()

    made = dict(model=model, optimizer=[fast, slow], train_step=train_step,
                train_loader=batches(torch.randn(96, 3) + 2))  # fmt: skip
    assert said(networks.left_over, made) == (
        ["missing-zero-grad"] if late and every == 1 else [])  # fmt: skip


def _clear(optimizer, now):
    if now:
        optimizer.zero_grad()


@pytest.mark.parametrize("start", [True, False])
def test_the_best_weights_that_evaluate_brings_back_are_a_note_and_the_first_ones_are_not(start):
    torch.manual_seed(0)
    found = classified()
    model, score, step = found["model"], found["evaluate"], found["train_step"]
    held = {"best": -1.0, "state": copy.deepcopy(model.state_dict())}
    every = list(found["train_loader"])

    def evaluate():
        now = {"accuracy": len(held)}  # never better than what is held, once something is
        if not start and held["best"] < 0:
            held.update(best=0.0, state=copy.deepcopy(model.state_dict()))
        elif start or held["best"] >= 0:
            model.load_state_dict(held["state"])
        return now | score()

    def train(n_steps):
        for number in range(n_steps):
            step(every[number % len(every)])
            if number == 1 and not start:
                evaluate()

    made = found | {"train": train, "evaluate": evaluate, "loss_fn": nn.CrossEntropyLoss()}
    del made["train_step"]
    found = _severities(evaluated.left, made)
    assert found == (["error"] if start else ["note"])


def _severities(relation, made):
    from course.debug.probes.session import Session
    from course.debug.probes.setup import as_setup

    return [finding.severity for finding in relation(Session(as_setup(made)))]


@cases(
    faulty=["bce", "conditional", "by its mean"],
    sound=["cleared", "frozen", "inputs only", "penalty after", "one backward", "agreed",
           "halves"],
)  # fmt: skip
def test_what_a_generators_loss_leaves_is_not_used_against_the_critics_own(kind, is_told):
    """At first both point the same way, since real rows are to be called real, too."""
    torch.manual_seed(0)
    maker, critic = mlp(3, 16, 3), mlp(6 if kind == "conditional" else 3, 16, 1)
    model = nn.ModuleDict({"maker": maker, "critic": critic})
    of_maker, of_critic = (torch.optim.Adam(m.parameters(), 1e-3) for m in (maker, critic))

    def judged(rows, noise):
        return critic(torch.cat([rows, noise], 1) if kind == "conditional" else rows)

    def cost(out, answer):
        if kind == "by its mean":
            return out.mean() if answer == 0 else F.softplus(-out).mean()
        return F.binary_cross_entropy_with_logits(out, torch.full_like(out, answer))

    def train_step(batch):
        real = batch[0]
        noise = torch.randn(len(real), 3)
        fake = maker(noise)
        of_maker.zero_grad()
        of_critic.zero_grad()
        if kind == "halves":
            cost(judged(real, noise), 1.0).backward()
        critic.requires_grad_(kind not in ("frozen", "halves"))
        of_its_maker = cost(judged(fake, noise), 1.0)
        if kind != "one backward":
            of_its_maker.backward(inputs=[*maker.parameters()] if kind == "inputs only" else None)
            of_maker.step()
        critic.requires_grad_(True)
        if kind in ("cleared", "penalty after"):
            of_critic.zero_grad()
        own = cost(judged(fake.detach(), noise), 1.0 if kind == "agreed" else 0.0)
        if kind != "halves":
            own = own + cost(judged(real, noise), 1.0)
        if kind == "one backward":
            own = own + of_its_maker
        own.backward()
        if kind == "one backward":
            of_maker.step()
        if kind == "penalty after":
            rows = real.clone().requires_grad_()
            slope = torch.autograd.grad(critic(rows).sum(), rows, create_graph=True)[0]
            slope.pow(2).sum(1).mean().backward()
        of_critic.step()
        return own.item()

    made = dict(model=model, optimizer=[of_maker, of_critic], train_step=train_step,
                train_loader=batches(torch.randn(96, 3) + 2))  # fmt: skip
    assert said(networks.left_over, made) == (["missing-zero-grad"] if is_told else [])
