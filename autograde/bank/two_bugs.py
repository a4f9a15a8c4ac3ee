"""03h.two-bugs: two bugs at once, found in a log of the student's own."""

from autograde.exercise import Part, Wrong
from autograde.kinds import Number
from course.debug.signatures import EXHIBITS, case_bugs


def answer(case):
    """The two exhibits' numbers, the smaller first."""
    numbers = [EXHIBITS[bug] for bug in case_bugs(case)]
    return {"first": min(numbers), "second": max(numbers)}


def read_as(number, other):  # one exhibit taken for another; the part without it is left out
    return lambda case: {key: other for key, value in answer(case).items() if value == number}


def not_there(bug):  # one that left no trace; 17 has messages of its own for 1 and 16
    named = {bug, 17} if bug in (1, 16) else {bug}
    return lambda case: {} if named & {*answer(case).values()} else {"first": bug, "second": bug}


ABSENT = {
    1: "Never clearing (1) makes `grad_norm` grow tenfold. Here it stays as in the healthy run.",
    4: "Scored in train mode (4), `again` differs from `val_loss`. Here they agree.",
    7: "Kept graphs (7) make `held_kb` grow from epoch to epoch. Here it stays 0.",
    16: "A frozen layer (16) does not change. Here `still` is 0: every tensor changes.",
    17: "A replaced layer (17) does not change. Here `still` is 0: every tensor changes.",
    22: "A leak (22) lifts `val_accuracy` above 0.85, the share of right labels. Here it does not.",
}
EXERCISE = Number(
    id="03h.two-bugs", title="two bugs in one log", source="Training-loop chapter, c5",
    ledger=("X45", "S06"), minutes=8, difficulty=2, read=("B04", "B07", "B17", "B22"),
    hints=(
        "Go column by column, with healthy_log of the same case next to it: which columns differ?",
        "Look at `still`, `again` and `held_kb` first: healthy are 0, `val_loss` again, and 0.",
        "A growing norm has two possible causes. With one of them the training loss rises too.",
    ),
    question="Run `case_log({case})`: its run has two bugs from the museum at once. Compare it "
    "with `healthy_log({case})`, the same run without them. Which two bugs? The candidates are: "
    "1 gradients never cleared, 4 scored in train mode, 5 never back in train mode, 6 graphs built "
    "while scoring and released, 7 graphs kept, 16 layer frozen, 17 layer replaced, 22 leak "
    "between the parts.",
    inputs={"case": (100, 999)}, answer=answer,
    look="Put this log next to the healthy run's: which columns differ?",
    parts=(Part("first", "the smaller bug number", points=1),
           Part("second", "the larger bug number", points=1)),
    wrong=(
        Wrong("growing-norm", read_as(17, 1),
              "Never clearing (1) spoils the loss within an epoch, but here the loss falls. What "
              "else makes a norm grow? Look at the column `still`."),
        Wrong("frozen", read_as(17, 16),
              "A frozen tensor (16) has no gradient and adds nothing to the norm. Here some "
              "tensors do not change, but the norm grows."),
        Wrong("built", read_as(7, 6),
              "A graph that is built and released (6) leaves nothing. Here `held_kb` grows."),
        Wrong("not-back", read_as(4, 5),
              "A run that is never back in train mode (5) validates in eval mode, so both "
              "validations agree. Here two validations of the same weights differ."),
        Wrong("swapped", lambda case: {"first": max(n := answer(case).values()), "second": min(n)},
              "That bug is in the log, but in the other place: the smaller number is `first`."),
        *(Wrong(f"no-trace-of-{bug}", not_there(bug), said) for bug, said in ABSENT.items()),
    ),
)  # fmt: skip
