"""03e.calibration-error: how far confidence is from accuracy, bin by bin."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from autograde.bank.common_wrong import LOOKS, common
from autograde.bank.harness import Watch
from autograde.exercise import Answer, Case, Draw, Exercise, Part, Wrong, as_number, kept
from course.analysis.scores import calibration

BINS = {"gap": (5, 8, 11), "empty": (12, 20, 15), "edges": (4, 2, 4), "single": (1, 6, 3)}
"""Numbers of bins by part; those of `edges` have edges that are exact in binary."""
ON_EDGES = (0.5, 0.75, 1.0, 0.5, 0.75, 1.0, 0.46, 0.61, 0.68, 0.82, 0.88, 0.96)
BESIDE = 4e-6
"""Above an edge: 67 times what float32 tells apart there, and a tenth of what four decimals do."""
APART = 0.01
"""By how much another rule has to miss on a case, or a wrong answer could pass by luck."""


def draw(source: Draw, part: str) -> Case:
    """Rows of probabilities and targets; drawn again until every other rule gives another number.

    Confidences lie well inside their bins, or on an edge and hardly above one where the part asks
    for it. Low ones are right too often and high ones too seldom, so that signed gaps cancel.
    """
    bins, classes = BINS[part][source.index % 3], source.integer(3, 5)
    while True:
        if part == "edges":
            sizes = [*ON_EDGES, 0.5 + BESIDE, 0.75 + BESIDE]
        else:
            few = {"single": 1 if source.index == 0 else 2, "empty": 5}.get(part)
            sizes = [_inside(source, bins) for _ in range(few or source.integer(11, 16))]
        rows = torch.stack([_row(source, size, classes) for size in sizes])
        right = [(size < 0.7) != (int(source.integers(4)) == 0) for size in sizes]
        shift = [0 if hit else 1 + int(source.integers(classes - 1)) for hit in right]
        targets = (rows.argmax(1) + torch.tensor(shift)) % classes
        order = source.shuffled(range(len(sizes)))
        rows, targets = rows[order], targets[order]
        if all(abs(other(rows, targets, bins) - _ece(rows, targets, bins)) > APART
               for other in OTHERS[part]):  # fmt: skip
            dtype = "float64" if source.index == 1 else "float32"
            return {"probabilities": rows, "targets": targets, "bins": bins, "dtype": dtype}


def _inside(source: Draw, bins: int) -> float:
    """A confidence of at least 0.36 that is no closer to an edge than a fifth of a bin."""
    while True:
        size = source.uniform(0.36, 0.99)
        if 0.2 < (size * bins) % 1 < 0.8:
            return size


def _row(source: Draw, size: float, classes: int) -> Tensor:
    """Probabilities [C] in double precision whose largest is `size`, the rest shared unevenly."""
    rest = torch.tensor([source.uniform(0.8, 1.0) for _ in range(classes - 1)])
    rest = (1 - size) * rest.double() / rest.sum().double()
    at = int(source.integers(classes))
    return torch.cat([rest[:at], torch.tensor([size], dtype=torch.float64), rest[at:]])


def run(function, case: Case, device: torch.device) -> Answer:
    """The number that was returned."""
    dtype = getattr(torch, case["dtype"])
    probabilities, targets = case["probabilities"].to(device, dtype), case["targets"].to(device)
    watch = Watch(data={"probabilities": probabilities, "targets": targets})
    returned = function(probabilities, targets, case["bins"])
    return {
        "error": kept(as_number, returned, "the expected calibration error"),
        "disturbed": watch.changed(),
    }


def reference(probabilities: Tensor, targets: Tensor, num_bins: int) -> float:
    """Gaps by bin, weighed by count; NumPy puts each confidence into its bin."""
    return _ece(probabilities, targets, num_bins)


def _ece(
    probabilities: Tensor, targets: Tensor, num_bins: int, *, edge: bool = True,
    gap=abs, weigh=lambda counts: counts / counts.sum(), inside=None, middle: bool = False,
) -> float:  # fmt: skip
    """The error, or with one rule exchanged: edges, gaps, weights, confidences, middles of bins."""
    confidence = probabilities.max(1).values if inside is None else inside
    confidence = confidence.double().cpu().numpy()
    right = (probabilities.argmax(1) == targets).double().cpu().numpy()
    edges = np.arange(1, num_bins) / num_bins
    bins = np.digitize(confidence, edges, right=edge)
    used = np.unique(bins)
    counts = np.array([(bins == b).sum() for b in used], dtype=float)
    centre = [(b + 0.5) / num_bins if middle else confidence[bins == b].mean() for b in used]
    gaps = [gap(c - right[bins == b].mean()) for b, c in zip(used, centre, strict=True)]
    return float(np.sum(weigh(counts) * np.array(gaps)))


def _looped(sure, right, num_bins, *, below=False, of_all=True):
    """With a loop over the bins: what is in none of them is left out.

    Args:
        sure, right: Confidence and accuracy of each example.
        num_bins: Their number.
        below: Whether a bin holds its lower edge and not its upper one.
        of_all: Whether a share is one of all examples, or of those in bins.
    """
    sure, right = sure.double(), right.double()
    gaps, counts = [], []
    for b in range(num_bins):
        lower, upper = b / num_bins, (b + 1) / num_bins
        inside = (sure >= lower) & (sure < upper) if below else (sure > lower) & (sure <= upper)
        if inside.any():
            gaps.append(abs((sure[inside].mean() - right[inside].mean()).item()))
            counts.append(inside.sum().item())
    total = sum(gap * count for gap, count in zip(gaps, counts, strict=True))
    return total / (len(sure) if of_all else sum(counts)) if counts else 0.0


def unweighted(probabilities, targets, num_bins):
    return _ece(probabilities, targets, num_bins, weigh=lambda counts: 1 / len(counts))


def over_all_bins(probabilities, targets, num_bins):
    return _ece(probabilities, targets, num_bins, weigh=lambda counts: 1 / num_bins)


def signed(probabilities, targets, num_bins):
    return _ece(probabilities, targets, num_bins, gap=lambda gap: gap)


def squared(probabilities, targets, num_bins):
    return _ece(probabilities, targets, num_bins, gap=lambda gap: gap**2)


def root_of_squares(probabilities, targets, num_bins):
    return math.sqrt(squared(probabilities, targets, num_bins))


def largest_gap(probabilities, targets, num_bins):
    gaps = []
    _ece(probabilities, targets, num_bins, gap=lambda gap: gaps.append(abs(gap)) or 0.0)
    return max(gaps)


def sum_of_gaps(probabilities, targets, num_bins):
    return _ece(probabilities, targets, num_bins, weigh=lambda counts: 1.0)


def middle_of_the_bin(probabilities, targets, num_bins):
    return _ece(probabilities, targets, num_bins, middle=True)


def of_the_target(probabilities, targets, num_bins):
    of_target = probabilities.gather(1, targets[:, None])[:, 0]
    return _ece(probabilities, targets, num_bins, inside=of_target)


def of_the_target_in_bins(probabilities, targets, num_bins, *, of_all=True):
    """A probability of 0 is in no bin."""
    of_target = probabilities.gather(1, targets[:, None])[:, 0]
    right = probabilities.argmax(1) == targets
    return _looped(of_target, right, num_bins, of_all=of_all)


def of_the_target_of_those_in_bins(probabilities, targets, num_bins):
    return of_the_target_in_bins(probabilities, targets, num_bins, of_all=False)


def one_left_out_of_the_count(probabilities, targets, num_bins):
    confidence, predicted = probabilities.max(1)
    return _looped(confidence, predicted == targets, num_bins, below=True, of_all=False)


def edge_above(probabilities, targets, num_bins):
    return _ece(probabilities, targets, num_bins, edge=False)


def gap_per_example(probabilities, targets, num_bins):
    confidence, predicted = probabilities.max(1)
    return (confidence - (predicted == targets).double()).abs().mean().item()


def edges_in_no_bin(probabilities, targets, num_bins):
    places = probabilities.max(1).values.double() * num_bins
    inside = places != places.round()
    if not inside.any():
        return 0.0
    part = _ece(probabilities[inside], targets[inside], num_bins)
    return part * inside.double().mean().item()


def ten_bins(probabilities, targets, num_bins):
    return _ece(probabilities, targets, 10)


def one_bin(probabilities, targets, num_bins):
    return _ece(probabilities, targets, 1)


def equal_counts(probabilities, targets, num_bins):
    order = probabilities.max(1).values.argsort()
    pieces = [piece for piece in order.tensor_split(num_bins) if len(piece)]
    each = [len(p) * _ece(probabilities[p], targets[p], 1) for p in pieces]
    return sum(each) / len(targets)


def in_percent(probabilities, targets, num_bins):
    return 100 * _ece(probabilities, targets, num_bins)


def one_left_out(probabilities, targets, num_bins):
    """Confidences of 1 are in no bin, as under `lower <= c` and `c < upper`."""
    inside = probabilities.max(1).values < 1
    part = _ece(probabilities[inside], targets[inside], num_bins, edge=False)
    return part * float(inside.sum()) / len(targets)


def error_for_accuracy(probabilities, targets, num_bins):
    rolled = probabilities.argmax(1) + (probabilities.argmax(1) == targets).long()
    return _ece(probabilities, rolled, num_bins)


def softmax_again(probabilities, targets, num_bins):
    return _ece(probabilities.softmax(1), targets, num_bins)


def nan_where_empty(probabilities, targets, num_bins):
    confidence, predicted = probabilities.max(1)
    total = 0.0
    for b in range(num_bins):
        inside = (confidence > b / num_bins) & (confidence <= (b + 1) / num_bins)
        gap = confidence[inside].mean() - (predicted == targets)[inside].double().mean()
        total += inside.double().mean() * gap.abs()
    return total


def edges_in_both_bins(probabilities, targets, num_bins):
    confidence, predicted = probabilities.max(1)
    total = 0.0
    for b in range(num_bins):
        inside = (confidence >= b / num_bins) & (confidence <= (b + 1) / num_bins)
        if inside.any():
            gap = confidence[inside].mean() - (predicted == targets)[inside].double().mean()
            total += inside.double().mean().item() * abs(gap.item())
    return total


def accuracy_of_all(probabilities, targets, num_bins):
    right = (probabilities.argmax(1) == targets).double().mean().item()
    confidence = probabilities.max(1).values
    bins = (confidence * num_bins).ceil()
    gaps = [confidence[bins == b].mean().item() - right for b in bins]
    return sum(map(abs, gaps)) / len(gaps)


def first_bin_alone(probabilities, targets, num_bins):
    confidence = probabilities.max(1).values
    inside = (confidence * num_bins).ceil() == (confidence * num_bins).ceil().min()
    each = _ece(probabilities[inside], targets[inside], num_bins)
    return each * inside.double().mean().item()


def between_the_extremes(probabilities, targets, num_bins):
    confidence, predicted = probabilities.max(1)
    low, high = confidence.min(), confidence.max()
    place = ((confidence - low) / (high - low + 1e-12) * num_bins).long().clamp(max=num_bins - 1)
    right, total = (predicted == targets).double(), 0.0
    for b in place.unique():
        gap = confidence[place == b].mean() - right[place == b].mean()
        total += (place == b).double().mean().item() * abs(gap.item())
    return total


def _from_the_smallest(dtype, *, closed=False):
    """Bins between the smallest confidence, which is in none of them unless closed, and 1."""

    def wrong(probabilities, targets, num_bins):
        confidence, predicted = probabilities.double().max(1)
        surplus, total = confidence - (predicted == targets).double(), 0.0
        edges = torch.linspace(confidence.min().item(), 1, num_bins + 1, dtype=dtype).tolist()
        if closed:
            edges[0] = 0.0
        for lower, upper in pairwise(edges):
            total += abs(surplus[(confidence > lower) & (confidence <= upper)].sum().item())
        return total / len(targets)

    return wrong


from_the_smallest = _from_the_smallest(torch.float64)
from_the_smallest_in_float32 = _from_the_smallest(torch.float32)  # may round it into the first bin
from_the_smallest_and_with_it = _from_the_smallest(torch.float64, closed=True)


def sum_over_examples(probabilities, targets, num_bins):
    return _ece(probabilities, targets, num_bins, weigh=lambda counts: counts)


def every_class(probabilities, targets, num_bins, *, least=1):
    """Each probability is a confidence, right where its class is the target; 0 is in no bin."""
    sure = probabilities.flatten()
    right = torch.nn.functional.one_hot(targets, probabilities.shape[1]).flatten().double()
    places, total = (sure * num_bins).ceil(), 0.0
    for place in places[places >= least].unique():
        inside = places == place
        gap = sure[inside].mean() - right[inside].mean()
        total += inside.double().mean().item() * abs(gap.item())
    return total


def every_class_and_zero(probabilities, targets, num_bins):
    return every_class(probabilities, targets, num_bins, least=0)


def every_class_in_bins(probabilities, targets, num_bins):
    """A probability of 0 is in no bin, and not counted either."""
    right = torch.nn.functional.one_hot(targets, probabilities.shape[1]).flatten()
    return _looped(probabilities.flatten(), right, num_bins, of_all=False)


def from_chance(probabilities, targets, num_bins):
    """Bins between 1 / C, below which no confidence lies, and 1."""
    confidence, predicted = probabilities.double().max(1)
    low = 1 / probabilities.shape[1]
    places = ((confidence - low) / (1 - low) * num_bins - 1e-9).ceil()
    surplus, total = confidence - (predicted == targets).double(), 0.0
    for place in places.unique():
        total += abs(surplus[places == place].sum().item())
    return total / len(targets)


def last_bin_left_out(probabilities, targets, num_bins):
    inside = probabilities.max(1).values.double() <= (num_bins - 1) / num_bins
    if not inside.any():
        return 0.0
    part = _ece(probabilities[inside], targets[inside], num_bins)
    return part * inside.double().mean().item()


def rounded_first(probabilities, targets, num_bins):
    """Rounded where they are put into bins, though not in their mean."""
    confidence, predicted = probabilities.double().max(1)
    places = (confidence.round(decimals=4) * num_bins).ceil()
    surplus, total = confidence - (predicted == targets).double(), 0.0
    for place in places.unique():
        total += abs(surplus[places == place].sum().item())
    return total / len(targets)


def within_a_tolerance(probabilities, targets, num_bins):
    confidence = probabilities.max(1).values
    return _ece(probabilities, targets, num_bins, inside=confidence - 1e-5)


def to_two_decimals(probabilities, targets, num_bins):
    return round(_ece(probabilities, targets, num_bins), 2)


OTHERS = {
    "gap": (unweighted, middle_of_the_bin, of_the_target, one_bin,
            ten_bins, equal_counts, largest_gap, root_of_squares),
    "empty": (unweighted, over_all_bins, one_bin),
    "edges": (edge_above, one_left_out, rounded_first),
    "single": (error_for_accuracy,),
}  # fmt: skip
"""Rules that a part's cases tell from the right one."""


def with_a_loop(probabilities, targets, num_bins):
    confidence, predicted = probabilities.max(dim=1)
    right = (predicted == targets).to(confidence.dtype)
    total = 0.0
    for b in range(num_bins):
        inside = (confidence > b / num_bins) & (confidence <= (b + 1) / num_bins)
        if inside.any():
            gap = (confidence[inside].mean() - right[inside].mean()).abs().item()
            total += inside.sum().item() / len(targets) * gap
    return total


def with_buckets(probabilities, targets, num_bins):
    confidence, predicted = probabilities.double().max(dim=1)
    edges = torch.arange(1, num_bins, device=targets.device, dtype=torch.float64) / num_bins
    bins = torch.bucketize(confidence, edges)
    surplus = confidence - (predicted == targets).double()
    per_bin = torch.zeros(num_bins, dtype=torch.float64, device=targets.device)
    return per_bin.index_add_(0, bins, surplus).abs().sum() / len(targets)


def with_lists(probabilities, targets, num_bins):
    sums = [0.0] * num_bins
    for row, target in zip(probabilities.tolist(), targets.tolist(), strict=True):
        sure = max(row)
        place = max(0, math.ceil(sure * num_bins) - 1)
        sums[place] += sure - (row.index(sure) == target)
    return sum(map(abs, sums)) / len(targets)


EXERCISE = Exercise(
    id="03e.calibration-error",
    title="expected calibration error",
    source='Lecture 3, "Loss and metric are not the same"',
    ledger=("T23",),
    minutes=15,
    difficulty=2,
    read=("course.analysis.scores.calibration",),
    hints=(
        "Each bin needs two numbers: how confident the model is on average, and how often it is "
        "right.",
        "Bins are equally wide, from 0 to 1. Which examples does each hold, and what share of all "
        "examples are they? A bin without examples adds nothing.",
        "confidence, predicted = probabilities.max(dim=1); for each bin: inside = (confidence > "
        "lower) & (confidence <= upper); if any: add inside.float().mean() * |mean confidence − "
        "accuracy|.",
    ),
    signature="expected_calibration_error(probabilities, targets, num_bins)",
    parts=(
        Part("gap", "gaps between confidence and accuracy, weighed by count", points=2, cases=3),
        Part("empty", "bins without examples", points=1, cases=3),
        Part("edges", "confidences on an edge, and of exactly 1", points=1, cases=3),
        Part("single", "one or two examples, one bin or several", points=1, cases=3, hidden=True),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={"error": "the expected calibration error"},
    by_hand=(
        calibration,
        "sklearn.calibration",
        "torchmetrics.functional.classification.calibration_error",
    ),
    wrong=(
        Wrong(
            "unweighted",
            unweighted,
            "All bins that hold examples count equally. Weight each gap by the bin's share of the "
            "examples.",
        ),
        Wrong(
            "over-all-bins",
            over_all_bins,
            "The gaps were added up and divided by the number of bins. Weight each gap by the "
            "bin's share of the examples.",
        ),
        Wrong("cancels", signed),
        Wrong(
            "cancels",
            one_bin,
            "Gaps of opposite sign cancel: what is left is the difference between mean confidence "
            "and accuracy over all examples. Take the absolute value of each bin's gap before "
            "adding.",
        ),
        Wrong(
            "squared",
            squared,
            "That is the mean of the squared gaps. Return the mean of the absolute gaps.",
        ),
        Wrong(
            "root-of-squares",
            root_of_squares,
            "That is the root of the mean squared gap. Return the mean of the absolute gaps.",
        ),
        Wrong(
            "largest-gap",
            largest_gap,
            "That is the largest gap of all bins. Return their mean, weighted by count.",
        ),
        Wrong("sum-of-gaps", sum_of_gaps),
        Wrong(
            "middle-of-the-bin",
            middle_of_the_bin,
            "The midpoint of each bin was used as its confidence. Use the mean of the confidences "
            "in the bin.",
        ),
        Wrong(
            "of-the-target",
            of_the_target,
            "The probability of the true class was used as the confidence. The confidence is the "
            "largest probability, that of the predicted class.",
        ),
        Wrong("of-the-target", of_the_target_in_bins),
        Wrong("of-the-target", of_the_target_of_those_in_bins),
        Wrong("one-left-out", one_left_out_of_the_count),
        Wrong(
            "edge-above",
            edge_above,
            "A confidence on an edge was put into the bin above. Bins hold lower < confidence <= "
            "upper.",
        ),
        Wrong(
            "one-left-out",
            one_left_out,
            "The result is what comes out if edges belong to the bin above, so that a confidence "
            "of 1 is in no bin. Bins hold lower < confidence <= upper.",
        ),
        Wrong(
            "rounded-first",
            rounded_first,
            "A confidence slightly above an edge was put into the bin below. Compare it with the "
            "edges as it is, unrounded and without a tolerance.",
            sure=True,
        ),
        Wrong("rounded-first", within_a_tolerance, sure=True),
        Wrong(
            "ten-bins",
            ten_bins,
            "That is the error with ten bins. Use num_bins.",
        ),
        Wrong(
            "equal-counts",
            equal_counts,
            "The bins hold equally many examples. They should be equally wide: 1 / num_bins each.",
        ),
        Wrong("in-percent", in_percent, "That is in percent. Give a number between 0 and 1."),
        Wrong(
            "edges-in-both-bins",
            edges_in_both_bins,
            "A confidence on an edge was counted in both bins, below and above. Bins hold lower < "
            "confidence <= upper.",
        ),
        Wrong(
            "accuracy-of-all",
            accuracy_of_all,
            "Each bin's confidence was compared with the accuracy over all examples. Compare it "
            "with the accuracy inside the bin.",
        ),
        Wrong(
            "first-bin-alone",
            first_bin_alone,
            "The result covers only the first bin that holds examples. Is there a `return` inside "
            "the loop?",
        ),
        Wrong(
            "between-the-extremes",
            between_the_extremes,
            "The bins start at the smallest confidence instead of 0. Divide the range from 0 to 1 "
            "into bins of equal width.",
        ),
        Wrong("between-the-extremes", from_the_smallest),
        Wrong("between-the-extremes", from_the_smallest_in_float32),
        Wrong("between-the-extremes", from_the_smallest_and_with_it),
        Wrong(
            "sum-over-examples",
            sum_over_examples,
            "Each gap was weighted by the number of examples in the bin. Weight it by the bin's "
            "share: that number divided by the number of all examples.",
        ),
        Wrong(
            "every-class",
            every_class,
            "The probability of every class was used as a confidence. Each example has one "
            "confidence: the largest probability in its row. It is right if that class is the "
            "target.",
        ),
        Wrong("every-class", every_class_and_zero),
        Wrong("every-class", every_class_in_bins),
        Wrong(
            "from-chance",
            from_chance,
            "The bins divide the range from 1 / C to 1. Divide the range from 0 to 1.",
        ),
        Wrong(
            "last-bin-left-out",
            last_bin_left_out,
            "The examples in the last bin are missing. Bin b runs from 0 to num_bins - 1.",
        ),
        Wrong(
            "to-two-decimals",
            to_two_decimals,
            "The result was rounded to two decimals. Return it unrounded.",
        ),
        Wrong("error-for-accuracy", error_for_accuracy),
        Wrong(
            "softmax-again",
            softmax_again,
            "The confidences come from a second softmax. The inputs are already probabilities.",
        ),
        Wrong(
            "gap-per-example",
            gap_per_example,
            "That is the mean of |confidence − 1| or |confidence − 0|, example by example. Take "
            "both means of a bin first, then the gap between them.",
        ),
        Wrong(
            "edges-in-no-bin",
            edges_in_no_bin,
            "A confidence on an edge was not counted in any bin. Bins hold lower < confidence <= "
            "upper.",
        ),
        Wrong(
            "nan-where-empty",
            nan_where_empty,
            "The result is nan if a bin holds no examples: the mean of nothing is nan. Skip such "
            "bins.",
            sure=True,
        ),
        *common(with_a_loop, "returns-graph", *LOOKS),
    ),
    right=(with_a_loop, with_buckets, with_lists),
)  # fmt: skip
