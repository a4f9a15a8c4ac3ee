"""02a.group-norm: three bugs in a normalisation that must not depend on the batch."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from autograde.bank.harness import Watch
from autograde.exercise import Answer, AnswerError, Case, Draw, Exercise, Part, Wrong
from autograde.kinds.fix import change_size, variant

GIVEN = """
def group_norm(x, groups, weight, bias, eps):
    batch, channels = x.shape[:2]
    grouped = x.reshape(batch, groups, -1)
    mean = grouped.mean(dim=(0, 2), keepdim=True)
    variance = grouped.var(dim=2, keepdim=True)
    normal = (grouped - mean) / (variance + eps).sqrt()
    normal = normal.reshape(x.shape)
    return weight * normal + bias
"""
MOST = 5
"""Lines that may differ: three bugs take one each, and a shape of its own one or two more."""
WIDE, LEAST, MOST_SPREAD = 4.0, 0.05, 2.0
"""The deviation of x in the part `alone`, and between which that of a normalised x is."""


def draw(source: Draw, part: str) -> Case:
    """Rows or images of every rank.

    Images as wide as there are channels do not ask for the shape of weight and bias: a right mean
    and a right variance earn their points whatever it is.
    """
    groups = source.integer(2, 3)
    channels = 6  # another number of groups than in a group
    size = [1 if part in ("variance", "affine") else source.integer(2, 4), channels]
    if part in ("alone", "variance") or source.index == 0:
        size += [source.integer(2, 3), channels]
    elif source.index == 1:
        size += [source.integer(3, 5)]
    if part == "little" and source.index == 0:  # a film
        size.insert(2, 2)
    plain = part in ("alone", "variance")
    scale = WIDE if part == "alone" else 1.0
    return {
        "x": scale * (source.normal(*size) + source.uniform(0.5, 1.5)),
        "others": source.normal(*size),
        "groups": groups,
        "weight": torch.ones(channels) if plain else source.normal(channels) + 0.1,
        "bias": torch.zeros(channels) if plain else source.normal(channels) + 0.1,
        "eps": source.choice([0.05, 0.2]),
        "dtype": "float64" if source.index == 1 else "float32",
        "part": part,
    }


def run(function, case: Case, device: torch.device) -> Answer:
    """The result; with other neighbours in the batch; weight and bias read back per channel."""
    dtype = getattr(torch, case["dtype"])
    x, weight, bias = (case[k].to(device, dtype) for k in ("x", "weight", "bias"))
    watch = Watch(data={"x": x, "weight": weight, "bias": bias})
    out = _as_result(function(x, case["groups"], weight, bias, case["eps"]), x)
    disturbed = watch.changed()
    found = {"out": out.detach().cpu(), "disturbed": disturbed}
    found["changed"] = change_size(GIVEN, function, most=MOST)
    ones, zeros = torch.ones_like(weight), torch.zeros_like(bias)
    given = case["x"].to(device, dtype)
    if case["part"] == "alone":
        others = torch.cat([given[:1], case["others"][1:].to(device, dtype)])
        second = function(others, case["groups"], ones, zeros, case["eps"])
        found["spread"] = _spread(out[0])
        found["alone"] = bool((out[0] - second[0]).abs().max().cpu() < 1e-5)
    if case["part"] == "affine":
        plain = function(given, case["groups"], ones, zeros, case["eps"])
        found["affine"] = _affine(plain, out)
    return found


def _spread(values: Tensor) -> str:
    """The deviation of normalised values: about 1, whatever else is wrong; that of x is far off."""
    spread = values.detach().double().std(correction=0).item()
    return "near 1" if LEAST < spread < MOST_SPREAD else f"{spread:.2g}"


def _as_result(made: object, x: Tensor) -> Tensor:
    if not isinstance(made, Tensor) or made.shape != x.shape:
        shape = f" of shape {list(made.shape)}" if isinstance(made, Tensor) else ""
        raise AnswerError(
            f"It returned a {type(made).__name__}{shape}; return a tensor of x's shape, "
            f"{list(x.shape)}."
        )
    return made


def _affine(plain: Tensor, out: Tensor) -> list[list[float] | str]:
    """Per channel: by what the plain result was multiplied, and what was added (a line's fit)."""
    pairs = []
    for a, b in zip(plain[0].cpu().double(), out[0].detach().cpu().double(), strict=True):
        a, b = a.flatten(), b.flatten()
        columns = torch.stack([a, torch.ones_like(a)], dim=1)
        fit = torch.linalg.lstsq(columns, b[:, None]).solution.flatten()
        close = torch.allclose(columns @ fit, b, atol=1e-4)
        told = [round(value, 4) for value in fit.tolist()]
        pairs.append(told if close else "several within the channel")
    return pairs


FIXED = GIVEN
MEAN, VARIANCE = ("mean(dim=(0, 2),", "mean(dim=2,"), ("var(dim=2,", "var(dim=2, unbiased=False,")
SHAPE = "    shape = (1, channels) + (1,) * (x.dim() - 2)\n"
AFFINE = ("    return weight * normal + bias",
          SHAPE + "    return weight.view(shape) * normal + bias.view(shape)")  # fmt: skip
for edit in (MEAN, VARIANCE, AFFINE):
    FIXED = FIXED.replace(*edit)

fixed = partial(variant, FIXED, __file__)
reference = fixed()
batch_in_the_mean = fixed(MEAN[::-1])
batch_in_both = fixed(MEAN[::-1], ("var(dim=2,", "var(dim=(0, 2),"))
unbiased = fixed(VARIANCE[::-1])
along_the_width = fixed(AFFINE[::-1])
unbiased_along_the_width = fixed(VARIANCE[::-1], AFFINE[::-1])
one_fixed = fixed(MEAN[::-1], AFFINE[::-1])
behind_two_dimensions = fixed(
    (AFFINE[1], "    return weight[:, None, None] * normal + bias[:, None, None]")
)
images_only = fixed(
    ("    shape = (1, channels) + (1,) * (x.dim() - 2)", "    shape = (1, -1, 1, 1)")
)
up_to_images = fixed(
    (SHAPE, "    shape = {2: (1, -1), 3: (1, -1, 1)}.get(x.dim(), (1, -1, 1, 1))\n")
)
variance_over_the_batch = fixed(("var(dim=2,", "var(dim=(0, 2),"))
mean_of_all_groups = fixed(("mean(dim=2,", "mean(dim=(1, 2),"))
bias_along_the_width = fixed(("bias.view(shape)", "bias"))
every_other_put_back_in_a_row = fixed(
    ("reshape(batch, groups, -1)", "reshape(batch, -1, groups).transpose(1, 2)")
)
mean_across_the_groups = fixed(("mean(dim=2,", "mean(dim=1,"))
both_across_the_groups = fixed(
    ("mean(dim=2,", "mean(dim=1,"), ("var(dim=2, unbiased=False,", "var(dim=1, unbiased=False,")
)
corrected_by_channels = fixed(
    ("unbiased=False, keepdim=True)",
     "keepdim=True) * (channels // groups - 1) / (channels // groups)"),
)  # fmt: skip
eps_outside = fixed(("(variance + eps).sqrt()", "(variance.sqrt() + eps)"))
eps_forgotten = fixed(("(variance + eps).sqrt()", "variance.sqrt()"))
eps_fixed = fixed(("(variance + eps).sqrt()", "(variance + 1e-5).sqrt()"))
groups_as_size = fixed(("reshape(batch, groups, -1)", "reshape(batch, channels // groups, -1)"))
around_zero = fixed(
    ("grouped.var(dim=2, unbiased=False, keepdim=True)",
     "grouped.square().mean(dim=2, keepdim=True)"),
)  # fmt: skip
variance_of_all_groups = fixed(("var(dim=2,", "var(dim=(1, 2),"))
pixel_by_pixel = fixed(
    ("reshape(batch, groups, -1)", "reshape(batch, groups, channels // groups, -1)")
)
weight_forgotten = fixed(("weight.view(shape) * normal", "normal"))
variance_for_root = fixed(("(variance + eps).sqrt()", "(variance + eps)"))
each_channel = fixed(("reshape(batch, groups, -1)", "reshape(batch, channels, -1)"))
all_channels = fixed(("reshape(batch, groups, -1)", "reshape(batch, 1, -1)"))
every_other = fixed(
    ("reshape(batch, groups, -1)",
     "reshape(batch, channels // groups, groups, -1).transpose(1, 2).reshape(batch, groups, -1)"),
    ("normal = normal.reshape(x.shape)",
     "normal = normal.reshape(batch, groups, channels // groups, -1).transpose(1, 2)"
     ".reshape(x.shape)"),
)  # fmt: skip
bias_forgotten = fixed((" + bias.view(shape)", ""))
weight_on_both = fixed((" + bias.view(shape)", " + weight.view(shape)"))
bias_scaled = fixed(
    ("weight.view(shape) * normal + bias.view(shape)",
     "weight.view(shape) * (normal + bias.view(shape))"),
)  # fmt: skip
mean_left_in = fixed(("(grouped - mean)", "grouped"))
weight_per_group = fixed(
    ("    normal = normal.reshape(x.shape)\n", ""),
    ("weight.view(shape) * normal + bias.view(shape)",
     "(weight[:groups].view(1, -1, 1) * normal + bias[:groups].view(1, -1, 1)).reshape(x.shape)"),
)  # fmt: skip


with_correction = fixed(
    ("var(dim=2, unbiased=False,", "var(dim=2, correction=0,"),
    ("mean(dim=2,", "mean(dim=-1,"),
    (AFFINE[1], "    normal = normal.flatten(2) if x.dim() > 2 else normal[..., None]\n"
     "    return (weight[:, None] * normal + bias[:, None]).reshape(x.shape)"),
)  # fmt: skip
by_hand_variance = fixed(
    ("grouped.var(dim=2, unbiased=False, keepdim=True)",
     "((grouped - mean) ** 2).mean(dim=2, keepdim=True)"),
    (AFFINE[1], "    return (weight * normal.transpose(1, -1) + bias).transpose(1, -1)"),
)  # fmt: skip
last_dimension_first = fixed(
    (AFFINE[1], "    return (normal.movedim(1, -1) * weight + bias).movedim(-1, 1)"),
    ("var(dim=2, unbiased=False,", "var(2, False,"),
)

UNTOUCHED = (
    r"RuntimeError: The size of tensor a \(\d+\) must match the size of tensor b \(\d+\) at "
    r"non-singleton dimension \d+(, at the line: return weight \* normal \+ bias)?$"
)
"""What the last line raises as it was given. A student's has a line, the bank's own have none."""

HALF_SHAPED = UNTOUCHED.replace("return weight", r"return weight\.\w+\(.*\)")
"""The same where the weight alone was given a shape."""

EXERCISE = Exercise(
    id="02a.group-norm",
    title="three bugs in a GroupNorm",
    source='Annotated-loop essay, "Training mode"; Wu and He 2018',
    kind="fix",
    ledger=("F134", "F23"),
    minutes=10,
    difficulty=2,
    read=("F134", "course.from_scratch.layers.group_norm"),
    hints=(
        "Normalise one image by hand: which numbers go into its mean, and from which image are "
        "they?",
        "One bug lets examples see one another, one divides by the wrong count, one multiplies "
        "along the wrong dimension. Compare your results with those of torch's F.group_norm.",
        "mean over dim=2 alone; var(..., unbiased=False); weight and bias belong to dimension 1: "
        "view them as (1, channels, 1, ...), for any rank of x.",
    ),
    signature="group_norm(x, groups, weight, bias, eps)",
    parts=(
        Part("alone", "an example does not depend on the "
                      "others", points=1, fields=("spread", "alone")),
        Part("variance", "the values of one image", points=1, fields=("out",)),
        Part("affine", "weight and bias, one number per channel", points=1, fields=("affine",)),
        Part("little", f"all of it, for x of any rank, at most {MOST} lines changed", points=1,
             cases=3, fields=("out", "disturbed", "changed")),
    ),
    reference=reference,
    draw=draw,
    run=run,
    by_hand=(F.group_norm, F.batch_norm, F.instance_norm, F.layer_norm, F.rms_norm,
             nn.GroupNorm.forward),
    says={
        "spread": "the standard deviation of the result of example 0",
        "alone": "whether example 0 gives the same result in another batch:",
        "out": "the result",
        "affine": "[weight, bias] of each channel, read from the result:",
        "changed": "the number of lines changed",
    },
    wrong=(
        Wrong("batch-in-the-mean", batch_in_the_mean,
              "The result of an example changes with the rest of the batch. Take the mean within "
              "the example: not over dimension 0."),
        Wrong("batch-in-both", batch_in_both,
              "Mean and variance go over the whole batch, as in a BatchNorm. Take both within the "
              "example: over dimension 2 alone."),
        Wrong("unbiased", unbiased,
              "The normalised values are too small, by about √((n - 1)/n): var() divides by "
              "n - 1 unless you say unbiased=False."),
        Wrong("along-the-width", along_the_width,
              "weight and bias were applied along the last dimension of x. "
              "They belong to dimension 1: view them as (1, channels, 1, ...).", raises=UNTOUCHED),
        Wrong("variance-alone-fixed", one_fixed,
              "The variance is right. But the mean still goes over the batch, "
              "and weight and bias are still applied along the last dimension.", raises=UNTOUCHED),
        Wrong("mean-alone-fixed", unbiased_along_the_width,
              "The mean is right. But var() still divides by n - 1, and weight "
              "and bias are still applied along the last dimension.", raises=UNTOUCHED),
        Wrong("variance-over-the-batch", variance_over_the_batch,
              "The mean is taken within the example, but the variance still over the batch: "
              "var() should go over dimension 2 alone, too."),
        Wrong("mean-of-all-groups", mean_of_all_groups,
              "The mean is that of all groups of an example, but the variance that of one. Both "
              "should go over dimension 2 alone."),
        Wrong("bias-along-the-width", bias_along_the_width,
              "weight now belongs to the channels, but bias is still applied along the last "
              "dimension. View both as (1, channels, 1, ...).",
              raises=HALF_SHAPED),
        Wrong("mean-across-the-groups", mean_across_the_groups,
              "The mean was taken over dimension 1, from group to group. Take it within a group, "
              "over dimension 2, as the variance."),
        Wrong("both-across-the-groups", both_across_the_groups,
              "Mean and variance were taken over dimension 1, from group to group. Take both "
              "within a group, over dimension 2."),
        Wrong("every-other-out-of-order", every_other_put_back_in_a_row,
              "Every g-th channel (in images every g-th number) made up a group, and the results "
              "are in another order than the channels. A group holds adjacent channels: leave the "
              "reshape as it was given."),
        Wrong("variance-of-all-groups", variance_of_all_groups,
              "The variance is that of all groups of an example, but the mean that of one. Both "
              "should go over dimension 2 alone."),
        Wrong("pixel-by-pixel", pixel_by_pixel,
              "Each pixel of a group was normalised by itself, over its channels alone. A group "
              "has one mean and one variance, over channels and pixels."),
        Wrong("groups-as-size", groups_as_size,
              "Each group held `groups` channels. groups is the number of groups: each holds "
              "channels // groups channels."),
        Wrong("corrected-by-channels", corrected_by_channels,
              "Rows are right, but images are not: a group holds channels times pixels, so the "
              "variance was corrected by the wrong number. unbiased=False needs no correction."),
        Wrong("images-only", images_only,
              "Images come out right, but x of fewer dimensions does not: weight and bias have "
              "a shape that fits only images. View them as (1, channels), with a 1 for each "
              "further dimension: (1, channels) + (1,) * (x.dim() - 2).",
              raises=r"must match the size of tensor|It returned a Tensor of shape", sure=True),
        Wrong("images-only", behind_two_dimensions,
              raises=r"must match the size of tensor|It returned a Tensor of shape", sure=True),
        Wrong("up-to-images", up_to_images),
        Wrong("eps-outside", eps_outside,
              "eps was added to the root. It belongs to the variance, under the root."),
        Wrong("eps-forgotten", eps_forgotten,
              "The eps that was passed in had no effect. It is added to the variance, under the "
              "root."),
        Wrong("eps-forgotten", eps_fixed),
        Wrong("around-zero", around_zero,
              "The mean square was used as the variance. A variance is taken around the mean: "
              "subtract it before squaring."),
        Wrong("variance-for-root", variance_for_root,
              "The result was divided by the variance. Divide by its root."),
        Wrong("each-channel", each_channel,
              "Each channel was normalised by itself, as with groups = channels. A group joins "
              "several."),
        Wrong("all-channels", all_channels,
              "All channels were normalised together, as with groups = 1. Take mean and "
              "variance of `grouped` over dimension 2 alone."),
        Wrong("every-other", every_other,
              "Every g-th channel (in images every g-th number) made up a group. A group holds "
              "adjacent channels."),
        Wrong("bias-forgotten", bias_forgotten, "The bias is missing: weight times normal, plus "
              "bias."),
        Wrong("weight-forgotten", weight_forgotten,
              "The weight had no effect: weight times normal, plus bias."),
        Wrong("weight-on-both", weight_on_both),
        Wrong("bias-scaled", bias_scaled,
              "The bias was multiplied by the weight. It is added after that."),
        Wrong("mean-left-in", mean_left_in, "The mean was not subtracted: subtract it first."),
        Wrong("weight-per-group", weight_per_group,
              "The channels of a group share a weight and a bias. But each channel has its own: "
              "apply them once the result has x's shape."),
    ),
    right=(with_correction, by_hand_variance, last_dimension_first),
)  # fmt: skip
