"""03i.join-ranks: what the whole batch would have given, from what each rank reports."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from autograde.bank.common_wrong import common
from autograde.bank.harness import Watch
from autograde.exercise import (
    Answer,
    AnswerError,
    Case,
    Draw,
    Exercise,
    Part,
    Wrong,
    as_number,
    kept_entries,
    seen,
)
from course.analysis import ranks as course_ranks

NAMES = ("0.weight", "0.bias", "head.weight", "scale")


def draw(source: Draw, part: str) -> Case:
    """Reports of two to four ranks; shapes, names and dtype vary, and what the part asks for.

    In `hidden` two ranks without examples stand together, and one gradient arrived at one rank
    alone, which is neither the first nor the second of them.
    """
    num = (2, 3, 4)[(source.index + (part == "hidden")) % 3]
    if part == "equal":
        counts = [source.integer(3, 9)] * num
    else:
        counts = [source.integer(2, 5) * (1 + 3 * (rank % 2)) for rank in range(num)]
        counts[0] = 1 + source.index % 2  # a rank of one example counts as one
    if part in ("empty", "hidden"):
        counts[source.index % 2 : source.index % 2] = [0, 0] if part == "hidden" else [0]
    names = NAMES[: 2 + source.integer(0, 2)]
    if part in ("missing", "hidden"):
        names = NAMES[: max(3, len(names))]
    shapes = {name: [source.integer(2, 3) for _ in range(1 + i % 2)] for i, name in
              enumerate(names)}  # fmt: skip
    reports = [_report(source, count, shapes) for count in counts]
    held = [report for report in reports if report["count"]]
    if part == "missing":
        held[source.index % len(held)]["grads"][names[0]] = None
    if part == "hidden":
        for report in held:
            if report is not held[-1 - source.index]:
                report["grads"][names[0]] = None
    if part in ("missing", "hidden") or (part == "empty" and source.index):
        for report in held:  # a rank without examples has a tensor of nan there
            report["grads"][names[1]] = None
            if part != "empty":  # a gradient of zeros is not a missing one
                report["grads"][names[2]] = torch.zeros(shapes[names[2]])
    if part == "empty" and source.index % 2:
        reports[-1]["loss"] = math.nan
    elif part == "empty":
        _spoil(reports[-1], names)
    return {"ranks": reports, "dtype": ("float32", "float64")[source.index % 2]}


def _spoil(report: dict[str, Any], names: tuple[str, ...]) -> None:
    """A nan of a rank that has examples: one number of a gradient, and the whole of another."""
    report["grads"][names[0]].view(-1)[0] = math.nan
    report["grads"][names[1]].fill_(math.nan)


def _report(source: Draw, count: int, shapes: dict[str, list[int]]) -> dict[str, Any]:
    """What a rank with so many examples reports; a mean over none is nan, here None."""
    grads = {name: source.normal(*shape) for name, shape in shapes.items()}
    loss, correct = source.uniform(0.2, 3.0), int(source.integers(count + 1)) if count else 0
    if not count:
        grads, loss = {name: torch.full(shape, math.nan) for name, shape in shapes.items()}, None
    return {"count": count, "loss": loss, "correct": correct, "grads": grads}


def run(function, case: Case, device: torch.device) -> Answer:
    """Loss, accuracy, gradients, and whether the reports were left alone."""
    dtype = getattr(torch, case["dtype"])
    reports = [
        {
            "count": one["count"],
            "loss": math.nan if one["loss"] is None else one["loss"],
            "correct": one["correct"],
            "grads": {name: None if grad is None else grad.to(device, dtype)
                      for name, grad in one["grads"].items()},
        }
        for one in case["ranks"]
    ]  # fmt: skip
    held = {f"rank {rank}'s gradient of {name}": grad for rank, one in enumerate(reports)
            for name, grad in one["grads"].items() if grad is not None}  # fmt: skip
    watch = Watch(data={**held, "the list of reports": reports})
    returned = function(reports)
    wanted = {
        "loss": (as_number, "the mean loss"),
        "accuracy": (as_number, "the share of right answers"),
        "grads": (_gradients, "the gradients by name"),
    }
    return {**kept_entries(returned, wanted), "disturbed": watch.changed()}


def _gradients(value: Any, what: str) -> dict[str, Any]:
    """Tensors, or None, by name."""
    if not isinstance(value, dict):
        raise AnswerError(f"grads is {what}, a dictionary; {seen(value)}")
    for name, grad in value.items():
        if grad is not None and not isinstance(grad, Tensor):
            raise AnswerError(f"grads[{name!r}] is a {type(grad).__name__}; a tensor or None is "
                              "expected.")  # fmt: skip
    return {name: None if grad is None else grad.detach().cpu() for name, grad in value.items()}


def reference(ranks) -> dict[str, Any]:
    """The course's own."""
    return course_ranks.joined(ranks)


def _weighed(
    weigh: Callable[[dict[str, Any], list[dict[str, Any]]], float] = lambda one, ranks: (
        one["count"] / sum(r["count"] for r in ranks)
    ),
    *,
    loss: Callable[[list[dict[str, Any]]], float] | None = None,
    accuracy: Callable[[list[dict[str, Any]]], float] | None = None,
    keep_empty: bool = False,
    none: str = "zero",
) -> Callable[[list[dict[str, Any]]], dict[str, Any]]:
    """A join, each piece of which can be wrong.

    Args:
        weigh: A rank's weight, from its report and all reports.
        loss, accuracy: Instead of the weighed ones.
        keep_empty: Ranks without examples take part.
        none: What a missing gradient counts: `zero`, or the rank is `skipped`, or the name is
            `dropped`, or `filled` with zeros where it is missing everywhere.
    """

    def join(ranks):
        used = ranks if keep_empty else [one for one in ranks if one["count"]]
        grads = {}
        for name in ranks[0]["grads"]:
            there = [one for one in used if one["grads"][name] is not None]
            if none == "dropped" and len(there) < len(used):
                grads[name] = None
            elif there:
                total = sum(weigh(one, used) * one["grads"][name] for one in there)
                share = sum(weigh(one, used) for one in there) if none == "skipped" else 1
                grads[name] = total / share
            else:
                grads[name] = torch.zeros(2) if none == "filled" else None
        examples = sum(one["count"] for one in ranks)
        right = sum(one["correct"] for one in ranks) / examples
        mean = sum(one["count"] / examples * one["loss"] for one in used)
        return {"loss": loss(used) if loss else mean,
                "accuracy": accuracy(used) if accuracy else right, "grads": grads}  # fmt: skip

    return join


def _even(_one, ranks):
    return 1 / len(ranks)


def _mean(values):
    values = list(values)
    return sum(values) / len(values)


by_share = _weighed()
ddp_gradient = _weighed(_even)
ddp_where_there = _weighed(_even, none="skipped")
gradient_sum = _weighed(lambda one, _: 1.0)
gradient_not_divided = _weighed(lambda one, _: one["count"])
gradient_of_first = _weighed(lambda one, ranks: float(one is ranks[0]))
by_correct = _weighed(lambda one, ranks: one["correct"] / max(sum(r["correct"] for r in ranks), 1))
mean_of_losses = _weighed(loss=lambda ranks: _mean(one["loss"] for one in ranks))
sum_of_losses = _weighed(loss=lambda ranks: sum(one["loss"] for one in ranks))
loss_not_divided = _weighed(loss=lambda ranks: sum(one["count"] * one["loss"] for one in ranks))
loss_of_first = _weighed(loss=lambda ranks: ranks[0]["loss"])
mean_of_accuracies = _weighed(
    accuracy=lambda ranks: _mean(one["correct"] / one["count"] for one in ranks)
)
accuracy_of_first = _weighed(accuracy=lambda ranks: ranks[0]["correct"] / ranks[0]["count"])
number_right = _weighed(accuracy=lambda ranks: sum(one["correct"] for one in ranks))
percent = _weighed(
    accuracy=lambda r: 100 * sum(one["correct"] for one in r) / sum(one["count"] for one in r)
)
nan_joins = _weighed(keep_empty=True)
missing_skipped = _weighed(none="skipped")
missing_dropped = _weighed(none="dropped")
missing_filled = _weighed(none="filled")


def as_on_the_first(ranks):
    """None wherever the first rank's gradient is."""
    result = by_share(ranks)
    result["grads"] = {
        name: None if ranks[0]["grads"][name] is None else grad
        for name, grad in result["grads"].items()
    }
    return result


def none_left_out(ranks):
    result = by_share(ranks)
    result["grads"] = {name: g for name, g in result["grads"].items() if g is not None}
    return result


def empties_removed(ranks):
    """The list that was handed over is shortened."""
    for one in [one for one in ranks if not one["count"]]:
        ranks.remove(one)
    return by_share(ranks)


def empties_removed_on_the_way(ranks):
    """A loop over the list that it shortens, which passes over the next one."""
    ranks = list(ranks)
    for one in ranks:
        if not one["count"]:
            ranks.remove(one)
    return nan_joins(ranks)


def none_on_two(ranks):
    """None wherever the first two ranks with examples have none."""
    result, first = by_share(ranks), [one["grads"] for one in ranks if one["count"]][:2]
    result["grads"] = {name: None if all(grads[name] is None for grads in first) else grad
                       for name, grad in result["grads"].items()}  # fmt: skip
    return result


def none_on_several(ranks):
    """None wherever more than one rank has none."""
    result, used = by_share(ranks), [one["grads"] for one in ranks if one["count"]]
    result["grads"] = {
        name: None if sum(grads[name] is None for grads in used) > 1 else grad
        for name, grad in result["grads"].items()
    }
    return result


def _with_zeros(everywhere: bool) -> Callable[[list[dict[str, Any]]], dict[str, Any]]:
    """nan becomes 0 before it is multiplied: of ranks without examples, or of all."""

    def join(ranks):
        total, loss, grads = sum(one["count"] for one in ranks), 0.0, {}
        for one in ranks:
            broken = math.isnan(one["loss"]) and (everywhere or not one["count"])
            loss += one["count"] / total * (0.0 if broken else one["loss"])
        for name in ranks[0]["grads"]:
            given = [one for one in ranks if one["grads"][name] is not None]
            parts = [
                one["grads"][name] * (one["count"] / total)
                if one["count"] and not everywhere
                else one["grads"][name].nan_to_num() * (one["count"] / total)
                for one in given
            ]
            grads[name] = sum(parts) if any(one["count"] for one in given) else None
        return {"loss": loss, "accuracy": sum(one["correct"] for one in ranks) / total,
                "grads": grads}  # fmt: skip

    return join


nan_as_zero = _with_zeros(True)
nan_of_none_as_zero = _with_zeros(False)


def nan_to_num_everywhere(ranks):
    """The same, and a tensor where only a rank without examples has one."""
    kept = nan_as_zero(ranks)["grads"]
    for name in kept:
        given = [one["grads"][name] for one in ranks if one["grads"][name] is not None]
        if kept[name] is None and given:
            kept[name] = torch.zeros_like(given[0])
    return {**nan_as_zero(ranks), "grads": kept}


def nan_skipped(ranks):
    """Whatever is nan takes no part, and the rest is divided by all examples."""
    clean = [
        {**one, "loss": one["loss"] if one["loss"] == one["loss"] else 0.0, "grads": {
            name: grad if grad is None or not grad.isnan().any() else torch.zeros_like(grad)
            for name, grad in one["grads"].items()}}
        for one in ranks if one["count"]
    ]  # fmt: skip
    return by_share(clean)


def nan_of_losses_as_zero(ranks):
    return by_share([
        {**one, "loss": 0.0 if math.isnan(one["loss"]) else one["loss"]} for one in ranks
    ])  # fmt: skip


def nan_of_gradients_as_zero(ranks):
    return by_share([
        {**one, "grads": {name: None if grad is None else grad.nan_to_num()
                          for name, grad in one["grads"].items()}}
        for one in ranks
    ])  # fmt: skip


def nan_tensors_left_out(ranks):
    """A tensor that is nan throughout is taken for that of a rank without examples."""
    return by_share([
        {**one, "grads": {name: None if grad is None or grad.isnan().all() else grad
                          for name, grad in one["grads"].items()}}
        for one in ranks
    ])  # fmt: skip


def zeros_as_none(ranks):
    result = by_share(ranks)
    return {**result, "grads": {name: None if grad is None or not grad.any() else grad
                                for name, grad in result["grads"].items()}}  # fmt: skip


def nan_losses_left_out(ranks):
    """A rank whose loss is nan takes no part at all."""
    return by_share([one for one in ranks if not math.isnan(one["loss"])])


def _filled(ranks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Zeros where a rank without examples has nan."""
    return [
        one if one["count"] else {**one, "loss": 0.0, "grads": {
            name: None if grad is None else torch.zeros_like(grad)
            for name, grad in one["grads"].items()}}
        for one in ranks
    ]  # fmt: skip


def nan_counts_as_there(ranks):
    """An empty rank's nan becomes 0, and a gradient that no example gave a tensor of zeros."""
    return _weighed(keep_empty=True)(_filled(ranks))


def all_plain(ranks):
    return _weighed(
        _even, loss=lambda r: _mean(one["loss"] for one in r),
        accuracy=lambda r: _mean(one["correct"] / one["count"] for one in r),
    )(ranks)  # fmt: skip


def even_over_all(ranks):
    """The empty rank's nan is set to 0, and it counts as a rank."""
    even = _weighed(_even, keep_empty=True, loss=lambda r: _mean(one["loss"] for one in r))
    return even(_filled(ranks))


def even_over_all_by_hand(ranks):
    """The same with ranks left out, and divided by the number of all of them."""
    even = _weighed(lambda *_: 1 / len(ranks), loss=lambda r: sum(
        one["loss"] for one in r) / len(ranks))  # fmt: skip
    return even(ranks)


def in_place(ranks):
    """The right result, summed into the first rank's tensors."""
    result = by_share(ranks)
    for name, grad in ranks[0]["grads"].items():
        if grad is not None and result["grads"][name] is not None:
            grad.copy_(result["grads"][name])
    return result


def nothing_averaged(ranks):
    return {"loss": ranks[0]["loss"], "accuracy": 0.0, "grads": dict(ranks[0]["grads"])}


def adding_up(ranks):
    examples = correct = 0
    loss, grads = 0.0, dict.fromkeys(ranks[0]["grads"])
    for one in ranks:
        n = one["count"]
        if n == 0:
            continue
        examples, correct, loss = examples + n, correct + one["correct"], loss + n * one["loss"]
        for name, grad in one["grads"].items():
            if grad is not None:
                grads[name] = n * grad if grads[name] is None else grads[name] + n * grad
    grads = {name: None if grad is None else grad / examples for name, grad in grads.items()}
    return {"loss": loss / examples, "accuracy": correct / examples, "grads": grads}


def in_single_precision(ranks):
    """Shares in float32, also where gradients are in float64."""
    ranks = [one for one in ranks if one["count"]]
    counts = torch.tensor([float(one["count"]) for one in ranks])
    share = counts / counts.sum()
    return {**adding_up(ranks), "grads": {
        name: None if all(one["grads"][name] is None for one in ranks) else sum(
            part * one["grads"][name] for part, one in zip(share, ranks, strict=True)
            if one["grads"][name] is not None)
        for name in ranks[0]["grads"]
    }}  # fmt: skip


def stacked(ranks):
    ranks = [one for one in ranks if one["count"] > 0]
    counts = torch.tensor([one["count"] for one in ranks], dtype=torch.float64)
    share = counts / counts.sum()
    losses = torch.tensor([one["loss"] for one in ranks], dtype=torch.float64)
    grads = {}
    for name in ranks[0]["grads"]:
        given = [one["grads"][name] for one in ranks]
        like = next((grad for grad in given if grad is not None), None)
        if like is None:
            grads[name] = None
            continue
        full = torch.stack([torch.zeros_like(like) if grad is None else grad for grad in given])
        grads[name] = torch.tensordot(share.to(full), full, dims=1)
    right = torch.tensor([one["correct"] for one in ranks]).sum() / counts.sum()
    return {"loss": share @ losses, "accuracy": right, "grads": grads}


EXERCISE = Exercise(
    id="03i.join-ranks",
    title="the whole batch from its ranks",
    source="Training-loop chapter, c2; engineering module, §5",
    ledger=("N52", "T30"),
    minutes=15,
    difficulty=2,
    read=("N52", "course.analysis.ranks.mean_gradient", "course.engine.distributed"),
    hints=(
        "A rank's mean times its number of examples is its sum. What do you get from the sums of "
        "all ranks?",
        "nan times 0 is nan, so what must not even be multiplied?",
        "Leave out ranks without examples. The weight of a rank is count / all examples. A missing "
        "gradient adds nothing, but its rank's examples still count.",
    ),
    signature="join_ranks(ranks)",
    parts=(
        Part("equal", "equal shares", points=0.5, fields=("loss", "accuracy", "grads")),
        Part("metrics", "loss and accuracy with unequal shares", points=1, cases=3,
             fields=("loss", "accuracy")),
        Part("grads", "gradients with unequal shares, and unchanged reports", points=1,
             cases=3, fields=("grads", "disturbed")),
        Part("empty", "one rank without examples, another with a nan", points=1,
             fields=("loss", "accuracy", "grads")),
        Part("missing", "gradients that are None on one rank, or on all", points=1,
             fields=("grads",)),
        Part("hidden", "everything at once", points=0.5, hidden=True),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={"loss": "the mean loss", "accuracy": "the accuracy", "grads": "in grads,"},
    by_hand=(course_ranks.joined, course_ranks.mean_gradient),
    wrong=(
        Wrong("ddp-gradient", ddp_gradient,
              "The gradients are the plain mean over the ranks, as DistributedDataParallel takes "
              "it, so an example of a short share counts more. Weight each rank by its count."),
        Wrong("ddp-gradient", ddp_where_there),
        Wrong("gradient-sum", gradient_sum,
              "The gradients of the ranks were added up. Each is a mean over its own examples: "
              "weight it by its share of all examples."),
        Wrong("gradient-not-divided", gradient_not_divided,
              "The gradients were weighted by count, but the sum was not divided by the number of "
              "all examples."),
        Wrong("gradient-of-first", gradient_of_first),
        Wrong("by-correct", by_correct),
        Wrong("mean-of-losses", mean_of_losses,
              "The loss is the plain mean over the ranks, so an example of a short share counts "
              "more. Weight each rank by its count."),
        Wrong("sum-of-losses", sum_of_losses,
              "The loss is the sum of the ranks' means. Weight each by its share of all examples."),
        Wrong("loss-not-divided", loss_not_divided,
              "The loss is the sum over all examples. Divide it by their number."),
        Wrong("loss-of-first", loss_of_first),
        Wrong("mean-of-accuracies", mean_of_accuracies,
              "The accuracy is the mean of the ranks' accuracies. Divide the number of all right "
              "answers by the number of all examples."),
        Wrong("accuracy-of-first", accuracy_of_first),
        Wrong("number-right", number_right,
              "The accuracy is the number of right answers. Divide it by the number of examples."),
        Wrong("percent", percent, "The accuracy is in percent; return a share from 0 to 1."),
        Wrong("nan-joins", nan_joins,
              "The result is nan if a rank has no examples: nan times 0 is nan. Leave out that "
              "rank before you multiply.",
              sure=True),
        Wrong("missing-skipped", missing_skipped,
              "If a rank has no gradient, the others were divided only by their own examples. Its "
              "examples still count; they just add nothing."),
        Wrong("missing-dropped", missing_dropped,
              "A gradient that is None on one rank was returned as None. It should be None only if "
              "it is None on every rank that had examples.",
              sure=True),
        Wrong("missing-filled", missing_filled),
        Wrong("as-on-the-first", as_on_the_first),
        Wrong("none-left-out", none_left_out),
        Wrong("empties-removed", empties_removed),
        Wrong("empties-removed-on-the-way", empties_removed_on_the_way),
        Wrong("none-on-two", none_on_two),
        Wrong("none-on-two", none_on_several),
        Wrong("all-plain", all_plain,
              "Loss, accuracy and gradients are plain means over the ranks, so an example of a "
              "short share counts more. Weight each rank by its count."),
        Wrong("even-over-all", even_over_all,
              "Loss and gradients were divided by the number of ranks, including one without "
              "examples. Weight each rank by its count; that of an empty rank is 0."),
        Wrong("even-over-all", even_over_all_by_hand),
        Wrong("empty-counts-as-there", nan_counts_as_there,
              "A tensor was returned for a gradient although no rank with examples has one: only "
              "the empty rank has a tensor, of nan. Look for None only among ranks with examples.",
              sure=True),
        Wrong("nan-as-zero", nan_as_zero,
              "A rank with examples reported nan, but a number was returned instead: a broken loss "
              "or gradient must stay visible. Leave out ranks by their count, not because of nan.",
              sure=True),
        Wrong("nan-as-zero", nan_to_num_everywhere, sure=True),
        Wrong("nan-as-zero", nan_skipped, sure=True),
        Wrong("nan-as-zero", nan_of_losses_as_zero, sure=True),
        Wrong("nan-as-zero", nan_of_gradients_as_zero, sure=True),
        Wrong("nan-as-zero", nan_losses_left_out, sure=True),
        Wrong("nan-as-zero", nan_tensors_left_out, sure=True),
        Wrong("zeros-as-none", zeros_as_none,
              "A gradient of zeros was returned as None. Its ranks did report a tensor: it should "
              "be None only if no rank with examples has one.",
              sure=True),
        Wrong("in-place", in_place),
        Wrong("nothing-averaged", nothing_averaged),
        *common(by_share, "returns-none", "returns-text"),
    ),
    right=(by_share, adding_up, stacked, nan_of_none_as_zero, in_single_precision),
    tolerance={torch.float64: (1e-5, 1e-7)},  # shares in float32 are as good an answer
)  # fmt: skip
