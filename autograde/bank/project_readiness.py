"""05.readiness: may this model be used? A note whose numbers agree with each other."""

import math
from textwrap import shorten

from autograde.bank.study import numbers
from autograde.kinds import Fact, Reason, Write

PARTS = ("model", "loss", "optimizer", "device")
PROBES, RISKS = 3, 2
"""What a review asks for at least."""
WORDS = 4
"""Fewer say what a thing is called, and not what was seen or what may happen."""
Z = 1.96
LEVELS = {90: 1.645, 99: 2.576}
"""Other intervals in use, in percent, with their standard errors."""
MOST_ABOVE = 0.1
"""Validation above training: three standard errors of 100 images that are read at 90 %."""
NEAR = 0.0006
"""By how much an end may be off: three decimals are enough."""
DECIMALS = (3, 4, 5)
"""To which a share may be rounded: fewer fit any number of hits."""
EXACT = 1e-6
"""By how much an unrounded share may be off: float32."""


def is_count(value):
    """Whether it is a whole number that is not negative."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def all_parts(facts):
    """Model, loss, optimizer and device, each in words."""
    found = facts["setup"]
    if not isinstance(found, dict) or not set(PARTS) <= set(found):
        return f"Give a dictionary with {', '.join(PARTS)}."
    empty = [name for name in PARTS if not isinstance(found[name], str) or not found[name].strip()]
    if empty:
        return f"Describe in words: {', '.join(empty)}."
    if not found["device"].strip().lower().startswith(("cpu", "cuda", "mps")):
        return "The device is the one the run used, under its torch name: cpu, cuda:0."
    return ""


def texts(value, least):
    """Different texts of enough words in a list of at least so many; None otherwise."""
    if not isinstance(value, list) or len(value) < least:
        return None
    fit = all(isinstance(text, str) and len(set(text.lower().split())) >= WORDS for text in value)
    return value if fit and len({text.strip().lower() for text in value}) == len(value) else None


def with_evidence(facts):
    """Probes that were run, each with a number that was seen; numbers by name will do."""
    given = facts["probes"]
    if isinstance(given, dict):
        return by_name(given)
    found = texts(given, PROBES)
    if found is None:
        return (
            f"Give at least {PROBES} different texts of {WORDS} words or more: what was tried, and "
            "the number that was seen. Or give a dictionary {name: number}."
        )
    bare = [text for text in found if not any(letter.isdigit() for letter in text)]
    if not bare:
        return ""
    return f"Without a digit, '{shorten(bare[0], 40, placeholder=' …')}' shows no evidence."


def by_name(probes):
    """A finite number for each of enough names."""
    if len(probes) < PROBES:
        return f"{len(probes)} probes given; at least {PROBES} are needed."
    bare = [name for name, value in probes.items() if numbers([value], 1) is None]
    return f"The probe '{bare[0]!s:.30}' has no measured number." if bare else ""


def accuracies(facts):
    """Of training and validation, as shares."""
    found = numbers(facts["train_val"], 2)
    if found is None or len(found) != 2 or not all(0 <= value <= 1 for value in found):
        return "Give two accuracies from 0 to 1, training first: [0.99, 0.95]."
    if found[1] - found[0] > MOST_ABOVE:
        return (
            f"Validation is {100 * (found[1] - found[0]):.0f} points above training. Give "
            "training first, and evaluate both in eval mode."
        )
    return ""


def hits_of(facts):
    """Hits on the held-back images, and how many images these are, above the bar."""
    found = facts["held_back"]
    if not isinstance(found, list) or len(found) != 2 or not all(map(is_count, found)):
        return "Give two whole numbers: hits, and held-back images."
    if not 0 <= found[0] <= found[1] or not found[1]:
        return f"{found[0]} hits among {found[1]} images is impossible."
    return ""


def off(share):
    """By how much a share may be off: 0.6 of its last decimal.

    Of 590 images most numbers are near a share if any may be off by 0.0006, also those of 240.
    """
    rounded = [n for n in DECIMALS if abs(round(share, n) - share) < EXACT / 1000]
    return 0.6 * 10 ** -rounded[0] if rounded else EXACT


def a_bar(facts):
    """The baseline's accuracy on the same images: a share of as many, below the model's."""
    found = numbers([facts["baseline"]], 1)
    if found is None or not 0 <= found[0] <= 1:
        return "Give an accuracy from 0 to 1."
    if hits_of(facts):
        return "The baseline is compared with the hits: give those first."
    hits, images = facts["held_back"]
    nearest, coarse = round(found[0] * images) / images, round(found[0], 2) == found[0]
    if abs(found[0] - nearest) > (EXACT if coarse else off(found[0])):
        if coarse:
            return (
                f"{found[0]:g} is not a share of {images} images: with two decimals it is rounded "
                "too coarsely. Give three or more."
            )
        return f"That is not a share of {images} images. Score the baseline on the held-back ones."
    if found[0] >= hits / images:
        return f"The baseline is not below the model's {hits / images:.3f}: not ready."
    return ""


def wilson(facts):
    """Wilson's 95 % interval of the accuracy on held-back data."""
    ends = numbers(facts["interval"], 2)
    if hits_of(facts):
        return "The interval belongs to the hits: give those first."
    if ends is None or len(ends) != 2 or not 0 <= ends[0] <= ends[1] <= 1:
        return "Give two shares from 0 to 1, the lower end first."
    hits, n = facts["held_back"]
    if is_wilson(ends, hits / n, n, Z):
        return ""
    for percent, z in LEVELS.items():
        if is_wilson(ends, hits / n, n, z):
            return f"That is Wilson's {percent} % interval. Give the 95 % one."
    p = hits / n
    plain = Z * math.sqrt(p * (1 - p) / n)
    if abs(ends[0] - p + plain) <= NEAR and abs(ends[1] - p - plain) <= NEAR:
        return "That is the normal interval, p ± 1.96 standard errors. Give Wilson's."
    middle = (p + Z**2 / (2 * n)) / (1 + Z**2 / n)
    if abs((ends[0] + ends[1]) / 2 - middle) > 2 * NEAR:
        return (
            f"It is centred on {(ends[0] + ends[1]) / 2:.3f}, but Wilson's interval of {hits} hits "
            f"among {n} images on {middle:.3f}. Is it of other images?"
        )
    return "That is not Wilson's 95 % interval of these hits."


def is_wilson(ends, p, n, z):
    """Whether these are the ends of Wilson's interval with z standard errors."""
    middle = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z * math.sqrt(p * (1 - p) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    return abs(ends[0] - middle + half) <= NEAR and abs(ends[1] - middle - half) <= NEAR


def resumes(facts):
    """How far the resumed run is from the unbroken one."""
    found = numbers([facts["resumed"]], 1)
    if found is None or found[0] < 0:
        return "Give the largest difference of two weights: a number, 0 or more."
    if found[0] > 0:
        return (
            "The resumed run is not the same as the uninterrupted one: the checkpoint lacks "
            "something. Not ready."
        )
    return ""


def at_scale(facts):
    """What may go wrong when it is used."""
    if texts(facts["risks"], RISKS) is None:
        return f"Give a list of at least {RISKS} different risks, {WORDS} words or more each."
    return ""


EXERCISE = Write(
    id="05.readiness", title="the readiness note",
    source="Engineering module, lab 6", ledger=("T39", "X11", "X28"),
    minutes=25, difficulty=3, read=("T39", "T25"),
    hints=(
        "A cell above has printed every number that the note needs.",
        "Open the held-back images once, after everything is decided, and note hits, images and "
        "the baseline there.",
        "course.analysis.scores.intervals has wilson_interval(hits, images). Risks are images, "
        "classes or machines that the project has not seen.",
    ),
    question="Your model is reviewed before anybody relies on it. Answer the reviewer's questions "
    "with what you have measured.",
    facts=(
        Fact("setup", "model, loss, optimizer, and device as torch calls it (cpu, cuda:0): a "
                      "dictionary of texts", 0.5, all_parts),
        Fact("probes", f"at least three probes, each a check and what it showed: texts of {WORDS} "
                       "words or more with a number in digits, or {name: number}", 0.5,
             with_evidence),
        Fact("train_val", "accuracies of best.pt's weights, from 0 to 1: "
                          "[training, validation]", 0.5, accuracies),
        Fact("held_back", "on the held-back data: [hits, number of images]", 0.5, hits_of),
        Fact("baseline", "the nearest mean's accuracy there, from 0 to 1, to three decimals or "
                         "more", 0.5, a_bar),
        Fact("interval", "Wilson's 95 % interval of your accuracy there: [low, high]", 0.5, wilson),
        Fact("resumed", "largest difference of a weight, resumed minus "
                        "uninterrupted", 0.5, resumes),
        Fact("risks", f"at least two risks in use, {WORDS} words or more each", 0.5, at_scale),
    ),
    example={
        "setup": {"model": "a convolution and two linear layers", "loss": "cross entropy",
                  "optimizer": "AdamW at 0.003", "device": "cpu"},
        "probes": ["one batch memorised in 27 steps", "doctor: 0 findings in 37 checks",
                   "rate finder suggests 0.004 for AdamW"],
        "train_val": [0.995, 0.962], "held_back": [288, 300], "baseline": 0.9,
        "interval": [0.931, 0.977], "resumed": 0.0,
        "risks": ["images from a darker camera than any here", "a class that was never shown"],
    },
    text=Reason(
        points=4, ask="Write the note in six to eight sentences: what the model may and may not be "
        "used for, on what evidence, how to repeat the run, what to watch in use.",
        rubric=(
            (1, "a use and a limit, both from the data"),
            (1, "held-back accuracy, interval, baseline; the gap is interpreted"),
            (1, "commit, seed, split, settings, checkpoint"),
            (1, "for each risk, what would show it and who acts"),
        ),
        solution="The model may sort images from this camera into these ten classes, with a person "
        "checking doubtful ones. On 300 unseen objects it gets 96.0 % right (93.1 to 97.7), the "
        "nearest mean 90.0 %. Training is at 99.5 %, validation at 96.2 %: a little overfitting. "
        "Commit, seed, split and settings are in run.json, weights in best.pt. Darker images would "
        "lower confidence, which is logged. The owner checks fifty a week and stops below 90 %.",
    ),
)  # fmt: skip
