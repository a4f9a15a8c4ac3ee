# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 3f · Error analysis and ablations
#
# The run is sound, but the score is not good enough. What next? This chapter replaces opinions with
# numbers: how many mistakes of each kind there are, how much a perfect stage would gain, and how
# far a score moves by luck alone. At the end you study one change yourself and write the paragraph
# that reports it.
#
# The lecture, its essay and the engineering module are the texts behind this course. A code after
# *read* above an exercise stands for an item in them: in a terminal, `course ledger T27` says which
# one. `worked.compute("N24")` computes a worked number.
#
# *Read a question, make a guess, then run the cell below it. Every cell may be run twice. Stuck?
# `hint("03f.seeds")` gives three hints.*

# %%
import tempfile
from collections import Counter
from statistics import mean, stdev

import torch
from torch import nn

from autograde import ask, check, failing, guess, hint, ready, reveal, scorecard, student

# %%
from course import worked
from course.analysis import ablate, collect_errors, confusion, predict, read_curves
from course.analysis.ablation import paired_interval
from course.analysis.study import CHANGES, points, train
from course.data import load
from course.engine import Trainer, choose_device
from course.plots.seeds import plot_pairs, plot_scores, plot_widths

device = choose_device()  # a GPU where there is one: data and models go there

# %%
student("")  # your name or id, as you hand in

# %% [markdown]
# ## 3f.1 82 %: what now?
#
# The model has passed every rung of the debug ladder below the top one, and still it misreads more
# than one image in six. Four colleagues make four proposals. Decide before you read on:

# %% exercise 03f.at-82

# %% [markdown]
# ## 3f.2 Look
#
# In our own case, a network with one hidden layer of 64 units trains on 359 handwritten digits and
# is validated on 1,438. **Guess:** how many of the 1,438 does it misread?

# %%
guess("03f.misread", ...)

# %%
data = load("digits", val_share=0.8)
model = train(data, seed=0)
_, val_loader = data.loaders(batch_size=256)
errors = collect_errors(model, val_loader, n=1_438, order="random")
print(data)
print(f"{errors.num_mistakes} misread, accuracy {errors.accuracy:.1%}")
reveal("03f.misread", errors.num_mistakes)

# %% [markdown]
# A score says how many images are misread, but not which ones. So look at a random sample of the
# mistakes. The most confident mistakes are good for finding wrong labels, but they are not
# representative of all mistakes. What causes would *you* name?

# %%
errors.plot(18)

# %% [markdown]
# You see broken strokes, closed loops, and digits cut off at the edge of the 8 × 8 box. The
# computer can at least count which digit is taken for which. **Guess:** which pair is mixed up most
# often?

# %%
guess("03f.pair", ...)

# %%
pairs = Counter(f"{min(m.target, m.prediction)}-{max(m.target, m.prediction)}"
                for m in errors.mistakes)
print(pairs.most_common(5))
reveal("03f.pair", pairs.most_common(1)[0][0])
confusion(predict(model, val_loader)).plot()

# %% [markdown]
# The pair in the lecture's figure, 4 and 9, is not near the top: every data set has its own
# mistakes. And the top pair holds only about an eighth of them, one mistake more than the second,
# so another seed may swap the two.

# %% [markdown]
# ## 3f.3 Sort and count
#
# A bucket holds the mistakes that one action could remove. Its *ceiling* is how much accuracy gains
# if the whole bucket is fixed and nothing else changes: its share of the mistakes, times the share
# of images that are misread. The lecture sorts 100 mistakes of a model at 82 %. **Guess:** the
# first bucket holds 32 of them. How many points does the 95 % interval of this share extend to each
# side?

# %%
guess("03f.half-width", ...)

# %%
worked.compute("N24")

# %% [markdown]
# Nine points to each side: the first bucket (32) and the second (28) cannot be ranked. A sample of
# a hundred gives only the order of magnitude, but that is useful: the last bucket is not worth a
# week, whichever of the first two is larger.
#
# Now our own mistakes. You can put them into buckets by hand, `errors.tag(17, "cut off")`, or with
# functions of a mistake. The first function that returns True decides:

# %%
rules = {
    "a 1 too many": lambda m: m.prediction == 1,
    "a 1 not seen": lambda m: m.target == 1,
    "8 and another": lambda m: 8 in (m.target, m.prediction),
    "rest": lambda m: True,
}
errors.assign(rules)
errors.table({name: "more images of slanted 1s" for name in rules if " 1 " in name})

# %%
errors.table().plot()

# %% [markdown]
# The black lines are bootstrap intervals: they show how the ceilings might vary with other
# validation images. Both buckets with a 1 call for the same action. Merge them, and look at the
# order again:

# %%
one_action = {"1 and another": lambda m: 1 in (m.target, m.prediction)}
errors.assign(one_action | rules)
for row in errors.table().rows:
    print(f"{row.bucket:15} {row.count:3}  at most {row.ceiling.value:.2f} points")

# %% [markdown]
# Now the 1 comes first, before the 8. Form buckets by *action*, not by appearance: two appearances
# with one remedy are one bucket; one appearance with two remedies is two buckets.
#
# Here is the same on a board that shows every mistake. Merge buckets, look at only ten mistakes, or
# look at the network's most confident ones. When does the order hold?

# %%
from course.widgets import ErrorBuckets

ErrorBuckets(looked_at=20)

# %% [markdown]
# Usually nobody looks at all mistakes, only at a random sample of n. A bucket's share p of the
# sample is then an estimate. Wilson's interval works for small buckets too: it holds all true
# shares for which the observed p would be no surprise. Its midpoint is (p + z²/2n) / (1 + z²/n),
# and it extends z √(p(1 − p)/n + z²/4n²) / (1 + z²/n) to each side, where z = 1.96 for 95 %.

# %% exercise 03f.buckets
# Give one row per bucket: its count, its ceiling, and an interval. The ceiling is the gain if all of
# the bucket's mistakes were fixed; its key is "gain". The ends of the interval are
# Wilson's for the bucket's share of the sample, converted to points in the same way as the gain.
# You may use scipy.stats.binomtest.
def bucket_table(sample, num_mistakes, num_examples):
    """Tabulate the buckets of a random sample of a model's mistakes, the largest first.

    Args:
        sample: The bucket of each mistake in the sample: a list of names, perhaps empty. It stays
            as it is.
        num_mistakes: Mistakes on the whole validation set, in the sample or not.
        num_examples: Validation examples, right or wrong.

    Returns:
        A list with a dictionary per bucket of the sample, largest count first, ties by name:
        "bucket": its name, "count": how many mistakes of the sample are in it, an int,
        "gain": points of accuracy (0 to 100) if all of the bucket's mistakes on the
        whole set were fixed, "low" and "high": the ends of the 95 % interval of the gain.
        Nothing is rounded. An empty sample gives an empty list.
    """
    ### BEGIN SOLUTION
    counts, n, z2 = Counter(sample), len(sample), 1.96**2
    points_of_one, rows = 100 * num_mistakes / num_examples, []
    for name in sorted(counts, key=lambda name: (-counts[name], name)):
        p = counts[name] / n
        middle = (p + z2 / (2 * n)) / (1 + z2 / n)
        half = (z2 * (p * (1 - p) / n + z2 / (4 * n**2))) ** 0.5 / (1 + z2 / n)
        ends = {"low": points_of_one * (middle - half), "high": points_of_one * (middle + half)}
        rows.append({"bucket": name, "count": counts[name], "gain": points_of_one * p, **ends})
    return rows
    ### END SOLUTION

# %%
looked_at = [errors.bucket_of(mistake) for mistake in errors.mistakes[:30]]
if ready(bucket_table):
    for row in bucket_table(looked_at, errors.num_mistakes, errors.num_examples):
        print(f"{row['bucket']:15} {row['count']:3}  {row['gain']:.2f} points "
              f"({row['low']:.2f} to {row['high']:.2f})")

# %% [markdown]
# Compare this with the table of all mistakes above. An order based on thirty mistakes is only a
# first impression, and the intervals say so: those of neighbouring rows overlap. But it is enough
# to see what is *not* worth a week.

# %% [markdown]
# ## 3f.4 The stage that is worth the work
#
# In a pipeline the mistakes of one stage become inputs of the next. Ceiling analysis replaces one
# stage at a time by the truth and measures the whole pipeline. **Guess:** in the lecture's
# pipeline, by how many points does perfecting all three stages together gain more than the sum of
# the three single gains?

# %%
guess("03f.together", ...)

# %%
worked.compute("N25")

# %% [markdown]
# Seven of the eighteen points belong to no single stage: they are won only when two or more stages
# are fixed together. Now run a pipeline. It reads codes of three digits, each digit somewhere in a
# noisy strip: a detector cuts out the digit, a classifier names it, and a corrector replaces an
# unknown code by the nearest known one.
#
# A perfect later stage can hide what an earlier one lost. So also replace the stages one after
# another from the front. **Guess:** which of these steps gains most?

# %%
guess("03f.stage", ...)

# %%
from course.analysis.ceiling import digits_pipeline

result = digits_pipeline()
lost = max(result.stages, key=lambda row: row.step_gain)
print(f"now {result.baseline:.1f}, all perfect {result.all_perfect:.1f} points")
reveal("03f.stage", lost.name)
result.plot()

# %% [markdown]
# The bars are the single gains, and they say *classifier*: a perfect classifier knows the digit
# even if the detector cut out noise. The diamonds are the steps from the front, and they say
# *detector*. Here the interaction is negative, because two single gains fix the same codes.
#
# Replace stages yourself, alone and together, and make each stage's task harder or easier:

# %%
from course.widgets.ceiling.widget import CeilingBoard

CeilingBoard()

# %% exercise 03f.ceiling
### BEGIN SOLUTION
best = max(q.d, q.r, q.c) - q.now
beyond = q.dr - q.d - q.r + q.now
ceiling = {key: 100 * count / q.n for key, count in
           (("largest", best), ("second", q.dr - q.d), ("both", beyond))}
### END SOLUTION

# %% [markdown]
# ## 3f.5 What the curves say
#
# Here are six recorded runs on the digits. They differ in a setting, in the data, or in one epoch,
# and one of them is validated on only 16 images. Look at each run and name its state before you read
# the statements below.

# %%
from course.analysis.recorded import RUNS, recorded
from course.plots.curves import plot_runs

plot_runs({name: recorded(name) for name in RUNS})

# %% exercise 03f.curves

# %%
for name, run in RUNS.items():
    print(f"{name}: {read_curves(recorded(name)).verdict:12} ({run.says})")

# %% [markdown]
# `read_curves` sees only the losses, and finds nothing wrong with runs 4 and 5. But run 4 is
# measured on too few validation images, and in run 5 four batches were wrong. A jump of the
# training curve points to what the model was *trained on*. A jump of validation alone points to
# what it is *measured on*, or to too large a step.

# %% [markdown]
# A finished curve is easy to read; a curve that is still growing is not. Hide the reading, play a
# run from its first epoch and name its state. Then choose how many bad epochs early stopping waits
# for, and see where it stops.

# %%
from course.widgets import TrainingCurves

TrainingCurves()

# %% [markdown]
# ## 3f.6 The luck of a seed
#
# Keep the network, the data and the split the same. Change only the seed, which determines the
# first weights and the order of the batches. **Guess:** how many points of accuracy lie between the
# best and the worst of 20 seeds?

# %%
guess("03f.spread", ...)

# %%
baseline = [points(data, seed) for seed in range(20)]
wider = [points(data, seed, **CHANGES["wider"]) for seed in range(20)]
print(f"best minus worst: {max(baseline) - min(baseline):.2f} points, "
      f"standard deviation {stdev(baseline):.2f}")
reveal("03f.spread", max(baseline) - min(baseline))
plot_scores({"64 units": baseline, "256 units": wider})

# %% [markdown]
# Four times as many units are better on average, but the clouds overlap. A study with one seed
# draws one point from each cloud. **Guess:** with how many of the 20 seeds is the wider network
# *not* better?

# %%
guess("03f.lucky", ...)

# %%
differences = [b - a for a, b in zip(baseline, wider, strict=True)]
reveal("03f.lucky", sum(d <= 0 for d in differences))
plot_pairs(baseline, wider, ("64 units", "256 units"))

# %% [markdown]
# Judge differences by their own spread. If s is the standard deviation of the differences, the
# standard error of their mean over n seeds is s / √n. The 95 % interval extends Student's t times
# that to each side: t is 4.30 for three seeds, 2.26 for ten, 1.96 for very many.

# %%
low, high = paired_interval(differences, level=0.95)
print(f"wider minus narrow: {mean(differences):+.2f} points, "
      f"95 % {low:+.2f} to {high:+.2f}")

# %% [markdown]
# Is it worth pairing the runs, rather than using twenty seeds for one setting and twenty different
# seeds for the other? Compare the spread of the differences with the spread that two independent
# runs would have. We do this for the wider network and for weight decay, which leaves a seed's
# first weights and batches as they are:

# %%
decayed = [points(data, seed, **CHANGES["decay"]) for seed in range(20)]
for name, variant in (("wider", wider), ("decay", decayed)):
    pairs = stdev(b - a for a, b in zip(baseline, variant, strict=True))
    apart = (stdev(baseline) ** 2 + stdev(variant) ** 2) ** 0.5
    print(f"{name}: own seeds {apart:.2f}, in pairs {pairs:.2f} points")
plot_widths({"own seeds": apart, "in pairs": pairs})

# %% [markdown]
# The wider network starts from different weights, so its pairs share little luck and pairing hardly
# helps. With decay the pairs share most of it. From three seeds to ten an interval shrinks to less
# than a third. About half of that comes from √n, the other half from the smaller t.

# %% exercise 03f.paired
# Judge a change seed by seed. You may use scipy.stats, but not the course's paired_interval.
def compare(baseline, variant, level, higher_is_better):
    """Compare two settings: the mean difference, its interval, and a verdict.

    Args:
        baseline, variant: Scores by seed: dictionaries, possibly in different orders. Only seeds
            that both have count; there are at least two, and their differences are not all equal.
        level: Confidence level of the interval, between 0 and 1, e.g. 0.95.
        higher_is_better: True for an accuracy, False for a loss.

    Returns:
        A dictionary. "difference": the mean of variant minus baseline over the shared seeds;
        "low" and "high": the ends of its Student's t interval at this level; "verdict": "better"
        or "worse" for the variant, or "unclear" if the interval contains 0.
    """
    ### BEGIN SOLUTION
    from scipy.stats import t

    each = [variant[seed] - baseline[seed] for seed in baseline if seed in variant]
    middle, n = mean(each), len(each)
    reach = t.ppf((1 + level) / 2, n - 1) * stdev(each) / n**0.5
    verdict = "better" if (middle > 0) == higher_is_better else "worse"
    if abs(middle) <= reach:
        verdict = "unclear"
    ends = {"low": middle - reach, "high": middle + reach}
    return {"difference": middle, "verdict": verdict, **ends}
    ### END SOLUTION

# %%
by_seed = dict(enumerate(baseline))
if ready(compare):
    for count in (3, 10, 20):
        said = compare(by_seed, dict(enumerate(wider[:count])), 0.95, True)
        print(f"{count:2} seeds: {said['difference']:+.2f} points, {said['low']:+.2f} to "
              f"{said['high']:+.2f}: {said['verdict']}")

# %% [markdown]
# The network and the truth stay the same; only what you may claim grows. Decide on the number of
# seeds beforehand. If you add seeds until you like the verdict, you test again and again, and one
# of many tests succeeds by luck.

# %% exercise 03f.seeds
### BEGIN SOLUTION
def needed(spread):
    return -int(-((1.96 * spread / q.w) ** 2) // 1)


seeds = {"pairs": needed(q.s), "apart": needed(2**0.5 * q.r), "width": 1.96 * q.s / q.k**0.5}
### END SOLUTION

# %% [markdown]
# ## 3f.7 One change at a time
#
# The lecture gives four scores: 82.0 for the baseline, 84.1 with augmentation, 82.4 with a bigger
# model, 84.0 with both. **Guess:** how many points does the bigger model add to a run that already
# has augmentation?

# %%
guess("03f.bigger", ...)

# %%
worked.compute("N23")

# %% [markdown]
# Alone it seemed to gain 0.4 points; on top of augmentation it costs 0.1. If you change both at
# once, you see 84.0 and give credit to both. An ablation therefore fixes data, split, epochs and
# seeds, and changes one setting per row. `ablate` refuses anything else, saves each run to a file,
# and judges by intervals:

# %%
def build(seed, lr, hidden):
    train_loader, val_loader = data.loaders(batch_size=128, seed=seed)
    layers = nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10)
    model, criterion = nn.Sequential(nn.Flatten(), *layers), nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    return Trainer(model, criterion, optimizer, device=device), train_loader, val_loader


# %%
settings = dict(lr=0.01, hidden=64)
changes = {"wider": dict(hidden=256), "slower": dict(lr=0.002)}
with tempfile.TemporaryDirectory() as folder:
    ablation = ablate(build, settings, changes, folder, epochs=8, progress=False)
ablation.plot()

# %%
ablation

# %% [markdown]
# A verdict looks at the interval alone. However large the difference, "within noise" means that
# more seeds are needed, not "no effect". And of many variants one may win by luck: after
# **Bonferroni**, two intervals of 97.5 % each hold jointly with 95 %.
#
# If you write such a table by hand, it can go wrong silently. The function below should give, for
# each named change, the mean score of the variant minus that of the baseline. But in more than one
# way it changes two things at once.

# %% exercise 03f.fix-the-ablation
# `run(seed, split, **settings)` trains once and returns a score; it needs all of the settings.
# `baseline` holds them, and `changes` maps the name of each variant to the settings that it
# changes. The study uses split 0. Find three bugs, and change as little as you can. The arguments
# must stay unchanged.

# %%
def run(seed, split, **settings):
    return points(load("digits", val_share=0.8, seed=split), seed, **settings)


two = {name: CHANGES[name] for name in ("wider", "decay")}
gains_of(run, dict(hidden=64, weight_decay=0.0), two, [1, 2, 3])

# %% [markdown]
# ## 3f.8 A remedy that ought to help
#
# Too few images? Then vary them: the usual remedy shifts each image of a batch at random, by up to
# one pixel in every direction. **Guess:** what does this do to accuracy?

# %%
guess("03f.shift", ...)

# %%
shifted = [points(data, seed, **CHANGES["shift"]) for seed in range(6)]
gain = [b - a for a, b in zip(baseline, shifted, strict=False)]
low, high = paired_interval(gain, level=0.95)
print(f"shifted minus baseline: {mean(gain):+.2f} points, "
      f"95 % {low:+.2f} to {high:+.2f}")
reveal("03f.shift", "better" if low > 0.5 else "worse" if high < -0.5 else "nothing")
plot_pairs(baseline[:6], shifted, ("baseline", "shifted"))

# %%
ink = data.val_inputs[:, 0, [0, 7]] > data.val_inputs.min()
touches = ink.any(dim=2).all(dim=1).float().mean()
print(f"{touches:.0%} of the images have ink in the first and in the last row")

# %% [markdown]
# Accuracy drops by several points. Why? Every one of these images touches the upper and the lower
# edge of its box, so a shift cuts strokes off and produces images that never occur in validation.
# Or perhaps 15 epochs are too few if each image comes in nine versions. Each possible reason needs
# its own study. Test a remedy before you believe in it.

# %% [markdown]
# ## 3f.9 Your study
#
# Now take a change of your choice from a question to a paragraph. The order matters: first the
# question, the number of seeds and the decision rule, then the runs, then the text. Use
# `points(data, seed, **CHANGES["dropout"])` and the tools above. Besides dropout of 0.3 and label
# smoothing of 0.1 there are `longer`, with 30 epochs instead of 15, and `filters`, with a convolution
# of 16 filters before the hidden layer.

# %% exercise 03f.study

# %%
scorecard("03f-error-analysis-and-ablations")

# %% [markdown]
# ## What to keep
#
# - Count before you act: look at 100 mistakes, put them into buckets by action, compare ceilings.
# - A bucket's ceiling is its share of the mistakes, times the error rate. In practice you never
#   reach it.
# - In a pipeline, replace stages by the truth, one alone and one after another from the front;
#   single gains need not add up.
# - A jump in the training curve points to the batches; a jump in validation alone points to how it
#   is measured.
# - Change one thing per row; use the same split, several seeds, paired differences and an interval.
# - "Within noise" calls for more seeds; "better" holds only for what was varied.
#
# **Further reading.** Lecture 3, "Error analysis" and "Ablation discipline"; Andrew Ng, *Machine Learning
# Yearning*, on error analysis and on pipelines; [course/analysis](../course/analysis/__init__.py).
#
# **Challenge, ungraded.** Repeat 3f.6 and 3f.8 on `load("fashion-mnist", num_examples=2_000,
# val_share=0.8)`, if it is installed. Does the shift cost anything there? Write down what you
# expect before you run it.
