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
# This is one project, from raw images to the note with which somebody decides whether to rely on
# your model. You write the pieces. The course's engine, debug ladder, doctor, learning-rate finder
# and error analysis are your tools, and you may use all of them. Plan three sittings: data and
# baselines, set-up and run, report.
#
# The lecture, its essay and the engineering module are the texts behind this course. A code after
# *read* above an exercise stands for an item in them: in a terminal, `course ledger T27` says which
# one, and `course claims F99` tests a claim.
#
# *Read a question, make a guess, then run the cell below it. Every cell may be run twice. Stuck?
# `hint("05.data")` gives three hints, and `failing("05.data")` shows the smallest failing case.*

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
student("")  # your name or id, as you hand in

# %% [markdown]
# ## 5.1 The brief
#
# A catalogue needs its photographs sorted into classes. Some objects were photographed more than
# once. Build a classifier, show how good it is on objects that it has never seen, and say what it
# may be used for.
#
# The pieces have fixed names, because each one is checked by its behaviour: on other images, with
# other sizes, other numbers of classes and other seeds. How you write them is up to you.

# %% [markdown]
# | piece | what it gives | graded |
# | --- | --- | --- |
# | `make_data` | two sides without a leak | by behaviour |
# | `baselines` | accuracies to beat | by behaviour |
# | `make_setup` | model, loss, optimizer, loaders | contract, ladder, doctor |
# | `train` | a run that survives a kill | by behaviour |
# | `error_report` | which mistakes to work on | by behaviour |
# | ablation | effect of one change | facts; text by a person |
# | `whole_run` | a checkpoint in use | resumed, on unseen objects |
# | readiness note | its use and limits | facts; text by a person |
#
# Hidden checks use data you have not seen. Each exercise shows its points.

# %% [markdown]
# The photographs are made from Fashion-MNIST if it is installed, otherwise from handwritten digits.
# There are only a few hundred objects, so that each cell takes only a few seconds. The held-back
# photographs show other objects; they wait until the end.

# %%
NAME = "fashion-mnist" if find_fashion_mnist() else "digits"
project = takes(600, name=NAME)
print(project)
names = project.class_names
print(dict(enumerate(names)))
plot_takes(project.images, project.labels, project.groups, class_names=names)

# %% [markdown]
# ## 5.2 Data
#
# Each column is one object, and each image is one take of it, with different light and noise.
# `groups` holds the number of the object. If you split the *images* at random, most objects end up
# on both sides. How much does that matter? The cheapest model shows it: find the nearest training
# image and repeat its label.
#
# **Guess:** by how many points is its accuracy higher if you split images instead of objects?

# %%
guess("05.leak", ...)

# %%
def nearest_image(train, val):
    (inputs, targets), (val_inputs, val_targets) = train, val
    apart = torch.cdist(val_inputs.flatten(1).float(), inputs.flatten(1).float())
    return (targets[apart.argmin(dim=1)] == val_targets).float().mean().item()


def sides(split):
    return [(project.images[rows], project.labels[rows]) for rows in split]


by_image = 100 * nearest_image(*sides(random_split(len(project), seed=0)))
by_object = 100 * nearest_image(*sides(group_split(project.groups.numpy(), seed=0)))
print(f"split by image: {by_image:.1f} %, by object: {by_object:.1f} %")
reveal("05.leak", by_image - by_object)

# %% [markdown]
# The difference is not skill. Anyone who relies on the first number will get the second one in
# practice, because new photographs show new objects. So the first piece of the project is a split
# that keeps all images of an object on one side.

# %% exercise 05.data
# Turn raw images into a training and a validation side. You may use everything in course.data.
def make_data(images, labels, groups, seed):
    """Make two sides that share no object, normalised by the training side.

    Args:
        images: [N, H, W], uint8, 0 to 255.
        labels: [N], uint8 class indices, counted from 0. A class may be missing.
        groups: [N], long: a number for the object that each image shows, any number, negative or
            not. An object has only a few images.
        seed: Decides which objects are for validation.

    Returns:
        A dictionary. "train" and "val": pairs of inputs [n, 1, H, W], float32, and targets [n],
        long. Each image and each object is on exactly one side, and 10 to 30 % of the images are
        in "val". "mean" and "std": two numbers, over all training bytes together (std with n or
        n - 1), so that inputs = (images - mean) / std on both sides. "num_classes": the highest
        label plus 1. The same seed gives the same sides, another seed different ones. Nothing is
        drawn from torch's global generator, and the arguments are not changed.
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
# A contract that nobody checks is only a wish. `check_batch` checks shapes, dtypes, ranges and
# labels, and names each breach:

# %%
if ready(make_data):
    data = make_data(project.images, project.labels, project.groups, seed=0)
    for side in ("train", "val"):
        inputs, targets = data[side]
        print(f"{side}: {list(inputs.shape)}, mean {inputs.mean():+.3f}, "
              f"deviation {inputs.std():.3f}")
        print(check_batch(data[side], num_classes=data["num_classes"], ndim=4))

# %% [markdown]
# ## 5.3 The baselines
#
# A score means something only next to baselines that cost nothing: always answer the most common
# class, or answer the class whose mean training image is nearest. The second is a linear
# classifier, without a single update. A third you have seen: the nearest image. **Guess:** what is the
# validation accuracy of the nearest mean?

# %%
guess("05.bar", ...)

# %% exercise 05.baselines
# What a model has to beat.
def baselines(data):
    """Compute the validation accuracy of two baselines that need no training loop.

    Args:
        data: As returned by `make_data`. A class may have no training image.

    Returns:
        A dictionary of accuracies from 0 to 1. "majority": if you always answer training's most
        common class (there are no ties). "nearest_mean": if you answer the class whose mean
        training image is nearest (Euclidean distance over all pixels). The arguments are not
        changed.
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
    bar = baselines(data) | {"nearest_image": nearest_image(data["train"], data["val"])}
    print({name: round(value, 3) for name, value in bar.items()})
    reveal("05.bar", bar["nearest_mean"])

# %% [markdown]
# ## 5.4 The set-up
#
# The set-up consists of model, loss, optimizer and loaders. You choose the architecture. On other
# images than these, the check tests what any sound set-up must pass: the contract of its batches,
# the ladder, and the doctor. Your network is worth only what it adds to the best of the baselines.

# %% exercise 05.setup
# You may use anything from torch and from the course. Build everything again at each call.
def make_setup(data, seed, epochs):
    """Build a training set-up for images of any size and any number of classes.

    Args:
        data: As returned by `make_data`; images may be as small as 6 by 6 pixels.
        seed: Decides the initial weights and the order of the batches.
        epochs: How long it will train, in case your schedule needs that.

    Returns:
        A dictionary. "model": gives logits [B, C], one number for each of C classes and B images;
        all of its parameters train. "loss_fn": a function of logits and targets. "optimizer": no
        loss of the first updates is over 100 times the first one.
        "train_loader": all training images, unchanged, in every epoch, in a newly drawn order; at
        most an incomplete last batch is left out. "val_loader": all validation images. Both are
        DataLoaders of pairs. If there is a schedule: "scheduler", and "schedule_per", which says
        whether it steps per "epoch" or per "update"; a schedule with an end (a cosine, one cycle)
        ends with the run. Two calls with the same seed give the same weights and orders, even if
        other code draws random numbers in between. You may seed torch's global generator.
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
# The first loss is about the logarithm of the number of classes: before the first update a network
# knows nothing. Now climb the ladder, because a fault that costs seconds here would cost hours
# later. Then the doctor watches the same set-up for a few dozen steps and makes every check for
# which it was given the parts. It also tells you what it could not check:

# %%
if ready(make_data, make_setup):
    ladder = dict(setup, num_classes=data["num_classes"])
    display(climb(ladder, top=4))

# %%
if ready(make_data, make_setup):
    display(diagnose(ladder))

# %% [markdown]
# ## 5.5 The learning rate
#
# So far the learning rate was a guess. The finder sweeps a wide range of rates and then trains
# briefly with the promising ones. If your set-up's rate is far from its suggestion, change it in
# `make_setup`: one number, in one place. **Guess:** which learning rate does the finder suggest?

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
# A run that cannot be repeated is an anecdote. For each run the engine writes a record: settings,
# seed, a hash of the data, versions, commit, and one line per epoch. It also writes checkpoints,
# from which a killed run can continue.

# %% exercise 05.run
# You may let the engine do all of it, or write your own loop.
def train(make_setup, data, folder, seed, epochs, after_epoch):
    """Train, keep everything in the folder, and continue from there if it holds a run.

    Args:
        make_setup: A function like yours: make_setup(data, seed, epochs). Call it once. In
            the check it always gives "scheduler" and "schedule_per"; if yours gives none, no
            schedule steps.
        data: As returned by make_data.
        folder: A path. Empty or missing for a new run; otherwise as left by an earlier call that
            was killed, after an epoch or inside one.
        seed: For the set-up and for everything else that is drawn, such as dropout.
        epochs: Of the whole run, even if it was killed in between.
        after_epoch: Call it with the epoch, counted from 0 (the engine's history counts from 1),
            once the checkpoint is written.

    Returns:
        The validation accuracies of all epochs, as a list of numbers from 0 to 1.

    The set-up's model ends with the weights of the last epoch, bit for bit those of a run that
    was not killed. A call on a finished run makes no update. The folder must hold best.pt, a
    dictionary whose "model" has the weights of the epoch with the lowest validation loss, and
    run.json, which the engine writes (in your own loop, you do), with "seed", "settings" (including "epochs", and the "mean"
    and "std" of data), "data" (its "train" identifies the training images and targets),
    "versions" (with "torch") and "status", which ends as "finished".
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
# Now run it on the project. This cell keeps the set-up, because the cells below need its model:

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
# Does a killed run end as if it had never been killed? Kill one after the checkpoint of the third
# epoch, and start it again. Only the same bits prove that nothing was forgotten.

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
# The score says how many mistakes there are, but not which. A report names the pairs of classes
# that are mixed up, the mistakes of which the model is most confident, and what there is to gain: a
# pair's share, times its headroom. People misread some images too, and a model trained on these
# labels will not win those.

# %% exercise 05.errors
# You may use everything in course.analysis, but counting is enough.
def error_report(logits, targets, people, n):
    """Report which mistakes a model makes, and which of them to work on.

    Args:
        logits: [N, C], float32. No two images have the same highest probability.
        targets: [N], class indices. A class may have no example.
        people: For pairs of classes (a, b) with a < b: the share of the pair's mistakes that
            people make too. For a pair that is not listed nothing is known: use 0.
        n: How many of the most confident mistakes to return.

    Returns:
        A dictionary. "recall": a dictionary from each class that occurs in targets to its recall.
        "pairs": a list of (a, b, count) with a < b, one for each pair that is mixed up in either
        direction; the most frequent first, ties by a, then b. "confident": the positions of the n
        mistakes whose predicted class has the highest probability, the most confident first; all
        mistakes if there are fewer. "work_on": the pair (a, b) with the most to gain, in a tie the
        first in "pairs", even if its gain is 0; None if there is no mistake. "gain": the points of
        accuracy (out of 100) gained if every mistake of that pair that people do not make becomes
        right; 0 for None.
        The arguments are not changed.
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
# Now use your model, with the weights of the best epoch. (Under each mistake stands its bucket, as
# in 3f; nobody has looked yet.) **Guess:** how many points of accuracy does the most frequently
# mixed-up pair of classes cost?

# %%
guess("05.pair", ...)

# %%
if ready(error_report, make_data, make_setup, train):
    model.load_state_dict(torch.load(work / "unbroken" / "best.pt")["model"])
    said = predict(model, setup["val_loader"])
    report = error_report(said.logits, said.targets, people={}, n=12)
    low, high, count = report["pairs"][0]
    names = project.class_names[:data["num_classes"]]
    print(f"{count} of {len(said)} mix up {names[low]} and {names[high]}; lowest recall "
          f"{min(report['recall'].values()):.2f}")
    reveal("05.pair", 100 * count / len(said))
    display(collect_errors(model, setup["val_loader"], n=12, class_names=names).plot(12))

# %% [markdown]
# These are the most confident mistakes. Look at them: would a person read them correctly? Some may
# be takes of one object, which is one mistake and not three. For your largest pair, estimate what
# share a person would misread too (here one half), and see whether it is still the pair to work on.

# %%
if ready(error_report, make_data, make_setup, train):
    people = {(low, high): 0.5}
    report = error_report(said.logits, said.targets, people, n=12)
    pair = " and ".join(names[c] for c in report["work_on"])
    print(f"work on {pair}: {report['gain']:.1f} points at most")
    display(plot_headroom(report["pairs"], people, len(said), class_names=names))

# %% [markdown]
# ## 5.8 One change
#
# Which change is worth a week? An ablation answers that for one change, provided that it changes
# only one thing. First decide which of six plans do:

# %% exercise 05.one-thing

# %% [markdown]
# Now measure. `ablate` takes a function that builds a run from settings, and saves each run to a
# file. Here we try twice the hidden units of a small network, with only three seeds, which settle
# little. For your own study let `build` make *your* model and optimizer, choose a change, and pass
# `seeds=range(6)` or more. **Guess:** how many points does validation accuracy gain?

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
    print("points, one per seed:", [100 * d for d in row.differences.values()])
    display(study.plot())

# %% exercise 05.ablation

# %% [markdown]
# ## 5.9 The checkpoint, in use
#
# So far your pieces were checked one by one. Now connect them, so that somebody who has only the
# folder can use the result. Hidden checks kill this run and resume it, let the doctor examine its
# set-up, and judge its best.pt on unseen objects: it must get at least halfway from the majority
# baseline to the nearest mean's accuracy. (After eight epochs on so few images, a sound run can
# fall short of the nearest mean itself.)

# %% exercise 05.whole
# You may call your own make_data, make_setup and train here.
def whole_run(images, labels, groups, folder, seed, epochs, after_epoch):
    """Go from raw images to a finished run in the folder, and a function that uses it.

    Args:
        images, labels, groups, seed: As for make_data.
        folder, epochs, after_epoch: As for train, with the same seed. after_epoch may raise an
            exception, which ends the call; another call with the same folder then continues.

    Returns:
        A dictionary. "setup": what make_setup returned, with the trained model. "classify": a
        function of (folder, images) that returns class indices [n] for raw images [n, H, W] in
        uint8. It takes the weights from best.pt, and mean and std from run.json, in the folder
        that it is given: this run's folder, or a copy in which somebody has changed them. It may
        load the weights into the model of "setup".
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
# You used validation to choose the learning rate, the epoch and the change, so its score flatters.
# The held-back objects were not used for any choice. Open them once, after everything is decided:
# if you change something and look again, they become a second validation set. **Guess:** how many
# points lower is the accuracy there? (Below 0: it is higher.)

# %%
guess("05.held-back", ...)

# %%
if ready(make_data, make_setup, train, whole_run):
    raw, folder = (project.images, project.labels, project.groups), work / "unbroken"
    use = whole_run(*raw, folder, 0, 10, print)  # finished: makes no update
    model.load_state_dict(torch.load(folder / "best.pt")["model"])
    held = takes(300, name=NAME, skip=600)
    targets = held.labels.long()
    hits = int((use["classify"](folder, held.images) == targets).sum())
    seen, best = (evaluate(model, setup[f"{side}_loader"], setup["loss_fn"])["accuracy"]
                  for side in ("train", "val"))

# %% [markdown]
# All three accuracies are those of best.pt. A few hundred images settle an accuracy only to within
# about five points, so chance can hide by how much a few choices flattered, and even turn it round.

# %%
if ready(make_data, make_setup, train, whole_run):
    print(f"{hits} of {len(targets)} right; training {seen:.3f}, validation {best:.3f}")
    reveal("05.held-back", 100 * (best - hits / len(targets)))

# %%
if ready(baselines, make_data, make_setup, train, whole_run):
    inputs = (held.images.float().unsqueeze(1) - data["mean"]) / data["std"]
    there = baselines(data | {"val": (inputs, targets)})
    there["nearest_image"] = nearest_image(data["train"], (inputs, targets))
    right = {name: round(share * len(targets)) for name, share in there.items()}
    right["model"] = hits
    shares = {name: wilson_interval(count, len(targets)) for name, count in right.items()}
    print("Wilson's 95 % interval of the model's accuracy:", shares["model"])
    display(plot_bars(shares, model="model"))

# %% [markdown]
# Two warnings. Wilson's interval counts images as independent, but takes of one object are not: the
# true interval is wider, and your note should say so. And all bars come from the same images:
# if two orange lines overlap, only a comparison image by image, as in 3f, tells which is better.

# %% [markdown]
# ## 5.10 Ready?
#
# The last page of a project is read by people who have seen none of the others. It says what they
# may rely on, on what evidence, and what would go wrong first.

# %% exercise 05.readiness

# %%
scorecard("05-capstone")

# %% [markdown]
# ## What to keep
#
# - Split by what will be new in use: objects, people, days. Images of one object stay together.
# - Baselines before a model; the ladder before a run; a learning rate before a schedule.
# - A killed and resumed run ends with the same bits, or its checkpoint lacks something.
# - One change per study, on the same split, over several seeds, with an interval.
# - Open held-back data once; what they say stands, whether you like it or not.
#
# **Further reading.** Lecture 3 from "The debug ladder" to "Reproducibility in five layers"; the engineering
# module's lab on readiness; [course/engine/record.py](../course/engine/record.py).
#
# **Challenge, ungraded.** Photograph twenty objects of your own, scale the images to the project's
# size, and let the model sort them. Predict beforehand how many it will get right. Afterwards, say
# which sentence of your note was wrong.
