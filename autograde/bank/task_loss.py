"""01b.task-loss: for each kind of task the loss that fits, on what model and loader give."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from autograde.bank.harness import Watch, as_loss, form_of, numpy_loss, slopes_of
from autograde.compare import TOLERANCE
from autograde.exercise import Answer, Case, Draw, Exercise, Part, Wrong, kept
from course.from_scratch import losses

TASKS = {
    "one-hot": "one of many",
    "yes-no": "yes or no",
    "labels": "many labels",
    "number": "a number",
}
"""What a part is about, as the function is told it."""
LOSS = ("loss", "disturbed")
"""What most parts look at."""
FAR = 1000.0
"""Between logits: exp() of it overflows, and of its negative is 0."""


def draw(source: Draw, part: str) -> Case:
    """Outputs as a model makes them, targets as a loader gives them; also a batch of one."""
    key = list(TASKS)[source.index] if part in ("single", "backward") else part
    rows = 1 if part == "single" else source.integer(4, 6)
    columns = source.integer(3, 4) if key in ("one-hot", "labels") else 1
    targets = source.integers(2, rows, columns)
    targets[0], targets[-1] = 1, 0  # both answers are there
    if key == "one-hot":
        index = source.integers(columns, rows)
        index[:2] = torch.tensor([columns - 1, 0])[:rows]
        targets = F.one_hot(index, columns)
    if key == "yes-no":
        targets = targets[:, 0] if rows > 1 else torch.ones(1, dtype=torch.long)
    if key == "number":
        targets = (3 * source.normal(rows) + 1).double()
    if key == "labels" and source.index % 2 == 0:
        targets = targets.bool()
    if part == "labels" and source.index == 2:  # by chance, every example has one label
        targets = F.one_hot(source.integers(columns, rows), columns)
    outputs = 1.5 * source.normal(rows, columns)
    if part in ("yes-no", "labels") and source.index == 1:
        outputs[0, 0] = -300.0  # where 1 is right: a loss of 300
    if part == "one-hot" and source.index == 1:
        outputs[0, -1] = outputs[0, -1] - FAR  # the right class
        outputs[1, 1] += FAR
    return {
        "task": TASKS[key],
        "outputs": outputs,
        "targets": targets,
        "dtype": "float64" if source.index in (1, 2) else "float32",
        "slopes": part == "backward",
    }


def run(function, case: Case, device: torch.device) -> Answer:
    """The loss, what flows back into the outputs, and what was changed."""
    leaf = case["outputs"].to(device, getattr(torch, case["dtype"])).requires_grad_()
    outputs = leaf.clone()  # no leaf, as what a model gives
    targets = case["targets"].to(device)
    watch = Watch(data={"outputs": outputs, "targets": targets})
    returned = function(case["task"], outputs, targets)
    answer = {"loss": kept(as_loss, returned, "the loss"), "disturbed": watch.changed()}
    answer["form"] = form_of(returned)
    if case["slopes"]:
        answer["slopes"] = kept(slopes_of, returned, leaf)
    return answer


def reference(task: str, outputs: Tensor, targets: Tensor) -> Tensor:
    """The course's own losses, in NumPy, with their own gradients."""
    out, target = outputs.detach().cpu().double().numpy(), targets.cpu().double().numpy()
    pairs = {
        "one of many": (losses.cross_entropy, losses.cross_entropy_backward),
        "yes or no": (losses.bce_with_logits, losses.bce_with_logits_backward),
        "many labels": (losses.bce_with_logits, losses.bce_with_logits_backward),
        "a number": (losses.mse, losses.mse_backward),
    }
    fitting = target.argmax(axis=1) if task == "one of many" else target.reshape(out.shape)
    value, grad = (function(out, fitting) for function in pairs[task])
    return numpy_loss(value, grad, outputs)


def classes(outputs, targets):
    return F.cross_entropy(outputs, targets.argmax(dim=1))


def yes_no(outputs, targets):
    return F.binary_cross_entropy_with_logits(outputs[:, 0], targets.to(outputs.dtype))


def labels(outputs, targets):
    return F.binary_cross_entropy_with_logits(outputs, targets.to(outputs.dtype))


def number(outputs, targets):
    return F.mse_loss(outputs[:, 0], targets.to(outputs.dtype))


def made_of(**other):
    """A right answer, or with the loss of one task changed a wrong one."""
    by_task = {
        "one of many": other.get("classes", classes),
        "yes or no": other.get("yes_no", yes_no),
        "many labels": other.get("labels", labels),
        "a number": other.get("number", number),
    }
    after = other.get("after", lambda loss: loss)

    def task_loss(task, outputs, targets):
        return after(by_task[task](outputs, targets))

    return task_loss


softmax_first = made_of(classes=lambda z, t: F.cross_entropy(z.softmax(1), t.argmax(1)))
one_hot_as_labels = made_of(classes=labels)
squared_classes = made_of(classes=lambda z, t: F.mse_loss(z.softmax(1), t.to(z.dtype)))
argmax_of_columns = made_of(
    classes=lambda z, t: F.cross_entropy(z, F.pad(t.argmax(0), (0, 9))[: len(z)] % z.shape[1])
)
log_of_softmax = made_of(classes=lambda z, t: F.nll_loss(z.softmax(1).log(), t.argmax(1)))
exp_overflows = made_of(classes=lambda z, t: (z.exp().sum(1).log() - (z * t).sum(1)).mean())
log_of_clamped = made_of(
    classes=lambda z, t: -(t * z.softmax(1).clamp(min=1e-7).log()).sum(1).mean()
)
nll_of_logits = made_of(classes=lambda z, t: F.nll_loss(z, t.argmax(1)))
sigmoid_twice = made_of(yes_no=lambda z, t: yes_no(z.sigmoid(), t))
sigmoid_then_bce = made_of(
    yes_no=lambda z, t: F.binary_cross_entropy(z[:, 0].sigmoid(), t.to(z.dtype))
)
sigmoid_then_bce_for_labels = made_of(
    labels=lambda z, t: F.binary_cross_entropy(z.sigmoid(), t.to(z.dtype))
)
sigmoid_then_bce_for_both = made_of(
    yes_no=lambda z, t: F.binary_cross_entropy(z[:, 0].sigmoid(), t.to(z.dtype)),
    labels=lambda z, t: F.binary_cross_entropy(z.sigmoid(), t.to(z.dtype)),
)
broadcast_yes_no = made_of(
    yes_no=lambda z, t: F.binary_cross_entropy_with_logits(
        z.expand(-1, len(t)), t.to(z.dtype).expand(len(t), -1)
    )
)
squared_yes_no = made_of(yes_no=lambda z, t: F.mse_loss(z[:, 0].sigmoid(), t.to(z.dtype)))
squared_logit = made_of(yes_no=number)
long_labels = made_of(yes_no=lambda z, t: F.binary_cross_entropy_with_logits(z[:, 0], t))
column_of_classes = made_of(yes_no=lambda z, t: F.cross_entropy(z, t * 0))
squeezed = made_of(yes_no=lambda z, t: yes_no(z.squeeze()[:, None], t))
shape_lost = made_of(
    yes_no=lambda z, t: F.binary_cross_entropy_with_logits(z.squeeze(), t.to(z.dtype))
)
sigmoid_everywhere = made_of(
    yes_no=lambda z, t: yes_no(z.sigmoid(), t), labels=lambda z, t: labels(z.sigmoid(), t)
)
activations_first = made_of(
    classes=lambda z, t: classes(z.softmax(1), t), yes_no=lambda z, t: yes_no(z.sigmoid(), t),
    labels=lambda z, t: labels(z.sigmoid(), t),
)  # fmt: skip
integers_as_shares = made_of(classes=F.cross_entropy)
labels_as_classes = made_of(labels=lambda z, t: F.cross_entropy(z, t.to(z.dtype)))
labels_added = made_of(labels=lambda z, t: labels(z, t) * z.shape[1])
labels_softmax = made_of(labels=lambda z, t: F.binary_cross_entropy(z.softmax(1), t.to(z.dtype)))
labels_softmax_with_logits = made_of(labels=lambda z, t: labels(z.softmax(1), t))
labels_of_the_first = made_of(labels=lambda z, t: labels(z[:, :1], t[:, :1]))
sigmoid_twice_labels = made_of(labels=lambda z, t: labels(z.sigmoid(), t))
broadcast = made_of(number=lambda y, t: (y - t.to(y.dtype)).square().mean())
summed = made_of(number=lambda y, t: number(y, t) * len(t))
rooted = made_of(number=lambda y, t: number(y, t).sqrt())
absolute = made_of(number=lambda y, t: F.l1_loss(y[:, 0], t.to(y.dtype)))
halved = made_of(number=lambda y, t: number(y, t) / 2)
rounded = made_of(number=lambda y, t: number(y, t.long()))
huber = made_of(number=lambda y, t: F.smooth_l1_loss(y[:, 0], t.to(y.dtype)))
smoothed = made_of(classes=lambda z, t: F.cross_entropy(z, t.argmax(1), label_smoothing=0.1))
one_label = made_of(labels=lambda z, t: F.multi_margin_loss(z, t.long().argmax(1)))
off_the_outputs = made_of(number=lambda y, t: number(y.detach(), t).requires_grad_())
always_classes = made_of(yes_no=lambda z, t: F.cross_entropy(F.pad(z, (1, 0)), t))
mean_over_classes = made_of(classes=lambda z, t: -(t * z.log_softmax(1)).mean())
ones_only = made_of(labels=lambda z, t: -(t * F.logsigmoid(z)).mean())
labels_by_shape = made_of(
    labels=lambda z, t: (classes if (t.sum(1) == 1).all() and t.dtype == torch.long else labels)(
        z, t
    )
)
labels_squeezed = made_of(
    labels=lambda z, t: F.binary_cross_entropy_with_logits(z.squeeze(), t.to(z.dtype))
)
bool_subtracted = made_of(
    labels=lambda z, t: -(t * F.logsigmoid(z) + (1 - t) * F.logsigmoid(-z)).mean()
)
number_with_column = made_of(number=lambda y, t: number(y, t.unsqueeze_(1)[:, 0]))
yes_no_with_column = made_of(yes_no=lambda z, t: yes_no(z, t.unsqueeze_(1)[:, 0]))
both_with_columns = made_of(
    number=lambda y, t: number(y, t.unsqueeze_(1)[:, 0]),
    yes_no=lambda z, t: yes_no(z, t.unsqueeze_(1)[:, 0]),
)
number_squeezed = made_of(number=lambda y, t: _then_squeezed(number, y, t))
yes_no_squeezed = made_of(yes_no=lambda z, t: _then_squeezed(yes_no, z, t))
both_squeezed = made_of(
    number=lambda y, t: _then_squeezed(number, y, t),
    yes_no=lambda z, t: _then_squeezed(yes_no, z, t),
)
number_in_float64 = made_of(number=lambda y, t: F.mse_loss(y[:, 0], t))
yes_no_in_float32 = made_of(
    yes_no=lambda z, t: F.binary_cross_entropy_with_logits(z[:, 0], t.float())
)
labels_in_float32 = made_of(labels=lambda z, t: F.binary_cross_entropy_with_logits(z, t.float()))
both_in_float32 = made_of(
    yes_no=lambda z, t: F.binary_cross_entropy_with_logits(z[:, 0], t.float()),
    labels=lambda z, t: F.binary_cross_entropy_with_logits(z, t.float()),
)
with_a_dimension = made_of(after=lambda loss: loss[None])


def _then_squeezed(loss, outputs, targets):
    value = loss(outputs, targets)
    outputs.squeeze_(1)
    return value


def in_float32(task, outputs, targets):
    return made_of()(task, outputs.float(), targets)


item = made_of(after=lambda loss: loss.item())
detached = made_of(after=lambda loss: loss.detach())


def with_branches(task, outputs, targets):
    if task == "one of many":
        return F.cross_entropy(outputs, targets.to(outputs.dtype))  # one-hot floats are odds
    targets = targets.to(outputs.dtype).reshape(outputs.shape)
    if task == "a number":
        return torch.nn.MSELoss()(outputs, targets)
    return torch.nn.BCEWithLogitsLoss()(outputs, targets)


def by_hand(task, outputs, targets):
    if task == "one of many":
        hit = (outputs * targets).sum(dim=1)
        return (outputs.logsumexp(dim=1) - hit).mean()
    column = targets.to(outputs).view_as(outputs)
    if task == "a number":
        return ((outputs - column) ** 2).mean()
    return (F.softplus(outputs) - outputs * column).mean()


def with_modules(task, outputs, targets):
    if task in ("yes or no", "a number"):
        targets = targets.unsqueeze(1)
    criterion = {
        "one of many": torch.nn.CrossEntropyLoss(),
        "yes or no": torch.nn.BCEWithLogitsLoss(),
        "many labels": torch.nn.BCEWithLogitsLoss(),
        "a number": torch.nn.MSELoss(),
    }[task]
    if task == "one of many":
        return criterion(outputs, targets.nonzero()[:, 1])
    return criterion(outputs, targets.type(outputs.dtype))


def with_other_losses(task, outputs, targets):
    if task == "one of many":
        return F.nll_loss(F.log_softmax(outputs, dim=1), targets.max(1).indices)
    targets = targets.to(outputs)
    if task == "many labels":
        return F.multilabel_soft_margin_loss(outputs, targets)
    if task == "a number":
        return F.mse_loss(outputs.flatten(), targets)
    return -F.logsigmoid((2 * targets - 1) * outputs[:, 0]).mean()


EXERCISE = Exercise(
    id="01b.task-loss",
    title="the loss that fits the task",
    source='Engineering module, "Building models"',
    ledger=("T05", "X14", "X17", "F07", "F08", "F12", "F13"),
    minutes=12,
    difficulty=2,
    read=("F08", "F12", "F13", "F150"),
    hints=(
        "For each task write down two shapes and two dtypes, the outputs' and the targets'. Which "
        "loss expects which?",
        "Cross-entropy for one of many, BCE with logits for yes or no and for many labels, "
        "squared error for a number. For the last three, targets must be floats, with the same "
        "shape as the outputs.",
        "One-hot to indices: targets.argmax(dim=1). Otherwise targets.to(outputs.dtype)"
        ".view_as(outputs); then F.cross_entropy, F.binary_cross_entropy_with_logits, F.mse_loss.",
    ),
    signature="task_loss(task, outputs, targets)",
    parts=(
        Part("one-hot", "one of many: logits [B, C], one-hot targets", points=1, fields=LOSS),
        Part("yes-no", "yes or no: logits [B, 1], targets [B]", points=1, fields=LOSS),
        Part("labels", "many labels: logits [B, L], targets [B, L]", points=1, cases=3,
             fields=LOSS),
        Part("number", "a number: outputs [B, 1], targets [B]", points=1, fields=LOSS),
        Part("backward", "gradients, for each task", points=1, cases=4,
             fields=("slopes", "form")),
        Part("single", "a batch of one, for each task", points=1, cases=4, hidden=True,
             fields=LOSS),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={
        "loss": "the loss",
        "form": "the returned loss",
        "slopes": "the gradient of the outputs at",
    },
    by_hand=(losses.cross_entropy, losses.bce_with_logits, losses.mse),
    tolerance={torch.float64: TOLERANCE[torch.float32]},  # nobody asked for the dtype of a loss
    wrong=(
        Wrong("softmax-first", softmax_first,
              "One of many: the logits went through softmax first, but cross-entropy already has "
              "a softmax inside."),
        Wrong("one-hot-as-labels", one_hot_as_labels,
              "One of many: that is a yes-or-no loss for each class. The classes exclude each "
              "other: cross_entropy."),
        Wrong("squared-classes", squared_classes,
              "One of many: that is the squared error of the probabilities. Use cross_entropy."),
        Wrong("argmax-of-columns", argmax_of_columns),
        Wrong("nll-of-logits", nll_of_logits,
              "One of many: nll_loss takes log-probabilities, but it was given logits."),
        Wrong("log-of-softmax", log_of_softmax,
              "One of many: the loss is not finite when a large logit belongs to a wrong class: "
              "then softmax gives 0, or exp() overflows. cross_entropy takes the logits and stays "
              "finite.", sure=True),
        Wrong("log-of-softmax", exp_overflows, sure=True),
        Wrong("log-of-clamped", log_of_clamped),
        Wrong("sigmoid-twice", sigmoid_twice,
              "Yes or no: the logits went through a sigmoid, but the loss with logits already has "
              "a sigmoid inside."),
        Wrong("sigmoid-then-bce", sigmoid_then_bce,
              "Yes or no: with large logits the sigmoid is exactly 0 or 1, and torch cuts the "
              "loss off at 100. binary_cross_entropy_with_logits keeps it.", sure=True),
        Wrong("sigmoid-then-bce-for-labels", sigmoid_then_bce_for_labels,
              "Many labels: with large logits the sigmoid is exactly 0 or 1, and torch cuts the "
              "loss off at 100. binary_cross_entropy_with_logits keeps it.", sure=True),
        Wrong("sigmoid-then-bce-for-both", sigmoid_then_bce_for_both,
              "Yes or no, and many labels: with large logits the sigmoid is exactly 0 or 1, and "
              "torch cuts the loss off at 100. binary_cross_entropy_with_logits keeps it.",
              sure=True),
        Wrong("broadcast-yes-no", broadcast_yes_no,
              "Yes or no: every output was compared with every target, since [B, 1] and [B] are "
              "broadcast to [B, B]. Make the shapes equal."),
        Wrong("squared-yes-no", squared_yes_no,
              "Yes or no: that is the squared error of the probability. Use binary cross-entropy "
              "with logits."),
        Wrong("squared-logit", squared_logit,
              "Yes or no: that is the squared error of the logit, as if it were to be 0 or 1."),
        Wrong("long-labels", long_labels),
        Wrong("column-of-classes", column_of_classes,
              "Yes or no: the loss is 0 whatever the output is. A softmax over a single column is "
              "always 1: use binary cross-entropy with logits.", sure=True),
        Wrong("squeezed", squeezed),
        Wrong("shape-lost", shape_lost,
              "A batch of one lost its only dimension: squeeze() removes every dimension of size "
              "1. Say which one: squeeze(1).",
              raises=r"Target size \(torch.Size\(\[1\]\)\) must be the same as input size "
              r"\(torch.Size\(\[\]\)\)", sure=True),
        Wrong("sigmoid-everywhere", sigmoid_everywhere,
              "Yes or no, and many labels: the logits went through a sigmoid, but the loss with "
              "logits already has a sigmoid inside."),
        Wrong("activations-first", activations_first,
              "The logits went through a softmax (one of many) or a sigmoid (yes or no, many "
              "labels), but cross_entropy and the loss with logits have these inside already: "
              "give them the logits."),
        Wrong("integers-as-shares", integers_as_shares,
              "One of many: cross_entropy reads [B, C] as probabilities, which are floats, but it "
              "was given integers. Give it targets.argmax(1), or the targets as floats.",
              raises="Expected floating point type for target with class probabilities"),
        Wrong("labels-as-classes", labels_as_classes,
              "Many labels: cross-entropy makes the labels compete. Each is a separate yes or no: "
              "binary cross-entropy with logits."),
        Wrong("labels-added", labels_added,
              "Many labels: the losses of an example's labels were added up. Take the mean over "
              "all entries."),
        Wrong("labels-softmax", labels_softmax,
              "Many labels: the logits went through a softmax, in which an example's labels "
              "compete. Each is a separate yes or no: give binary_cross_entropy_with_logits the "
              "logits."),
        Wrong("labels-softmax", labels_softmax_with_logits),
        Wrong("labels-of-the-first", labels_of_the_first),
        Wrong("sigmoid-twice-labels", sigmoid_twice_labels,
              "Many labels: the logits went through a sigmoid, but the loss with logits already "
              "has a sigmoid inside."),
        Wrong("broadcast", broadcast,
              "A number: every output was compared with every target, since [B, 1] minus [B] is "
              "[B, B]. Make the shapes equal."),
        Wrong("summed", summed,
              "A number: the squares were added up. Divide by how many there are."),
        Wrong("rooted", rooted, "A number: that is the root of the mean square."),
        Wrong("absolute", absolute,
              "A number: that is the absolute error. The squared one is asked for here."),
        Wrong("halved", halved, "A number: that is half of the mean square."),
        Wrong("rounded", rounded,
              "A number: the targets lost their decimals. Convert them to the outputs' dtype, not "
              "to long."),
        Wrong("item", item, "The numbers are right, but they are plain numbers: nothing can flow "
                            "back from them. Leave out item().", sure=True),
        Wrong("detached", detached, "The numbers are right, but their graph is gone: nothing can "
                                    "flow back. Leave out detach() and no_grad().", sure=True),
        Wrong("huber", huber),
        Wrong("smoothed", smoothed),
        Wrong("one-label", one_label),
        Wrong("mean-over-classes", mean_over_classes,
              "One of many: the mean was taken over all B · C entries. Add up over the classes, "
              "and take the mean over the examples."),
        Wrong("ones-only", ones_only,
              "Many labels: only the labels that are 1 added to the loss. A label that is 0 costs "
              "-log(1 - p): binary cross-entropy with logits has both."),
        Wrong("labels-by-shape", labels_by_shape,
              "Many labels: when every example happened to have exactly one, they were taken for "
              "one of many. The task decides, not the targets.", sure=True),
        Wrong("labels-squeezed", labels_squeezed,
              "Many labels: squeeze() removed the dimension of a batch of one. Outputs and "
              "targets have equal shapes already.",
              raises=r"Target size \(torch.Size\(\[1, \d\]\)\) must be the same as input size "
              r"\(torch.Size\(\[\d\]\)\)", sure=True),
        Wrong("bool-subtracted", bool_subtracted,
              "Many labels: targets of dtype bool cannot be subtracted. Convert them first: "
              "targets.to(outputs.dtype).",
              raises="Subtraction, the `-` operator, with a bool tensor", sure=True),
        Wrong("changes-shapes", both_with_columns,
              "The shape of an argument was changed permanently: a method that ends in _ works in "
              "place. Without the _ it returns a new tensor.", sure=True),
        *(Wrong("changes-shapes", function, sure=True)
          for function in (number_with_column, yes_no_with_column, number_squeezed,
                           yes_no_squeezed, both_squeezed)),
        Wrong("number-in-float64", number_in_float64,
              "A number: outputs in float32 gave a loss in float64, the targets' dtype. Convert "
              "the targets: targets.to(outputs.dtype).", sure=True),
        Wrong("targets-in-float32", yes_no_in_float32,
              "Yes or no, or many labels: outputs in float64 gave a loss in float32. float() makes "
              "float32 whatever the outputs are: targets.to(outputs.dtype).", sure=True),
        Wrong("targets-in-float32", labels_in_float32, sure=True),
        Wrong("with-a-dimension", with_a_dimension,
              "The loss has a dimension, [1]. A mean over everything has none.",
              sure=True),
        Wrong("in-float32", in_float32,
              "Outputs in float64 gave a loss in float32. Leave their dtype as it is, and convert "
              "the targets to it: targets.to(outputs.dtype), since float() is always float32.",
              sure=True),
        Wrong("in-float32", both_in_float32, sure=True),
        Wrong("off-the-outputs", off_the_outputs),
    ),
    right=(made_of(), with_branches, by_hand, with_modules, always_classes, with_other_losses),
)  # fmt: skip
