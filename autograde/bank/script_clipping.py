"""03h.clipping: a script that clips what is not there yet."""

from __future__ import annotations

from functools import partial

import torch

from autograde.bank.harness import Watch
from autograde.bank.scripts import (
    SAYS,
    build_moded,
    draw_net,
    draw_optimizer,
    made,
    outcome,
    paid,
    reported,
    sent,
    state_of,
)
from autograde.exercise import Answer, Case, Draw, Exercise, Wrong
from autograde.kinds.fix import variant

GIVEN = """
def train_clipped(model, loader, criterion, optimizer, epochs, max_norm):
    log = {"loss": [], "largest_norm": []}
    parameters = [p for p in model.parameters() if p.requires_grad]
    for _ in range(epochs):
        model.train()
        total, seen, largest = 0.0, 0, 0.0
        for inputs, targets in loader:
            optimizer.zero_grad()
            logits = model(inputs)
            loss = criterion(logits, targets)
            norm = nn.utils.clip_grad_norm_(parameters, max_norm)
            loss.backward()
            optimizer.step()

            largest = max(largest, norm.item())
            total += loss.item() * len(targets)
            seen += len(targets)
        log["loss"].append(total / seen)
        log["largest_norm"].append(largest)

    model.eval()
    with torch.no_grad():
        hits = [(model(inputs).argmax(dim=1) == targets).sum().item() for inputs, targets in loader]
    log["accuracy"] = [sum(hits) / seen]
    return log
"""
MOST = 8
"""Lines that may differ: one that is moved counts two; norm and factor written out, up to eight."""


LARGE = 4
"""Scale of a small batch's inputs, whose gradient is so the longest: an epoch's last or first."""
HIGH = 50.0
"""A ceiling that no gradient of these nets reaches: clipping leaves them alone."""
JUST_BELOW = 0.75
"""Of the first gradient's norm: a ceiling that cuts a little, and not everywhere."""


def draw(source: Draw, part: str) -> Case:
    """A ceiling below every norm, so that the bug shows in all updates; one above all; in a hidden
    part one just below the first norm as well."""
    features, classes = source.integer(2, 4), source.integer(3, 5)
    sizes = ((3, LARGE), (source.integer(4, 6), 2), (source.integer(6, 8), 1))
    case = {
        "net": draw_net(source, (features, source.integer(3, 5), classes)),
        "batches": [
            [scale * source.normal(size, features), source.integers(classes, size)]
            for size, scale in sizes[:: 1 if source.index else -1]
        ],
        "optimizer": draw_optimizer(source)
        | ({} if source.index else {"kind": "groups"}),  # a first group is not all parameters
        "smoothing": source.choice([0.0, 0.1]),
        "epochs": source.integer(2, 3),
    }
    ceilings = (source.uniform(0.02, 0.1), HIGH, JUST_BELOW * first_norm(case))
    return {**case, "max_norm": ceilings[source.index]}


def first_norm(case: Case) -> float:
    """Of the gradient of the first batch."""
    model = build_moded(case["net"], torch.device("cpu"))
    inputs, targets = case["batches"][0]
    torch.nn.CrossEntropyLoss(label_smoothing=case["smoothing"])(model(inputs), targets).backward()
    return torch.nn.utils.get_total_norm([p.grad for p in model.parameters()]).item()


def run(function, case: Case, device: torch.device) -> Answer:
    """Weights and log."""
    model = build_moded(case["net"], device)
    loader = sent(case["batches"], device)
    optimizer = made(case["optimizer"], model)
    criterion = torch.nn.CrossEntropyLoss(label_smoothing=case["smoothing"])
    watch = Watch(model, optimizer, [tensor for both in loader for tensor in both])
    log = function(model, loader, criterion, optimizer, case["epochs"], case["max_norm"])
    entries = reported(log, {"loss": "the losses", "largest_norm": "the largest norms",
                        "accuracy": "the accuracy"},
                       lists=("loss", "largest_norm", "accuracy"))  # fmt: skip
    return outcome(function, state_of(model), entries, watch, given=GIVEN, most=MOST)


CLIP = "            norm = nn.utils.clip_grad_norm_(parameters, max_norm)\n"
BACKWARD, STEP = "            loss.backward()\n", "            optimizer.step()\n"
CLEAR = "            optimizer.zero_grad()\n"
FIXED = GIVEN.replace(CLIP + BACKWARD, BACKWARD + CLIP)

given = partial(variant, GIVEN, __file__)
fixed = partial(variant, FIXED, __file__)
reference = fixed()
after_the_step = fixed((CLIP + STEP, STEP + CLIP))
twice_backward = given((CLIP, BACKWARD.replace("()", "(retain_graph=True)") + CLIP))
cleared_late = given((CLEAR, ""), (STEP, STEP + CLEAR))
stale = given((CLEAR, ""), (CLIP, CLIP + CLEAR))
cleared_between = fixed((CLEAR, ""), (BACKWARD + CLIP, BACKWARD + CLEAR + CLIP))
cleared_before_step = fixed((CLEAR, ""), (CLIP, CLIP + CLEAR))
first_group = fixed((CLIP, CLIP.replace("parameters,", 'optimizer.param_groups[0]["params"],')))
by_value = fixed((CLIP, "            norm = nn.utils.get_total_norm([p.grad for p in parameters])\n"
                  "            nn.utils.clip_grad_value_(parameters, max_norm)\n"))  # fmt: skip
value_returned = fixed(("norm = nn.utils.clip_grad_norm_", "norm = nn.utils.clip_grad_value_"))
measured_alone = fixed((CLIP, "            norm = nn.utils.get_total_norm([p.grad for p in "
                        "parameters])\n"))  # fmt: skip
normed = fixed(("            largest = max(largest, norm.item())",
                "            largest = max(largest, min(norm.item(), max_norm))"))  # fmt: skip
per_tensor = fixed((CLIP, "            norm = max(nn.utils.clip_grad_norm_([p], max_norm) "
                    "for p in parameters)\n"))  # fmt: skip
per_tensor_but_logged = fixed(
    (
        CLIP,
        "            norm = nn.utils.get_total_norm([p.grad for p in parameters])\n"
        "            for p in parameters:\n"
        "                nn.utils.clip_grad_norm_(p, max_norm)\n",
    )
)
to_infinity = fixed(("(parameters, max_norm)", '(parameters, float("inf"))'))
uncleared = fixed((CLEAR, ""))
clears_nowhere = given((CLEAR, ""))
unchanged = given(("len(targets)\n            seen", "len(inputs)\n            seen"))
last_norm = fixed(("max(largest, norm.item())", "norm.item()"))
clipped_loss = given(
    (CLIP, "            loss = loss.clamp(max=max_norm)\n"),
    ("max(largest, norm.item())", "max(largest, loss.item())"),
)
evaluated_in_training = fixed(("    model.eval()\n", ""))
train_left_out = fixed(("        model.train()\n", ""))
far_above_alone = fixed(
    (
        CLIP,
        "            norm = nn.utils.get_total_norm([p.grad for p in parameters])\n"
        "            if norm > 2 * max_norm:\n"
        "                nn.utils.clip_grads_with_norm_(parameters, max_norm, norm)\n",
    )
)
always_that_long = fixed((CLIP, "            norm = nn.utils.get_total_norm([p.grad for p in "
                          "parameters])\n            for p in parameters:\n"
                          "                p.grad *= max_norm / norm\n"))  # fmt: skip

from_the_model = fixed(("clip_grad_norm_(parameters, max_norm)",
                        "clip_grad_norm_(model.parameters(), max_norm)"))  # fmt: skip
in_two_lines = fixed(
    (
        CLIP,
        "            norm = nn.utils.get_total_norm([p.grad for p in parameters])"
        "\n            nn.utils.clip_grads_with_norm_(parameters, max_norm, norm)\n",
    )
)
BY_HAND = """            with torch.no_grad():
                norm = torch.stack([p.grad.norm() for p in parameters if p.grad is not None]).norm()
                if norm > max_norm:
                    for p in parameters:
                        if p.grad is not None:
                            p.grad.mul_(max_norm / norm)
"""
BY_SQUARES = """            squares = torch.zeros((), device=loss.device)
            for p in parameters:
                if p.grad is not None:
                    squares = squares + p.grad.square().sum()
            norm = squares.sqrt()
            for p in parameters:
                p.grad *= min(1.0, max_norm / norm.item())
"""
by_hand = fixed((CLIP, BY_HAND))
by_squares = fixed((CLIP, BY_SQUARES))
both_places = given((BACKWARD, BACKWARD + CLIP))
cleared_after = fixed((CLEAR, ""), (STEP, STEP + CLEAR))


EXERCISE = Exercise(
    id="03h.clipping",
    title="script 7: a ceiling that nothing touches",
    source='Annotated-loop essay, "Where the order really matters"; museum B25',
    kind="fix",
    ledger=("B25", "F27"),
    minutes=6,
    difficulty=1,
    read=("B25", "F27"),
    hints=(
        "Look at largest_norm in the log: what is the norm of cleared gradients?",
        "Three lines touch .grad. In which order must they come?",
        "Clip after backward() and before step().",
    ),
    signature="train_clipped(model, loader, criterion, optimizer, epochs, max_norm)",
    parts=paid("the weights after the run", ("weights",),
               ("weights", "loss", "largest_norm", "accuracy"), MOST, cases=3),
    reference=reference,
    draw=draw,
    run=run,
    says={
        **SAYS,
        "loss": "the losses:",
        "largest_norm": "the largest norms:",
        "accuracy": "the accuracy:",
    },
    wrong=(
        Wrong("not-shortened", after_the_step,
              "The log now shows real norms. But the steps use gradients that were not clipped: "
            "clip between backward() and step(), with max_norm as the ceiling."),
        Wrong("twice-backward", twice_backward,
              "The log now shows real norms. But after clipping, a second backward() adds the "
              "whole gradient to the clipped one. Call backward() once, before clipping."),
        Wrong("old-gradients", stale,
              "The logged norms are those of the previous update, and the steps still use "
              "gradients that were not clipped."),
        Wrong("cleared-too-soon", cleared_between,
              "The logged norms are 0, and no weight has moved: there was no gradient left when "
              "clipping ran. zero_grad() clears what backward() has filled: call it before "
              "backward(), or after step().", sure=True),
        Wrong("cleared-before-step", cleared_before_step,
              "The log now shows real norms, but no weight has moved: the gradients were cleared "
              "after clipping and before step(). Call zero_grad() before backward(), or after "
              "step()."),
        Wrong("by-value", by_value,
              "Each entry of the gradient is clipped separately, so its direction changes. Scale "
              "all entries by one factor."),
        Wrong("not-shortened", measured_alone),
        Wrong("not-shortened", to_infinity),
        Wrong("clipped-norm-logged", normed,
              "The weights are right. But the log should show the norm before clipping, which "
              "tells you how much was cut.", sure=True),
        Wrong("none-logged", value_returned,
              "`norm` is None. clip_grad_norm_() returns the norm before clipping; "
              "clip_grad_value_() returns nothing.",
              raises="'NoneType' object has no attribute 'item'"),
        Wrong("per-tensor", per_tensor,
              "Each tensor is clipped by its own norm. max_norm holds for all of them together: "
              "pass them to one call, which scales all by the same factor."),
        Wrong("per-tensor", per_tensor_but_logged),
        Wrong("uncleared", uncleared,
              "Gradients of earlier batches were added to each step's: zero_grad() is gone."),
        Wrong("uncleared-and-early", clears_nowhere,
              "Gradients of earlier batches are clipped, and each batch's own gradient is added to "
              "them unclipped: zero_grad() is gone, and clipping still comes before backward()."),
        Wrong("first-group", first_group,
              "Only the optimizer's first group was measured and clipped. The norm is that of all "
              "parameters that train."),
        Wrong("last-norm", last_norm),
        Wrong("loss-clamped", clipped_loss),
        Wrong("lengthened", always_that_long,
              "Gradients shorter than max_norm were lengthened to it. Clipping leaves those "
              "alone."),
        Wrong("far-above-alone", far_above_alone,
              "A gradient a little longer than max_norm was not clipped. Clip whatever is longer "
              "than max_norm, to max_norm."),
        Wrong("evaluated-in-training", evaluated_in_training,
              "The accuracy was computed in train mode: model.eval() is gone."),
        Wrong("train-left-out", train_left_out,
              "The model was trained in eval mode, in which it came: model.train() is gone.",
              sure=True),
        Wrong("not-clipped", cleared_late,
              "The logged norms are 0, and the steps use gradients that were not clipped: there "
              "was no gradient yet when clipping ran. backward() fills the parameters' .grad; clip "
              "between it and step().", sure=True),
        Wrong("not-clipped", unchanged),
    ),
    right=(from_the_model, in_two_lines, by_hand, by_squares, both_places, cleared_after),
)  # fmt: skip
