"""03b.plateau: a loss that stays on a plateau; find the planted bug and fix the step."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from autograde.bank.common_wrong import common
from autograde.bank.harness import TRAINED, Training, draw_training
from autograde.exercise import Answer, Case, Draw, Exercise, Part, Wrong, as_number, kept
from course.engine import train_step

FAR = 300.0
"""Between logits: the exponential of such a number is not finite, of its negative it is 0."""


def draw(source: Draw, part: str) -> Case:
    """A few batches; the last may be short; the first gradient may be left over."""
    size = source.integer(3, 7)
    sizes = [size, source.integer(3, 7), 1 if part == "short" else size]
    if sure := part == "loss" and source.index == 1:
        sizes = sizes[:1]
    case = draw_training(source, sizes, vary=part == "weights", stale=part == "left-over")
    return _surely_wrong(case) if sure else case


def _surely_wrong(case: Case) -> Case:
    """A batch whose logits lie hundreds apart, with the labels that they exclude."""
    (batch,) = case["batches"]
    with torch.no_grad():
        logits = Training(case, torch.device("cpu")).model(batch["inputs"])
        apart = (logits.max(dim=1).values - logits.min(dim=1).values).min().item()
    last = sorted(name for name in case["state"] if name.endswith("weight"))[-1]
    for name in (last, last.replace("weight", "bias")):
        case["state"][name] *= FAR / max(apart, 0.1)
    return case | {"batches": [batch | {"targets": logits.argmin(dim=1)}]}


def run(function, case: Case, device: torch.device) -> Answer:
    """The losses step by step and the weights at the end."""
    t = Training(case, device)
    list(t.model.modules())[-1].eval()  # train() would change that
    t.remember()
    losses = [
        kept(as_number, function(t.model, inputs, targets, t.optimizer), "the loss of the step")
        for inputs, targets in t.batches
    ]
    unfit = next((loss for loss in losses if isinstance(loss, dict)), None)
    return {
        "losses": unfit or losses,
        "forwards": len(t.forwards),
        "state": t.state(),
        "disturbed": t.changed(TRAINED - {"modes"}),
    }


def reference(model, inputs, targets, optimizer) -> float:
    """The engine's step with the logits themselves."""
    return train_step(model, [(inputs, targets)], torch.nn.CrossEntropyLoss(), optimizer).loss


def _step(model, inputs, targets, optimizer, loss_of, *, clear=True):
    if clear:
        optimizer.zero_grad()
    loss = loss_of(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.item()


def log_of_softmax(model, inputs, targets, optimizer):
    return _step(
        model, inputs, targets, optimizer,
        lambda out, y: F.nll_loss(out.softmax(dim=1).log(), y),
    )  # fmt: skip


def exp_overflows(model, inputs, targets, optimizer):
    def loss_of(out, y):
        return (out.exp().sum(dim=1).log() - out.gather(1, y[:, None])[:, 0]).mean()

    return _step(model, inputs, targets, optimizer, loss_of)


def floor_in_the_log(eps):
    """The log of softmax + eps."""

    def floored(model, inputs, targets, optimizer):
        return _step(
            model, inputs, targets, optimizer,
            lambda out, y: F.nll_loss((out.softmax(dim=1) + eps).log(), y),
        )  # fmt: skip

    return floored


def probabilities_clamped(model, inputs, targets, optimizer):
    return _step(
        model, inputs, targets, optimizer,
        lambda out, y: F.nll_loss(out.softmax(dim=1).clamp(min=1e-7).log(), y),
    )  # fmt: skip


def scaled_softmax(model, inputs, targets, optimizer):
    return _step(
        model, inputs, targets, optimizer,
        lambda out, y: F.cross_entropy(10 * out.softmax(dim=1), y),
    )  # fmt: skip


def clamped(model, inputs, targets, optimizer):
    return _step(
        model, inputs, targets, optimizer, lambda out, y: F.cross_entropy(out.clamp(-10, 10), y)
    )


def still_planted(model, inputs, targets, optimizer):
    return _step(
        model, inputs, targets, optimizer,
        lambda out, y: F.cross_entropy(out.softmax(dim=1), y),
    )  # fmt: skip


def log_forgotten(model, inputs, targets, optimizer):
    return _step(
        model, inputs, targets, optimizer, lambda out, y: F.nll_loss(out.softmax(dim=1), y)
    )


def over_the_batch(model, inputs, targets, optimizer):
    return _step(
        model, inputs, targets, optimizer, lambda out, y: F.nll_loss(out.log_softmax(dim=0), y)
    )


def softmax_over_the_batch(model, inputs, targets, optimizer):
    return _step(
        model, inputs, targets, optimizer,
        lambda out, y: F.cross_entropy(out.softmax(dim=0), y),
    )  # fmt: skip


def one_question_per_class(model, inputs, targets, optimizer):
    def loss_of(out, y):
        return F.binary_cross_entropy_with_logits(out, F.one_hot(y, out.shape[1]).to(out.dtype))

    return _step(model, inputs, targets, optimizer, loss_of)


def stepped_before_backward(model, inputs, targets, optimizer):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(inputs), targets)
    optimizer.step()
    loss.backward()
    return loss.item()


def logits_as_log(model, inputs, targets, optimizer):
    return _step(model, inputs, targets, optimizer, F.nll_loss)


def squared_error(model, inputs, targets, optimizer):
    def loss_of(out, y):
        return F.mse_loss(out.softmax(dim=1), F.one_hot(y, out.shape[1]).float())

    return _step(model, inputs, targets, optimizer, loss_of)


def summed(model, inputs, targets, optimizer):
    return _step(
        model, inputs, targets, optimizer,
        lambda out, y: F.cross_entropy(out, y, reduction="sum"),
    )  # fmt: skip


def rate_raised(model, inputs, targets, optimizer):
    for group in optimizer.param_groups:
        group["lr"] *= 10
    return still_planted(model, inputs, targets, optimizer)


def with_a_sigmoid(model, inputs, targets, optimizer):
    return _step(
        model, inputs, targets, optimizer, lambda out, y: F.cross_entropy(out.sigmoid(), y)
    )


def loss_after_the_step(model, inputs, targets, optimizer):
    _step(model, inputs, targets, optimizer, F.cross_entropy)
    return F.cross_entropy(model(inputs), targets).item()


def called_twice(model, inputs, targets, optimizer):
    """The planted softmax is left for a report, and the model called again."""
    model(inputs).softmax(dim=1)
    return with_logits(model, inputs, targets, optimizer)


def cleared_after_the_step(model, inputs, targets, optimizer):
    loss = clearing_lost(model, inputs, targets, optimizer)
    optimizer.zero_grad()
    return loss


def own_adam(model, inputs, targets, optimizer):
    return with_logits(model, inputs, targets, torch.optim.Adam(model.parameters(), lr=3e-3))


def mode_changed(model, inputs, targets, optimizer):
    model.train()
    return with_logits(model, inputs, targets, optimizer)


def clearing_lost(model, inputs, targets, optimizer):
    return _step(model, inputs, targets, optimizer, F.cross_entropy, clear=False)


def with_logits(model, inputs, targets, optimizer):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.item()


def with_log_softmax(model, inputs, targets, optimizer):
    logs = model(inputs).log_softmax(dim=-1)
    loss = F.nll_loss(logs, targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def by_hand(model, inputs, targets, optimizer):
    logits = model(inputs)
    right = logits.gather(1, targets[:, None]).squeeze(1)
    loss = (logits.logsumexp(dim=1) - right).mean()
    model.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    return float(loss)


EXERCISE = Exercise(
    id="03b.plateau",
    title="fix the step behind a plateau",
    source='Lecture 1, "Overfit one batch: which bug gives which curve"',
    ledger=("B08", "S17", "N38", "F06", "F78"),
    minutes=10,
    difficulty=1,
    read=("N38", "F06"),
    hints=(
        "Compare what the loss function expects with what the step passes to it.",
        "The formula for the floor, ln(1 + (C - 1) / e), appears if one operation is applied "
        "twice. Which operation does cross_entropy perform itself?",
        "Delete the softmax: loss = F.cross_entropy(model(inputs), targets). Everything else in "
        "the step stays.",
    ),
    signature="fixed_step(model, inputs, targets, optimizer)",
    parts=(
        Part(
            "loss", "the loss of each step, one forward pass each", 1, fields=("losses", "forwards")
        ),
        Part(
            "weights",
            "the weights after some steps, with any optimizer",
            points=1,
            cases=3,
            fields=("state", "disturbed"),
        ),
        Part("short", "a shorter last batch", points=1, fields=("state",)),
        Part(
            "left-over",
            "gradients left over from an earlier step",
            points=1,
            fields=("state",),
            hidden=True,
        ),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={
        "losses": "the losses",
        "forwards": "the number of forward passes",
        "state": "after the steps,",
    },
    by_hand=(train_step,),
    wrong=(
        Wrong(
            "still-planted",
            still_planted,
            "The bug is still there: cross_entropy applies softmax itself. Given probabilities, it "
            "yields a loss that cannot fall below ln(1 + (C - 1) / e). Pass it the logits.",
        ),
        Wrong(
            "log-of-softmax",
            log_of_softmax,
            "The loss is not finite when the model is certain of a wrong class: then softmax gives "
            "0, or exp() overflows. cross_entropy and log_softmax take the logits and stay finite.",
            sure=True,
        ),
        Wrong("log-of-softmax", exp_overflows, sure=True),
        Wrong(
            "capped",
            floor_in_the_log(1e-8),
            "The loss is capped at -ln(eps), which is 18.4 for 1e-8: a floor under the "
            "probabilities (softmax + eps, or clamp) keeps it finite, but where it is capped the "
            "gradient vanishes. Pass the logits to cross_entropy, which needs no floor.",
            sure=True,
        ),
        *(
            Wrong("capped", floor_in_the_log(eps), sure=True)
            for eps in (1e-5, 1e-6, 1e-7, 1e-9, 1e-10, 1e-12)
        ),
        Wrong("capped", probabilities_clamped, sure=True),
        Wrong("logits-clamped", clamped),
        Wrong(
            "log-forgotten",
            log_forgotten,
            "nll_loss expects log-probabilities: given plain probabilities, it yields a negative "
            "loss. Use log_softmax, or cross_entropy of the logits.",
        ),
        Wrong(
            "over-the-batch",
            over_the_batch,
            "The softmax runs over the examples (dim=0) and makes them compete with each other. It "
            "belongs over the classes.",
        ),
        Wrong(
            "softmax-over-the-batch",
            softmax_over_the_batch,
            "cross_entropy was given a softmax over the examples (dim=0). It applies a softmax "
            "over the classes itself: pass it the logits, without any softmax.",
        ),
        Wrong(
            "one-question-per-class",
            one_question_per_class,
            "That is binary_cross_entropy with one-hot targets: every class becomes a separate "
            "yes-or-no question, and the mean is over B x C of them. For one class out of C, use "
            "cross_entropy of the logits.",
        ),
        Wrong(
            "never-moves",
            stepped_before_backward,
            "No weight moved. step() uses what backward() has put into .grad: is there an "
            "optimizer.step() after backward(), and no zero_grad() between the two?",
        ),
        Wrong(
            "logits-as-log",
            logits_as_log,
            "nll_loss of raw logits has no lower bound: it falls forever while nothing is learned. "
            "It needs log_softmax before it; cross_entropy does both.",
        ),
        Wrong(
            "squared-error",
            squared_error,
            "The squared error of probabilities gives hardly any gradient when the model is "
            "confidently wrong. Use cross_entropy of the logits.",
        ),
        Wrong(
            "summed",
            summed,
            "The loss is summed over the batch: the step grows with the batch size. Take the mean.",
        ),
        Wrong(
            "clearing-lost",
            clearing_lost,
            "The weights are those of a loop in which the gradients of all steps add up: call "
            "zero_grad() in each step.",
        ),
        Wrong(
            "rate-raised",
            rate_raised,
            "The softmax is still there, and the rate was raised. No rate gets below the floor of "
            "that loss, ln(1 + (C - 1) / e): pass cross_entropy the logits, and leave the rate "
            "alone.",
        ),
        Wrong(
            "with-a-sigmoid",
            with_a_sigmoid,
            "cross_entropy was given the sigmoid of the logits, which keeps the loss above a floor "
            "just as a softmax does. Pass it the logits themselves.",
        ),
        Wrong(
            "scaled-softmax",
            scaled_softmax,
            "cross_entropy was given a multiple of the softmax. However large the factor, that "
            "applies softmax twice and keeps the loss above a floor. Pass it the logits.",
        ),
        Wrong(
            "loss-after-the-step",
            loss_after_the_step,
            "The weights are right, but the returned loss is that of the weights after the step. "
            "Return the loss that backward() was called on.",
        ),
        Wrong(
            "called-twice",
            called_twice,
            "Losses and weights are right, but the model was called more than once per step. Call "
            "it once, and compute the loss from its output.",
            sure=True,
        ),
        Wrong(
            "cleared-after-the-step",
            cleared_after_the_step,
            "Gradients left over from an earlier step went into the first update. Call zero_grad() "
            "before backward().",
            sure=True,
        ),
        Wrong("own-adam", own_adam),
        Wrong("mode-changed", mode_changed),
        *common(
            with_logits,
            *("own-optimizer", "first-group-only", "global-model", "global-optimizer"),
            *("global-data", "returns-none", "returns-text", "returns-graph", "changes-data"),
            *("changes-lr", "changes-requires-grad", "changes-dtype", "changes-grad-mode"),
            alike={"global-optimizer": "never-moves"},
        ),
    ),
    right=(with_logits, with_log_softmax, by_hand),
)
