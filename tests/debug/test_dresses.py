"""Relations that hold for any program: two further dresses of a fault, and what only looks it."""

import pytest
import torch
import torch.nn.functional as F
from torch import distributions, nn

from course.debug.relations import (
    asleep,
    epochs,
    evaluated,
    handed,
    networks,
    reach,
    rebatched,
    rows,
    targets,
    weighing,
)
from tests.debug.faulty import (  # noqa: F401 (registers them)
    dresses_of_data,
    dresses_of_losses,
    dresses_of_steps,
    later_dresses,
)
from tests.debug.faulty.dresses import (
    DRESSES,
    Dropping,
    Tagging,
    numbers,
    rows_of,
    setup,
    trained_by,
)
from tests.debug.faulty.fourth.kit import batches, blobs, mlp
from tests.debug.told import said


@pytest.mark.parametrize("name", [*DRESSES])
def test_a_relation_breaks_in_another_dress_too_and_holds_for_the_twin(name):
    relation, bug, make = DRESSES[name]
    found = []
    for wrong in (True, False):
        torch.manual_seed(0)
        found.append(said(relation, make(wrong)))
    assert found == [[bug], []]


def test_each_relation_is_tried_in_two_dresses():
    relations = [relation for relation, _, _ in DRESSES.values()]
    assert {relations.count(relation) for relation in relations} == {2}


def ranked_in_pairs():
    x, y = numbers()

    def cost(model, batch):
        score = model(batch[0]).squeeze(1)
        return F.softplus((score[:, None] - score) * (batch[1][None] - batch[1][:, None])).mean()

    return trained_by(cost, mlp(6, 8, 1), batches(x, y))


def column_on_purpose():
    x, y = numbers()

    def cost(model, batch):
        out = model(batch[0]).squeeze(1)
        return (out[:, None] - batch[1]).abs().amin(1).mean() + (out - batch[1]).abs().mean()

    return trained_by(cost, mlp(6, 8, 1), batches(x, y))


def next_row_as_negative():
    x, _ = numbers()

    def cost(model, batch):
        out = F.normalize(model(batch[0]), dim=1)
        return F.relu(0.5 + (out * out.roll(1, 0)).sum(1) - 0.1 * out.sum(1)).mean()

    return trained_by(cost, mlp(6, 8, 4), batches(x))


def support_and_query():
    x, y = blobs(96)

    def cost(model, batch):
        a, b = model(batch[0]).chunk(2)
        near, asked = batch[1].chunk(2)
        centres = torch.stack([a[near == c].mean(0) if (near == c).any() else a.mean(0)
                               for c in range(3)])  # fmt: skip
        return F.cross_entropy(-torch.cdist(b, centres), asked)

    return trained_by(cost, mlp(10, 8, 4), batches(x, y))


def noise_in_the_loss():
    x, y = numbers()
    own = torch.Generator().manual_seed(1)

    def cost(model, batch):
        kept = (torch.rand(len(batch[1]), generator=own) < 0.8).float()
        return ((model(batch[0]).squeeze(1) - batch[1]).pow(2) * kept).mean()

    return trained_by(cost, mlp(6, 8, 1), batches(x, y))


def rows_mixed_with_the_batch_turned_round():
    x, y = numbers()

    def cost(model, batch):
        mixed, wanted = (0.7 * t + 0.3 * t.flip(0) for t in batch)
        return F.mse_loss(model(mixed).squeeze(1), wanted)

    return trained_by(cost, mlp(6, 8, 1), batches(x, y))


class TwoSentences(nn.Module):
    def __init__(self):
        super().__init__()
        self.word, self.kind, self.head = nn.Embedding(12, 8), nn.Embedding(2, 8), nn.Linear(8, 2)

    def forward(self, ids, kinds):
        return self.head((self.word(ids) + self.kind(kinds)).mean(1))


def second_sentence_is_no_padding():
    ids = torch.randint(2, 12, (64, 8))
    kinds = (torch.arange(8)[None] >= torch.randint(2, 8, (64, 1))).long()
    y = (ids.sum(1) > 52).long()
    loader = batches(ids, kinds, y, bs=16)
    return setup(TwoSentences(), loader, loss_of=lambda m, b: F.cross_entropy(m(b[0], b[1]), b[2]))


def labels_are_the_tokens():
    ids = torch.randint(1, 12, (64, 9))

    def cost(model, batch):
        logits = model(batch[0])[:, :-1]
        return F.cross_entropy(logits.flatten(0, 1), batch[1][:, 1:].flatten())

    model = Tagging()
    model.head = nn.Linear(6, 12)
    return trained_by(cost, model, batches(ids, ids.clone(), bs=16))


def bits_of_a_label():
    x, y = blobs(96, c=4)

    def cost(model, batch):
        bits = torch.stack([batch[1] // 2, batch[1] % 2], 1).float()
        return F.binary_cross_entropy_with_logits(model(batch[0]), bits)

    return trained_by(cost, mlp(10, 8, 2), batches(x, y))


def classes_that_are_not():
    """A label says what an example is not; the loss of a sure yes is large."""
    x, y = blobs(96)

    def cost(model, batch):
        return -F.nll_loss(F.log_softmax(model(batch[0]), 1), batch[1]).clamp(max=5)

    return trained_by(cost, mlp(10, 8, 3), batches(x, y))


def standardised_in_the_step():
    x, y = blobs(96)

    def cost(model, batch):
        a = (batch[0] * torch.where(torch.rand(len(batch[0]), 1) < 0.5, 0.9, 1.1) - 1) / 3
        return F.cross_entropy(model(a), batch[1], label_smoothing=0.2)

    return trained_by(cost, mlp(10, 8, 3), batches(x, y))


def rates_after_a_softplus():
    x, _ = numbers()
    y = torch.poisson(torch.full((96, 1), 0.3))
    model = nn.Sequential(mlp(6, 8, 1), nn.Softplus())
    return setup(model, batches(x, y), loss_fn=nn.PoissonNLLLoss(log_input=False))


def only_the_body_is_clipped():
    x, y = blobs(96)
    found = setup(mlp(10, 8, 3), batches(x, y))

    def train_step(batch):
        found["optimizer"].zero_grad()
        loss = F.cross_entropy(found["model"](batch[0]), batch[1])
        loss.backward()
        nn.utils.clip_grad_norm_(found["model"][0].parameters(), 0.1)
        found["optimizer"].step()
        return loss.item()

    return found | {"train_step": train_step}


def slow_and_fast_parts():
    """One optimizer steps after each part of a batch, the other after all of it."""
    x, y = numbers()
    model = nn.ModuleDict({"body": mlp(6, 8, 4), "head": nn.Linear(4, 1)})
    slow, fast = (torch.optim.SGD(model[name].parameters(), 1e-2) for name in ("body", "head"))

    def train_step(batch):
        slow.zero_grad()
        for a, b in zip(batch[0].chunk(2), batch[1].chunk(2), strict=True):
            fast.zero_grad()
            loss = F.mse_loss(model["head"](model["body"](a)).squeeze(1), b)
            loss.backward()
            fast.step()
        slow.step()
        return loss.item()

    loader = batches(x, y)
    return dict(model=model, optimizer=[slow, fast], train_loader=loader, train_step=train_step)


class Acting(nn.Module):
    """A policy whose action a critic judges; the gradient comes by log_prob."""

    def __init__(self):
        super().__init__()
        self.mean, self.critic = nn.Linear(6, 2), nn.Linear(2, 1)

    def forward(self, x):
        law = distributions.Normal(self.mean(x), 1.0)
        action = law.sample()
        return law.log_prob(action).sum(1), self.critic(action).squeeze(1)


def drawn_and_weighed_by_log_prob():
    def cost(model, batch):
        log_prob, value = model(batch[0])
        return -(log_prob * value.detach()).mean() + value.pow(2).mean()

    return trained_by(cost, Acting(), batches(numbers()[0]))


def half_a_square_is_told():
    x, y = numbers()
    model, val = nn.Sequential(nn.Linear(6, 1), nn.Flatten(0)), batches(x, y, shuffle=False)

    def evaluate():
        with torch.no_grad():
            costs = [0.5 * F.mse_loss(model(a), b).item() for a, b in val]
        return {"val_loss": sum(costs) / len(costs)}

    found = setup(model, batches(x, y), val_loader=val, evaluate=evaluate)
    return found | {"loss_of": lambda m, b: F.mse_loss(m(b[0]), b[1])}


def asked_several_times():
    """Dropout stays on and answers are averaged over passes."""
    found = setup(Dropping(True), rows_of(*numbers()))
    x, y = numbers()

    def evaluate():
        found["model"].eval()
        with torch.no_grad():
            mean = torch.stack([found["model"]({"x": x}) for _ in range(3)]).mean(0)
        return {"error": F.mse_loss(mean, y).item()}

    return found | {"evaluate": evaluate, "loss_of": lambda m, b: F.mse_loss(m(b), b["y"])}


def found_among_the_batch():
    """Retrieval: the right one of a batch is looked for, so its size matters."""
    x, _ = numbers()
    model, val = nn.Linear(6, 4), batches(x, shuffle=False)

    def evaluate():
        with torch.no_grad():
            hits = [((model(a) @ model(a + 0.5).T).argmax(1) == torch.arange(len(a))).float()
                    for (a,) in val]  # fmt: skip
        return {"recall": torch.cat(hits).mean().item()}

    found = setup(model, batches(x), val_loader=val, evaluate=evaluate)
    return found | {"loss_of": lambda m, b: -F.cosine_similarity(m(b[0]), m(b[0] + 0.5)).mean()}


def with_replacement():
    x, y = blobs(96, c=4)
    weight = torch.where(y == 0, 5.0, 1.0)
    sampler = torch.utils.data.WeightedRandomSampler(weight, 96)
    return setup(mlp(10, 8, 4), batches(x, y, shuffle=False, sampler=sampler),
                 loss_fn=nn.CrossEntropyLoss())  # fmt: skip


def labels_that_say_little():
    x, y = torch.randn(160, 10), torch.randint(2, (160,))
    return setup(mlp(10, 8, 2), batches(x[:96], y[:96]), loss_fn=nn.CrossEntropyLoss(),
                 val_loader=batches(x[96:], y[96:], shuffle=False))  # fmt: skip


def a_yes_weighs_a_little_less():
    x, y = numbers()
    loss_fn = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(0.8))
    return setup(mlp(6, 8, 1), batches(x, (y > 1.2).float()[:, None]), loss_fn=loss_fn)


def as_many_bins_as_rows():
    x, y = numbers()
    bins = torch.linspace(-2, 2, 16)

    def cost(model, batch):
        near = -(model(batch[0]) - bins).pow(2)
        return F.cross_entropy(near, (batch[1][:, None] - bins).abs().argmin(1))

    return trained_by(cost, mlp(6, 8, 1), batches(x, y, bs=16))


def standardised_advantages():
    """At the first step the ratio is 1, and the loss is 0 but for rounding."""
    x, y = numbers()

    def cost(model, batch):
        law = model(batch[0]).log_softmax(1)[:, 0]
        gain = (batch[1] - batch[1].mean()) / batch[1].std()
        return -((law - law.detach()).exp() * gain).mean()

    return trained_by(cost, mlp(6, 8, 3), batches(x, y))


def parity_of_bits():
    bits = (torch.arange(256)[:, None] >> torch.arange(8)) % 2
    bits = bits.float()[torch.randperm(256)]
    y = (bits.sum(1) % 2).long()
    return setup(mlp(8, 8, 2), batches(bits[:160], y[:160]), loss_fn=nn.CrossEntropyLoss(),
                 val_loader=batches(bits[160:], y[160:], shuffle=False))  # fmt: skip


LOOKS = {
    as_many_bins_as_rows: handed.table,
    standardised_advantages: rows.order,
    parity_of_bits: epochs.same_names,
    asked_several_times: asleep.nothing_dropped,
    found_among_the_batch: rebatched.in_one_batch,
    with_replacement: epochs.most_drawn,
    labels_that_say_little: epochs.same_names,
    a_yes_weighs_a_little_less: weighing.positives,
    ranked_in_pairs: handed.table,
    column_on_purpose: handed.table,
    next_row_as_negative: rows.order,
    support_and_query: rows.order,
    noise_in_the_loss: rows.order,
    rows_mixed_with_the_batch_turned_round: rows.order,
    second_sentence_is_no_padding: rows.masked,
    labels_are_the_tokens: targets.positions,
    bits_of_a_label: targets.merged,
    classes_that_are_not: targets.own_label,
    standardised_in_the_step: targets.own_label,
    rates_after_a_softplus: reach.constant,
    only_the_body_is_clipped: handed.clipped,
    slow_and_fast_parts: networks.left_over,
    drawn_and_weighed_by_log_prob: handed.drawn,
    half_a_square_is_told: evaluated.told_loss,
}


@pytest.mark.parametrize("make", LOOKS, ids=lambda make: make.__name__)
def test_what_only_looks_like_the_fault_is_left_alone(make):
    torch.manual_seed(0)
    assert not said(LOOKS[make], make())
