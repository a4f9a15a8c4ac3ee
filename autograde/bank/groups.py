"""04a.groups: a rate for the head, and decay for weights only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from autograde.bank.common_wrong import common
from autograde.bank.harness import Watch
from autograde.exercise import Answer, AnswerError, Case, Draw, Exercise, Part, Wrong
from course.engine.groups import parameter_groups as of_the_course

HEADS = ("head", "out", "classifier", "top")


def draw(source: Draw, part: str) -> Case:
    """A small model, and which of its parts is the head; no name or place can be relied on.

    The first case of `rates` has the name that one would guess, the others have not.
    """
    usual = part == "rates" and source.index == 0
    names = HEADS[:1] if usual else HEADS[1:] if part == "rates" else HEADS
    return {
        "wide": source.integer(2, 4),
        "kind": part,
        "head": source.choice(names),
        "norm": source.choice(["layer", "batch"]),
        "lr": source.uniform(0.001, 0.01),
        "head_lr": source.uniform(0.02, 0.09),
        "weight_decay": source.uniform(0.1, 0.5),
    }


class Model(nn.Module):
    """Layers, a normalisation, a head; in `nested` more of everything, and a weight used twice."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        wide, kind = case["wide"], case["kind"]
        norm = nn.LayerNorm if case["norm"] == "layer" else nn.BatchNorm1d
        self.body = nn.Sequential(nn.Linear(3, wide), norm(wide), nn.PReLU(wide))
        if kind != "rates":
            self.first = nn.Linear(wide, wide)
            self.first.requires_grad_(kind == "decay")
            self.filters = nn.Conv1d(2, wide, 3)
        head: nn.Module = nn.Linear(wide, 2)
        if kind == "nested":
            self.mix = nn.Parameter(torch.ones(wide, 2))
            self.scale = nn.Parameter(torch.ones(()))
            self.blocks = nn.ModuleList([nn.Linear(wide, wide) for _ in "12"])
            self.over_head = nn.Linear(wide, wide)
            self.filters_of_the_head = nn.Linear(wide, wide)
            head = nn.Sequential(
                nn.Linear(wide, wide), norm(wide), nn.Linear(wide, 2), nn.Linear(wide, wide)
            )
            head[0].bias.requires_grad_(False)
            head.gain = nn.Parameter(torch.ones(2, 2))
        self.end = nn.Module()
        setattr(self.end if kind == "nested" else self, case["head"], head)
        if kind == "decay":
            self.gate = nn.Linear(wide, 1)
            self.one = nn.Linear(1, 1)  # of one number, and yet of two dimensions
        if kind == "rates":
            setattr(self, f"{case['head']}_norm", norm(wide))
            self.last = nn.Linear(2, 2)


def run(function, case: Case, device: torch.device) -> Answer:
    """Rate and decay of each parameter by name; what is in there that should not be, or twice."""
    model = Model(case).to(device)
    if case["kind"] == "nested":  # only now: on some devices .to() makes new parameters of all
        model.blocks[1].weight = model.blocks[0].weight
        getattr(model.end, case["head"])[3].weight = model.filters_of_the_head.weight
    head = getattr(model.end if case["kind"] == "nested" else model, case["head"])
    watch = Watch(model)
    trainable = [name for name, p in model.named_parameters() if p.requires_grad]
    groups = function(model, head, case["lr"], case["head_lr"], case["weight_decay"])
    rows = list(_rows(groups))
    names = {id(p): name for name, p in model.named_parameters()}
    given: dict[str, list[Any]] = {}
    for parameter, lr, decay in rows:
        given.setdefault(names.get(id(parameter), "a tensor of its own"), []).append((lr, decay))
    twice = _listed(name for name, rates in given.items() if len(rates) > 1)
    return {
        "twice": twice,  # first: of what is in two groups, the rate below is that of one of them
        "lr": {name: given[name][0][0] if name in given else "in no group" for name in trainable},
        "decay": {name: given[name][0][1] if name in given else "no group" for name in trainable},
        "listed": [name for name in trainable if name in given],
        "extra": _listed(set(given) - set(trainable)),
        "disturbed": watch.changed(),
    }


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"


def _rows(groups: Any):
    """(parameter, lr, weight_decay) of all groups."""
    if not isinstance(groups, (list, tuple)) or not all(isinstance(g, dict) for g in groups):
        raise AnswerError(
            f"Return a list of dictionaries, as an optimizer takes it; what came back was a "
            f"{type(groups).__name__}."
        )
    for number, group in enumerate(groups):
        for key in ("params", "lr", "weight_decay"):
            if key not in group:
                raise AnswerError(f"Group {number} has no entry {key!r}.")
        params = group["params"]
        for parameter in [params] if isinstance(params, Tensor) else list(params):
            if not isinstance(parameter, Tensor):
                kind = type(parameter).__name__
                raise AnswerError(
                    f"Group {number} holds a {kind}; it should hold the parameters themselves."
                )
            yield parameter, float(group["lr"]), float(group["weight_decay"])


def reference(model, head, lr, head_lr, weight_decay):
    """The course's own."""
    return of_the_course(model, head=head, lr=lr, head_lr=head_lr, weight_decay=weight_decay)


def _each(parameters, in_head, decays, lr, head_lr, weight_decay):
    """A group for each parameter."""
    return [
        {
            "params": [p],
            "lr": head_lr if in_head(name, p) else lr,
            "weight_decay": weight_decay if decays(name, p) else 0.0,
        }
        for name, p in parameters
    ]


def _trainable(model):
    return [(name, p) for name, p in model.named_parameters() if p.requires_grad]


def _ids(head):
    ids = {id(p) for p in head.parameters()}
    return lambda _, p: id(p) in ids


def _wide(_, p):
    return p.ndim > 1


def one_group_each(model, head, lr, head_lr, weight_decay):
    return _each(_trainable(model), _ids(head), _wide, lr, head_lr, weight_decay)


def _groups(parameters=_trainable, in_head=_ids, decays=_wide, swap=False):
    """The right answer with one thing of it exchanged."""

    def wrong(model, head, lr, head_lr, weight_decay):
        rates = (head_lr, lr) if swap else (lr, head_lr)
        return _each(parameters(model), in_head(head), decays, *rates, weight_decay)

    return wrong


all_decay = _groups(decays=lambda *_: True)
none_decays = _groups(decays=lambda *_: False)
by_bias_name = _groups(decays=lambda name, _: "bias" not in name)
the_other_way = _groups(decays=lambda _, p: p.ndim < 2)
frozen_too = _groups(parameters=lambda model: list(model.named_parameters()))
rates_swapped = _groups(swap=True)
one_rate = _groups(in_head=lambda _: lambda *_: False)
head_of_the_name = _groups(in_head=lambda _: lambda name, p: "head" in name)
begins_with_head = _groups(in_head=lambda _: lambda name, p: name.startswith("head"))
squeezed = _groups(decays=lambda _, p: p.squeeze().ndim > 1)
unless_one_number = _groups(decays=lambda _, p: p.ndim > 1 and p.numel() > 1)
unless_one = _groups(decays=lambda _, p: p.ndim != 1)
head_of_one_layer = _groups(
    in_head=lambda head: lambda _, p: any(p is q for q in head.parameters(recurse=False))
)


def by_prefix(model, head, lr, head_lr, weight_decay):
    prefix = next(name for name, module in model.named_modules() if module is head)
    same = _groups(in_head=lambda _: lambda name, p: name.startswith(prefix))
    return same(model, head, lr, head_lr, weight_decay)


def by_dotted_prefix(model, head, lr, head_lr, weight_decay):
    prefix = next(name for name, module in model.named_modules() if module is head)
    same = _groups(in_head=lambda _: lambda name, p: name.startswith(f"{prefix}."))
    return same(model, head, lr, head_lr, weight_decay)


def body_first(model, head, lr, head_lr, weight_decay):
    inside = set(head.modules())
    outside = {
        id(p)
        for module in model.modules()
        if module not in inside
        for p in module.parameters(recurse=False)
    }
    same = _groups(in_head=lambda head: lambda _, p: _ids(head)(_, p) and id(p) not in outside)
    return same(model, head, lr, head_lr, weight_decay)


def both_sides(model, head, lr, head_lr, weight_decay):
    """The head's parameters, and those of all modules outside of it."""
    inside = set(head.modules())
    groups = one_group_each(head, head, lr, head_lr, weight_decay)
    rest = [
        (name, p)
        for name, module in model.named_modules()
        if module not in inside
        for name, p in module.named_parameters(recurse=False)
        if p.requires_grad
    ]
    rest = list({p: (name, p) for name, p in rest}.values())
    return groups + _each(rest, lambda *_: False, _wide, lr, head_lr, weight_decay)


def last_is_head(model, head, lr, head_lr, weight_decay):
    return one_group_each(model, list(model.children())[-1], lr, head_lr, weight_decay)


def by_child(model, head, lr, head_lr, weight_decay):
    """One module of the model after the other."""
    return [
        group
        for child in model.children()
        for group in one_group_each(child, head, lr, head_lr, weight_decay)
    ]


def only_a_child(model, head, lr, head_lr, weight_decay):
    """The head, if it is one of the model's own modules."""
    of_head = {id(p) for child in model.children() if child is head for p in child.parameters()}
    return _groups(in_head=lambda _: lambda _, p: id(p) in of_head)(
        model, head, lr, head_lr, weight_decay
    )


def children_alone(model, head, lr, head_lr, weight_decay):
    """The parameters of the model's own modules, each once."""
    seen, groups = set(), []
    for child in model.children():
        new = [("", p) for p in child.parameters() if p.requires_grad and p not in seen]
        seen |= {p for _, p in new}
        rate = head_lr if child is head else lr
        groups += _each(new, lambda *_: False, _wide, rate, rate, weight_decay)
    return groups


def head_biases_at_lr(model, head, lr, head_lr, weight_decay):
    same = _groups(in_head=lambda head: lambda _, p: _ids(head)(_, p) and p.ndim > 1)
    return same(model, head, lr, head_lr, weight_decay)


def head_rate_a_factor(model, head, lr, head_lr, weight_decay):
    return one_group_each(model, head, lr, lr * head_lr, weight_decay)


two_dimensions_alone = _groups(decays=lambda _, p: p.ndim == 2)
last_two_are_the_head = _groups(
    in_head=lambda head: lambda _, p: any(p is q for q in list(head.parameters())[-2:])
)


def head_undecayed(model, head, lr, head_lr, weight_decay):
    groups = one_group_each(model, head, lr, head_lr, weight_decay)
    return [{**g, "weight_decay": g["weight_decay"] * (g["lr"] == lr)} for g in groups]


def whole_head_decays(model, head, lr, head_lr, weight_decay):
    groups = one_group_each(model, head, lr, head_lr, weight_decay)
    return [{**g, "weight_decay": weight_decay} if g["lr"] == head_lr else g for g in groups]


def by_module(model):
    return [
        (f"{name}.{inner}", p)
        for name, module in model.named_modules()
        for inner, p in module.named_parameters(recurse=False)
        if p.requires_grad
    ]


def leaves_only(model):
    return [(name, p) for name, p in _trainable(model) if "." in name]


def head_twice(model, head, lr, head_lr, weight_decay):
    whole = one_group_each(model, head, lr, lr, weight_decay)
    return whole + one_group_each(head, head, lr, head_lr, weight_decay)


def head_alone_skipped(model, head, lr, head_lr, weight_decay):
    """What the modules inside the head hold, and what it shares, comes a second time."""
    rest = {
        p: ("", p)
        for module in model.modules()
        if module is not head
        for p in module.parameters(recurse=False)
        if p.requires_grad
    }
    groups = one_group_each(head, head, lr, head_lr, weight_decay)
    return groups + _each(rest.values(), lambda *_: False, _wide, lr, head_lr, weight_decay)


def biases_left_out(model, head, lr, head_lr, weight_decay):
    groups = one_group_each(model, head, lr, head_lr, weight_decay)
    return [group for group in groups if group["params"][0].ndim > 1]


def head_left_out(model, head, lr, head_lr, weight_decay):
    groups = one_group_each(model, head, lr, head_lr, weight_decay)
    return [group for group in groups if group["lr"] == lr]


def asked_with_in(model, head, lr, head_lr, weight_decay):
    of_head = list(head.parameters())
    in_head = [p in of_head for p in model.parameters()]
    return [{"params": list(model.parameters()), "lr": lr, "weight_decay": float(sum(in_head))}]


def freezes(model, head, lr, head_lr, weight_decay):
    groups = one_group_each(model, head, lr, head_lr, weight_decay)
    for group in groups:
        if group["lr"] == lr:
            group["params"][0].requires_grad_(False)
    return groups


def four_lists(model, head, lr, head_lr, weight_decay):
    of_head = set(head.parameters())
    lists = {(a, b): [] for a in (lr, head_lr) for b in (weight_decay, 0.0)}
    for p in model.parameters():
        if not p.requires_grad:
            continue
        rate = head_lr if p in of_head else lr
        lists[rate, weight_decay if p.dim() >= 2 else 0.0].append(p)
    return [{"params": ps, "lr": a, "weight_decay": b} for (a, b), ps in lists.items()]


def with_comprehensions(model, head, lr, head_lr, weight_decay):
    of_head = [p for p in head.parameters() if p.requires_grad]
    known = {id(p) for p in of_head}
    rest = [p for p in model.parameters() if p.requires_grad and id(p) not in known]
    groups = []
    for parameters, rate in ((rest, lr), (of_head, head_lr)):
        wide = [p for p in parameters if len(p.shape) >= 2]
        flat = [p for p in parameters if len(p.shape) < 2]
        groups.append({"params": wide, "lr": rate, "weight_decay": weight_decay})
        groups.append({"params": flat, "lr": rate, "weight_decay": 0})
    return groups


EXERCISE = Exercise(
    id="04a.groups",
    title="a rate for the head, decay for the weights",
    source='Engineering module, §4, "Optimizers"',
    ledger=("T17", "X54"),
    minutes=12,
    difficulty=2,
    read=("course.engine.groups.parameter_groups", "N32"),
    hints=(
        "There are four kinds of parameter, so up to four groups. Which two questions tell them "
        "apart?",
        "A parameter's number of dimensions is p.ndim. To see whether it belongs to the head, "
        "compare identities, as in {id(p) for p in head.parameters()}; == compares numbers.",
        "For every p of model.parameters() with p.requires_grad: the rate is head_lr if id(p) is "
        "among the head's, else lr; the decay is weight_decay if p.ndim >= 2, else 0.0. Make a "
        "dictionary with params, lr and weight_decay.",
    ),
    signature="parameter_groups(model, head, lr, head_lr, weight_decay)",
    parts=(
        Part("rates", "the rate of each parameter", points=1.5, cases=3, fields=("lr",)),
        Part("decay", "the decay of each parameter", points=1.5, fields=("decay",)),
        Part(
            "frozen",
            "frozen ones left out, each other one in exactly one group",
            points=1,
            fields=("listed", "extra", "twice", "disturbed"),
        ),
        Part(
            "nested",
            "a larger model: shared weights, a head with several layers",
            points=1,
            hidden=True,
        ),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={
        "lr": "the rate of",
        "decay": "the decay of",
        "listed": "the trainable parameters in the groups",
        "extra": "what else is in the groups",
        "twice": "what is in two groups",
    },
    wrong=(
        Wrong(
            "all-decay",
            all_decay,
            "Every parameter decays. Biases and normalisation gains, which have one dimension, "
            "should not.",
        ),
        Wrong("none-decays", none_decays, "No parameter decays; those with two dimensions should.",
              sure=True),
        Wrong(
            "by-the-name-bias",
            by_bias_name,
            "Whatever is not called bias decays, so the gain of a normalisation does too. Check "
            "p.ndim instead.",
        ),
        Wrong(
            "the-other-way",
            the_other_way,
            "Parameters with one dimension decay and the others do not: it should be the other "
            "way round.",
            sure=True,
        ),
        Wrong(
            "frozen-too",
            frozen_too,
            "A frozen parameter is in a group. Leave out those whose requires_grad is False.",
            sure=True,
        ),
        Wrong(
            "rates-swapped", rates_swapped, "The head has lr and all the rest head_lr: swap them."
        ),
        Wrong("one-rate", one_rate, "The head has the same rate as the rest, but it should get "
                                    "head_lr."),
        Wrong(
            "head-by-name",
            head_of_the_name,
            "The head was found by its name, which differs from model to model. Compare "
            "identities: id(p) among those of head.parameters().",
        ),
        Wrong("head-by-name", begins_with_head),
        Wrong(
            "two-dimensions-alone",
            two_dimensions_alone,
            "The weight of a convolution, with three dimensions, does not decay. Those with two "
            "or more do: p.ndim >= 2.",
            sure=True,
        ),
        Wrong(
            "three-dimensions",
            _groups(decays=lambda _, p: p.ndim > 2),
            "Weights with two dimensions do not decay. Those with two or more do: p.ndim >= 2.",
            sure=True,
        ),
        Wrong(
            "whole-head-decays",
            whole_head_decays,
            "All of the head decays, including its bias. Check the dimensions of the head's "
            "parameters, too.",
            sure=True,
        ),
        Wrong("head-by-place", last_two_are_the_head),
        Wrong(
            "head-of-one-layer",
            head_of_one_layer,
            "A head with layers of its own got lr: parameters(recurse=False) yields only what the "
            "head holds itself. head.parameters() also yields those of the modules inside it.",
        ),
        Wrong(
            "head-by-prefix",
            by_prefix,
            "A module whose name begins like the head's got head_lr, too. Compare identities: "
            "id(p) among those of head.parameters().",
        ),
        Wrong("body-first", by_dotted_prefix),
        Wrong(
            "body-first",
            body_first,
            "A weight that the head shares with another module got lr. It is one of "
            "head.parameters(), so it gets head_lr.",
            sure=True,
        ),
        Wrong(
            "both-sides",
            both_sides,
            "A weight that the head shares with another module is in two groups; an optimizer "
            "refuses that. It is one of head.parameters(), so it gets head_lr and is left out of "
            "the rest: compare identities, not names or modules.",
            sure=True,
        ),
        Wrong(
            "last-is-head",
            last_is_head,
            "The model's last module got head_lr. The head is the module that is passed in.",
        ),
        Wrong(
            "only-a-child",
            only_a_child,
            "A head that lies inside another module got lr: model.children() yields only the "
            "modules of the model itself. Compare identities: id(p) among those of "
            "head.parameters().",
            sure=True,
        ),
        Wrong(
            "children-alone",
            children_alone,
            "A parameter that the model holds itself is in no group, and a head inside another "
            "module got lr: model.children() yields neither. Go through model.parameters(), and "
            "compare identities: id(p) among those of head.parameters().",
            sure=True,
        ),
        Wrong(
            "head-biases-at-lr",
            head_biases_at_lr,
            "The head's weights have head_lr, but its parameters with one dimension have lr. Rate "
            "and decay are two questions.",
            sure=True,
        ),
        Wrong(
            "head-rate-a-factor",
            head_rate_a_factor,
            "The head's rate is lr times head_lr. head_lr is the rate itself.",
        ),
        Wrong(
            "squeezed",
            squeezed,
            "A weight with one row, [1, n], does not decay. It has two dimensions: p.ndim counts "
            "dimensions, whatever their size.",
            sure=True,
        ),
        Wrong(
            "unless-one",
            unless_one,
            "A single number, with no dimension, decays. Only parameters with two or more should: "
            "p.ndim >= 2.",
            sure=True,
        ),
        Wrong("unless-one-number", unless_one_number),
        Wrong(
            "shared-twice",
            _groups(parameters=by_module),
            "A weight that two modules share is in two groups; an optimizer refuses that. "
            "model.parameters() yields it only once.",
        ),
        Wrong("only-of-modules", _groups(parameters=leaves_only)),
        Wrong(
            "head-twice",
            head_twice,
            "The head's parameters are in two groups; an optimizer refuses that. Leave them out "
            "of the other groups.",
            sure=True,
        ),
        Wrong(
            "head-alone-skipped",
            head_alone_skipped,
            "Parameters of the modules inside the head are in two groups; an optimizer refuses "
            "that. Leave out parameters, not just that one module: check whether id(p) is among "
            "the head's ids.",
            sure=True,
        ),
        Wrong(
            "biases-left-out",
            biases_left_out,
            "Parameters with one dimension are in no group, so they would never move. Put them in "
            "a group with decay 0.",
            sure=True,
        ),
        Wrong(
            "head-left-out",
            head_left_out,
            "The head's parameters are in no group, so they would never move.",
            sure=True,
        ),
        Wrong(
            "head-undecayed",
            head_undecayed,
            "The head's weights do not decay. Rate and decay are two questions: a weight with two "
            "dimensions decays, in the head as well.",
            sure=True,
        ),
        Wrong(
            "asked-with-in",
            asked_with_in,
            "`p in list` compares numbers, entry by entry, and fails where shapes differ. Compare "
            "identities: id(p) in a set of ids.",
            raises="The size of tensor a|ambiguous",
        ),
        Wrong("freezes", freezes),
        *common(one_group_each, "returns-none", "returns-text", "changes-requires-grad",
                "changes-seed", "global-model"),
    ),
    right=(one_group_each, four_lists, with_comprehensions),
)  # fmt: skip
