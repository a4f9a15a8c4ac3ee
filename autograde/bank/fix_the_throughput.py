"""03c.throughput: three bugs in a loop that measures how fast a loader is."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from autograde.bank.harness import Passes
from autograde.exercise import Answer, Case, Draw, Exercise, Part, Wrong, as_number
from autograde.kinds.fix import change_size, variant

GIVEN = """
def examples_per_second(loader, warmup, most, clock):
    start = clock()
    for number, (inputs, targets) in enumerate(loader):
        if number + 1 == warmup + most:
            break
    seconds = clock() - start
    return most * len(targets) / seconds
"""
MOST = 10
"""Lines that may differ: counting takes six, another way to stop or to count a few more."""


def draw(source: Draw, part: str) -> Case:
    """Batches with sizes and times of their own; only what the part asks about can be wrong.

    Times are eighths of a second, which add up without rounding.
    """
    size = source.integer(4, 9)
    warmup = source.integer(2, 3) if part in ("start", "both") else 0
    warmup -= int(part == "start" and source.index == 2)
    most = source.integer(4, 6)
    there = warmup + most + source.integer(2, 4)
    if part == "few":
        there = most - source.integer(1, 2)
    sizes = [size] * there
    if part in ("sizes", "both"):
        sizes = [size + source.integer(0, 5) for _ in range(there)]
        last = min(there, warmup + most) - 1
        sizes[last] = 1 + source.integer(0, 1)  # the last one read is the shortest
    ticks = [source.integer(1, 6) for _ in range(there)]
    for number in range(warmup):  # the first ones start workers and open files
        ticks[number] += source.integer(20, 60)
    if part == "both" and source.index == 1:
        sizes, ticks = sizes[: warmup + most - 1], ticks[: warmup + most - 1]
    pairs = part in ("sizes", "both") and source.index == 1
    return {"sizes": sizes, "ticks": ticks, "warmup": warmup, "most": most, "pairs": pairs}


def run(function, case: Case, device: torch.device) -> Answer:
    """The rate, and how many batches were read: of a loader without a length, by its own clock.

    The clock moves when a batch is read, and does not start at 0.
    """
    now, read = [1000.0], []

    def begin() -> Iterator[tuple[Tensor, Tensor]]:
        for size, ticks in zip(case["sizes"], case["ticks"], strict=True):
            now.append(now[-1] + ticks / 8)
            read.append(size)
            shape = (size, 2) if case["pairs"] else (size,)
            yield torch.zeros(size, 3), torch.zeros(shape, dtype=torch.long)

    rate = function(Passes(begin), case["warmup"], case["most"], lambda: now[-1])
    return {
        "rate": as_number(rate, "the number of examples per second"),
        "read": len(read),
        "changed": change_size(GIVEN, function, most=MOST),
    }


START = "    start = clock()\n"
LOOP = "    for number, (inputs, targets) in enumerate(loader):\n"
COUNT = """        if number < warmup:
            start = clock()
        else:
            examples += len(targets)
"""
RESULT = "most * len(targets) / seconds"
FIXED = GIVEN.replace(START + LOOP, "    examples = 0\n" + START + LOOP + COUNT)
FIXED = FIXED.replace(RESULT, "examples / seconds")

fixed = partial(variant, FIXED, __file__)
given = partial(variant, GIVEN, __file__)
reference = fixed()
start_fixed_only = fixed(("examples / seconds", RESULT))
warm_up_timed = fixed((COUNT, COUNT.replace("start = clock()", "pass")))
warm_up_counted = fixed(("        else:\n            examples += len(targets)\n",
                         "        examples += len(targets)\n"))  # fmt: skip
warm_up_in_both = fixed((COUNT, "        examples += len(targets)\n"))
clock_one_early = fixed((COUNT, """        if number + 1 < warmup:
            start = clock()
        if number >= warmup:
            examples += len(targets)
"""))  # fmt: skip
batches_asked_for = fixed(
    ("examples = 0", "examples = []"),
    ("examples += len(targets)", "examples.append(len(targets))"),
    ("examples / seconds", "most * sum(examples) / len(examples) / seconds"),
)
last_size_for_all = fixed(
    ("examples += len(targets)", "examples += 1"),
    ("examples / seconds", "examples * len(targets) / seconds"),
)
batches_per_second = fixed(("examples += len(targets)", "examples += 1"))
seconds_per_example = fixed(("examples / seconds", "seconds / examples"))
STOP = "        if number + 1 == warmup + most:\n            break\n"
one_batch_more = fixed((STOP, ""), (COUNT, STOP.replace(" + 1", "") + COUNT))
warm_up_within_most = fixed(("number + 1 == warmup + most", "number + 1 == most"))
started_too_late = fixed((COUNT, """        if number <= warmup:
            start = clock()
        if number >= warmup:
            examples += len(targets)
"""))  # fmt: skip
one_warm_up_short = fixed(("number < warmup", "number + 1 < warmup"))
reads_all = fixed((STOP, ""), ("        else:\n", "        elif number < warmup + most:\n"))
listed_first = fixed(("enumerate(loader)", "enumerate(list(loader))"))
targets_counted = fixed(("len(targets)", "targets.numel()"))
last_warm_up_counted = fixed(
    ("            start = clock()\n        else:\n",
     "            start = clock()\n        if number + 1 >= warmup:\n"),
)  # fmt: skip
clock_in_the_warm_up_only = fixed(("    start = clock()\n    for", "    start = None\n    for"))
clock_in_the_loop_only = fixed((START + LOOP, LOOP))
one_batch_counted_too = fixed(("number + 1 == warmup + most", "number == warmup + most"))
two_batches_counted_too = fixed(("number + 1 == warmup + most", "number > warmup + most"))
first_size_for_all = fixed(
    (COUNT, "        if number == 0:\n            size = len(targets)\n" + COUNT),
    ("examples += len(targets)", "examples += size"),
)
milliseconds = fixed(("examples / seconds", "1000 * examples / seconds"))
never_stops = fixed(("number + 1 == warmup + most", "number < 0"))
last_batch_lost = fixed((STOP, ""), (COUNT, STOP + COUNT))
first_timed_not_counted = fixed(
    (COUNT, COUNT.replace("        else:\n", "        elif number > warmup:\n"))
)
one_left_out = fixed(("number < warmup", "number <= warmup"))
rounded = fixed(("examples / seconds", "round(examples / seconds)"))
mean_of_rates = fixed(
    ("examples = 0", "rates = []"),
    (COUNT, """        if number >= warmup:
            rates.append(len(targets) / (clock() - start))
        start = clock()
"""),
    ("    seconds = clock() - start\n", ""),
    ("examples / seconds", "sum(rates) / len(rates)"),
)  # fmt: skip
UNTIMED = "    seconds = clock() - start\n"
AT_THE_BREAK = ("            break\n", "            seconds = clock() - start\n            break\n")
timed_at_the_break = fixed((UNTIMED, ""), AT_THE_BREAK)
timed_at_the_break_from_0 = fixed(
    (UNTIMED, ""), AT_THE_BREAK, ("    examples = 0\n", "    examples = 0\n    seconds = 0.0\n")
)
timed_at_the_break_from_1 = fixed(
    (UNTIMED, ""), AT_THE_BREAK, ("    examples = 0\n", "    examples = 0\n    seconds = 1.0\n")
)
asks_for_the_length = fixed(
    ("    examples = 0\n", "    examples = 0\n    most = min(most, len(loader) - warmup)\n")
)
features_counted = fixed(("len(targets)", "inputs.numel()"))

from_another_loop = variant(
    """
def examples_per_second(loader, warmup, most, clock):
    batches = iter(loader)
    for _ in range(warmup):
        next(batches)
    examples, start = 0, clock()
    for _ in range(most):
        pair = next(batches, None)
        if pair is None:
            break
        examples += len(pair[1])
    return examples / (clock() - start)
""",
    __file__,
)
with_a_list = fixed(
    (COUNT, "        sizes.append(len(inputs))\n        times.append(clock())\n"),
    ("examples = 0", "sizes, times = [], [clock()]"),
    (START, ""),
    ("    seconds = clock() - start\n", "    seconds = times[-1] - times[warmup]\n"),
    ("examples / seconds", "sum(sizes[warmup:]) / seconds"),
)
at_the_end_of_warm_up = fixed(
    (COUNT, """        if number >= warmup:
            examples += inputs.shape[0]
        if number + 1 == warmup:
            start = clock()
"""),
)  # fmt: skip

NO_START = (
    r"^TypeError: unsupported operand type\(s\) for -: .*NoneType"
    r"|^UnboundLocalError: cannot access local variable"
)
"""What subtracting a time raises that was never noted."""

NO_END = r"^(UnboundLocalError: cannot access local variable|ZeroDivisionError: )"
"""What dividing by a time raises that was noted only where a loop breaks."""

EXERCISE = Exercise(
    id="03c.throughput",
    title="three bugs in a benchmark",
    source='Lecture 3, "Is the GPU waiting?"',
    kind="fix",
    ledger=("C23", "F97", "T08"),
    minutes=10,
    difficulty=2,
    read=("F97", "course.data.measure_loader"),
    hints=(
        "One bug is in what the time covers, one in the number of batches that count, one in the "
        "number of examples per batch.",
        "Take a loader of three batches with most = 5: which batches are timed, and which are "
        "counted? They must be the same.",
        "Add up len(targets) of each batch after the warm-up, and restart the clock after each "
        "batch of the warm-up.",
    ),
    signature="examples_per_second(loader, warmup, most, clock)",
    parts=(
        Part(
            "start",
            "a warm-up that is neither counted nor timed",
            points=1,
            cases=3,
            fields=("rate",),
        ),
        Part("few", "a loader with fewer batches than asked for", points=1, fields=("rate",)),
        Part("sizes", "batches of different sizes", points=1, fields=("rate",)),
        Part(
            "both",
            f"everything at once, no extra batch read, at most {MOST} lines changed",
            points=1,
            cases=3,
            fields=("rate", "read", "changed"),
        ),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={
        "rate": "the number of examples per second",
        "read": "the number of batches read",
        "changed": "the number of lines changed",
    },
    wrong=(
        Wrong(
            "start-fixed-only",
            start_fixed_only,
            "The warm-up is no longer in the time. But the count is still `most` batches, each as "
            "large as the last one read.",
        ),
        Wrong(
            "warm-up-timed",
            warm_up_timed,
            "The warm-up batches are timed, but their examples are not counted. Read the clock "
            "again after the last of them.",
        ),
        Wrong(
            "warm-up-counted",
            warm_up_counted,
            "The examples of the warm-up are counted, but not timed. Count only what is timed.",
        ),
        Wrong(
            "warm-up-in-both",
            warm_up_in_both,
            "The rate is that of all batches, including the warm-up. Leave the warm-up out of both "
            "count and time.",
        ),
        Wrong(
            "clock-one-early",
            clock_one_early,
            "The last warm-up batch is timed, but its examples are not counted. Read the clock "
            "after it has arrived.",
        ),
        Wrong(
            "batches-asked-for",
            batches_asked_for,
            "When the loader ended early, the batches asked for were counted, not those that came.",
        ),
        Wrong(
            "last-size-for-all",
            last_size_for_all,
            "Every batch was counted as if it were as large as the last one read. Add up "
            "len(targets) inside the loop.",
        ),
        Wrong(
            "batches-per-second",
            batches_per_second,
            "That is batches per second. Return examples per second, since batches differ in size.",
        ),
        Wrong(
            "seconds-per-example",
            seconds_per_example,
            "That is the inverse, seconds per example.",
        ),
        Wrong(
            "one-batch-more",
            one_batch_more,
            "One batch more than warmup + most was read, and timed. Stop before asking for it.",
        ),
        Wrong(
            "warm-up-within-most",
            warm_up_within_most,
            "Reading stopped after `most` batches, including the warm-up. Read warmup + most.",
        ),
        Wrong(
            "started-too-late",
            started_too_late,
            "The first batch after the warm-up was counted but not timed: the clock was read after "
            "it had arrived.",
        ),
        Wrong(
            "one-warm-up-short",
            one_warm_up_short,
            "The last batch of the warm-up is included. Leave out the whole warm-up.",
        ),
        Wrong(
            "never-stops",
            never_stops,
            "The loader was read to the end. Stop after warmup + most batches.",
        ),
        Wrong("never-stops", reads_all),
        Wrong("listed-first", listed_first),
        Wrong(
            "numbers-counted",
            targets_counted,
            "All numbers of the targets were counted. An example is one row: len(targets).",
            sure=True,
        ),
        Wrong(
            "last-warm-up-counted",
            last_warm_up_counted,
            "The last warm-up batch was counted but not timed. Count from number == warmup on.",
        ),
        Wrong(
            "clock-in-the-warm-up-only",
            clock_in_the_warm_up_only,
            "With warmup = 0 no time was noted at the start. Read the clock before the loop, too.",
            raises=NO_START,
        ),
        Wrong("clock-in-the-warm-up-only", clock_in_the_loop_only, raises=NO_START),
        Wrong(
            "one-more-counted",
            one_batch_counted_too,
            "One batch more than `most` is included. Stop when number + 1 is warmup + most.",
        ),
        Wrong(
            "two-more-counted",
            two_batches_counted_too,
            "Two batches more than `most` are included: number counts from 0. Stop when number + 1 "
            "is warmup + most.",
        ),
        Wrong(
            "first-size-for-all",
            first_size_for_all,
            "Every batch was counted as if it were as large as the first one read. Add up "
            "len(targets) inside the loop.",
        ),
        Wrong(
            "milliseconds",
            milliseconds,
            "The rate is a thousand times too large: clock() gives seconds, not milliseconds.",
        ),
        Wrong(
            "last-batch-lost",
            last_batch_lost,
            "The last batch read was timed but not counted. Count it before the loop ends.",
        ),
        Wrong(
            "first-timed-not-counted",
            first_timed_not_counted,
            "The first batch after the warm-up was timed but not counted.",
        ),
        Wrong(
            "one-left-out",
            one_left_out,
            "The first batch after the warm-up was neither counted nor timed. The warm-up consists "
            "of the batches with number < warmup.",
        ),
        Wrong(
            "rounded",
            rounded,
            "The rate was rounded to a whole number. Return it unrounded.",
        ),
        Wrong(
            "mean-of-rates",
            mean_of_rates,
            "That is the mean of the rates of the single batches, in which a fast batch counts as "
            "much as a slow one. Divide all examples by all seconds.",
        ),
        Wrong(
            "timed-at-the-break",
            timed_at_the_break,
            "Where the loader ended early, no time was taken: is the clock read for the last time "
            "only at the break? Read it after the loop, however the loop ended.",
            raises=NO_END,
        ),
        Wrong("timed-at-the-break", timed_at_the_break_from_0, raises=NO_END),
        Wrong("timed-at-the-break", timed_at_the_break_from_1),
        Wrong(
            "asks-for-the-length",
            asks_for_the_length,
            "The loader has no len(), because it may be a stream. Find out how many batches there "
            "are by reading them: count those that come.",
            raises=r"^TypeError: object of type 'Passes' has no len\(\)",
        ),
        Wrong(
            "features-counted",
            features_counted,
            "All numbers of the inputs were counted. An example is one row: len(targets).",
        ),
    ),
    right=(from_another_loop, with_a_list, at_the_end_of_warm_up),
)
