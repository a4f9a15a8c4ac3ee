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
# The run is sound, the score is not good enough. What next? This chapter replaces opinions by counts: of
# mistakes, of what a perfect stage would bring, of how far a score moves by luck alone. At the end you
# study one change yourself and write the paragraph about it.
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
student("")

# %% [markdown]
# ## 3f.1 82 %, and now?
#
# Everything below the top rung of the debug ladder is passed, and still every sixth image is read wrongly. Four
# colleagues make four proposals. Decide before you read on:

# %% exercise 03f.at-82

# %% [markdown]
# ## 3f.2 Look
#
# Our own case: a network with one hidden layer of 64 units, 359 handwritten digits to train on and 1,438 to
# judge it by. **Guess:** how many of the 1,438 does it misread?

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
# A score says how many, never which. So look, at a random sample: the most confident mistakes are good
# for finding wrong labels, but their shares are not those of all mistakes. What would *you* call the
# causes?

# %%
errors.plot(18)

# %% [markdown]
# Strokes that break, loops that close, digits cut off at the edge of the 8 × 8 box. The computer can
# at least count which digit is taken for which. **Guess:** which pair is mixed up most often?

# %%
guess("03f.pair", ...)

# %%
pairs = Counter(f"{min(m.target, m.prediction)}-{max(m.target, m.prediction)}"
                for m in errors.mistakes)
print(pairs.most_common(5))
reveal("03f.pair", pairs.most_common(1)[0][0])
confusion(predict(model, val_loader)).plot()

# %% [markdown]
# The pair of the lecture's figure, 4 and 9, is not among the first: your data have mistakes of their own. And
# the first pair holds about an eighth of them, one mistake more than the second: another seed may swap the two.

# %% [markdown]
# ## 3f.3 Sort and count
#
# A bucket is a cause that one action could remove. Its *ceiling* is what accuracy gains if all of it is
# repaired and nothing else changes: its share of the mistakes, times the share of images that are misread.
# The lecture sorts 100 mistakes of a model at 82 %. **Guess:** how sure is the first share, 32 of 100?

# %%
guess("03f.half-width", ...)

# %%
worked.compute("N24")

# %% [markdown]
# Nine points to each side: the first bucket (32) and the second (28) cannot be told apart. That is what a hundred
# is good for, the order of magnitude: the last bucket is not worth a week, whichever of the first two wins.
#
# Now our own. Buckets may be given by hand, `errors.tag(17, "cut off")`, or by functions of a mistake, of
# which the first that says yes counts:

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
# The black lines are bootstrap intervals: what other validation images might have said. Both buckets with a 1 ask
# for the same action. Put them together, and look at the order again:

# %%
one_action = {"1 and another": lambda m: 1 in (m.target, m.prediction)}
errors.assign(one_action | rules)
for row in errors.table().rows:
    print(f"{row.bucket:15} {row.count:3}  at most {row.ceiling.value:.2f} points")

# %% [markdown]
# Now the 1 comes first, before the 8. Buckets are made by *action*, not by looks: two looks with one remedy are one
# bucket, one look with two remedies is two.
#
# The same on a board, with every mistake to look at: merge buckets, look at ten mistakes only, or at those of
# which the network was most confident. When does the order hold?

# %%
from course.widgets import ErrorBuckets

ErrorBuckets(looked_at=20)

# %% [markdown]
# Usually nobody looks at all mistakes, only at a random sample of n. A bucket's share p of the sample is then an
# estimate. Wilson's interval also holds for small buckets: it is all the true shares that would not be
# surprised by p. Its middle is (p + z²/2n) / (1 + z²/n), and it reaches
# z √(p(1 − p)/n + z²/4n²) / (1 + z²/n) to each side, where z = 1.96 for 95 %.

# %% exercise 03f.buckets
# A row per bucket: how many, the most it can bring, and between what. The ends are Wilson's for the share of
# the sample, turned into points as the gain is. scipy.stats.binomtest may be used.
def bucket_table(sample, num_mistakes, num_examples):
    """The buckets of a random sample of a model's mistakes, the largest first.

    Args:
        sample: The bucket of each mistake that was looked at: a list of names, perhaps empty.
        num_mistakes: Mistakes on the whole validation set, looked at or not.
        num_examples: Validation examples, right ones and wrong ones.

    Returns:
        A list with a dictionary per bucket of the sample, by falling count, equal counts by name:
        "bucket": its name, "count": mistakes of the sample in it, an int,
        "gain": points of accuracy (0 to 100) if all of the bucket's mistakes on the
        whole set were repaired, "low" and "high": the 95 % interval of the gain.
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
# Compare with the table of all mistakes above: an order made of thirty is a first impression, and the intervals
# say so, since those of neighbours overlap. It is enough to see what is *not* worth a week.

# %% [markdown]
# ## 3f.4 The stage that is worth the work
#
# In a pipeline the mistakes of one stage become inputs of the next. Ceiling analysis replaces one stage at a time
# by the truth and measures the whole. **Guess** for the lecture's pipeline: how many points lie beyond the
# sum of the three single gains?

# %%
guess("03f.together", ...)

# %%
worked.compute("N25")

# %% [markdown]
# Seven of eighteen points belong to no stage alone: they come back only when two are repaired. Here is a
# pipeline that runs. Codes of three digits, each somewhere in a noisy strip: a detector cuts out the digit, a
# classifier names it, a corrector replaces an unknown code by the nearest known one. **Guess:** which loses most?

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
# The bars say *classifier*. But a perfect classifier knows the digit even where the detector cut out
# noise: its oracle hides what was lost before it. The diamonds replace stage after stage from the front,
# and say *detector*. Here the interaction is negative, since two single gains repair the same codes.
#
# Replace stages yourself, alone and together, and make each one's task harder or easier:

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
# Six runs on the digits, recorded as they went. They differ in a setting, in the data, or in one epoch. Look
# at each of them and say its state before you read the statements below.

# %%
from course.analysis.recorded import RUNS, recorded
from course.plots.curves import plot_runs

plot_runs({name: recorded(name) for name in RUNS})

# %% exercise 03f.curves

# %%
for name, run in RUNS.items():
    print(f"{name}: {read_curves(recorded(name)).verdict:12} ({run.says})")

# %% [markdown]
# The reading knows losses alone, so it calls runs 4 and 5 sound, and as runs they are: in one the ruler is
# coarse, in the other four batches were wrong. A jump of the training curve is about what was *trained on*;
# a jump of validation alone is about what is *measured with*, or about too large a step.

# %% [markdown]
# A finished curve is easy to read, one that grows is not. Hide the reading, play a run from its first epoch and
# say its state; then choose how many bad epochs early stopping waits for, and see where it stops.

# %%
from course.widgets import TrainingCurves

TrainingCurves()

# %% [markdown]
# ## 3f.6 The luck of a seed
#
# The same network, the same data, the same split; only the seed differs, which draws the first weights and the order
# of the batches. **Guess:** how far apart are the best and the worst of 20 seeds?

# %%
guess("03f.spread", ...)

# %%
baseline = [points(data, seed) for seed in range(20)]
wider = [points(data, seed, **CHANGES["wider"]) for seed in range(20)]
print(f"best less worst: {max(baseline) - min(baseline):.2f} points, "
      f"standard deviation {stdev(baseline):.2f}")
reveal("03f.spread", max(baseline) - min(baseline))
plot_scores({"64 units": baseline, "256 units": wider})

# %% [markdown]
# Four times as many units are better on average, and the clouds overlap. A study with one seed draws one point of
# each. **Guess:** with how many of the 20 seeds is the wider network *not* better?

# %%
guess("03f.lucky", ...)

# %%
differences = [b - a for a, b in zip(baseline, wider, strict=True)]
reveal("03f.lucky", sum(d <= 0 for d in differences))
plot_pairs(baseline, wider, ("64 units", "256 units"))

# %% [markdown]
# A difference is judged by its own scatter. Its mean over n seeds scatters by s / √n, where s is the standard
# deviation of the differences, and an interval reaches Student's t times that to each side: 4.30 for three
# seeds, 2.26 for ten, 1.96 for very many.

# %%
low, high = paired_interval(differences, level=0.95)
print(f"wider less narrow: {mean(differences):+.2f} points, "
      f"95 % {low:+.2f} to {high:+.2f}")

# %% [markdown]
# Is it worth while to pair, instead of twenty seeds for one setting and twenty others for the other? Compare the
# scatter of the differences with what two independent runs would have. Once for the wider network, once for
# weight decay, which leaves first weights and batches of a seed as they are:

# %%
decayed = [points(data, seed, **CHANGES["decay"]) for seed in range(20)]
for name, variant in (("wider", wider), ("decay", decayed)):
    pairs = stdev(b - a for a, b in zip(baseline, variant, strict=True))
    apart = (stdev(baseline) ** 2 + stdev(variant) ** 2) ** 0.5
    print(f"{name}: own seeds {apart:.2f}, in pairs {pairs:.2f} points")
plot_widths({"own seeds": apart, "in pairs": pairs})

# %% [markdown]
# The wider network starts from other weights, its pairs share little luck, and pairing hardly helps. Decay shares
# most of it. From three seeds to ten an interval shrinks to less than a third: about half of that is √n,
# the other half the smaller t.

# %% exercise 03f.paired
# Judge a change seed by seed. scipy.stats may be used; the course's paired_interval may not.
def compare(baseline, variant, level, higher_is_better):
    """The mean difference of two settings, its interval, and what follows.

    Args:
        baseline, variant: Scores by seed: dictionaries, each in an order of its own. Only seeds
            that both have count; there are at least two of them, with unequal differences.
        level: Confidence of the interval, between 0 and 1, e.g. 0.95.
        higher_is_better: True for an accuracy, False for a loss.

    Returns:
        A dictionary. "difference": the mean of variant less baseline over the shared seeds;
        "low" and "high": the ends of Student's interval of it at this level; "verdict":
        "better" or "worse", the variant's, or "unclear" where the interval holds 0.
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
# The same network, the same truth; what grows is what may be said. Decide on the number of seeds beforehand. To add
# seeds until the verdict pleases is to test again and again, and one of many tests pleases by luck.

# %% exercise 03f.seeds
### BEGIN SOLUTION
def needed(spread):
    return -int(-((1.96 * spread / q.w) ** 2) // 1)


seeds = {"pairs": needed(q.s), "apart": needed(2**0.5 * q.r), "width": 1.96 * q.s / q.k**0.5}
### END SOLUTION

# %% [markdown]
# ## 3f.7 One change at a time
#
# The lecture's four scores. **Guess:** what does the bigger model bring to a run that has augmentation already?

# %%
guess("03f.bigger", ...)

# %%
worked.compute("N23")

# %% [markdown]
# Alone it seemed to bring 0.4 points, on top of augmentation it costs 0.1. Whoever changes both at once sees
# 84.0 and thanks both. An ablation therefore fixes data, split, epochs and seeds, and changes one setting per row.
# `ablate` refuses anything else, keeps each run in a file, and judges by intervals:

# %%
def build(seed, lr, hidden, smoothing):
    train_loader, val_loader = data.loaders(batch_size=128, seed=seed)
    layers = nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10)
    model = nn.Sequential(nn.Flatten(), *layers)
    criterion = nn.CrossEntropyLoss(label_smoothing=smoothing)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    return Trainer(model, criterion, optimizer, device=device), train_loader, val_loader


# %%
settings = dict(lr=0.01, hidden=64, smoothing=0.0)
changes = {"smoothing": dict(smoothing=0.1), "slower": dict(lr=0.002)}
with tempfile.TemporaryDirectory() as folder:
    study = ablate(build, settings, changes, folder, epochs=8, progress=False)
study.plot()

# %%
study

# %% [markdown]
# Three seeds are enough for the effect of the rate, which is several times the noise, and the table says of the other what
# it may say. "Within noise" is not "no effect": it is a question for more seeds.
#
# Written by hand such a table goes wrong quietly. This function is to give, by name of the change, the mean score of
# the variant less that of the baseline. In it two things change at once, more than one way.

# %% exercise 03f.fix-the-ablation
# `run(seed, split, **settings)` trains once and gives a score; it wants all of the settings. `baseline` holds
# them, `changes` gives by name what one variant changes. The study is about split 0. Find three bugs, change
# as little as you can; what is handed over stays as it is.

# %%
def run(seed, split, **settings):
    return points(load("digits", val_share=0.8, seed=split), seed, **settings)


two = {name: CHANGES[name] for name in ("smoothing", "dropout")}
gains_of(run, {"smoothing": 0.0, "dropout": 0.0}, two, [1, 2, 3])

# %% [markdown]
# ## 3f.8 A remedy that ought to help
#
# Few images? Make more of them: the usual remedy moves each training image by up to one pixel in every direction.
# **Guess:** what does it do to accuracy?

# %%
guess("03f.shift", ...)

# %%
shifted = [points(data, seed, **CHANGES["shift"]) for seed in range(6)]
gain = [b - a for a, b in zip(baseline, shifted, strict=False)]
low, high = paired_interval(gain, level=0.95)
print(f"shifted less baseline: {mean(gain):+.2f} points, "
      f"95 % {low:+.2f} to {high:+.2f}")
reveal("03f.shift", "better" if low > 0.5 else "worse" if high < -0.5 else "nothing")
plot_pairs(baseline[:6], shifted, ("baseline", "shifted"))

# %%
ink = data.val_inputs[:, 0, [0, 7]] > data.val_inputs.min()
touches = ink.any(dim=2).all(dim=1).float().mean()
print(f"{touches:.0%} of the images have ink in the first and in the last row")

# %% [markdown]
# It loses several points. Every one of these images touches the upper and the lower edge of its box, so a shift
# cuts strokes off and shows what validation never does; or 15 epochs are too few for nine times as many
# images. Each *or* is a study of its own. A remedy is tried, not believed.

# %% [markdown]
# ## 3f.9 Your study
#
# From a question to a paragraph, with the change that you choose. The order matters: question, number of seeds and rule
# first, then runs, then words. Use `points(data, seed, **CHANGES["dropout"])` and the tools above.

# %% exercise 03f.study

# %%
scorecard("03f-error-analysis-and-ablations")

# %% [markdown]
# ## What to keep
#
# - Count before acting: look at 100 mistakes, put them into buckets by action, compare ceilings.
# - The ceiling of a bucket is its share of the mistakes, times the error rate. Nobody reaches it.
# - In a pipeline replace stages by the truth, alone and from the front; single gains need not add up.
# - A jump in the training curve is about the batches, one in validation alone about the ruler.
# - One change per row, the same split, several seeds, differences in pairs, an interval.
# - "Within noise" asks for more seeds; "better" holds for what was varied, and for no more.
#
# **Further reading.** Lecture 3, "Error analysis" and "Ablation discipline"; Andrew Ng, *Machine Learning
# Yearning*, on error analysis and on pipelines; [course/analysis](../course/analysis/__init__.py).
#
# **Challenge, ungraded.** Repeat 3f.6 and 3f.8 on `load("fashion-mnist", num_examples=2_000, val_share=0.8)`, where it
# is installed. Does the shift cost anything there? Say what you expected before you ran it.
