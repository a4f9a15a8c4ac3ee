"""01b.linear: a layer whose weight and bias are registered, drawn as torch draws them."""

from __future__ import annotations

import math
from collections import OrderedDict

import numpy as np
import torch
from torch import Tensor, nn

from autograde.bank.harness import Watch
from autograde.exercise import Answer, AnswerError, Case, Draw, Exercise, Part, Wrong, kept
from course.from_scratch import layers

MANY = 4000
"""Outputs of the layer whose first weights are looked at: enough to tell 1/√3 from 1/2."""


def draw(source: Draw, part: str) -> Case:
    """Sizes that differ, a weight and a bias to be put in, inputs of one to three dimensions."""
    inputs = source.integer(2, 4)
    outputs = inputs + source.choice([-1, 1, 2])
    rows = {"rows": ([3], [1], [2, 3], [])[source.index]}.get(part, [source.integer(2, 3)])
    return {
        "part": part,
        "sizes": [inputs, outputs],
        "bias": source.index % 2 == 0 or part in ("backward", "start"),
        "weight": source.normal(outputs, inputs),
        "shift": source.normal(outputs),
        "inputs": source.normal(*rows, inputs),
        "fan_in": (9, 36)[source.index % 2],
    }


def run(function, case: Case, device: torch.device) -> Answer:
    """What is asked of a part: what is registered, what comes out, what flows back."""
    if case["part"] == "start":
        state = torch.get_rng_state()
        pair = [function(case["fan_in"], MANY, True) for _ in range(2)]
        torch.set_rng_state(state)
        again = function(case["fan_in"], MANY, True)
        return {"start": kept(_start, *pair, again, case["fan_in"])}
    layer = function(*case["sizes"], case["bias"])
    if not isinstance(layer, nn.Module):
        raise AnswerError(f"Linear(...) is a {type(layer).__name__}; derive it from nn.Module.")
    if case["part"] == "registered":
        return {"registered": _registered(layer)}
    if case["part"] == "moves":
        return {"moved": kept(_moved, function, layer, case, device)}
    layer.to(device)
    _put_in(layer, case, device)
    inputs = case["inputs"].to(device).requires_grad_()
    watch = Watch(layer, data=[inputs])
    outputs = layer(inputs)
    answer = {"outputs": kept(_as_outputs, outputs), "disturbed": watch.changed()}
    if case["part"] == "backward" and isinstance(outputs, Tensor):
        answer["grads"] = kept(_grads, layer, inputs, outputs)
    return answer


def _registered(layer: nn.Module) -> dict[str, list[int]]:
    return {
        f"{name}{'' if value.requires_grad else ' (frozen)'}": list(value.shape)
        for name, value in sorted(layer.named_parameters())
    }


def _put_in(layer: nn.Module, case: Case, device: torch.device) -> None:
    """The case's numbers into weight and bias, registered or not, also where it is transposed."""
    for name, value in (("weight", case["weight"]), ("bias", case["shift"])):
        if name == "bias" and not case["bias"]:  # a plain 0 in its place is nobody's business
            continue
        held = getattr(layer, name, None)
        if name == "weight" and not isinstance(held, Tensor):
            raise AnswerError(f"self.weight is a {type(held).__name__}; it should be a Parameter.")
        if isinstance(held, Tensor):
            fits = value if held.shape == value.shape else value.T
            if held.shape != fits.shape:
                shape = list(held.shape)
                raise AnswerError(f"self.{name} has shape {shape}, not {list(value.shape)}.")
            with torch.no_grad():
                held.copy_(fits)


def _as_outputs(outputs: object) -> Tensor:
    if not isinstance(outputs, Tensor):
        raise AnswerError(f"forward() returned a {type(outputs).__name__}; return a tensor.")
    return outputs.detach().cpu().clone()


def _grads(layer: nn.Module, inputs: Tensor, outputs: Tensor) -> dict[str, Tensor]:
    if not outputs.requires_grad:
        raise AnswerError("forward() returned a tensor without a graph: nothing flows back.")
    slope = torch.arange(1.0, outputs.numel() + 1, device=outputs.device).view_as(outputs)
    outputs.backward(slope)
    held = {"inputs": inputs, "weight": layer.weight, "bias": getattr(layer, "bias", None)}
    for name, value in held.items():
        if isinstance(value, Tensor) and value.grad is None:
            raise AnswerError(f"After backward() the {name} had no .grad: it is off the graph.")
    return {k: v.grad.cpu() for k, v in held.items() if isinstance(v, Tensor)}


FAR = 2.0
"""Bounds beyond, in units of 1/√in, are not told apart: of a normal draw they are chance."""
FROM_THE_SAME_STATE = "made from the same state of torch's global generator, the same numbers"


def _start(layer: nn.Module, second: nn.Module, again: nn.Module, fan_in: int) -> dict[str, object]:
    """Of weight and bias: the bounds and the spread in units of 1/√in, to one digit (0 unsigned).

    And whether the bias was drawn for itself: a column of the weight has the same bounds; whether
    a second layer was; and whether torch's global generator decides what was drawn.
    """
    found: dict[str, object] = {}
    for name in ("weight", "bias"):
        value = getattr(layer, name, None)
        if not isinstance(value, Tensor):
            raise AnswerError(f"self.{name} is a {type(value).__name__}; there are no numbers.")
        unit = value.detach().double().flatten() * math.sqrt(fan_in)
        for what, number in (("least", unit.min()), ("most", unit.max()), ("spread", unit.std())):
            far = what != "spread" and abs(number) > FAR
            found[f"{what} {name}, times √in, rounded"] = (
                f"beyond {FAR:g}" if far else f"{number:z.1f}"
            )
    found["bias repeats the weight's numbers"] = bool(torch.isin(layer.bias, layer.weight).all())
    found["a second layer has the same weight"] = torch.equal(layer.weight, second.weight)
    found[FROM_THE_SAME_STATE] = all(
        torch.equal(getattr(layer, name), getattr(again, name)) for name in ("weight", "bias")
    )
    return found


def _moved(function, layer: nn.Module, case: Case, device: torch.device) -> dict[str, object]:
    """Saved, loaded into another one, and moved to other dtypes: is everything there?"""
    other = function(*case["sizes"], case["bias"])
    saved = layer.state_dict()
    try:
        other.load_state_dict(OrderedDict(saved))
        inputs = case["inputs"].to(device, torch.float64)
        outputs, own = (m.to(device, torch.float64)(inputs.clone()) for m in (other, layer))
        half = layer.to("cpu", torch.bfloat16)(case["inputs"].bfloat16()).dtype
    except RuntimeError as fault:
        raise AnswerError(f"Saved, loaded and moved, it raised: {fault}"[:200]) from None
    words = "the same" if torch.allclose(outputs.cpu(), own.cpu()) else "others"
    dtypes = {"dtype": str(outputs.dtype), "dtype in bfloat16": str(half)}
    return {"saved": sorted(saved), **dtypes, "outputs after loading": words}


def reference(in_features: int, out_features: int, bias: bool) -> nn.Module:
    """The course's own."""
    return layers.Linear(in_features, out_features, bias)


class Plain(nn.Module):
    """A right answer; the wrong ones change a method of it."""

    def __init__(self, in_features, out_features, bias):
        super().__init__()
        self.weight = self.hold(self.drawn(in_features, out_features, in_features))
        self.bias = self.hold_bias(self.drawn_bias(out_features, in_features)) if bias else None

    def hold(self, values):
        return nn.Parameter(values)

    hold_bias = hold

    def drawn(self, fan_in, *shape):
        bound = 1 / math.sqrt(fan_in)
        return torch.empty(*shape).uniform_(-bound, bound)

    def drawn_bias(self, out_features, fan_in):
        return self.drawn(fan_in, out_features)

    def forward(self, x):
        out = x @ self.weight.T
        return out if self.bias is None else out + self.bias


class PlainTensors(Plain):
    def hold(self, values):
        return values.requires_grad_()

    hold_bias = hold


class BiasIsPlain(Plain):
    def hold_bias(self, values):
        return values.requires_grad_()


class Buffers(nn.Module):
    def __init__(self, in_features, out_features, bias):
        super().__init__()
        bound = 1 / math.sqrt(in_features)
        self.register_buffer("weight", torch.empty(out_features, in_features))
        self.weight.uniform_(-bound, bound)
        drawn = torch.empty(out_features).uniform_(-bound, bound)
        self.register_buffer("bias", drawn if bias else None)

    def forward(self, x):
        out = x @ self.weight.T
        return out if self.bias is None else out + self.bias


class Frozen(Plain):
    def hold(self, values):
        return nn.Parameter(values, requires_grad=False)


class Transposed(Plain):
    def drawn(self, fan_in, *shape):
        return super().drawn(fan_in, *shape[::-1])

    def forward(self, x):
        out = x @ self.weight
        return out if self.bias is None else out + self.bias


class NoSuper(Plain):
    def __init__(self, in_features, out_features, bias):
        self.weight = nn.Parameter(self.drawn(in_features, out_features, in_features))


class NeverBias(Plain):
    def __init__(self, in_features, out_features, bias):
        super().__init__(in_features, out_features, False)


class AlwaysBias(Plain):
    def __init__(self, in_features, out_features, bias):
        super().__init__(in_features, out_features, True)


class BiasNotAdded(Plain):
    def forward(self, x):
        return x @ self.weight.T


class Detached(Plain):
    def forward(self, x):
        out = x @ self.weight.data.T
        return out if self.bias is None else out + self.bias


class Rewrapped(Plain):
    """Makes tensors of its own inside forward()."""

    def forward(self, x):
        out = x @ torch.tensor(self.weight.tolist(), device=x.device, dtype=x.dtype).T
        return out if self.bias is None else out + self.bias


class Normal(Plain):
    def drawn(self, fan_in, *shape):
        return torch.randn(*shape)


class NormalOfTheBound(Plain):
    def drawn(self, fan_in, *shape):
        return torch.randn(*shape) / math.sqrt(fan_in)


class WeightNormal(Plain):
    def drawn(self, fan_in, *shape):
        drawn = torch.randn(*shape) / math.sqrt(fan_in)
        return drawn if len(shape) > 1 else super().drawn(fan_in, *shape)


class ZeroForNoBias(Plain):
    def __init__(self, in_features, out_features, bias):
        super().__init__(in_features, out_features, bias)
        if not bias:
            self.zeros = torch.zeros(out_features)  # does not move with the layer

    def forward(self, x):
        return x @ self.weight.T + (self.zeros if self.bias is None else self.bias)


class OneSided(Plain):
    def drawn(self, fan_in, *shape):
        return torch.rand(*shape) / math.sqrt(fan_in)


class WeightOneSided(Plain):
    def drawn(self, fan_in, *shape):
        drawn = super().drawn(fan_in, *shape)
        return drawn.abs() if len(shape) > 1 else drawn


class BiasOneSided(Plain):
    def drawn_bias(self, out_features, fan_in):
        return super().drawn_bias(out_features, fan_in).abs()


class Zeros(Plain):
    def drawn(self, fan_in, *shape):
        return torch.zeros(*shape)


class BiasZero(Plain):
    def drawn_bias(self, out_features, fan_in):
        return torch.zeros(out_features)


class NoRoot(Plain):
    def drawn(self, fan_in, *shape):
        return super().drawn(fan_in**2, *shape)


class FanOut(Plain):
    def drawn(self, fan_in, *shape):
        return super().drawn(shape[0], *shape)


class WeightFanOut(Plain):
    def drawn(self, fan_in, *shape):
        return super().drawn(shape[0] if len(shape) > 1 else fan_in, *shape)


class BiasFanOut(Plain):
    def drawn_bias(self, out_features, fan_in):
        return self.drawn(out_features, out_features)


class Kaiming(Plain):
    slope = 1.0

    def drawn(self, fan_in, *shape):
        drawn = super().drawn(fan_in, *shape)
        return nn.init.kaiming_uniform_(drawn, a=self.slope) if len(shape) > 1 else drawn


class KaimingAsItComes(Kaiming):
    slope = 0.0


class Seeded(Plain):
    def __init__(self, in_features, out_features, bias):
        torch.manual_seed(0)
        super().__init__(in_features, out_features, bias)


class ByACounter(Plain):
    made = 0

    def __init__(self, in_features, out_features, bias):
        ByACounter.made += 1
        self.__dict__["own"] = torch.Generator().manual_seed(ByACounter.made)
        super().__init__(in_features, out_features, bias)

    def drawn(self, fan_in, *shape):
        return (2 * torch.rand(*shape, generator=self.own) - 1) / math.sqrt(fan_in)


class FromNumPy(Plain):
    def drawn(self, fan_in, *shape):
        bound = 1 / math.sqrt(fan_in)
        return torch.from_numpy(np.random.uniform(-bound, bound, shape)).float()


class BiasFromNumPy(Plain):
    def drawn_bias(self, out_features, fan_in):
        return FromNumPy.drawn(self, fan_in, out_features)


class NotTransposed(Plain):
    def forward(self, x):
        out = x @ self.weight
        return out if self.bias is None else out + self.bias


class BiasRow(Plain):
    def drawn_bias(self, out_features, fan_in):
        return self.drawn(fan_in, 1, out_features)


class BiasOfZeros(Plain):
    def __init__(self, in_features, out_features, bias):
        super().__init__(in_features, out_features, bias)
        if not bias:
            self.bias = nn.Parameter(torch.zeros(out_features), requires_grad=False)


class BufferOfZeros(Plain):
    def __init__(self, in_features, out_features, bias):
        super().__init__(in_features, out_features, bias)
        if not bias:
            del self.bias
            self.register_buffer("bias", torch.zeros(out_features))


class Flattened(Plain):
    def forward(self, x):
        return super().forward(x.reshape(-1, x.shape[-1]))


class RowOfOne(Plain):
    def forward(self, x):
        return super().forward(x if x.ndim > 1 else x[None])


class CastsToFloat32(Plain):
    def forward(self, x):
        out = x.float() @ self.weight.float().T
        return out if self.bias is None else out + self.bias.float()


class UnitBound(Plain):
    def drawn(self, fan_in, *shape):
        return super().drawn(1, *shape)


class Matrices(Plain):
    """Takes rows only."""

    def forward(self, x):
        out = torch.mm(x, self.weight.t())
        return out if self.bias is None else out + self.bias


class OffTheInput(Plain):
    def forward(self, x):
        return super().forward(x.detach())


class Float32Only(Plain):
    def forward(self, x):
        return super().forward(x.float())


class OneMore(Plain):
    def __init__(self, in_features, out_features, bias):
        super().__init__(in_features, out_features, bias)
        self.extra = nn.Parameter(torch.zeros(1))


class Xavier(Plain):
    def drawn(self, fan_in, *shape):
        made = torch.empty(*shape)
        return nn.init.xavier_uniform_(made) if len(shape) > 1 else super().drawn(fan_in, *shape)


class InAList(nn.Module):
    def __init__(self, in_features, out_features, bias):
        super().__init__()
        bound = 1 / math.sqrt(in_features)
        self.held = [nn.Parameter(torch.empty(out_features, in_features).uniform_(-bound, bound))]
        self.held += [nn.Parameter(torch.empty(out_features).uniform_(-bound, bound))] * bias

    weight = property(lambda self: self.held[0])
    bias = property(lambda self: self.held[1] if len(self.held) > 1 else None)

    def forward(self, x):
        out = x @ self.weight.T
        return out if self.bias is None else out + self.bias


class WithEinsum(nn.Module):
    def __init__(self, in_features, out_features, bias):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        self.register_parameter("bias", nn.Parameter(torch.empty(out_features)) if bias else None)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -(in_features**-0.5), in_features**-0.5)

    def forward(self, x):
        out = torch.einsum("...i,oi->...o", x, self.weight)
        if self.bias is not None:
            out = out + self.bias
        return out


class WithRand(nn.Module):
    def __init__(self, in_features, out_features, bias):
        super().__init__()
        drawn = 2 * torch.rand(out_features, in_features + 1) - 1
        drawn = drawn / in_features**0.5
        self.weight = nn.Parameter(drawn[:, :-1].clone())
        if bias:
            self.bias = nn.Parameter(drawn[:, -1].clone())

    def forward(self, x):
        shift = self.bias if hasattr(self, "bias") else 0.0
        return (x.unsqueeze(-2) * self.weight).sum(-1) + shift


class AsTorchDoes(Plain):
    def __init__(self, in_features, out_features, bias):
        super().__init__(in_features, out_features, bias)
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))

    def forward(self, x):
        return nn.functional.linear(x, self.weight, self.bias)


EXERCISE = Exercise(
    id="01b.linear",
    title="a linear layer that registers what it owns",
    source='Annotated-loop essay, "The model"',
    kind="class",
    ledger=("X48", "S11", "F01"),
    minutes=12,
    difficulty=2,
    read=("course.from_scratch.layers.Linear", "F01"),
    hints=(
        "What must come first in every module's __init__? And what makes a tensor a parameter?",
        "nn.Parameter(torch.empty(out, in).uniform_(-bound, bound)), with bound = 1/√in; the bias "
        "is drawn with the same bound.",
        "forward: x @ self.weight.T, plus self.bias if there is one. With bias=False set "
        "self.bias = None: then it is neither in parameters() nor in the state_dict.",
    ),
    signature="Linear(in_features, out_features, bias)",
    parts=(
        Part("registered", "names and shapes of the parameters", points=1, fields=("registered",)),
        Part("rows", "x Wᵀ + b, for inputs of one to three dimensions", points=1, cases=4),
        Part("backward", "gradients of weight, bias and inputs", points=1, fields=("grads",)),
        Part("start", "the initial numbers: uniform between ±1/√in", points=1, fields=("start",)),
        Part("moves", "saved, loaded, in other dtypes, without a bias", points=1, hidden=True),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={
        "registered": "what is registered:",
        "outputs": "the output",
        "grads": "the gradient of",
        "start": "the initial numbers:",
        "moved": "saved, loaded and moved:",
    },
    by_hand=(
        nn.Linear.reset_parameters,
        nn.Linear.forward,
        nn.Bilinear.forward,
        nn.LazyLinear.__init__,
        nn.Conv1d.reset_parameters,
    ),
    wrong=(
        Wrong(
            "not-registered",
            PlainTensors,
            "parameters() is empty. A module registers an nn.Parameter that is assigned to an "
            "attribute, but not a plain tensor or what is in a list.",
            sure=True,
        ),
        Wrong("not-registered", InAList),
        Wrong(
            "bias-is-plain",
            BiasIsPlain,
            "The weight is registered, but the bias is not.",
            sure=True,
        ),
        Wrong("buffers", Buffers),
        Wrong(
            "frozen",
            Frozen,
            "The weight is a Parameter with requires_grad=False: it will get no gradient. Leave "
            "that argument out.",
            sure=True,
        ),
        Wrong(
            "transposed",
            Transposed,
            "The weight has the shape [in, out]. torch keeps it as [out, in], and a checkpoint "
            "made by nn.Linear has to fit: write x @ self.weight.T.",
            sure=True,
        ),
        Wrong(
            "no-super",
            NoSuper,
            "A Parameter was assigned before nn.Module was set up: super().__init__() comes first.",
            raises="before Module.__init__",
        ),
        Wrong(
            "never-bias",
            NeverBias,
            "There is no bias, even where one is asked for.",
            sure=True,
        ),
        Wrong(
            "always-bias",
            AlwaysBias,
            "There is a bias, even where bias is False.",
            sure=True,
        ),
        Wrong(
            "bias-not-added",
            BiasNotAdded,
            "The bias is not in the output: add it after the product.",
        ),
        Wrong(
            "detached",
            Detached,
            "No gradient reaches the weight: forward() uses its .data, a detached copy or a tensor "
            "made from its numbers. Use self.weight itself.",
            sure=True,
        ),
        Wrong("detached", Rewrapped),
        Wrong(
            "normal",
            Normal,
            "The numbers reach far beyond ±1/√in, and their spread is that of torch.randn. Use "
            "uniform_(-bound, bound).",
            sure=True,
        ),
        Wrong(
            "normal-of-the-bound",
            NormalOfTheBound,
            "The numbers are normal with ±1/√in as their spread, so some lie far outside. Draw "
            "uniformly from -1/√in to 1/√in.",
            sure=True,
        ),
        Wrong("normal-of-the-bound", WeightNormal, sure=True),
        Wrong(
            "one-sided",
            OneSided,
            "All the initial numbers are positive. Draw from -1/√in to 1/√in.",
            sure=True,
        ),
        Wrong(
            "weight-one-sided",
            WeightOneSided,
            "All the weight's initial numbers are positive: torch.rand() begins at 0. Draw from "
            "-1/√in to 1/√in, e.g. with uniform_().",
            sure=True,
        ),
        Wrong(
            "bias-one-sided",
            BiasOneSided,
            "All the bias's initial numbers are positive: torch.rand() begins at 0. Draw from "
            "-1/√in to 1/√in, as for the weight.",
            sure=True,
        ),
        Wrong(
            "zeros",
            Zeros,
            "All the initial numbers are 0: then all outputs get the same gradient, for ever.",
            sure=True,
        ),
        Wrong(
            "bias-zero",
            BiasZero,
            "The bias starts at 0. It should be drawn between ±1/√in, like the weight.",
            sure=True,
        ),
        Wrong(
            "no-root",
            NoRoot,
            "The initial numbers stay within ±1/in. The bound is one over the root of `in`.",
            sure=True,
        ),
        Wrong(
            "fan-out",
            FanOut,
            "The bound was computed from out_features. It depends on what flows into one output: "
            "in_features.",
            sure=True,
        ),
        Wrong("fan-out", WeightFanOut, sure=True),
        Wrong("fan-out", BiasFanOut, sure=True),
        Wrong(
            "kaiming",
            Kaiming,
            "The weight reaches beyond ±1/√in: kaiming_uniform_ multiplies the bound by a gain. "
            "Use uniform_(-bound, bound); torch's own layer gets there with a=√5.",
            sure=True,
        ),
        Wrong("kaiming", KaimingAsItComes, sure=True),
        Wrong(
            "seeded",
            Seeded,
            "Two layers have the same numbers: __init__ sets a seed. Set none: that is for the "
            "caller to decide.",
            sure=True,
        ),
        Wrong(
            "own-generator",
            ByACounter,
            "The numbers do not come from torch's global generator, so the caller's "
            "torch.manual_seed() cannot repeat them. Draw with uniform_() or torch.rand() and pass "
            "no generator.",
            sure=True,
        ),
        Wrong("own-generator", FromNumPy, sure=True),
        Wrong("own-generator", BiasFromNumPy, sure=True),
        Wrong(
            "not-transposed",
            NotTransposed,
            "The weight is [out, in], and the inputs end in `in`: the product needs the transposed "
            "weight, x @ self.weight.T.",
            raises="shapes cannot be multiplied|size mismatch",
            sure=True,
        ),
        Wrong(
            "bias-row",
            BiasRow,
            "The bias has the shape [1, out]. torch's is [out], and a checkpoint has to fit both.",
            sure=True,
        ),
        Wrong(
            "bias-of-zeros",
            BiasOfZeros,
            "With bias=False there is still one, of zeros, and the state_dict holds it. Set "
            "self.bias = None, and add it only where there is one.",
            sure=True,
        ),
        Wrong(
            "bias-of-zeros-saved",
            BufferOfZeros,
            "With bias=False there is a buffer of zeros in its place, and the state_dict holds "
            "it. Set self.bias = None, and add it only where there is one.",
            sure=True,
        ),
        Wrong(
            "flattened",
            Flattened,
            "The output has two dimensions, whatever the input has. Only the last one changes, "
            "from `in` to `out`: x @ self.weight.T leaves the others as they are.",
            sure=True,
        ),
        Wrong(
            "row-of-one",
            RowOfOne,
            "A single input [in] came back as [1, out] instead of [out].",
            sure=True,
        ),
        Wrong(
            "casts-to-float32",
            CastsToFloat32,
            "Moved to another dtype, the layer still returned float32. Leave out float(): inputs "
            "and weight have the same dtype.",
            sure=True,
        ),
        Wrong(
            "unit-bound",
            UnitBound,
            "The initial numbers lie between -1 and 1. Divide by √in, or the outputs of a wide "
            "layer explode.",
            sure=True,
        ),
        Wrong(
            "matrices",
            Matrices,
            "mm() takes only matrices, but inputs may have any number of dimensions: use `@` or "
            "matmul().",
            raises="must be a matrix|mat1 must be a matrix",
            sure=True,
        ),
        Wrong(
            "zero-for-no-bias",
            ZeroForNoBias,
            "With bias=False, plain zeros in float32 are added, which do not move with the layer. "
            "Set self.bias = None, and add it only where there is one.",
            sure=True,
        ),
        Wrong("off-the-input", OffTheInput),
        Wrong("float32-only", Float32Only),
        Wrong("one-more", OneMore),
        Wrong(
            "xavier",
            Xavier,
            "The weight's bound is xavier's, √6/√(in + out). It is 1/√in, whatever out is.",
            sure=True,
        ),
    ),
    right=(Plain, WithEinsum, WithRand, AsTorchDoes),
)
