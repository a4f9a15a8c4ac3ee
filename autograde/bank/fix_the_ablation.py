"""03f.fix-the-ablation: changes that pile up, a split that moves along, the best seed reported."""

from __future__ import annotations

from functools import partial

import torch

from autograde.bank.harness import Watch
from autograde.exercise import (
    Answer,
    AnswerError,
    Case,
    Draw,
    Exercise,
    Part,
    Wrong,
    as_number,
    kept,
)
from autograde.kinds.fix import change_size, variant

GIVEN = """
def gains_of(run, baseline, changes, seeds):
    settings, gains = baseline, {}
    reference = [run(seed, 0, **baseline) for seed in seeds]
    for name, change in changes.items():
        settings.update(change)
        scores = [run(seed, seed, **settings) for seed in seeds]
        gains[name] = max(scores) - sum(reference) / len(reference)
    return gains
"""
MOST = 6
"""Lines that may differ: four are changed, and a name for a mean is welcome."""
SETTINGS = {"lr": (0.3, 0.1, 0.03), "hidden": (64, 128, 256), "dropout": (0.0, 0.2, 0.5),
            "decay": (0.0, 0.01, 0.1)}  # fmt: skip
PRIME = 7_919
"""Makes luck of a seed and a split: neighbours have nothing in common."""


def draw(source: Draw, part: str) -> Case:
    """Studies in which only what the part asks about can be wrong.

    `pile`: one seed, so that best and mean are the same, and a split that does not matter. `split`:
    one seed and one change. `mean`: one change, a split that does not matter. Seed 0 is never
    drawn: there a split of the seed's number is the right one.
    """
    names = source.shuffled(list(SETTINGS))
    baseline = {name: SETTINGS[name][0] for name in names}
    count = 1 if part in ("split", "mean") else source.integer(2, 4)
    changes = {}
    for name in source.shuffled(names)[:count]:
        value = source.choice(SETTINGS[name][1:])
        changes[f"{name} = {value:g}"] = {name: value}
    if part == "pile" and source.index == 1:  # one change of two settings
        first, *_, last = names
        both = {name: SETTINGS[name][1] for name in (first, last)}
        changes[f"{first} and {last}"] = both
    seeds = source.shuffled(range(1, 30))[
        : 1 if part in ("pile", "split") else source.integer(3, 5)
    ]
    return {
        "baseline": baseline,
        "changes": changes,
        "seeds": seeds,
        "effects": {name: 1 + source.uniform(0.5, 4.0) * source.choice((-1, 1)) for name in names},
        "start": source.uniform(70, 85),
        "of_seed": source.uniform(1, 3),
        "of_split": 0.0 if part in ("pile", "mean") else source.uniform(2, 5),
        "crossed": source.uniform(0.2, 0.5),
    }


def score_of(case: Case, seed: int, split: int, settings: dict[str, float]) -> float:
    """A run's score: what the settings bring, together and alone, and the luck of both draws."""
    places = [SETTINGS[name].index(settings[name]) for name in SETTINGS]
    effects = [case["effects"][name] * place for name, place in zip(SETTINGS, places, strict=True)]
    together = case["crossed"] * sum(places) ** 2
    code = sum(place * 3**i for i, place in enumerate(places))  # luck is a setting's own
    luck = case["of_seed"] * (seed * (PRIME + code) % 101 / 101)
    return (
        case["start"]
        + sum(effects)
        + together
        + luck
        + case["of_split"] * (split * PRIME % 103 / 103)
    )


def run(function, case: Case, device: torch.device) -> Answer:
    """The gains, which runs were made, what was changed on the way."""
    made = set()

    def train(seed, split, **settings):
        if set(settings) != set(SETTINGS):
            raise TypeError(f"run() needs the settings {', '.join(case['baseline'])}")
        made.add(str((int(seed), int(split), sorted(settings.items()))))
        return score_of(case, seed, split, settings)

    baseline, seeds = dict(case["baseline"]), list(case["seeds"])
    changes = {name: dict(change) for name, change in case["changes"].items()}
    each = {f"the dictionary changes[{name!r}]": change for name, change in changes.items()}
    watch = Watch(data={"baseline": baseline, "changes": changes, "seeds": seeds, **each})
    returned = function(train, baseline, changes, seeds)
    return {
        "gains": kept(_gains, returned),
        "runs": sorted(made),
        "disturbed": watch.changed(),
        "changed": change_size(GIVEN, function, most=MOST),
    }


def _gains(returned: object) -> dict[str, float]:
    if not isinstance(returned, dict):
        kind = type(returned).__name__
        raise AnswerError(f"Return a dictionary of gains by name; yours is a {kind}.")
    return {str(name): as_number(gain, "a gain") for name, gain in returned.items()}


START = "    settings, gains = baseline, {}\n"
PILE = "        settings.update(change)\n"
SCORES = "run(seed, seed, **settings)"
BEST = "max(scores) - sum(reference) / len(reference)"
FRESH = "        settings = {**baseline, **change}\n"
MEAN = "sum(scores) / len(scores) - sum(reference) / len(reference)"
FIXED = GIVEN
for old, new in ((START, "    gains = {}\n"), (PILE, FRESH), (SCORES, "run(seed, 0, **settings)"),
                 (BEST, MEAN)):  # fmt: skip
    FIXED = FIXED.replace(old, new)

fixed = partial(variant, FIXED, __file__)
reference = fixed()
piles_up = fixed((FRESH, PILE), ("    gains = {}\n", "    settings, gains = dict(baseline), {}\n"))
spoils_the_baseline = fixed((FRESH, PILE), ("    gains = {}\n", START))
copied_in_the_loop = fixed((FRESH, "        settings = baseline\n" + PILE))
split_by_seed = fixed(("run(seed, 0, **settings)", SCORES))
split_by_seed_in_both = fixed(
    ("run(seed, 0, **settings)", SCORES),
    ("run(seed, 0, **baseline)", "run(seed, seed, **baseline)"),
)
another_split = fixed(
    ("run(seed, 0, **settings)", "run(seed, 1, **settings)"),
    ("run(seed, 0, **baseline)", "run(seed, 1, **baseline)"),
)
best_seed = fixed((MEAN, BEST))
best_against_best = fixed((MEAN, "max(scores) - max(reference)"))
worst_seed = fixed((MEAN, "min(scores) - sum(reference) / len(reference)"))
other_way_round = fixed((MEAN, "sum(reference) / len(reference) - sum(scores) / len(scores)"))
sums = fixed((MEAN, "sum(scores) - sum(reference)"))
scores_not_gains = fixed((MEAN, "sum(scores) / len(scores)"))
last_seed = fixed((MEAN, "scores[-1] - reference[-1]"))
first_seed = fixed((MEAN, "scores[0] - reference[0]"))
one_reference = fixed((MEAN, "sum(scores) / len(scores) - reference[0]"))
medians = fixed((MEAN, "torch.tensor(scores).quantile(0.5) - torch.tensor(reference).quantile(0.5)"))  # noqa: E501  # fmt: skip
relative = fixed((MEAN, "sum(scores) / sum(reference) - 1"))
split_and_best = fixed(("run(seed, 0, **settings)", SCORES), (MEAN, BEST))
pile_and_best = fixed((FRESH, PILE), ("    gains = {}\n", START), (MEAN, BEST))
pile_and_split = fixed(
    (FRESH, PILE), ("    gains = {}\n", START), ("run(seed, 0, **settings)", SCORES)
)
best_gain = fixed((MEAN, "max(b - a for a, b in zip(reference, scores))"))
baseline_again = fixed(
    (FRESH, "        settings = dict(baseline) if not gains else baseline\n" + PILE)
)
one_seed = fixed(
    ("run(seed, 0, **settings)", "run(0, 0, **settings)"),
    ("run(seed, 0, **baseline)", "run(0, 0, **baseline)"),
)
baseline_wins = fixed(("{**baseline, **change}", "{**change, **baseline}"))
first_for_all = fixed(("run(seed, 0, **settings)", "run(seeds[0], 0, **settings)"))
over_the_changes = fixed(("sum(scores) / len(scores) - sum", "sum(scores) / len(changes) - sum"))
seed_zero = fixed(("run(seed, 0, **settings)", "run(0, 0, **settings)"))

with_a_copy = fixed((FRESH, "        settings = dict(baseline)\n" + PILE))
in_pairs = fixed((MEAN, "sum(b - a for a, b in zip(reference, scores)) / len(seeds)"))
with_a_tensor = fixed((MEAN, "torch.tensor(scores).double().mean() - torch.tensor(reference).double().mean()"))  # noqa: E501  # fmt: skip
with_or = fixed((FRESH, "        settings = baseline | change\n"))


EXERCISE = Exercise(
    id="03f.fix-the-ablation",
    title="two things at once",
    source='Lecture 3, "Ablation discipline"',
    kind="fix",
    ledger=("N23", "T27"),
    minutes=12,
    difficulty=2,
    read=("T27", "N23", "course.analysis.ablate"),
    hints=(
        "Print the seed, split and settings of every run. How does a variant's run differ from the "
        "baseline's run with the same seed?",
        "Ask three questions: which settings does the second change start from, which split does a "
        "variant see, and what is compared with the baseline's mean?",
        "settings = {**baseline, **change} in the loop; split 0 in every run; the mean of the "
        "scores minus the mean of the reference.",
    ),
    signature="gains_of(run, baseline, changes, seeds)",
    parts=(
        Part("pile", "several changes, one seed", points=1, fields=("gains", "disturbed")),
        Part("split", "one change, one seed, a split that matters", points=1, fields=("gains",)),
        Part("mean", "one change, several seeds", points=1, fields=("gains",)),
        Part("whole", f"a whole study: gains and the runs made, at most {MOST} lines changed",
             points=1, fields=("gains", "runs", "disturbed", "changed")),
    ),
    reference=reference,
    draw=draw,
    run=run,
    tolerance={torch.float32: (1e-5, 2e-5)},  # scores near 80, as float32: off by up to 8e-6
    says={"gains": "the gain of", "runs": "the runs made, without repeats, at",
          "changed": "the number of lines changed"},
    wrong=(
        Wrong("piles-up", piles_up,
              "From the second change on, the settings still contain the earlier changes, so "
              "several things change at once. Start each variant from the baseline."),
        Wrong("spoils-the-baseline", spoils_the_baseline,
              "Each variant keeps the earlier changes, and the baseline dictionary that was passed "
              "in is changed too: update() writes into the same dictionary. Make a new one."),
        Wrong("spoils-the-baseline", copied_in_the_loop),
        Wrong("split-by-seed", split_by_seed,
              "A variant's run sees a different split than the baseline's, so the gain mixes "
              "settings and split. Use split 0 for every run."),
        Wrong("split-by-seed-in-both", split_by_seed_in_both,
              "Each seed has its own split, in the baseline too. The study uses split 0: pass 0 to "
              "every run."),
        Wrong("another-split", another_split),
        Wrong("best-seed", best_seed,
              "The variant's best seed is compared with the mean of the baseline: more seeds alone "
              "would raise that. Compare mean with mean."),
        Wrong("best-against-best", best_against_best,
              "The best seeds are compared. Which seed is best is luck: compare the means."),
        Wrong("worst-seed", worst_seed,
              "The variant's worst seed is compared with the mean of the baseline. Compare mean "
              "with mean."),
        Wrong("first-for-all", first_for_all,
              "Every run of a variant used the first seed. Pass each seed in turn."),
        Wrong("over-the-changes", over_the_changes,
              "The sum over a variant's seeds was divided by the number of changes. Divide it by "
              "the number of seeds."),
        Wrong("other-way-round", other_way_round,
              "The gain has the wrong sign: it is variant minus baseline."),
        Wrong("sums", sums,
              "That is the gain summed over the seeds. Divide by the number of seeds."),
        Wrong("scores-not-gains", scores_not_gains,
              "Those are the variants' mean scores. A gain is the difference from the baseline's "
              "mean."),
        Wrong("last-seed", last_seed, "That is the gain with the last seed alone."),
        Wrong("first-seed", first_seed, "That is the gain with the first seed alone."),
        Wrong("one-reference", one_reference,
              "The mean of the variant is compared with the baseline's first seed alone."),
        Wrong("medians", medians,
              "The medians over the seeds are compared. Compare the means."),
        Wrong("one-seed", one_seed,
              "Every run, of baseline and variants, used seed 0. Pass each seed in turn."),
        Wrong("baseline-wins", baseline_wins,
              "All gains are 0: each variant ran with the baseline's own settings. When two "
              "dictionaries are merged, the second one wins: put the change second.", sure=True),
        Wrong("relative", relative),
        Wrong("seed-zero", seed_zero),
        Wrong("split-and-best", split_and_best,
              "Each variant now starts from the baseline. But its runs still see another split, "
              "and its best seed is compared with a mean."),
        Wrong("pile-and-best", pile_and_best,
              "Every run now sees split 0. But the settings still contain the earlier changes, and "
              "the best seed is compared with a mean."),
        Wrong("pile-and-split", pile_and_split,
              "Means are now compared. But the settings still contain the earlier changes, and a "
              "variant sees a different split than the baseline."),
        Wrong("best-gain", best_gain,
              "That is the gain with the best seed. Which seed is best is luck: take the mean."),
        Wrong("baseline-again", baseline_again),
    ),
    right=(with_a_copy, in_pairs, with_a_tensor, with_or),
)  # fmt: skip
