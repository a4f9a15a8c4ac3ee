"""05.errors: which mistakes a model makes, how sure it is of them, and which to work on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
import torch
from torch import Tensor

from autograde.bank.common_wrong import LOOKS, common
from autograde.bank.harness import Watch
from autograde.exercise import (
    Answer,
    AnswerError,
    Case,
    Draw,
    Exercise,
    Part,
    Wrong,
    as_index,
    as_number,
    kept_entries,
)
from autograde.kinds.fix import variant

SIZES = (7, 6, 4, 4, 3, 1)
"""Mistakes of each pair of classes; two pairs are equally large."""
PEOPLE = ((0.9, None, 0.1, 0.2, 0.25, 0.0), (0.9, 0.25, 0.1, 0.2, None, 0.0))
"""What share of each pair's mistakes people make, by case: the second largest is to be worked on,
and in every other case nothing is known of it."""


def draw(source: Draw, part: str) -> Case:
    """Mistakes by pairs in both directions, each with a confidence of its own, among right ones.

    The largest pair is split evenly, so that another has the largest cell of the confusion matrix.
    A class has no example. Rows of logits are shifted, which changes no probability. The last case
    of `work_on` has nothing to gain, as people make each mistake too. `edges`: no mistake at all,
    then more asked for than there are, with all of them people's as well.
    """
    classes = source.integer(6, 7) + 6 * (source.index % 2)
    *names, _absent = source.shuffled(range(classes))
    mixed = sorted(names[:5])
    inner = source.integer(2, 3)
    equal = [(mixed[0], mixed[inner + 1]), (mixed[1], mixed[inner])]  # first by a, last by b
    others = source.shuffled([pair for pair in combinations(mixed, 2) if pair not in equal])
    pairs = [*others[:2], *equal, *others[2:4]]
    said = []
    for number, ((low, high), size) in enumerate(zip(pairs, SIZES, strict=True)):
        swapped = size // 2 if number == 0 else 0
        turn = source.choice((0, 1))
        said += [((low, high), (high, low))[(turn + (i < swapped)) % 2] for i in range(size)]
    if part == "edges" and source.index == 0:
        said = []
    mistakes = len(said)
    said += [(name, name) for name in names for _ in range(source.integer(4, 6))]
    near = part == "confident" and source.index == 2  # float16 does not tell them apart
    least, most = (0.9, 0.9003) if near else (0.55, 0.97)
    sure = torch.linspace(least, most, len(said))[source.shuffled(range(len(said)))]
    order = source.shuffled(range(len(said)))
    if mistakes:  # of the equally large pairs the one that is listed second is met first
        met = [tuple(sorted(said[i])) for i in order]
        first, second = (met.index(pair) for pair in pairs[2:4])
        if first < second:
            order[first], order[second] = order[second], order[first]
    shares = zip(pairs, PEOPLE[source.index % 2], strict=True)
    people = {pair: share for pair, share in shares if share is not None}
    if (part == "edges" and source.index) or (part == "work_on" and source.index == 3):
        people = dict.fromkeys(pairs, 1.0)
    return {
        "logits": torch.stack([_logits(source, classes, *said[i], float(sure[i])) for i in order]),
        "targets": torch.tensor([said[i][0] for i in order]),
        "people": [[*pair, share] for pair, share in people.items()],
        "n": mistakes + 5 if part == "edges" else source.integer(4, 6) + 4 * near,
    }


def _logits(source: Draw, classes: int, true: int, said: int, sure: float) -> Tensor:
    """A row whose softmax gives `said` the probability `sure`, and the rest to the others.

    In half of the rows one of the others has nearly all of the rest: the lead is smaller there.
    """
    weights = torch.tensor([source.uniform(0.5, 1.5) for _ in range(classes)])
    weights[true] *= source.uniform(0.2, 1.5)
    weights[source.integer(0, classes - 1)] *= source.choice((1, 20))
    weights[said] = 0.0
    probabilities = (1 - sure) * weights / weights.sum()
    probabilities[said] = sure
    return probabilities.log() + source.uniform(-3.0, 3.0)


def run(function, case: Case, device: torch.device) -> Answer:
    """The five entries, each read by itself."""
    logits, targets = case["logits"].to(device), case["targets"].to(device)
    people = {(low, high): share for low, high, share in case["people"]}
    watch = Watch(data={"logits": logits, "targets": targets, "people": people})
    returned = function(logits, targets, people, case["n"])
    wanted = {
        "recall": (_recalls, "the recall by class"),
        "pairs": (_pairs, "the pairs"),
        "confident": (_positions, "the positions"),
        "work_on": (_pair_or_none, "the pair to work on"),
        "gain": (as_number, "the gain in points"),
    }
    return {**kept_entries(returned, wanted), "disturbed": watch.changed()}


def _recalls(value: Any, what: str) -> dict[str, float]:
    if not isinstance(value, dict):
        raise AnswerError(f"'recall' must be a dictionary; yours is a {type(value).__name__}.")
    found = {as_index(name, "a class"): as_number(one, "a recall") for name, one in value.items()}
    return {str(name): found[name] for name in sorted(found)}


def _listed(value: Any, what: str) -> list[Any]:
    if isinstance(value, (Tensor, np.ndarray)):
        value = value.tolist()
    if not isinstance(value, (list, tuple)):
        raise AnswerError(f"Give a list for {what}; yours is a {type(value).__name__}.")
    return list(value)


def _positions(value: Any, what: str) -> list[int]:
    return [as_index(one, "a position") for one in _listed(value, what)]


def _pairs(value: Any, what: str) -> list[str]:
    rows = [[as_index(n, "a class or a count") for n in _listed(row, what)] for row in
            _listed(value, what)]  # fmt: skip
    if any(len(row) != 3 for row in rows):
        raise AnswerError("Each entry of 'pairs' must be two classes and a count: (3, 8, 12).")
    return [f"({low}, {high}): {count}" for low, high, count in rows]


def _pair_or_none(value: Any, what: str) -> str:
    if value is None:
        return "None"
    return f"({', '.join(str(as_index(n, 'a class')) for n in _listed(value, what))})"


def reference(logits, targets, people, n) -> dict[str, Any]:
    """scikit-learn counts; the softmax is NumPy's, in float64."""
    from sklearn.metrics import confusion_matrix, recall_score

    rows, true = logits.cpu().double().numpy(), targets.cpu().numpy()
    said, names = rows.argmax(axis=1), np.unique(true)
    recalls = recall_score(true, said, labels=names, average=None, zero_division=0)
    matrix = confusion_matrix(true, said, labels=range(rows.shape[1]))
    both = np.triu(matrix + matrix.T, k=1)
    pairs = [(int(a), int(b), int(both[a, b])) for a, b in zip(*both.nonzero(), strict=True)]
    pairs.sort(key=lambda row: (-row[2], row[0], row[1]))
    scaled = np.exp(rows - rows.max(axis=1, keepdims=True))
    sure = (scaled / scaled.sum(axis=1, keepdims=True)).max(axis=1)
    wrong = (said != true).nonzero()[0]
    gains = [(100 * c / len(true) * (1 - people.get((a, b), 0.0)), -i)
             for i, (a, b, c) in enumerate(pairs)]  # fmt: skip
    gain, place = max(gains, default=(0.0, 0))
    return {
        "recall": dict(zip(names.tolist(), recalls.tolist(), strict=True)),
        "pairs": pairs,
        "confident": wrong[np.argsort(-sure[wrong], kind="stable")][:n].tolist(),
        "work_on": pairs[-place][:2] if pairs else None,
        "gain": gain,
    }


PLAIN = """
def error_report(logits, targets, people, n):
    from collections import Counter
    said, sure = logits.argmax(dim=1), logits.softmax(dim=1).amax(dim=1)
    wrong = said != targets
    recall = {c: (said[targets == c] == c).float().mean().item() for c in targets.unique().tolist()}
    both = zip(targets[wrong].tolist(), said[wrong].tolist())
    counts = Counter((min(t, s), max(t, s)) for t, s in both)
    ranked = sorted(counts, key=lambda pair: (-counts[pair], pair))
    places = wrong.nonzero().flatten()
    order = sure[places].argsort(descending=True)
    gains = {pair: 100 * counts[pair] / len(targets) * (1 - people.get(pair, 0)) for pair in ranked}
    work_on = max(gains, key=gains.get, default=None)
    return {
        "recall": recall,
        "pairs": [(*pair, counts[pair]) for pair in ranked],
        "confident": places[order][:n].tolist(),
        "work_on": work_on,
        "gain": gains.get(work_on, 0.0),
    }
"""
edited: Callable[..., Any] = partial(variant, PLAIN, __file__)
plain = edited()


def people_used_up(logits, targets, people, n):
    result = plain(logits, targets, people, n)
    people.clear()
    return result


def with_a_matrix(logits, targets, people, n):
    classes = logits.shape[1]
    said = torch.max(logits, dim=1).indices
    cells = torch.bincount(targets * classes + said, minlength=classes**2).view(classes, classes)
    recall = {c: cells[c, c] / cells[c].sum() for c in range(classes) if cells[c].sum()}
    both = (cells + cells.T).triu(1)
    pairs = [(a, b, int(both[a, b])) for a, b in both.nonzero().tolist()]
    pairs = sorted(pairs, key=lambda row: -row[2])  # stable: rows come in order of their classes
    log_sure = torch.log_softmax(logits, dim=1).gather(1, said[:, None])[:, 0]
    log_sure[said == targets] = -torch.inf
    worst = log_sure.argsort(descending=True)[: min(n, int((said != targets).sum()))]
    best, gain = None, 0.0
    for a, b, count in pairs:
        won = 100.0 * count * (1.0 - people.get((a, b), 0.0)) / len(targets)
        if best is None or won > gain:
            best, gain = (a, b), won
    return dict(recall=recall, pairs=pairs, confident=worst, work_on=best, gain=gain)


def with_the_course(logits, targets, people, n):
    from course.analysis import confusion, per_class
    from course.analysis.scores.predicting import Predictions

    names = tuple(str(c) for c in range(logits.shape[1]))
    found = Predictions(logits.cpu(), targets.cpu(), names)
    recall = {int(c.name): c.recall for c in per_class(found).classes if c.support}
    matrix = confusion(found).matrix
    pairs = [[i, j, matrix[i, j] + matrix[j, i]] for i, j in combinations(range(len(names)), 2)]
    pairs = sorted((row for row in pairs if row[2]), key=lambda row: (-row[2], row[0], row[1]))
    wrong = [i for i in range(len(found)) if not found.right[i]]
    wrong.sort(key=lambda i: float(found.confidence[i]), reverse=True)
    gains = [100 * c / len(found) * (1 - people.get((i, j), 0)) for i, j, c in pairs]
    at = int(np.argmax(gains)) if gains else None
    return {"recall": recall, "pairs": pairs, "confident": wrong[:n],
            "work_on": None if at is None else pairs[at][:2],
            "gain": 0.0 if at is None else gains[at]}  # fmt: skip


RECALL = "(said[targets == c] == c).float().mean().item()"
CLASSES = "targets.unique().tolist()}"
COUNTED = "Counter((min(t, s), max(t, s)) for t, s in both)"
RANKED = "sorted(counts, key=lambda pair: (-counts[pair], pair))"
SURE = "sure[places].argsort(descending=True)"
GAINS = "100 * counts[pair] / len(targets) * (1 - people.get(pair, 0))"
PAID = "gains.get(work_on, 0.0)"
PLACES = "places[order][:n].tolist()"

WRONG = (
    ("people-used-up", people_used_up, ""),
    ("precision", edited((RECALL, "(targets[said == c] == c).float().mean().item()")),
     "Those are precisions, shares of the examples predicted as the class. Recall is the share of "
     "a class's own examples that were found: targets == c selects them."),
    ("misses", edited((RECALL, "(said[targets == c] != c).float().mean().item()")),
     "Those are the shares that were missed. Recall is the share that was found: 1 minus that."),
    ("accuracy-for-recall", edited((RECALL, "(said == targets).float().mean().item()")),
     "Every class got the overall accuracy. Select the examples of the class first."),
    ("one-against-rest", edited((RECALL, "((said == c) == (targets == c)).float().mean().item()")),
     "That is how often class and not-class are told apart over all examples, which is high for "
     "every rare class. Recall looks only at the class's own examples."),
    ("share-of-all", edited((RECALL, "((said == c) & (targets == c)).float().mean().item()")),
     "The hits of a class were divided by the number of all examples. Divide by the number of the "
     "class's examples."),
    ("absent-at-zero", edited((CLASSES, "range(logits.shape[1])}"),
                              (RECALL, RECALL[:-7] + ".nan_to_num().item()")),
     "A class without examples got a recall. Nothing is known about it: leave it out."),
    ("absent-at-nan", edited((CLASSES, "range(logits.shape[1])}")), ""),
    ("directed", edited((COUNTED, "Counter(both)")),
     "The two directions of a pair are counted separately. A 3 taken for a 5 and a 5 taken for a 3 "
     "belong to one pair: (3, 5)."),
    ("directed", edited((COUNTED, "Counter(both)"),
                        (GAINS, GAINS.replace("get(pair", "get(tuple(sorted(pair))"))), ""),
    ("one-direction", edited((COUNTED, "Counter((t, s) for t, s in both if t < s)")),
     "Only mistakes whose predicted class is above the true one were counted. Those in the other "
     "direction belong to the same pair: (min(t, s), max(t, s))."),
    ("upper-first", edited((COUNTED, "Counter((max(t, s), min(t, s)) for t, s in both)")), ""),
    ("by-class", edited((RANKED, "sorted(counts)")),
     "The pairs are in the order of their classes. The most frequent comes first."),
    ("smallest-first", edited((RANKED, "sorted(counts, key=lambda pair: (counts[pair], pair))")),
     "The pairs are in reverse order: the most frequent comes first."),
    ("ties", edited((RANKED, "sorted(counts, key=lambda p: (counts[p], p))[::-1]")),
     "Equally frequent pairs are not in the order of their classes. Sorting by the count alone "
     "leaves them in the order they were found, and reverse=True reverses the classes too: sort by "
     "(-count, pair)."),
    ("ties", edited((RANKED, "sorted(counts, key=lambda p: -counts[p])")), ""),
    ("ties", edited((RANKED, "sorted(counts, key=lambda p: (-counts[p], p[::-1]))")), ""),
    ("by-logit", edited(("logits.softmax(dim=1).amax(dim=1)", "logits.amax(dim=1)")),
     "The mistakes are sorted by their largest logit. Only the softmax makes rows comparable: "
     "adding a constant to a row changes its logits but not its probabilities."),
    ("by-loss", edited((SURE, "logits.log_softmax(1)[places, targets[places]].argsort()")),
     "The mistakes are sorted by the probability of the true class, the lowest first. A mistake is "
     "confident if its predicted class has a high probability."),
    ("by-true-class", edited((SURE, "logits.softmax(1)[places, targets[places]].argsort("
                                    "descending=True)")),
     "The mistakes are sorted by the probability of the true class, the highest first. Confidence "
     "is the probability of the class that was predicted."),
    ("by-margin", edited(("logits.softmax(dim=1).amax(dim=1)",
                          "-logits.softmax(dim=1).topk(2).values.diff(dim=1).flatten()")),
     "The mistakes are sorted by the lead over the second class. Sort by the probability of the "
     "predicted class."),
    ("least-confident", edited((SURE, "sure[places].argsort()")),
     "Those are the mistakes of which the model was least confident."),
    ("by-entropy", edited((SURE, "torch.special.entr(logits.softmax(1)).sum(1)[places].argsort()")),
     ""),
    ("in-half-precision", edited(("logits.softmax(dim=1)", "logits.half().float().softmax(dim=1)")),
     ""),
    ("right-ones-too", edited((PLACES, "sure.argsort(descending=True)[:n].tolist()")),
     "Some right answers are among them. Select the mistakes first, then sort."),
    ("right-ones-too", edited((PLACES, "sure.argsort(descending=True)[:n].tolist() if ranked "
                                       "else []")), ""),
    ("places-among-mistakes", edited((PLACES, "order[:n].tolist()")),
     "Those are positions among the mistakes. Give positions among all examples: "
     "wrong.nonzero().flatten()[order]."),
    ("in-order-of-data", edited((PLACES, "places[:n].tolist()")), ""),
    ("most-frequent", edited(("max(gains, key=gains.get, default=None)",
                              "next(iter(ranked), None)")),
     "The most frequent pair was chosen. But people make nine in ten of its mistakes too: multiply "
     "by what is left, 1 - people."),
    ("people-ignored", edited((GAINS, "100 * counts[pair] / len(targets)")),
     "The most frequent pair was chosen, and all of its mistakes were taken for its gain. But "
     "people make some of them too: multiply each pair's share by 1 - people.get(pair, 0), then "
     "choose."),
    ("needs-a-gain", edited(("max(gains, key=gains.get, default=None)",
                             "max((p for p in gains if gains[p]), key=gains.get, default=None)")),
     "There are mistakes, but no pair to work on. Where people make every mistake too, each gain "
     "is 0; work_on is then the first pair, and None only if there is no mistake."),
    ("headroom-alone", edited(("max(gains, key=gains.get, default=None)",
                               "min(ranked, key=lambda p: people.get(p, 0), default=None)")), ""),
    ("people-share", edited((GAINS, "100 * counts[pair] / len(targets) * people.get(pair, 0)")),
     "The pair was multiplied by the share of mistakes that people make too. Only the rest can be "
     "gained: 1 - people."),
    ("unlisted-left-out", edited((GAINS, GAINS.replace("get(pair, 0)", "get(pair, 1)"))),
     "A pair that is not listed in people counted as one with nothing to gain. Nothing is known "
     "about it: people.get(pair, 0)."),
    ("whole-ceiling", edited((PAID, "100 * counts.get(work_on, 0) / len(targets)")),
     "That is the gain if all of the pair's mistakes could be fixed. People make some of them too: "
     "multiply by 1 - people."),
    ("share-of-mistakes", edited((GAINS, GAINS.replace("len(targets)", "wrong.sum().item()"))),
     "That is the pair's share of the mistakes, in percent. Points of accuracy are relative to all "
     "examples: divide by len(targets)."),
    ("all-pairs", edited((PAID, "sum(gains.values())")),
     "That is the gain of all pairs together. Give the gain of the pair to work on."),
    ("not-in-points", edited((PAID, PAID + " / 100")),
     "This is right as a share of all examples, but points are 100 times that."),
    ("fails-without-mistakes", edited((", key=gains.get, default=None)", ", key=gains.get)")),
     ""),
)  # fmt: skip

EXERCISE = Exercise(
    id="05.errors",
    title="the mistakes, and which to work on",
    source='Lecture 3, "Error analysis · categorize, then prioritize"',
    ledger=("N24", "S19", "T24", "T28", "X09"),
    minutes=20,
    difficulty=2,
    read=("course.analysis.confusion", "course.analysis.collect_errors", "N24"),
    hints=(
        "wrong = said != targets selects the mistakes; everything except the recalls is computed "
        "from them.",
        "A pair is (min(t, s), max(t, s)); a Counter counts them. places = "
        "wrong.nonzero().flatten() gives the positions of the mistakes; sort these by confidence.",
        "gain = 100 * count / len(targets) * (1 - people.get(pair, 0)); sort the pairs with "
        "key=lambda pair: (-counts[pair], pair); max(gains, key=gains.get, default=None).",
    ),
    signature="error_report(logits, targets, people, n)",
    parts=(
        Part("recall", "recall of each class that occurs", points=0.5,
             fields=("recall", "disturbed")),
        Part("pairs", "the pairs of classes that are mixed up", points=1, fields=("pairs",)),
        Part("confident", "the most confident mistakes", points=1, cases=3, fields=("confident",)),
        Part("work_on", "the pair to work on, and its gain", points=1, cases=4,
             fields=("work_on", "gain")),
        Part("edges", "no mistake at all, and nothing to gain", points=0.5, hidden=True),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={
        "recall": "the recall of class",
        "pairs": "the pairs",
        "confident": "the positions of the most confident mistakes",
        "work_on": "the pair to work on",
        "gain": "the points to gain",
    },
    wrong=(
        *(Wrong(name, function, message, sure=name in ("fails-without-mistakes", "needs-a-gain"))
          for name, function, message in WRONG),
        *common(plain, *LOOKS),
    ),
    right=(plain, with_a_matrix, with_the_course),
)  # fmt: skip
