"""03i.readiness: is this run ready to be made larger? A note that another person can check."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from autograde.kinds import Fact, Reason, Write

PARTS = ("model", "loss", "optimizer", "device")
PROBES = 3
"""As the review asks: fewer leave data, step or evaluation without a probe."""
RISKS = 2
NEEDED = ("model", "optimizer", "scheduler", "progress", "random")
"""What the candidate's next step depends on: it has Adam, a schedule, dropout and a shuffle."""
EMPTY = {"scaler": "The run is in FP32: it has no scaler, and nothing of one to bring back.",
         "gradients": "Each update clears the gradients before it makes its own.",
         "activations": "Activations live from forward to backward, inside one step."}  # fmt: skip
LEAST_SCORE = 0.8
"""The candidate reads 0.99 of training and 0.97 of validation; rounding moves that by less."""
MOST_ABOVE = 0.05
SHORTEST = 3
"""Words of a risk or its sign: `overfitting` names neither where nor when."""


def whole_setup(facts: Mapping[str, Any]) -> str:
    """Four texts, the device one of torch's."""
    given = facts["setup"]
    if not isinstance(given, dict) or set(given) != set(PARTS):
        return f"A dictionary with the keys {', '.join(PARTS)} is asked for."
    for name in PARTS:
        if not isinstance(given[name], str) or not given[name].strip():
            return f"{name} is not named: a short text is asked for."
    if given["device"].split(":")[0] not in ("cpu", "cuda", "mps", "xpu"):
        return f"device is {given['device']!r}: print(device) says it as torch does, e.g. cpu."
    return ""


def measured_probes(facts: Mapping[str, Any]) -> str:
    """A finite number by the name of each probe."""
    given = facts["probes"]
    if isinstance(given, (list, tuple)) and all(
        isinstance(one, (list, tuple)) and len(one) == 2 for one in given
    ):
        given = {str(name): value for name, value in given}
    if not isinstance(given, dict) or not all(isinstance(name, str) for name in given):
        return "A dictionary is asked for: the name of each probe, and the number it gave."
    for name, value in given.items():
        if type(value) not in (int, float) or not math.isfinite(value):
            return f"The probe {name!r:.40} has no finite number: evidence is what was measured."
        if name.strip() and not any(letter.isalpha() for letter in name):
            return f"{name!r:.40} names no probe: say what was tried."
    names = {name.strip().lower() for name in given}
    if "" in names or len(names) < PROBES:
        return f"{len(names - {''})} named probes came; at least {PROBES} are asked for."
    return ""


def both_scores(facts: Mapping[str, Any]) -> str:
    """Two accuracies, each a share, of two different loaders."""
    given = facts["scores"]
    if not isinstance(given, dict) or set(given) != {"train", "val"}:
        return "A dictionary with the keys train and val is asked for."
    if any(type(value) not in (int, float) for value in given.values()):
        return "Both are numbers, the accuracies as the run's evaluation gave them."
    if not all(0 <= value <= 1 for value in given.values()):
        return "An accuracy is between 0 and 1 here, not in percent: 95 % is 0.95."
    if low := [name for name in ("train", "val") if given[name] < LEAST_SCORE]:
        return (
            f"{low[0]} is {given[low[0]]:g}. The candidate above reads more than "
            f"{100 * LEAST_SCORE:.0f} % of either side: is that an accuracy, of its model?"
        )
    if given["val"] - given["train"] > MOST_ABOVE:
        return "Validation is far above training: are the two exchanged?"
    if given["train"] == given["val"]:
        return "Both are the same to the last digit: were they evaluated on the same loader?"
    return ""


def resumes(facts: Mapping[str, Any]) -> str:
    """All that the next step depends on, and nothing that it does not."""
    given, known = facts["resume"], {*NEEDED, *EMPTY}
    if not isinstance(given, list) or not all(isinstance(name, str) for name in given):
        return f"A list of some of these words is asked for: {', '.join(sorted(known))}."
    if unknown := [name for name in given if name not in known]:
        return f"{unknown[0]!r:.30} is none of the words: {', '.join(sorted(known))}."
    for name, why in EMPTY.items():
        if name in given:
            return f"{name} is not needed. {why}"
    lacking = len(set(NEEDED) - set(given))
    if lacking:
        return (
            f"{lacking} more {'is' if lacking == 1 else 'are'} needed. Ask what the next update "
            "reads, and what decides which batch comes next, and with which dropout mask."
        )
    return ""


def risks_with_signs(facts: Mapping[str, Any]) -> str:
    """Pairs of texts: what may go wrong at scale, and how one would notice."""
    given = facts["risks"]
    if not isinstance(given, list) or not all(
        isinstance(one, (list, tuple)) and len(one) == 2 for one in given
    ):
        return "A list of pairs is asked for: [what may go wrong, by which number one notices]."
    for pair in given:
        for text in pair:
            if not isinstance(text, str) or len(set(text.lower().split())) < SHORTEST:
                return f"{str(text)!r:.40} is too short: say it in {SHORTEST} words or more."
        if pair[0].strip().lower() == pair[1].strip().lower():
            return f"{pair[0]!r:.40} is both risk and sign. By which number would one notice it?"
    if len({pair[0].strip().lower() for pair in given}) < RISKS:
        return f"At least {RISKS} different risks are asked for."
    return ""


EXERCISE = Write(
    id="03i.readiness", title="the readiness note",
    source="Engineering module, lab 6", ledger=("X28", "T39", "T41", "X11"),
    minutes=25, difficulty=2, read=("T39", "T41", "course.debug.climb"),
    hints=(
        "Another person has to be able to check each sentence: give the number and where it is "
        "from.",
        "Probes have numbers: the loss of one batch after so many updates, a baseline's accuracy, "
        "the share of the loop that waits.",
        "To continue exactly, a run needs whatever its next update reads: weights, moments, rate, "
        "place in the epoch, generators.",
    ),
    question="The candidate above is to be run on a hundred times the data. Review it: what it is "
    "made of, which probes you ran, what it scores on training and validation, which of `model`, "
    "`optimizer`, `scheduler`, `scaler`, `progress`, `random`, `gradients`, `activations` a "
    "checkpoint has to hold so that the killed run continues exactly, and what may go wrong "
    "at that scale.",
    facts=(
        Fact("setup", "model, loss, optimizer, device: a dictionary of texts", 0.5, whole_setup),
        Fact("probes", "at least three probes: {name: measured number}", 1, measured_probes),
        Fact("scores", "accuracies, 0 to 1, as {'train': ..., 'val': ...}", 0.5, both_scores),
        Fact("resume", "what the checkpoint has to hold, in these words", 1, resumes),
        Fact("risks", f"at least two pairs [risk, sign], {SHORTEST} words or more each", 1,
             risks_with_signs),
    ),
    example={
        "setup": {"model": "64-128-10 with dropout", "loss": "cross-entropy",
                  "optimizer": "Adam, cosine", "device": "cpu"},
        "probes": {"one batch of 8: loss after 60 updates": 0.01,
                   "accuracy of the most frequent class": 0.1,
                   "share of the loop that waits": 0.3},
        "scores": {"train": 0.99, "val": 0.97},
        "resume": ["model", "optimizer", "scheduler", "progress", "random"],
        "risks": [["the loader falls behind from files", "share of waiting above 10 %"],
                  ["rare classes hide behind the mean", "recall of the rarest class"]],
    },
    text=Reason(
        points=3, ask="Six sentences: what was reviewed, which probe says what, how training and "
        "validation differ, can it be resumed, the two gravest risks, your decision.",
        rubric=(
            (1, "each claim has its evidence: a number, and the probe or the run it is from"),
            (1, "each risk belongs to the larger scale, and has a sign that would show it early"),
            (1, "the decision follows from the evidence, and names what would change it"),
        ),
        solution="One hidden layer with dropout, cross-entropy, Adam under a cosine, on the CPU. "
        "One batch falls to a loss of 0.01, the most frequent class has 10 %, the loop waits for "
        "30 % of its time. Two points are lost from training to validation. Its checkpoint holds "
        "weights, moments, schedule, place and generators. From files the loader may fall behind, "
        "which waiting shows; a rare class may be lost, which its recall shows. Ready, once "
        "waiting is below 10 %.",
    ),
)  # fmt: skip
