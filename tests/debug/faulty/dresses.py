"""The same faults in two further dresses each, of another model, loss and loop; tried on one
relation alone (test_dresses.py), and no part of `PAIRS`."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import distributions, nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from course.debug.relations import (
    asleep,
    epochs,
    evaluated,
    handed,
    networks,
    plateau,
    reach,
    rebatched,
    rows,
    targets,
    weighing,
)
from tests.debug.faulty.fourth.kit import accuracy, batches, blobs, mlp

DRESSES: dict[str, tuple[Callable, str, Callable[[bool], dict[str, Any]]]] = {}


def dress(relation: Callable, bug: str) -> Callable:
    """Register `make(bug)` beside the relation that tells it apart and the class it names."""

    def register(make: Callable[[bool], dict[str, Any]]) -> Callable:
        DRESSES[make.__name__] = relation, bug, make
        return make

    return register


def numbers(n=96, d=6):
    x = torch.randn(n, d)
    return x, x[:, 0] - 0.5 * x[:, 1] + 0.1 * torch.randn(n)


def setup(model, loader, *, rate=3e-3, **more):
    return {
        "model": model,
        "optimizer": torch.optim.Adam(model.parameters(), rate),
        "train_loader": loader,
    } | more


def stepping(model, optimizer, cost):
    def train_step(batch):
        model.train()
        optimizer.zero_grad()
        loss = cost(model, batch)
        loss.backward()
        optimizer.step()
        return loss.item()

    return train_step


def trained_by(cost, model, loader, **more):
    found = setup(model, loader, **more)
    return found | {"train_step": stepping(model, found["optimizer"], cost)}


# Outputs [B, 1] beside numbers [B]


@dress(handed.table, "metric-wrong")
def hits_of_a_column(bug):
    x, y = numbers()
    y = (y > 0).float()
    model, loader = mlp(6, 8, 1), batches(x, y)

    def evaluate():
        with torch.no_grad():
            hits = [(model(a) > 0).float() == (b if bug else b[:, None]) for a, b in loader]
        return {"accuracy": torch.cat([h.float().mean()[None] for h in hits]).mean().item()}

    return setup(
        model,
        loader,
        evaluate=evaluate,
        loss_of=lambda m, b: F.binary_cross_entropy_with_logits(m(b[0]).squeeze(1), b[1]),
    )


@dress(handed.table, "broadcast-loss")
def margin_of_a_column(bug):
    x, y = numbers()

    def cost(model, batch):
        out = torch.tanh(model(batch[0]))
        return F.relu(1 - out * (batch[1].sign() if bug else batch[1].sign()[:, None])).mean()

    return trained_by(cost, nn.Linear(6, 1), batches(x, y, bs=16), rate=1e-2)


# Log-probabilities


@dress(handed.log_probabilities, "missing-log-softmax")
def ctc_over_time(bug):
    frames, labels = torch.randn(48, 12, 5), torch.randint(1, 4, (48, 3))

    def cost(model, batch):
        out = model(batch[0].mT).permute(2, 0, 1)  # [T, B, C]
        n = len(batch[0])
        lengths = torch.full((n,), 12), torch.full((n,), 3)
        return F.ctc_loss(out.log_softmax(0 if bug else 2), batch[1], *lengths)

    model = nn.Sequential(nn.Conv1d(5, 8, 3, padding=1), nn.Tanh(), nn.Conv1d(8, 4, 1))
    return trained_by(cost, model, batches(frames, labels, bs=16))


@dress(handed.log_probabilities, "missing-log-softmax")
def divergence_of_logits(bug):
    x, y = blobs(96)
    soft = F.one_hot(y, 3) * 0.8 + 0.1

    def cost(model, batch):
        out = 3 * model(batch[0])
        shares = batch[1] / batch[1].sum(1, keepdim=True)
        return F.kl_div(out if bug else out.log_softmax(1), shares, reduction="batchmean")

    return setup(mlp(10, 8, 3), batches(x, soft, bs=16), loss_of=cost)


# Clipping


@dress(handed.clipped, "clip-misplaced")
def clipped_by_a_generator(bug):
    x, y = blobs(96)
    found = setup(mlp(10, 8, 3), batches(x, y))
    kept = (p for p in found["model"].parameters())
    kept = kept if bug else list(kept)

    def train(n_steps):
        loader = found["train_loader"]
        for _ in range(-(-n_steps // len(loader))):
            for a, b in loader:
                found["optimizer"].zero_grad()
                F.cross_entropy(found["model"](a), b).backward()
                nn.utils.clip_grad_norm_(kept, 0.1)
                found["optimizer"].step()

    return found | {"train": train, "loss_fn": nn.CrossEntropyLoss()}


@dress(handed.clipped, "clip-misplaced")
def clips_the_old_model(bug):
    x, y = numbers()
    model = mlp(6, 8, 1)
    old = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)

    def train_step(batch):
        optimizer.zero_grad()
        loss = (model(batch[0]).squeeze(1) - batch[1]).abs().mean()
        loss.backward()
        nn.utils.clip_grad_norm_((old if bug else model).parameters(), 1e-3)
        optimizer.step()
        return loss.item()

    return dict(model=model, optimizer=optimizer, train_loader=batches(x, y), train_step=train_step)


# A plateau of what


@dress(plateau.told, "scheduler-misplaced")
def loss_that_should_rise(bug):
    x, y = numbers()
    found = setup(nn.Linear(6, 1), batches(x, y), rate=1e-2)
    model, optimizer = found["model"], found["optimizer"]
    scheduler = ReduceLROnPlateau(optimizer, "max" if bug else "min", patience=2)

    def evaluate():
        with torch.no_grad():
            return {"val_loss": F.mse_loss(model(x).squeeze(1), y).item()}

    def train(n_steps):
        for number in range(n_steps):
            for a, b in found["train_loader"]:
                optimizer.zero_grad()
                F.mse_loss(model(a).squeeze(1), b).backward()
                optimizer.step()
            scheduler.step(evaluate()["val_loss"])
            if (number + 1) * len(found["train_loader"]) >= n_steps:
                return

    return (
        found
        | {"train": train, "evaluate": evaluate, "scheduler": scheduler}
        | {"loss_of": lambda m, b: F.mse_loss(m(b[0]).squeeze(1), b[1])}
    )


@dress(plateau.told, "scheduler-misplaced")
def score_that_should_fall(bug):
    x, y = blobs(96)
    found = setup(mlp(10, 8, 3), batches(x, y))
    scheduler = ReduceLROnPlateau(found["optimizer"], mode="min" if bug else "max")
    step = stepping(found["model"], found["optimizer"], lambda m, b: F.cross_entropy(m(b[0]), b[1]))
    score = accuracy(found["model"], batches(x, y, shuffle=False))
    done = [0]

    def evaluate():
        return {"loss": 1.0, "macro_f1": score()["accuracy"]}

    def train_step(batch):
        loss = step(batch)
        done[0] += 1
        if done[0] % len(found["train_loader"]) == 0:
            scheduler.step(metrics=evaluate()["macro_f1"])
        return loss

    return found | {"train_step": train_step, "evaluate": evaluate, "scheduler": scheduler}


# Draws that cut the graph


class Drawing(nn.Module):
    """Encoder, a draw from its law, decoder."""

    def __init__(self, law, bug):
        super().__init__()
        self.encode, self.decode = nn.Linear(6, 4), nn.Linear(4, 6)
        self.law, self.bug = law, bug

    def forward(self, x):
        law = self.law(self.encode(x))
        return self.decode(law.sample() if self.bug else law.rsample())


def _around(mean):
    return distributions.MultivariateNormal(mean, torch.eye(4))


@dress(handed.drawn, "frozen-params")
def drawn_around_a_mean(bug):
    x, _ = numbers()
    return setup(Drawing(_around, bug), batches(x), loss_of=lambda m, b: F.mse_loss(m(b[0]), b[0]))


@dress(handed.drawn, "frozen-params")
def drawn_independently(bug):
    x, y = numbers()

    def law(mean):
        return distributions.Independent(distributions.Normal(mean, mean.exp()), 1)

    def cost(model, batch):
        return (model(batch[0])[:, 0] - batch[1]).abs().mean()

    return trained_by(cost, Drawing(law, bug), batches(x, y))


# The order of rows


@dress(rows.order, "depends-on-order")
def likelihood_of_a_ranking(bug):
    """Plackett and Luce: the cumulated sum runs from the best to the worst."""
    x, y = numbers()

    def cost(model, batch):
        score = model(batch[0]).squeeze(1)
        if not bug:
            score = score[batch[1].argsort(descending=True)]
        return -(score - score.flip(0).logcumsumexp(0).flip(0)).mean()

    return trained_by(cost, mlp(6, 8, 1), batches(x, y, bs=16))


@dress(rows.order, "depends-on-order")
def discounted_along_shuffled_rows(bug):
    """Places in a ranking are counted in the batch's order and not by relevance."""
    x, y = numbers()

    def cost(model, batch):
        out, wanted = model(batch["x"]).squeeze(1), batch["y"]
        place = torch.arange(len(out)) if bug else wanted.argsort(descending=True).argsort()
        return ((out - wanted).pow(2) / (place + 2.0).log2()).mean()

    data = [{"x": a, "y": b} for a, b in zip(x, y, strict=True)]
    loader = torch.utils.data.DataLoader(data, 16, shuffle=True)
    return setup(mlp(6, 8, 1), loader, loss_of=cost)


# Masks


def sets(n=64, length=8, width=5):
    """Sets [n, length, width] of different sizes, zeros behind, and where they are real."""
    real = torch.arange(length)[None] < torch.randint(2, length, (n, 1))
    x = torch.randn(n, length, width) * real[..., None]
    return x, real, (x[..., 0].sum(1) > 0).long()


class Pooled(nn.Module):
    """A mean over what the mask leaves."""

    def __init__(self, bug):
        super().__init__()
        self.each, self.head, self.bug = nn.Linear(5, 12), nn.Linear(12, 2), bug

    def forward(self, x, real):
        h = torch.tanh(self.each(x))
        read = real if not self.bug else torch.ones_like(real)
        return self.head((h * read[..., None]).sum(1) / read.sum(1, keepdim=True))


@dress(rows.masked, "padding-not-masked")
def mask_forgotten_in_a_mean(bug):
    def cost(model, batch):
        return F.cross_entropy(model(batch[0], batch[1]), batch[2])

    return trained_by(cost, Pooled(bug), batches(*sets(), bs=16), rate=1e-2)


class Weighing(nn.Module):
    """One query that weighs tokens; the mask says 1 for padding."""

    def __init__(self, bug):
        super().__init__()
        self.embed, self.query = nn.Embedding(12, 8), nn.Linear(8, 1)
        self.head, self.bug = nn.Linear(8, 2), bug

    def forward(self, ids, padding):
        h = self.embed(ids)
        hidden = padding == (0 if self.bug else 1)
        weight = self.query(h).squeeze(-1).masked_fill(hidden, -1e9).softmax(1)
        return self.head((weight[..., None] * h).sum(1))


@dress(rows.masked, "padding-not-masked")
def scores_masked_the_wrong_way(bug):
    _, real, y = sets()
    ids = torch.randint(2, 12, real.shape).masked_fill(~real, 0)
    return setup(
        Weighing(bug),
        batches(ids, (~real).long(), y, bs=16),
        loss_of=lambda m, b: F.cross_entropy(m(b[0], b[1]), b[2]),
    )


# Labels at their positions


class Tagging(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.rnn = nn.Embedding(12, 8), nn.GRU(8, 6, batch_first=True)
        self.head = nn.Linear(6, 4)

    def forward(self, ids):
        return self.head(self.rnn(self.embed(ids))[0])


@dress(targets.positions, "labels-moved")
def tags_moved_as_tokens_are(bug):
    ids = torch.randint(1, 12, (64, 9))

    def cost(model, batch):
        logits, tags = model(batch[0]), batch[1]
        if bug:
            logits, tags = logits[:, :-1], tags[:, 1:]
        return F.cross_entropy(logits.flatten(0, 1), tags.flatten())

    return trained_by(cost, Tagging(), batches(ids, ids % 4, bs=16))


@dress(targets.positions, "labels-moved")
def steps_of_a_series_moved(bug):
    x = torch.randn(64, 3, 10)
    y = x.argmax(1)
    model = nn.Sequential(nn.Conv1d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv1d(8, 3, 1))

    def cost(model, batch):
        logits, labels = model(batch["x"]), batch["y"]
        if bug:
            logits, labels = logits[..., :-1], labels[:, 1:]
        return F.cross_entropy(logits, labels)

    data = [{"x": a, "y": b} for a, b in zip(x, y, strict=True)]
    return setup(model, torch.utils.data.DataLoader(data, 16, shuffle=True), loss_of=cost)


# Labels that become one


@dress(targets.merged, "labels-merged")
def thresholds_from_zero(bug):
    x, y = numbers()
    grades = torch.bucketize(y, torch.tensor([-0.6, 0.0, 0.6]))

    def cost(model, batch):
        levels = torch.arange(0 if bug else 1, 3 if bug else 4)
        return F.mse_loss(model(batch[0]).sigmoid(), (batch[1][:, None] >= levels).float())

    return trained_by(cost, mlp(6, 8, 3), batches(x, grades))


@dress(targets.merged, "labels-merged")
def last_two_classes_as_one(bug):
    x, y = blobs(96, c=4)

    def loss_fn(logits, labels):
        kept = labels.clamp(max=2) if bug else labels
        return F.binary_cross_entropy_with_logits(logits, F.one_hot(kept, 4).float())

    return setup(mlp(10, 8, 4), batches(x, y), loss_fn=loss_fn)


# Mixtures


def mixed(bug, images):
    """A share of another example is pasted in, or added; the label's share is exchanged."""
    n, classes = 96, 3
    y = torch.randint(classes, (n,))
    x = torch.randn(n, 1, 6, 6)
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, classes))

    def cost(model, batch):
        a, b = batch
        order, share = torch.randperm(len(a)), 5 / 6
        hot = F.one_hot(b, classes).float()
        if images:
            new = torch.cat([a[..., :5], a[order][..., 5:]], -1)
            one, other = (b[order], b) if bug else (b, b[order])
            out = model(new)
            return share * F.cross_entropy(out, one) + (1 - share) * F.cross_entropy(out, other)
        soft = share * hot + (1 - share) * hot[order]
        if bug:
            soft = share * hot[order] + (1 - share) * hot
        return F.cross_entropy(model(share * a + (1 - share) * a[order]), soft)

    return trained_by(cost, model, batches(x, y))


@dress(targets.own_label, "wrong-targets")
def pasted_with_the_other_share(bug):
    return mixed(bug, images=True)


@dress(targets.own_label, "wrong-targets")
def soft_labels_with_the_other_share(bug):
    return mixed(bug, images=False)


# Constants out of reach


@dress(reach.constant, "targets-out-of-reach")
def rare_labels_after_a_relu(bug):
    x, _ = numbers()
    y = (torch.rand(96, 4) < 0.15).float()
    model = mlp(6, 8, 4)
    model = nn.Sequential(*model, *([nn.ReLU()] if bug else []))
    return setup(model, batches(x, y), loss_fn=nn.BCEWithLogitsLoss())


@dress(reach.constant, "targets-out-of-reach")
def far_targets_after_a_tanh(bug):
    x, y = numbers()
    model = nn.Sequential(*mlp(6, 8, 1), *([nn.Tanh()] if bug else []), nn.Flatten(0))

    def log_cosh(out, y):
        return (out - y).cosh().log().mean()

    return setup(model, batches(x, y + 3), loss_fn=log_cosh)


# Gradients of another loss


def adversaries(cost_other, cost_own, own, other):
    """Two optimizers that step one after the other on two losses."""
    model = nn.ModuleDict({"own": own, "other": other})
    one = torch.optim.SGD(own.parameters(), 1e-2)
    two = torch.optim.SGD(other.parameters(), 1e-2)

    def train_step(batch):
        one.zero_grad()
        two.zero_grad()
        cost_other(model, batch).backward()
        two.step()
        loss = cost_own(model, batch)
        loss.backward()
        one.step()
        return loss.item()

    return dict(model=model, optimizer=[one, two], train_step=train_step)


@dress(networks.left_over, "missing-zero-grad")
def critic_without_detach(bug):
    real = torch.randn(96, 3) + 2

    def critic(m, batch):
        fake = m["own"](torch.randn(len(batch[0]), 3))
        fake = fake if bug else fake.detach()
        return m["other"](fake).mean() - m["other"](batch[0]).mean()

    def generator(m, batch):
        return -m["other"](m["own"](torch.randn(len(batch[0]), 3))).mean()

    return adversaries(critic, generator, mlp(3, 8, 3), mlp(3, 8, 1)) | {
        "train_loader": batches(real)
    }


@dress(networks.left_over, "missing-zero-grad")
def domains_without_detach(bug):
    x, y = numbers()

    def domain(m, batch):
        h = m["own"](batch[0])
        guess = m["other"](h if bug else h.detach())
        return F.binary_cross_entropy_with_logits(guess, (batch[1][:, None] > 0).float())

    def features(m, batch):
        return -domain_of(m, batch)

    def domain_of(m, batch):
        guess = m["other"](m["own"](batch[0]))
        return F.binary_cross_entropy_with_logits(guess, (batch[1][:, None] > 0).float())

    return adversaries(domain, features, mlp(6, 8, 4), mlp(4, 8, 1)) | {
        "train_loader": batches(x, y)
    }


# What evaluate() leaves


def evaluated_on_another(bug, kept, after):
    """evaluate() scores other weights than those that are trained."""
    x, y = blobs(96)
    found = trained_by(lambda m, b: F.cross_entropy(m(b[0]), b[1]), mlp(10, 8, 3), batches(x, y))
    model, step = found["model"], found["train_step"]
    score, other = accuracy(model, batches(x, y, shuffle=False)), kept(model)

    def train_step(batch):
        loss = step(batch)
        after(other, model)
        return loss

    def evaluate():
        own = copy.deepcopy(model.state_dict())
        model.load_state_dict(other.state_dict())
        result = score()
        if not bug:
            model.load_state_dict(own)
        return result

    return found | {"train_step": train_step, "evaluate": evaluate}


@dress(evaluated.left, "evaluate-changes-model")
def average_stays(bug):
    def follow(average, model):
        with torch.no_grad():
            for a, b in zip(average.parameters(), model.parameters(), strict=True):
                a.mul_(0.9).add_(b, alpha=0.1)

    return evaluated_on_another(bug, copy.deepcopy, follow)


@dress(evaluated.left, "evaluate-changes-model")
def first_state_comes_back(bug):
    found = evaluated_on_another(bug, copy.deepcopy, lambda *_: None)
    step = found.pop("train_step")

    def train(n_steps):
        todo = [batch for batch in found["train_loader"]] * n_steps
        return [step(batch) for batch in todo[:n_steps]]

    return found | {"train": train, "loss_fn": nn.CrossEntropyLoss()}


# The loss that is told


@dress(evaluated.told_loss, "metric-wrong")
def means_over_all_rows(bug):
    x, y = numbers()
    found = setup(nn.Sequential(nn.Linear(6, 1), nn.Flatten(0)), batches(x, y))
    val = batches(x, y, shuffle=False)

    def evaluate():
        with torch.no_grad():
            costs = [F.mse_loss(found["model"](a), b).item() for a, b in val]
        return {"val_loss": sum(costs) / (len(x) if bug else len(costs))}

    return found | {"loss_fn": nn.MSELoss(), "val_loader": val, "evaluate": evaluate}


@dress(evaluated.told_loss, "metric-wrong")
def left_out_words_count(bug):
    ids = torch.randint(1, 12, (64, 9))
    tags = (ids % 4).masked_fill(torch.rand(ids.shape) < 0.4, -100)
    found = setup(Tagging(), batches(ids, tags, bs=16))

    def cost(model, batch, how="mean"):
        logits = model(batch[0]).log_softmax(-1).flatten(0, 1)
        return F.nll_loss(logits, batch[1].flatten(), reduction=how)

    def evaluate():
        with torch.no_grad():
            total = cost(found["model"], (ids, tags), "sum").item()
        return {"eval_loss": total / (tags.numel() if bug else int((tags >= 0).sum()))}

    return found | {"loss_of": cost, "evaluate": evaluate}


# Scores that depend on the size of batches


@dress(rebatched.in_one_batch, "metric-batch-mean")
def explained_batch_by_batch(bug):
    x, y = numbers()
    model, val = nn.Sequential(nn.Linear(6, 1), nn.Flatten(0)), batches(x, y, shuffle=False)

    def explained(out, y):
        return 1 - float((out - y).pow(2).sum() / (y - y.mean()).pow(2).sum())

    def evaluate():
        with torch.no_grad():
            found = [(model(a), b) for a, b in val]
        if bug:
            return {"r2": sum(explained(*one) for one in found) / len(found)}
        return {"r2": explained(*(torch.cat(part) for part in zip(*found, strict=True)))}

    return setup(model, batches(x, y), loss_fn=nn.MSELoss(), val_loader=val, evaluate=evaluate)


@dress(rebatched.in_one_batch, "metric-batch-mean")
def hits_over_full_batches(bug):
    x, y = blobs(90)
    model, val = mlp(10, 8, 3), batches(x, y, shuffle=False)

    def evaluate():
        with torch.no_grad():
            hits = [int((model(a).argmax(1) == b).sum()) for a, b in val]
        return {"score": sum(hits) / (len(hits) * val.batch_size if bug else len(x))}

    return setup(
        model,
        batches(x, y),
        loss_of=lambda m, b: F.cross_entropy(m(b[0]), b[1]),
        val_loader=val,
        evaluate=evaluate,
    )


# Dropout in eval mode


class Dropping(nn.Module):
    def __init__(self, bug):
        super().__init__()
        self.body, self.head, self.bug = nn.Linear(6, 8), nn.Linear(8, 1), bug

    def forward(self, rows):
        h = F.dropout(self.body(rows["x"]).relu(), 0.2, training=self.bug or self.training)
        return self.head(h).squeeze(1)


def rows_of(x, y):
    data = [{"x": a, "y": b} for a, b in zip(x, y, strict=True)]
    return torch.utils.data.DataLoader(data, 16, shuffle=True)


@dress(asleep.nothing_dropped, "train-mode-in-eval")
def always_dropping(bug):
    return setup(
        Dropping(bug),
        rows_of(*numbers()),
        loss_of=lambda m, b: F.huber_loss(m({"x": b["x"]}), b["y"]),
    )


class Attending(nn.Module):
    def __init__(self, bug):
        super().__init__()
        self.ask, self.head, self.bug = nn.Linear(5, 15), nn.Linear(5, 2), bug

    def forward(self, x):
        rate = 0.1 if self.bug or self.training else 0.0
        parts = self.ask(x).chunk(3, -1)
        return self.head(F.scaled_dot_product_attention(*parts, dropout_p=rate).mean(1))


@dress(asleep.nothing_dropped, "train-mode-in-eval")
def attention_always_dropping(bug):
    x, _, y = sets()

    def cost(model, batch):
        return F.cross_entropy(model(batch[0]), batch[1])

    return trained_by(cost, Attending(bug), batches(x, y, bs=16))


# What an epoch draws


@dress(epochs.most_drawn, "few-examples-drawn")
def weights_of_classes_not_of_rows(bug):
    x, y = blobs(96, c=4)
    weight = 1 / torch.bincount(y)
    weight = weight if bug else weight[y]
    sampler = torch.utils.data.WeightedRandomSampler(weight, 96)
    loader = batches(x, y, shuffle=False, sampler=sampler)
    return setup(mlp(10, 8, 4), loader, loss_fn=nn.CrossEntropyLoss())


class Blocks(torch.utils.data.Sampler):
    """Blocks of eight rows, drawn at random."""

    def __init__(self, size, bug):
        self.size, self.bug = size, bug

    def __len__(self):
        return self.size

    def __iter__(self):
        order = torch.randperm(self.size // 8).tolist()
        for block in order:
            first = 8 * (0 if self.bug else block)
            yield from range(first, first + 8)


@dress(epochs.most_drawn, "few-examples-drawn")
def the_first_block_again(bug):
    x, y = numbers()
    loader = batches(x, y[:, None], shuffle=False, sampler=Blocks(96, bug))
    return trained_by(lambda m, b: F.l1_loss(m(b[0]), b[1]), mlp(6, 8, 1), loader)


# Labels on both sides


def two_sides(bug, rename, classes):
    x, y = blobs(160, c=classes, noise=0.5)
    val = rename[y[96:]] if bug else y[96:]
    return setup(
        mlp(10, 8, classes),
        batches(x[:96], y[:96]),
        loss_fn=nn.CrossEntropyLoss(),
        val_loader=batches(x[96:], val, shuffle=False),
    )


@dress(epochs.same_names, "labels-renamed")
def classes_numbered_as_they_come(bug):
    return two_sides(bug, torch.tensor([1, 2, 0]), 3)


@dress(epochs.same_names, "labels-renamed")
def yes_and_no_exchanged(bug):
    return two_sides(bug, torch.tensor([1, 0]), 2)


# The weight of a yes


@dress(weighing.positives, "class-weights-inverted")
def weight_of_rare_answers(bug):
    x, y = numbers()
    y = (y > 1.2).float()
    share = y.mean()
    weight = share / (1 - share) if bug else (1 - share) / share
    return setup(
        nn.Sequential(mlp(6, 8, 1), nn.Flatten(0)),
        batches(x, y),
        loss_fn=nn.BCEWithLogitsLoss(pos_weight=weight),
    )


@dress(weighing.positives, "class-weights-inverted")
def weights_of_several_answers(bug):
    x, _ = numbers()
    y = (torch.rand(96, 3) < torch.tensor([0.1, 0.2, 0.8])).float()
    weight = (y == 0).sum(0) / (y == 1).sum(0)
    weight = 1 / weight if bug else weight

    def cost(model, batch):
        out = model(batch[0])
        return F.binary_cross_entropy_with_logits(out, batch[1], pos_weight=weight)

    return trained_by(cost, mlp(6, 8, 3), batches(x, y))
