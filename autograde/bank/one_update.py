"""01c.one-update: the six operations in torch, with any model, loss, optimizer and schedule."""

from __future__ import annotations

from functools import partial

import torch
from torch import nn

from autograde.bank.common_wrong import TRAINS, common
from autograde.bank.harness import TRAINED, Training, draw_training
from autograde.exercise import Answer, Case, Draw, Exercise, Part, Wrong, as_number, kept_entries
from autograde.kinds.fix import variant
from course.engine import train_step

RETURNED = {
    "loss": (as_number, "the loss"),
    "grad_norm": (as_number, "the norm of the gradient"),
    "lr": (as_number, "the learning rate"),
}


def draw(source: Draw, part: str) -> Case:
    """One batch, once of one example; dropout, which tells a second forward pass; old gradients.

    The optimizer clears the gradients itself in the second case about the norm; in the first two
    biases have one shape, so that what is kept by shape is kept once.
    """
    varies = part in ("weights", "rate")
    size = source.integer(4, 7)
    case = draw_training(
        source,
        [1 if (part, source.index) == ("loss", 0) else size],
        dropout=(part, source.index) in (("weights", 2), ("loss", 1)),
        vary=varies,
        across_batches=False,
        stale=part == "weights",
        widths=[3, 3] if (part, source.index) == ("norm", 0) else (),
    )
    schedule = ("halved", "growing", "by-hand")[source.index % 3]
    if part == "norm":  # several groups, whose gradients all count
        case |= {"optimizer": "groups"}
    frozen = [source.index % 2] if part == "norm" else []  # a matrix, then a bias
    clears = part == "norm" and source.index == 1
    return {**case, "frozen": frozen, "schedule": schedule, "clears": clears}


def run(function, case: Case, device: torch.device) -> Answer:
    """The weights, what was returned, and the rates that the next update will use."""
    t, schedules = Training(case, device), torch.optim.lr_scheduler
    for position in case["frozen"]:
        list(t.model.parameters())[position].requires_grad_(False)
    scheduler = {
        "halved": lambda o: schedules.ExponentialLR(o, 0.5),
        "growing": lambda o: schedules.LinearLR(o, 0.25, total_iters=3),
        "by-hand": lambda o: schedules.LambdaLR(o, lambda update: 1 / (1 + update)),
    }[case["schedule"]](t.optimizer)
    if case["clears"]:
        t.optimizer.register_step_post_hook(lambda optimizer, *_: optimizer.zero_grad())
    t.remember()
    returned = function(t.model, *t.batches[0], t.criterion, t.optimizer, scheduler)
    return {
        **kept_entries(returned, RETURNED),
        "next_lr": [float(group["lr"]) for group in t.optimizer.param_groups],
        "state": t.state(),
        "modes": " and ".join("train" if mode else "eval" for mode in sorted(t.modes)),
        "disturbed": t.changed(TRAINED | {"options"}),
    }


def reference(model, inputs, targets, criterion, optimizer, scheduler) -> dict[str, float]:
    """The engine's step, then the schedule."""
    lr = optimizer.param_groups[0]["lr"]
    report = train_step(model, [(inputs, targets)], criterion, optimizer)
    scheduler.step()
    return {"loss": report.loss, "grad_norm": report.grad_norm, "lr": lr}


SCRIPT = """
def one_update(model, inputs, targets, criterion, optimizer, scheduler):
    optimizer.zero_grad()
    outputs = model(inputs)
    loss = criterion(outputs, targets)
    loss.backward()
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    norm = sum(grad.square().sum() for grad in grads).sqrt()
    lr = optimizer.param_groups[0]["lr"]
    optimizer.step()
    scheduler.step()
    return {"loss": loss.item(), "grad_norm": norm.item(), "lr": lr}
"""
CLEAR, BACKWARD = "    optimizer.zero_grad()\n", "    loss.backward()\n"
STEP, SCHEDULE = "    optimizer.step()\n", "    scheduler.step()\n"
RATE = '    lr = optimizer.param_groups[0]["lr"]\n'
NORM = "sum(grad.square().sum() for grad in grads).sqrt()"
SKIPPED = " if p.grad is not None"

slip = partial(variant, SCRIPT, __file__)
not_cleared = slip((CLEAR, ""))
cleared_too_late = slip((CLEAR, ""), (STEP, CLEAR + STEP))
cleared_before_the_norm = slip((CLEAR, ""), (BACKWARD, BACKWARD + CLEAR + "    norm = 0.0\n"),
                               (NORM, "torch.zeros(())"))  # fmt: skip
ZEROED = "    optimizer.zero_grad(set_to_none=False)\n"
zeroed_too_late = slip((CLEAR, ""), (STEP, ZEROED + STEP))
zeroed_before_the_norm = slip((CLEAR, ""), (BACKWARD, BACKWARD + ZEROED))
zeroed_twice = slip((STEP, ZEROED + STEP))
zeroed_twice_before_the_norm = slip((BACKWARD, BACKWARD + ZEROED))
step_first = slip((CLEAR, ""), (STEP, ""), (BACKWARD, STEP + CLEAR + BACKWARD), (RATE, ""),
                  ("    loss = ", RATE + "    loss = "))  # fmt: skip
step_first_uncleared = slip((CLEAR, ""), (STEP, ""), (BACKWARD, STEP + BACKWARD))
never_moved = slip((STEP, ""))
moved_twice = slip((STEP, STEP + STEP))
backward_twice = slip((BACKWARD, "    loss.backward(retain_graph=True)\n" + BACKWARD))
no_schedule = slip((SCHEDULE, ""))
schedule_twice = slip((SCHEDULE, SCHEDULE * 2))
schedule_first = slip((SCHEDULE, ""), (STEP, SCHEDULE + STEP))
schedule_at_the_start = slip((SCHEDULE, ""), (CLEAR, SCHEDULE + CLEAR))
next_rate = slip((RATE, ""), (SCHEDULE, SCHEDULE + RATE))
sum_of_norms = slip((NORM, "sum(grad.norm() for grad in grads)"))
mean_of_norms = slip((NORM, "sum(grad.norm() for grad in grads) / len(grads)"))
root_of_the_sum_of_norms = slip((NORM, "sum(grad.norm() for grad in grads).sqrt()"))
squared = slip((NORM, NORM.removesuffix(".sqrt()")))
one_per_shape = slip((NORM, "sum({g.shape: g.square().sum() for g in grads}.values()).sqrt()"))
largest = slip((NORM, "max(grad.abs().max() for grad in grads)"))
last_tensor = slip((NORM, "grads[-1].norm()"))
norm_of_weights = slip(("[p.grad for p", "[p.detach() for p"))
none_not_skipped = slip((SKIPPED, ""))
loss_after = slip(("loss.item()", "criterion(model(inputs), targets).item()"))
loss_of_the_batch = slip(("loss.item()", "loss.item() * len(targets)"))
loss_divided_again = slip(("loss.item()", "loss.item() / len(targets)"))
last_group = slip((RATE, RATE.replace("[0]", "[-1]")))
first_group = slip(("in model.parameters()", 'in optimizer.param_groups[0]["params"]'))
in_eval_mode = slip((CLEAR, CLEAR + "    model.eval()\n"))
eval_for_a_while = slip((CLEAR, CLEAR + "    model.eval()\n"),
                        (SCHEDULE, SCHEDULE + "    model.train()\n"))  # fmt: skip
norm_of_matrices = slip((SKIPPED, SKIPPED + " and p.ndim > 1"))
root_mean_square = slip(
    (NORM, "torch.cat([grad.flatten() for grad in grads]).square().mean().sqrt()")
)
norm_of_all_weights = slip(("[p.grad for p", "[p.detach() for p"), (SKIPPED, ""))
rate_of_the_start = slip((RATE, RATE.replace("param_groups[0]", "defaults")))
schedule_per_group = slip((SCHEDULE, "    for _ in optimizer.param_groups:\n    " + SCHEDULE))
first_group_cleared = slip(
    (CLEAR, '    for p in optimizer.param_groups[0]["params"]:\n        p.grad = None\n')
)
FORWARD = "    outputs = model(inputs)\n"
LATER_NORM = "(sum(p.grad.square().sum() for p in model.parameters() if p.grad is not None) ** 0.5)"
STACKED = "torch.stack([p.grad.norm() for p in model.parameters() if p.grad is not None]).norm()"
JOINED = "torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]).norm()"
ROOT_AT_LAST = LATER_NORM.replace(" ** 0.5", "") + ".sqrt()"
NOTHING_LEFT = "non-empty TensorList|non-empty list|'int' object has no attribute 'sqrt'"
"""What these raise where no gradient is left."""


def measured_late(norm, *edits):
    return slip((NORM, "0.0"), ("norm.item()", f"float({norm})"), *edits)


norm_after_step, *norm_after_step_or_raises = (
    measured_late(norm) for norm in (LATER_NORM, STACKED, JOINED, ROOT_AT_LAST)
)
norm_of_nothing, *norm_of_nothing_or_raises = (
    measured_late(norm, (SCHEDULE, SCHEDULE + CLEAR))
    for norm in (LATER_NORM, STACKED, JOINED, ROOT_AT_LAST)
)
sum_of_norms_after_step = measured_late(
    "sum(p.grad.norm() for p in model.parameters() if p.grad is not None)"
)
first_of_two_forwards = slip(
    (FORWARD, "    first = criterion(model(inputs), targets)\n" + FORWARD),
    ("loss.item()", "first.item()"),
)
second_of_two_forwards = slip(
    (STEP, "    later = criterion(model(inputs), targets)\n" + STEP),
    ("loss.item()", "later.item()"),
)
squeezed = slip(("model(inputs)", "model(inputs).squeeze()"))
sum_of_sizes = slip((NORM, "sum(grad.abs().sum() for grad in grads)"))
schedule_given_the_loss = slip((SCHEDULE, "    scheduler.step(loss.item())\n"))
forward_again_for_the_loss = slip(
    ("criterion(outputs, targets)\n", "criterion(model(inputs), targets)\n")
)
largest_norm = slip((NORM, "max(grad.norm() for grad in grads)"))
clipped = slip((NORM, "nn.utils.clip_grad_norm_(model.parameters(), 1.0)"))
with_softmax = slip(("criterion(outputs,", "criterion(outputs.softmax(dim=1),"))


def textbook(model, inputs, targets, criterion, optimizer, scheduler):
    optimizer.zero_grad()
    outputs = model(inputs)
    loss = criterion(outputs, targets)
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), float("inf"))
    lr = scheduler.get_last_lr()[0]
    optimizer.step()
    scheduler.step()
    return {"loss": loss.item(), "grad_norm": norm.item(), "lr": lr}


def cleared_in_between(model, inputs, targets, criterion, optimizer, scheduler):
    loss = criterion(model(inputs), targets)
    for parameter in model.parameters():
        parameter.grad = None
    loss.backward()
    squares = [p.grad.pow(2).sum() for p in model.parameters() if p.grad is not None]
    report = {"lr": optimizer.param_groups[0]["lr"], "loss": float(loss.detach())}
    report["grad_norm"] = float(torch.stack(squares).sum() ** 0.5)
    optimizer.step()
    scheduler.step()
    return report


def cleared_on_both_sides(model, inputs, targets, criterion, optimizer, scheduler):
    model.zero_grad()
    rates = [group["lr"] for group in optimizer.param_groups]
    loss = criterion(model(inputs), targets)
    loss.backward()
    flat = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
    optimizer.step()
    norm = torch.linalg.vector_norm(torch.cat(flat))
    optimizer.zero_grad()
    scheduler.step()
    return {"loss": loss.detach(), "grad_norm": norm, "lr": rates[0]}


EXERCISE = Exercise(
    id="01c.one-update",
    title="the six operations in torch",
    source='Chapter 3, "The six operations"; module 2, the loop that prints a norm',
    ledger=("T14", "N56", "F42", "F27", "F28", "F132", "C02", "C22"),
    minutes=15,
    difficulty=2,
    read=("F28", "N56", "F42"),
    hints=(
        "Write the six operations as six comments, then note at which line each number is "
        "available.",
        "The norm can be computed after backward() and before anything clears the gradients; the "
        "rate that this update uses can be read until the schedule moves.",
        "Square every entry of every .grad that is not None, add all of them up, take one root. "
        "lr is optimizer.param_groups[0]['lr'] before scheduler.step().",
    ),
    signature="one_update(model, inputs, targets, criterion, optimizer, scheduler)",
    parts=(
        Part("weights", "the weights, with any optimizer and old gradients", points=2, cases=3,
             fields=("state", "modes", "disturbed")),
        Part("loss", "the returned loss, also for one example", points=1, cases=3,
             fields=("loss",)),
        Part("norm", "the returned norm, with one frozen tensor", points=1, fields=("grad_norm",)),
        Part("rate", "the rate of this update and the next", points=1, cases=3,
             fields=("lr", "next_lr")),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={
        "state": "after the update,",
        "modes": "the mode in which the model was called",
        "loss": "the returned loss",
        "grad_norm": "the returned norm",
        "lr": "the returned learning rate",
        "next_lr": "the rates that the next update will use:",
    },
    wrong=(
        Wrong("not-cleared", not_cleared,
              "The gradients left by an earlier update were added to this one's. Call "
              "optimizer.zero_grad() before backward()."),
        Wrong("never-moves", cleared_too_late,
              "No weight moved. Were the gradients cleared between backward() and step(), is "
              "step() missing, or does it belong to another optimizer?", sure=True),
        Wrong("never-moves", never_moved),
        Wrong("never-moves", cleared_before_the_norm),
        Wrong("zeroed-too-late", zeroed_too_late,
              "The gradients were 0 when step() ran: something set them to 0 between backward() "
              "and step(), so that weight decay and momentum alone moved the weights. Clear them "
              "before backward()."),
        Wrong("zeroed-too-late", zeroed_before_the_norm),
        Wrong("zeroed-too-late", zeroed_twice),
        Wrong("zeroed-too-late", zeroed_twice_before_the_norm),
        Wrong("step-first", step_first,
              "step() ran before backward(): it moved the weights by old gradients, and backward() "
              "then missed the numbers that the outputs were computed with. backward() comes "
              "first, then step().", raises="modified by an inplace operation", sure=True),
        Wrong("step-first", step_first_uncleared, raises="modified by an inplace operation",
              sure=True),
        Wrong("moved-twice", moved_twice,
              "The weights moved twice. Call backward() once and step() once."),
        Wrong("backward-twice", backward_twice,
              "The gradient is twice as long as it should be: backward() ran twice, and it adds."),
        Wrong("no-schedule", no_schedule,
              "The learning rate is the same after the update. Call scheduler.step() last."),
        Wrong("schedule-twice", schedule_twice,
              "The learning rate is the one after two updates. One scheduler.step() per update."),
        Wrong("schedule-first", schedule_first,
              "The weights moved by the rate of the next update: scheduler.step() ran before "
              "optimizer.step()."),
        Wrong("schedule-at-the-start", schedule_at_the_start,
              "The schedule moved before this update, which used and returned the next one's "
              "rate. Call scheduler.step() last."),
        Wrong("next-rate", next_rate,
              "The returned rate is the next update's. Read it before the schedule moves."),
        Wrong("sum-of-norms", sum_of_norms,
              "The norms of the tensors were added up, which is more than the norm of the whole "
              "gradient. Add up the squares, and take one root."),
        Wrong("mean-of-norms", mean_of_norms,
              "That is the mean of the tensors' norms. Add up the squares of all entries, and "
              "take one root."),
        Wrong("root-of-the-sum-of-norms", root_of_the_sum_of_norms,
              "That is the root of the sum of the tensors' norms. Add up the squares of all "
              "entries, and take the root of that: norm() has already taken one."),
        Wrong("squared", squared, "That is the square of the norm: take the root."),
        Wrong("largest-entry", largest,
              "That is the largest entry of the gradient. The norm is the root of the sum of all "
              "squares."),
        Wrong("last-tensor", last_tensor,
              "That is the norm of the last tensor's gradient alone. Include all of them."),
        Wrong("norm-of-the-first-group", first_group,
              "That is the norm of the gradients in the optimizer's first group. Use all of "
              "model.parameters()."),
        Wrong("norm-of-matrices", norm_of_matrices,
              "That is the norm without the biases' gradients. Every parameter that has one "
              "counts."),
        Wrong("sum-of-sizes", sum_of_sizes,
              "That is the sum of the sizes of all entries, the L1 norm. The length is the root "
              "of the sum of all squares."),
        Wrong("schedule-given-the-loss", schedule_given_the_loss,
              "The next rate is that of scheduler.step(loss): a schedule takes the number for how "
              "many times it was stepped. Call step() without it; ReduceLROnPlateau alone takes "
              "a loss."),
        Wrong("largest-norm", largest_norm,
              "That is the largest of the tensors' norms. Include all tensors: the root of the "
              "sum of all squares."),
        Wrong("in-eval-mode", in_eval_mode,
              "The model was called in eval mode, in which dropout is off. It comes in train "
              "mode: leave it so.", sure=True),
        Wrong("in-eval-mode", eval_for_a_while),
        Wrong("norm-of-weights", norm_of_weights,
              "That is the norm of the weights. The gradients are in .grad."),
        Wrong("norm-of-weights", norm_of_all_weights),
        Wrong("root-mean-square", root_mean_square,
              "That is the root of the mean square. The norm is the root of the sum of all "
              "squares."),
        Wrong("norm-after-step", norm_after_step,
              "The norm was computed after optimizer.step(), which may clear the gradients. "
              "Compute it before.", sure=True),
        Wrong("sum-of-norms-after-step", sum_of_norms_after_step,
              "The norms of the tensors were added up, after optimizer.step(), which may clear the "
              "gradients. Compute the norm before it: add up the squares, and take one root.",
              sure=True),
        *(Wrong("norm-after-step", late, raises=NOTHING_LEFT, sure=True)
          for late in norm_after_step_or_raises),
        Wrong("norm-of-nothing", norm_of_nothing,
              "There was no gradient when the norm was computed. Compute it between backward() and "
              "step(): zero_grad() removes the gradients, and step() may.", sure=True),
        *(Wrong("norm-of-nothing", late, raises=NOTHING_LEFT, sure=True)
          for late in norm_of_nothing_or_raises),
        Wrong("rate-of-the-start", rate_of_the_start,
              "That is the rate that the optimizer was created with. The schedule has changed it "
              "since: read optimizer.param_groups[0]['lr'].", sure=True),
        Wrong("schedule-per-group", schedule_per_group,
              "scheduler.step() ran once for each of the optimizer's groups. One call changes the "
              "rates of all groups.", sure=True),
        Wrong("first-group-cleared", first_group_cleared,
              "Gradients from an earlier update were cleared only in the optimizer's first group. "
              "optimizer.zero_grad() clears all of them.", sure=True),
        Wrong("forward-twice", first_of_two_forwards,
              "The model was called twice, and dropout draws again in each call: the results no "
              "longer belong together. Call the model once, and use its outputs for everything.",
              sure=True),
        Wrong("forward-twice", forward_again_for_the_loss, sure=True),
        Wrong("forward-twice", second_of_two_forwards, sure=True),
        Wrong("squeezed", squeezed),
        Wrong("none-not-skipped", none_not_skipped,
              "A frozen parameter has .grad = None. Skip it.",
              raises="'NoneType' object has no attribute|'NoneType' and 'int'"),
        Wrong("loss-after", loss_after,
              "That is the loss after the update. Return the one that backward() started from."),
        Wrong("loss-of-the-batch", loss_of_the_batch,
              "That is the loss times the number of examples. The criterion returns a mean: "
              "return that."),
        Wrong("norm-of-one-per-shape", one_per_shape),
        Wrong("loss-divided-again", loss_divided_again,
              "That is the loss divided by the number of examples. The criterion has already "
              "averaged: return its value."),
        Wrong("rate-of-the-last-group", last_group,
              "That is the rate of the last group. Return that of the first: "
              "optimizer.param_groups[0].", sure=True),
        Wrong("clipped", clipped,
              "The weights are those of gradients clipped to 1. With a max_norm of inf, "
              "clip_grad_norm_ measures the norm and leaves the gradients as they are.", sure=True),
        Wrong("with-softmax", with_softmax,
              "The criterion was given the softmax of the outputs. Give it the outputs."),
        *common(textbook, *TRAINS, "returns-graph", alike={"global-optimizer": "never-moves"}),
    ),
    right=(textbook, cleared_in_between, cleared_on_both_sides),
)  # fmt: skip
