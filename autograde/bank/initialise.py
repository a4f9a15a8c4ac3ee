"""02a.initialise: weights drawn so that the signal keeps its size through depth."""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor, nn

from autograde.bank.harness import Watch
from autograde.exercise import Answer, Case, Draw, Exercise, Part, Wrong
from course.from_scratch.initialisation import initialise_

GAIN = {"linear": 1.0, "relu": math.sqrt(2), "tanh": 5 / 3}
WITHIN = 0.05
"""Of a standard deviation: that of 10,000 drawn numbers is off by 0.7 % on average."""
FAR = 6
"""Standard errors of a mean that is not 0."""
ORTHOGONAL, AKIN = 0.3, 12
"""Rows whose squared products are on average less than this share of what independent numbers have,
or more than it by as many standard errors; a million honest draws stayed above 0.5 and below 6."""


def draw(source: Draw, part: str) -> Case:
    """A nested model with two layers of one shape; square layers where the gain alone is asked.

    A layer is frozen in one of the cases about gains, and one about linear layers is one itself.
    """
    narrow = source.integer(64, 72)
    wide = narrow if part == "gain" else 2 * narrow + source.integer(0, 20)
    activation = ("relu", "tanh")[source.index % 2] if part == "gain" else "linear"
    return {
        "narrow": narrow,
        "wide": wide,
        "kernel": source.choice([3, 5]) if part == "conv" else 0,
        "activation": activation,
        "bias": part == "biases" or source.index == 0,
        "dtype": "float64" if source.index % 2 else "float32",
        "frozen": source.index == 1 and part in ("gain", "same"),
        "bare": part == "linear" and source.index == 1,
        "stale": source.normal(4),
    }


def build(case: Case) -> nn.Module:
    """Layers at three depths; a norm, an embedding and other convolutions that are none of them."""
    narrow, wide, bias = case["narrow"], case["wide"], case["bias"]
    if size := case["kernel"]:
        outside = made(nn.Conv2d, 16, narrow, (size, size), bias)
        inside = made(nn.Conv2d, narrow, 16, (1, size), bias)
        between = made(nn.Conv2d, 16, narrow, (size, size), True)
        norm: nn.Module = nn.BatchNorm2d(4)
    else:
        outside = made(nn.Linear, narrow, wide, (), True)
        inside = made(nn.Linear, wide, narrow, (), bias)
        between = made(nn.Linear, narrow, wide, (), True)
        norm = nn.BatchNorm1d(4)
    if case["bare"]:
        return outside
    between.weight.requires_grad_(not case["frozen"])
    block = nn.Sequential(norm, nn.ReLU(), nn.Sequential(inside), nn.Dropout(0.2))
    return nn.Sequential(outside, block, between, nn.Embedding(4, 8), *copy.deepcopy(OTHERS))


EMPTY = {nn.Linear: nn.Linear(1, 1), nn.Conv2d: nn.Conv2d(1, 1, 1)}
"""Making one calls kaiming_uniform_, which nobody may call while an answer runs."""
OTHERS = nn.Conv1d(2, 3, 2), nn.ConvTranspose2d(2, 3, 2)
"""Convolutions, but no Conv2d."""


def made(kind: type, inputs: int, outputs: int, field: tuple[int, ...], bias: bool) -> nn.Module:
    """A layer whose spread is that of no known mistake, also where nothing is drawn."""
    layer = copy.deepcopy(EMPTY[kind])
    layer.weight = nn.Parameter(torch.randn(outputs, inputs, *field) / 3)
    layer.bias = nn.Parameter(torch.randn(outputs)) if bias else None
    names = (
        ("in_features", "out_features") if kind is nn.Linear else ("in_channels", "out_channels")
    )
    for name, value in zip((*names, "kernel_size"), (inputs, outputs, field), strict=True):
        setattr(layer, name, value)
    return layer


def run(function, case: Case, device: torch.device) -> Answer:
    """The spread of each weight, the biases, and what is different that should not be."""
    model = build(case).to(device, getattr(torch, case["dtype"]))
    if not case["bare"]:
        _use(model, case["stale"])
    dtypes = {name: parameter.dtype for name, parameter in model.named_parameters()}
    watch = Watch(model)
    before, others = dict(model.named_parameters()), apart(model)
    old = {name: layer.weight.detach().clone() for name, layer in layers(model)}
    function(model, case["activation"])
    now, after = dict(layers(model)), dict(model.named_parameters())
    gone = before.keys() - after
    return {
        "std": {_called(name): layer.weight.detach().std().item() for name, layer in now.items()},
        "drawn": not_drawn(now, old),
        "biases": [text for name, layer in now.items() if (text := _bias(name, layer, gone))],
        "others": [name for name, tensor in apart(model).items()
                   if not torch.equal(tensor, others[name])][:1],
        "dtypes": [f"{name} in {parameter.dtype}" for name, parameter in model.named_parameters()
                   if parameter.dtype != dtypes.get(name, parameter.dtype)][:1],
        "replaced": sum(after.get(name, it) is not it for name, it in before.items()),
        "disturbed": watch.changed(frozenset({"weights", "random", "buffers"})),
    }  # fmt: skip


def _bias(name: str, layer: nn.Module, gone: set[str]) -> str:
    """What is wrong with the bias of a layer, in words."""
    if layer.bias is None:
        lost = f"{name}.bias".lstrip(".") in gone
        return f"{_called(name)}, whose bias is None now" if lost else ""
    return _called(name) if layer.bias.detach().cpu().any() else ""


def _use(model: nn.Sequential, stale: Tensor) -> None:
    """A norm that has seen batches, a gradient, a block in eval mode."""
    norm = model[1][0]
    for number, tensor in enumerate((norm.weight, norm.bias, norm.running_mean)):
        tensor.data.fill_(0.5 + number)
    norm.weight.grad = stale.to(norm.weight)
    model[1].eval()


def _called(name: str) -> str:
    """A layer in a message; its name alone is a number."""
    return f"layer {name}" if name else "the model, itself a layer"


def layers(model: nn.Module) -> list[tuple[str, nn.Module]]:
    kinds = (nn.Linear, nn.Conv2d)
    return [(name, layer) for name, layer in model.named_modules() if isinstance(layer, kinds)]


def apart(model: nn.Module) -> dict[str, Tensor]:
    """Copies of what belongs to no Linear or Conv2d."""
    mine = tuple(f"{name}." if name else "" for name, _ in layers(model))
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()
            if not name.startswith(mine)}  # fmt: skip


def not_drawn(now: dict[str, nn.Module], old: dict[str, Tensor]) -> str:
    """The first layer whose weights are not fresh, independent numbers around 0, and why."""
    found, seen = [], []
    for name, layer in now.items():
        weight = layer.weight.detach()
        flat = weight.flatten(1)
        error = flat.std() / math.sqrt(flat.numel())
        rows = flat.mean(dim=1).std() * math.sqrt(flat.shape[1])  # as large as the numbers' own
        if not 0.5 < rows / flat.std() < 2:  # first: the mean of equal rows is far from 0, too
            found.append(f"{_called(name)}: rows, or numbers in a row, depend on one another")
        elif (flat >= 0).all():
            found.append(f"{_called(name)}: no number is below 0")
        elif not flat.mean().abs() <= FAR * error:
            found.append(f"{_called(name)}: the mean is {flat.mean():.1g}, not 0")
        elif len(flat.unique()) < flat.numel() / 2:
            found.append(f"{_called(name)}: the same few numbers again and again")
        elif _dependent(flat):
            found.append(f"{_called(name)}: rows, or numbers in a row, depend on one another")
        elif torch.equal(old[name], weight):
            found.append(f"{_called(name)}: the same numbers as before")
        elif any(other.shape == weight.shape and torch.equal(other, weight) for other in seen):
            found.append(f"{_called(name)}: the same numbers as another layer")
        seen.append(weight.clone())
    return found[0] if found else "nothing"


def _dependent(flat: Tensor) -> bool:
    """Whether rows, or columns if they are fewer, have other products than independent ones do.

    The product of two rows of n such numbers has the mean square n·variance².
    """
    share, error = products(flat)
    return not ORTHOGONAL < share < 1 + AKIN * error


def products(flat: Tensor) -> tuple[float, float]:
    """The mean square of the products of two rows over the expected one, and its standard error."""
    rows = flat.double() if flat.shape[0] <= flat.shape[1] else flat.double().T
    pairs = len(rows) * (len(rows) - 1) / 2
    squares = (rows @ rows.T).square().triu(diagonal=1).sum() / pairs
    share = squares / (rows.shape[1] * rows.square().mean() ** 2)
    return share.item(), math.sqrt(2 / pairs)


def reference(model: nn.Module, activation: str) -> None:
    """The course's own."""
    initialise_(model, activation)


def inputs(weight):
    return weight[0].numel()


def outputs(weight):
    return weight.shape[0] * weight[0, 0].numel()


def he(weight, activation):
    return GAIN[activation] / math.sqrt(inputs(weight))


def made_of(std=he, kinds=(nn.Linear, nn.Conv2d), within=nn.Module.modules):
    """A right answer, or with one thing changed a wrong one."""

    def initialise(model, activation):
        with torch.no_grad():
            for layer in within(model):
                if isinstance(layer, kinds):
                    layer.weight.normal_(0, std(layer.weight, activation))
                    if getattr(layer, "bias", None) is not None:
                        layer.bias.zero_()

    return initialise


plain = made_of()
by_outputs = made_of(lambda w, a: GAIN[a] / math.sqrt(outputs(w)))
by_units = made_of(lambda w, a: GAIN[a] / math.sqrt(len(w)))
units_of_a_linear = made_of(lambda w, a: GAIN[a] / math.sqrt(len(w) if w.ndim == 2 else inputs(w)))
variance_for_std = made_of(lambda w, a: GAIN[a] ** 2 / inputs(w))
root_forgotten = made_of(lambda w, a: GAIN[a] / inputs(w))
gain_missing = made_of(lambda w, a: 1 / math.sqrt(inputs(w)))
relu_gain_2 = made_of(lambda w, a: (2 if a == "relu" else GAIN[a]) / math.sqrt(inputs(w)))
always_relu = made_of(lambda w, a: math.sqrt(2 / inputs(w)))
gain_twice = made_of(lambda w, a: GAIN[a] ** 2 / math.sqrt(inputs(w)))
gain_under_root = made_of(lambda w, a: math.sqrt(GAIN[a] / inputs(w)))
xavier = made_of(lambda w, a: GAIN[a] * math.sqrt(2 / (inputs(w) + outputs(w))))
xavier_halved = made_of(lambda w, a: GAIN[a] * math.sqrt(1 / (inputs(w) + outputs(w))))
channels_only = made_of(lambda w, a: GAIN[a] / math.sqrt(w.shape[1]))
one_side_of_the_field = made_of(lambda w, a: GAIN[a] / math.sqrt(w.shape[1] * w.shape[-1] ** 0.5))
square_kernels = made_of(
    lambda w, a: GAIN[a] / math.sqrt(w.shape[1] * (w.shape[2] ** 2 if w.ndim > 2 else 1))
)
tanh_without_gain = made_of(lambda w, a: (1 if a == "tanh" else GAIN[a]) / math.sqrt(inputs(w)))
cut_at_two = made_of(lambda w, a: 0.8796 * GAIN[a] / math.sqrt(inputs(w)))
by_the_count = made_of(lambda w, a: GAIN[a] / math.sqrt(w.numel()))
top_level_only = made_of(within=nn.Module.children)
linear_only = made_of(kinds=nn.Linear)
embedding_too = made_of(kinds=(nn.Linear, nn.Conv2d, nn.Embedding))
every_convolution = made_of(kinds=(nn.Linear, nn.modules.conv._ConvNd))
root_missed = made_of(within=lambda model: list(model.modules())[1:])
without_bias_skipped = made_of(
    within=lambda model: [m for m in model.modules() if getattr(m, "bias", None) is not None]
)
frozen_skipped = made_of(
    within=lambda model: [
        m
        for m in model.modules()
        if all(p.requires_grad for p in m._parameters.values() if p is not None)
    ]
)


def whatever_has_a_weight(model, activation):
    for module in model.modules():
        weight = getattr(module, "weight", None)
        if weight is not None and weight.ndim > 1:
            nn.init.normal_(weight, 0, he(weight, activation))
            if getattr(module, "bias", None) is not None:
                nn.init.zeros_(module.bias)


def last_without_gain(model, activation):
    plain(model, activation)
    *others, (_, last) = layers(model)
    if others:
        made_of(within=lambda m: [m])(last, "linear")


def first_without_gain(model, activation):
    plain(model, activation)
    (_, first), *others = layers(model)
    if others:
        made_of(within=lambda m: [m])(first, "linear")


def bias_must_be_there(model, activation):
    with torch.no_grad():
        for _, layer in layers(model):
            layer.weight.normal_(0, he(layer.weight, activation))
            layer.bias.zero_()


def train_mode(model, activation):
    plain(model.train(), activation)


def eval_mode(model, activation):
    plain(model.eval(), activation)


def clears_gradients(model, activation):
    plain(model, activation)
    model.zero_grad()


def thawed(model, activation):
    model.requires_grad_(False)
    plain(model, activation)
    model.requires_grad_(True)


def in_float32(model, activation):
    plain(model, activation)
    each_as_it_was(model, lambda m: setattr(m.weight, "data", m.weight.data.float()))


def one_unit_for_all(model, activation):
    plain(model, activation)
    each_as_it_was(model, lambda m: m.weight.data.copy_(m.weight.data[:1].clone()))


def reset_norms(model, activation):
    plain(model, activation)
    for module in model.modules():
        if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)


def by_dimensions(model, activation):
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, he(parameter, activation))
            else:
                parameter.zero_()


def each_as_it_was(model, change):
    for _, layer in layers(model):
        change(layer)


def biases_left(model, activation):
    each_as_it_was(model, lambda m: nn.init.normal_(m.weight, 0, he(m.weight, activation)))


def biases_drawn(model, activation):
    def draw_both(layer):
        for parameter in layer.parameters():
            nn.init.normal_(parameter, 0, he(layer.weight, activation))

    each_as_it_was(model, draw_both)


def every_bias_in_the_model(model, activation):
    plain(model, activation)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(parameter)


def new_parameters(model, activation):
    def replace(layer):
        drawn = torch.randn_like(layer.weight.detach()) * he(layer.weight, activation)
        layer.weight = nn.Parameter(drawn)
        if layer.bias is not None:
            layer.bias = nn.Parameter(torch.zeros_like(layer.bias))

    each_as_it_was(model, replace)


def new_parameters_as_frozen(model, activation):
    def replace(layer):
        drawn = torch.randn_like(layer.weight.detach()) * he(layer.weight, activation)
        layer.weight = nn.Parameter(drawn, requires_grad=layer.weight.requires_grad)
        if (bias := layer.bias) is not None:
            layer.bias = nn.Parameter(torch.zeros_like(bias), requires_grad=bias.requires_grad)

    each_as_it_was(model, replace)


def new_weights(model, activation):
    plain(model, activation)
    each_as_it_was(model, lambda m: setattr(m, "weight", nn.Parameter(m.weight.detach().clone())))


def new_weights_as_frozen(model, activation):
    def replace(layer):
        drawn, recorded = layer.weight.detach().clone(), layer.weight.requires_grad
        layer.weight = nn.Parameter(drawn, requires_grad=recorded)

    plain(model, activation)
    each_as_it_was(model, replace)


def seeded_per_layer(model, activation):
    def one(layer):
        torch.manual_seed(0)
        made_of(within=lambda m: [m])(layer, activation)

    each_as_it_was(model, one)


def bound_for_std(model, activation):
    def one(layer):
        bound = he(layer.weight, activation)
        nn.init.uniform_(layer.weight, -bound, bound)
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)

    each_as_it_was(model, one)


def from_zero_up(model, activation):
    def one(layer):
        nn.init.uniform_(layer.weight, 0, math.sqrt(12) * he(layer.weight, activation))
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)

    each_as_it_was(model, one)


def share_of_rand(model, activation):
    def one(layer):
        layer.weight.data = torch.rand_like(layer.weight) * he(layer.weight, activation)
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)

    each_as_it_was(model, one)


def signs_alone(model, activation):
    plain(model, activation)
    each_as_it_was(
        model,
        lambda m: m.weight.data.copy_(m.weight.data.sign() * he(m.weight, activation)),
    )


def orthogonal(model, activation):
    plain(model, activation)

    def one(layer):
        drawn = nn.init.orthogonal_(torch.empty(layer.weight.shape))
        drawn *= he(layer.weight, activation) / drawn.square().mean().sqrt()
        layer.weight.data.copy_(drawn)

    each_as_it_was(model, one)


def each_row_twice(model, activation):
    """Once with the other sign."""
    plain(model, activation)

    def one(layer):
        half = len(layer.weight) // 2
        layer.weight.data[-half:] = -layer.weight.data[:half]

    each_as_it_was(model, one)


def biases_removed(model, activation):
    plain(model, activation)
    each_as_it_was(model, lambda m: setattr(m, "bias", None))


def not_under_no_grad(model, activation):
    each_as_it_was(model, lambda m: m.weight.mul_(0).add_(he(m.weight, activation)))


def rescaled(model, activation):
    with torch.no_grad():
        for _, layer in layers(model):
            layer.weight.mul_(he(layer.weight, activation) / layer.weight.std())
            if layer.bias is not None:
                layer.bias.zero_()


def freezes(model, activation):
    plain(model, activation)
    for _, layer in layers(model):
        layer.weight.requires_grad_(False)


def a_row_at_once(model, activation):
    with torch.no_grad():
        for _, layer in layers(model):
            one = layer.weight[:, :1].normal_(0, he(layer.weight, activation)).clone()
            layer.weight.copy_(one.expand_as(layer.weight))
            if layer.bias is not None:
                layer.bias.zero_()


def uniform(model, activation):
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Conv2d)):
            inputs = module.weight[0].numel()
            bound = GAIN[activation] * math.sqrt(3 / inputs)
            module.weight.data.uniform_(-bound, bound)
            if module.bias is not None:
                module.bias.data.copy_(torch.zeros_like(module.bias))


def by_apply(model, activation):
    gain = {"linear": 1, "relu": 2**0.5, "tanh": 5 / 3}[activation]

    def one(module):
        if type(module) in (nn.Linear, nn.Conv2d):
            out = module.weight.shape[0]
            std = gain * (out / module.weight.numel()) ** 0.5
            nn.init.normal_(module.weight, std=std)
            if module.bias is not None:
                nn.init.constant_(module.bias, 0)

    model.apply(one)


EXERCISE = Exercise(
    id="02a.initialise",
    title="draw the weights of a model",
    source='Lecture 3, "Debug checklist · why won\'t loss go down? · part 2"; He et al. 2015',
    ledger=("B20", "T22"),
    minutes=12,
    difficulty=2,
    read=("course.from_scratch.initialisation", "F81"),
    hints=(
        "How many numbers does one unit of the layer add up? That number is what matters; count "
        "it for a convolution with a 3 x 3 kernel.",
        "model.modules() goes through all depths. weight[0].numel() is the number of inputs of a "
        "unit, for a Linear and for a Conv2d.",
        "With torch.no_grad(): for each Linear or Conv2d, weight.normal_(0, gain / "
        "math.sqrt(weight[0].numel())), and bias.zero_() where there is one.",
    ),
    signature="initialise(model, activation)",
    parts=(
        Part("linear", "linear layers, no activation", points=1, fields=("drawn", "std")),
        Part("gain", "after relu, and after tanh", points=1, fields=("drawn", "std")),
        Part("conv", "convolutions", points=1, fields=("drawn", "std")),
        Part("biases", "biases 0; other modules, modes and .grad as they were", 1,
             fields=("biases", "others", "dtypes", "disturbed")),
        Part("same", "the same parameters as before", 1, hidden=True,
             fields=("drawn", "replaced", "disturbed")),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={
        "std": "the standard deviation of the weights of",
        "drawn": "what is not drawn independently around 0:",
        "biases": "layers with a bias that is not 0:",
        "others": "what else was changed first:",
        "dtypes": "what first has another dtype than before:",
        "replaced": "parameters of the model that are new objects:",
    },
    by_hand=(
        initialise_, nn.init.kaiming_normal_, nn.init.kaiming_uniform_, nn.init.xavier_normal_,
        nn.init.xavier_uniform_,
    ),
    tolerance={torch.float32: (WITHIN, 0.0)},
    wrong=(
        Wrong("by-outputs", by_outputs,
              "The spread is 1/√ of each layer's number of outputs. A unit adds up its inputs."),
        Wrong("by-outputs", by_units),
        Wrong("units-of-a-linear", units_of_a_linear,
              "Convolutions are drawn correctly, but for a Linear the spread is 1/√ of its "
              "outputs. Its weight is [outputs, inputs]: weight.shape[1], or weight[0].numel()."),
        Wrong("variance-for-std", variance_for_std,
              "The standard deviation has the value that the variance should have: take the root."),
        Wrong("root-forgotten", root_forgotten,
              "The standard deviation is gain/inputs: divide by the root of the inputs."),
        Wrong("gain-missing", gain_missing,
              "With relu and tanh the weights are no wider than without them: multiply by the "
              "gain."),
        Wrong("always-relu", always_relu,
              "The spread is that for relu, whatever the activation: look up the gain by its "
              "name."),
        Wrong("gain-twice", gain_twice,
              "The gain was squared, as it is in the variance. Here it is gain/√inputs."),
        Wrong("gain-under-the-root", gain_under_root,
              "The gain is under the root. It should multiply the standard deviation."),
        Wrong("xavier", xavier,
              "That is Xavier's rule, with inputs and outputs. Here the inputs alone count."),
        Wrong("xavier-halved", xavier_halved),
        Wrong("field-forgotten", channels_only,
              "A unit of a convolution adds up channels times kernel: 3 x 3 has nine per channel. "
              "Divide by √ of all of them."),
        Wrong("field-halved", one_side_of_the_field),
        Wrong("square-kernels", square_kernels,
              "A kernel counted as its height squared. Its width may differ: inputs "
              "are channels x height x width.", sure=True),
        Wrong("tanh-without-gain", tanh_without_gain,
              "With relu the weights are right, but with tanh they are as wide as "
              "without an activation. Its gain is 5/3.", sure=True),
        Wrong("last-without-gain", last_without_gain,
              "The last layer of the model was drawn without the gain. The statement asks for one "
              "rule in every layer.", sure=True),
        Wrong("cut-at-two", cut_at_two,
              "The weights are 12 % too narrow, as normal numbers are if they are cut off at two "
              "standard deviations. Do not cut them off: use normal_()."),
        Wrong("first-without-gain", first_without_gain,
              "The first layer of the model was drawn without the gain. The statement asks for one "
              "rule in every layer.", sure=True),
        Wrong("by-the-count", by_the_count,
              "The spread is 1/√ of all numbers in the weight. Divide by those of one unit."),
        Wrong("top-level-only", top_level_only,
              "Layers inside a module of the model kept their weights. modules() visits all "
              "depths, children() one."),
        Wrong("root-missed", root_missed,
              "A model that is itself a layer kept its weights. modules() begins with the model; "
              "children() and a recursion over them leave it out.", sure=True),
        Wrong("frozen-skipped", frozen_skipped,
              "A frozen layer kept its weights. Draw every Linear and Conv2d, "
              "whatever its requires_grad.", sure=True),
        Wrong("without-bias-skipped", without_bias_skipped,
              "A layer without a bias kept its weights. Draw every Linear and Conv2d.",
              sure=True),
        Wrong("bias-must-be-there", bias_must_be_there,
              "It raised an error at a layer without a bias, where layer.bias is None. Check "
              "before filling it.",
              raises=r"^AttributeError: 'NoneType' object has no attribute '\w+_'",
              sure=True),
        Wrong("linear-only", linear_only, "Convolutions kept their weights: draw Conv2d's, too."),
        Wrong("biases-not-0", biases_left,
              "Biases are not 0 afterwards. Fill them with 0 wherever there is one.", sure=True),
        Wrong("biases-not-0", biases_drawn, sure=True),
        Wrong("biases-removed", biases_removed,
              "A layer that had a bias has none now. A bias of 0 is still a parameter, which "
              "training moves: fill it with 0, and leave it in the layer.", sure=True),
        Wrong("others-touched", reset_norms,
              "Parameters of another kind of module were changed, too. Draw only Linear and "
              "Conv2d layers: check each module's type."),
        Wrong("others-touched", by_dimensions),
        Wrong("others-touched", every_bias_in_the_model),
        Wrong("others-touched", embedding_too),
        Wrong("others-touched", every_convolution),
        Wrong("others-touched", whatever_has_a_weight),
        Wrong("thawed", thawed,
              "Frozen parameters can now be trained: requires_grad is True. Leave it "
              "alone: under torch.no_grad(), frozen weights can be filled like any "
              "others.", sure=True),
        Wrong("modes-changed", train_mode,
              "A module is in another mode than before. Weights are drawn the same "
              "way in both: call neither train() nor eval().", sure=True),
        Wrong("modes-changed", eval_mode, sure=True),
        Wrong("gradients-cleared", clears_gradients,
              "A .grad that was there is gone. Leave it alone: zero_grad() belongs to training.",
              sure=True),
        Wrong("weights-in-float32", in_float32,
              "A float64 model now has float32 weights. Fill them in place, or draw "
              "with torch.randn_like(weight).", sure=True),
        Wrong("not-independent", one_unit_for_all,
              "The rows of a weight, or the numbers in a row, are the same or depend "
              "on one another. Draw each number independently.", sure=True),
        Wrong("not-independent", a_row_at_once, sure=True),
        Wrong("not-independent", orthogonal, sure=True),
        Wrong("not-independent", each_row_twice, sure=True),
        Wrong("signs-alone", signs_alone,
              "The weights have only a few different values, e.g. plus and minus the standard "
              "deviation. Draw them from a normal or a uniform distribution.", sure=True),
        Wrong("new-parameters", new_parameters,
              "The model holds new Parameter objects, but an optimizer made before "
              "still moves the old ones. Fill the weights in place, e.g. with "
              "normal_().", sure=True),
        Wrong("new-parameters", new_parameters_as_frozen, sure=True),
        Wrong("new-parameters", new_weights, sure=True),
        Wrong("new-parameters", new_weights_as_frozen, sure=True),
        Wrong("seeded-per-layer", seeded_per_layer,
              "Two layers of the same shape got the same numbers. Set no seed here, "
              "and draw new numbers for each layer.", sure=True),
        Wrong("bound-for-std", bound_for_std,
              "The weights are √3 too narrow: a uniform number between -b and b has standard "
              "deviation b/√3."),
        Wrong("from-zero-up", from_zero_up,
              "No weight is below 0, so the mean is not 0. torch.rand gives numbers "
              "from 0 to 1: draw between -b and b.", sure=True),
        Wrong("from-zero-up", share_of_rand, sure=True),
        Wrong("relu-gain-2", relu_gain_2,
              "With relu the weights are drawn with a gain of 2, which is right for "
              "the variance. For the standard deviation it is √2.", sure=True),
        Wrong("not-under-no-grad", not_under_no_grad,
              "A parameter was changed in place while torch recorded. Do it under "
              "torch.no_grad().", raises="a leaf Variable that requires grad"),
        Wrong("freezes", freezes),
    ),
    right=(plain, uniform, by_apply, rescaled),
)  # fmt: skip
