"""01c.bug-log: what showed each of the five bugs first, in the order in which they were fixed."""

import math
import re

from autograde.kinds import Fact, Reason, Write

LOUD = ("AttributeError", "ValueError", "RuntimeError")
"""Raised one by one: no super().__init__(), layers in a list, MSELoss for class indices."""
GROWN = 2.0
"""Uncleared, the run of the notebook ends at nine times its first norm; cleared, at about it."""


CHANCE = math.log(10)
"""The loss of a guess among ten digits; the unfixed runs with lr = 0 are within 0.1 of it."""
NEAR = 0.5
"""How far an untrained network may be from it: trained ones are at 1.5 after an epoch or two."""


def three_errors(facts):
    """The exceptions, in the order in which they came."""
    names = facts["errors"]
    if isinstance(names, str):  # one text, as a person would write it
        names = [name for name in re.split(r"[^\w.()]+", names) if name]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return 'This should be a list of three strings: ["KeyError", "TypeError", ...].'
    names = tuple(name.partition(":")[0].strip().rpartition(".")[2].rstrip("()") for name in names)
    if names == LOUD:
        return ""
    if len(names) != 3:
        return f"Three of the five bugs raise; {len(names)} came."
    if sorted(names) == sorted(LOUD):
        return (
            "These are the right three, but in another order: note each when it appears, fix "
            "it, and run again."
        )
    return "Give the first word of each traceback's last line, in the order in which they came."


def two_norms(facts):
    """The gradient's norm, which grows while nothing clears it."""
    match facts["norms"]:
        case [int() | float() as first, int() | float() as last] if 0 < first < 1e6 and last < 1e9:
            pass
        case _:
            return "This should be a list of two positive numbers: [first norm, last norm]."
    if last >= GROWN * first:
        return ""
    return (
        "Without zero_grad() the last norm is several times the first. Were these noted before "
        "that bug was fixed, in the order [first, last]?"
    )


def a_shaky_measure(facts):
    """The same weights measured again: other numbers, while validation is in train mode."""
    match facts["losses"]:
        case [int() | float() as a, int() | float() as b, *_] if 0 < a < 100 and 0 < b < 100:
            pass
        case _:
            return "This should be a list of at least two losses from the run with lr = 0."
    if a == b:
        return "The fixed script gives equal losses. Note them before you fix that bug."
    if abs(a - CHANCE) < NEAR and abs(b - CHANCE) < NEAR:
        return ""
    return (
        f"With lr = 0 no weight moves, and untrained the loss is near {CHANCE:.1f}, that of a "
        "guess. Were these read with another rate?"
    )


EXERCISE = Write(
    id="01c.bug-log", title="the log of five bugs",
    source="Module 2, lab 4", ledger=("X26", "F19"),
    minutes=10, difficulty=1, read=("B12", "B11", "B10", "B01", "B04"),
    hints=(
        "Run the script as given, note what stops it, fix only that, and run again.",
        "Three stop the run. The fourth shows up in `norms`, the fifth in the run with lr = 0.",
        "If you fixed a bug before you noted its symptom, put it back, that one alone.",
    ),
    question="Fill in what you observed while you fixed the five bugs, one at a time.",
    facts=(
        Fact("errors", "a list of the three exceptions' names, as they came", 1,
             three_errors),
        Fact("norms", "[first, last] gradient norm of a run with lr = 0.1, before "
             "you fixed the bug that these norms show", 0.5, two_norms),
        Fact("losses", "a list of validation losses with lr = 0 before you fixed the bug that "
             "they show", 0.5, a_shaky_measure),
    ),
    example={"errors": list(LOUD), "norms": [0.4, 3.1], "losses": [2.33, 2.31, 2.34]},
    text=Reason(
        points=2, ask="Write the log, one line per bug: the first symptom, what it made you "
                      "suspect, the fix, and what you saw after it.",
        rubric=(
            (1, "each line has a symptom that was observed, with a number for the two silent bugs"),
            (1, "each fix follows from its symptom, and the line says what was seen after it"),
        ),
        solution="1 AttributeError at parameters(): the module was never set up; "
                 "super().__init__(); the optimizer is reached. 2 ValueError, empty parameter "
                 "list: layers in a list are not registered; ModuleList; the first batch is "
                 "reached. 3 RuntimeError, sizes: MSELoss against class indices; "
                 "CrossEntropyLoss; it runs through. 4 The norm grows from 0.4 to 3.1: nothing "
                 "clears; zero_grad(); the norm stays below 0.5. 5 With lr = 0 the validation "
                 "loss differs from epoch to epoch: dropout was on; eval() and no_grad(); the "
                 "same number each time.",
    ),
)  # fmt: skip
