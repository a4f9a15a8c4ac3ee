"""02a.batch-norm: a module that normalises by the batch in train mode, by memory in eval mode."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from autograde.exercise import (
    Answer,
    AnswerError,
    Case,
    Draw,
    Exercise,
    NotAllowedError,
    Part,
    Wrong,
)
from course.from_scratch import two_modes

NAMES = ("weight", "bias", "running_mean", "running_var")
PIXELS = (1.0, 2.0), (3.0, 4.0)
"""Unlike pixels of one image, whose channels then have a variance."""
New = Callable[[], nn.Module]
"""Makes a norm, each time a new one."""
MANY, MANY_PIXELS = 1200, 180
"""Copies of a batch where it should not matter whether a variance is divided by n or n - 1."""


def draw(source: Draw, part: str) -> Case:
    """Rows or images far from mean 0; eps is large where the part may depend on it."""
    channels = source.integer(2, 3)
    height = source.integer(2, 3)  # as wide as there are channels: a weight also fits the width
    shape = [channels + 1, channels, height, channels]
    few = 5 if part == "gradient" else 2  # two rows alike have hardly a variance: eps would show
    sizes = [source.integer(few, 6) for _ in range(3)]
    shapes = [shape] if part == "images" else [[size, channels] for size in sizes]
    x = [source.uniform(0.5, 2) * source.normal(*s) + source.uniform(1, 3) for s in shapes]
    return {
        "x": x,
        "grad": source.normal(*x[0].shape),
        "channels": channels,
        "momentum": source.choice([0.2, 0.3, 0.4]),
        "eps": source.choice([0.3, 0.8]) if part in ("train", "eval") else 1e-5,
        "weight": source.normal(channels) + 0.1,
        "bias": source.normal(channels) + 0.1,
        "mean": source.normal(channels),
        "var": source.normal(channels).square() + 0.5,
        # the sums of a gradient over many copies nearly cancel: too inexact in float32
        "dtype": "float64" if source.index % 2 or part == "gradient" else "float32",
        "part": part,
    }


def run(function, case: Case, device: torch.device) -> Answer:
    """Build a norm and ask what the part is about."""
    xs = [x.to(device, getattr(torch, case["dtype"])) for x in case["x"]]

    def new() -> nn.Module:
        norm = function(case["channels"], case["momentum"], case["eps"])
        _look_at(norm, case["channels"])
        return norm.to(device, xs[0].dtype)

    if case["part"] == "state":
        return _state(new(), xs)

    def moved() -> nn.Module:
        norm = new()
        for name in NAMES:  # a plain tensor has stayed behind; that is for the part `state`
            setattr_like(norm, name, getattr(norm, name).to(xs[0]))
        return norm

    return ASKED[case["part"]](moved, case, xs)


def _look_at(norm: object, channels: int) -> None:
    """Refuse what lacks one of the four tensors, or has one of another shape."""
    if not isinstance(norm, nn.Module):
        raise AnswerError(f"BatchNorm(...) gave a {type(norm).__name__}; derive from nn.Module.")
    for name in NAMES:
        value = getattr(norm, name, None)
        if not isinstance(value, Tensor):
            raise AnswerError(f"BatchNorm(...) has no tensor `{name}`.")
        if list(value.shape) != [channels]:
            raise AnswerError(
                f"BatchNorm({channels}, ...) has a `{name}` of shape {list(value.shape)}. It holds "
                f"one number per channel: [{channels}]."
            )


def setattr_like(norm: nn.Module, name: str, value: Tensor) -> None:
    """Move an attribute that is no parameter."""
    if not isinstance(getattr(norm, name), nn.Parameter):
        setattr(norm, name, value)


@torch.no_grad()
def _fill(norm: nn.Module, case: Case, *names: str) -> None:
    for name in names:
        getattr(norm, name).copy_(case[name.removeprefix("running_")])


def _out(norm: nn.Module, x: Tensor) -> Tensor:
    out = norm(x)
    if not isinstance(out, Tensor) or out.shape != x.shape:
        shape = f" of shape {list(out.shape)}" if isinstance(out, Tensor) else ""
        raise AnswerError(
            f"forward() gave a {type(out).__name__}{shape}; return a tensor of the input's shape, "
            f"{list(x.shape)}."
        )
    return out


def _train(new: New, case: Case, xs: list[Tensor]) -> Answer:
    return {"out": _out(new(), xs[0]).detach().cpu()}


def _running(new: New, case: Case, xs: list[Tensor]) -> Answer:
    norm = new()
    start = torch.stack([norm.running_mean, norm.running_var]).detach().cpu()
    for number, x in enumerate(xs):
        with torch.set_grad_enabled(number != 1):  # the mode decides, not the graph
            _out(norm, x.requires_grad_())  # as what another layer gives
    return {"running_mean": norm.running_mean.detach().cpu().clone(),
            "running_var": norm.running_var.detach().cpu().clone(), "start": start,
            "graph": norm.running_mean.requires_grad or norm.running_var.requires_grad}  # fmt: skip


def _eval(new: New, case: Case, xs: list[Tensor]) -> Answer:
    norm, before = new(), xs[0].clone()
    _out(norm, xs[0])
    kept_in_training = torch.equal(xs[0], before)
    xs[0].copy_(before)
    _fill(norm, case, "running_mean", "running_var")
    norm.eval()
    out = _out(norm, xs[0]).detach().cpu()
    return {"eval_out": out, "kept_mean": norm.running_mean.detach().cpu().clone(),
            "kept_var": norm.running_var.detach().cpu().clone(),
            "x_kept": torch.equal(xs[0], before), "x_kept_in_training": kept_in_training,
            "single": _raised(norm, xs[1][:1])}  # fmt: skip


def _images(new: New, case: Case, xs: list[Tensor]) -> Answer:
    norm = new()
    _fill(norm, case, "weight", "bias")
    x = torch.cat([xs[0]] * MANY_PIXELS, dim=2)
    try:
        with Averages() as seen:
            out = _out(norm, x)
    except (RuntimeError, ValueError, AnswerError):
        if not seen.per_pixel:
            raise
        raise AnswerError(
            f"Images of shape {list(x.shape)} were averaged over the batch alone, which leaves "
            "statistics of every pixel, [C, H, W]. A channel has one pair: average over "
            "dimensions 0, 2 and 3."
        ) from None
    image = out[:, :, : xs[0].shape[2]].detach().cpu().clone()
    return {"image": image, "as_rows": _as_rows(new, case, xs[0]),
            "affine_in_eval": _affine_in_eval(norm, new(), case, xs[0])}  # fmt: skip


def _rows(x: Tensor) -> Tensor:
    return x.movedim(1, -1).flatten(0, -2)


def _as_rows(new: New, case: Case, x: Tensor) -> str:
    """Whether images leave the same memory as their pixels do, each a row."""
    left = []
    for numbers in (x.clone(), _rows(x).clone()):
        norm = new()
        _fill(norm, case, "running_mean", "running_var")
        _out(norm, numbers)
        left.append(torch.stack([norm.running_mean, norm.running_var]).detach().cpu())
    return "equal" if torch.allclose(*left, rtol=1e-4, atol=1e-6) else "different"


@torch.no_grad()
def _affine_in_eval(norm: nn.Module, plain: nn.Module, case: Case, x: Tensor) -> bool:
    """Whether images in eval mode come out as the rows of a new norm do, times weight, plus bias.

    Compared with the answer itself: what else eval mode lacks is for its own part.
    """
    for one in (norm, plain):
        _fill(one, case, "running_mean", "running_var")
        one.eval()
    weight, bias = (case[name].to(x) for name in ("weight", "bias"))
    return torch.allclose(
        _rows(_out(norm, x.clone())),
        _out(plain, _rows(x).clone()) * weight + bias,
        rtol=1e-3,
        atol=1e-4,
    )


class Averages(TorchFunctionMode):
    """Notes whether a mean or a variance of images keeps their pixels and loses the batch."""

    per_pixel = False

    def __torch_function__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        name, given = getattr(func, "__name__", ""), args[0] if args else None
        if name in ("mean", "var", "std") and isinstance(given, Tensor) and given.dim() == 4:
            pixels = given.shape[1:], (1, *given.shape[1:])
            self.per_pixel |= isinstance(made, Tensor) and made.shape in pixels
        return made


def _gradient(new: New, case: Case, xs: list[Tensor]) -> Answer:
    norm = new()
    _fill(norm, case, "weight")
    x = torch.cat([xs[0]] * MANY).requires_grad_()
    grad = torch.cat([case["grad"].to(xs[0])] * MANY)
    out = _out(norm, x)
    wanted = [x, norm.weight, norm.bias]
    if fixed := [name for name in NAMES[:2] if not getattr(norm, name).requires_grad]:
        raise AnswerError(
            f"No gradient can reach `{fixed[0]}`: weight and bias are learnt, so each is an "
            "nn.Parameter."
        )
    if not out.requires_grad:
        raise AnswerError("No gradient flows through forward(): what it returned has no graph.")
    found = torch.autograd.grad(out, wanted, grad, allow_unused=True)
    gx, gw, gb = (
        torch.zeros_like(w) if g is None else g for g, w in zip(found, wanted, strict=True)
    )
    return {"grad_x": gx[: len(xs[0])].cpu(), "grad_weight": gw.cpu() / MANY,
            "grad_bias": gb.cpu() / MANY}  # fmt: skip


def _state(norm: nn.Module, xs: list[Tensor]) -> Answer:
    pixels = torch.tensor(PIXELS).to(xs[0])
    before = [norm.running_mean.detach().clone(), norm.running_var.detach().clone()]
    return {
        "parameters": sorted(name for name, p in norm.named_parameters() if p.requires_grad),
        "buffers": sorted(set(NAMES) & {name for name, _ in norm.named_buffers()}),
        "saved": sorted(set(NAMES) & set(norm.state_dict())),
        "alone": _raised(norm, xs[0][:1]),
        "one_pixel": _raised(norm, xs[0][:1, :, None, None]),
        "unmoved": all(map(torch.equal, before, (norm.running_mean, norm.running_var))),
        "one_image": _raised(norm, xs[0][:1, :, None, None] * pixels),
        "constant": _raised(norm, torch.cat([xs[0][:2, :1] ** 0, xs[0][:2, 1:]], dim=1)),
    }


def _raised(norm: nn.Module, x: Tensor) -> str:
    """The type of what a forward pass raises."""
    try:
        norm(x)
    except NotAllowedError:
        raise
    except Exception as fault:
        return type(fault).__name__
    return "no error"


ASKED = {"train": _train, "running": _running, "eval": _eval, "images": _images,
         "gradient": _gradient}  # fmt: skip


def reference(channels: int, momentum: float, eps: float) -> nn.Module:
    """What `run` builds."""
    return two_modes.BatchNorm(channels, momentum, eps)


class Norm(nn.Module):
    """A right answer; the wrong ones change a method of it."""

    def __init__(self, channels, momentum, eps):
        super().__init__()
        self.momentum, self.eps = momentum, eps
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def dims(self, x):
        return [d for d in range(x.dim()) if d != 1]

    def var(self, x):
        return x.var(self.dims(x), unbiased=False)

    def mean(self, x):
        return x.mean(self.dims(x))

    def check(self, x):
        if x.numel() == x.shape[1]:
            raise ValueError("one number per channel")

    @torch.no_grad()
    def remember(self, x, mean, var):
        m = self.momentum
        self.running_mean.copy_((1 - m) * self.running_mean + m * mean)
        self.running_var.copy_((1 - m) * self.running_var + m * self.unbiased(x, var))

    def unbiased(self, x, var):
        n = x.numel() // x.shape[1]
        return var * n / (n - 1)

    def normal(self, x, mean, var):
        return (x - mean) / torch.sqrt(var + self.eps)

    def wide(self, x, t):
        return t.view(1, -1, *[1] * (x.dim() - 2))

    def statistics(self, x):
        if not self.training:
            return self.running_mean, self.running_var
        self.check(x)
        mean, var = self.mean(x), self.var(x)
        self.remember(x, mean, var)
        return mean, var

    def forward(self, x):
        mean, var = (self.wide(x, t) for t in self.statistics(x))
        return self.normal(x, mean, var) * self.wide(x, self.weight) + self.wide(x, self.bias)


class UnbiasedOutput(Norm):
    def statistics(self, x):
        mean, var = super().statistics(x)
        return (mean, self.unbiased(x, var)) if self.training else (mean, var)


class BiasedMemory(Norm):
    def unbiased(self, x, var):
        return var


class MomentumReversed(Norm):
    @torch.no_grad()
    def remember(self, x, mean, var):
        m = self.momentum
        self.running_mean.copy_(m * self.running_mean + (1 - m) * mean)
        self.running_var.copy_(m * self.running_var + (1 - m) * self.unbiased(x, var))


class OnlyTheLast(Norm):
    @torch.no_grad()
    def remember(self, x, mean, var):
        self.running_mean.copy_(mean)
        self.running_var.copy_(self.unbiased(x, var))


class NeverRemembers(Norm):
    def remember(self, x, mean, var):
        pass


class AddsUp(Norm):
    @torch.no_grad()
    def remember(self, x, mean, var):
        self.running_mean += self.momentum * mean
        self.running_var += self.momentum * self.unbiased(x, var)


class AddsUpTheOtherShare(AddsUp):
    def remember(self, x, mean, var):
        self.momentum = 1 - self.momentum
        super().remember(x, mean, var)
        self.momentum = 1 - self.momentum


class RootRemembered(Norm):
    def unbiased(self, x, var):
        return super().unbiased(x, var).sqrt()


class MemoryInTraining(Norm):
    def statistics(self, x):
        super().statistics(x)
        return self.running_mean.clone(), self.running_var.clone()


class BatchInEval(Norm):
    def statistics(self, x):
        if self.training:
            return super().statistics(x)
        return self.mean(x), self.var(x)


class RemembersInEval(Norm):
    def statistics(self, x):
        if not self.training:
            before = self.running_mean.clone(), self.running_var.clone()
            self.remember(x, self.mean(x), self.var(x) if len(x) < 2 else x.var(self.dims(x)))
            return before
        return super().statistics(x)

    def unbiased(self, x, var):
        return super().unbiased(x, var) if x.numel() > x.shape[1] else var


class MovedThenUsed(Norm):
    """Moves in eval mode, too, and normalises by what that leaves."""

    def statistics(self, x):
        if not self.training:
            self.remember(x, self.mean(x), self.var(x))
            return self.running_mean.clone(), self.running_var.clone()
        return super().statistics(x)

    def unbiased(self, x, var):
        n = x.numel() // x.shape[1]
        return var * n / max(n - 1, 1)


class EpsOutside(Norm):
    def normal(self, x, mean, var):
        return (x - mean) / (torch.sqrt(var) + self.eps)


class EpsForgotten(Norm):
    def normal(self, x, mean, var):
        return (x - mean) / torch.sqrt(var)


class EpsFixed(Norm):
    def __init__(self, channels, momentum, eps):
        super().__init__(channels, momentum, 1e-5)


class MomentumFixed(Norm):
    def __init__(self, channels, momentum, eps):
        super().__init__(channels, 0.1, eps)


class FirstReplaces(Norm):
    begun = False

    def remember(self, x, mean, var):
        (Norm if self.begun else OnlyTheLast).remember(self, x, mean, var)
        self.begun = True


class AverageOfAll(Norm):
    seen = 0

    def remember(self, x, mean, var):
        self.seen += 1
        self.momentum = 1 / self.seen
        super().remember(x, mean, var)


class VarianceFromZero(Norm):
    def __init__(self, channels, momentum, eps):
        super().__init__(channels, momentum, eps)
        self.running_var.zero_()


class MeanOnly(Norm):
    @torch.no_grad()
    def remember(self, x, mean, var):
        self.running_mean.lerp_(mean, self.momentum)


class EpsInTrainingOnly(Norm):
    def normal(self, x, mean, var):
        return super().normal(x, mean, var) if self.training else (x - mean) / torch.sqrt(var)


class OnlyWithGradients(Norm):
    def remember(self, x, mean, var):
        if torch.is_grad_enabled():
            super().remember(x, mean, var)


class CountedByExamples(Norm):
    def unbiased(self, x, var):
        return var * len(x) / (len(x) - 1)


class XInPlace(Norm):
    def normal(self, x, mean, var):
        return super().normal(x if x.requires_grad else x.sub_(mean), mean * x.requires_grad, var)


class XInPlaceInTraining(Norm):
    def normal(self, x, mean, var):
        if self.training and not x.requires_grad:
            return x.sub_(mean) / torch.sqrt(var + self.eps)
        return super().normal(x, mean, var)


class RefusedInEval(Norm):
    def statistics(self, x):
        self.check(x)
        return super().statistics(x)


class BiasFirst(Norm):
    def forward(self, x):
        mean, var = (self.wide(x, t) for t in self.statistics(x))
        return (self.normal(x, mean, var) + self.wide(x, self.bias)) * self.wide(x, self.weight)


class AffineInTrainingOnly(Norm):
    def forward(self, x):
        if self.training:
            return super().forward(x)
        mean, var = (self.wide(x, t) for t in self.statistics(x))
        return self.normal(x, mean, var)


class AlongTheWidth(Norm):
    def forward(self, x):
        mean, var = (self.wide(x, t) for t in self.statistics(x))
        return self.normal(x, mean, var) * self.weight + self.bias


class NotTheRoot(Norm):
    def normal(self, x, mean, var):
        return (x - mean) / (var + self.eps)


class AffineForgotten(Norm):
    def forward(self, x):
        mean, var = (self.wide(x, t) for t in self.statistics(x))
        return self.normal(x, mean, var) + 0 * (self.weight.sum() + self.bias.sum())


class Detached(Norm):
    @torch.no_grad()
    def statistics(self, x):
        return super().statistics(x)


class VarianceDetached(Norm):
    def statistics(self, x):
        mean, var = super().statistics(x)
        return mean, var.detach()


class PixelByPixel(Norm):
    def dims(self, x):
        return [0]

    def unbiased(self, x, var):
        return super().unbiased(x, var) if x.dim() == 2 else var

    def remember(self, x, mean, var):
        if x.dim() == 2:
            super().remember(x, mean, var)

    def wide(self, x, t):
        return super().wide(x, t) if t.dim() == 1 else t


class PixelsRemembered(Norm):
    """Each pixel by itself, and the right memory."""

    def statistics(self, x):
        whole = super().statistics(x)
        if not self.training:
            return whole
        return x.mean(0, keepdim=True), x.var(0, keepdim=True, unbiased=False)

    def wide(self, x, t):
        return super().wide(x, t) if t.dim() == 1 else t


class MeanOfVariances(Norm):
    def var(self, x):
        if x.dim() == 2:
            return super().var(x)
        return x.flatten(2).var(2, unbiased=False).mean(0)


class MeanOverPixels(Norm):
    def var(self, x):
        if x.dim() == 2:
            return super().var(x)
        return x.var(0, unbiased=False).mean((1, 2))


class UnbiasedMeanOverPixels(MeanOverPixels):
    def var(self, x):
        return super().var(x) if x.dim() == 2 else x.var(0).mean((1, 2))


class BatchAlone(Norm):
    """Right for rows; what it remembers of images does not fit."""

    def dims(self, x):
        return [0]


class ImageByImage(Norm):
    def mean(self, x):
        return super().mean(x) if x.dim() == 2 else x.mean((2, 3))

    def var(self, x):
        return super().var(x) if x.dim() == 2 else x.var((2, 3), unbiased=False)

    def remember(self, x, mean, var):
        if x.dim() == 2:
            super().remember(x, mean, var)

    def wide(self, x, t):
        return super().wide(x, t) if t.dim() == 1 else t[..., None, None]


class RowByRow(Norm):
    """A LayerNorm."""

    def statistics(self, x):
        if not self.training:
            return super().statistics(x)
        self.check(x)
        dims = list(range(1, x.dim()))
        self.remember(x, self.mean(x), self.var(x))
        return x.mean(dims, keepdim=True), x.var(dims, keepdim=True, unbiased=False)

    def wide(self, x, t):
        return super().wide(x, t) if t.dim() == 1 else t


class AlongTheChannels(Norm):
    """Dimension 1 in place of all others, in both modes, and nothing is remembered."""

    def forward(self, x):
        var, mean = torch.var_mean(x, 1, correction=0, keepdim=True)
        return self.normal(x, mean, var) * self.weight + self.bias


class PlainTensors(Norm):
    def __init__(self, channels, momentum, eps):
        super().__init__(channels, momentum, eps)
        mean, var = self.running_mean, self.running_var
        del self.running_mean, self.running_var
        self.running_mean, self.running_var = mean, var


class FrozenParameters(Norm):
    def __init__(self, channels, momentum, eps):
        super().__init__(channels, momentum, eps)
        mean, var = self.running_mean, self.running_var
        del self.running_mean, self.running_var
        self.running_mean = nn.Parameter(mean, requires_grad=False)
        self.running_var = nn.Parameter(var, requires_grad=False)


class NotSaved(Norm):
    def __init__(self, channels, momentum, eps):
        super().__init__(channels, momentum, eps)
        for name in ("running_mean", "running_var"):
            self.register_buffer(name, getattr(self, name), persistent=False)


class WeightIsABuffer(Norm):
    def __init__(self, channels, momentum, eps):
        super().__init__(channels, momentum, eps)
        weight, bias = self.weight.detach(), self.bias.detach()
        del self.weight, self.bias
        self.register_buffer("weight", weight)
        self.register_buffer("bias", bias)

    def forward(self, x):
        self.weight.requires_grad_()
        self.bias.requires_grad_()
        return super().forward(x)


class GraphRemembered(Norm):
    def remember(self, x, mean, var):
        m = self.momentum
        self.running_mean = (1 - m) * self.running_mean + m * mean
        self.running_var = (1 - m) * self.running_var + m * self.unbiased(x, var)


class OneImageRefused(Norm):
    def check(self, x):
        if len(x) == 1:
            raise ValueError("one example")


class SilentAlone(Norm):
    def check(self, x):
        pass

    def unbiased(self, x, var):
        n = x.numel() // x.shape[1]
        return var * n / max(n - 1, 1)


class SilentAndStill(SilentAlone):
    def remember(self, x, mean, var):
        if x.numel() > x.shape[1]:
            super().remember(x, mean, var)


class ConstantRefused(Norm):
    def check(self, x):
        if (self.var(x) == 0).any():
            raise ValueError("no variance")


class OtherError(Norm):
    def check(self, x):
        if x.numel() == x.shape[1]:
            raise RuntimeError("one number per channel")


class Asserts(Norm):
    def check(self, x):
        assert x.numel() > x.shape[1]


class SilentPixel(SilentAlone):
    def check(self, x):
        if x.dim() == 2 and len(x) == 1:
            raise ValueError("one row")


class MovesThenRaises(SilentAlone):
    def statistics(self, x):
        found = super().statistics(x)
        if self.training:
            Norm.check(self, x)
        return found


class InPlace(nn.Module):
    """Another right one: lerp, and the variance by hand."""

    def __init__(self, channels, momentum, eps):
        super().__init__()
        self.m, self.e = momentum, eps
        for name, value in (("running_mean", 0.0), ("running_var", 1.0)):
            self.register_buffer(name, torch.full((channels,), value))
        for name, value in (("weight", 1.0), ("bias", 0.0)):
            self.register_parameter(name, nn.Parameter(torch.full((channels,), value)))

    def forward(self, x):
        rows = x.movedim(1, -1)
        if self.training:
            flat = rows.flatten(0, -2)
            if len(flat) == 1:
                raise ValueError(f"{list(x.shape)} holds one number per channel")
            mean = flat.mean(0)
            var = (flat - mean).square().mean(0)
            self.running_mean.lerp_(mean.detach(), self.m)
            self.running_var.lerp_(flat.detach().var(0), self.m)
        else:
            mean, var = self.running_mean, self.running_var
        out = (rows - mean) * (var + self.e).rsqrt() * self.weight + self.bias
        return out.movedim(-1, 1)


class ByTransposing(nn.Module):
    """A third right one: channels first, one row each; memory replaced, not changed."""

    def __init__(self, channels, momentum=0.1, eps=1e-5):
        super().__init__()
        self.weight, self.bias = (
            nn.Parameter(torch.ones(channels)),
            nn.Parameter(torch.zeros(channels)),
        )
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))
        self.momentum, self.eps = momentum, eps

    def forward(self, x):
        rows = x.transpose(0, 1).flatten(1)
        if self.training and rows.shape[1] < 2:
            raise ValueError("a batch of one")
        if self.training:
            var, mean = torch.var_mean(rows, dim=1, correction=0)
            n, keep = rows.shape[1], 1 - self.momentum
            with torch.no_grad():
                self.running_mean = keep * self.running_mean + self.momentum * mean
                self.running_var = keep * self.running_var + self.momentum * var * n / (n - 1)
        else:
            mean, var = self.running_mean, self.running_var
        normal = (rows - mean[:, None]) / (var[:, None] + self.eps) ** 0.5
        shape = x.transpose(0, 1).shape
        out = self.weight[:, None] * normal + self.bias[:, None]
        return out.reshape(shape).transpose(0, 1)


EXERCISE = Exercise(
    id="02a.batch-norm",
    title="a BatchNorm with both modes",
    source='Training-loop chapter, c4; annotated-loop essay, "Training mode"',
    kind="class",
    ledger=("N39", "N61", "F96", "B30"),
    minutes=20,
    difficulty=3,
    read=("N39", "F96", "B30"),
    hints=(
        "What must train mode leave behind for eval mode, and what is learnt?",
        "There are two variances: the batch's own divides by n, and the remembered one by n - 1. "
        "For images, n counts examples and pixels.",
        "dims = all but 1; mean = x.mean(dims), var = x.var(dims, unbiased=False); under no_grad "
        "running += momentum · (new - running); view all of them as (1, channels, 1, ...).",
    ),
    signature="BatchNorm(channels, momentum, eps)",
    parts=(
        Part("train", "train mode, rows", points=1, fields=("out",)),
        Part("running", "what three batches leave behind", points=1,
             fields=("running_mean", "running_var", "graph", "start")),
        Part("eval", "eval mode, which changes nothing", points=1,
             fields=("eval_out", "kept_mean", "kept_var", "x_kept", "x_kept_in_training",
                     "single")),
        Part("images", "images, with weight and bias", points=1, 
             fields=("image", "as_rows", "affine_in_eval")),
        Part("gradient", "the gradient in train mode", points=1,
             fields=("grad_x", "grad_weight", "grad_bias")),
        Part("state", "what is learnt, saved, and refused", points=1, hidden=True, cases=1,
             fields=("parameters", "buffers", "saved", "alone", "one_pixel", "unmoved",
                     "one_image", "constant")),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={
        "out": "the output",
        "eval_out": "the output",
        "image": "the output",
        "kept_mean": "running_mean after eval mode",
        "kept_var": "running_var after eval mode",
        "running_mean": "running_mean",
        "running_var": "running_var",
        "grad_x": "the gradient of x",
        "grad_weight": "the gradient of weight",
        "grad_bias": "the gradient of bias",
        "parameters": "what an optimizer is given:",
        "buffers": "buffers:",
        "saved": "what state_dict() holds of the four:",
        "x_kept": "whether x is as it was:",
        "x_kept_in_training": "whether x is as it was after train mode:",
        "start": "running_mean and running_var of a new BatchNorm",
        "single": "one row in eval mode:",
        "as_rows": "the running statistics after images, compared with the same pixels as rows:",
        "affine_in_eval": "whether weight and bias act on images in eval mode, per channel:",
        "alone": "one row in train mode:",
        "one_pixel": "one image of one pixel in train mode:",
        "unmoved": "whether the running ones are as before, after a ValueError:",
        "one_image": "one image in train mode:",
        "constant": "rows with a constant channel in train mode:",
        "graph": "whether what is remembered holds a graph:",
    },
    by_hand=(two_modes.BatchNorm.forward, F.batch_norm, F.instance_norm, F.group_norm,
             F.layer_norm, F.rms_norm, nn.BatchNorm1d.forward),
    wrong=(
        Wrong("unbiased-output", UnbiasedOutput,
              "The output was divided by the root of the unbiased variance. In train mode the "
              "batch's own counts: unbiased=False."),
        Wrong("biased-memory", BiasedMemory,
              "running_var took the variance divided by n. It is an estimate for all data, so it "
              "takes the one divided by n - 1."),
        Wrong("momentum-reversed", MomentumReversed,
              "The old value was weighted by momentum, and the new one by the rest. momentum is "
              "the share of the new batch."),
        Wrong("only-the-last", OnlyTheLast,
              "The last batch replaced everything that was remembered. It should move it by "
              "momentum."),
        Wrong("never-remembers", NeverRemembers, "Neither running_mean nor running_var moved in "
              "train mode.", sure=True),
        Wrong("adds-up", AddsUp,
              "The old value was kept whole and a share of the new one added. The old one should "
              "shrink by the factor 1 - momentum, and the new one has the share momentum."),
        Wrong("adds-up", AddsUpTheOtherShare),
        Wrong("root-remembered", RootRemembered,
              "running_var holds the standard deviation. It should hold the variance."),
        Wrong("memory-in-training", MemoryInTraining,
              "Train mode normalised by the running statistics. It should use the batch's own."),
        Wrong("batch-in-eval", BatchInEval,
              "Eval mode normalised by the batch. It should use the running statistics, so that "
              "an example's output does not depend on its neighbours."),
        Wrong("remembers-in-eval", RemembersInEval,
              "Eval mode moved the running statistics. Only train mode should."),
        Wrong("remembers-in-eval", MovedThenUsed),
        Wrong("average-of-all", AverageOfAll,
              "The running statistics are the plain average over the batches. momentum is the "
              "share of the new batch, however many came before."),
        Wrong("variance-from-0", VarianceFromZero,
              "running_var begins at 0. It should begin at 1, so that a new model in "
              "eval mode leaves x as it is.", sure=True),
        Wrong("mean-alone", MeanOnly,
              "running_mean moved, but running_var did not. Both should.", sure=True),
        Wrong("eps-in-training-only", EpsInTrainingOnly,
              "Eval mode divided without eps. It is added to the variance in both modes."),
        Wrong("affine-in-training-only", AffineInTrainingOnly,
              "weight and bias had no effect in eval mode. They are the last step in both modes.",
              sure=True),
        Wrong("along-the-width", AlongTheWidth,
              "weight and bias went along the width of the images. They belong to dimension 1: "
              "view them as (1, channels, 1, 1)."),
        Wrong("eps-outside", EpsOutside,
              "eps was added to the root. It is added to the variance, under the root."),
        Wrong("x-in-place", XInPlace,
              "x itself was changed. Another layer may need it: make a new tensor, x - mean.",
              sure=True),
        Wrong("x-in-place", XInPlaceInTraining),
        Wrong("refused-in-eval", RefusedInEval,
              "Eval mode refused a single row. It uses no statistics of the batch: "
              "check for one number per channel only in train mode.", sure=True),
        Wrong("counted-by-examples", CountedByExamples,
              "The running statistics are right after rows but not after images: in n "
              "/ (n - 1), n counts examples and pixels, x.numel() // channels.", sure=True),
        Wrong("only-with-gradients", OnlyWithGradients,
              "Under no_grad() the running statistics stood still. Only the mode decides whether "
              "they move: self.training."),
        Wrong("first-replaces", FirstReplaces,
              "The first batch replaced running_mean and running_var. They begin at 0 and 1, and "
              "every batch moves them by momentum."),
        Wrong("momentum-fixed", MomentumFixed,
              "The batch's share was 0.1, whatever momentum was passed in. Keep the argument: "
              "self.momentum = momentum."),
        Wrong("bias-first", BiasFirst,
              "The bias was added first and multiplied by weight. It comes last: normal · weight + "
              "bias."),
        Wrong("eps-forgotten", EpsForgotten,
              "The eps that was passed in had no effect. It is added to the variance."),
        Wrong("eps-forgotten", EpsFixed),
        Wrong("not-the-root", NotTheRoot,
              "The output was divided by the variance. Divide by its root."),
        Wrong("affine-forgotten", AffineForgotten,
              "weight and bias had no effect. They are the last step."),
        Wrong("detached", Detached,
              "The gradient treats mean and variance as constants. But they depend on x: only "
              "the running ones are without a graph."),
        Wrong("variance-detached", VarianceDetached,
              "The gradient treats the variance as a constant, but not the mean. Both depend on "
              "x."),
        Wrong("pixel-by-pixel", PixelByPixel,
              "Each pixel of an image got its own statistics. A channel has one mean and one "
              "variance, over examples and pixels."),
        Wrong("pixel-by-pixel", PixelsRemembered),
        Wrong("mean-of-variances", MeanOfVariances,
              "The variance of images is the mean of the examples' own variances, which misses how "
              "their means differ. Take it over dimensions 0, 2 and 3 at once."),
        Wrong("mean-over-pixels", MeanOverPixels,
              "The variance of images is the mean of the pixels' own variances over the batch, "
              "which misses how the pixels' means differ. Take it over dimensions 0, 2 and 3 at "
              "once."),
        Wrong("mean-over-pixels", UnbiasedMeanOverPixels),
        Wrong("batch-alone", BatchAlone),
        Wrong("image-by-image", ImageByImage,
              "Each image was normalised by itself. A channel's statistics go over the whole "
              "batch."),
        Wrong("row-by-row", RowByRow,
              "Each example was normalised over its own features: a LayerNorm. BatchNorm goes "
              "over the batch."),
        Wrong("along-the-channels", AlongTheChannels,
              "Each example was averaged over its own features, in both modes, and nothing was "
              "remembered. Dimension 1 counts the channels: average over all others.",
              raises="The size of tensor"),
        Wrong("plain-tensors", PlainTensors,
              "running_mean and running_var are plain attributes: neither saved nor moved with the "
              "model. Use register_buffer().", sure=True),
        Wrong("frozen-parameters", FrozenParameters,
              "The running statistics are parameters. They are state that no "
              "optimizer should change: use register_buffer().", sure=True),
        Wrong("not-saved", NotSaved,
              "state_dict() lacks running statistics: a model loaded from it would begin at 0 and "
              "1 in eval mode. Register them without persistent=False.", sure=True),
        Wrong("weight-is-a-buffer", WeightIsABuffer),
        Wrong("graph-remembered", GraphRemembered,
              "running_mean and running_var still hold the graph of the batches, and a second "
              "backward() raises. Update them under torch.no_grad(), or detach() what they take.",
              sure=True),
        Wrong("one-image-refused", OneImageRefused,
              "A single image was refused in train mode. Each of its channels has "
              "many pixels: only one number per channel should raise an error.", sure=True),
        Wrong("constant-refused", ConstantRefused,
              "Rows were refused in train mode because a channel had the same number in each: its "
              "variance is 0, and eps is there for that. Refuse one number per channel: count "
              "them, x.numel() // channels.", sure=True),
        Wrong("silent-alone", SilentAlone,
              "One row in train mode was accepted, although its variance is 0. Raise a ValueError.",
              sure=True),
        Wrong("silent-alone", SilentAndStill),
        Wrong("other-error", OtherError,
              "One number per channel raised another error than ValueError. Callers "
              "catch that type: raise ValueError(...).", sure=True),
        Wrong("other-error", Asserts),
        Wrong("silent-pixel", SilentPixel,
              "An image of one pixel was accepted in train mode. It has one number "
              "per channel, just as one row has. Count them: x.numel() // channels.", sure=True),
        Wrong("moves-then-raises", MovesThenRaises,
              "The ValueError came after running_mean and running_var had moved. "
              "Check first, so that a caller who catches the error keeps the running "
              "statistics.", sure=True),
    ),
    right=(Norm, InPlace, ByTransposing),
)  # fmt: skip
