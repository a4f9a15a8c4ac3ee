"""Bugs of membership: optimizer, lists, plain tensors, frozen parts."""

from tests.debug.faulty.kit import nn, pair, parts, torch, whole


@pair("optimizer-stale-params", style=["mlp", "cnn"])
def head_replaced(bug, style):
    s = parts(style)
    s["model"][-1] = nn.Linear(s["model"][-1].in_features, 3)
    if not bug:
        s["optimizer"] = torch.optim.SGD(s["model"].parameters(), 0.05)
    return whole(s)


@pair("optimizer-stale-params", style=["rnn", "transformer"])
def head_never_added(bug, style):
    s = parts(style)
    known = [p for n, p in s["model"].named_parameters() if not bug or "head" not in n]
    s["optimizer"] = torch.optim.SGD(known, 0.05)
    return whole(s)


@pair("optimizer-stale-params")
def optimizer_of_a_copy(bug):
    import copy

    s = parts("mlp")
    if bug:
        s["optimizer"] = torch.optim.SGD(copy.deepcopy(s["model"]).parameters(), 0.05)
    return whole(s)


@pair("model-moved-after-optimizer")
def converted_with_new_parameters(bug):
    s = parts("regression")
    for loader in (s["train_loader"], s["val_loader"]):
        loader.dataset.tensors = tuple(t.double() for t in loader.dataset.tensors)
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    s["model"].double()
    torch.__future__.set_overwrite_module_params_on_conversion(False)
    if not bug:
        s["optimizer"] = torch.optim.SGD(s["model"].parameters(), 0.05)
    return whole(s)


@pair("plain-list-layers", kind=["list", "dict", "partly"])
def layers_in_a_container(bug, kind):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            layers = [nn.Linear(8, 16), nn.Linear(16, 16)]
            self.head = nn.Linear(16, 3)
            if kind == "dict":
                named = {str(i): layer for i, layer in enumerate(layers)}
                self.layers = named if bug else nn.ModuleDict(named)
            else:
                self.layers = layers if bug else nn.ModuleList(layers)
            if kind == "partly":
                self.first = layers[0]

        def forward(self, x):
            layers = self.layers.values() if kind == "dict" else self.layers
            for layer in layers:
                x = layer(x).relu()
            return self.head(x)

    return whole(parts("mlp", model=Net()))


@pair("tensor-not-parameter")
def scale_as_tensor(bug):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.Linear(8, 16), nn.Linear(16, 3)
            scale = torch.ones(16)
            self.scale = scale.requires_grad_() if bug else nn.Parameter(scale)

        def forward(self, x):
            return self.head(self.body(x).relu() * self.scale)

    return whole(parts("mlp", model=Net()))


@pair("buffer-not-registered", kind=["positions", "running"])
def state_as_tensor(bug, kind):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.project, self.head = nn.Linear(4, 16), nn.Linear(16, 3)
            value = torch.randn(6, 16) if kind == "positions" else torch.zeros(16)
            if bug:
                self.state = value
            else:
                self.register_buffer("state", value)

        def forward(self, x):
            h = self.project(x)
            if kind == "running" and self.training:
                self.state.mul_(0.9).add_(0.1 * h.detach().mean((0, 1)))
            return self.head((h - self.state).relu().mean(1))

    return whole(parts("rnn", model=Net()))


@pair("frozen-params", style=["mlp", "cnn"])
def head_left_frozen(bug, style):
    s = parts(style)
    for p in s["model"][-1].parameters():
        p.requires_grad_(not bug)
    return whole(s)


@pair("frozen-params", how=["detach", "no_grad", "numpy"])
def graph_cut(bug, how):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.Linear(8, 16), nn.Linear(16, 3)

        def forward(self, x):
            if bug and how == "no_grad":
                with torch.no_grad():
                    return self.head(self.body(x).relu().clone()) * 1.0 + self.head.bias
            h = self.body(x).relu()
            if bug:
                h = h.detach() if how == "detach" else torch.from_numpy(h.detach().numpy())
            return self.head(h)

    return whole(parts("mlp", model=Net()))


@pair("frozen-params")
def everything_frozen(bug):
    s = parts("regression")
    for p in s["model"].parameters():
        p.requires_grad_(not bug)
    return whole(s)


@pair("frozen-params-drift")
def decay_of_the_frozen(bug):
    s = parts("mlp", optimizer="SGD", words={"weight_decay": 0.1, "momentum": 0.9})
    first = s["model"][0]

    def train_step(batch):
        s["optimizer"].zero_grad()
        loss = s["loss_fn"](s["model"](batch[0]), batch[1])
        loss.backward()
        if bug:
            first.weight.grad.zero_()
            first.bias.grad.zero_()
        s["optimizer"].step()
        return loss.item()

    if not bug:
        s["optimizer"] = torch.optim.SGD(s["model"][-1].parameters(), 0.05)
    return s | {"train_step": train_step, "declared": {"frozen": ["0"]}}


@pair("frozen-params-drift")
def frozen_batch_norm_moves(bug):
    s = parts("cnn")
    for p in s["model"][:2].parameters():
        p.requires_grad_(False)

    def train_step(batch):
        s["model"].train()
        if not bug:
            s["model"][:2].eval()
        s["optimizer"].zero_grad()
        loss = s["loss_fn"](s["model"](batch[0]), batch[1])
        loss.backward()
        s["optimizer"].step()
        return loss.item()

    return s | {"train_step": train_step, "declared": {"frozen": ["0", "1"]}}
