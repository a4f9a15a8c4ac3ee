"""A seventh set, by an author who had not read the doctor, with twenty sound programs."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd import Function
from torch.utils.data import DataLoader

from course.debug import diagnose
from course.debug.relations import (
    bootstrapped,
    encoded,
    lookups,
    loss,
    masks,
    memory,
    noise,
    numeric,
    rebatched,
    stuck,
    teachers,
    views,
    weights,
)
from tests.debug.faulty import PAIRS, dresses_of_data, seventh
from tests.debug.faulty.dresses import numbers, setup, stepping, trained_by
from tests.debug.faulty.fourth.kit import batches, blobs, mlp
from tests.debug.sound import SOUND
from tests.debug.sound import seventh as odd
from tests.debug.sound import seventh_loops as odd_loops
from tests.debug.told import assert_told_apart, said
from tests.sampling import sample

HERE = {p.name: p for p in PAIRS if any(hasattr(part, p.name) for part in seventh.PARTS)}
ODD = [name for name in SOUND if hasattr(odd, name) or hasattr(odd_loops, name)]


def test_all_programs_of_the_seventh_set_are_tried():
    assert len(HERE) == 40
    assert len(ODD) == 20  # test_diagnose diagnoses them, with the others that are sound


@pytest.mark.parametrize("name", sample([*HERE], 40))
def test_the_fault_is_named_first_and_its_twin_is_left_alone(name):
    assert_told_apart(HERE[name])


@pytest.mark.parametrize("name", ["hospitals_together"])
def test_a_twin_that_was_alarmed_at_first_sight_is_left_alone(name):
    report = diagnose(HERE[name].make(False))
    assert report.ok, str(report)


class Turned(Function):
    """Hands on its input, and the gradient with the other sign."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return -gradient


class Rounded(Function):
    """Rounds, and lets the gradient through as it is."""

    @staticmethod
    def forward(ctx, x):
        return (4 * x).round() / 4

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Within(Function):
    """Cuts off at 1 either way, and lets the gradient through everywhere."""

    @staticmethod
    def forward(ctx, x):
        return x.clamp(-1, 1)

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def gradient_on_purpose(function):
    def make():
        x, y = numbers()
        cost = lambda m, b: F.mse_loss(function.apply(m(b[0])).squeeze(1), b[1])  # noqa: E731
        return trained_by(cost, mlp(6, 8, 1), batches(x, y))

    return make


def no_episode_ends():
    """Two actions, a reward, a next state, and nothing that ends."""
    state, after, reward = torch.randn(96, 5), torch.randn(96, 5), torch.randn(96)

    def cost(model, batch):
        s, a, r, t = batch
        with torch.no_grad():
            aim = r + 0.9 * model(t).amax(1)
        return F.mse_loss(model(s).gather(1, a[:, None]).squeeze(1), aim)

    return trained_by(cost, mlp(5, 8, 2), batches(state, torch.randint(2, (96,)), reward, after))


def views_made_by_dropout():
    """As in SimCSE: one text twice, and dropout makes two views of it."""

    def cost(model, batch):
        a, b = model(batch["a"]), model(batch["b"])
        return F.cross_entropy(a @ b.T, torch.arange(len(a)))

    data = dresses_of_data.Views(torch.randn(64, 6), lambda t: t + torch.randn(6), True)
    return trained_by(cost, nn.Sequential(nn.Dropout(0.2), nn.Linear(6, 4)), DataLoader(data, 16))


def augmented_and_rebuilt():
    """The target is the augmented input; it never reaches the model."""
    data = dresses_of_data.Views(torch.randn(64, 6), lambda t: t + torch.randn(6), True)
    cost = lambda m, b: F.mse_loss(m(b["a"]), b["b"])  # noqa: E731
    return trained_by(cost, mlp(6, 3, 6), DataLoader(data, 16))


def letters_and_marks():
    """Letters are bytes; two marks behind them are added in the model."""
    ids = torch.randint(32, 123, (64, 10)).to(torch.uint8)
    y = (ids.long().sum(1) > 770).long()
    return setup(dresses_of_data.Averaged(300, 2), batches(ids, y), loss_fn=nn.CrossEntropyLoss())


def labels_of_some_alone():
    """Rows without a label are trained on, by how sure their answers are."""
    x, y = blobs(90)
    known = torch.rand(90) < 0.5

    def cost(model, batch):
        logits = model(batch[0])
        p = logits[~batch[2]].softmax(1)
        return F.cross_entropy(logits[batch[2]], batch[1][batch[2]]) - 0.1 * p.pow(2).sum(1).mean()

    return trained_by(cost, mlp(10, 8, 3), [(x, y, known)], val_loader=[(x, y, ~known)])


def baskets_of_goods():
    """Every row has bought something, and each purchase counts: a multinomial likelihood."""
    x, _ = numbers()
    y = (x[:, :5] > 0).float()
    y[:, 0] = 1
    return setup(mlp(6, 8, 5), batches(x, y), loss_fn=nn.CrossEntropyLoss())


def branch_that_starts_at_zero():
    x, y = numbers()
    model = nn.Sequential(mlp(6, 8, 1), nn.Flatten(0))
    nn.init.zeros_(model[0][-1].weight)
    nn.init.zeros_(model[0][-1].bias)
    return trained_by(lambda m, b: F.mse_loss(m(b[0]), b[1]), model, batches(x, y, bs=16))


def moved_in_time():
    """All columns tell less in validation: the world has changed."""
    x = torch.randn(240, 3)
    y = x.sum(1) + 0.3 * torch.randn(240)
    y[160:] = torch.randn(80)
    return setup(mlp(3, 8, 1), batches(x[:160], y[:160, None]), loss_fn=nn.MSELoss(),
                 val_loader=batches(x[160:], y[160:, None], shuffle=False))  # fmt: skip


def last_state_is_looked_at():
    """A state is taken in every step and held under one name: the one before is let go."""
    x, y = numbers()
    model = nn.Sequential(nn.Linear(6, 1), nn.Flatten(0))
    found = setup(model, batches(x, y))
    inner = stepping(model, found["optimizer"], lambda m, b: F.mse_loss(m(b[0]), b[1]))

    def train_step(batch):
        for part in zip(*(t.chunk(2) for t in batch), strict=True):
            loss = inner(part)
            state = model.state_dict()
            assert state["0.weight"].isfinite().all()
        return loss

    return found | {"train_step": train_step}


def noise_from_one_generator():
    x, y = numbers()
    own = torch.Generator().manual_seed(0)

    def cost(model, batch):
        near = batch[0] + 0.1 * torch.randn(batch[0].shape, generator=own)
        return F.mse_loss(model(near).squeeze(1), batch[1])

    return trained_by(cost, mlp(6, 8, 1), batches(x, y))


def bias_that_cancels():
    """Of two means that are subtracted the last bias is in both: its gradient is 0."""
    x, _ = numbers()
    cost = lambda m, b: (m(b[0]).mean() - m(torch.randn(8, 6)).mean()).pow(2)  # noqa: E731
    return trained_by(cost, mlp(6, 8, 1), batches(x))


def slow_copy_in_train_mode():
    """The targets' network is the model's copy, with its dropout, and follows it slowly."""
    x, _ = numbers()
    model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.2), nn.Linear(8, 4))
    slow = copy.deepcopy(model).requires_grad_(False)
    found = setup(model, batches(x), slow=slow)
    step = stepping(model, found["optimizer"], lambda m, b: F.mse_loss(m(b[0]), slow(b[0]) + 1))
    return found | {"train_step": step}


def outputs_start_at_zero():
    """Outputs that begin alike have targets of their own, and part."""
    model = mlp(10, 8, 5)
    nn.init.zeros_(model[-1].weight)
    nn.init.zeros_(model[-1].bias)
    return setup(model, batches(*blobs(96, c=5)), loss_fn=nn.CrossEntropyLoss())


def two_views_pull_each_other():
    """Both sides of a distance learn, and no reward is added."""
    x, _ = numbers()

    def cost(model, batch):
        a, b = (model(batch[0] + 0.1 * torch.randn(6)) for _ in range(2))
        return F.mse_loss(a[:, 0], b[:, 0]) + F.relu(1 - a.std(0)).mean()

    return trained_by(cost, mlp(6, 8, 2), batches(x))


def batches_of_one_size():
    x, y = blobs(140)
    train = batches(x[:90], y[:90], drop_last=True)
    val = batches(x[90:], y[90:], shuffle=False, drop_last=True)
    return setup(mlp(10, 8, 3), train, loss_fn=nn.CrossEntropyLoss(), val_loader=val)


def noise_as_targets():
    """What is drawn reaches the model through another network."""
    x, _ = numbers()
    into = nn.Linear(4, 6)

    def cost(model, batch):
        code = torch.randn(len(batch[0]), 4)
        return F.mse_loss(model(batch[0] + into(code).detach()), code)

    return trained_by(cost, mlp(6, 8, 4), batches(x))


LOOKS = (
    (rebatched.whole, batches_of_one_size),
    (noise.seen, noise_as_targets),
    (teachers.in_eval_mode, slow_copy_in_train_mode),
    (stuck.units, outputs_start_at_zero),
    (bootstrapped.through, two_views_pull_each_other),
    (numeric.custom, gradient_on_purpose(Turned)),
    (numeric.custom, gradient_on_purpose(Rounded)),
    (numeric.custom, gradient_on_purpose(Within)),
    (bootstrapped.ends, no_episode_ends),
    (views.drawn_apart, views_made_by_dropout),
    (views.drawn_apart, augmented_and_rebuilt),
    (lookups.reachable, letters_and_marks),
    (masks.held_out, labels_of_some_alone),
    (loss.shares, baskets_of_goods),
    (stuck.product, branch_that_starts_at_zero),
    (encoded.own_answer, moved_in_time),
    (memory.states, last_state_is_looked_at),
    (noise.anew, noise_from_one_generator),
    (weights.silent, bias_that_cancels),
)


@pytest.mark.parametrize(("relation", "make"), LOOKS)
def test_what_only_looks_like_the_fault_is_left_alone(relation, make):
    torch.manual_seed(0)
    assert not said(relation, make())
