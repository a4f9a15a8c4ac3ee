"""05.data: from raw images to two normalised sides that share no object."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from autograde.apart import in_a_process
from autograde.bank.common_wrong import named
from autograde.bank.harness import Watch
from autograde.exercise import Answer, AnswerError, Case, Draw, Exercise, Part, Wrong, seen
from course.data import splits
from course.state import undisturbed

GROUPS = 60
"""Objects of a case: a fifth of them, drawn, holds 10 to 30 % of the images by over four sigma."""
STEPS, ALIKE_STEP = (7, 11, 13), 60
"""Between the objects' numbers. Divided by up to 6 or by 10, they leave all remainders in turn with
one of the former, and with the latter all leave one: no share can be chosen by a remainder."""
SLOPE = 12
"""Of a light across the images: a pixel's deviation is 1 % below that over all pixels."""
LOW, HIGH = 0.1, 0.3
"""Share of the images that validation may hold."""
ALIKE = 0.999
"""Correlation of an input with its raw image: 1 up to rounding, below 0.9 with any other."""
CENTRED = 2e-3
"""How far mean and deviation of training may be from 0 and 1: float32, or n - 1 for n."""
SIDES = ("train", "val")
MORE_SEEDS = 20
"""Tried until training lacks the highest class: a fifth of the splits do, so 99 % find one."""


def draw(source: Draw, part: str) -> Case:
    """Objects with one to three images each, scattered; each object has a light of its own.

    Heights and widths differ, labels have gaps, groups are names and not positions.
    """
    height, width = source.integer(5, 7), source.integer(8, 10)
    classes = source.integer(4, 6) + 7 * (source.index % 2)
    kinds = [*source.shuffled(range(classes - 1))[2:], classes - 1]  # two classes never come
    if part == "contract":  # those just below the highest
        kinds = [*source.shuffled(range(classes - 3)), classes - 1]
    sizes = [1 + source.integer(0, 2) for _ in range(GROUPS)]
    first, step = source.integer(20, 90), source.choice(STEPS)
    sign = -1 if part == "apart" and source.index else 1  # any numbers: no positions
    if sign < 0:
        step = ALIKE_STEP
    names = [sign * (first + step * i) for i in range(GROUPS)]
    light = [source.integer(60, 190) for _ in range(GROUPS)]
    owners = torch.tensor([i for i, size in enumerate(sizes) for _ in range(size)])
    owners = owners[torch.randperm(len(owners), generator=source.generator)]
    labels = torch.tensor([kinds[i % len(kinds)] for i in range(GROUPS)])
    if part == "contract":  # the highest class is one object, which some seeds let validate
        labels = torch.where(labels == classes - 1, kinds[0], labels)
        labels[source.integer(0, GROUPS - 1)] = classes - 1
    noise = source.integers(100, len(owners), height, width) - 50
    across = torch.linspace(-SLOPE, SLOPE, width).round().long()
    images = (torch.tensor(light)[owners, None, None] + noise * 4 // 5 + across).to(torch.uint8)
    images[0, 0, 0], images[-1, -1, -1] = 0, 255  # the ends of the range come, too
    return {
        "images": images,
        "labels": labels[owners].to(torch.uint8),
        "groups": torch.tensor(names)[owners],
        "num_classes": classes,
        "seed": source.integer(1, 10_000),
        "more_seeds": MORE_SEEDS * (part == "contract"),
    }


def run(function, case: Case, device: torch.device) -> Answer:
    """What both sides look like, and where each of their images comes from.

    Images lie on the CPU, as when they come from files; a loader's batches move later.
    """
    handed = _handed(case)
    watch, elsewhere = Watch(data=handed), in_a_process(partial(_elsewhere, function, case))
    data = as_data(function(*handed.values(), case["seed"]))
    disturbed = watch.changed()
    again = as_data(function(*_handed(case).values(), case["seed"]))
    other = as_data(function(*_handed(case).values(), case["seed"] + 1))
    places = {side: _places(data[side][0], case["images"]) for side in SIDES}
    lacking = _lacking_the_highest(function, case) or data
    return {
        **_looks(data | {"num_classes": lacking["num_classes"]}),
        "left_out": len(case["labels"]) - sum(len(lacking[side][1]) for side in SIDES),
        **_scales(data, case, places),
        **_membership(data, case, places),
        "same": all(
            torch.equal(data[s][0], one[s][0]) for one in (again, elsewhere) for s in SIDES
        ),
        "differs": sorted(places["val"]) != sorted(_places(other["val"][0], case["images"])),
        "disturbed": disturbed,
    }


def _elsewhere(function, case: Case) -> dict[str, Any]:
    """What another process gives, whose global generators are in another state."""
    with undisturbed():
        torch.default_generator.manual_seed(case["seed"] + 4711)
        return as_data(function(*_handed(case).values(), case["seed"]))


def _handed(case: Case) -> dict[str, Tensor]:
    """What one call is given, which is its own to change."""
    return {key: case[key] for key in ("images", "labels", "groups")}


def _lacking_the_highest(function, case: Case) -> dict[str, Any] | None:
    """The first split whose training has no image of the highest class; None if no seed does."""
    for more in range(2, 2 + case["more_seeds"]):
        data = as_data(function(*_handed(case).values(), case["seed"] + more))
        if int(data["train"][1].max()) < int(case["labels"].max()):
            return data
    return None


def as_data(returned: Any) -> dict[str, Any]:
    """The dictionary, its sides on the CPU.

    Raises:
        AnswerError: A key is missing, or a side is not a pair of tensors of one length.
    """
    keys = ("train", "val", "mean", "std", "num_classes")
    if not isinstance(returned, dict) or not set(keys) <= set(returned):
        raise AnswerError(f"Return a dictionary with the keys {', '.join(keys)}; {seen(returned)}")
    found = dict(returned)
    for side in SIDES:
        pair = returned[side]
        if not (isinstance(pair, (tuple, list)) and len(pair) == 2) or not all(
            isinstance(part, Tensor) and part.ndim for part in pair
        ):
            raise AnswerError(f"'{side}' must be a pair of tensors, inputs and targets.")
        inputs, targets = (part.detach().cpu() for part in pair)
        if len(inputs) != len(targets) or not len(inputs):
            raise AnswerError(f"'{side}' has {len(inputs)} inputs and {len(targets)} targets.")
        found[side] = inputs, targets
    for key in ("mean", "std"):
        try:
            found[key] = float(returned[key])
        except (TypeError, ValueError):
            raise AnswerError(
                f"'{key}' must be one number, on the scale of the raw bytes."
            ) from None
    return found


def _looks(data: dict[str, Any]) -> Answer:
    """Shapes and kinds of numbers, without the number of images."""
    says = {}
    for side in SIDES:
        inputs, targets = data[side]
        says[f"{side}_inputs"] = f"{inputs.dtype} {['N', *inputs.shape[1:]]}".replace("'", "")
        says[f"{side}_targets"] = f"{targets.dtype} {['N', *targets.shape[1:]]}".replace("'", "")
    count = data["num_classes"]
    return says | {"num_classes": int(count) if isinstance(count, (int, Tensor)) else str(count)}


def _places(inputs: Tensor, images: Tensor) -> list[int]:
    """Of each input the position of its raw image, whatever its scale; -1 for none of them."""
    rows, raw = (_standardised(values) for values in (inputs, images))
    if rows.shape[1] != raw.shape[1]:
        return [-1] * len(rows)
    best = (rows @ raw.T).max(dim=1)
    return torch.where(best.values > ALIKE, best.indices, -1).tolist()


def _standardised(values: Tensor) -> Tensor:
    rows = values.reshape(len(values), -1).double()
    rows = rows - rows.mean(dim=1, keepdim=True)
    return rows / rows.norm(dim=1, keepdim=True).clamp_min(1e-12)


def _scales(data: dict[str, Any], case: Case, places: dict[str, list[int]]) -> Answer:
    """How each side is normalised, and whether by what mean and std say."""
    train = data["train"][0].double()
    mean, std = train.mean().item(), train.std(correction=0).item()
    near = abs(mean) < CENTRED and abs(std - 1) < CENTRED
    both = torch.cat([data[side][0].flatten().double() for side in SIDES])
    of_both = abs(both.mean().item()) < CENTRED and abs(both.std().item() - 1) < CENTRED
    other = "0 and 1 only together with validation" if of_both else f"{mean:.3g} and {std:.3g}"
    own = (train.flatten(1).std(dim=1, correction=less).mean().item() for less in (0, 1))
    if abs(mean) < CENTRED and any(abs(deviation - 1) < CENTRED for deviation in own):
        other = "0, and 1 only on average within an image"
    by_pixel = (train.std(dim=0, correction=less).mean().item() for less in (0, 1))
    if abs(mean) < CENTRED and any(abs(deviation - 1) < CENTRED for deviation in by_pixel):
        other = "0, and 1 only on average over the pixels"
    if abs(255 * std - 1) < CENTRED and mean < -CENTRED:
        other = "below 0 and 1/255"
    says: Answer = {"train_scale": "0 and 1" if near else other}
    for side in SIDES:
        known = [i for i in places[side] if i >= 0]
        rows = [row for row, i in enumerate(places[side]) if i >= 0]
        raw = case["images"].double()[known].flatten()
        back = data[side][0].double()[rows].flatten() * data["std"] + data["mean"]
        fits = {unit: len(known) > 0 and bool(torch.allclose(unit * back, raw, rtol=0, atol=0.05))
                for unit in (1, 255)}  # fmt: skip
        by = "255 times mean and std" if fits[255] else "not the given mean and std"
        says[f"{side}_by"] = "mean and std" if fits[1] else by
    return says


def _membership(data: dict[str, Any], case: Case, places: dict[str, list[int]]) -> Answer:
    """Images that are missing, doubled, or have another one's target; groups on both sides."""
    both = [i for side in SIDES for i in places[side] if i >= 0]
    wrong = sum(
        int(case["labels"][i]) != int(target.flatten()[0])
        for side in SIDES
        for i, target in zip(places[side], data[side][1], strict=True)
        if i >= 0
    )
    owners = [{int(case["groups"][i]) for i in places[side] if i >= 0} for side in SIDES]
    share = len(places["val"]) / len(case["labels"])
    return {
        "unknown": sum(i < 0 for side in SIDES for i in places[side]),
        "missing": len(case["labels"]) - len(set(both)),
        "twice": len(both) - len(set(both)),
        "wrong_targets": wrong,
        "shared_groups": bool(owners[0] & owners[1]),
        "share": "10 to 30 %" if LOW <= share <= HIGH else f"{share:.0%}",
    }


def reference(images, labels, groups, seed) -> dict[str, Any]:
    """The course's split by group, then the normalisation of its training side."""
    return _whole(images, labels, *splits.group_split(groups.cpu().numpy(), 0.2, seed=seed))


def _whole(images: Tensor, labels: Tensor, train: Any, val: Any, **change: Any) -> dict[str, Any]:
    """The two sides from their positions; `change` is what a wrong answer does otherwise."""
    inputs, fit = images.float().unsqueeze(1), change.get("fit", train)
    mean, std = inputs[fit].mean(), inputs[fit].std()
    sides = {
        side: ((inputs[rows] - mean) / std, labels[rows].long())
        for side, rows in (("train", train), ("val", val))
    }
    classes = int(labels.max()) + 1
    return {**sides, "mean": mean.item(), "std": std.item(), "num_classes": classes}


def _drawn(groups: Tensor, seed: int, share: float = 0.2) -> tuple[Tensor, Tensor]:
    """Positions of both sides, whole groups drawn with a generator of its own."""
    names = groups.unique()
    own = torch.Generator().manual_seed(seed)
    chosen = names[torch.randperm(len(names), generator=own)[: round(share * len(names))]]
    inside = torch.isin(groups, chosen)
    return (~inside).nonzero().flatten(), inside.nonzero().flatten()


def with_a_mask(images, labels, groups, seed):
    return _whole(images, labels, *_drawn(groups, seed))


def in_numpy(images, labels, groups, seed):
    rng = np.random.default_rng(seed)
    names = np.unique(groups.numpy())
    chosen, count = set(), 0
    for name in rng.permutation(names).tolist():
        if count >= 0.2 * len(labels):
            break
        chosen.add(name)
        count += int((groups == name).sum())
    val = [i for i, name in enumerate(groups.tolist()) if name in chosen]
    train = [i for i, name in enumerate(groups.tolist()) if name not in chosen]
    fit = images[train].double().numpy()
    mean, std = fit.mean(), fit.std()

    def side(rows):
        scaled = (images[rows].double() - mean) / std
        return scaled.float()[:, None], labels[rows].to(torch.int64)

    return {"train": side(train), "val": side(val), "mean": mean, "std": std,
            "num_classes": labels.max().item() + 1}  # fmt: skip


def with_scikit_learn(images, labels, groups, seed):
    from sklearn.model_selection import GroupShuffleSplit

    splitter = GroupShuffleSplit(1, test_size=0.2, random_state=seed)
    train, val = next(splitter.split(images, groups=groups))
    x, y = images.view(len(images), 1, *images.shape[1:]) / 255.0, labels.long()
    mean, std = x[train].mean(), x[train].std(correction=0)
    sides = [((x[rows] - mean) / std, y[rows]) for rows in (train, val)]
    return {"train": sides[0], "val": sides[1], "mean": 255 * mean, "std": 255 * std,
            "num_classes": int(y.max()) + 1}  # fmt: skip


def rows_split(images, labels, groups, seed):
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    count = len(labels) // 5
    return _whole(images, labels, order[count:], order[:count])


def normalised_by_all(images, labels, groups, seed):
    return _whole(images, labels, *_drawn(groups, seed), fit=slice(None))


def each_by_itself(images, labels, groups, seed):
    data = with_a_mask(images, labels, groups, seed)
    inputs, targets = data["val"]
    return data | {"val": ((inputs - inputs.mean()) / inputs.std(), targets)}


def only_scaled(images, labels, groups, seed):
    train, val = _drawn(groups, seed)
    x = images.float().unsqueeze(1) / 255
    return _whole(images, labels, train, val) | {
        "train": (x[train], labels[train].long()), "val": (x[val], labels[val].long())
    }  # fmt: skip


def bytes_as_shares(images, labels, groups, seed):
    """Images are divided by 255; mean and std are those of bytes."""
    train, val = _drawn(groups, seed)
    data = _whole(images, labels, train, val)
    x = (images.float().unsqueeze(1) / 255 - data["mean"]) / data["std"]
    return data | {
        "train": (x[train], labels[train].long()), "val": (x[val], labels[val].long())
    }  # fmt: skip


def shares_of_one(images, labels, groups, seed):
    data = with_a_mask(images, labels, groups, seed)
    return data | {"mean": data["mean"] / 255, "std": data["std"] / 255}


def deviation_within_images(images, labels, groups, seed):
    train, val = _drawn(groups, seed)
    rows = images[train].float().flatten(1)
    mean, std = rows.mean().item(), rows.std(dim=1).mean().item()
    inputs = (images.float().unsqueeze(1) - mean) / std
    return _whole(images, labels, train, val) | {
        "train": (inputs[train], labels[train].long()), "val": (inputs[val], labels[val].long()),
        "mean": mean, "std": std,
    }  # fmt: skip


def deviation_per_pixel(images, labels, groups, seed):
    train, val = _drawn(groups, seed)
    rows = images[train].float()
    mean, std = rows.mean().item(), rows.std(dim=0).mean().item()
    inputs = (images.float().unsqueeze(1) - mean) / std
    return _whole(images, labels, train, val) | {
        "train": (inputs[train], labels[train].long()), "val": (inputs[val], labels[val].long()),
        "mean": mean, "std": std,
    }  # fmt: skip


def by_remainder(images, labels, groups, seed):
    inside = (groups + seed) % 5 == 0
    return _whole(images, labels, (~inside).nonzero().flatten(), inside.nonzero().flatten())


def rounded(images, labels, groups, seed):
    data = with_a_mask(images, labels, groups, seed)
    return data | {"mean": round(data["mean"]), "std": round(data["std"])}


def groups_as_positions(images, labels, groups, seed):
    own = torch.Generator().manual_seed(seed)
    count = int(groups.max()) + 1
    inside = torch.isin(groups, torch.randperm(count, generator=own)[: count // 5])
    return _whole(images, labels, (~inside).nonzero().flatten(), inside.nonzero().flatten())


def wrapped_bytes(images, labels, groups, seed):
    train, val = _drawn(groups, seed)
    mean, std = images[train].float().mean(), images[train].float().std()
    x = (images - mean.to(torch.uint8)).float().unsqueeze(1) / std
    return _whole(images, labels, train, val) | {
        "train": (x[train], labels[train].long()), "val": (x[val], labels[val].long())
    }  # fmt: skip


def changed(change):
    """A right answer, of which each side is changed."""

    def wrong(images, labels, groups, seed):
        data = with_a_mask(images, labels, groups, seed)
        return data | {side: change(*data[side]) for side in SIDES}

    return wrong


def classes_counted(images, labels, groups, seed):
    return with_a_mask(images, labels, groups, seed) | {"num_classes": len(labels.unique())}


def highest_of_training(images, labels, groups, seed):
    data = with_a_mask(images, labels, groups, seed)
    return data | {"num_classes": int(data["train"][1].max()) + 1}


def highest_label(images, labels, groups, seed):
    return with_a_mask(images, labels, groups, seed) | {"num_classes": int(labels.max())}


def seeded_globally(images, labels, groups, seed):
    torch.manual_seed(seed)
    names = groups.unique()
    chosen = names[torch.randperm(len(names))[: len(names) // 5]]
    inside = torch.isin(groups, chosen)
    return _whole(images, labels, (~inside).nonzero().flatten(), inside.nonzero().flatten())


def seed_ignored(images, labels, groups, seed):
    return with_a_mask(images, labels, groups, 0)


def drawn_freely(images, labels, groups, seed):
    return with_a_mask(images, labels, groups, int(torch.randint(10**6, ())))


def last_groups(images, labels, groups, seed):
    inside = groups >= groups.unique()[-len(groups.unique()) // 5]
    return _whole(images, labels, (~inside).nonzero().flatten(), inside.nonzero().flatten())


def swapped(images, labels, groups, seed):
    return _whole(images, labels, *reversed(_drawn(groups, seed)))


def unseen_left_out(images, labels, groups, seed):
    """Images whose class training lacks do not validate."""
    train, val = _drawn(groups, seed)
    return _whole(images, labels, train, val[torch.isin(labels[val], labels[train])])


def black_and_white_drawn_in(images, labels, groups, seed):
    images.clamp_(1, 254)
    return with_a_mask(images, labels, groups, seed)


def one_take_each(images, labels, groups, seed):
    first = [groups.tolist().index(name) for name in groups.unique().tolist()]
    train, val = _drawn(groups, seed)
    keep = set(first)
    train, val = ([i for i in rows.tolist() if i in keep] for rows in (train, val))
    return _whole(images, labels, train, val)


def validation_kept_in(images, labels, groups, seed):
    _, val = _drawn(groups, seed)
    return _whole(images, labels, torch.arange(len(labels)), val)


def targets_in_file_order(images, labels, groups, seed):
    train, val = _drawn(groups, seed)
    data = _whole(images, labels, train, val)
    count = len(train)
    return data | {"train": (data["train"][0], labels[:count].long()),
                   "val": (data["val"][0], labels[count:].long())}  # fmt: skip


def shifted_by_one(images, labels, groups, seed):
    return with_a_mask(images, labels - 1, groups, seed)


def in_place(images, labels, groups, seed):
    data = with_a_mask(images, labels, groups, seed)
    images.zero_()
    return data


WRONG = (
    ("rows-split", rows_split,
     "Objects are on both sides: takes of the same object were separated. Split the groups, then "
     "take all images of each group."),
    ("normalised-by-all", normalised_by_all,
     "Mean and deviation were computed over all images, so validation has leaked into what is "
     "fitted. Compute them over training."),
    ("each-by-itself", each_by_itself,
     "Validation was scaled by different numbers than training. Normalise both sides by the mean "
     "and deviation of training."),
    ("only-scaled", only_scaled,
     "The inputs are not centred with deviation 1, and they do not match mean and std. Return "
     "(images - mean) / std, as floats."),
    ("bytes-as-shares", bytes_as_shares,
     "The inputs' deviation is 1/255, as happens if images are divided by 255 before mean and std, "
     "which are those of bytes, are applied. Leave out the division, or take mean and std of the "
     "divided images and return them times 255."),
    ("shares-of-one", shares_of_one,
     "mean and std are shares of 255. Give them in bytes, like the images: multiply by 255."),
    ("deviation-within-images", deviation_within_images,
     "Within an image the deviation is 1 on average, but over all images together it is not: "
     "images also differ in brightness. Take one mean and one std over all training bytes "
     "together."),
    ("deviation-per-pixel", deviation_per_pixel,
     "At each pixel the deviation over the images is 1 on average, but over all pixels together it "
     "is not: pixels also differ in their mean. Take one std over all training bytes together."),
    ("rounded", rounded, ""),
    ("wrapped-bytes", wrapped_bytes, ""),
    ("no-channel", changed(lambda x, y: (x[:, 0], y)),
     "The inputs have no channel dimension. Make them [N, 1, H, W], here with unsqueeze(1)."),
    ("channel-last", changed(lambda x, y: (x.permute(0, 2, 3, 1), y)), ""),
    ("double-inputs", changed(lambda x, y: (x.double(), y)),
     "The inputs are float64, but the weights of a model are float32: use .float()."),
    ("byte-targets", changed(lambda x, y: (x, y.to(torch.uint8))),
     "The targets are still bytes, as in the file. Class indices must be long: labels.long()."),
    ("one-hot", changed(lambda x, y: (x, torch.nn.functional.one_hot(y).float())), ""),
    ("classes-counted", classes_counted,
     "num_classes is the number of labels that occur. A class may be missing here but come later: "
     "use the highest label plus 1."),
    ("highest-of-training", highest_of_training,
     "If the highest class is only in validation, num_classes is too small: it was taken from "
     "training's labels. Use the highest of all labels, plus 1."),
    ("highest-label", highest_label,
     "num_classes is the highest label. Labels are counted from 0, so add 1."),
    ("seeded-globally", seeded_globally,
     "torch's global generator was seeded or used. Draw from your own generator: "
     "torch.Generator().manual_seed(seed)."),
    ("seed-ignored", seed_ignored,
     "Another seed gave the same split. Draw the validation groups with the seed that is passed "
     "in."),
    ("seed-ignored", last_groups, ""),
    ("drawn-freely", drawn_freely, ""),
    ("swapped", swapped,
     "Validation holds most of the images: the two sides are swapped."),
    ("one-take-each", one_take_each,
     "Some images are on neither side. Use every take; its object decides only its side."),
    ("unseen-left-out", unseen_left_out,
     "If training lacks a class, that class's images are on neither side. Leave each image on the "
     "side of its object: what is never learnt counts as a mistake."),
    ("validation-kept-in", validation_kept_in,
     "The images of validation are in training too."),
    ("targets-in-file-order", targets_in_file_order,
     "Targets do not belong to their inputs. Index both with the same positions."),
    ("shifted-labels", shifted_by_one, ""),
    ("groups-as-positions", groups_as_positions, ""),
    ("by-remainder", by_remainder, ""),
    ("in-place", in_place, ""),
    ("in-place", black_and_white_drawn_in, ""),
    ("empty", lambda images, labels, groups, seed: {}, ""),
)  # fmt: skip

SURE = ("highest-of-training", "unseen-left-out")
"""Seen in one split alone, in which training lacks the highest class."""

EXERCISE = Exercise(
    id="05.data",
    title="data contract and split",
    source='Lecture 3, "Splits and leakage"; engineering module, outcomes',
    ledger=("X11", "T24", "B22", "F99", "F14"),
    minutes=20,
    difficulty=2,
    read=("course.data.group_split", "F99", "T24"),
    hints=(
        "Take four steps in this order: choose the validation groups, find their images, compute "
        "mean and deviation of the others, build both sides.",
        "group_split from course.data does the first two. Turn bytes into floats before you "
        "subtract anything.",
        "inputs = images.float().unsqueeze(1); mean, std = inputs[train].mean(), "
        "inputs[train].std(); then the pair ((inputs[rows] - mean) / std, labels[rows].long()) for "
        "each side.",
    ),
    signature="make_data(images, labels, groups, seed)",
    parts=(
        Part("contract", "what both sides look like", points=1,
             fields=("train_inputs", "val_inputs", "train_targets", "val_targets", "num_classes",
                     "left_out")),
        Part("scale", "normalised by training alone", points=1,
             fields=("unknown", "train_scale", "train_by", "val_by")),
        Part("whole", "each image once, with its target", points=1,
             fields=("unknown", "missing", "twice", "wrong_targets")),
        Part("apart", "no object on both sides", points=1.5,
             fields=("unknown", "shared_groups", "share")),
        Part("seed", "a split that repeats with the seed", points=0.5,
             fields=("unknown", "same", "differs", "disturbed")),
    ),
    reference=reference,
    may_use=("course.data",),
    draw=draw,
    run=run,
    says={
        "train_inputs": "the training inputs",
        "val_inputs": "the validation inputs",
        "train_targets": "the training targets",
        "val_targets": "the validation targets",
        "num_classes": "num_classes",
        "left_out": "if training lacks a class, the number of images on neither side",
        "unknown": "the number of inputs that are not a rescaled image of the project",
        "train_scale": "the training inputs' mean and standard deviation",
        "train_by": "what turns the training inputs back into bytes",
        "val_by": "what turns the validation inputs back into bytes",
        "missing": "the number of images on neither side",
        "twice": "the number of images that occur twice",
        "wrong_targets": "the number of targets that belong to another image",
        "shared_groups": "whether an object is on both sides",
        "share": "the share of the images in validation",
        "same": "whether the same seed gives the same sides",
        "differs": "whether another seed gives a different validation side",
    },
    wrong=tuple(
        Wrong(name, named(name, function), message, sure=name in SURE)
        for name, function, message in WRONG
    ),
    right=(with_a_mask, in_numpy, with_scikit_learn),
)  # fmt: skip
