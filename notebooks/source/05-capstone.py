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
# # 5 · Capstone: one project
#
# One project, from raw images to the note on which somebody decides whether to rely on your model. You
# write the pieces; the course's engine, ladder, doctor, rate finder and error analysis are your tools, and
# you may use all of them. Plan three sittings: data and bar, set-up and run, report.
#
# *Read a question, make a guess, then run the cell below it. Every cell may be run twice. Stuck?
# `hint("05.data")` gives three hints, `failing("05.data")` the smallest failing case.*

# %%
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from autograde import ask, check, failing, guess, hint, ready, reveal, scorecard, student

# %%
from course.analysis import ablate, collect_errors, predict
from course.analysis.scores.intervals import wilson_interval
from course.data import check_batch, find_fashion_mnist, group_split, random_split, takes
from course.debug import climb, diagnose
from course.engine import Callback, Trainer, evaluate, read_run
from course.lr_finder import lr_find
from course.plots.project import plot_bars, plot_headroom, plot_takes

# %%
student("")

# %% [markdown]
# ## 5.1 The brief
#
# A catalogue wants its photographs sorted into classes. Some objects were photographed more than once. Build
# a classifier, show how good it is on objects it has never seen, and say what it may be used for.
#
# The pieces have fixed names, since each is checked by what it does: on other images, other sizes, other
# numbers of classes, other seeds. How you write them is your choice.

# %% [markdown]
# | piece | what it gives | graded |
# | --- | --- | --- |
# | `make_data` | two sides without a leak | by behaviour |
# | `baselines` | the bar | by behaviour |
# | `make_setup` | model, loss, optimizer, loaders | contract, ladder, doctor |
# | `train` | a run that survives a kill | by behaviour |
# | `error_report` | which mistakes to work on | by behaviour |
# | ablation | what one change brings | facts; text by a person |
# | `whole_run` | a checkpoint in use | resumed, on unseen objects |
# | readiness note | its use and limits | facts; text by a person |
#
# Hidden checks use data that you have not seen. Points stand at each exercise.

# %% [markdown]
# The photographs are made of Fashion-MNIST where it is installed, else of handwritten digits. A few hundred
# objects keep each cell below a few seconds; the held-back ones are made of other objects and wait for the end.

# %%
NAME = "fashion-mnist" if find_fashion_mnist() else "digits"
project = takes(600, name=NAME)
print(project)
plot_takes(project.images, project.labels, project.groups)

# %% [markdown]
# ## 5.2 Data
#
# Each column is one object, each image a take of it: another light, other noise. `groups` holds the object's
# number. Split the *images* at random, and most objects are on both sides. How much does that matter? The
# cheapest model shows it: it looks for the nearest training image and repeats its label.
#
# **Guess:** by how many points is its accuracy higher if images are split instead of objects?

# %%
guess("05.leak", ...)

# %%
def nearest_image(train, val):
    rows, labels = project.images.flatten(1).float(), project.labels.long()
    nearest = torch.cdist(rows[val], rows[train]).argmin(dim=1)
    return 100 * (labels[train][nearest] == labels[val]).double().mean().item()


by_image = nearest_image(*random_split(len(project), seed=0))
by_object = nearest_image(*group_split(project.groups.numpy(), seed=0))
print(f"images split: {by_image:.1f} %, objects split: {by_object:.1f} %")
reveal("05.leak", by_image - by_object)

# %% [markdown]
# The difference is not skill. Whoever relies on the first number will meet the second one, since new
# photographs show new objects. So the first piece of the project is a split that keeps objects whole.

# %% exercise 05.data
# Raw images to two sides. What course.data offers may be used.
def make_data(images, labels, groups, seed):
    """Two sides that share no object, normalised by training.

    Args:
        images: [N, H, W], uint8, 0 to 255.
        labels: [N], uint8 class indices, counted from 0. A class may be missing.
        groups: [N], long: the object that an image shows, few images each. Any numbers.
        seed: Draws the objects that validate.

    Returns:
        A dictionary. "train" and "val": pairs of inputs [n, 1, H, W] in float32 and targets
        [n] in long; each image on exactly one side, each object too, and between 10 and
        30 % of the images in "val". "mean" and "std": of all training bytes together,
        two numbers (std by n or by n - 1) with inputs = (images - mean) / std on both sides.
        "num_classes": the highest label plus 1. The same seed gives the same sides, another seed others.
        Nothing is drawn from torch's global generator, and what came in stays as it was.
    """
    ### BEGIN SOLUTION
    train, val = group_split(groups.numpy(), 0.2, seed=seed)
    inputs, targets = images.float().unsqueeze(1), labels.long()
    mean, std = inputs[train].mean(), inputs[train].std()
    sides = {name: ((inputs[rows] - mean) / std, targets[rows])
             for name, rows in (("train", train), ("val", val))}
    numbers = {"mean": mean.item(), "std": std.item()}
    return sides | numbers | {"num_classes": int(labels.max()) + 1}
    ### END SOLUTION

# %% [markdown]
# A contract that nobody checks is a wish. `check_batch` looks at shapes, kinds of numbers, ranges and labels,
# and names each breach:

# %%
if ready(make_data):
    data = make_data(project.images, project.labels, project.groups, seed=0)
    for side in ("train", "val"):
        inputs, targets = data[side]
        print(f"{side}: {list(inputs.shape)}, mean {inputs.mean():+.3f}, "
              f"deviation {inputs.std():.3f}")
        print(check_batch(data[side], num_classes=data["num_classes"], ndim=4))

# %% [markdown]
# ## 5.3 The bar
#
# A score means something next to what costs nothing: always the most common class, and the class whose mean
# training image is nearest. The second is a linear classifier, without a single update.
# **Guess:** how often is the nearest mean right on validation?

# %%
guess("05.bar", ...)

# %% exercise 05.baselines
# What a model has to beat.
def baselines(data):
    """The validation accuracy of two answers that need no training loop.

    Args:
        data: As `make_data` gives it. A class may have no training image.

    Returns:
        A dictionary of shares between 0 and 1. "majority": of always answering training's
        most common class; no other is as common. "nearest_mean": of answering the class whose mean training image
        is nearest (Euclidean distance over all pixels). What came in stays as it was.
    """
    ### BEGIN SOLUTION
    (inputs, targets), (val_inputs, val_targets) = data["train"], data["val"]
    rows, names = inputs.flatten(1), targets.unique()
    means = torch.stack([rows[targets == name].mean(dim=0) for name in names])
    said = names[torch.cdist(val_inputs.flatten(1), means).argmin(dim=1)]
    answers = {"majority": targets.mode().values, "nearest_mean": said}
    return {name: (said == val_targets).float().mean().item() for name, said in answers.items()}
    ### END SOLUTION

# %%
if ready(baselines, make_data):
    bar = baselines(data)
    print({name: round(value, 3) for name, value in bar.items()})
    reveal("05.bar", bar["nearest_mean"])

# %% [markdown]
# ## 5.4 The set-up
#
# Model, loss, optimizer and loaders. The architecture is yours; the check asks what any sound set-up has, on
# other images than these: the contract of its batches, the ladder, the doctor. What the network adds to the
# nearest mean is what it is worth.

# %% exercise 05.setup
# Anything of torch and of the course may be used. Everything is built at each call.
def make_setup(data, seed, epochs):
    """A training set-up for images of any size and any number of classes.

    Args:
        data: As `make_data` gives it; images may be as small as 6 by 6 pixels.
        seed: Decides the first weights and the order of the batches.
        epochs: How long it will train, for a schedule that wants to know.

    Returns:
        A dictionary. "model": gives logits [B, C], a number per class for each of B images;
        all of its parameters train. "loss_fn": of logits and targets. "optimizer".
        "train_loader": all training images, as they are, in each epoch, at most an
        incomplete last batch left out, in an order that is drawn again per epoch;
        "val_loader": all validation images. Both are DataLoaders of pairs. "scheduler", if there is one, and
        "schedule_per": "epoch" or "update", when it steps; one with an end (a cosine, one
        cycle) ends with the run. Two calls with the same seed give the same weights and
        orders, whoever else draws random numbers in between; torch's global generator may be
        seeded.
    """
    ### BEGIN SOLUTION
    torch.manual_seed(seed)
    inputs, _ = data["train"]
    layers = [nn.Linear(inputs[0].numel(), 64), nn.ReLU(), nn.Dropout(0.1)]
    model = nn.Sequential(nn.Flatten(), *layers, nn.Linear(64, data["num_classes"]))
    own = torch.Generator().manual_seed(seed)
    train_set, val_set = (TensorDataset(*data[side]) for side in ("train", "val"))
    return dict(
        model=model, loss_fn=nn.CrossEntropyLoss(),
        optimizer=torch.optim.AdamW(model.parameters(), lr=0.004),
        train_loader=DataLoader(train_set, 64, shuffle=True, generator=own),
        val_loader=DataLoader(val_set, 256),
    )
    ### END SOLUTION

# %%
if ready(make_data, make_setup):
    setup = make_setup(data, seed=0, epochs=10)
    first = evaluate(setup["model"], setup["val_loader"], setup["loss_fn"])
    print(f"first loss {first['loss']:.3f}, accuracy {first['accuracy']:.3f}")

# %% [markdown]
# About the logarithm of the number of classes: before the first update a network knows nothing. Now climb, since a
# fault that costs seconds here would cost hours later. The doctor then watches the same set-up for a few dozen
# steps and looks for eighty known faults. What it could not check, it says:

# %%
if ready(make_data, make_setup):
    ladder = dict(setup, num_classes=data["num_classes"])
    display(climb(ladder, top=4))

# %%
if ready(make_data, make_setup):
    display(diagnose(ladder))

# %% [markdown]
# ## 5.5 The rate
#
# The rate was a guess so far. The finder sweeps all rates and then trains a little with the promising ones. If your
# set-up is far from it, change it there: one number, in one place. **Guess:** which rate does it suggest?

# %%
guess("05.rate", ...)

# %%
if ready(make_data, make_setup):
    fresh = make_setup(data, seed=0, epochs=10)
    parts = [fresh[key] for key in ("model", "loss_fn", "optimizer", "train_loader")]
    curve = lr_find(*parts)
    print(curve.suggestion)
    reveal("05.rate", curve.suggestion.lr)
    display(curve.plot())

# %% [markdown]
# ## 5.6 The run
#
# A run that cannot be repeated is an anecdote. The engine writes a record beside each run: settings, seed, a hash
# of the data, versions, commit, and a line per epoch. And it writes checkpoints, from which a killed run
# goes on.

# %% exercise 05.run
# The engine may do all of it; a loop of your own may as well.
def train(make_setup, data, folder, seed, epochs, after_epoch):
    """Train, keep everything in the folder, and go on from it where it holds a run.

    Args:
        make_setup: A function like yours: make_setup(data, seed, epochs). Call it once. Here it
            always gives "scheduler" and "schedule_per"; where yours gives none, none steps.
        data: As make_data gives it.
        folder: A path. Empty or missing for a new run; else as a call left it that was killed,
            after an epoch or inside one.
        seed: Of the set-up, and of what else is drawn, such as dropout.
        epochs: Of the whole run, also where it was killed in between.
        after_epoch: Call it with the epoch, counted from 0, once its checkpoint is written.

    Returns:
        The validation accuracies of all epochs, one each, as a list of numbers from 0 to 1.

    The model of the set-up ends with the weights of the last epoch, to the bit those of a run
    that was not killed; a call on a finished run makes no update. In the folder: best.pt, a
    dictionary whose "model" has the weights of the epoch with the lowest validation loss; and
    run.json, which the engine writes, with "seed", "settings" (of them "epochs", "mean" and
    "std", those of data), "data" (its "train" identifies the training images and targets),
    "versions" ("torch") and "status", in the end "finished".
    """
    ### BEGIN SOLUTION
    class Tell(Callback):
        def on_checkpoint(self, trainer):
            after_epoch(len(trainer.history) - 1)

    setup = make_setup(data, seed, epochs)
    trainer = Trainer(
        setup["model"], setup["loss_fn"], setup["optimizer"], scheduler=setup.get("scheduler"),
        schedule_per=setup.get("schedule_per", "epoch"), device="cpu", callbacks=[Tell()],
        seed=seed, run_dir=folder)
    history = trainer.fit(
        setup["train_loader"], setup["val_loader"], epochs=epochs, resume="auto",
        progress=False, config={name: data[name] for name in ("mean", "std")})
    return [line["val_accuracy"] for line in history]
    ### END SOLUTION

# %% [markdown]
# Your run on the project. The set-up is kept here, since the cells below want its model:

# %%
def kept_setup(data, seed, epochs):
    made.append(make_setup(data, seed, epochs))
    return made[-1]


work, made = Path(tempfile.mkdtemp()), []
if ready(make_data, make_setup, train):
    accuracies = train(kept_setup, data, work / "unbroken", 0, 10, lambda epoch: None)
    model, setup = made[-1]["model"], made[-1]
    print([round(value, 3) for value in accuracies])

# %%
if ready(make_data, make_setup, train):
    record = read_run(work / "unbroken")
    print(sorted(path.name for path in (work / "unbroken").iterdir()))
    print(sorted(record.content))
    kept = record.content["settings"]
    print({name: kept.get(name) for name in ("optimizer", "optimizer.lr", "epochs")})

# %% [markdown]
# Does a killed run end as if it had not been? Kill one after the third epoch's checkpoint, and start it again. The
# same bits are the only answer that proves that nothing was forgotten.

# %%
def kill(epoch):
    if epoch == 2:
        raise KeyboardInterrupt


if ready(make_data, make_setup, train):
    try:
        train(kept_setup, data, work / "killed", 0, 10, kill)
    except KeyboardInterrupt:
        print("killed")
    train(kept_setup, data, work / "killed", 0, 10, print)
    resumed = made[-1]["model"]

# %%
if ready(make_data, make_setup, train):
    weights = zip(model.parameters(), resumed.parameters(), strict=True)
    apart = max((a - b).abs().max().item() for a, b in weights)
    print(f"largest difference of a weight: {apart}")

# %% [markdown]
# ## 5.7 The errors
#
# The score says how many, never which. A report on the mistakes names pairs of classes, the mistakes of which
# the model is most sure, and what there is to win: a pair's share, times the headroom. People misread some
# images as well, and no model of these labels wins those.

# %% exercise 05.errors
# What course.analysis offers may be used; counting is enough.
def error_report(logits, targets, people, n):
    """Which mistakes a model makes, and which of them to work on.

    Args:
        logits: [N, C], float32. No two images have the same highest probability.
        targets: [N], class indices. A class may have no example.
        people: Of pairs of classes (a, b) with a < b: the share of the pair's mistakes that
            people make as well. Of a pair that is not listed nothing is known: take 0.
        n: How many of the most confident mistakes.

    Returns:
        A dictionary. "recall": by class that occurs in targets, a share. "pairs": (a, b,
        count) with a < b of each pair that is mixed up, in either direction; the most
        frequent first, equal ones by a, then b. "confident": positions of the n mistakes
        whose predicted class has the highest probability, the surest first; all mistakes
        where there are fewer. "work_on": the pair (a, b) with the most to win, of equal
        ones the first in "pairs"; None if there is no mistake. "gain": the points of
        accuracy, of 100, that it gives if every mistake in it that people do not make
        becomes right; 0 for None. What came in stays as it was.
    """
    ### BEGIN SOLUTION
    said, sure = logits.argmax(dim=1), logits.softmax(dim=1).amax(dim=1)
    wrong = (said != targets).nonzero().flatten()
    recall = {c: (said[targets == c] == c).float().mean().item()
              for c in targets.unique().tolist()}
    counts = {}
    for pair in zip(targets[wrong].tolist(), said[wrong].tolist()):
        key = (min(pair), max(pair))
        counts[key] = counts.get(key, 0) + 1
    ranked = sorted(counts, key=lambda pair: (-counts[pair], pair))
    gains = {pair: 100 * counts[pair] / len(targets) * (1 - people.get(pair, 0))
             for pair in ranked}
    work_on = max(gains, key=gains.get, default=None)
    confident = wrong[sure[wrong].argsort(descending=True)][:n].tolist()
    return {"recall": recall, "pairs": [(*pair, counts[pair]) for pair in ranked],
            "confident": confident, "work_on": work_on, "gain": gains.get(work_on, 0.0)}
    ### END SOLUTION

# %% [markdown]
# Now your model, with the best epoch's weights. **Guess:** how many points does the pair of classes cost that is
# mixed up most often?

# %%
guess("05.pair", ...)

# %%
if ready(error_report, make_data, make_setup, train):
    model.load_state_dict(torch.load(work / "unbroken" / "best.pt")["model"])
    said = predict(model, setup["val_loader"])
    report = error_report(said.logits, said.targets, people={}, n=12)
    low, high, count = report["pairs"][0]
    print(f"{count} of {len(said)} mix up {low} and {high}; lowest recall "
          f"{min(report['recall'].values()):.2f}")
    reveal("05.pair", 100 * count / len(said))
    display(collect_errors(model, setup["val_loader"], n=12).plot(12))

# %% [markdown]
# Those are the surest mistakes. Look at them: would a person read them otherwise? Say for your largest pair which
# share a person misreads as well, here a half, and see whether it is still the one to work on.

# %%
if ready(error_report, make_data, make_setup, train):
    people = {(low, high): 0.5}
    report = error_report(said.logits, said.targets, people, n=12)
    print(f"work on {report['work_on']}: {report['gain']:.1f} points at most")
    display(plot_headroom(report["pairs"], people, len(said)))

# %% [markdown]
# ## 5.8 One change
#
# Which change is worth a week? An ablation answers for one of them, if it changes one thing. First decide which of
# six plans do:

# %% exercise 05.one-thing

# %% [markdown]
# Now measure. `ablate` wants a function that builds a run from settings, and keeps each run in a file. Here with
# three seeds, which settle little, and twice the hidden units. Your own study then takes six or more and a change
# of your choice. **Guess:** how many points does validation gain?

# %%
guess("05.wider", ...)

# %%
def build(seed, lr, hidden, dropout):
    torch.manual_seed(seed)
    loaders = make_setup(data, seed, epochs=4)
    size, out = data["train"][0][0].numel(), data["num_classes"]
    layers = nn.Linear(size, hidden), nn.ReLU(), nn.Dropout(dropout)
    net = nn.Sequential(nn.Flatten(), *layers, nn.Linear(hidden, out))
    optimizer = torch.optim.AdamW(net.parameters(), lr=lr)
    trainer = Trainer(net, nn.CrossEntropyLoss(), optimizer, device="cpu")
    return trainer, loaders["train_loader"], loaders["val_loader"]


# %%
settings = dict(lr=0.004, hidden=64, dropout=0.1)
if ready(make_data, make_setup):
    with tempfile.TemporaryDirectory() as folder:
        study = ablate(build, settings, {"wider": dict(hidden=128)}, folder, epochs=4,
                       progress=False)
    print(study)
    (row,) = [row for row in study.rows if row.name == "wider"]
    reveal("05.wider", 100 * row.difference)
    display(study.plot())

# %% exercise 05.ablation

# %% [markdown]
# ## 5.9 The checkpoint, in use
#
# So far your pieces were asked one by one. Now all in a row, as somebody who has only the folder would use them.
# Hidden checks kill this run and resume it, let the doctor look at its set-up, and judge its best.pt on unseen
# objects: it must come at least half of the way from the most frequent class's share to the nearest mean's
# accuracy. (After eight epochs on so few images, a sound run can fall short of the nearest mean itself.)

# %% exercise 05.whole
# Your own make_data, make_setup and train may be called here.
def whole_run(images, labels, groups, folder, seed, epochs, after_epoch):
    """From raw images to a finished run in the folder, and a function that uses it.

    Args:
        images, labels, groups, seed: As make_data has them.
        folder, epochs, after_epoch: As train has them, with the same seed. after_epoch may
            raise, which ends the call; one more call with the folder then goes on.

    Returns:
        A dictionary. "setup": what make_setup gave, with the model that was trained.
        "classify": a function of (folder, images) that gives class indices [n] for raw
        images [n, H, W] in uint8. Its weights are those of best.pt, its mean and std those
        of run.json, of the folder that it is handed: this run's, or a copy of it in which
        somebody has changed them. It may load them into the model of "setup".
    """
    ### BEGIN SOLUTION
    data, made = make_data(images, labels, groups, seed), []

    def keeping(data, seed, epochs):
        made.append(make_setup(data, seed, epochs))
        return made[-1]

    train(keeping, data, folder, seed, epochs, after_epoch)

    def classify(folder, images):
        net = make_setup(data, seed, epochs)["model"].eval()
        net.load_state_dict(torch.load(Path(folder) / "best.pt")["model"])
        kept = read_run(folder).content["settings"]
        with torch.no_grad():
            inputs = (images.float().unsqueeze(1) - kept["mean"]) / kept["std"]
            return net(inputs).argmax(dim=1)

    return {"setup": made[-1], "classify": classify}
    ### END SOLUTION

# %% [markdown]
# Validation has chosen rate, epoch and change, so its score flatters. The held-back objects have chosen nothing.
# They are opened once, after everything is decided: a second look, after a change, makes them a second
# validation set. **Guess:** how many points lower is the accuracy there?

# %%
guess("05.held-back", ...)

# %%
raw = project.images, project.labels, project.groups
if ready(make_data, make_setup, train, whole_run):
    use = whole_run(*raw, work / "unbroken", 0, 10, print)  # finished: no update is made
    held = takes(300, name=NAME, skip=600)
    targets = held.labels.long()
    hits = int((use["classify"](work / "unbroken", held.images) == targets).sum())
    best = evaluate(model, setup["val_loader"], setup["loss_fn"])["accuracy"]
    print(f"{hits} of {len(targets)} right; validation {best:.1%}")
    reveal("05.held-back", 100 * (best - hits / len(targets)))

# %%
if ready(baselines, make_data, make_setup, train, whole_run):
    inputs = (held.images.float().unsqueeze(1) - data["mean"]) / data["std"]
    there = baselines(data | {"val": (inputs, targets)})
    right = {name: round(share * len(targets)) for name, share in there.items()}
    right["model"] = hits
    shares = {name: wilson_interval(count, len(targets)) for name, count in right.items()}
    display(plot_bars(shares, model="model"))

# %% [markdown]
# Three bars on the same images. Where the orange lines of two of them overlap widely, these images cannot tell which
# one is better; another thousand could.

# %% [markdown]
# ## 5.10 Ready?
#
# The last page of a project is read by people who have not seen any other. It says what may be relied on, on which
# evidence, and what would go wrong first.

# %% exercise 05.readiness

# %%
scorecard("05-capstone")

# %% [markdown]
# ## What to keep
#
# - Split what will be new in use: objects, people, days. Images of one object stay together.
# - A bar before a model; a ladder before a run; a rate before a schedule.
# - A run that was killed ends with the same bits, or its checkpoint lacks something.
# - One change per study, on the same split, over seeds, with an interval.
# - Held-back data are opened once; what they say stands, liked or not.
#
# **Further reading.** Lecture 3 from "The debug ladder" to "Reproducibility in five layers"; the engineering
# module's lab on readiness; [course/engine/record.py](../course/engine/record.py).
#
# **Challenge, ungraded.** Photograph twenty objects of your own, cut them to the project's size, and let the model
# sort them. Say beforehand how many it will get right, and afterwards which sentence of your note was wrong.
