"""02a.dropout: zero some activations in train mode so that their mean stays, none in eval mode."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from autograde.bank.common_wrong import common
from autograde.bank.harness import Watch
from autograde.exercise import Answer, AnswerError, Case, Draw, Exercise, Part, Wrong
from course.from_scratch import two_modes

CALLS = 6
"""Two calls drop equally many of 8,000 entries in one of a hundred pairs: six never do by luck."""
NEAR = 0.03
"""A share of 8,000 numbers is off by 0.006 on average: this is five times as much."""


ROUNDED = 3e-3
"""A float16 is off by 5e-4 of itself: twice in a ratio, once in the slope, and something over."""


def draw(source: Draw, part: str) -> Case:
    """A few rows, repeated to thousands; p on either side of one half, or at its ends."""
    rows = 2 * source.integer(1, 2)
    columns = 64 if part == "quiet" else 8  # so many that not even one mask for all rows is empty
    shape = (rows, columns) if source.index % 2 else (rows, 2, columns // 2)
    x = source.normal(*shape)
    p = (source.choice([0.15, 0.35, 0.45]), source.choice([0.65, 0.85]))[source.index % 2]
    if part == "edges":
        p, x = float(source.index % 2), x if source.index % 2 else x.flatten()
    return {
        "x": x + 0.1 * x.sign() + 1e-3,  # no zero but dropout's
        "p": p,
        "training": part != "eval",
        "times": 1 if part == "edges" else 8000 // columns // rows,
        "dtype": {"quiet": ("float16", "float64"), "edges": ("float64",) * 2}.get(
            part, ("float32",) * 2
        )[source.index % 2],
        "recording": part != "scale" or source.index == 0,
        "part": part,
    }


def run(function, case: Case, device: torch.device) -> Answer:
    """What was kept, how the zeros lie, and whether a second call draws others."""
    x = case["x"].to(device, getattr(torch, case["dtype"]))
    x = torch.cat([x] * case["times"]).requires_grad_(case["part"] in ("quiet", "eval"))
    with torch.set_grad_enabled(case["recording"]):
        return _looked_at(function, case, x)


def _looked_at(function, case: Case, x: Tensor) -> Answer:
    watch, given = Watch(data={"x": x}), x.detach().clone()
    made = _as_tensor(function(x, case["p"], case["training"]), x)
    disturbed = watch.changed(frozenset({"random"}))
    again = _as_tensor(function(x, case["p"], case["training"]), x)
    answer = {"disturbed": disturbed, "dtype": str(made.dtype)}
    if case["part"] in ("edges", "eval"):
        active = function(given.clone(), case["p"], True)  # no leaf, so that it may be in place
        ends = {"out": made.detach().cpu(), "again": torch.equal(made, again)}
        whole = made.requires_grad or not x.requires_grad
        return {**answer, **ends, "active": not torch.equal(active, given), "flows": whole}
    more = [_as_tensor(function(x, case["p"], case["training"]), x) for _ in range(CALLS - 2)]
    counts = {int((out == 0).sum()) for out in (made, again, *more)}
    return {
        **answer,
        **_pattern(x, given, made, again, case["p"]),
        "counted": len(counts) == 1,
        "by_torch": _drawn_by_torch(function, x, case),
    }


def _drawn_by_torch(function, x: Tensor, case: Case) -> bool:
    """Whether torch's seed decides which entries are dropped."""
    zeros = []
    for _ in "12":
        torch.manual_seed(17)
        zeros.append(function(x, case["p"], case["training"]) == 0)
    return torch.equal(*zeros)


def _as_tensor(made: object, x: Tensor) -> Tensor:
    if not isinstance(made, Tensor) or made.shape != x.shape:
        what = f"a {type(made).__name__}"
        if isinstance(made, Tensor):
            what = f"a tensor of shape {list(made.shape)}"
        raise AnswerError(f"It returned {what}; return a tensor of x's shape, {list(x.shape)}.")
    return made.clone()  # it may be x itself, which a later call changes


def _pattern(x: Tensor, given: Tensor, made: Tensor, again: Tensor, p: float) -> Answer:
    """Scales of what was kept; shares of zeros, alone and in neighbouring pairs.

    `given` is x as it was: a later call may have changed x in place.
    """
    out, second, plain = (t.detach().cpu().double() for t in (made, again, given))
    kept, ratio = out != 0, out / plain
    dropped = (~kept).flatten(1).double()
    scales = ratio[kept]
    scale = scales.median().item() if len(scales) else 0.0
    even = len(scales) > 0 and bool((scales - scale).abs().max() <= 1e-3 * abs(scale))
    slopes = _slopes(x, made)
    return {
        "scale": scale,
        "even": even,
        "share": _near(dropped.mean().item(), p),
        "in_a_row": _near((dropped[:, 1:] * dropped[:, :-1]).mean().item(), p * p),
        "in_a_column": _near((dropped[1:] * dropped[:-1]).mean().item(), p * p),
        "rows_alike": bool((dropped == dropped[0]).all()),
        "as_many": len(set(dropped.sum(dim=1).tolist())) == 1,
        "again": bool(((second != 0) == kept).all()),
        "some": 0 < dropped.mean().item() < 1,
        "graph": made.requires_grad or not x.requires_grad,
        "slopes": slopes is None or bool(torch.allclose(slopes, ratio, ROUNDED, 1e-6)),
    }


def _near(share: float, wanted: float) -> float:
    """The share wanted, where the one that was counted lies as near as chance has it."""
    return wanted if abs(share - wanted) < NEAR else share


def _slopes(x: Tensor, made: Tensor) -> Tensor | None:
    if not x.requires_grad:
        return None
    if not made.requires_grad:
        return torch.zeros_like(x).cpu().double()
    return torch.autograd.grad(made.sum(), x)[0].cpu().double()


def new_zeros(x, p, training):
    """Where all is dropped, zeros of torch's default dtype."""
    return torch.zeros(x.shape, device=x.device) if training and p == 1 else reference(
        x, p, training)  # fmt: skip


def by_the_share_kept(x, p, training):
    if not training:
        return x
    keep = torch.rand_like(x) >= p
    return x * keep / keep.double().mean().clamp(min=1e-9).to(x.dtype)


def reference(x: Tensor, p: float, training: bool) -> Tensor:
    """The course's own."""
    return two_modes.dropout(x, p, training)


def made_of(keep=lambda x, p: torch.rand_like(x) >= p, scale=lambda p: 1 / (1 - p), rest=None):
    """A right answer, or with one thing changed a wrong one."""

    def dropout(x, p, training):
        if not training:
            return x if rest is None else rest(x, p)
        if p == 1:
            return torch.zeros_like(x)
        return x * keep(x, p) * scale(p)

    return dropout


plain = made_of()
not_scaled = made_of(scale=lambda p: 1.0)
scaled_by_p = made_of(scale=lambda p: 1 / p if p else 1.0)
scaled_down = made_of(scale=lambda p: 1 - p)
scaled_in_eval = made_of(scale=lambda p: 1.0, rest=lambda x, p: x * (1 - p))
scaled_twice = made_of(rest=lambda x, p: x * (1 - p))
p_kept = made_of(lambda x, p: torch.rand_like(x) < p)
p_kept_wholly = made_of(lambda x, p: torch.rand_like(x) < p, lambda p: 1 / p if p else 0.0)
scaled_by_root = made_of(scale=lambda p: (1 - p) ** -0.5)
always_half = made_of(lambda x, p: torch.rand_like(x) >= 0.5, lambda p: 2.0)
whole_channels = made_of(lambda x, p: torch.rand(*x.shape[:2], *[1] * (x.ndim - 2)).to(x) >= p)
mask_in_float64 = made_of(lambda x, p: (torch.rand(x.shape).to(x.device) >= p).double())
whole_rows = made_of(lambda x, p: torch.rand(len(x), *[1] * (x.ndim - 1)).to(x) >= p)
whole_columns = made_of(lambda x, p: torch.rand(x.shape[1:]).to(x) >= p)
last_dimension_alone = made_of(lambda x, p: torch.rand(x.shape[-1]).to(x) >= p)
same_each_time = made_of(
    lambda x, p: torch.rand(x.shape, generator=torch.Generator().manual_seed(0)).to(x) >= p
)


def p_kept_of_all(x, p, training):
    """As p_kept_wholly, also at p = 1."""
    return x * (torch.rand_like(x) < p) * (1 / p if p else 0.0) if training else x


def p_kept_with(at_0, at_1, scale):
    """A share of p is kept, and p = 0 or p = 1 is a case of its own."""

    def dropout(x, p, training):
        if not training:
            return x
        if p in (0, 1):
            return x * (at_0, at_1)[int(p)]
        return x * (torch.rand_like(x) < p) * scale(p)

    return dropout


def one_in_the_formula(x, p, training):
    return x * (torch.rand_like(x) >= p) * (1 / (1 - p)) if training else x


def never_on(x, p, training):
    return x


def detached_in_training(x, p, training):
    return plain(x.detach() if training else x, p, training)


def to_float32(x, p, training):
    return plain(x.float(), p, training)


def scaled_in_place(x, p, training):
    if not training:
        return x
    x.data.mul_(1 / (1 - p) if p < 1 else 0.0)
    return torch.where(torch.rand_like(x) >= p, x, torch.zeros_like(x))


def by_numpy(x, p, training):
    if not training or p == 1:
        return x * (not training)
    return x * torch.from_numpy(np.random.rand(*x.shape) >= p).to(x) / (1 - p)


def always_on(x, p, training):
    return plain(x, p, True)


def switched(x, p, training):
    return plain(x, p, not training)


def counted_per_row(x, p, training):
    if not training or p in (0, 1):
        return x * (not training or p == 0)
    width = x[0].numel()
    order = torch.rand(len(x), width).to(x).argsort(dim=1)
    keep = (order >= round(p * width)).view(x.shape)
    return x * keep / (1 - keep.logical_not().double().mean().item())


def counted(x, p, training):
    if not training or p in (0, 1):
        return x * (not training or p == 0)
    keep = torch.rand(x.numel()).to(x).argsort() >= round(p * x.numel())
    return x * keep.view(x.shape) / (1 - p)


def nan_at_one(x, p, training):
    if not training:
        return x
    return x * (torch.rand_like(x) >= p) / (1 - torch.tensor(float(p)).to(x))


def in_place(x, p, training):
    if training:
        with torch.no_grad():
            x.mul_(torch.rand_like(x) >= p).div_(max(1 - p, 1e-9))
    return x


def zeros_written_into_x(x, p, training):
    if not training:
        return x
    if p == 1:
        return torch.zeros_like(x)
    x[torch.rand_like(x) < p] = 0
    return x / (1 - p)


def eval_in_place(x, p, training):
    return plain(x, p, True) if training else x.mul_(1 - p)


def zeros_written_without_a_graph(x, p, training):
    with torch.no_grad():
        if training and p < 1:
            x[torch.rand_like(x) < p] = 0
    return (torch.zeros_like(x) if p == 1 else x / (1 - p)) if training else x


def zeros_written_through_detach(x, p, training):
    return zeros_written_into_x(x.detach(), p, True) if training else x


def by_threshold(x, p, training):
    if not training:
        return x
    keep = x.abs() > x.abs().flatten().quantile(p) if 0 < p < 1 else torch.full_like(x, 1 - p)
    return x * keep / max(1 - p, 1e-9)


def detached(x, p, training):
    return plain(x.detach(), p, training)


def detached_in_eval(x, p, training):
    return plain(x, p, training) if training else x.detach().clone()


def only_with_gradients(x, p, training):
    return plain(x, p, training and torch.is_grad_enabled())


def float64_always(x, p, training):
    return plain(x.double(), p, training) if training else x.double()


def mask_in_float32(x, p, training):
    if not training:
        return x
    if p == 1:
        return torch.zeros_like(x)
    return x * (torch.rand(x.shape, device=x.device) >= p).float() / (1 - p)


def normal_mask(x, p, training):
    if not training or p in (0, 1):
        return x * (not training or p == 0)
    return x * (torch.randn_like(x) >= p) / (1 - p)


def scale_of_the_draw(x, p, training):
    if not training or p in (0, 1):
        return x * (not training or p == 0)
    keep = torch.rand_like(x) >= p
    return x * keep * (x.sum() / (x * keep).sum()).detach()


def by_bernoulli(x, p, training):
    if not training or p == 0.0:
        return x.clone()
    keep = torch.bernoulli(torch.full_like(x, 1.0 - p))
    return keep * x / max(1.0 - p, 1e-12)


def by_where(x, p, training):
    if training:
        drop = torch.rand(x.shape, dtype=torch.float32).to(x.device) < p
        return torch.where(drop, torch.zeros_like(x), x / (1 - p) if p < 1 else x)
    return x


def by_filling(x, p, training):
    if not training:
        return x
    if p >= 1:
        return torch.zeros_like(x)
    drop = torch.empty_like(x).uniform_() < p
    return x.masked_fill(drop, 0.0).div(1 - p)


EXERCISE = Exercise(
    id="02a.dropout",
    title="dropout in two modes",
    source='Training-loop chapter, c4, dropout; annotated-loop essay, "Training mode"',
    ledger=("N12", "N40"),
    minutes=10,
    difficulty=2,
    read=("N12", "N40", "F23"),
    hints=(
        "Which numbers are random, and how often are they drawn: per call, per row, per entry?",
        "torch.rand(x.shape) is below p with probability p, independently for each entry.",
        "In train mode return x * keep / (1 - p), where keep = torch.rand_like(x) >= p; zeros if "
        "p is 1. In eval mode return x.",
    ),
    signature="dropout(x, p, training)",
    parts=(
        Part("scale", "what is kept, scaled", points=1, fields=("disturbed", "scale", "even")),
        Part("share", "which entries are dropped, and how many", points=1,
             fields=("share", "rows_alike", "in_a_row", "in_a_column", "again", "counted",
                     "as_many", "by_torch")),
        Part("eval", "eval mode", points=1, fields=("out", "again", "active", "flows")),
        Part("edges", "p = 0 and p = 1", points=1, fields=("out",)),
        Part("quiet", "x as it was, its dtype, and the gradient", points=1, hidden=True,
             fields=("disturbed", "dtype", "some", "graph", "slopes")),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={
        "scale": "a kept entry, as a multiple of x:",
        "even": "whether all kept entries are scaled alike:",
        "share": "the share of entries that are 0:",
        "in_a_row": "the share of neighbours in a row that are both 0:",
        "in_a_column": "the share of neighbours in a column that are both 0:",
        "again": "whether a second call gives the same:",
        "rows_alike": "whether all rows lose the same entries:",
        "as_many": "whether every row loses equally many:",
        "counted": "whether every call drops equally many:",
        "by_torch": "whether torch.manual_seed() decides which are dropped:",
        "active": "whether train mode changes x:",
        "some": "whether some entries are 0 and some are not:",
        "out": "what it returned:",
        "dtype": "the dtype of the result, for x of another dtype:",
        "graph": "whether a gradient can flow back from what it returned:",
        "flows": "whether a gradient can flow back from what it returned:",
        "slopes": "whether the gradient is 0 for dropped entries and the scale for kept ones:",
    },
    by_hand=(
        two_modes.dropout, F.dropout, nn.Dropout.forward, F.dropout1d, F.dropout2d,
        F.alpha_dropout, F.feature_alpha_dropout, "torchvision.ops.stochastic_depth",
    ),
    wrong=(
        Wrong("not-scaled", not_scaled,
              "What was kept is unchanged, so the mean is too small by a factor of 1 - p. Divide "
              "by 1 - p.",
              sure=True),
        Wrong("scaled-by-p", scaled_by_p,
              "What was kept was divided by p. A share of 1 - p should be kept: divide by that."),
        Wrong("scaled-down", scaled_down,
              "What was kept became smaller by a factor of 1 - p. It should make up for the "
              "rest: divide."),
        Wrong("scaled-in-eval", scaled_in_eval,
              "It scales in eval mode instead. torch divides in train mode, so that eval mode "
              "returns x."),
        Wrong("scaled-twice", scaled_twice,
              "Eval mode multiplied by 1 - p. Train mode has already made up for that: return x."),
        Wrong("p-kept", p_kept,
              "A share of p was kept. p is the probability of being dropped."),
        Wrong("p-kept-wholly", p_kept_wholly,
              "A share of p was kept, and divided by p. p is the probability of being dropped: a "
              "share of 1 - p is kept."),
        Wrong("p-kept-wholly", p_kept_of_all),
        *(Wrong("p-kept-wholly", p_kept_with(*ends, lambda p: 1 / p))
          for ends in ((1.0, 1.0), (1.0, 0.0), (math.nan, 1.0), (math.nan, 0.0))),
        *(Wrong("p-kept", p_kept_with(*ends, lambda p: 1 / (1 - p)))
          for ends in ((1.0, 1.0), (1.0, 0.0), (0.0, math.inf))),
        Wrong("p-ignored", always_half,
              "Half of the entries were dropped, whatever p is. p is the probability of being "
              "dropped."),
        Wrong("scaled-by-root", scaled_by_root,
              "What was kept was divided by √(1 - p), which keeps the mean square. For the mean, "
              "divide by 1 - p."),
        Wrong("whole-channels", whole_channels,
              "For x of shape [B, C, T], whole channels were dropped together. Each "
              "entry has its own draw: torch.rand(x.shape).", sure=True),
        Wrong("whole-rows", whole_rows,
              "Whole rows were dropped together. Each entry has its own draw: "
              "torch.rand(x.shape)."),
        Wrong("whole-columns", whole_columns,
              "All rows lost the same entries. Each entry has its own draw: "
              "torch.rand(x.shape).", sure=True),
        Wrong("whole-columns", last_dimension_alone, sure=True),
        Wrong("same-each-time", same_each_time,
              "A second call dropped the same entries. Each call draws a new mask: set no seed "
              "here, and keep no mask.",
              sure=True),
        Wrong("not-by-torch", by_numpy,
              "torch.manual_seed() does not decide which entries are dropped. Draw with torch: "
              "torch.rand(x.shape).", sure=True),
        Wrong("always-on", always_on,
              "Eval mode dropped entries, too. If not training, return x."),
        Wrong("never-on", never_on,
              "Train mode returned x: no entry was dropped.", sure=True),
        Wrong("switched", switched,
              "Train mode returned x, and eval mode dropped entries. It should be the other way "
              "round."),
        Wrong("counted", counted,
              "Every call dropped the same number of entries. Each entry has its own "
              "draw, so the number varies: torch.rand(x.shape) < p.", sure=True),
        Wrong("counted-per-row", counted_per_row,
              "Every row lost the same number of entries. Each entry has its own "
              "draw, so the number varies: torch.rand(x.shape) < p.", sure=True),
        Wrong("nan-at-one", nan_at_one,
              "p = 1 gave nan: 0 / 0. Where everything is dropped, return zeros.", sure=True),
        Wrong("raises-at-one", one_in_the_formula,
              "p = 1 raised: 1 - p is 0. Where everything is dropped, return zeros.",
              raises="^ZeroDivisionError", sure=True),
        Wrong("in-place", in_place),
        Wrong("in-place", scaled_in_place, sure=True),
        Wrong("in-place", zeros_written_without_a_graph, sure=True),
        Wrong("in-place", zeros_written_through_detach, sure=True),
        Wrong("in-place", zeros_written_into_x,
              "Something was written into x itself. Make a new tensor, as x * keep does; in eval "
              "mode return x.",
              raises="leaf Variable that requires grad"),
        Wrong("in-place", eval_in_place, raises="leaf Variable that requires grad", sure=True),
        Wrong("new-zeros", new_zeros),
        Wrong("by-the-share-kept", by_the_share_kept,
              "What was kept was divided by the share that happened to be kept in "
              "this call. Divide by 1 - p, which is the same for every call.", sure=True),
        Wrong("by-threshold", by_threshold),
        Wrong("detached", detached,
              "What came back in eval mode holds no graph, so nothing flows back to x. Return x "
              "itself.", sure=True),
        Wrong("detached", detached_in_eval, sure=True),
        Wrong("detached-in-training", detached_in_training,
              "What came back in train mode holds no graph, so nothing flows back to x. Multiply x "
              "itself, not x.detach().", sure=True),
        Wrong("only-with-gradients", only_with_gradients,
              "Under no_grad() nothing was dropped. `training` alone decides.", sure=True),
        Wrong("float64-always", float64_always,
              "What came back is float64, whatever x is. Return x's dtype."),
        Wrong("to-float32", to_float32,
              "What came back is float32, whatever x is. Return x's dtype.", sure=True),
        Wrong("mask-in-float32", mask_in_float32,
              "A float16 x came back as float32: multiplied by a float32 mask, it "
              "becomes float32. Give the mask x's dtype: torch.rand_like(x), or "
              ".to(x.dtype).", sure=True),
        Wrong("mask-in-float64", mask_in_float64,
              "Train mode gave float64, whatever x is: multiplied by a float64 mask, "
              "x becomes float64. Give the mask x's dtype: torch.rand_like(x), or "
              ".to(x.dtype).", sure=True),
        Wrong("normal-mask", normal_mask),
        Wrong("scale-of-the-draw", scale_of_the_draw),
        *common(plain, "returns-none", "changes-data", "changes-dtype", "changes-grad-mode",
                alike={"changes-data": "in-place"}),
    ),
    right=(by_bernoulli, by_where, by_filling),
)  # fmt: skip
