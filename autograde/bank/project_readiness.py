"""05.readiness: may this model be used? A note whose numbers agree with each other."""

import math

from autograde.bank.study import numbers
from autograde.kinds import Fact, Reason, Write

PARTS = ("model", "loss", "optimizer", "device")
PROBES, RISKS = 3, 2
"""What a review asks for at least."""
WORDS = 4
"""Fewer say what a thing is called, and not what was seen or what may happen."""
Z = 1.96
MOST_ABOVE = 0.1
"""Validation above training: three standard errors of 100 images that are read at 90 %."""
NEAR = 0.0006
"""By how much an end may be off: three decimals are enough."""


def is_count(value):
    """Whether it is a whole number that is not negative."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def all_parts(facts):
    """Model, loss, optimizer and device, each in words."""
    found = facts["setup"]
    if not isinstance(found, dict) or not set(PARTS) <= set(found):
        return f"A dictionary with {', '.join(PARTS)} is asked for."
    empty = [name for name in PARTS if not isinstance(found[name], str) or not found[name].strip()]
    if empty:
        return f"Say in words: {', '.join(empty)}."
    if not found["device"].strip().lower().startswith(("cpu", "cuda", "mps")):
        return "The device is the one that the run was made on, as torch calls it: cpu, cuda:0."
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
            f"A list of at least {PROBES} different texts of {WORDS} words or more is asked for: "
            "what was tried, and what was seen."
        )
    bare = [text for text in found if not any(letter.isdigit() for letter in text)]
    return f"Without a number, '{bare[0][:30]}' shows no evidence." if bare else ""


def by_name(probes):
    """A finite number for each of enough names."""
    if len(probes) < PROBES:
        return f"{len(probes)} probes came; at least {PROBES} are asked for."
    bare = [name for name, value in probes.items() if numbers([value], 1) is None]
    return f"The probe '{bare[0]!s:.30}' has no number that was measured." if bare else ""


def accuracies(facts):
    """Of training and validation, as shares."""
    found = numbers(facts["train_val"], 2)
    if found is None or len(found) != 2 or not all(0 <= value <= 1 for value in found):
        return "Two accuracies between 0 and 1 are asked for, training first: [0.99, 0.95]."
    if found[1] - found[0] > MOST_ABOVE:
        return (
            f"Validation is {100 * (found[1] - found[0]):.0f} points above training. Training "
            "stands first, and both are evaluated in eval mode."
        )
    return ""


def hits_of(facts):
    """Hits on the held-back images, and how many images these are, above the bar."""
    found = facts["held_back"]
    if not isinstance(found, list) or len(found) != 2 or not all(map(is_count, found)):
        return "Two whole numbers are asked for: hits, and held-back images."
    if not 0 <= found[0] <= found[1] or not found[1]:
        return f"{found[0]} hits among {found[1]} images cannot be."
    return ""


def a_bar(facts):
    """The baseline's accuracy on the same images: a share of as many, below the model's."""
    found = numbers([facts["baseline"]], 1)
    if found is None or not 0 <= found[0] <= 1:
        return "An accuracy between 0 and 1 is asked for."
    if hits_of(facts):
        return "The bar is compared with the hits: give those first."
    hits, images = facts["held_back"]
    if abs(found[0] * images - round(found[0] * images)) > NEAR * images:
        return f"That is no share of {images} images. Score the baseline on the held-back ones."
    if found[0] >= hits / images:
        return f"The baseline is not below the model's {hits / images:.3f}: not ready."
    return ""


def wilson(facts):
    """Wilson's 95 % interval of the accuracy on held-back data."""
    ends = numbers(facts["interval"], 2)
    if hits_of(facts):
        return "The interval is that of the hits: give those first."
    if ends is None or len(ends) != 2 or not 0 <= ends[0] <= ends[1] <= 1:
        return "Two shares between 0 and 1 are asked for, the lower end first."
    hits, n = facts["held_back"]
    p = hits / n
    middle = (p + Z**2 / (2 * n)) / (1 + Z**2 / n)
    half = Z * math.sqrt(p * (1 - p) / n + Z**2 / (4 * n**2)) / (1 + Z**2 / n)
    if abs(ends[0] - middle + half) <= NEAR and abs(ends[1] - middle - half) <= NEAR:
        return ""
    plain = Z * math.sqrt(p * (1 - p) / n)
    if abs(ends[0] - p + plain) <= NEAR and abs(ends[1] - p - plain) <= NEAR:
        return "That is the normal interval, p ± 1.96 standard errors. Wilson's is asked for."
    return "That is not Wilson's 95 % interval of these hits."


def resumes(facts):
    """How far the resumed run is from the unbroken one."""
    found = numbers([facts["resumed"]], 1)
    if found is None or found[0] < 0:
        return "The largest difference of two weights is asked for: a number, 0 or more."
    if found[0] > 0:
        return (
            "The run that was resumed is not the one that was never stopped: the checkpoint lacks "
            "something. Not ready."
        )
    return ""


def at_scale(facts):
    """What may go wrong when it is used."""
    if texts(facts["risks"], RISKS) is None:
        return f"A list of at least {RISKS} different risks is asked for, {WORDS} words or more."
    return ""


EXERCISE = Write(
    id="05.readiness", title="the readiness note",
    source="Engineering module, lab 6", ledger=("T39", "X11", "X28"),
    minutes=25, difficulty=3, read=("T39", "T25"),
    hints=(
        "Every number of the note is one that a cell above has printed.",
        "Open the held-back images once, after everything is decided: hits, images, the bar there.",
        "course.analysis.scores.intervals has wilson_interval(hits, images); the risks are images, "
        "classes or machines that the project has not seen.",
    ),
    question="Your model is reviewed before somebody relies on it. Answer the reviewer's "
    "questions with what you have measured.",
    facts=(
        Fact("setup", "model, loss, optimizer, device: a dictionary of texts", 0.5, all_parts),
        Fact("probes", "at least three probes, as texts with a number or by name", 0.5,
             with_evidence),
        Fact("train_val", "accuracy on training and on validation, 0 to 1", 0.5, accuracies),
        Fact("held_back", "hits and images of the held-back data", 0.5, hits_of),
        Fact("baseline", "the nearest mean's accuracy there, 0 to 1", 0.5, a_bar),
        Fact("interval", "Wilson's 95 % interval of your accuracy there", 0.5, wilson),
        Fact("resumed", "largest difference of a weight, resumed less unbroken", 0.5, resumes),
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
        points=4, ask="Write the note in six to eight sentences: what it may and may not be used "
        "for, on which evidence, how to make the run again, what to watch in use.",
        rubric=(
            (1, "a use and a limit of it, both from the data"),
            (1, "held-back accuracy, interval, bar; the gap is read"),
            (1, "commit, seed, split, settings, checkpoint"),
            (1, "per risk, what would show it and who acts"),
        ),
        solution="It may sort images of this camera into these ten classes, with a person at "
        "doubtful ones. On 300 unseen objects it reads 96.0 % (93.1 to 97.7), the nearest mean "
        "90.0 %. Training stands at 99.5 %, validation at 96.2 %: a little overfit. Commit, seed, "
        "split, settings are in run.json, weights in best.pt. Darker images would lower "
        "confidence, which is logged. The owner checks fifty a week and stops below 90 %.",
    ),
)  # fmt: skip
