"""Bugs between outputs, targets and loss."""

from tests.debug.faulty.kit import F, nn, pair, parts, torch, whole


@pair("double-softmax", style=["mlp", "cnn", "rnn", "transformer"])
def softmax_in_the_model(bug, style):
    s = parts(style)
    if bug:
        s["model"] = nn.Sequential(s["model"], nn.Softmax(dim=1))
    s["optimizer"] = torch.optim.SGD(s["model"].parameters(), 0.05)
    return whole(s)


@pair("double-softmax")
def softmax_in_the_loop(bug):
    s = parts("mlp")

    def train_step(batch):
        s["optimizer"].zero_grad()
        out = s["model"](batch[0])
        loss = F.cross_entropy(F.softmax(out, 1) if bug else out, batch[1])
        loss.backward()
        s["optimizer"].step()
        return loss.item()

    return s | {"train_step": train_step}


@pair("double-softmax")
def softmax_before_custom_loss(bug):
    def smooth(out, y):
        logs = out.log_softmax(1)
        return -(0.9 * logs.gather(1, y[:, None]).mean() + 0.1 * logs.mean())

    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 3))
    model = nn.Sequential(model, nn.Softmax(1)) if bug else model
    return parts("mlp", model=model, loss_fn=smooth)


@pair("double-softmax", style=["binary", "multilabel"])
def sigmoid_twice(bug, style):
    s = parts(style)
    if bug:
        s["model"] = nn.Sequential(s["model"], nn.Sigmoid())
    s["optimizer"] = torch.optim.SGD(s["model"].parameters(), 0.05)
    return whole(s)


@pair("missing-log-softmax")
def nll_of_logits(bug):
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))
    if not bug:
        model.append(nn.LogSoftmax(1))
    return whole(parts("mlp", model=model, loss_fn=nn.NLLLoss()))


@pair("broadcast-loss", "mse-for-classes", loss=["mse", "l1", "by hand"])
def one_column(bug, loss):
    def by_hand(out, y):
        return ((out - y) ** 2).mean()

    loss_fn = {"mse": nn.MSELoss(), "l1": nn.L1Loss(), "by hand": by_hand}[loss]
    s = parts("regression", 0.02, loss_fn=loss_fn)
    for loader in (s["train_loader"], s["val_loader"]):
        x, y = loader.dataset.tensors
        loader.dataset.tensors = (x, y.squeeze(1) if bug else y)
    return whole(s)


@pair("mse-for-classes", loss=["mse", "huber"])
def regressed_classes(bug, loss):
    distance = nn.MSELoss() if loss == "mse" else nn.SmoothL1Loss()
    out = 1 if bug else 3
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, out))
    return parts(
        "mlp", model=model,
        loss_fn=(lambda o, y: distance(o.squeeze(1), y.float())) if bug else nn.CrossEntropyLoss(),
    )  # fmt: skip


def relabel(s, change):
    for loader in (s["train_loader"], s["val_loader"]):
        x, y = loader.dataset.tensors
        loader.dataset.tensors = (x, change(y))
    return s


@pair("one-hot-labels")
def integer_one_hot(bug):
    return relabel(parts("mlp"), lambda y: F.one_hot(y, 3) if bug else y)


@pair("wrong-label-dtype", "one-hot-labels", kind=["int32", "float", "column"])
def wrong_dtype(bug, kind):
    change = {
        "int32": lambda y: y.int(),
        "float": lambda y: y.float(),
        "column": lambda y: y[:, None],
    }
    return whole(relabel(parts("mlp"), change[kind] if bug else lambda y: y))


@pair("label-out-of-range", start=[1, -1])
def labels_from_one(bug, start):
    s = parts("cnn")
    return relabel(s, lambda y: y + start if bug else y)


@pair("rows-mixed", "double-softmax")
def softmax_over_the_batch(bug):
    class Gate(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate, self.head = nn.Linear(8, 8), nn.Linear(8, 3)

        def forward(self, x):
            return self.head(8 * x * self.gate(x).softmax(0 if bug else 1))

    return whole(parts("mlp", model=Gate()))


@pair("rows-mixed")
def batch_first_forgotten(bug):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.LSTM(4, 16, batch_first=not bug)
            self.head = nn.Linear(16, 3)

        def forward(self, x):
            return self.head(self.rnn(x)[0][:, -1])

    return whole(parts("rnn", model=Net()))


@pair("rows-mixed")
def attention_over_the_batch(bug):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.attend = nn.MultiheadAttention(4, 2, batch_first=not bug)
            self.head = nn.Linear(4, 3)

        def forward(self, x):
            return self.head(self.attend(x, x, x)[0].mean(1))

    return whole(parts("transformer", model=Net()))


@pair("relu-on-logits")
def relu_after_the_head(bug):
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))
    return whole(parts("mlp", model=model.append(nn.ReLU()) if bug else model))


@pair("non-finite-loss", kind=["log", "sqrt"])
def edge_of_a_function(bug, kind):
    def log_loss(out, y):
        p = out.softmax(1)
        p = p if bug else p.clamp_min(1e-7)
        return -(F.one_hot(y, 3) * p.log()).sum(1).mean()

    def distance(out, y):
        return ((out - out.detach()).pow(2).sum(1) + (0 if bug else 1e-8)).sqrt().mean() + (
            F.cross_entropy(out, y)
        )

    s = parts("mlp", loss_fn=log_loss if kind == "log" else distance)
    if kind == "log":
        with torch.no_grad():
            s["model"][-1].weight.mul_(3000)
        s["optimizer"].param_groups[0]["lr"] = 1e-6
        s["declared"] = {"allow": ["lr-too-small"]}
    return s
