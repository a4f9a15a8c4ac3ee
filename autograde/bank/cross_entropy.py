"""01b.cross-entropy: the loss of a classifier with everything that torch's can do."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from autograde.bank.harness import Watch, as_loss, form_of, numpy_loss, slopes_of
from autograde.compare import TOLERANCE
from autograde.exercise import Answer, Case, Draw, Exercise, Part, Wrong, kept, those_of
from course.from_scratch import losses


def draw(source: Draw, part: str) -> Case:
    """Logits, class indices, and of weights, smoothing and an ignored index what the part asks."""
    examples, classes = source.integer(4, 6), source.integer(3, 4) + 8 * (source.index % 2)
    together = part == "together"
    logits, targets = 2 * source.normal(examples, classes), source.integers(classes, examples)
    targets[:3] = torch.tensor([0, classes - 1, 1])
    ignore = -100
    if part == "ignored" or together:
        ignore = ((1, 255, -1) if together else (0, -100, -1))[source.index]
        targets[0] = ignore
        targets[3:] = torch.where(targets[3:] == 0, ignore, targets[3:])
    if together and source.index == 2:
        targets[:] = ignore  # nothing is left
    if part == "large":
        logits = 500 * logits
    if part == "plain" and source.index == 2:
        logits, targets = logits[:1], targets[:1]
    weight = 0.5 + 2.5 * torch.rand(classes, generator=source.generator)
    if part == "weights":  # weights that add up to less than 1; then one that is 0
        weight = weight / 20 if source.index == 0 else weight * (torch.arange(classes) != 1)
    return {
        "logits": logits,
        "targets": targets,
        "weight": weight if part == "weights" or together else None,
        "smoothing": (0.1, 0.3, 1.0 if part == "smoothing" else 0.2)[source.index]
        if part in ("smoothing", "backward") or together
        else 0.0,
        "ignore": ignore,
        "dtype": ("float32", "float64", "float64" if together else "float32")[source.index],
        "slopes": part == "backward",
    }


def run(function, case: Case, device: torch.device) -> Answer:
    """The loss, what flows back into the logits, and what was changed."""
    dtype = getattr(torch, case["dtype"])
    logits, targets = case["logits"].to(device, dtype).requires_grad_(), case["targets"].to(device)
    weight = None if case["weight"] is None else case["weight"].to(device, dtype)
    watch = Watch(data={"logits": logits, "targets": targets, "weight": weight})
    returned = function(logits, targets, weight, case["smoothing"], case["ignore"])
    disturbed = watch.changed()
    answer = {
        "loss": kept(as_loss, returned, "the mean loss"),
        "form": form_of(returned),
        "disturbed": disturbed,
    }
    given = case["targets"].to(device)  # not what an answer may have written over
    if not (given != case["ignore"]).any():  # compared with its own, so that it costs one part
        some = function(logits, given.clamp(min=0), weight, case["smoothing"], -100)
        alike = form_of(returned) == form_of(some)
        answer["of nothing"] = "of the same form as any other" if alike else form_of(returned)
    if case["slopes"]:
        answer["slopes"] = kept(slopes_of, returned, logits)
    return answer


def reference(
    logits: Tensor,
    targets: Tensor,
    weight: Tensor | None,
    label_smoothing: float,
    ignore_index: int,
) -> Tensor:
    """The course's own, in NumPy, with its own gradient."""
    handed = logits.detach().cpu().double().numpy(), targets.cpu().numpy()
    options = {
        "label_smoothing": label_smoothing,
        "class_weights": None if weight is None else weight.cpu().numpy(),
        "ignore_index": ignore_index,
    }
    loss = losses.cross_entropy(*handed, **options)
    if math.isnan(loss):
        return logits.sum() * math.nan
    return numpy_loss(loss, losses.cross_entropy_backward(*handed, **options), logits)


def stable(logits):
    return logits - logits.logsumexp(1, keepdim=True)


def smoothed(one_hot, epsilon):
    return (1 - epsilon) * one_hot + epsilon / one_hot.shape[1]


def weighted_mean(each, weights, _counts):
    return each.sum() / weights.sum()


def made_of(log_p=stable, spread=smoothed, mean=weighted_mean, *, ignored=None, weigh=True,
            by_example=False, after=lambda loss: loss):  # fmt: skip
    """A right answer, or with one thing changed a wrong one."""

    def cross_entropy(logits, targets, weight, label_smoothing, ignore_index):
        counts = targets != (ignore_index if ignored is None else ignored)
        index = targets.where(counts, 0).clamp(0, logits.shape[1] - 1)
        per_class = torch.ones_like(logits[0]) if weight is None or not weigh else weight
        q = spread(F.one_hot(index, logits.shape[1]).to(logits), label_smoothing)
        weights = per_class[index] * counts
        factor = weights[:, None] if by_example else per_class * counts[:, None]
        return after(mean(-(q * factor * log_p(logits)).sum(1), weights, counts))

    return cross_entropy


def others_share_of_all(one_hot, epsilon):
    return (1 - epsilon) * one_hot + epsilon / one_hot.shape[1] * (1 - one_hot)


def others_share(one_hot, epsilon):
    return (1 - epsilon) * one_hot + epsilon / (one_hot.shape[1] - 1) * (1 - one_hot)


naive = made_of(lambda z: (z.exp() / z.exp().sum(1, keepdim=True)).log())
softmax_then_log = made_of(lambda z: z.softmax(1).log())
log_of_clamped, *kept_off_0 = (
    made_of(limit)
    for eps in (1e-8, 1e-5, 1e-6, 1e-7, 1e-9, 1e-10, 1e-12, 1e-15)
    for limit in (
        lambda z, eps=eps: z.softmax(1).clamp(min=eps).log(),
        lambda z, eps=eps: (z.softmax(1) + eps).log(),
    )
)
softmax_twice = made_of(lambda z: stable(z.softmax(1)))
over_the_batch = made_of(lambda z: z - z.logsumexp(0, keepdim=True))
base_two = made_of(lambda z: stable(z) / math.log(2))
summed = made_of(mean=lambda each, w, n: each.sum())
over_all = made_of(mean=lambda each, w, n: each.sum() / (w.sum() + w.mean() * (~n).sum()))
all_examples = made_of(mean=lambda each, w, n: each.sum() / len(n))
counted_examples = made_of(mean=lambda each, w, n: each.sum() / n.sum())
sign_kept = made_of(after=lambda loss: -loss)
without_a_graph = made_of(after=lambda loss: loss.item())
detached = made_of(after=lambda loss: loss.detach())
never_ignores = made_of(ignored=-999)
hundred_only = made_of(ignored=-100)
no_weights = made_of(weigh=False)
no_smoothing = made_of(spread=lambda q, e: q)
shared_by_others = made_of(spread=others_share)
miss_only = made_of(spread=lambda q, e: (1 - e) * q)
fixed_smoothing = made_of(spread=lambda q, e: smoothed(q, 0.1 if e else 0.0))
weight_of_the_target = made_of(by_example=True)
clamped_logits = made_of(lambda z: stable(z.clamp(-50, 50)))
with_a_dimension = made_of(after=lambda loss: loss[None])
added_on_top = made_of(spread=lambda q, e: q + e / q.shape[1])
shared_but_not_by_all = made_of(spread=others_share_of_all)
spread_not_divided = made_of(spread=lambda q, e: (1 - e) * q + e)
zero_for_nothing = made_of(after=torch.nan_to_num)


def nan_made(make):
    """Where nothing counts, a nan of its own."""

    def cross_entropy(logits, targets, weight, label_smoothing, ignore_index):
        if (targets == ignore_index).all():
            return make(logits)
        return made_of()(logits, targets, weight, label_smoothing, ignore_index)

    return cross_entropy


def class_ruled_out(low):
    """A class that is ignored gets no probability in any example."""

    def cross_entropy(logits, targets, weight, label_smoothing, ignore_index):
        if 0 <= ignore_index < logits.shape[1]:
            ruled_out = torch.arange(logits.shape[1], device=logits.device) == ignore_index
            logits = logits.masked_fill(ruled_out, low)
        return made_of()(logits, targets, weight, label_smoothing, ignore_index)

    return cross_entropy


def pairs_of_all(logits, targets, weight, label_smoothing, ignore_index):
    counted = targets != ignore_index
    log_p, index = stable(logits[counted]), targets[counted]
    if weight is not None or label_smoothing:
        return made_of()(logits, targets, weight, label_smoothing, ignore_index)
    return -log_p[:, index].mean()


def over_all_classes(logits, targets, weight, label_smoothing, ignore_index):
    total = made_of(mean=lambda each, w, n: each.sum())
    divisor = logits.shape[1] if weight is None else weight.sum()
    return total(logits, targets, weight, label_smoothing, ignore_index) / divisor


def all_examples_unweighted(logits, targets, weight, label_smoothing, ignore_index):
    mean = made_of() if weight is not None else all_examples
    return mean(logits, targets, weight, label_smoothing, ignore_index)


def ignored_class_in_the_divisor(logits, targets, weight, label_smoothing, ignore_index):
    right = made_of()(logits, targets, weight, label_smoothing, ignore_index)
    if weight is None or not 0 <= ignore_index < len(weight):
        return right
    return right * weight[targets[targets != ignore_index]].sum() / weight[targets].sum()


def spread_unweighted(logits, targets, weight, label_smoothing, ignore_index):
    """By its own mean over the examples."""
    hit = made_of()(logits, targets, weight, 0.0, ignore_index)
    spread = made_of()(logits, targets, None, 1.0, ignore_index)
    return (1 - label_smoothing) * hit + label_smoothing * spread


def spread_unweighted_in_the_sum(logits, targets, weight, label_smoothing, ignore_index):
    counted = targets != ignore_index
    log_p, index = stable(logits[counted]), targets[counted]
    per_class = torch.ones_like(logits[0]) if weight is None else weight
    hit = -log_p.gather(1, index[:, None])[:, 0] * per_class[index]
    each = (1 - label_smoothing) * hit - label_smoothing * log_p.mean(dim=1)
    return each.sum() / per_class[index].sum()


def ignored_are_spread(logits, targets, weight, label_smoothing, ignore_index):
    counted = targets != ignore_index
    per_class = torch.ones_like(logits[0]) if weight is None else weight
    divisor = per_class[targets[counted]].sum()
    hit = summed(logits, targets, weight, 0.0, ignore_index)
    spread = -(stable(logits) * per_class).mean(dim=1).sum()
    return ((1 - label_smoothing) * hit + label_smoothing * spread) / divisor


def smoothed_divisor(logits, targets, weight, label_smoothing, ignore_index):
    counted = targets != ignore_index
    per_class = torch.ones_like(logits[0]) if weight is None else weight
    q = smoothed(F.one_hot(targets[counted], logits.shape[1]).to(logits), label_smoothing)
    return -(q * per_class * stable(logits[counted])).sum() / (q * per_class).sum()


def looked_up_first(logits, targets, weight, label_smoothing, ignore_index):
    """gather() takes no negative index."""
    stable(logits).gather(1, targets[:, None])
    return made_of()(logits, targets, weight, label_smoothing, ignore_index)


def never_ignores_but_looks_up(logits, targets, weight, label_smoothing, ignore_index):
    """A class that is to be ignored counts, and gather() takes no negative index."""
    stable(logits).gather(1, targets[:, None])
    return never_ignores(logits, targets, weight, label_smoothing, ignore_index)


def hundred_only_or_raises(logits, targets, weight, label_smoothing, ignore_index):
    stable(logits).gather(1, targets[targets != -100][:, None])
    return hundred_only(logits, targets, weight, label_smoothing, ignore_index)


def hundred_only_one_hot(logits, targets, weight, label_smoothing, ignore_index):
    """one_hot() takes no negative index, either."""
    F.one_hot(targets[targets != -100], logits.shape[1])
    return hundred_only(logits, targets, weight, label_smoothing, ignore_index)


def from_the_end(targets, classes):
    """As indexing by square brackets reads them: -1 is the last class."""
    return targets.where(targets != -1, classes - 1)


def hundred_only_by_brackets(logits, targets, weight, label_smoothing, ignore_index):
    targets = from_the_end(targets, logits.shape[1])
    return hundred_only(logits, targets, weight, label_smoothing, ignore_index)


def never_ignores_by_brackets(logits, targets, weight, label_smoothing, ignore_index):
    targets = from_the_end(targets, logits.shape[1])
    return never_ignores_but_looks_up(logits, targets, weight, label_smoothing, ignore_index)


def divisor_clamped(logits, targets, weight, label_smoothing, ignore_index):
    def mean(each, weights, _counts):
        return each.sum() / weights.sum().clamp(min=1)

    return made_of(mean=mean)(logits, targets, weight, label_smoothing, ignore_index)


def smooths_below_one(logits, targets, weight, label_smoothing, ignore_index):
    epsilon = label_smoothing if label_smoothing < 1 else 0.0
    return made_of()(logits, targets, weight, epsilon, ignore_index)


def weight_0_as_1(logits, targets, weight, label_smoothing, ignore_index):
    if weight is not None:
        weight = weight.where(weight != 0, 1.0)
    return made_of()(logits, targets, weight, label_smoothing, ignore_index)


def in_float32(logits, targets, weight, label_smoothing, ignore_index):
    weight = weight if weight is None else weight.float()
    return made_of()(logits.float(), targets, weight, label_smoothing, ignore_index)


def spoils_logits(logits, targets, weight, label_smoothing, ignore_index):
    with torch.no_grad():
        logits -= logits.amax(dim=1, keepdim=True)
    return made_of()(logits, targets, weight, label_smoothing, ignore_index)


def spoils_weight(logits, targets, weight, label_smoothing, ignore_index):
    loss = made_of()(logits, targets, weight, label_smoothing, ignore_index)
    if weight is not None:
        weight /= weight.sum()
    return loss


def either_or(logits, targets, weight, label_smoothing, ignore_index):
    epsilon = label_smoothing if weight is None else 0.0
    return made_of()(logits, targets, weight, epsilon, ignore_index)


def class_0_in_the_divisor(logits, targets, weight, label_smoothing, ignore_index):
    """Ignored targets are set to 0 to look their weights up, and the weights stay in."""
    counted = targets != ignore_index
    right = made_of()(logits, targets, weight, label_smoothing, ignore_index)
    per_class = torch.ones_like(logits[0]) if weight is None else weight
    weights = per_class[targets.where(counted, 0)]
    return right * weights[counted].sum() / weights.sum()


def class_0_in_the_divisor_always(logits, targets, weight, label_smoothing, ignore_index):
    """The same, where nothing counts as well: 0 is divided by the weights of class 0."""
    loss = class_0_in_the_divisor(logits, targets, weight, label_smoothing, ignore_index)
    return loss if (targets != ignore_index).any() else torch.nan_to_num(loss)


def negative_only(logits, targets, weight, label_smoothing, ignore_index):
    ignored = ignore_index if ignore_index < 0 else -100
    return made_of()(logits, targets, weight, label_smoothing, ignored)


def clamps_targets(logits, targets, weight, label_smoothing, ignore_index):
    counted = targets != ignore_index
    loss = made_of()(logits, targets.clone(), weight, label_smoothing, ignore_index)
    targets.masked_fill_(~counted, 0)
    return loss


def softmax_picked(logits, targets, weight, label_smoothing, ignore_index):
    if weight is not None or label_smoothing:
        return made_of()(logits, targets, weight, label_smoothing, ignore_index)
    counted = targets != ignore_index
    p = logits[counted].softmax(1)
    return -p.gather(1, targets[counted][:, None]).log().mean()


def clamped_from_below(logits, targets, weight, label_smoothing, ignore_index):
    counted = targets != ignore_index
    index = targets.clamp(min=0)
    rows = made_of()(logits, index.where(counted, -1), weight, label_smoothing, -1)
    return rows + 0 * logits.gather(1, index[:, None]).sum()


def above_the_ignored(logits, targets, weight, label_smoothing, ignore_index):
    counted = targets.where(targets > ignore_index, -1)
    return made_of()(logits, counted, weight, label_smoothing, -1)


def spoils_targets(logits, targets, weight, label_smoothing, ignore_index):
    loss = made_of()(logits, targets, weight, label_smoothing, ignore_index)
    targets[targets == ignore_index] = 0
    targets += 0 * targets
    targets[0] = 1
    return loss


def rows_that_count(logits, targets, weight, label_smoothing, ignore_index):
    counted = targets != ignore_index
    logits, targets = logits[counted], targets[counted]
    largest = logits.amax(dim=1, keepdim=True)
    log_p = logits - largest - (logits - largest).exp().sum(dim=1, keepdim=True).log()
    if weight is None:
        weight = torch.ones(logits.shape[1], device=logits.device, dtype=logits.dtype)
    hit = -log_p.gather(1, targets[:, None])[:, 0] * weight[targets]
    spread = -(log_p * weight).mean(dim=1)
    total = ((1 - label_smoothing) * hit + label_smoothing * spread).sum()
    return total / weight[targets].sum()


def one_by_one(logits, targets, weight, label_smoothing, ignore_index):
    total, divisor = logits.new_zeros(()), logits.new_zeros(())
    for row, target in zip(logits, targets.tolist(), strict=True):
        if target == ignore_index:
            continue
        log_p = row.log_softmax(0)
        w = torch.ones_like(row) if weight is None else weight
        q = torch.full_like(row, label_smoothing / len(row))
        q[target] += 1 - label_smoothing
        total = total - (q * w * log_p).sum()
        divisor = divisor + w[target]
    return total / divisor


def with_multiplied_mask(logits, targets, weight, label_smoothing, ignore_index):
    mask = (targets != ignore_index).to(logits.dtype)
    safe = targets.clone()
    safe[mask == 0] = 0
    rows = torch.arange(len(safe), device=safe.device)
    log_p = F.log_softmax(logits, dim=-1)
    w = logits.new_ones(logits.size(1)) if weight is None else weight
    hit = (w[safe] * log_p[rows, safe] * mask).sum()
    spread = ((w * log_p).sum(1) * mask).sum() / logits.size(1)
    return -((1 - label_smoothing) * hit + label_smoothing * spread) / (w[safe] * mask).sum()


EXERCISE = Exercise(
    id="01b.cross-entropy",
    title="cross-entropy with everything torch's can do",
    source='Annotated-loop essay, "The loss"',
    ledger=("X50", "N36", "N37", "T37", "X59"),
    minutes=20,
    difficulty=3,
    read=("N36", "N37", "F71", "F133", "course.from_scratch.losses"),
    hints=(
        "Three steps: log-probabilities, a target distribution per example, a mean. Which of the "
        "arguments belongs to which step?",
        "log p is the logits minus their log-sum-exp. An ignored index is not a column: set it to "
        "0 before you look anything up, and give its example the weight 0.",
        "q = (1 - ε) one_hot + ε/C; each class's term -q log p is multiplied by its weight; add "
        "up the terms that count, and divide by the sum of weight[target] over the examples that "
        "count.",
    ),
    signature="cross_entropy(logits, targets, weight, label_smoothing, ignore_index)",
    parts=(
        Part("plain", "plain, also for a batch of one", points=1, cases=3,
             fields=("loss", "disturbed")),
        Part("large", "logits in the thousands", points=1, fields=("loss",)),
        Part("smoothing", "label smoothing, up to ε = 1", points=1, cases=3, fields=("loss",)),
        Part("ignored", "an index that is ignored: -100, -1, a class", points=1, cases=3,
             fields=("loss", "disturbed")),
        Part("weights", "a weight per class, small ones and 0", points=1,
             fields=("loss", "disturbed")),
        Part("backward", "the gradient of the logits", points=1, fields=("slopes", "form")),
        Part("together", "all of it at once, and nothing left to count", points=1, cases=3,
             hidden=True, fields=("loss", "of nothing")),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={
        "loss": "the loss",
        "form": "the returned loss",
        "of nothing": "with every target ignored, the returned loss",
        "slopes": "the gradient of the logits at",
    },
    tolerance={torch.float64: TOLERANCE[torch.float32]},  # one_hot() times a float is float32
    by_hand=(
        F.cross_entropy, F.nll_loss, F.ctc_loss, *those_of(F, "linear_cross_entropy"),
        losses.cross_entropy, "torch.nn.modules.linear_cross_entropy", "sklearn._loss.loss",
    ),
    wrong=(
        Wrong(
            "logarithm-of-a-probability",
            naive,
            "With large logits the loss is not finite: exp() overflows, or a probability is 0 and "
            "its logarithm -inf. log p is the logit minus the logsumexp: do not compute "
            "probabilities.",
            sure=True,
        ),
        Wrong("logarithm-of-a-probability", softmax_then_log, sure=True),
        Wrong("logarithm-of-a-probability", softmax_picked, sure=True),
        Wrong(
            "kept-off-0",
            log_of_clamped,
            "However wrong the logits are, no example's loss passes a certain limit: before the "
            "logarithm, probabilities were clamped or a small number was added to them. log p is "
            "the logit minus the logsumexp, without a limit.",
        ),
        *(Wrong("kept-off-0", function) for function in kept_off_0),
        Wrong(
            "softmax-twice",
            softmax_twice,
            "The logits went through softmax twice. log_softmax already has one inside.",
        ),
        Wrong(
            "over-the-batch",
            over_the_batch,
            "The probabilities add up to 1 over the batch. They should add up over the classes: "
            "dim=1.",
        ),
        Wrong("base-two", base_two),
        Wrong("summed", summed, "The losses were added up but not divided.", sure=True),
        Wrong(
            "ignored-in-the-divisor",
            over_all,
            "Ignored examples are in the divisor. Leave them out of both the sum and the divisor.",
        ),
        Wrong("ignored-in-the-divisor", class_0_in_the_divisor),
        Wrong("ignored-in-the-divisor", class_0_in_the_divisor_always),
        Wrong("ignored-in-the-divisor", all_examples_unweighted),
        Wrong(
            "ignored-class-in-the-divisor",
            ignored_class_in_the_divisor,
            "The weight of a class that is ignored is in the divisor: weight[target] was added up "
            "over all examples. Add it up over those that count.",
            sure=True,
        ),
        Wrong(
            "ignored-are-spread",
            ignored_are_spread,
            "With smoothing, ignored examples are still in the loss: what ε spreads over the "
            "classes was added up over all examples. Leave them out of both terms.",
            sure=True,
        ),
        Wrong(
            "all-examples",
            all_examples,
            "The sum was divided by the number of all examples. Divide by the sum of the "
            "weights of those that count.",
        ),
        Wrong(
            "divisor-clamped",
            divisor_clamped,
            "Where the weights of the targets add up to less than 1, the sum was divided by 1. "
            "Divide by what they add up to; nan is right where nothing counts.",
            sure=True,
        ),
        Wrong(
            "smoothed-divisor",
            smoothed_divisor,
            "With smoothing and weights together, the sum was divided by the weights of the "
            "smoothed targets, Σ q[c] · weight[c]. Divide by the sum of weight[target].",
            sure=True,
        ),
        Wrong(
            "counted-examples",
            counted_examples,
            "With class weights the sum was divided by a number of examples. Divide by the sum "
            "of weight[target].",
        ),
        Wrong(
            "over-all-classes",
            over_all_classes,
            "The sum was divided by the sum of the class weights, or by the number of classes. "
            "Divide by weight[target], added up over the examples that count.",
        ),
        Wrong("sign-kept", sign_kept, "The loss is negative: a logarithm of a probability is "
              "never above 0, so put a minus before it.", sure=True),
        Wrong(
            "without-a-graph",
            without_a_graph,
            "The number is right, but it is a plain number: nothing can flow back from it. Leave "
            "out item().",
            sure=True,
        ),
        Wrong(
            "detached",
            detached,
            "The number is right, but its graph is gone: nothing can flow back. Leave out "
            "detach() and no_grad().",
            sure=True,
        ),
        Wrong(
            "never-ignores",
            never_ignores,
            "Ignored examples are in the loss, as examples of a class. Leave those whose target is "
            "ignore_index out of the sum and of its divisor.",
        ),
        Wrong(
            "never-ignores",
            never_ignores_but_looks_up,
            raises="index -1(00)? is out of|Class values must be non-negative",
            sure=True,
        ),
        Wrong("never-ignores", never_ignores_by_brackets, raises="index -100 is out of", sure=True),
        Wrong(
            "hundred-only",
            hundred_only,
            "Only -100 was ignored. The index is an argument: it may also be a class.",
        ),
        Wrong("hundred-only", hundred_only_or_raises, raises="index -1 is out of", sure=True),
        Wrong("hundred-only", hundred_only_one_hot, raises="must be non-negative", sure=True),
        Wrong("hundred-only", hundred_only_by_brackets),
        Wrong(
            "looked-up-first",
            looked_up_first,
            "A target of -100 or -1, which should be ignored, was used as an index. Leave such "
            "examples out before you look anything up, or put 0 in their place.",
            raises="index -1(00)? is out of bounds",
            sure=True,
        ),
        Wrong("no-weights", no_weights, "The class weights were not used.", sure=True),
        Wrong("no-smoothing", no_smoothing, "label_smoothing was not used."),
        Wrong(
            "shared-by-others",
            shared_by_others,
            "ε was shared by the other C - 1 classes. All C classes get ε/C, the right one on top "
            "of its 1 - ε.",
        ),
        Wrong(
            "miss-only",
            miss_only,
            "The right class got 1 - ε, but what was taken away went nowhere. Each of the C "
            "classes gets ε/C.",
        ),
        Wrong(
            "added-on-top",
            added_on_top,
            "With smoothing, the right class kept all of its 1, and ε/C was added to every class: "
            "q adds up to 1 + ε. Multiply the one-hot part by 1 - ε.",
        ),
        Wrong(
            "shared-but-not-by-all",
            shared_but_not_by_all,
            "With smoothing, the right class got 1 - ε and no ε/C on top, so q adds up to less "
            "than 1. All C classes get ε/C, the right one too.",
        ),
        Wrong(
            "spread-not-divided",
            spread_not_divided,
            "Every class got ε. The classes share it: each gets ε/C.",
        ),
        Wrong("fixed-smoothing", fixed_smoothing),
        Wrong("smooths-below-one", smooths_below_one),
        Wrong("weight-0-as-1", weight_0_as_1),
        Wrong(
            "spread-unweighted",
            spread_unweighted,
            "With smoothing and weights together, the share that ε gives each class had no "
            "weight. Each class's term is weighted by its own: -q[c] · weight[c] · log p[c].",
            sure=True,
        ),
        Wrong("spread-unweighted", spread_unweighted_in_the_sum, sure=True),
        Wrong(
            "weight-of-the-target",
            weight_of_the_target,
            "With smoothing and weights together, each example was weighted by its target's "
            "weight. Each class's term is weighted by its own: -q[c] · weight[c] · log p[c].",
            sure=True,
        ),
        Wrong(
            "zero-for-nothing",
            zero_for_nothing,
            "Where every target is ignored there is no mean: nan is right, and 0 hides it.",
            sure=True,
        ),
        Wrong(
            "nan-of-its-own",
            nan_made(lambda z: torch.tensor(math.nan)),
            "Where every target is ignored, the loss came back in another form than elsewhere: a "
            "plain number, or a tensor of another dtype or with a dimension. Leave that case to "
            "the division: 0 / 0 is nan, in the logits' dtype.",
            sure=True,
        ),
        Wrong("nan-of-its-own", nan_made(lambda z: math.nan), sure=True),
        Wrong("nan-of-its-own", nan_made(lambda z: z.new_full((1,), math.nan)), sure=True),
        Wrong(
            "class-ruled-out",
            class_ruled_out(-1e9),
            "A class that is ignored was ruled out for every example: its logit no longer counts. "
            "ignore_index leaves out examples; those that count keep all C logits.",
            sure=True,
        ),
        *(Wrong("class-ruled-out", class_ruled_out(low), sure=True)
          for low in (-math.inf, -1e4, -100.0)),
        Wrong("pairs-of-all", pairs_of_all),
        Wrong(
            "spoils-what-is-handed-over",
            spoils_targets,
            "An argument was changed in place. Work on a copy: `x = x - m` and where() make a new "
            "tensor; `x -= m`, `x[...] = 0` and methods that end in _ do not.",
            sure=True,
        ),
        Wrong("spoils-what-is-handed-over", clamps_targets, sure=True),
        Wrong("spoils-what-is-handed-over", spoils_logits, sure=True),
        Wrong("spoils-what-is-handed-over", spoils_weight, sure=True),
        Wrong(
            "with-a-dimension",
            with_a_dimension,
            "The loss has a dimension, [1]. A sum or a mean over everything has none.",
            sure=True,
        ),
        Wrong(
            "in-float32",
            in_float32,
            "Logits in float64 gave a loss in float32. Leave their dtype as it is.",
            sure=True,
        ),
        Wrong("either-or", either_or),
        Wrong(
            "negative-only",
            negative_only,
            "A class that was to be ignored counted: only negative indices were left out. Compare "
            "with ignore_index, which may be one of the classes.",
            sure=True,
        ),
        Wrong("clamped-logits", clamped_logits),
        Wrong("clamped-from-below", clamped_from_below),
        Wrong("above-the-ignored", above_the_ignored),
    ),
    right=(made_of(), rows_that_count, one_by_one, with_multiplied_mask,
           nan_made(lambda z: z.new_full((), math.nan))),
)  # fmt: skip
