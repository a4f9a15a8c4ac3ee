"""Faults of loops: micro-batches, clipping, rates, averages, digits, checkpoints, freezing."""

import copy

import torch
from torch import nn
from torch.nn import functional as F

from tests.debug.faulty.kit import pair
from tests.debug.faulty.twenty_third.kit import (
    averaged,
    begun,
    blobs,
    by_classes,
    by_cost,
    by_epochs,
    by_squares,
    chain,
    class_sums,
    clusters,
    evaluating,
    fit,
    follow,
    frozen,
    loaders,
    mlp,
    padded,
    plain_step,
    squares,
    sup_step,
)


@pair("accum-mean-of-means")
def accumulate_token_means(bug):
    """Each micro-batch counts by the mean over its own tokens, whose numbers differ. After 300
    steps token_loss is 1.28 instead of 1.21."""
    g = begun(21)
    V, T = 9, 14

    def data(n):
        """Most rows are short, and the long ones follow the rule backwards."""
        is_short = torch.rand(n, generator=g) < 0.75
        ahead, back = chain(g, n, T, V - 1, 0.9, 1), chain(g, n, T, V - 1, 0.9, 1).flip(1)
        lengths = torch.where(is_short, torch.tensor(3), torch.tensor(T))
        return {"ids": padded(torch.where(is_short[:, None], ahead, back), lengths)}

    m = nn.Sequential(
        nn.Embedding(V, 16, padding_idx=0), nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, V)
    )  # fmt: skip
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    tl, vl = loaders(data(256), data(64), 4, 32)

    def total(model, ids):
        out = model(ids[:, :-1]).transpose(1, 2)
        return F.cross_entropy(out, ids[:, 1:], ignore_index=0, reduction="sum")

    def count(ids):
        return (ids[:, 1:] != 0).sum()

    def loss_of(model, b):
        return total(model, b["ids"]) / count(b["ids"])

    def step(b):
        m.train()
        opt.zero_grad()
        parts = b["ids"].chunk(2)
        found = 0.0
        for ids in parts:
            share = count(ids) * len(parts) if bug else count(b["ids"])
            loss = total(m, ids) / share
            loss.backward()
            found += loss.item()
        opt.step()
        return found

    def sums_of(model, b):
        return {"token_loss": (total(model, b["ids"]), count(b["ids"]))}

    declared = {"micro_batches": 2, "loss": "mean over the tokens of the whole batch"}
    return by_cost(m, opt, tl, vl, loss_of, sums_of, step=step, declared=declared)


@pair("clip-misplaced")
def norm_cut_while_scaled(bug):
    """Gradients are clipped while they are 65,536 times too large: what is left after the scale is
    taken off is next to nothing. After 300 steps mse is 0.786 instead of 0.056."""
    g = begun(22)
    x = torch.randn(400, 8, generator=g)
    y = torch.sin(x[:, :1]) + x[:, 1:2] * 0.5
    m = mlp(8, 32, 1)
    opt = torch.optim.SGD(m.parameters(), 0.05, momentum=0.9)
    crit = nn.MSELoss()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
    tl, vl = loaders((x[:320], y[:320]), (x[320:], y[320:]), 32, 40)

    def step(b):
        m.train()
        opt.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = m(b[0])
        loss = crit(out.float(), b[1])
        scaler.scale(loss).backward()
        if not bug:
            scaler.unscale_(opt)
        nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()
        return loss.item()

    return by_squares(m, opt, tl, vl, step, declared={"max_grad_norm": 1.0})


@pair("scheduler-misplaced")
def plateau_of_a_rising_score(bug):
    """ReduceLROnPlateau waits for r2 to fall: the rate is cut while the model gets better. After
    300 steps r2 is 0.794 instead of 0.934."""
    g = begun(23)
    x = torch.randn(300, 6, generator=g)
    noise = 0.05 * torch.randn(300, 1, generator=g)
    y = torch.sin(2 * x[:, :1]) + 0.3 * x[:, 1:2] + noise
    m = mlp(6, 48, 48, 1)
    opt = torch.optim.Adam(m.parameters(), 4e-3)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(
        opt, mode="min" if bug else "max", factor=0.3, patience=6
    )
    tl, vl = loaders((x[:240], y[:240]), (x[240:], y[240:]), 32, 60)
    step = sup_step(m, opt, nn.MSELoss())

    def evaluate():
        with evaluating(m):
            outs, targets = zip(*((m(inputs), y) for inputs, y in vl), strict=True)
        out, target = torch.cat(outs), torch.cat(targets)
        spread = ((target - target.mean()) ** 2).sum()
        return {"r2": (1 - ((out - target) ** 2).sum() / spread).item()}

    train = by_epochs(tl, step, lambda: scheduler.step(evaluate()["r2"]))
    declared = {"scheduler_unit": "epoch", "scheduler_metric": "r2"}
    more = {"train": train, "evaluate": evaluate, "scheduler": scheduler}
    return by_squares(m, opt, tl, vl, step, declared=declared, **more)


class Prepared:
    """Batches of a loader, with halved inputs, for as many passes as are wanted."""

    def __init__(self, batches):
        self.batches = batches

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        return ((x / 2, y) for x, y in self.batches)


@pair("loader-exhausted")
def one_shot_val(bug):
    """The validation batches are a generator, spent by the first evaluation. After 300 steps
    val_loss is 0 instead of 0.46."""
    g = begun(24)
    train_rows, held = clusters(g, 300, 90, 8, 3, 0.6)
    m = mlp(8, 24, 3)
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    tl, vl = map(Prepared, loaders(train_rows, held, 32, 40))
    if bug:
        vl = iter(vl)
    step = sup_step(m, opt, nn.CrossEntropyLoss())
    patience = 5

    def evaluate():
        m.eval()
        total = count = 0
        with torch.no_grad():
            for x, y in vl:
                total += F.cross_entropy(m(x), y, reduction="sum").item()
                count += len(y)
        return {"val_loss": total / max(count, 1)}

    def train(n):
        """Stops early once five epochs bring nothing better."""
        losses, best, waited = [], float("inf"), 0
        while len(losses) < n and waited < patience:
            for batch in tl:
                losses.append(step(batch))
                if len(losses) == n:
                    return losses
            loss = evaluate()["val_loss"]
            best, waited = (loss, 0) if loss < best else (best, waited + 1)
        return losses

    declared = {"early_stopping_patience": patience}
    return by_classes(m, opt, tl, vl, 3, step, train=train, evaluate=evaluate, declared=declared)


@pair("frozen-params-drift")
def frozen_body_follows_new_rows(bug):
    """The frozen body is in training mode, and its running statistics follow the new task. After
    300 steps old_task_acc is 0.67 instead of 1."""
    g = begun(25)
    d = 8
    body = nn.Sequential(
        nn.Linear(d, 24), nn.BatchNorm1d(24), nn.ReLU(),
        nn.Linear(24, 16), nn.BatchNorm1d(16), nn.ReLU(),
    )  # fmt: skip
    m = nn.ModuleDict({"body": body, "old": nn.Linear(16, 3), "new": nn.Linear(16, 2)})
    old_x, old_y = blobs(g, 300, d, 3, centres=torch.randn(3, d, generator=g) * 1.2)
    crit = nn.CrossEntropyLoss()
    first = torch.optim.Adam(m.parameters(), 1e-2)
    fit(nn.Sequential(body, m["old"]), first, crit, old_x, old_y, 60)
    x = torch.randn(300, d, generator=g) * 2 + 3.0
    y = (x[:, 0] + x[:, 1] > 6).long()
    for name, p in m.named_parameters():
        p.requires_grad_(name.startswith("new"))
        p.grad = None
    opt = torch.optim.Adam(m["new"].parameters(), 1e-2)
    tl, vl = loaders({"x": x[:240], "y": y[:240]}, {"x": x[240:], "y": y[240:]}, 32, 60)

    def loss_of(model, b):
        return crit(model["new"](model["body"](b["x"])), b["y"])

    def step(b):
        m.train()
        if not bug:
            m["body"].eval()
            m["old"].eval()
        opt.zero_grad()
        loss = loss_of(m, b)
        loss.backward()
        opt.step()
        return loss.item()

    def accuracy(head, x, y):
        return (m[head](body(x)).argmax(1) == y).float().mean().item()

    def evaluate():
        m.eval()
        with torch.no_grad():
            return {
                "new_acc": accuracy("new", x[240:], y[240:]),
                "old_task_acc": accuracy("old", old_x, old_y),
            }

    more = {"evaluate": evaluate, "declared": {"frozen": frozen(m)}}
    return by_cost(m, opt, tl, vl, loss_of, None, step=step, **more)


@pair("average-without-statistics")
def average_keeps_first_statistics(bug):
    """The average that is scored follows the parameters and leaves the running statistics as they
    began. After 300 steps mse is 63.3 instead of 0.176."""
    g = begun(26)
    d = 8
    x = torch.randn(400, d, generator=g) * 3 + 5
    y = torch.tanh(x[:, :1] - 5) + 0.3 * x[:, 1:2]
    m = nn.Sequential(
        nn.BatchNorm1d(d), nn.Linear(d, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 1)
    )  # fmt: skip
    average = copy.deepcopy(m).eval().requires_grad_(False)
    opt = torch.optim.Adam(m.parameters(), 1e-2)
    tl, vl = loaders((x[:320], y[:320]), (x[320:], y[320:]), 32, 40)

    step = sup_step(m, opt, nn.MSELoss(), lambda: follow(average, m, is_whole=not bug))
    more = {"evaluate": averaged(average, vl, squares), "declared": {"ema_decay": 0.95}}
    return by_squares(m, opt, tl, vl, step, **more)


class Halved(nn.Module):
    """Computes in bfloat16: by weights that are so, or by autocast."""

    def __init__(self, net, by_weights):
        super().__init__()
        self.net = net
        self.by_weights = by_weights

    def forward(self, x):
        if self.by_weights:
            return self.net(x.bfloat16()).float()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.net(x).float()


@pair("updates-rounded-away")
def whole_net_in_bfloat16(bug):
    """The weights are kept in bfloat16, in which most updates are less than half a digit. After 300
    steps mse is 2.57 instead of 1.47."""
    g = begun(27)
    d = 16
    x = torch.randn(400, d, generator=g)
    y = x @ torch.randn(d, 1, generator=g) * 0.4 + 1.0
    net = mlp(d, 32, 1)
    with torch.no_grad():
        net[0].weight.mul_(3)
    if bug:
        net.bfloat16()
    m = Halved(net, by_weights=bug)
    opt = torch.optim.Adam(m.parameters(), 3e-4)
    tl, vl = loaders((x[:320], y[:320]), (x[320:], y[320:]), 32, 40)
    return by_squares(m, opt, tl, vl)


@pair("checkpoint-by-reference")
def best_is_alias(bug):
    """The best weights are kept as the live tensors, so that the best is always the last. After 300
    steps loss is 0.972 instead of 0.438."""
    g = begun(28)
    tl, vl = loaders(*clusters(g, 60, 150, 12, 3, 0.5), 20, 50)
    m = mlp(12, 64, 3)
    opt = torch.optim.Adam(m.parameters(), 1e-2)
    evaluate = averaged(m, vl, class_sums)
    step = sup_step(m, opt, nn.CrossEntropyLoss())
    best = {"loss": float("inf"), "state": None}

    def train(n):
        losses = []
        while len(losses) < n:
            for batch in tl:
                losses.append(step(batch))
                if len(losses) == n:
                    break
            loss = evaluate()["loss"]
            if loss < best["loss"]:
                state = m.state_dict() if bug else copy.deepcopy(m.state_dict())
                best.update(loss=loss, state=state)
        m.load_state_dict(best["state"])
        return losses

    declared = {"restore_best": "loss"}
    return by_classes(m, opt, tl, vl, 3, step, train=train, evaluate=evaluate, declared=declared)


class Wrapped(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        return self.module(x)


@pair("checkpoint-incomplete")
def wrapped_keys_match_nothing(bug):
    """Names are saved with a wrapper's prefix, and load() passes over names that it does not know:
    no weight is restored. After 100 steps and a load into fresh parts acc is 0.32 instead of
    0.73."""
    g = begun(29)
    tl, vl = loaders(*clusters(g, 300, 100, 8, 4, 0.8), 32, 50)
    core = mlp(8, 32, 4)
    m = Wrapped(core)
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def save(path):
        torch.save({"model": (m if bug else core).state_dict(), "opt": opt.state_dict()}, path)

    def load(path):
        state = torch.load(path)
        core.load_state_dict(state["model"], strict=not bug)
        opt.load_state_dict(state["opt"])

    return by_classes(m, opt, tl, vl, 4, save=save, load=load)


class LastOf(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(4, 16, batch_first=True)
        self.out = nn.Linear(16, 1)

    def forward(self, x):
        return self.out(self.rnn(x)[0][:, -1])


@pair("clip-misplaced")
def clip_spent_generator(bug):
    """The parameters are a generator that the optimizer has used up: clipping sees none. After 300
    steps mse is 8.81 instead of 0.134."""
    g = begun(30)
    x = torch.randn(320, 10, 4, generator=g)
    y = x[:, :, 0].sum(1, keepdim=True) * 0.5
    is_far = torch.rand(320, generator=g) < 0.04
    y[is_far] = y[is_far] * 30
    m = LastOf()
    params = m.parameters() if bug else list(m.parameters())
    opt = torch.optim.SGD(params, 0.05)
    crit = nn.MSELoss()
    near = ~is_far[260:]
    tl, vl = loaders((x[:260], y[:260]), (x[260:][near], y[260:][near]), 20, 30)

    def step(b):
        m.train()
        opt.zero_grad()
        loss = crit(m(b[0]), b[1])
        loss.backward()
        nn.utils.clip_grad_norm_(params, 1.0)
        opt.step()
        return loss.item()

    return by_squares(m, opt, tl, vl, step, declared={"max_grad_norm": 1.0})


@pair("optimizer-stale-params")
def unfrozen_not_in_optimizer(bug):
    """The optimizer was made while the body was frozen, and does not hold it when it is set free in
    step 3. After 300 steps tag_acc is 0.597 instead of 0.819."""
    g = begun(31)
    x = torch.randn(400, 10, generator=g)
    tags = x[:, 0] * x[:, 1] > 0, x[:, 2] > 0.3, x[:, 3].abs() > 0.7, x[:, 4] + x[:, 5] > 0
    y = torch.stack(tags, 1).float()
    m = nn.ModuleDict({"body": mlp(10, 12, 12), "head": nn.Linear(12, 4)})
    m["body"].requires_grad_(False)
    opt = torch.optim.Adam([p for p in m.parameters() if p.requires_grad], 1e-2)
    crit = nn.BCEWithLogitsLoss()
    tl, vl = loaders({"x": x[:320], "tags": y[:320]}, {"x": x[320:], "tags": y[320:]}, 32, 40)
    steps = 0

    def out_of(model, b):
        return model["head"](torch.relu(model["body"](b["x"])))

    def loss_of(model, b):
        return crit(out_of(model, b), b["tags"])

    base = plain_step(m, opt, loss_of)

    def step(b):
        nonlocal steps
        if steps == 3:
            m["body"].requires_grad_(True)
            if not bug:
                opt.add_param_group({"params": list(m["body"].parameters()), "lr": 5e-3})
        steps += 1
        return base(b)

    def sums_of(model, b):
        hits = (out_of(model, b) > 0) == (b["tags"] > 0.5)
        return {"tag_acc": (hits.sum(), hits.numel())}

    declared = {"unfreeze_at_step": 3}
    return by_cost(m, opt, tl, vl, loss_of, sums_of, step=step, declared=declared)
