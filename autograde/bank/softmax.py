"""01b.softmax: probabilities from logits of any size, along any axis, in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy import special
from torch.nn import functional as F

from autograde.bank.harness import numpy_only
from autograde.bank.relu import as_array
from autograde.exercise import Answer, Case, Draw, Exercise, Part, Wrong, kept
from course.from_scratch import activations

MASKED = float("-inf")
"""A logit that rules a class out."""
ADDED = {4: 1e-4, 8: 1e-13}
"""The least that is called added to a sum, by bytes: a hundred times the roundings of it."""
ROUNDED = 1e-3
"""Probabilities below are not divided by: of float32 they are too coarse to tell a constant."""


def draw(source: Draw, part: str) -> Case:
    """Arrays and an axis; square ones hide a forgotten keepdims, others make it raise."""
    rows, columns = source.integer(2, 3), source.integer(4, 5)
    shape, axis = [rows, columns], (-1, 1, -1, 1)[source.index]
    if part == "rows" and source.index < 2:
        shape = ([rows + 1, rows + 1], [columns])[source.index]
        axis = (1, 0)[source.index]
    if part == "axis":
        shape = ([rows, columns, 3], shape, [rows, columns, 2], [1, columns, 1])[source.index]
        axis = (1, 0, -3, -2)[source.index]
    x = 2 * source.normal(*shape)
    if part == "large":  # each row of another size, two that are wide, upwards and downwards
        shift = torch.tensor([1000.0, -1000.0, 0.0, 0.0])[:, None] * source.choice([1, 2])
        x = 2 * source.normal(4, columns) + shift
        x[2, :2] += torch.tensor([2500.0, 2499.0])
        x[3, -1] -= 1000.0
    if part == "masked":
        x[..., source.index % 2] = MASKED
        x[0, -1] = MASKED
    return {"x": x, "axis": axis, "dtype": ("float64", "float32")[source.index % 2]}


def run(function, case: Case, device: torch.device) -> Answer:
    """The probabilities, and whether x is as it was."""
    x = case["x"].numpy().astype(case["dtype"])
    before = x.copy()
    with numpy_only(), np.errstate(all="ignore"):
        made = function(x, case["axis"])
    read = kept(_as_probabilities, made, case["dtype"])
    with numpy_only(), np.errstate(all="ignore"):
        function(1 - before, case["axis"])
    now = kept(_as_probabilities, made, case["dtype"])
    overwritten = isinstance(read, torch.Tensor) and not torch.allclose(
        read, now, rtol=0, atol=0, equal_nan=True
    )
    disturbed = [] if np.array_equal(x, before) else ["x"]
    disturbed += ["the result of an earlier call"] * overwritten
    wide = isinstance(made, np.ndarray) and made.itemsize >= x.itemsize
    return {
        "p": read,
        "disturbed": disturbed,
        "wide": wide,
        "by": _divided_by(made, before, case["axis"]),
        "ruled out": _of_the_ruled_out(made, before),
    }


def _of_the_ruled_out(made: Any, x: np.ndarray) -> str:
    """What the entries of -inf got."""
    if not isinstance(made, np.ndarray) or made.shape != x.shape:
        return "nothing"
    return "more than nothing" if (made[x == MASKED] > 0).any() else "nothing"


def _divided_by(made: Any, x: np.ndarray, axis: int) -> str:
    """Whether each exponential was divided by its slice's sum and one constant on top."""
    if not isinstance(made, np.ndarray) or made.shape != x.shape:
        return "the sum of its slice"
    with np.errstate(all="ignore"):
        e = np.exp(x.astype("float64") - x.max(axis=axis, keepdims=True))
        added = (e / made - e.sum(axis=axis, keepdims=True))[made > ROUNDED]
    least = ADDED[min(x.itemsize, made.itemsize)]
    more = len(added) > 0 and bool(np.isfinite(added).all()) and added.min() > least
    alike = more and np.ptp(added) < 0.05 * added.mean()
    return "the sum of its slice and a number more" if alike else "the sum of its slice"


def _as_probabilities(made: Any, dtype: str) -> torch.Tensor:
    return as_array(made, "what it returned").to(getattr(torch, dtype))


def reference(x: Any, axis: int) -> Any:
    """The course's own."""
    return activations.softmax(np.array(x), axis)


def made_of(shift=lambda x, axis: x.max(axis=axis, keepdims=True), exp=np.exp):
    """A right answer, or with another shift a wrong one."""

    def softmax(x, axis):
        e = exp(x - shift(x, axis))
        return e / e.sum(axis=axis, keepdims=True)

    return softmax


naive = made_of(lambda x, axis: 0.0)
by_the_largest_of_all = made_of(lambda x, axis: x.max())
by_the_mean = made_of(lambda x, axis: x.mean(axis=axis, keepdims=True))
by_the_smallest = made_of(lambda x, axis: x.min(axis=axis, keepdims=True))
by_the_magnitude = made_of(lambda x, axis: np.abs(x).max(axis=axis, keepdims=True))
clipped = made_of(lambda x, axis: 0.0, exp=lambda x: np.exp(np.clip(x, -50, 50)))
clipped_far_out = made_of(lambda x, axis: 0.0, exp=lambda x: np.exp(np.clip(x, -500, 500)))
base_two = made_of(exp=np.exp2)


def last_axis(x, axis):
    return made_of()(x, -1)


def first_axis(x, axis):
    return made_of()(x, 0)


def over_everything(x, axis):
    e = np.exp(x - x.max())
    return e / e.sum()


def divided_by_everything(x, axis):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum()


def naive_over_everything(x, axis):
    return np.exp(x) / np.exp(x).sum()


def no_keepdims(x, axis):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis)


def largest_without_keepdims(x, axis):
    e = np.exp(x - x.max(axis=axis))
    return e / e.sum(axis=axis, keepdims=True)


def neither_keepdims(x, axis):
    e = np.exp(x - x.max(axis=axis))
    return e / e.sum(axis=axis)


def float32_always(x, axis):
    return made_of()(x.astype(np.float32), axis)


def not_divided(x, axis):
    return np.exp(x - x.max(axis=axis, keepdims=True))


def by_the_top(x, axis):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.max(axis=axis, keepdims=True) / 1.5


def logarithm(x, axis):
    return activations.log_softmax(np.array(x), axis)


def shifted_above_only(x, axis):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / np.exp(x).sum(axis=axis, keepdims=True)


def nan_hidden(x, axis):
    return np.nan_to_num(naive(x, axis))


def in_place(x, axis):
    x -= x.max(axis=axis, keepdims=True)
    e = np.exp(x)
    return e / e.sum(axis=axis, keepdims=True)


def linear_shares(x, axis):
    low = x - x.min(axis=axis, keepdims=True)
    return low / low.sum(axis=axis, keepdims=True)


def sigmoids(x, axis):
    return 1 / (1 + np.exp(-x))


def largest_of_the_columns(x, axis):
    e = np.exp(x - x.max(axis=0, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def hundredth_added(x, axis):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / (e.sum(axis=axis, keepdims=True) + 0.01)


def thousandth_added(x, axis):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / (e.sum(axis=axis, keepdims=True) + 1e-3)


def millionth_added(x, axis):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / (e.sum(axis=axis, keepdims=True) + 1e-6)


def hundred_thousandth_added(x, axis):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / (e.sum(axis=axis, keepdims=True) + 1e-5)


def hundred_millionth_added(x, axis):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / (e.sum(axis=axis, keepdims=True) + 1e-8)


def trillionth_added(x, axis):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / (e.sum(axis=axis, keepdims=True) + 1e-12)


def divided_by_the_largest(x, axis):
    return naive(x / x.max(axis=axis, keepdims=True), axis)


def divided_by_the_largest_size(x, axis):
    return naive(x / np.abs(x).max(axis=axis, keepdims=True), axis)


def masked_as_zero(x, axis):
    return made_of()(np.where(np.isinf(x), 0, x), axis)


def masked_as(low):
    """A wrong answer, in which a class that is ruled out has a finite logit."""
    return lambda x, axis: made_of()(np.where(np.isinf(x), low, x), axis)


clipped_below = made_of(exp=lambda x: np.exp(np.maximum(x, -20)))
clipped_far_below = made_of(exp=lambda x: np.exp(np.maximum(x, -80)))


def squeezed(x, axis):
    return made_of()(x, axis).squeeze()


def axis_left_last(x, axis):
    return made_of()(np.moveaxis(x, axis, -1), -1)


def one_buffer(x, axis):
    buffers, key = vars(one_buffer), f"{x.shape} {x.dtype}"
    out = buffers.setdefault(key, np.empty_like(x))
    out[...] = made_of()(x, axis)
    return out


def as_lists(x, axis):
    return made_of()(x, axis).tolist()


def through_logarithms(x, axis):
    largest = np.amax(x, axis, keepdims=True)
    total = np.log(np.exp(x - largest).sum(axis, keepdims=True)) + largest
    return np.exp(x - total)


def with_logaddexp(x, axis):
    return np.exp(x - np.expand_dims(np.logaddexp.reduce(x, axis=axis), axis))


def slice_by_slice(x, axis):
    def one(row):
        e = np.exp(row - max(row))
        return e / sum(e)

    return np.apply_along_axis(one, axis, x)


def with_the_axis_moved(x, axis):
    last = np.moveaxis(x, axis, -1)
    e = np.exp(last - last.max(-1)[..., None])
    return np.moveaxis(e / e.sum(-1)[..., None], -1, axis)


EXERCISE = Exercise(
    id="01b.softmax",
    title="probabilities that survive large logits",
    source='Annotated-loop essay, "The loss"',
    ledger=("X49", "X59", "N36"),
    minutes=8,
    difficulty=2,
    read=("N36", "course.from_scratch.activations.softmax"),
    hints=(
        "What happens to the softmax if 5 is added to all logits of an example?",
        "Subtract something from the exponents so that the largest of each slice is 0. Each slice "
        "along the axis needs its own number.",
        "e = np.exp(x - x.max(axis=axis, keepdims=True)), divided by its sum over the same axis "
        "with keepdims=True.",
    ),
    signature="softmax(x, axis)",
    parts=(
        Part("rows", "rows of logits", points=1, cases=3, fields=("by", "p", "disturbed", "wide")),
        Part(
            "axis",
            "along other axes, of two and three dimensions",
            points=1,
            cases=4,
            fields=("p", "disturbed"),
        ),
        Part("large", "logits around 1,000 and -1,000", points=1, fields=("p",)),
        Part(
            "masked",
            "classes ruled out by a logit of -inf",
            points=1,
            hidden=True,
            fields=("p", "ruled out", "disturbed"),
        ),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={
        "p": "the probability at",
        "by": "what each exponential is divided by",
        "wide": "whether the result is as precise as x:",
        "ruled out": "the share of a class ruled out by -inf",
    },
    tolerance={torch.float32: (1e-3, 1e-6)},  # x - logsumexp in the thousands is no more precise
    by_hand=(
        activations.softmax,
        special.softmax,
        special.log_softmax,
        special.logsumexp,
        "scipy.special._logsumexp",
        F.softmax,
        F.log_softmax,
        "sklearn.utils.extmath",
        "sklearn.neural_network._base",
        "sklearn._loss.loss",
    ),
    wrong=(
        Wrong(
            "naive",
            naive,
            "exp() overflowed: beyond about 709 it is inf, and inf / inf is nan; far below 0 a "
            "whole slice becomes 0. Subtract the largest logit of each slice first.",
            sure=True,
        ),
        Wrong(
            "by-the-largest-of-all",
            by_the_largest_of_all,
            "One number was subtracted everywhere, so slices far below the largest became 0 / 0. "
            "Each slice needs its own: max(axis=axis, keepdims=True).",
            sure=True,
        ),
        Wrong(
            "not-the-largest",
            by_the_mean,
            "exp() still overflows where the largest logit is far above the others: something "
            "smaller than the largest was subtracted. Take x.max(axis=axis, keepdims=True).",
            sure=True,
        ),
        Wrong("not-the-largest", by_the_smallest, sure=True),
        Wrong(
            "by-the-magnitude",
            by_the_magnitude,
            "Where all logits of a slice are far below 0, the slice became 0 / 0: more than its "
            "largest was subtracted. Take the largest itself, which may be negative, without abs.",
            sure=True,
        ),
        Wrong(
            "clipped",
            clipped,
            "Large logits were clipped to one value and so became equally likely. Subtract "
            "instead of clipping: only differences matter.",
            sure=True,
        ),
        Wrong("clipped", clipped_far_out, sure=True),
        Wrong("nan-hidden", nan_hidden),
        Wrong(
            "base-two",
            base_two,
            "The probabilities are in proportion to powers of 2. exp() gives powers of e.",
        ),
        Wrong(
            "last-axis",
            last_axis,
            "The probabilities add up to 1 along the last axis, whichever axis was asked for.",
        ),
        Wrong(
            "first-axis",
            first_axis,
            "The probabilities add up to 1 along the first axis, whichever axis was asked for.",
        ),
        Wrong(
            "over-everything",
            over_everything,
            "All numbers in the array add up to 1 together. Each slice along the axis is a "
            "separate distribution.",
        ),
        Wrong("over-everything", divided_by_everything),
        Wrong("over-everything", naive_over_everything),
        Wrong(
            "no-keepdims",
            no_keepdims,
            "The sum lost its axis, so a square array has each row divided by the sums of other "
            "rows, and other arrays raise. Keep it: sum(axis=axis, keepdims=True).",
            raises="operands could not be broadcast together",
        ),
        Wrong(
            "largest-without-keepdims",
            largest_without_keepdims,
            "The maximum lost its axis, so the largest of another slice was subtracted from each "
            "number, and other arrays raise. Keep it: max(axis=axis, keepdims=True).",
            raises="operands could not be broadcast together",
        ),
        Wrong(
            "neither-keepdims",
            neither_keepdims,
            "Maximum and sum both lost their axis, so a square array meets those of other slices, "
            "and other arrays raise. Keep it in both: max(axis=axis, keepdims=True), "
            "sum(axis=axis, keepdims=True).",
            raises="operands could not be broadcast together",
        ),
        Wrong(
            "float32-always",
            float32_always,
            "A float64 x came back as float32: that rounds logits in the thousands. Leave the "
            "dtype as it is.",
            sure=True,
        ),
        Wrong(
            "not-divided",
            not_divided,
            "The largest of each slice came out as 1: the division by the sum is missing.",
            sure=True,
        ),
        Wrong("by-the-top", by_the_top),
        Wrong(
            "logarithm",
            logarithm,
            "Those are the logarithms of the probabilities.",
        ),
        Wrong("shifted-above-only", shifted_above_only),
        Wrong(
            "in-place",
            in_place,
            "x itself was changed. `x = x - ...` makes a new array; `x -= ...` does not.",
            sure=True,
        ),
        Wrong("linear-shares", linear_shares),
        Wrong("sigmoids", sigmoids),
        Wrong("largest-of-the-columns", largest_of_the_columns),
        Wrong(
            "number-added",
            hundredth_added,
            "The probabilities of a slice add up to less than 1: a number was added to the sum in "
            "the denominator. With the largest subtracted, that sum is at least 1 and needs no "
            "such number.",
        ),
        Wrong("number-added", thousandth_added),
        Wrong("number-added", hundred_thousandth_added),
        Wrong("number-added", millionth_added),
        Wrong("number-added", hundred_millionth_added, sure=True),
        Wrong("number-added", trillionth_added, sure=True),
        Wrong(
            "divided-by-the-largest",
            divided_by_the_largest,
            "The logits were divided by the largest of their slice. That changes the ratios of the "
            "probabilities: subtract it instead, which leaves them as they are.",
        ),
        Wrong("divided-by-the-largest", divided_by_the_largest_size),
        Wrong(
            "ruled-out-left-in",
            masked_as_zero,
            "A class ruled out by -inf still got a share: -inf was replaced by a finite number, "
            "or clipped. exp(-inf) is 0, so nothing needs to be done about it.",
            sure=True,
        ),
        Wrong("ruled-out-left-in", masked_as(-10.0), sure=True),
        Wrong("ruled-out-left-in", masked_as(-50.0), sure=True),
        Wrong("ruled-out-left-in", clipped_below, sure=True),
        Wrong("ruled-out-left-in", clipped_far_below, sure=True),
        Wrong(
            "squeezed",
            squeezed,
            "Dimensions of length 1 are gone. The result has the shape of x, whatever that is: "
            "leave out squeeze().",
            sure=True,
        ),
        Wrong(
            "axis-left-last",
            axis_left_last,
            "The result's axes are in another order than x's: the axis asked for came last. Move "
            "it back to its place.",
        ),
        Wrong(
            "one-buffer",
            one_buffer,
            "A later call overwrote what an earlier one had returned. Make a new array in every "
            "call.",
            sure=True,
        ),
        Wrong("as-lists", as_lists),
    ),
    right=(made_of(), through_logarithms, slice_by_slice, with_the_axis_moved, with_logaddexp),
)
