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
# # 3e · Evaluation, splits and shift
#
# A validation score is a promise about examples that nobody has seen. When does the promise hold?
# This chapter asks what measuring may change, which metric and threshold to use, how sure a score
# is, for whom it holds, whether the split leaks, and how long the score stays true. You write the
# tools that check all this on real data, and end with the steps that lead to one honest number.
#
# The lecture, its essay and the engineering module are the texts behind this course. A code after
# *read* above an exercise stands for an item in them: in a terminal, `course ledger F99` says which
# one, `course claims F99` tests a claim, and `course museum B41` shows a bug.
#
# *Read a question, make a guess, then run the cell below it. Every cell may be run twice.*

# %%
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from autograde import ask, check, failing, guess, hint, ready, reveal, scorecard, student
from course import worked
from course.data import check_split, load
from course.engine import choose_device, seed_everything

device = choose_device()  # a GPU where there is one: data and models go there

# %%
student("")  # your name or id, as you hand in

# %% [markdown]
# This chapter's network reads handwritten digits. It gets few training images, so that it makes
# mistakes worth looking at.

# %%
data = load("digits", val_share=0.6).to(device)
few = data.train_inputs[:200], data.train_targets[:200]
print(data)


def make_model():
    seed_everything(3)
    layers = nn.Linear(64, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Dropout(0.3)
    return nn.Sequential(nn.Flatten(), *layers, nn.Linear(128, 10)).to(device)


# %%
def train(model, inputs, targets, steps=200, lr=5e-3):
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    model.train()
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
    return model.eval()


model = train(make_model(), *few)

# %% [markdown]
# ## 3e.1 Three switches
#
# Measuring has three switches: the mode (`train()` or `eval()`), the graph (`no_grad()` or not),
# and the update (`step()` or not). They are often flipped together and mistaken for a single
# switch. **Guess:** mode and graph give four combinations. In how many of them do two passes over
# the same batch agree?

# %%
guess("03e.same-twice", ...)

# %%
from course.analysis.switches import four_combinations

batch = data.val_inputs[:64], data.val_targets[:64]
rows = four_combinations(model, *batch)
print(*rows, sep="\n")
reveal("03e.same-twice", sum(row.same_twice for row in rows))

# %% [markdown]
# Read the table column by column. The mode alone decides whether the passes agree and whether
# BatchNorm's buffers change. The graph switch alone decides whether anything is kept for
# `backward()` (in train mode dropout adds its mask and its output), and without a graph no step is
# possible. A step does not depend on the mode: in eval mode the weights
# move just as well.

# %% exercise 03e.three-switches

# %% [markdown]
# When does validation need more memory with every batch? Here are three loops: one keeps the
# logits, one keeps them under `no_grad()`, and one keeps only a number. The meter counts the bytes
# of all live tensors.

# %%
from course.claims.lab import LiveBytes
from course.plots.evaluation import plot_held


def held(keep, graph=True):
    kept, sizes = [], []
    with LiveBytes() as live, torch.set_grad_enabled(graph):
        for inputs, targets in zip(data.val_inputs.split(64), data.val_targets.split(64)):
            logits = model(inputs)
            kept.append(keep(logits, F.cross_entropy(logits, targets)))
            sizes.append(live.now)
    return sizes


# %%
kept = {"logits": held(lambda logits, loss: logits),
        "logits, under no_grad": held(lambda logits, loss: logits, graph=False),
        "loss.item()": held(lambda logits, loss: loss.item())}
print({name: f"{sizes[-1] / 1000:.0f} kB at the end" for name, sizes in kept.items()})
plot_held(kept)

# %% [markdown]
# A graph that nobody keeps is freed with its batch, so the line for `loss.item()` is flat even
# without `no_grad()` (F46): it holds the graph of the batch at hand. Memory grows if tensors are kept, and it grows fast if each of them
# holds on to its graph. In the next exercise, two symptoms have two causes:

# %% exercise 03e.varies-and-grows

# %% [markdown]
# ## 3e.2 Loss, metric, threshold
#
# The loss is what a gradient can see; the metric is what you want. With a rare class the two can
# disagree. *Precision* is the share of the examples called rare that are rare, *recall* the share
# of the rare ones that are found, and F1 the harmonic mean of the two. **Guess:** 900 examples are common, 100 are rare, and a model says "common" every time.
# What is the F1 score of the rare class?

# %%
guess("03e.minority-f1", ...)

# %%
worked.compute("N60")

# %% [markdown]
# Accuracy asks for neither. Here is the same on digits, one of them against the other nine, with
# two scores that need no threshold: AUROC, the share of pairs in which the rare example scores
# above the common one, and AUPRC, the mean precision over the thresholds at which rare ones are
# found.

# %%
from course.analysis.loss_is_not_metric import imbalanced

imbalanced()

# %% [markdown]
# The plain loss wins on loss and on accuracy, but it finds fewer examples of the rare class than
# the weighted loss. No row wins in every column, so choose the metric before you look.
#
# A *threshold* turns a score into a decision. We split the breast cancer data into three parts and
# train a model with one logit on five measurements. **Guess:** how many of the malignant validation
# cases score below 0.5?

# %%
guess("03e.missed", ...)

# %%
from sklearn.datasets import load_breast_cancer
from course.data import stratified_split

inputs, benign = load_breast_cancer(return_X_y=True)
malignant = torch.tensor(1 - benign)
rest, test = stratified_split(malignant, 0.3, seed=1)
parts = [rest[part] for part in stratified_split(malignant[rest], 0.5, seed=1)] + [test]
mean, std = inputs[parts[0]].mean(0), inputs[parts[0]].std(0)
rows = torch.tensor((inputs - mean) / std, dtype=torch.float32)[:, :5]
print("training, validation, test:", list(map(len, parts)))

# %%
seed_everything(3)
detector = nn.Linear(5, 1)
optimizer = torch.optim.Adam(detector.parameters(), lr=0.05)
for _ in range(200):
    optimizer.zero_grad()
    logits, wanted = detector(rows[parts[0]])[:, 0], malignant[parts[0]].float()
    F.binary_cross_entropy_with_logits(logits, wanted).backward()
    optimizer.step()
with torch.no_grad():
    scores = torch.sigmoid(detector(rows)[:, 0])

# %%
val_scores, val_targets = scores[parts[1]], malignant[parts[1]]
found = val_scores[val_targets == 1] >= 0.5
print(f"{len(found)} malignant, {int(found.sum())} found at 0.5")
reveal("03e.missed", int((~found).sum()))

# %% [markdown]
# Nobody chose 0.5. A clinic would set a requirement: at least this share of the patients we call in
# must be ill, and within that limit we want to find as many as possible. Find the threshold:

# %% exercise 03e.threshold
# Predict 1 where the score is *at least* the threshold. The thresholds to try are the scores
# themselves. Choose on validation; afterwards the threshold is used as it is.
def choose_threshold(scores, targets, least_precision):
    """Find the threshold with the highest recall among those that are precise enough.

    Args:
        scores: [N] floats, higher for class 1: probabilities or logits. Some may be equal.
        targets: [N] of 0 and 1, long, at least one 1. Neither is changed.
        least_precision: The required precision, in (0, 1]; meeting it exactly is enough.

    Returns:
        (threshold, recall): two numbers, or one-element tensors. The threshold is one of the
        scores; if several have the highest recall, it is the highest of them. (inf, 0.0) if none
        is precise enough: then no example is predicted as 1.
    """
    ### BEGIN SOLUTION
    best = float("inf"), 0.0
    for threshold in scores.unique().flip(0):
        said = scores >= threshold
        hits = (targets[said] == 1).sum().item()
        recall = hits / targets.sum().item()
        if hits / said.sum().item() >= least_precision and recall > best[1]:
            best = threshold.item(), recall
    return best
    ### END SOLUTION

# %%
from sklearn.metrics import precision_recall_curve
from course.plots.evaluation import plot_thresholds

if ready(choose_threshold):
    threshold, recall = choose_threshold(val_scores, val_targets, 0.95)
    precision, recalls, tried = precision_recall_curve(val_targets, val_scores)
    print(f"threshold {threshold:.3f}: recall {recall:.3f} on validation")
    shown = tried, precision[:-1], recalls[:-1]
    display(plot_thresholds(*shown, least=0.95, chosen=threshold))

# %%
test_scores, test_targets = scores[parts[2]], malignant[parts[2]]
if ready(choose_threshold):
    said = test_scores >= threshold
    hits = int(test_targets[said].sum())
    print(f"test: precision {hits / int(said.sum()):.3f}")
    print(f"test: recall {hits / int(test_targets.sum()):.3f}")

# %% [markdown]
# Here the test part keeps the promise. Is that luck? Split the same 370 rows into validation and
# test again and again, and count.

# %%
rng, unseen, kept = np.random.default_rng(0), np.concatenate(parts[1:]), []
if ready(choose_threshold):
    for _ in range(50):
        one, other = np.split(rng.permutation(unseen), [len(parts[1])])
        chosen, _ = choose_threshold(scores[one], malignant[one], 0.95)
        said = scores[other] >= chosen
        kept.append(malignant[other][said].double().mean().item() >= 0.95)
    print(f"the required precision is met in {np.mean(kept):.0%} of 50 splits")

# %% [markdown]
# A promise would be kept every time. The threshold is fitted to the noise of its validation part, so
# a requirement that was just met there may be missed elsewhere. Ask for a little more than you
# need.

# %% [markdown]
# ## 3e.3 How sure is a number?
#
# Other validation examples would have given a different accuracy. **Guess:** 349 of 359 are right,
# which is 97.2 %. How many points does the 95 % interval extend to each side?

# %%
guess("03e.half-width", ...)

# %%
from course.analysis.scores import coverage, wald_interval, wilson_interval

print("Wald  ", wald_interval(349, 359))
print("Wilson", wilson_interval(349, 359))
found = wilson_interval(349, 359)
reveal("03e.half-width", 100 * (found.high - found.low) / 2)

# %% [markdown]
# An improvement from 97.2 to 97.8 %, that is, two more correct examples, lies well inside the
# interval. The textbook interval, Wald's, is symmetric and can extend beyond 1. Wilson's interval
# holds every true share p whose own standard error, √(p·(1 − p)/n), puts the measured share within
# z of them; z is 1.96 for 95 %. Which of the two keeps its promise?

# %%
from course.plots.evaluation import plot_coverage

for rule in (wald_interval, wilson_interval):
    share = coverage(rule, 0.95, 20)
    print(f"20 examples: {rule.__name__} contains 95 % in {share:.1%} of all studies")
nums = [10, 20, 40, 80, 160, 320, 640, 1280]
plot_coverage(nums, {"Wald": [coverage(wald_interval, 0.95, num) for num in nums],
                     "Wilson": [coverage(wilson_interval, 0.95, num) for num in nums]})

# %% [markdown]
# If a true accuracy of 95 % is measured on 20 examples, Wald's interval misses it in more than a
# third of all studies. When all 20 are right, which happens often, it has no width at all. Wilson's
# stays near its 95 %, now above and now below. Use
# Wilson's interval for shares, and the bootstrap (`course.analysis.bootstrap`) for everything else.

# %% exercise 03e.accuracy-interval
### BEGIN SOLUTION
p, z = 1 - q.w / q.n, 1.96
middle = (p + z**2 / (2 * q.n)) / (1 + z**2 / q.n)
half = z * np.sqrt(p * (1 - p) / q.n + z**2 / (4 * q.n**2)) / (1 + z**2 / q.n)
accuracy_interval = {
    "low": middle - half, "high": middle + half, "needed": z**2 * p * (1 - p) / (q.h / 100) ** 2,
}
### END SOLUTION

# %% [markdown]
# What do such intervals look like along a curve? Of two recorded runs, run 4 was validated on 16
# images, run 2 on 359.
# Each band is the Wilson interval of the accuracy it surrounds. Which jumps of run 4 would you
# believe?

# %%
from course.widgets import TrainingCurves

TrainingCurves(run="run 4", other="run 2")

# %% [markdown]
# ## 3e.4 Calibration
#
# A probability of 0.9 claims that nine of ten such answers are right. We train our network on
# only 60 digits, for 400 steps. **Guess:** it is right on about four of five validation
# images. How confident is it on average?

# %%
guess("03e.confidence", ...)

# %%
from course.analysis.scores import calibration, fit_temperature, predictions


def sure_model():
    model = train(make_model(), *(part[:60] for part in few), steps=400)
    with torch.no_grad():
        return model(data.val_inputs)


logits, half = sure_model(), len(data.val_targets) // 2
first = predictions(logits[:half], data.val_targets[:half])
second = predictions(logits[half:], data.val_targets[half:])
print(calibration(first))
reveal("03e.confidence", calibration(first).mean_confidence)

# %% exercise 03e.calibration-error
# The *expected calibration error* sorts predictions into bins by confidence. For each bin it
# compares the mean confidence with the accuracy, and it averages these gaps. Write it in torch,
# NumPy or plain Python, without a library function that computes it.
def expected_calibration_error(probabilities, targets, num_bins):
    """Mean of |mean confidence − accuracy| over the bins, each weighted by its share of examples.

    Args:
        probabilities: [N, C], float32 or float64, rows that sum to 1, without a graph. The largest
            entry of a row (there are no ties) is the confidence, its position the predicted class.
        targets: [N] class indices. Neither is changed.
        num_bins: Bins of equal width between 0 and 1. Bin b, from 0, holds b / num_bins <
            confidence <= (b + 1) / num_bins, compared in float32 or float64: either is right.
            Bins without examples add nothing.

    Returns:
        The error, between 0 and 1: a float, or a one-element tensor without a graph.
    """
    ### BEGIN SOLUTION
    confidence, predicted = probabilities.max(dim=1)
    right = (predicted == targets).to(confidence.dtype)
    total = 0.0
    for b in range(num_bins):
        inside = (confidence > b / num_bins) & (confidence <= (b + 1) / num_bins)
        if inside.any():
            gap = (confidence[inside].mean() - right[inside].mean()).abs().item()
            total += gap * inside.sum().item() / len(targets)
    return total
    ### END SOLUTION

# %%
if ready(expected_calibration_error):
    error = expected_calibration_error(first.probabilities, first.targets, 10)
    print(f"yours {error:.4f}, torchmetrics' {calibration(first).ece:.4f}")

# %% [markdown]
# A single number can change how confident a model sounds without changing what it predicts: divide
# all logits by a *temperature*. We fit it on one half of validation and judge it on the other.

# %%
from course.plots.errors import plot_reliability

temperature = fit_temperature(first)
before, after = calibration(second), calibration(second, temperature=temperature)
print(before, after, sep="\n")
plot_reliability(before, after)

# %% [markdown]
# A point far from the diagonal at low confidence may stand for a single image. Not one prediction has
# changed, because dividing keeps the order of the logits. The calibration
# error fell, and so did the loss. A threshold that was chosen before would have to be chosen again.

# %% [markdown]
# ## 3e.5 For whom?
#
# A mean over all examples hides small groups. The description of the digits data mentions 13
# writers, and rows of one writer stand together. So cut the table into 13 stretches, train on five
# of them and validate on the other eight. **Guess:** how many points of accuracy lie between the
# best and the worst stretch?

# %%
guess("03e.best-and-worst", ...)

# %%
from sklearn.datasets import load_digits
from course.data import group_split

table = load_digits()
pictures = torch.tensor(table.images, dtype=torch.float32)[:, None].to(device) / 16
labels = torch.tensor(table.target).to(device)
stretch = np.arange(len(labels)) * 13 // len(labels)
old, new = group_split(stretch, 0.6, seed=1)
reader = train(make_model(), pictures[old], labels[old])
with torch.no_grad():
    right = (reader(pictures[new]).argmax(1) == labels[new]).cpu().numpy()

# %%
from course.analysis.scores import by_group
from course.plots.evaluation import plot_groups

writers = by_group(right, stretch[new])
reveal("03e.best-and-worst", 100 * (writers[-1].mean.value - writers[0].mean.value))
plot_groups(writers, right.mean())

# %% [markdown]
# The intervals of the best and the worst do not even touch: people who write like the top line are
# served far worse than the mean says. Which hospital, which camera, whose voice: somebody has to
# record such a column before anybody can look at it.

# %% [markdown]
# ## 3e.6 Five leaks
#
# Validation is only as good as its separation from training. Here are five leaks on real data, each
# next to an honest split of the same rows: rare rows *copied* before the split, *near copies* from
# a second export of the same patients, digits of the same writers (*groups*), neighbouring frames
# of a pan across a photo (*times*), and wines scaled by the mean and deviation of all rows.
# **Guess:** which of them flatters the score least?

# %%
guess("03e.harmless-leak", ...)

# %%
from course.analysis.leakage import five_leaks
from course.plots.evaluation import plot_leaks

leaks = list(five_leaks())
print(*leaks, sep="\n")
least = min(leaks, key=lambda leak: abs(leak.gain)).kind
reveal("03e.harmless-leak", "scaling" if least == "preprocessing" else least)
plot_leaks(leaks)

# %% [markdown]
# The plot shows errors, so lower looks better. Oversampling before the split gains a dozen points,
# because copies of validation's rare rows are in training. In `times` the error of the predicted
# brightness looks ten times too small. Scaling by all rows is wrong in principle, but its effect is invisible (F100): if 95 %
# became 70 %, look for another leak.
#
# Copies, groups and times take only a comparison of the two sides. Write it as a class, built
# once from the training side to check any validation side.

# %% exercise 03e.split-audit
# Positions are row numbers of the validation side, counted from 0, in ascending order.
class SplitAudit:
    """Find what a validation side shares with the training side.

    Args:
        inputs: Training rows [N, F], floats without nan.
        groups: A list with the group of each row: a name or a whole number.
        times: The time of each row, a tensor [N] of whole numbers, in any order.

    A method is given the inputs, groups or times of a validation side and returns positions: a
    list, a tuple or a 1-d tensor of ints. Each answer depends only on training and on the side
    given. The arguments are not changed.
    """

    def __init__(self, inputs, groups, times):
        ### BEGIN SOLUTION
        self.rows = set(map(tuple, inputs.tolist()))
        self.groups, self.last = set(groups), times.max()
        ### END SOLUTION

    def copies(self, inputs):
        """Rows that equal a training row, number by number; -0.0 equals 0.0."""
        ### BEGIN SOLUTION
        return [i for i, row in enumerate(inputs.tolist()) if tuple(row) in self.rows]
        ### END SOLUTION

    def shared(self, groups):
        """Examples whose group also occurs in training."""
        ### BEGIN SOLUTION
        return [i for i, group in enumerate(groups) if group in self.groups]
        ### END SOLUTION

    def early(self, times):
        """Examples no later than training's latest time; an equal time is not later."""
        ### BEGIN SOLUTION
        return [i for i, time in enumerate(times) if time <= self.last]
        ### END SOLUTION

    def clean(self, inputs, groups, times):
        """Examples with none of the three faults."""
        ### BEGIN SOLUTION
        bad = {*self.copies(inputs), *self.shared(groups), *self.early(times)}
        return [i for i in range(len(groups)) if i not in bad]
        ### END SOLUTION

# %% [markdown]
# Here is your class on a random split of the digits, and then the course's `check_split`, which can
# look for all five leaks:

# %%
order = np.random.default_rng(0).permutation(len(labels))
a, b = order[360:], order[:360]
if ready(SplitAudit):
    audit = SplitAudit(torch.tensor(table.data[a]), stretch[a].tolist(), torch.tensor(a))
    copied = audit.copies(torch.tensor(table.data[b]))
    shared = audit.shared(stretch[b].tolist())
    print(f"{len(copied)} copies; {len(shared)} of {len(b)} share a group with training")

check_split((table.data[a], labels[a]), (table.data[b], labels[b]),
            groups=(stretch[a], stretch[b]), only=["copies", "near copies", "groups"])

# %% [markdown]
# Every random split of this famous data set, including ours in 3a, tests on writers whom the model
# has already met. The row `groups` above shows how much that flatters the score. But no checker can
# see a leak that happened before the rows were made, for example if features were chosen with all
# the labels. There the whole pipeline has to be fitted on training alone.

# %% exercise 03e.leaking-pipeline
# The rows come shuffled: the first `num_train` are for training, the others for validation. Scale
# both sides by the mean and standard deviation of the training rows, each row counted once. On both
# sides keep the `num_columns` columns in which, after scaling, the class means of *training* lie
# farthest apart, the largest gap first. Training's rows of class 1 are repeated once, at the end of
# training; validation's rows are not repeated. The pipeline below leaks in three places. Its
# arguments stay unchanged. Change as little as you can.

# %% [markdown]
# How much can such a leak flatter a score? Take labels that are coin tosses and 5,000 columns of
# noise, and choose 20 of the columns. No model can really be right more than half the time.

# %%
noise = torch.Generator().manual_seed(0)
features, coins = torch.randn(200, 5000, generator=noise), torch.arange(200) % 2
for name, seen in (("all rows", slice(None)), ("training alone", slice(0, 100))):
    x, y = features[seen], coins[seen]
    best = (x[y == 1].mean(0) - x[y == 0].mean(0)).abs().topk(20).indices
    x, y = features[:100, best], coins[:100]
    centres = torch.stack([x[y == label].mean(0) for label in (0, 1)])
    said = torch.cdist(features[100:, best], centres).argmin(1)
    print(f"columns chosen by {name}: {(said == coins[100:]).double().mean():.0%} right")

# %% [markdown]
# The validation labels helped to choose the columns, so the columns know the validation labels. No
# row is on both sides, so no check of the split can find this leak.

# %% [markdown]
# ## 3e.7 Three shifts
#
# Even a split without leaks only promises results on more of the same. The world may change in
# three ways: in the inputs (*covariate* shift), in the shares of the classes (*label* shift), or in
# what a label means (*concept* shift). **Guess:** how many of the three can be noticed from the
# inputs alone, without labels?

# %%
guess("03e.seen-by-inputs", ...)

# %%
from course.analysis.shift import KINDS, shifted_digits, tell_shift

told = {}
for kind in KINDS:
    world = shifted_digits(kind)
    net = train(make_model(), *(part.to(device) for part in world.train)).cpu()
    with torch.no_grad():
        hit = [net(x).argmax(1) == y for x, y in (world.val, world.production)]
    told[kind] = tell_shift(world.val, world.production, right=hit)
    print(f"simulated {kind:9} -> {told[kind]}")

# %%
from course.plots.evaluation import plot_shifts

reveal("03e.seen-by-inputs", sum(shift.auc > 0.55 for shift in told.values()))
for kind, shift in told.items():
    print(f"{kind:9} {shift.what_to_do}")
plot_shifts(told)

# %% [markdown]
# Two questions tell them apart. Can a classifier tell new inputs from validation inputs (an area
# under the curve, AUC, above 0.5)? If so, can it still do that when both sides hold equally many
# examples of each class? Yes means covariate shift, no means label shift. If it never could, but
# accuracy has fallen, the labels have changed their meaning, and only freshly labelled examples can
# show that. The lines above the figure say what to do in each case; `none` is the control.

# %% exercise 03e.good-then-poor

# %% [markdown]
# ## 3e.8 Three parts
#
# Validation is for choosing: the epoch, the threshold, the candidate. But data that were used to
# choose no longer give an honest score. Let 1 to 100 candidates compete on breast cancer, with 60
# examples in each part and 389 others standing in for the truth. **Guess:** with 100 candidates, by
# how many points is the best test score too high?

# %%
guess("03e.optimism", ...)

# %%
from course.analysis.choosing import cost_of_choosing
from course.plots.evaluation import plot_choosing

cost = cost_of_choosing()
print(cost)
reveal("03e.optimism", 100 * cost.optimism[-1])
plot_choosing(cost)

# %% [markdown]
# The best of many scores is partly the luckiest. Choosing on validation does not choose any better,
# but it keeps the test score honest, if you read that score only once. The museum shows the same as
# a bug, with labels that are pure chance: `course museum B41` in a terminal.

# %% exercise 03e.final-score

# %%
scorecard("03e-evaluation-splits-and-shift")

# %% [markdown]
# ## What to keep
#
# - The mode controls layers, `no_grad()` the graph, `step()` the weights; measuring flips all
#   three.
# - Memory grows with what you keep, not with what you compute.
# - Choose metric and threshold before you open the test set; report a score with its interval, and
#   by group.
# - Confidence is a separate claim: measure it, and fit one temperature on validation.
# - Split by what repeats: copies, patients, time. Whatever is fitted is fitted on training alone.
# - To tell shifts apart, ask whether a classifier can tell old inputs from new ones, and whether it
#   still can within each class.
# - Use three parts: one to train, one to choose, one to read once.
#
# **Further reading.** Guo et al., *On calibration of modern neural networks* (2017); Wilson, *Probable
# inference* (1927); `course claims F99`, `F100` and `F143` in a terminal;
# [course/data/split_check.py](../course/data/split_check.py).
#
# **Challenge, ungraded.** Split the digits by stretches of rows as above, and beat a linear model's
# accuracy on unseen writers by more than its interval. Which augmentation helps there but not on a
# random split?
