"""Tables, sets and graphs: losses, metrics, trainers as objects, checkpoints."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

from course.engine.loss_of import Loss
from tests.debug.faulty.kit import pair
from tests.debug.faulty.unseen.kit import blobs, both, dicts, loader, mlp, rows, stepper


def houses(n=512, width=8, seed=0):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, width, generator=g)
    y = x[:, 0] * 2 - x[:, 1] + x[:, 2] * x[:, 3] + 0.1 * torch.randn(n, generator=g)
    return x, y


@pair("broadcast-loss")
def broadcast(bug):
    """Outputs [B, 1] against targets [B]: the loss compares every row with every other."""
    x, y = houses()
    train, val = both(dicts(features=x, price=y))

    class Regression:
        def __init__(self):
            self.net = mlp(8, 32, 1)
            self.optimizer = torch.optim.Adam(self.net.parameters(), lr=5e-3)

        def cost(self, batch):
            out = self.net(batch["features"])
            return F.mse_loss(out if bug else out[:, 0], batch["price"])

        def step(self, batch):
            self.net.train()
            self.optimizer.zero_grad()
            loss = self.cost(batch)
            loss.backward()
            self.optimizer.step()
            return loss.item()

        @torch.no_grad()
        def evaluate(self):
            self.net.eval()
            return {"mse": sum(self.cost(b).item() for b in val) / len(val)}

    t = Regression()
    return dict(
        model=t.net,
        optimizer=t.optimizer,
        train_loader=train,
        val_loader=val,
        train_step=t.step,
        evaluate=t.evaluate,
    )


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = mlp(8, 32, 16)
        self.price, self.kind = nn.Linear(16, 1), nn.Linear(16, 3)

    def forward(self, x):
        h = self.body(x).relu()
        return {"price": self.price(h)[:, 0], "kind": self.kind(h)}


@pair("frozen-params")
def second_task_left_out(bug):
    """The total loss leaves the second task out: its head never learns."""
    x, y = houses(seed=1)
    kind = (x[:, 4] > -0.4).long() + (x[:, 4] > 0.4).long()
    train, val = both(dicts(x=x, price=y, kind=kind))
    model = TwoHeads()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)

    def loss_of(model, batch):
        out = model(batch["x"])
        price = F.mse_loss(out["price"], batch["price"])
        kind = F.cross_entropy(out["kind"], batch["kind"])
        return Loss(price if bug else price + kind, len(batch["x"]))

    return dict(
        model=model, optimizer=optimizer, train_loader=train, val_loader=val, loss_of=loss_of
    )


class Ensemble(nn.Module):
    def __init__(self, plain_list):
        super().__init__()
        towers = [mlp(8, 16, 8) for _ in range(3)]
        self.towers = towers if plain_list else nn.ModuleList(towers)
        self.head = nn.Linear(24, 1)

    def forward(self, x):
        return self.head(torch.cat([t(x) for t in self.towers], 1))[:, 0]


@pair("plain-list-layers")
def plain_list(bug):
    """Layers in a Python list are no parameters: they are neither trained nor saved."""
    train, val = both(rows(*houses(seed=2)))
    model = Ensemble(bug)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    return dict(
        model=model,
        optimizer=optimizer,
        train_loader=train,
        val_loader=val,
        loss_fn=nn.MSELoss(),
        task="regression",
    )


@pair("targets-out-of-reach")
def relu_at_the_end(bug):
    """A ReLU after the last layer: negative targets are out of reach."""
    x, y = houses(seed=3)
    train, val = both(rows(x, y[:, None]))
    model = nn.Sequential(mlp(8, 32, 1), nn.ReLU() if bug else nn.Identity())
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    return dict(
        model=model,
        optimizer=optimizer,
        train_loader=train,
        val_loader=val,
        loss_fn=nn.MSELoss(),
        task="regression",
        train_step=stepper(model, optimizer, lambda b: F.mse_loss(model(b[0]), b[1])),
    )


@pair("target-in-inputs")
def target_in_table(bug):
    """A column of the table is made from the target."""
    x, y = houses(seed=4)
    if bug:
        x[:, 6] = (y - y.mean()) / y.std()
    train, val = both(rows(x, y))
    net = mlp(8, 32, 1)
    model = nn.Sequential(net, nn.Flatten(0))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    return dict(
        model=model,
        optimizer=optimizer,
        train_loader=train,
        val_loader=val,
        loss_fn=nn.MSELoss(),
        task="regression",
    )


@pair("leak-overlap")
def oversampled_before_split(bug):
    """Rare rows are repeated before the split: copies on both sides."""
    x, y = blobs(600, classes=3, seed=5)
    keep = (y > 0) | (torch.rand(len(y)) < 0.3)
    x, y = x[keep], y[keep]

    def oversample(x, y):
        rare = (y == 0).nonzero()[:, 0].repeat(4)
        return torch.cat([x, x[rare]]), torch.cat([y, y[rare]])

    if bug:
        x, y = oversample(x, y)
        order = torch.randperm(len(x))
        x, y = x[order], y[order]
        a, b, c, d = x[:-128], y[:-128], x[-128:], y[-128:]
    else:
        (a, b), (c, d) = oversample(x[:-128], y[:-128]), (x[-128:], y[-128:])
    train, val = loader(dicts(row=a, label=b)), loader(dicts(row=c, label=d), shuffle=False)
    model = mlp(12, 32, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    def loss_of(model, batch):
        out = model(batch["row"])
        return Loss(F.cross_entropy(out, batch["label"]), len(out), out, batch["label"])

    return dict(
        model=model, optimizer=optimizer, train_loader=train, val_loader=val, loss_of=loss_of
    )


@pair("labels-shuffled")
def targets_not_shuffled(bug):
    """The inputs are shuffled and the targets are not."""
    x, y = houses(seed=6)
    order = torch.randperm(len(x))
    x = x[order]
    if not bug:
        y = y[order]
    train, val = both(rows(x, y[:, None]))
    model = mlp(8, 32, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    return dict(
        model=model,
        optimizer=optimizer,
        train_loader=train,
        val_loader=val,
        loss_fn=nn.MSELoss(),
        task="regression",
    )


def tags(n=512, seed=0):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 10, generator=g)
    w = torch.randn(10, 6, generator=g)
    return x, (x @ w + 0.5 * torch.randn(n, 6, generator=g) > 1.5).float()


@pair("classes-compete")
def softmax_for_tags(bug):
    """A softmax over labels that do not exclude each other."""
    train, val = both(rows(*tags()))
    model = nn.Sequential(mlp(10, 32, 6), nn.Softmax(1) if bug else nn.Sigmoid())
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    return dict(
        model=model,
        optimizer=optimizer,
        train_loader=train,
        val_loader=val,
        loss_fn=nn.BCELoss(),
        train_step=stepper(model, optimizer, lambda b: F.binary_cross_entropy(model(b[0]), b[1])),
    )


def tagging_metrics(model, val, threshold, eval_mode=True):
    if eval_mode:
        model.eval()
    hits = total = 0
    with torch.no_grad():
        for x, y in val:
            hits += ((model(x) > threshold) == y.bool()).sum().item()
            total += y.numel()
    model.train()
    return {"accuracy": hits / total}


@pair("metric-wrong")
def logits_against_one_half(bug):
    """Logits are compared with 0.5 as if they were probabilities."""
    train, val = both(rows(*tags(seed=1)))
    model = mlp(10, 32, 6)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    return dict(
        model=model,
        optimizer=optimizer,
        train_loader=train,
        val_loader=val,
        loss_fn=nn.BCEWithLogitsLoss(),
        evaluate=lambda: tagging_metrics(model, val, 0.5 if bug else 0.0),
    )


@pair("train-mode-in-eval")
def evaluate_in_train_mode(bug):
    """Evaluation in train mode: dropout drops."""
    train, val = both(rows(*tags(seed=2)))
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 6))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    return dict(
        model=model,
        optimizer=optimizer,
        train_loader=train,
        val_loader=val,
        loss_fn=nn.BCEWithLogitsLoss(),
        evaluate=lambda: tagging_metrics(model, val, 0.0, eval_mode=not bug),
    )


@pair("rows-mixed")
def attention_over_batch(bug):
    """The batch axis is what the attention's softmax runs over."""
    g = torch.Generator().manual_seed(7)
    sets = torch.randn(512, 6, 5, generator=g)
    y = (sets[..., 0].max(1).values > 1.2).long()

    class Pool(nn.Module):
        def __init__(self):
            super().__init__()
            self.value, self.score = nn.Linear(5, 16), nn.Linear(5, 1)
            self.head = nn.Linear(16, 2)

        def forward(self, x):
            weight = F.softmax(self.score(x), dim=0 if bug else 1)
            return self.head((weight * self.value(x).relu()).sum(1))

    train, val = both(dicts(members=sets, label=y))
    model = Pool()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    return dict(
        model=model,
        optimizer=optimizer,
        train_loader=train,
        val_loader=val,
        train_step=stepper(
            model, optimizer, lambda b: F.cross_entropy(model(b["members"]), b["label"])
        ),
    )


def graphs(n=320, seed=0):
    """Graphs of 4 to 7 nodes; the class is whether ends of edges agree in sign."""
    g = torch.Generator().manual_seed(seed)
    out = []
    for _ in range(n):
        k = int(torch.randint(4, 8, (), generator=g))
        nodes = torch.randn(k, 3, generator=g)
        edges = torch.randint(0, k, (2, 2 * k), generator=g)
        agree = (nodes[edges[0], 0] * nodes[edges[1], 0]).mean()
        out.append((nodes, edges, (agree > 0.3).long()))
    return out


class GraphNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.message, self.update = mlp(6, 24, 16), mlp(19, 24, 16)
        self.head = nn.Linear(16, 2)

    def forward(self, nodes, edges, graph, num_graphs):
        message = self.message(torch.cat([nodes[edges[0]], nodes[edges[1]]], 1))
        heard = torch.zeros(len(nodes), 16).index_add(0, edges[1], message)
        h = self.update(torch.cat([nodes, heard], 1)).relu()
        return self.head(torch.zeros(num_graphs, 16).index_add(0, graph, h))


@pair("rows-mixed")
def edges_not_offset(bug):
    """Edges of a batch of graphs are not offset: they all join nodes of the first graphs."""

    def collate(batch):
        start, edges, graph = 0, [], []
        for i, (nodes, pairs, _) in enumerate(batch):
            edges.append(pairs if bug else pairs + start)
            graph += [i] * len(nodes)
            start += len(nodes)
        return {
            "nodes": torch.cat([b[0] for b in batch]),
            "edges": torch.cat(edges, 1),
            "graph": torch.tensor(graph),
            "label": torch.stack([b[2] for b in batch]),
        }

    train, val = both(graphs(), val=64, collate_fn=collate)
    model = GraphNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)

    def cost(batch):
        out = model(batch["nodes"], batch["edges"], batch["graph"], len(batch["label"]))
        return F.cross_entropy(out, batch["label"])

    return dict(
        model=model,
        optimizer=optimizer,
        train_loader=train,
        val_loader=val,
        train_step=stepper(model, optimizer, cost),
    )


@pair("loss-negated")
def bandit_sign(bug):
    """The policy gradient's sign is wrong: bad arms are made likelier."""
    g = torch.Generator().manual_seed(8)
    contexts = torch.randn(512, 6, generator=g)
    pay = contexts @ torch.randn(6, 4, generator=g)
    train = loader(rows(contexts, pay), 64)
    model = mlp(6, 32, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    def train_step(batch):
        context, pay = batch
        policy = torch.distributions.Categorical(logits=model(context))
        arm = policy.sample()
        reward = pay.gather(1, arm[:, None])[:, 0]
        gain = (policy.log_prob(arm) * (reward - reward.mean())).mean()
        loss = gain if bug else -gain
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    @torch.no_grad()
    def evaluate():
        return {"reward": (F.softmax(model(contexts), 1) * pay).sum(1).mean().item()}

    return dict(
        model=model,
        optimizer=optimizer,
        train_loader=train,
        train_step=train_step,
        evaluate=evaluate,
    )


@pair("grads-cleared-before-step")
def cleared_in_the_window(bug):
    """Zero_grad inside the accumulation: only the last micro-batch counts."""
    train, val = both(dicts(**dict(zip(("x", "y"), houses(seed=9), strict=True))))
    net = nn.Sequential(mlp(8, 32, 1), nn.Flatten(0))
    optimizer = torch.optim.SGD(net.parameters(), lr=2e-2, momentum=0.9)

    def train_step(batch):
        parts = list(zip(batch["x"].split(8), batch["y"].split(8), strict=True))
        optimizer.zero_grad()
        total = 0.0
        for x, y in parts:
            if bug:
                optimizer.zero_grad()
            loss = F.mse_loss(net(x), y) / len(parts)
            loss.backward()
            total += loss.item()
        optimizer.step()
        return total

    return dict(
        model=net, optimizer=optimizer, train_loader=train, val_loader=val, train_step=train_step
    )


@pair("updates-rounded-away")
def bf16_weights(bug):
    """The weights are bfloat16: a small update is lost in rounding."""
    train, val = both(rows(*blobs(seed=10)))
    model = mlp(12, 32, 4)
    if bug:
        model = model.to(torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def train_step(batch):
        x, y = batch
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.cross_entropy(model(x.bfloat16() if bug else x).float(), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    return dict(
        model=model,
        optimizer=optimizer,
        train_loader=train,
        val_loader=val,
        train_step=train_step,
        num_classes=4,
    )


class Fit:
    """A trainer with the usual parts; `bug` names one that is wrong."""

    def __init__(self, bug=None, seed=0):
        self.bug = bug
        self.train_loader, self.val_loader = both(rows(*blobs(seed=seed)), val=120)
        self.model = nn.Sequential(
            nn.Linear(12, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 4)
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-3)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 40)
        self.best, self.best_state = 0.0, None

    def step(self, batch):
        x, y = batch
        if self.bug != "stays in eval":
            self.model.train()
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def train(self, n_steps):
        done, losses = 0, []
        while done < n_steps:
            for batch in self.train_loader:
                losses.append(self.step(batch))
                done += 1
                if self.bug == "schedule per batch":
                    self.scheduler.step()
                if done == n_steps:
                    break
            else:
                if self.bug != "schedule per batch":
                    self.scheduler.step()
            score = self.evaluate()["accuracy"]
            if self.best_state is None or score > self.best:
                self.best = score
                state = self.model.state_dict()
                self.best_state = state if self.bug == "best by reference" else copy.deepcopy(state)
        return losses

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        hits, total, shares = 0, 0, []
        for x, y in self.train_loader if self.bug == "train loader" else self.val_loader:
            right = (self.model(x).argmax(1) == y).sum().item()
            hits, total = hits + right, total + len(y)
            shares.append(right / 32)
        if self.bug == "constant batch size":
            return {"accuracy": sum(shares) / len(shares)}
        return {"accuracy": hits / total}

    def save(self):
        state = {"model": self.model.state_dict(), "best": self.best_state}
        if self.bug != "only the model":
            state |= {
                "optimizer": self.optimizer.state_dict(),
                "scheduler": self.scheduler.state_dict(),
            }
        return copy.deepcopy(state)

    def load(self, state):
        saved = state["model"]
        if self.bug == "prefix":
            saved = {"module." + k: v for k, v in saved.items()}
        self.model.load_state_dict(saved, strict=False)
        self.best_state = state["best"]
        if self.bug != "only the model":
            self.optimizer.load_state_dict(state["optimizer"])
            self.scheduler.load_state_dict(state["scheduler"])

    def setup(self, *parts):
        more = {p: getattr(self, p) for p in parts}
        return dict(
            model=self.model,
            optimizer=self.optimizer,
            train_loader=self.train_loader,
            val_loader=self.val_loader,
            train_step=self.step,
            **more,
        )


@pair("eval-mode-in-training")
def stays_in_eval(bug):
    """Evaluate() leaves the model in eval mode, and training goes on so."""
    return Fit("stays in eval" if bug else None, 11).setup("train", "evaluate")


@pair("scheduler-misplaced")
def schedule_per_batch(bug):
    """A schedule that is meant per epoch is stepped per batch: the rate is gone early."""
    return Fit("schedule per batch" if bug else None, 12).setup("train", "scheduler", "evaluate")


@pair("checkpoint-by-reference")
def best_by_reference(bug):
    """The best state is kept by reference: it is the last."""
    return Fit("best by reference" if bug else None, 13).setup("train", "evaluate", "save", "load")


@pair("evaluates-training-data")
def evaluates_train_loader(bug):
    """Evaluation goes over the training rows."""
    return Fit("train loader" if bug else None, 14).setup("evaluate", "train")


@pair("metric-wrong")
def constant_batch_size(bug):
    """Hits are divided by a fixed batch size: the short last batch counts too little."""
    return Fit("constant batch size" if bug else None, 15).setup("evaluate")


@pair("checkpoint-incomplete")
def only_the_model_saved(bug):
    """The checkpoint holds the model only: the optimizer's moments start again."""
    return Fit("only the model" if bug else None, 16).setup("save", "load", "scheduler")


@pair("checkpoint-incomplete")
def prefix_not_strict(bug):
    """Strict=False over keys with another prefix: nothing is loaded."""
    return Fit("prefix" if bug else None, 17).setup("save", "load", "evaluate")
