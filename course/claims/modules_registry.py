"""What a Module knows of: parameters, buffers, sub-modules, and what falls outside."""

from __future__ import annotations

import torch
from torch import nn

from course.claims.lab import error_of, flat
from course.claims.registry import Measured, claim, weigh


class _Scaled(nn.Module):
    """A linear layer and a scale, held as the caller wishes."""

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
    title="A tensor as plain attribute is not trained, moved or saved",
    source='Lecture 3, "nn.Module"',
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
    title="Buffers move and are saved, but are not trained",
    source='Lecture 3, "nn.Module"; engineering module, §3; annotated-loop essay',
    expected="holds if",
    says="A registered buffer moves and is saved with the model, and is not trained.",
    condition="if the buffer is persistent; persistent=False moves and is not saved",
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
    """Layers in a plain Python list, with or without one registered layer beside it."""

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
    source="Engineering module, §3",
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
    title="With list layers the optimizer errors, or training misses them",
    source="Engineering module, §3",
    expected="holds",
    says="With all layers in a list the optimizer raises; with one real layer they stay untrained.",
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
    source="Annotated-loop essay",
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
    title="Without super().__init__() layers are silently dropped",
    source="Engineering module, §3",
    expected="does not hold",
    says="Without super().__init__() forward may still run, and layers are silently dropped.",
)
def missing_super_init() -> Measured:
    listed = _NoInit(listed=True)
    inputs = torch.randn(1, 2)
    errors = {
        "self.layer = Linear": error_of(_NoInit, listed=False),
        "model(x)": error_of(listed, inputs),
        "parameters()": error_of(lambda: list(listed.parameters())),
        "eval()": error_of(listed.eval),
    }
    silent = sum(not error for error in errors.values())
    evidence = {
        "calls that pass silently, of 4": silent,
        "raises": errors,
        "model.forward(x), called by name, raises": error_of(listed.forward, inputs) or "nothing",
    }
    return weigh(
        "calls that pass silently, of 4",
        evidence,
        stated=silent > 0,
        note="Assigning a module raises at once; with a list the first model(x) raises.",
    )


@claim(
    "F22",
    title="model(x) runs forward hooks, computation, backward hooks",
    source="Annotated-loop essay",
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
    source="Training-loop chapter",
    expected="holds",
    says="Parameters added to the model after the optimizer was built are not updated.",
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
    title="state_dict holds parameters and buffers, and no class",
    source="Annotated-loop essay",
    expected="holds if",
    says="state_dict() holds all parameters and buffers, and nothing of the class.",
    condition="if no buffer is persistent=False",
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
