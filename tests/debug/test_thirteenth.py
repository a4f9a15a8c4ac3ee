"""A thirteenth set, by an author who had not read the doctor, with twenty sound programs.

Each relation that a fault of it asked for is tried on other dresses of the fault, and on what only
looks like it; so is each that was alarmed without a fault.
"""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from course.debug import diagnose
from course.debug.probes import frozen, schedule, structure
from course.debug.probes.session import Session
from course.debug.probes.setup import as_setup
from course.debug.relations import (
    attacked,
    carried,
    cosines,
    loss,
    padding,
    rebatched,
    scores,
    written,
)
from tests.debug.faulty import PAIRS, thirteenth
from tests.debug.faulty.thirteenth.kit import Columns, evaluating, gen, loader, mlp
from tests.debug.faulty.twelfth.kit import pack
from tests.debug.sound import SOUND
from tests.debug.sound import thirteenth as odd
from tests.debug.sound import thirteenth_loops as odd_loops
from tests.debug.told import assert_told_apart, cases, said
from tests.sampling import sample

HERE = {p.name: p for p in PAIRS if any(hasattr(part, p.name) for part in thirteenth.PARTS)}
TOLD = [name for name in HERE if name not in thirteenth.MISSED]
ODD = [name for name in SOUND if hasattr(odd, name) or hasattr(odd_loops, name)]


def test_all_programs_of_the_thirteenth_set_are_tried():
    assert len(HERE) == 40 and len(HERE) - len(TOLD) == len(thirteenth.MISSED)
    assert len(ODD) == 20  # test_diagnose diagnoses them, with the others that are sound


@pytest.mark.parametrize("name", sample(TOLD, 30))
def test_the_fault_is_named_first_and_its_twin_is_left_alone(name):
    assert_told_apart(HERE[name])


@pytest.mark.parametrize("name", [*thirteenth.MISSED])
def test_what_is_missed_is_not_said_to_be_another_fault(name):
    faulty = diagnose(HERE[name].make(True))
    assert faulty.ok, f"{thirteenth.MISSED[name]}: {faulty}"


def labelled(n=160, k=4, seed=0):
    g = gen(seed)
    x = torch.randn(n, 10, generator=g)
    return x, (x @ torch.randn(10, k, generator=g)).argmax(1)


def stepping(opt, model, cost, after=None):
    def train_step(batch):
        model.train()
        opt.zero_grad()
        loss = cost(batch)
        loss.backward()
        opt.step()
        if after is not None:
            after()
        return loss.item()

    return train_step


@cases(
    faulty=["by sign", "by step of its own", "of features"],
    sound=["grad", "cleared", "all reported", "each half", "trains in each"],
)
def test_what_an_attack_leaves_in_the_weights_is_not_used(kind, is_told):
    torch.manual_seed(0)
    model = mlp(10, 16, 4)
    opt = torch.optim.SGD(model.parameters(), 0.05)

    def train_step(batch):
        x, y = batch
        model.train()
        opt.zero_grad()
        a, costs = x, []
        rounds = 1 if kind == "each half" else 3
        for _ in range(rounds):
            a = a.detach().requires_grad_()
            cost = F.cross_entropy(model(a), y)
            costs.append(cost.item())
            if kind == "grad":
                (slope,) = torch.autograd.grad(cost, a)
            else:
                cost.backward()
                slope = a.grad
            if kind == "trains in each":
                opt.step()
                opt.zero_grad()
            move = slope / slope.norm() if kind == "by step of its own" else 0.1 * slope.sign()
            a = x + (a + move - x).clamp(-0.3, 0.3)
            if kind == "of features":
                a = torch.where(torch.arange(10) < 5, a, x)
        if kind == "cleared":
            opt.zero_grad()
        loss = F.cross_entropy(model(a.detach()), y)
        loss.backward()
        opt.step()
        return loss.item() + (sum(costs) if kind == "all reported" else 0)

    made = pack(model, opt, loader(labelled(), 16), step=train_step)
    assert bool(said(attacked.left_in, made)) == is_told


@cases(
    faulty=["micro f1", "macro recall", "precision of rows", "one label"],
    sound=["sigmoid", "above 0", "at 0.5 of shares", "threshold of its own"],
)
def test_yes_or_no_is_not_said_at_half_of_a_logit(kind, is_told):
    g = gen(1)
    torch.manual_seed(0)
    x = torch.randn(240, 10, generator=g)
    labels = 1 if kind == "one label" else 5
    y = ((x @ torch.randn(10, labels, generator=g)) > 1).float()
    model = mlp(10, 16, labels)
    tr, va = loader((x[:160], y[:160]), 16), loader((x[160:], y[160:]), 40, shuffle=False)

    def evaluate():
        with evaluating(model):
            o, t = (torch.cat(s) for s in zip(*[(model(a), b) for a, b in va], strict=True))
        if kind in ("sigmoid", "at 0.5 of shares"):
            o = o.sigmoid()
        p = o > {"above 0": 0.0, "threshold of its own": 0.2}.get(kind, 0.5)
        t = t > 0.5
        along = {"macro recall": 0, "precision of rows": 1}.get(kind, (0, 1))
        hits, false, missed = ((a & b).sum(along) for a, b in ((p, t), (p, ~t), (~p, t)))
        if "recall" in kind:
            return {"recall": (hits / (hits + missed).clamp_min(1)).mean().item()}
        if "precision" in kind:
            return {"precision": (hits / (hits + false).clamp_min(1)).mean().item()}
        return {"micro_f1": (2 * hits / (2 * hits + false + missed).clamp_min(1)).item()}

    opt = torch.optim.Adam(model.parameters(), 3e-3)
    cost = F.binary_cross_entropy_with_logits
    if kind == "at 0.5 of shares":
        cost = lambda o, t: F.binary_cross_entropy(o.sigmoid(), t)  # noqa: E731
    made = pack(model, opt, tr, loss_fn=cost, val_loader=va, evaluate=evaluate)
    assert bool(said(scores.of_labels, made)) == is_told


class Filler(nn.Module):
    """Tokens [B, T] that are read in both directions."""

    def __init__(self):
        super().__init__()
        self.e = nn.Embedding(13, 16)
        self.r = nn.GRU(16, 16, batch_first=True, bidirectional=True)
        self.o = nn.Linear(32, 13)

    def forward(self, ids):
        return self.o(self.r(self.e(ids))[0])


class Sentences(Dataset):
    def __init__(self, kind):
        self.kind, self.ids = kind, torch.randint(0, 12, (120, 10), generator=gen(3))

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        ids = self.ids[i].clone()
        labels = ids.clone() if self.kind == "copied" else ids
        masked = torch.rand(10) < 0.3
        masked[i % 10] = True
        if self.kind == "numpy":
            labels = torch.from_numpy(ids.numpy())
        if self.kind != "next token":
            ids[masked] = 12
        return {"ids": ids, "labels": labels, "masked": masked}


@cases(faulty=["item", "numpy"], sound=["copied", "next token"])
def test_labels_are_not_masked_with_the_inputs_they_share_memory_with(kind, is_told):
    torch.manual_seed(0)
    model = Filler()

    def loss_of(model, b):
        if kind == "next token":  # one tensor twice, which nobody writes into
            out = model(b["ids"][:, :-1])
            return F.cross_entropy(out.flatten(0, 1), b["labels"][:, 1:].flatten())
        return F.cross_entropy(model(b["ids"])[b["masked"]], b["labels"][b["masked"]])

    opt = torch.optim.Adam(model.parameters(), 3e-3)
    made = pack(model, opt, DataLoader(Sentences(kind), 20), loss_of)
    assert bool(said(written.masked_too, made)) == is_told


@cases(
    faulty=["added", "left out", "mean of squares"],
    sound=["new", "kept before", "spread", "scaled"],
)
def test_noise_is_not_written_into_what_is_compared(kind, is_told):
    torch.manual_seed(0)
    x = torch.randn(160, 3, generator=gen(2)) @ torch.randn(3, 12, generator=gen(4))
    model = mlp(12, 16, 12)

    def loss_of(model, batch):
        (clean,) = batch
        wanted = clean.clone() if kind == "kept before" else clean
        noise = torch.randn(clean.shape)
        if kind == "new":
            noisy = clean + noise
        elif kind == "left out":
            noisy = clean.mul_(torch.rand(clean.shape) < 0.5)
        elif kind == "spread":  # of numbers of few levels, as a density asks for
            noisy = clean.add_(torch.rand(clean.shape) / 64)
        elif kind == "scaled":
            noisy = clean.mul_(0.5)
        else:
            clean += noise
            noisy = clean
        if kind == "mean of squares":
            return (model(noisy) - wanted).pow(2).mean()
        return F.mse_loss(model(noisy), wanted)

    opt = torch.optim.Adam(model.parameters(), 3e-3)
    assert bool(said(written.noised_too, pack(model, opt, loader((x,), 16), loss_of))) == is_told


class Tuned(nn.Module):
    def __init__(self, normed=False):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(10, 16), nn.BatchNorm1d(16) if normed else nn.Identity(), nn.ReLU()
        )
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        return self.head(self.body(x))


@cases(
    faulty=["left out", "left out with batch norm", "one layer left out"],
    sound=["added", "with batch norm", "frozen for good", "another optimizer"],
)
def test_what_is_unfrozen_is_given_to_an_optimizer(kind, is_told):
    torch.manual_seed(0)
    model = Tuned(normed="batch norm" in kind)
    model.body.requires_grad_(False)
    opts = [torch.optim.SGD(model.head.parameters(), 0.05)]
    steps = [0]

    def train_step(batch):
        steps[0] += 1
        if steps[0] == 4 and kind != "frozen for good":
            model.body.requires_grad_(True)
            held = [*model.body.parameters()]
            if kind == "another optimizer":
                opts.append(torch.optim.SGD(held, 0.01))
            elif "left out" not in kind:
                opts[0].add_param_group({"params": held, "lr": 0.01})
            elif kind.startswith("one"):
                opts[0].add_param_group({"params": held[1:], "lr": 0.01})
        model.train()
        if kind == "frozen for good":
            model.body.eval()
        for opt in opts:
            opt.zero_grad()
        loss = F.cross_entropy(model(batch[0]), batch[1])
        loss.backward()
        for opt in opts:
            opt.step()
        return loss.item()

    made = pack(model, opts[0], loader(labelled(), 16), loss_fn=F.cross_entropy, step=train_step)
    alarms = [f for f in diagnose(made).alarms if f.id != "lr-too-small"]
    assert [f.id for f in alarms] == ["optimizer-stale-params"] * is_told
    assert "frozen-params-drift" not in said(frozen.frozen_drift, made)


@pytest.mark.parametrize("has_a_group", [True, False])
def test_statistics_that_move_before_a_thaw_are_a_note(has_a_group):
    """Frozen layers with a group of their own in the optimizer are going to be thawed."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))
    model[:2].requires_grad_(False)
    parts = [{"params": model[3].parameters()}, {"params": model[:2].parameters(), "lr": 1e-3}]
    opt = torch.optim.SGD(parts if has_a_group else [*model.parameters()], 0.05)
    made = pack(model, opt, loader(labelled(), 16), loss_fn=F.cross_entropy)
    (found,) = frozen.frozen_drift(Session(as_setup(made)))
    assert found.severity == ("note" if has_a_group else "warning")


@pytest.mark.parametrize("is_frozen_then", [True, False])
def test_what_moves_while_it_is_frozen_is_still_told(is_frozen_then):
    """Momentum goes on moving what is frozen again; unfrozen, it may."""
    torch.manual_seed(0)
    model = Tuned()
    model.body.requires_grad_(False)
    opt = torch.optim.SGD(model.parameters(), 0.05)

    def train_step(batch):
        opt.zero_grad()
        model.body.requires_grad_(not is_frozen_then)
        if is_frozen_then:
            for p in model.body.parameters():
                p.grad = torch.ones_like(p)
        loss = F.cross_entropy(model(batch[0]), batch[1])
        loss.backward()
        opt.step()
        return loss.item()

    made = pack(model, opt, loader(labelled(), 16), loss_fn=F.cross_entropy, step=train_step)
    assert bool(said(frozen.frozen_drift, made)) == is_frozen_then


@cases(
    faulty=["rmse", "mae", "mse, by hand"],
    sound=["back", "scaled", "raw", "scaled back by the model"],
)
def test_an_error_has_the_unit_of_its_targets(kind, is_told):
    torch.manual_seed(0)
    x = torch.randn(240, 6, generator=gen(5))
    y = (300 + 60 * x @ torch.randn(6, generator=gen(6)))[:, None]
    mean, std = y.mean(), y.std()

    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.f = mlp(6, 16, 1)

        def forward(self, a):
            out = self.f(a)
            return out if self.training or kind != "scaled back by the model" else out * std + mean

    model = Scaled()
    tr, va = loader((x[:160], y[:160]), 16), loader((x[160:], y[160:]), 40, shuffle=False)

    def loss_fn(o, t):
        if kind == "raw":
            return F.mse_loss(o, t)
        wanted = (t - mean) / std
        return (o - wanted).pow(2).mean() if "by hand" in kind else F.mse_loss(o, wanted)

    def evaluate():
        with evaluating(model):
            o, t = (torch.cat(s) for s in zip(*[(model(a), b) for a, b in va], strict=True))
        if kind == "back":
            o = o * std + mean
        if kind == "scaled":
            t = (t - mean) / std
        if kind == "mae":
            return {"val_mae": (o - t).abs().mean().item()}
        mse = (o - t).pow(2).mean()
        return {"val_mse": mse.item()} if "mse," in kind else {"val_rmse": mse.sqrt().item()}

    opt = torch.optim.Adam(model.parameters(), 3e-3)
    made = pack(model, opt, tr, loss_fn=loss_fn, val_loader=va, evaluate=evaluate)
    assert bool(said(scores.in_units, made)) == is_told


@cases(faulty=["itself"], sound=["another", "dropout", "seen once", "now and then"])
def test_an_example_is_not_its_own_partner(kind, is_told):
    torch.manual_seed(0)
    x = torch.randn(160, 10)
    partner = {
        "another": x.roll(1, 0),
        "now and then": torch.where(torch.rand(160, 1) < 0.9, x, -x),
    }
    model = mlp(10, 16, 8, drop=0.1 if kind == "dropout" else 0)

    def loss_of(model, b):
        if kind == "seen once":
            return (model(b["x"]) - b["partner"][:, :8]).pow(2).mean()
        return F.triplet_margin_loss(*(model(b[k]) for k in ("x", "partner", "other")))

    rows = Columns(x=x, partner=partner.get(kind, x.clone()), other=x.roll(5, 0))
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    assert bool(said(loss.twice, pack(model, opt, loader(rows, 16), loss_of))) == is_told


class Carrier(nn.Module):
    def __init__(self, cell):
        super().__init__()
        self.r = cell(4, 8)
        self.o = nn.Linear(8, 3)

    def forward(self, x, state=None):
        if not isinstance(self.r, nn.RNNCellBase):
            out, state = self.r(x, state)
            return self.o(out), state
        outs = []
        for now in x:
            state = self.r(now, state)
            outs.append(state)
        return self.o(torch.stack(outs)), state


@cases(
    faulty=["gru", "lstm", "cell"], sound=["in order", "no state", "one sequence in parts", "zeros"]
)
def test_a_state_is_not_carried_through_a_shuffled_loader(kind, is_told):
    torch.manual_seed(0)
    cell = {"lstm": nn.LSTM, "cell": nn.GRUCell}.get(kind, nn.GRU)
    chunks = [(torch.randn(6, 5, 4), torch.randint(3, (6, 5))) for _ in range(12)]
    batches = DataLoader(chunks, batch_size=None, shuffle=kind != "in order")
    model, kept = Carrier(cell), [None]
    opt = torch.optim.Adam(model.parameters(), 3e-3)

    def train_step(batch):
        x, y = batch
        state, costs = None if kind in ("no state", "one sequence in parts") else kept[0], []
        if kind == "zeros":
            state = torch.zeros(1, 5, 8)
        for a, b in zip(x.chunk(2), y.chunk(2), strict=True):
            out, state = model(a, state)
            costs.append(F.cross_entropy(out.flatten(0, 1), b.flatten()))
        kept[0] = tuple(s.detach() for s in state) if kind == "lstm" else state.detach()
        opt.zero_grad()
        sum(costs).backward()
        opt.step()
        return sum(costs).item()

    made = pack(model, opt, batches, step=train_step)
    assert bool(said(carried.in_order, made)) == is_told


@cases(faulty=["largest of each batch"], sound=["own draws", "one draw"])
def test_a_score_that_draws_for_each_batch_is_not_compared_with_another(kind, is_told):
    torch.manual_seed(0)
    x, y = labelled(230)
    model = mlp(10, 16, 4)
    tr, va = loader((x[:160], y[:160]), 16), loader((x[160:], y[160:]), 60, shuffle=False)

    def evaluate():
        g = gen(7)
        fixed, costs, counts = torch.randn(10, generator=g), [], []
        with evaluating(model):
            for a, _ in va:
                noise = fixed if kind != "own draws" else torch.randn(a.shape, generator=g)
                cost = (model(a + noise) - model(a)).pow(2).mean()
                costs.append(cost if "largest" not in kind else a.max())
                counts.append(len(a))
        total = sum(c * n for c, n in zip(costs, counts, strict=True))
        return {"val_mse": total.item() / sum(counts)}

    opt = torch.optim.Adam(model.parameters(), 3e-3)
    made = pack(model, opt, tr, loss_fn=F.cross_entropy, val_loader=va, evaluate=evaluate)
    assert bool(said(rebatched.in_one_batch, made)) == is_told


@cases(faulty=["no factor"], sound=["learned by the loss", "learned in the model"])
def test_a_factor_that_the_loss_learns_counts(kind, is_told):
    torch.manual_seed(0)
    x, y = labelled(k=12)

    class Proxies(nn.Module):
        def __init__(self):
            super().__init__()
            self.p = nn.Parameter(torch.randn(12, 6))
            self.factor = nn.Parameter(torch.zeros(()), requires_grad="loss" in kind)

        def forward(self, z, y):
            cosines = F.normalize(z, dim=1) @ F.normalize(self.p, dim=1).T
            return F.cross_entropy(cosines * (self.factor.exp() if "loss" in kind else 1), y)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.f, self.p = mlp(10, 16, 6), nn.Parameter(torch.randn(12, 6))
            self.factor = nn.Parameter(torch.zeros(()))

        def forward(self, a):
            return self.factor.exp() * F.normalize(self.f(a), dim=1) @ F.normalize(self.p, dim=1).T

    model, loss_fn = mlp(10, 16, 6), Proxies()
    if kind == "learned in the model":
        model, loss_fn = Net(), nn.CrossEntropyLoss()
    opt = torch.optim.Adam([*model.parameters(), *loss_fn.parameters()], 3e-3)
    made = pack(model, opt, loader((x, y), 16), loss_fn=loss_fn)
    assert bool(said(cosines.scaled, made)) == is_told


@cases(faulty=["before the optimizer", "by epoch"], sound=["by batch", "heard"])
def test_a_schedule_whose_step_was_taken_as_a_function_is_heard(kind, is_told):
    torch.manual_seed(0)
    model = mlp(10, 16, 4)
    opt = torch.optim.SGD(model.parameters(), 0.05)
    sch = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, 10, 2)
    taken, steps = sch.step, [0]
    batches = loader(labelled(), 16)

    def train_step(batch):
        steps[0] += 1
        if kind == "before the optimizer":
            taken()
        loss = F.cross_entropy(model(batch[0]), batch[1])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if kind == "heard":
            sch.step()
        elif kind == "by batch" or (kind == "by epoch" and steps[0] % len(batches) == 0):
            taken()
        return loss.item()

    made = pack(
        model, opt, batches, loss_fn=F.cross_entropy, step=train_step, scheduler=sch,
        declared={"scheduler_unit": "batch"},
    )  # fmt: skip
    assert bool(said(schedule.schedule, made)) == is_told


@cases(faulty=["padded"], sound=["sorted", "sorted, no prompt"])
def test_labels_that_end_in_one_class_are_no_padding(kind, is_told):
    """The answer is the sorted prompt, so that most end in the last class; or rows are padded."""
    torch.manual_seed(0)
    prompt = torch.randint(1, 12, (160, 9), generator=gen(8))
    labels = prompt.sort(1)[0]
    if kind == "padded":
        behind = torch.arange(9) >= torch.randint(4, 8, (160, 1), generator=gen(9))
        prompt, labels = prompt.masked_fill(behind, 0), labels.masked_fill(behind, 0)
    if kind == "sorted":
        labels[:, :4] = -100
    model = Filler()

    def loss_of(model, b):
        return F.cross_entropy(model(b["ids"]).flatten(0, 1), b["labels"].flatten())

    opt = torch.optim.Adam(model.parameters(), 3e-3)
    made = pack(model, opt, loader(Columns(ids=prompt, labels=labels), 16), loss_of)
    assert bool(said(padding.behind, made)) == is_told


def test_a_head_alone_may_train_on_a_body_that_stays_as_it_is():
    torch.manual_seed(0)
    model = Tuned()
    opt = torch.optim.SGD(model.head.parameters(), 0.05)
    made = pack(model, opt, loader(labelled(), 16), loss_fn=F.cross_entropy)
    assert [f.severity for f in structure.membership(_session(made))] == ["note"]


def _session(made):
    from course.debug.probes.session import Session
    from course.debug.probes.setup import as_setup

    return Session(as_setup(made))
