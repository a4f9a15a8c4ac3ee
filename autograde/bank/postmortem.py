"""03b.postmortem: what went wrong in the broken project, in writing."""

from autograde.kinds import Fact, Reason, Write

RUNGS = {"sorted": 1, "softmax": 3, "rate": 3, "frozen": 3}
"""The lowest rung that fails for each fault, alone or with any of those that share its rung."""
THROUGH = 0.6
"""Above it is the project without a fault: rung 6 of the notebook, the baseline's 0.1 and 0.5."""
STILL_LEARNS, HARDLY_LEARNS = 0.3, 0.5
"""`frozen` alone ends at 0.43 and above wherever the project without it is through: 15 settings of
SGD, momentum and Adam, rates from 1e-4 to 1, three seeds. `rate` alone ends at 0.16 at most. The
others cost next to nothing or all: `sorted` ends at 0.97 with Adam at 3e-3, 0.1 with SGD at 1."""


def known_fault(facts):
    """One of the four."""
    if facts["fault"] in list(RUNGS):  # a list, say, has no hash
        return ""
    return f"Answer with one of {', '.join(RUNGS)}: one word, in quotes."


def its_rung(facts):
    """The rung at which the ladder stops for this fault."""
    fault, rung = facts["fault"], facts["rung"]
    if isinstance(rung, bool) or rung not in range(1, 8):
        return "The ladder has the rungs 1 to 7: give one of these numbers."
    if known_fault(facts):
        return f"The rung depends on the fault: give one of {', '.join(RUNGS)} first."
    if rung == RUNGS[fault]:
        return ""
    if (fault, rung) == ("rate", 5):
        return (
            "Rung 5 chooses the rate, but a rate this small fails a lower rung first. Put it back "
            "into the fixed project and climb(): which one stops?"
        )
    return (
        f"With `{fault}` alone, the ladder does not stop at rung {rung}. Put the fault back into "
        "the fixed project and climb()."
    )


def a_rise(facts):
    """Two accuracies, the second the higher, and that of a project that is through."""
    match facts["accuracy"]:
        case [int() | float() as before, int() | float() as after]:
            pass
        case _:
            return (
                "Give a list of two numbers, the validation accuracy with the fault and without "
                "it: [0.1, 0.9]."
            )
    if not (0 <= before <= 1 and 0 <= after <= 1):
        return "An accuracy is between 0 and 1 here, not in percent: 95 % is 0.95."
    if before >= after:
        return (
            "The second accuracy is not above the first. Is the order [with the fault, without "
            "it], and were the other three faults fixed in both runs? Until they are, fixing one "
            "may change nothing."
        )
    if after <= THROUGH:
        return (
            f"Without any of the four faults the project gets above {THROUGH}; your second "
            f"accuracy is {after:g}."
        )
    if facts["fault"] == "frozen" and before < STILL_LEARNS:
        return (
            "With `frozen` alone the first layer still learns, and full runs get above "
            f"{STILL_LEARNS}; your first accuracy is {before:g}. Were the other three faults fixed "
            "in that run?"
        )
    if facts["fault"] == "rate" and before > HARDLY_LEARNS:
        return (
            "With `rate` alone hardly anything is learned, and full runs stay below "
            f"{HARDLY_LEARNS}; your first accuracy is {before:g}. Was the rate 1e-6 in that run?"
        )
    return ""


EXERCISE = Write(
    id="03b.postmortem", title="the post-mortem of one fault",
    source='Lecture 3, "The debugging ladder"; chapter 2, lab', ledger=("X26", "X28", "T21"),
    minutes=15, difficulty=2, read=("T21", "course.debug.climb"),
    hints=(
        "Choose the fault whose symptom surprised you most, and scroll to where you saw it.",
        "Symptom, evidence, cause, fix, prevention: one sentence each, with a number in two of "
        "them.",
        "Evidence is something only this cause explains, e.g. a gradient of 0, or a loss that "
        "stays above 1.46.",
    ),
    question="Choose one of the four faults of the broken project: `sorted`, `softmax`, `rate` or "
    "`frozen`. Fix all four, then put this one back to see its effect alone: `climb()` names the "
    "rung. For the accuracies, train for 12 epochs with this fault and again without it, as on "
    "rung 6, and take `history.best['val_accuracy']`; any optimizer and rate with which the fixed "
    "project trains will do (for `rate`, put 1e-6 back in the run with it). Keep both runs in the "
    "notebook: the check sees only the two numbers, and the person who grades compares them with "
    "the runs.",
    facts=(
        Fact("fault", "which fault (one of the four words)", 0.5, known_fault),
        Fact("rung", "the rung at which the ladder stops with this fault (its number, 1 to 7)", 0.5,
             its_rung),
        Fact("accuracy", "best validation accuracy, 0 to 1: [with it alone, without any]", 1,
             a_rise),
    ),
    example={"fault": "softmax", "rung": 3, "accuracy": [0.77, 0.98]},
    text=Reason(
        points=3, ask="Write the post-mortem in five sentences: symptom, evidence, cause, fix, and "
        "what would have caught it a day earlier.",
        rubric=(
            (1, "symptom and evidence are kept apart, at least one is a number, and runs in the "
                "notebook show the two accuracies"),
            (1, "the cause explains the evidence, and no other fault of the project does"),
            (1, "the prevention is a check that could be run: an assertion, a rung, a test"),
        ),
        solution="The loss of one batch came to rest at 1.59 after 397 steps, and a full run "
        "reached 77 % instead of 98 %. The outputs of the model added up to 1, which logits do "
        "not. The model ended in a softmax, and the criterion applies another one. Without it, "
        "one batch is memorised in about 200 steps. Rung 3 on the first day, or an assertion that "
        "outputs may be negative, would have caught it.",
    ),
)  # fmt: skip
