"""03h.finetune: a script that gives a net its new head after the optimizer was built."""

from __future__ import annotations

from functools import partial

import torch

from autograde.bank.harness import Watch
from autograde.bank.scripts import (
    SAYS,
    build_moded,
    build_net,
    draw_net,
    model_of,
    outcome,
    paid,
    sent,
    state_of,
)
from autograde.exercise import Answer, Case, Draw, Exercise, Wrong, as_numbers, kept
from autograde.kinds.fix import variant

GIVEN = """
def finetune(pretrained, make_head, train_batches, make_optimizer, lr, epochs):
    body = pretrained[:-1]
    for parameter in body[0].parameters():
        parameter.requires_grad_(False)
    model = nn.Sequential(*body, pretrained[-1])
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = make_optimizer([
        {"params": trained[:-2], "lr": lr / 10},
        {"params": trained[-2:], "lr": lr},
    ])
    model[-1] = make_head()

    criterion = nn.CrossEntropyLoss()
    losses = []
    for _ in range(epochs):
        model.train()
        total, seen = 0.0, 0
        for inputs, targets in train_batches:
            optimizer.zero_grad()
            loss = criterion(model(inputs), targets)
            loss.backward()
            optimizer.step()
            total += loss.item() * len(targets)
            seen += len(targets)
        losses.append(total / seen)
    return model, losses
"""
MOST = 6
"""Lines that may differ: one is moved, which counts two; a list of its own for each group, six."""


def draw(source: Draw, part: str) -> Case:
    """A net of three layers for some classes, and a head for others."""
    features, old, new = source.integer(2, 4), source.integer(2, 3), source.integer(4, 5)
    middle = source.integer(3, 5)
    return {
        "net": draw_net(source, (features, source.integer(3, 5), middle, old)),
        "head": draw_net(source, (middle, new))[0],
        "train": [
            [source.normal(size, features), source.integers(new, size)]
            for size in (source.integer(4, 6), source.integer(3, 5), 2)
        ],
        "kind": ("momentum", "adam", "plain")[source.index % 3],
        "lr": source.uniform(0.1, 0.3),
        "epochs": source.integer(2, 3),
    }


def run(function, case: Case, device: torch.device) -> Answer:
    """The model that comes back, layer by layer, and the losses; the body counts its batches."""
    pretrained = build_moded(case["net"], device)

    def make_optimizer(groups):  # a group without a rate has torch's default, 0.001
        if case["kind"] == "adam":
            return torch.optim.Adam(groups, eps=0.01)
        return torch.optim.SGD(groups, momentum=0.9 * (case["kind"] == "momentum"))

    train = sent(case["train"], device)
    watch = Watch(data=[tensor for both in train for tensor in both])
    returned = function(
        pretrained, lambda: build_net([case["head"]], device)[0], train, make_optimizer,
        case["lr"], case["epochs"],
    )  # fmt: skip
    model, losses = model_of(returned)
    entries = {"losses": kept(as_numbers, losses, "losses", "the losses, one per epoch")}
    may = frozenset({"random"})  # make_head() draws weights
    return outcome(function, state_of(model), entries, watch, given=GIVEN, most=MOST, may=may,
                   named=False)  # fmt: skip


MODEL = "    model = nn.Sequential(*body, pretrained[-1])\n"
HEAD = "    model[-1] = make_head()\n"
TRAINED = "    trained = [p for p in model.parameters() if p.requires_grad]\n"
FREEZE = "    for parameter in body[0].parameters():\n        parameter.requires_grad_(False)\n"
LOSS = "    criterion ="
FIXED = GIVEN.replace(HEAD, "").replace(MODEL, MODEL + HEAD)

given = partial(variant, GIVEN, __file__)
fixed = partial(variant, FIXED, __file__)
reference = fixed()
body_in_eval = fixed(("        model.train()\n", "        model.train()\n        body.eval()\n"))
train_left_out = fixed(("        model.train()\n", ""))
old_head = given((HEAD, ""))
ONE_GROUP = '    optimizer = make_optimizer([{"params": list(%s.parameters())%s, "lr": lr}])\n'
added_at_one_rate = given((HEAD, HEAD + ONE_GROUP % ("model", "[2:]")))
head_alone = given((HEAD, HEAD + ONE_GROUP % ("model[-1]", "")))
at_the_default = given((HEAD, HEAD + ONE_GROUP.replace(', "lr": lr', "") % ("model", "[2:]")))
added_without_a_rate = given(
    (HEAD, HEAD + '    optimizer.add_param_group({"params": model[-1].parameters()})\n')
)
without_a_rate = fixed(('{"params": trained[-2:], "lr": lr}', '{"params": trained[-2:]}'))
thawed = fixed((FREEZE, ""))
thawed_in_between = fixed((TRAINED, "    model.requires_grad_(True)\n" + TRAINED))
thawed_instead = given((FREEZE, ""))
same_rates = fixed(('"lr": lr / 10', '"lr": lr'))
tenth_for_all = fixed(('"lr": lr}', '"lr": lr / 10}'))
added_at_a_tenth = given((HEAD, HEAD + ONE_GROUP.replace("lr}", "lr / 10}") % ("model", "[2:]")))
head_in_the_first_group = given(
    (HEAD, HEAD + '    optimizer.param_groups[0]["params"] += list(model[-1].parameters())\n')
)
swapped_rates = fixed(
    ('{"params": trained[:-2], "lr": lr / 10}', '{"params": trained[:-2], "lr": lr}'),
    ('{"params": trained[-2:], "lr": lr}', '{"params": trained[-2:], "lr": lr / 10}'),
)
head_cut = fixed(("trained[:-2]", "trained[:-1]"), ("trained[-2:]", "trained[-1:]"))
frozen_head = fixed(
    (HEAD, HEAD + "    model[-1].requires_grad_(False)\n"),
    ("trained[:-2]", "trained"),
    ('        {"params": trained[-2:], "lr": lr},\n', ""),
)
copied_weights = given(
    (
        HEAD,
        HEAD + "    new = list(model[-1].parameters())\n"
        '    optimizer.param_groups[1]["params"] = [p.clone() for p in new]\n',
    )
)
per_epoch = given((HEAD, ""), ("        model.train()\n", "        model[-1] = make_head()\n"
                  "        model.train()\n"))  # fmt: skip
uncleared = fixed(("            optimizer.zero_grad()\n", ""))
one_epoch = fixed(("    return model, losses", "        return model, losses"))

in_the_sequence = given((HEAD, ""), ("pretrained[-1])", "make_head())"))
with_a_name = given(
    (HEAD, ""), (MODEL, "    head = make_head()\n    model = nn.Sequential(*body, head)\n")
)
group_replaced = given(
    (HEAD, HEAD + '    optimizer.param_groups[1]["params"] = list(model[-1].parameters())\n')
)


EXERCISE = Exercise(
    id="03h.finetune",
    title="script 6: a head that never learns",
    source="Training-loop chapter, c5, bug 4; museum B17",
    kind="fix",
    ledger=("B17", "F65"),
    minutes=8,
    difficulty=2,
    read=("B17", "F65"),
    hints=(
        "Compare each tensor before and after a step: which of them did not change?",
        "An optimizer holds the Parameter objects that it was given, not the model.",
        "Give the model its new head before you list the trained parameters.",
    ),
    signature="finetune(pretrained, make_head, train_batches, make_optimizer, lr, epochs)",
    parts=paid("all weights after the run", ("weights",), ("weights", "losses"), MOST),
    reference=reference,
    draw=draw,
    run=run,
    says={
        **SAYS,
        "weights": "after the run, the tensors, counted from 0,",
        "losses": "the losses:",
    },
    wrong=(
        Wrong("one-rate", added_at_one_rate,
              "All layers learn at the head's rate. The middle layers had a tenth of it: keep the "
              "two groups."),
        Wrong("one-rate", same_rates),
        Wrong("default-rate", added_without_a_rate,
              "The head learns at the optimizer's default rate, 0.001, because its group gives "
              "none. Give that group the full lr."),
        Wrong("default-rate", without_a_rate),
        Wrong("default-rates", at_the_default,
              "The layers learn at the optimizer's default rate, 0.001, because none is given. "
              "Keep the two groups, each with its own rate."),
        Wrong("head-alone", head_alone,
              "The head now learns, but the middle layer no longer does."),
        Wrong("thawed", thawed,
              "The first layer changes, but it was frozen before the optimizer was built. Keep it "
              "frozen."),
        Wrong("thawed", thawed_in_between),
        Wrong("thawed-instead", thawed_instead,
              "The first layer now changes, but the returned head still has its initial weights. "
              "Undo that change: the two tensors that should learn are the head's."),
        Wrong("tenth-for-all", tenth_for_all,
              "All layers learn at a tenth of the rate, the head too. The head had the full lr: "
              "keep the two groups."),
        Wrong("tenth-for-all", added_at_a_tenth),
        Wrong("tenth-for-all", head_in_the_first_group),
        Wrong("swapped-rates", swapped_rates,
              "The head learns at a tenth of the rate and the middle layer at the full rate: it "
              "was the other way round."),
        Wrong("head-cut", head_cut,
              "The head's bias learns at the full rate, but its weight learns at a tenth of it. A "
              "linear layer has two tensors: the last two of `trained` are the head's."),
        Wrong("still-head", frozen_head,
              "The returned head still has its initial weights. Does the optimizer hold its "
            "tensors themselves, not copies, and is the head made only once?"),
        Wrong("still-head", copied_weights),
        Wrong("old-head", old_head,
              "A target is too large for the model's number of classes: the pretrained head is "
              "still in it. make_head() gives the new one.", raises="IndexError: Target"),
        Wrong("still-head", per_epoch),
        Wrong("uncleared", uncleared,
              "Gradients of earlier batches were added to each step's: zero_grad() is gone."),
        Wrong("body-in-eval", body_in_eval,
              "The weights are right here, where no layer depends on the mode. But the body was "
              "trained in eval mode; the script trains it in train mode.", sure=True),
        Wrong("body-in-eval", train_left_out),
        Wrong("one-epoch", one_epoch),
    ),
    right=(in_the_sequence, with_a_name, group_replaced),
)  # fmt: skip
