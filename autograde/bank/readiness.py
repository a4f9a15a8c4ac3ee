"""03i.readiness: is this run ready to be made larger? A note that another person can check."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from autograde.kinds import Fact, Reason, Write

PARTS = ("model", "loss", "optimizer", "device")
NAMED = {
    "loss": ("cross-entropy", r"cross|entropy|\bce\b|nll|log.?(loss|likelihood)"),
    "optimizer": ("Adam", r"adam(?!\s*-?w\b)"),
}
"""What the candidate has, and how a text says so."""
PROBES = 3
"""As the review asks: fewer leave data, step or evaluation without a probe."""
RISKS = 2
NEEDED = ("model", "optimizer", "scheduler", "progress", "random")
"""What the candidate's next step depends on: it has Adam, a schedule, dropout and a shuffle."""
EMPTY = {"scaler": "The run is in FP32: it has no scaler, so there is nothing to restore.",
         "gradients": "Each update clears the gradients before it computes its own.",
         "activations": "Activations exist only from forward to backward, inside one "
                        "step."}  # fmt: skip
LEAST_SCORE = 0.8
"""The candidate reads 0.99 of training and 0.97 of validation; rounding moves that by less."""
MOST_ABOVE = 0.05
IMAGES = {"train": 1438, "val": 359}
"""The candidate's images: each accuracy is a share of as many."""
MOST_DIGITS = 9
"""That are looked at: a float's last ones are roundings."""
SHORTEST = 3
"""Words of a risk or its sign: `overfitting` names neither where nor when."""


def whole_setup(facts: Mapping[str, Any]) -> str:
    """Four texts, the device one of torch's."""
    given = facts["setup"]
    if not isinstance(given, dict) or set(given) != set(PARTS):
        return f"Give a dictionary with the keys {', '.join(PARTS)}."
    for name in PARTS:
        if not isinstance(given[name], str) or not given[name].strip():
            return f"{name} is missing: give a short text."
    for name, (names, pattern) in NAMED.items():
        if not re.search(pattern, given[name].lower()):
            return f"{name} is {given[name]!r:.40}: {names} is what the candidate's cell has."
    if given["device"].split(":")[0] not in ("cpu", "cuda", "mps", "xpu"):
        return f"device is {given['device']!r}: print(device) shows torch's name for it, e.g. cpu."
    return ""


def measured_probes(facts: Mapping[str, Any]) -> str:
    """A finite number by the name of each probe."""
    given = facts["probes"]
    if isinstance(given, (list, tuple)) and all(
        isinstance(one, (list, tuple)) and len(one) == 2 for one in given
    ):
        given = {str(name): value for name, value in given}
    if not isinstance(given, dict) or not all(isinstance(name, str) for name in given):
        return "Give a dictionary from the name of each probe to the number it gave."
    for name, value in given.items():
        if type(value) not in (int, float) or not math.isfinite(value):
            return f"The probe {name!r:.40} has no finite number: evidence means a measured number."
        if name.strip() and not any(letter.isalpha() for letter in name):
            return f"{name!r:.40} does not name a probe: say what was tried."
    names = {name.strip().lower() for name in given}
    if "" in names or len(names) < PROBES:
        return f"{len(names - {''})} named probes given; at least {PROBES} are needed."
    return ""


def is_share(value: float, of: int) -> bool:
    """Whether so many hits of so many images give the number, rounded or cut to its digits."""
    digits = min(len(f"{Decimal(str(value)):f}".partition(".")[2]), MOST_DIGITS)
    written, power = round(value * 10**digits), 10**digits
    near = round(value * of)
    return any(
        written in (hits * power // of, (2 * hits * power + of) // (2 * of))
        for hits in (near - 1, near, near + 1)
    )


def both_scores(facts: Mapping[str, Any]) -> str:
    """Two accuracies, each a share, of two different loaders."""
    given = facts["scores"]
    if not isinstance(given, dict) or set(given) != {"train", "val"}:
        return "Give a dictionary with the keys train and val."
    if any(type(value) not in (int, float) for value in given.values()):
        return "Give both as numbers: the accuracies that the run's evaluation printed."
    if not all(0 <= value <= 1 for value in given.values()):
        return "An accuracy is between 0 and 1 here, not in percent: 95 % is 0.95."
    if low := [name for name in ("train", "val") if given[name] < LEAST_SCORE]:
        return (
            f"{low[0]} is {given[low[0]]:g}. The candidate above reaches more than "
            f"{100 * LEAST_SCORE:.0f} % on either side: is that an accuracy of its model?"
        )
    if given["val"] - given["train"] > MOST_ABOVE:
        return "Validation is far above training: are the two swapped?"
    if given["train"] == given["val"]:
        return "Both are the same to the last digit: were they evaluated on the same loader?"
    train, val = given["train"], given["val"]
    fits, fits_swapped = (
        all(is_share(value, of) for value, of in zip(pair, IMAGES.values(), strict=True))
        for pair in ((train, val), (val, train))
    )
    if fits_swapped and not fits:
        return (
            f"Of {IMAGES['train']:,} training and {IMAGES['val']} validation images, whole numbers "
            "of hits give these two the other way round. Are they swapped?"
        )
    return ""


def resumes(facts: Mapping[str, Any]) -> str:
    """All that the next step depends on, and nothing that it does not."""
    given, known = facts["resume"], {*NEEDED, *EMPTY}
    if not isinstance(given, list) or not all(isinstance(name, str) for name in given):
        return f"Give a list of some of these words: {', '.join(sorted(known))}."
    if unknown := [name for name in given if name not in known]:
        return f"{unknown[0]!r:.30} is not one of the words: {', '.join(sorted(known))}."
    for name, why in EMPTY.items():
        if name in given:
            return f"{name} is not needed. {why}"
    lacking = len(set(NEEDED) - set(given))
    if lacking:
        return (
            f"{lacking} more {'is' if lacking == 1 else 'are'} needed. Ask what the next update "
            "reads, and what decides the next batch and its dropout mask."
        )
    return ""


def risks_with_signs(facts: Mapping[str, Any]) -> str:
    """Pairs of texts: what may go wrong at scale, and how one would notice."""
    given = facts["risks"]
    if not isinstance(given, list) or not all(
        isinstance(one, (list, tuple)) and len(one) == 2 for one in given
    ):
        return "Give a list of pairs: [what may go wrong, the number that would show it]."
    for pair in given:
        for text in pair:
            if not isinstance(text, str) or len(set(text.lower().split())) < SHORTEST:
                return f"{str(text)!r:.40} is too short: use {SHORTEST} words or more."
        if pair[0].strip().lower() == pair[1].strip().lower():
            return f"{pair[0]!r:.40} is both risk and sign. Which number would show it?"
    if len({pair[0].strip().lower() for pair in given}) < RISKS:
        return f"Give at least {RISKS} different risks."
    return ""


EXERCISE = Write(
    id="03i.readiness", title="the readiness note",
    source="Engineering module, lab 6", ledger=("X28", "T39", "T41", "X11"),
    minutes=25, difficulty=2, read=("T39", "T41", "course.debug.climb"),
    hints=(
        "Another person must be able to check each sentence: give the number and say where it "
        "comes from.",
        "Probes give numbers: the loss of one batch after some updates, a baseline's accuracy, the "
        "share of the loop spent waiting.",
        "To continue exactly, a run needs whatever its next update reads: weights, moments, "
        "learning rate, position in the epoch, generators.",
    ),
    question="Somebody wants to run the candidate above on a hundred times the data. Review it: "
    "what it consists of, which probes you ran, what it scores on training and validation, which "
    "of `model`, `optimizer`, `scheduler`, `scaler`, `progress` (epochs and updates done), "
    "`random` (generator states), `gradients`, `activations` its checkpoint must hold so that "
    "exactly this run continues after a kill, and what may go wrong at that scale. "
    "Some of these are empty for this run, even if `last.pt` has a key for them: leave those "
    "out.",
    facts=(
        Fact("setup", "model, loss, optimizer, and device as print(device) says: a dictionary of "
             "texts", 0.5, whole_setup),
        Fact("probes", "at least three probes: {name: measured number}", 1, measured_probes),
        Fact("scores", "accuracies, 0 to 1, as {'train': ..., 'val': ...}", 0.5, both_scores),
        Fact("resume", "what the checkpoint must hold, in these words", 1, resumes),
        Fact("risks", f"at least two pairs [risk, sign], {SHORTEST} words or more each", 1,
             risks_with_signs),
    ),
    example={
        "setup": {"model": "64-128-10 with dropout", "loss": "cross-entropy",
                  "optimizer": "Adam, cosine", "device": "cpu"},
        "probes": {"one batch of 8: loss after 60 updates": 0.01,
                   "accuracy of the most frequent class": 0.1,
                   "share of the loop spent waiting": 0.3},
        "scores": {"train": 0.99, "val": 0.97},
        "resume": ["model", "optimizer", "scheduler", "progress", "random"],
        "risks": [["the loader falls behind from files", "share of waiting above 10 %"],
                  ["rare classes hide behind the mean", "recall of the rarest class"]],
    },
    text=Reason(
        points=3, ask="Six sentences: what was reviewed, what the probes show, how training and "
        "validation differ, whether it can be resumed, the two gravest risks, your decision.",
        rubric=(
            (1, "each claim has evidence: a number, and the probe or run it comes from"),
            (1, "each risk comes from the larger scale, and has a sign that would show it early"),
            (1, "the decision follows from the evidence, and names what would change it"),
        ),
        solution="One hidden layer with dropout, cross-entropy, Adam with a cosine schedule, on "
        "the CPU. One batch falls to a loss of 0.01, the most frequent class has 10 %, and the "
        "loop waits for 30 % of its time. Two points are lost from training to validation. The "
        "checkpoint holds weights, moments, schedule, position and generators. With files the "
        "loader may fall behind, which waiting would show; a rare class may be lost, which its "
        "recall would show. Ready once waiting is below 10 %.",
    ),
)  # fmt: skip
