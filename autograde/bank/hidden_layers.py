"""01b.hidden-layers: a module that keeps what it owns where nobody looks; to be fixed."""

from __future__ import annotations

import re
from functools import partial

import torch
from torch import Tensor, nn

from autograde.exercise import Answer, AnswerError, Case, Draw, Exercise, Part, Wrong, kept
from autograde.kinds.fix import change_size, variant

GIVEN = """
def make_classifier(sizes, mean, std):
    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.mean, self.std = mean, std
            self.layers = [nn.Linear(a, b) for a, b in zip(sizes, sizes[1:])]
            self.scale = torch.ones(sizes[-1], requires_grad=True)

        def forward(self, inputs):
            hidden = (inputs - self.mean) / self.std
            for layer in self.layers[:-1]:
                hidden = torch.relu(layer(hidden))
            return self.scale * self.layers[-1](hidden)

    return Classifier()
"""
MOST = 6
"""Lines that may differ: the three bugs sit in three lines, one of which becomes two."""


def draw(source: Draw, part: str) -> Case:
    """Two to four layers of sizes that differ, statistics of each column, a batch."""
    sizes = [source.integer(2, 3), *(source.integer(3, 5) for _ in range(source.index + 1))]
    sizes.append(source.integer(2, 4))
    return {
        "part": part,
        "sizes": sizes,
        "mean": source.normal(sizes[0]),
        "std": source.normal(sizes[0]).abs() + 1.5,
        "inputs": source.normal(source.integer(2, 3), sizes[0]),
        "shift": source.normal(sizes[0]),
    }


def run(function, case: Case, device: torch.device) -> Answer:
    """What is registered, what a move and a checkpoint reach, and how much was changed."""
    changed = change_size(GIVEN, function, most=MOST)
    model = function(list(case["sizes"]), case["mean"], case["std"])
    if not isinstance(model, nn.Module):
        raise AnswerError(f"It returned a {type(model).__name__}; return the module.")
    if case["part"] == "trained":
        return {"trained": _roles(dict(model.named_parameters()), case)}
    if case["part"] == "saved":
        saved = _roles(dict(model.state_dict()), case)
        return {"saved": saved, "loaded": kept(_loaded, function, model, case)}
    if case["part"] == "moved":
        return {"moved": kept(_moved, model, case["inputs"])}
    return {"outputs": kept(_outputs, model, case["inputs"]), "changed": changed}


def _roles(found: dict[str, Tensor], case: Case) -> dict[str, str]:
    """Of each name that is asked for: is it there? And which others are, by what follows a dot."""
    names = ["mean", "std", "scale"]
    names += [f"layers.{i}.{n}" for i in range(len(case["sizes"]) - 1) for n in ("weight", "bias")]
    frozen = {n for n, p in found.items() if isinstance(p, nn.Parameter) and not p.requires_grad}
    roles = {n: ("there, frozen" if n in frozen else "there") for n in names if n in found}
    return {n: roles.get(n, "missing") for n in names} | {
        "other names": ", ".join(
            sorted(re.sub(r"^\w+\.", "….", n) for n in set(found) - set(names))
        )
    }


def _loaded(function, model: nn.Module, case: Case) -> str:
    """Whether another module, made with other statistics, answers like the one it was loaded of."""
    other = function(list(case["sizes"]), case["shift"], torch.ones_like(case["std"]))
    try:
        other.load_state_dict({name: value.clone() for name, value in model.state_dict().items()})
    except RuntimeError as fault:
        raise AnswerError(f"load_state_dict raised: {fault}"[:160]) from None
    with torch.no_grad():
        same = torch.allclose(other(case["inputs"]), model(case["inputs"]), atol=1e-6)
    return "the same outputs" if same else "other outputs"


def _moved(model: nn.Module, inputs: Tensor) -> str:
    """The outputs after a move to `meta`, which stands for another device."""
    try:
        outputs = model.to("meta")(inputs.to("meta"))
        return f"{list(outputs.shape)} on {outputs.device}"
    except RuntimeError as fault:
        text = str(fault).replace("meta", "the other one")
        raise AnswerError(f"Moved to another device, forward() raised: {text}"[:180]) from None


def _outputs(model: nn.Module, inputs: Tensor) -> dict[str, object]:
    """Outputs with weights of both signs, and how many of them a backward pass reaches."""
    scale = getattr(model, "scale", None)
    first = scale.detach().clone() if isinstance(scale, Tensor) else "none"
    held = [value for layer in model.layers for value in layer.parameters()]
    with torch.no_grad():
        for value in held:
            value.copy_(torch.linspace(-1, 1.5, value.numel()).view_as(value))
        if isinstance(scale, Tensor):
            scale.copy_(torch.linspace(0.5, 2, scale.numel()).view_as(scale))
    outputs = model(inputs)
    if outputs.requires_grad:
        outputs.sum().backward()
    reached = sum(value.grad is not None for value in held)
    trained = isinstance(scale, nn.Parameter) and scale.requires_grad
    return {
        "values": outputs.detach(),
        "tensors with a gradient": reached,
        "scale at first": first,
        "backward()": "leaves scale out" if trained and scale.grad is None else "reaches scale",
    }


LAYERS = "[nn.Linear(a, b) for a, b in zip(sizes, sizes[1:])]"
PLAIN = "self.mean, self.std = mean, std"
BOTH = """self.register_buffer("mean", mean)
            self.register_buffer("std", std)"""
SCALE = "torch.ones(sizes[-1], requires_grad=True)"
LISTED, REGISTERED = f"nn.ModuleList({LAYERS})", "nn.Parameter(torch.ones(sizes[-1]))"
FIXED = GIVEN.replace(LAYERS, LISTED).replace(PLAIN, BOTH).replace(SCALE, REGISTERED)

fixed = partial(variant, FIXED, __file__)
reference = fixed()
list_left = fixed((LISTED, LAYERS))
statistics_left = fixed((BOTH, PLAIN))
std_left = fixed(('self.register_buffer("std", std)', "self.std = std"))
scale_left = fixed((REGISTERED, SCALE))
list_and_scale_left = fixed((LISTED, LAYERS), (REGISTERED, SCALE))
only_the_scale = fixed((LISTED, LAYERS), (BOTH, PLAIN))
only_the_list = fixed((REGISTERED, SCALE), (BOTH, PLAIN))
statistics_trained = fixed((BOTH, "self.mean, self.std = nn.Parameter(mean), nn.Parameter(std)"))
statistics_frozen = fixed(
    (BOTH, "self.mean = nn.Parameter(mean, requires_grad=False)\n"
     "            self.std = nn.Parameter(std, requires_grad=False)"),
)  # fmt: skip
not_persistent = fixed(
    ('"mean", mean)', '"mean", mean, persistent=False)'),
    ('"std", std)', '"std", std, persistent=False)'),
)
std_not_persistent = fixed(('"std", std)', '"std", std, persistent=False)'))
mean_not_persistent = fixed(('"mean", mean)', '"mean", mean, persistent=False)'))
mean_left = fixed(('self.register_buffer("mean", mean)', "self.mean = mean"))
scale_cut_off = fixed(("self.scale * ", "self.scale.detach() * "))
scale_of_one = fixed((REGISTERED, "nn.Parameter(torch.ones(1))"))
scale_as_buffer = fixed(
    (f"self.scale = {REGISTERED}", 'self.register_buffer("scale", torch.ones(sizes[-1]))')
)
scale_drawn = fixed((REGISTERED, "nn.Parameter(torch.randn(sizes[-1]))"))
moved_in_forward = fixed(
    (BOTH, PLAIN),
    ("(inputs - self.mean) / self.std", "(inputs - self.mean.to(inputs)) / self.std.to(inputs)"),
)
mean_moved_in_forward = fixed(
    ('self.register_buffer("mean", mean)', "self.mean = mean"),
    ("(inputs - self.mean)", "(inputs - self.mean.to(inputs))"),
)
std_moved_in_forward = fixed(
    ('self.register_buffer("std", std)', "self.std = std"),
    ("/ self.std", "/ self.std.to(inputs)"),
)
scale_frozen = fixed((REGISTERED, "nn.Parameter(torch.ones(sizes[-1]), requires_grad=False)"))
scale_dropped = fixed(
    ("            self.scale = " + REGISTERED + "\n", ""),
    ("self.scale * self.layers[-1](hidden)", "self.layers[-1](hidden)"),
)
last_unlisted = fixed((LISTED, LISTED.replace("sizes[1:]", "sizes[1:-1]")),
                      ("return self.scale * self.layers[-1](hidden)",
                       "return self.scale * nn.Linear(sizes[-2], sizes[-1])(hidden)"))  # fmt: skip
parameters_of_the_list = fixed(
    (LISTED, LAYERS + "\n            self.listed = nn.ParameterList("
     "p for layer in self.layers for p in layer.parameters())"),
)  # fmt: skip
under_another_name = fixed(
    (LISTED, LAYERS + "\n            self.listed = nn.ModuleList(self.layers)")
)
added_by_name = fixed(
    (LISTED, LAYERS + "\n            for i, layer in enumerate(self.layers):\n"
     '                self.add_module(f"layer{i}", layer)'),
)  # fmt: skip
detached = fixed(("layer(hidden))", "layer(hidden)).detach()"))
no_statistics = fixed(("(inputs - self.mean) / self.std", "inputs"))
relu_everywhere = fixed(("self.layers[:-1]", "self.layers"), ("self.layers[-1](hidden)", "hidden"))
no_relu = fixed(("torch.relu(layer(hidden))", "layer(hidden)"))

scale_unused = fixed(("self.scale * ", ""))
swapped = fixed(('"mean", mean)', '"mean", std)'), ('"std", std)', '"std", mean)'))
statistics_forgotten = fixed(
    ('"mean", mean)', '"mean", torch.zeros_like(mean))'),
    ('"std", std)', '"std", torch.ones_like(std))'),
)
other_names = fixed(
    ('"mean", mean)', '"m", mean)'), ('"std", std)', '"s", std)'),
    ("(inputs - self.mean) / self.std", "(inputs - self.m) / self.s"),
)  # fmt: skip

appended = fixed(
    (LISTED, "nn.ModuleList()\n            for a, b in zip(sizes, sizes[1:]):\n"
     "                self.layers.append(nn.Linear(a, b))"),
    (REGISTERED, f"nn.Parameter({SCALE})"),
)  # fmt: skip
with_sequential = fixed((LISTED, LISTED.replace("ModuleList(", "Sequential(*")))
relus_in_the_sequence = fixed(
    (LISTED, "nn.Sequential(*[module for a, b in zip(sizes, sizes[1:])\n"
     "                                          for module in (nn.Linear(a, b), nn.ReLU())][:-1])"),
    ("            hidden = (inputs - self.mean) / self.std\n"
     "            for layer in self.layers[:-1]:\n"
     "                hidden = torch.relu(layer(hidden))\n"
     "            return self.scale * self.layers[-1](hidden)\n",
     "            return self.scale * self.layers((inputs - self.mean) / self.std)\n"),
)  # fmt: skip
with_buffer_class = fixed((BOTH, "self.mean, self.std = nn.Buffer(mean), nn.Buffer(std)"))
with_a_loop = fixed(
    (BOTH, 'for name, value in (("mean", mean), ("std", std)):\n'
     "                self.register_buffer(name, value.clone())"),
    (f"self.scale = {REGISTERED}",
     'self.register_parameter("scale", nn.Parameter(torch.ones(sizes[-1])))'),
)  # fmt: skip


EXERCISE = Exercise(
    id="01b.hidden-layers",
    title="a module whose layers are hidden",
    source='Engineering module, "Building models", quiz 2',
    kind="fix",
    ledger=("X16", "T07", "F01", "F02", "F03"),
    minutes=10,
    difficulty=2,
    read=("F01", "F02", "F03", "F04"),
    hints=(
        "List what __init__ keeps, and decide for each: is it trained, moved, saved?",
        "Print dict(model.named_parameters()) and model.state_dict(): which names are missing?",
        "nn.ModuleList around the list; nn.Parameter around the scale; register_buffer, with a "
        "name and a tensor, for mean and again for std.",
    ),
    signature="make_classifier(sizes, mean, std)",
    parts=(
        Part("trained", "what an optimizer is given", points=1, fields=("trained",)),
        Part("saved", "what a checkpoint holds and restores", points=1),
        Part("moved", "the whole module on another device", points=1, fields=("moved",)),
        Part("little", f"the same outputs, at most {MOST} lines changed", points=1, cases=3),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={
        "trained": "what parameters() holds:",
        "saved": "what state_dict() holds:",
        "loaded": "after loading, the module gives outputs that",
        "moved": "the outputs",
        "outputs": "with weights of ours in the layers and in scale:",
        "changed": "the number of lines changed",
    },
    wrong=(
        Wrong(
            "list-left",
            list_left,
            "The layers are still in a Python list, which the module does not look into: "
            "nn.ModuleList registers them.",
            sure=True,
        ),
        Wrong(
            "statistics-left",
            statistics_left,
            "mean and std are still plain tensors: they are neither moved nor saved. "
            "register_buffer does both.",
            sure=True,
        ),
        Wrong(
            "std-left",
            std_left,
            "std is still a plain tensor, though mean is registered.",
            sure=True,
        ),
        Wrong(
            "mean-left",
            mean_left,
            "mean is still a plain tensor, though std is registered.",
            sure=True,
        ),
        Wrong(
            "scale-left",
            scale_left,
            "scale is still a plain tensor: requires_grad alone does not register it, so no "
            "optimizer sees it. Wrap it in nn.Parameter.",
            sure=True,
        ),
        Wrong(
            "two-left",
            list_and_scale_left,
            "Two of the three are still not registered: the list, scale, or mean and std. Compare "
            "named_parameters() and state_dict() with what the statement asks for.",
            sure=True,
        ),
        Wrong("two-left", only_the_scale),
        Wrong("two-left", only_the_list),
        Wrong(
            "statistics-trained",
            statistics_trained,
            "mean and std became parameters, so an optimizer would change them. A tensor that is "
            "moved and saved but never trained is a buffer.",
            sure=True,
        ),
        Wrong(
            "statistics-frozen",
            statistics_frozen,
            "mean and std became frozen parameters: they are still counted and handed to the "
            "optimizer. A tensor that is never trained is a buffer.",
            sure=True,
        ),
        Wrong(
            "statistics-not-saved",
            not_persistent,
            "mean and std are not in the checkpoint: after loading they are those of __init__. "
            "Make both buffers, which are moved and saved: register_buffer, without "
            "persistent=False.",
            sure=True,
        ),
        Wrong("statistics-not-saved", moved_in_forward),
        Wrong(
            "one-not-saved",
            std_not_persistent,
            "One of mean and std is not in the checkpoint: after loading it is that of __init__. "
            "Make both buffers, which are moved and saved: register_buffer, without "
            "persistent=False.",
            sure=True,
        ),
        Wrong("one-not-saved", mean_not_persistent, sure=True),
        Wrong("one-not-saved", mean_moved_in_forward, sure=True),
        Wrong("one-not-saved", std_moved_in_forward, sure=True),
        Wrong(
            "scale-cut-off",
            scale_cut_off,
            "scale is a parameter, but no gradient reaches it: forward() takes it off the graph. "
            "Leave out detach(), .data and no_grad().",
            sure=True,
        ),
        Wrong(
            "scale-of-one",
            scale_of_one,
            "scale has a single number. It had one for each logit, and so does a checkpoint: "
            "torch.ones(sizes[-1]).",
            sure=True,
        ),
        Wrong(
            "scale-as-buffer",
            scale_as_buffer,
            "scale became a buffer, which no optimizer trains. It should be learnt: nn.Parameter.",
            sure=True,
        ),
        Wrong(
            "scale-frozen",
            scale_frozen,
            "scale is a parameter with requires_grad=False: it gets no gradient, but it should be "
            "learnt.",
            sure=True,
        ),
        Wrong(
            "scale-drawn",
            scale_drawn,
            "scale does not begin at 1, so the outputs differ from those of the given code. "
            "Register it and keep its values: nn.Parameter(torch.ones(...)).",
            sure=True,
        ),
        Wrong("scale-dropped", scale_dropped),
        Wrong("last-unlisted", last_unlisted),
        Wrong(
            "parameters-of-the-list",
            parameters_of_the_list,
            "The parameters were registered under another name. A checkpoint needs "
            "layers.0.weight: register the layers themselves, with nn.ModuleList.",
            sure=True,
        ),
        Wrong(
            "under-another-name",
            under_another_name,
            "The layers were registered under another name than `layers`. A checkpoint needs "
            "layers.0.weight: self.layers itself should be the nn.ModuleList.",
            sure=True,
        ),
        Wrong("under-another-name", added_by_name, sure=True),
        Wrong(
            "relus-counted",
            relus_in_the_sequence,
            "The second layer is called layers.2: with the ReLUs among them, the layers of an "
            "nn.Sequential have other numbers than in a checkpoint. Keep only the Linear layers in "
            "self.layers.",
            sure=True,
        ),
        Wrong("detached", detached),
        Wrong("no-statistics", no_statistics),
        Wrong(
            "relu-everywhere",
            relu_everywhere,
            "Negative logits came out as 0: a ReLU follows the last layer, too. It belongs only "
            "between the layers.",
            sure=True,
        ),
        Wrong(
            "no-relu",
            no_relu,
            "The outputs are those of the layers without the ReLU between them. Keep it.",
        ),
        Wrong("scale-unused", scale_unused),
        Wrong(
            "swapped",
            swapped,
            "The outputs are those of mean and std swapped.",
        ),
        Wrong("statistics-forgotten", statistics_forgotten),
        Wrong("other-names", other_names),
    ),
    right=(with_sequential, with_buffer_class, with_a_loop, appended),
)
