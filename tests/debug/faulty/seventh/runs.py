"""Pairs whose fault lies in the run: schedules, averages, checkpoints, evaluation."""

import copy

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.swa_utils import update_bn
from torch.utils.data import DataLoader, TensorDataset

from tests.debug.faulty.kit import pair
from tests.debug.faulty.seventh.kit import saved, texts
from tests.debug.faulty.sixth.kit import (
    accuracy,
    blobs,
    loaders,
    looped,
    mlp,
    of_pairs,
    setup,
    stepper,
)


@pair("scheduler-misplaced", "lr-too-small")
def plateau_of_accuracy(bug):
    """ReduceLROnPlateau is left at mode="min" and stepped with the validation accuracy: every
    improvement counts as a failure. Costs the learning rate falls while all is well, training
    freezes early."""
    x, y = blobs(n=288, k=5, spread=1.6, seed=15)
    loader, held = loaders(x, y, val=64)
    model = mlp(k=5)
    opt = torch.optim.SGD(model.parameters(), 0.02, momentum=0.5)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(
        opt, mode="min" if bug else "max", factor=0.2, patience=1
    )
    loss_fn = nn.CrossEntropyLoss()
    step = stepper(model, opt, of_pairs(loss_fn))
    evaluate = accuracy(model, held)
    return setup(
        model,
        opt,
        loader,
        held,
        loss_fn=loss_fn,
        num_classes=5,
        scheduler=schedule,
        train_step=step,
        evaluate=evaluate,
        train=looped(loader, step, lambda: schedule.step(evaluate()["accuracy"])),
        declared={"scheduler_unit": "epoch"},
        **saved(model=model, optimizer=opt, schedule=schedule),
    )


@pair("average-without-statistics")
def averaged_weights(bug):
    """The mean of the weights (SWA) is used without update_bn: its batch norm still has mean 0 and
    variance 1 of the beginning. Costs the averaged model, the one that is evaluated and shipped, is
    far worse than the model."""
    x, y = blobs(n=288, k=4, spread=1.5, seed=21)
    x = x * torch.tensor([1.0, 5, 0.2, 1, 9, 1, 1, 3]) + torch.tensor([4.0, 0, 1, -6, 0, 8, 0, 2])
    loader, held = loaders(x, y)
    model = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4))
    average = copy.deepcopy(model).requires_grad_(False)
    rounds = 0
    opt = torch.optim.SGD(model.parameters(), 0.02, momentum=0.9)
    loss_fn = nn.CrossEntropyLoss()
    step = stepper(model, opt, of_pairs(loss_fn))

    def average_in():
        nonlocal rounds
        rounds += 1
        with torch.no_grad():
            for p, q in zip(average.parameters(), model.parameters(), strict=True):
                p.add_((q - p) / rounds)
        if not bug:
            update_bn(x[:-32].split(64), average)

    if not bug:
        update_bn(x[:-32].split(64), average)
    return setup(
        model,
        opt,
        loader,
        held,
        loss_fn=loss_fn,
        num_classes=4,
        train_step=step,
        train=looped(loader, step, average_in),
        evaluate=accuracy(average, held),
        extra={"average": average},
    )


@pair("checkpoint-incomplete")
def resumed_run(bug):
    """save writes the state of the DataParallel wrapper, whose names begin with "module."; load
    reads it with strict=True into the bare model: no name fits, nothing is said. Costs a resumed
    run starts from the weights it happens to have."""
    x, y = blobs(n=224, k=4, spread=1.5, seed=31)
    loader, held = loaders(x, y)
    model = mlp()
    wrapped = nn.DataParallel(model)
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    schedule = torch.optim.lr_scheduler.StepLR(opt, 40, 0.5)
    loss_fn = nn.CrossEntropyLoss()

    def train_step(batch):
        model.train()
        opt.zero_grad()
        loss = loss_fn(wrapped(batch[0]), batch[1])
        loss.backward()
        opt.step()
        schedule.step()
        return loss.item()

    def save(path=None):
        state = {
            "model": {k: v.clone() for k, v in wrapped.state_dict().items()},
            "optimizer": copy.deepcopy(opt.state_dict()),
            "schedule": copy.deepcopy(schedule.state_dict()),
        }
        if path is not None:
            torch.save(state, path)
        return state

    def load(state):
        state = state if isinstance(state, dict) else torch.load(state)
        weights = state["model"]
        if not bug:
            weights = {k.removeprefix("module."): v for k, v in weights.items()}
        model.load_state_dict(weights, strict=False)
        opt.load_state_dict(copy.deepcopy(state["optimizer"]))
        schedule.load_state_dict(state["schedule"])

    return setup(
        model,
        opt,
        loader,
        held,
        step=train_step,
        loss_fn=loss_fn,
        scheduler=schedule,
        save=save,
        load=load,
        evaluate=accuracy(model, held),
        declared={"scheduler_unit": "batch"},
    )


@pair("metric-batch-mean")
def frauds_found(bug):
    """F1 of the rare class is computed per batch of 8 and averaged; most batches hold one positive
    or none, and those without count as 0. Costs the reported F1 depends on the batch size and is
    far too low; models are ranked wrongly."""
    g = torch.Generator().manual_seed(13)
    x = torch.randn(416, 8, generator=g)
    y = ((x[:, 0] + x[:, 1] + 0.3 * torch.randn(416, generator=g)) > 1.9).float()[:, None]
    loader = DataLoader(TensorDataset(x[:256], y[:256]), 32, shuffle=True)
    held = DataLoader(TensorDataset(x[256:], y[256:]), 8)
    model = mlp(k=1)
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    loss_fn = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(3.0))
    step = stepper(model, opt, of_pairs(loss_fn))

    def f1(found, true):
        hits = (found & true).sum().item()
        return 2 * hits / max(found.sum().item() + true.sum().item(), 1)

    def evaluate():
        model.eval()
        with torch.no_grad():
            pairs = [(model(a) > 0, b > 0.5) for a, b in held]
        model.train()
        if bug:
            return {"f1": sum(f1(p, t) for p, t in pairs) / len(pairs)}
        return {"f1": f1(torch.cat([p for p, _ in pairs]), torch.cat([t for _, t in pairs]))}

    return setup(
        model,
        opt,
        loader,
        held,
        step=step,
        loss_fn=loss_fn,
        task="binary",
        evaluate=evaluate,
        **saved(model=model, optimizer=opt),
    )


@pair("memory-shared", "checkpoint-by-reference")
def hospitals_together(bug):
    """Federated averaging keeps each client's `worker.state_dict()` without a copy; they are all
    the one worker's memory, so the average of three is the last one's weights. Costs the other
    hospitals' training is thrown away, their classes are not learnt."""
    x, y = blobs(n=400, k=3, spread=1.8, seed=17)
    parts = []
    for c in range(3):
        rows = torch.nonzero((y[:300] == c) | (torch.arange(300) % 30 == 0))[:90, 0]
        rows = rows[torch.randperm(len(rows))][:80]
        parts.append(rows)
    xs, ys = torch.stack([x[r] for r in parts], 1), torch.stack([y[r] for r in parts], 1)
    loader = DataLoader(TensorDataset(xs, ys), 16, shuffle=True)
    held = DataLoader(TensorDataset(x[300:], y[300:]), 25)
    model, worker = mlp(k=3), mlp(k=3)
    opt = torch.optim.SGD(model.parameters(), 1.0)

    def train_step(batch):
        """One round: each hospital makes three steps on its rows of the batch ([rows,
        hospital])."""
        states, losses = [], []
        for c in range(3):
            worker.load_state_dict(model.state_dict())
            local = torch.optim.SGD(worker.parameters(), 0.1)
            for _ in range(3):
                loss = F.cross_entropy(worker(batch[0][:, c]), batch[1][:, c])
                local.zero_grad()
                loss.backward()
                local.step()
            losses.append(loss.item())
            state = worker.state_dict()
            states.append(state if bug else {k: v.clone() for k, v in state.items()})
        opt.zero_grad()
        for name, p in model.named_parameters():
            p.grad = p.detach() - sum(s[name] for s in states) / len(states)
        opt.step()
        return sum(losses) / 3

    return setup(
        model,
        opt,
        loader,
        held,
        step=train_step,
        num_classes=3,
        evaluate=accuracy(model, held),
        extra={"worker": worker},
    )


class TiedSpeaker(nn.Module):
    def __init__(self, vocab, d=24):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.rnn = nn.GRU(d, d, batch_first=True)
        self.out = nn.Linear(d, vocab, bias=False)
        self.out.weight = self.emb.weight
        nn.init.normal_(self.emb.weight, std=0.2)

    def widen(self, vocab):
        old = self.emb.weight.data
        self.emb = nn.Embedding(vocab, old.shape[1])
        nn.init.normal_(self.emb.weight, std=0.2)
        self.emb.weight.data[: len(old)] = old
        self.out = nn.Linear(old.shape[1], vocab, bias=False)
        self.out.weight = self.emb.weight

    def forward(self, x):
        return self.out(self.rnn(self.emb(x))[0])


@pair("optimizer-stale-params", "optimizer-holds-another")
def vocabulary_widened(bug):
    """The vocabulary is widened by two words after the optimizer was made: it holds the old (tied)
    embedding, the model uses the new one. Costs embedding and output layer never learn."""
    text = texts(224)
    loader, held = loaders(text[:, :-1], text[:, 1:])
    model = TiedSpeaker(10)
    if not bug:
        model.widen(12)
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    if bug:
        model.widen(12)

    def loss_fn(logits, target):
        return F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=0)

    def evaluate():
        with torch.no_grad():
            hit = torch.cat([(model(a).argmax(-1) == b)[b > 0].float() for a, b in held])
        return {"next_token_accuracy": hit.mean().item()}

    step = stepper(model, opt, of_pairs(loss_fn))
    return setup(
        model,
        opt,
        loader,
        held,
        step=step,
        loss_fn=loss_fn,
        evaluate=evaluate,
        **saved(model=model, optimizer=opt),
    )
