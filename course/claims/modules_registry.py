"""What a Module registers (parameters, buffers, sub-modules), and what it misses."""

from __future__ import annotations

import torch
from torch import nn

from course.claims.lab import error_of, flat
from course.claims.registry import claim
from course.claims.trial import Measured, weigh, weigh_settings


class _Scaled(nn.Module):
    """A linear layer and a scale, which is stored in the way the caller chooses."""

    def __init__(self, scale: object) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.scale = scale


def _reached(model: nn.Module) -> dict[str, bool]:
    """Whether parameters(), state_dict() and .double() reach `model.scale`."""
    found = {
        "in parameters()": any(p is model.scale for p in model.parameters()),
        "in state_dict()": "scale" in model.state_dict(),
    }
    return found | {"moved by .double()": model.double().scale.dtype == torch.float64}


@claim(
    "F01",
    title="A tensor as a plain attribute is not trained, moved or saved",
    expected="holds",
    says="A tensor assigned as a plain attribute is not trained, not moved and not saved.",
)
def plain_tensor_attribute() -> Measured:
    plain = _reached(_Scaled(torch.ones(3)))
    parameter = _reached(_Scaled(nn.Parameter(torch.ones(3))))
    evidence = {
        "ways that reach a plain tensor, of 3": sum(plain.values()),
        "ways that reach an nn.Parameter, of 3": sum(parameter.values()),
        "plain tensor": plain,
    }
    stated = not any(plain.values()) and all(parameter.values())
    return weigh("ways that reach a plain tensor, of 3", evidence, stated=stated)


@claim(
    "F02",
    title="Buffers move and are saved, but not trained",
    expected="holds if",
    says="A registered buffer moves and is saved with the model, and is not trained.",
    condition="if the buffer is persistent; with persistent=False it moves but is not saved",
)
def buffers() -> Measured:
    def reached(persistent: bool) -> dict[str, bool]:
        model = nn.Linear(2, 2)
        model.register_buffer("scale", torch.ones(3), persistent=persistent)
        return _reached(model)

    kept, passing = reached(True), reached(False)
    moves_untrained = [
        f["moved by .double()"] and not f["in parameters()"] for f in (kept, passing)
    ]
    saved = [kept["in state_dict()"], passing["in state_dict()"]]
    evidence = {
        "kinds of buffer saved, of 2": sum(saved),
        "persistent": kept,
        "persistent=False": passing,
    }
    return weigh(
        "kinds of buffer saved, of 2",
        evidence,
        stated=all(moves_untrained) and all(saved),
        conditioned=moves_untrained[0] and saved[0],
    )


class _ListNet(nn.Module):
    """Layers in a plain Python list, with or without a registered layer next to it."""

    def __init__(self, *, head: bool) -> None:
        super().__init__()
        self.layers = [nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 4)]
        if head:
            self.head = nn.Linear(4, 2)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            inputs = layer(inputs)
        return self.head(inputs)


@claim(
    "F03",
    title="Layers in a plain list are invisible",
    expected="holds",
    says="parameters(), .to(), state_dict() and eval() do not see layers in a plain Python list.",
)
def list_layers_invisible() -> Measured:
    model = _ListNet(head=False)
    model.double().eval()
    seen = {
        "parameters()": len(list(model.parameters())) > 0,
        ".to()": model.layers[0].weight.dtype == torch.float64,
        "state_dict()": len(model.state_dict()) > 0,
        "eval()": not model.layers[1].training,
    }
    evidence = {"ways that see the list, of 4": sum(seen.values()), "sees the list": seen}
    return weigh("ways that see the list, of 4", evidence, stated=not any(seen.values()))


@claim(
    "F04",
    title="With layers in a list, the optimizer raises or training leaves them out",
    expected="holds",
    says="If all layers are in a list, the optimizer raises; if one is registered, the others stay "
    "untrained.",
)
def list_layers_untrained() -> Measured:
    error = error_of(torch.optim.SGD, _ListNet(head=False).parameters(), lr=0.1)
    model = _ListNet(head=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before, head = flat(model.layers[0]), flat(model.head)
    model(torch.randn(8, 4)).square().sum().backward()
    optimizer.step()
    moved = (flat(model.layers[0]) - before).norm()
    head_moved = (flat(model.head) - head).norm()
    evidence = {
        "list layer moved by": moved,
        "registered layer moved by": head_moved,
        "tensors in the optimizer, of 6": len(optimizer.param_groups[0]["params"]),
        "all in a list": error,
    }
    stated = error == "ValueError" and moved == 0 and head_moved > 0
    return weigh("list layer moved by", evidence, stated=stated)


@claim(
    "F18",
    title="parameters() returns only what requires a gradient",
    expected="does not hold",
    says="model.parameters() returns only the leaves that require a gradient.",
)
def parameters_returns_frozen() -> Measured:
    model = nn.Linear(3, 2)
    model.weight.requires_grad_(False)
    flags = [p.requires_grad for p in model.parameters()]
    frozen = flags.count(False)
    evidence = {"frozen tensors returned": frozen, "requires_grad of those returned": flags}
    return weigh("frozen tensors returned", evidence, stated=frozen == 0)


class _NoInit(nn.Module):
    def __init__(self, *, listed: bool) -> None:  # super().__init__() is missing on purpose
        if listed:
            self.layers = [nn.Linear(2, 2)]
        else:
            self.layer = nn.Linear(2, 2)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.layers[0](inputs)


@claim(
    "F19",
    title="Without super().__init__(), or with layers in a list, layers are silently left out",
    expected="holds if",
    says="Without super().__init__(), or with layers in a list, forward may still run, but the "
    "optimizer fails or layers are silently left out.",
    condition="if layers are in a list; if super().__init__() is missing, assigning a layer or "
    "calling the model raises at once",
)
def missing_super_init() -> Measured:
    listed, inputs = _NoInit(listed=True), torch.randn(1, 2)
    errors = {
        "no constructor: self.layer = Linear": error_of(_NoInit, listed=False),
        "no constructor, list: model(x)": error_of(listed, inputs),
        "no constructor, list: parameters()": error_of(lambda: list(listed.parameters())),
        "no constructor, list: model.forward(x) by name": error_of(listed.forward, inputs),
        "list: model(x)": error_of(_InList(), inputs),
    }
    some = _InList(with_layer=True)
    reached = sum(1 for _ in some.parameters())
    everything = sum(1 for layer in (some.head, *some.layers) for _ in layer.parameters())
    optimizer = error_of(lambda: torch.optim.SGD(_InList().parameters(), lr=0.1))
    evidence = {
        "parameters the optimizer sees, list next to a layer, of 4": reached,
        "raises": {name: error or "nothing" for name, error in errors.items()},
        "optimizer of a model with all layers in a list raises": optimizer or "nothing",
    }
    runs = not errors["list: model(x)"]
    return weigh_settings(
        "parameters the optimizer sees, list next to a layer, of 4",
        evidence,
        {
            "constructor missing": not errors["no constructor, list: model(x)"],
            "all layers in a list": runs and bool(optimizer),
            "a layer, and others in a list": runs and reached < everything,
        },
        criterion="the forward pass runs, but the optimizer fails or leaves layers out",
    )


class _InList(nn.Module):
    """Layers in a Python list, with or without a registered layer next to them."""

    def __init__(self, *, with_layer: bool = False) -> None:
        super().__init__()
        self.layers = [nn.Linear(2, 2)]
        self.head = nn.Linear(2, 2) if with_layer else nn.Identity()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers[0](inputs))


@claim(
    "F22",
    title="model(x) runs forward hooks, computation, backward hooks",
    expected="does not hold",
    says="model(x) runs forward hooks, then the computation, then backward hooks.",
)
def order_of_hooks() -> Measured:
    events: list[str] = []

    class Noted(nn.Linear):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            events.append("computation")
            return super().forward(inputs)

    model = Noted(2, 2)
    model.register_forward_pre_hook(lambda *_: events.append("pre-hook"))
    model.register_forward_hook(lambda *_: events.append("forward hook"))
    model.register_full_backward_hook(lambda *_: events.append("backward hook"))
    output = model(torch.randn(1, 2, requires_grad=True))
    in_call = list(events)
    output.sum().backward()
    in_backward = events[len(in_call) :]
    events.clear()
    model.forward(torch.randn(1, 2))
    evidence = {
        "backward hooks run inside model(x)": in_call.count("backward hook"),
        "inside model(x)": in_call,
        "inside backward()": in_backward,
        "inside model.forward(x)": list(events),
    }
    lecture = ["forward hook", "computation", "backward hook"]
    return weigh("backward hooks run inside model(x)", evidence, stated=in_call == lecture)


@claim(
    "F66",
    title="The optimizer does not see parameters added later",
    expected="holds",
    says="Parameters added to the model after the optimizer is built are not updated.",
)
def parameters_added_later() -> Measured:
    model = nn.Sequential(nn.Linear(3, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.append(nn.Linear(3, 3))
    first, later = flat(model[0]), flat(model[1])
    model(torch.randn(8, 3)).square().sum().backward()
    optimizer.step()
    moved = (flat(model[1]) - later).norm()
    first_moved = (flat(model[0]) - first).norm()
    evidence = {"later layer moved by": moved, "first layer moved by": first_moved}
    return weigh("later layer moved by", evidence, stated=moved == 0 and first_moved > 0)


@claim(
    "F135",
    title="state_dict holds parameters and buffers, but no class",
    expected="holds if",
    says="state_dict() holds all parameters and buffers, but nothing about the class.",
    condition="if no buffer has persistent=False",
)
def state_dict_content() -> Measured:
    model = nn.BatchNorm1d(3)
    model.register_buffer("steps", torch.zeros(1), persistent=False)
    state = model.state_dict()
    names = [name for name, _ in (*model.named_parameters(), *model.named_buffers())]
    missing = [name for name in names if name not in state]
    plain = all(isinstance(value, torch.Tensor) for value in state.values())
    evidence = {"tensors missing": len(missing), "missing": missing, "only tensors": plain}
    return weigh(
        "tensors missing",
        evidence,
        stated=plain and not missing,
        conditioned=plain and missing == ["steps"],
    )
