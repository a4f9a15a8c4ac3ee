"""03d.loss-scaler: a class that scales a loss for FP16 and finds its own scale."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from autograde.bank.harness import Watch
from autograde.exercise import (
    Answer,
    AnswerError,
    Case,
    Draw,
    Exercise,
    Part,
    Wrong,
    as_attribute,
    kept,
)
from course.from_scratch.loss_scaling import LossScaler

METHODS = ("scaled", "unscale", "step", "update")
GOOD = 0.0
"""An update whose gradients nothing spoils."""
LARGE = 3e19
"""Finite in float32, and its square is not; divided by a scale of at least 2**8 it is harmless.
A gradient holds a finite one twice."""

VAST = 3e38
"""Finite; its square and its double are not, nor is it itself when it is divided by a scale below
0.8. Divided by the first scale of 1.5, the sum of two still overflows."""


def draw(source: Draw, part: str) -> Case:
    """Updates of two groups of parameters; each names what spoils a gradient, if anything does."""
    inf, interval = math.inf, source.integer(2, 3)
    spoils = {
        "loss": [GOOD],
        "unscaled": [GOOD, GOOD, inf],
        "skipped": [GOOD, (inf, -inf, math.nan)[source.index % 3], LARGE],
        "scale": [
            *([GOOD] * interval if source.index else [VAST]),
            inf,
            *[VAST] * (1 - source.index),
            *[GOOD] * (interval - 1),
            math.nan,
            *[GOOD] * (2 * interval + 1),
            -inf,
        ],
        "clip": [GOOD, inf, GOOD],
        "long": [*[GOOD] * interval, -inf, *[GOOD] * (interval + 1), math.nan, GOOD],
    }[part]
    shapes = [(source.integer(2, 3), 3), (source.integer(2, 3),), (2,)]
    half = part == "loss" and source.index == 1
    return {
        "weights": [source.normal(*shape) for shape in shapes],
        "slopes": [[source.normal(*shape) + 0.1 for shape in shapes[:2]] for _ in spoils],
        "spoils": spoils,
        "where": [source.integer(0, 1) if part != "unscaled" else 0 for _ in spoils],
        "loss": 8.0 + source.integer(0, 8),
        "half": half,
        "scale": 2.0**13 if half else _scale(source, part),
        "growth": source.choice([3.0, 8.0]),
        "backoff": source.choice([0.5, 0.25]),
        "interval": interval,
        "optimizer": ("momentum", "adam", "plain")[source.index % 3],
        "clip": {"clip": ("norm", "value"), "long": ("norm", "")}.get(part, ("",))[
            source.index % (2 if part in ("clip", "long") else 1)
        ],
        "unscales": part == "unscaled" and source.index == 0,
        "dtype": "float64" if source.index == (2 if part == "loss" else 1) else "float32",
    }


def _scale(source: Draw, part: str) -> float:
    """Where the scale itself is asked, once below 1 after a skip and once beyond FP16's range."""
    if part == "scale":
        return (1.5, 2.0**24)[source.index]
    return 2.0 ** source.integer(8, 14)


def run(function, case: Case, device: torch.device) -> Answer:
    """What a scaled loss is and sends back; then, update by update, gradients, weights, scales."""
    scaler = _made(function, case)
    dtype = getattr(torch, case["dtype"])
    parameters = [nn.Parameter(value.to(device, dtype)) for value in case["weights"]]
    optimizer = _optimizer(case["optimizer"], parameters)
    stepped: list[int] = []
    optimizer.register_step_pre_hook(lambda *_: stepped.append(1))
    watch = Watch(optimizer=optimizer)
    answer: Answer = {"unscaled": [], "weights": [], "scales": [], "stepped": [], "told": []}
    answer["early"] = []
    for slopes, spoil, where in zip(case["slopes"], case["spoils"], case["where"], strict=True):
        optimizer.zero_grad()
        loss = _loss(case, parameters, [s.to(device, dtype) for s in slopes])
        scaled = _scaled(scaler, loss)
        answer.setdefault("loss", scaled.item())
        answer.setdefault("dtype", str(scaled.dtype))
        answer.setdefault("left", loss.item())
        scaled.backward()
        answer.setdefault("sent", _sent(parameters))
        if spoil != GOOD:
            parameters[where].grad.view(-1)[-2 if math.isfinite(spoil) else -1 :] = spoil
        before = len(stepped)
        _between(scaler, case, optimizer, parameters, answer)
        told = kept(_told, scaler.step(optimizer))
        answer["early"].append(kept(as_attribute, scaler, "scale"))
        scaler.update()
        answer["stepped"].append(len(stepped) - before)
        answer["told"].append(told)
        answer["weights"].append([p.detach().cpu().clone() for p in parameters])
        answer["scales"].append(kept(as_attribute, scaler, "scale"))
    checked = ("told", "scales", "early")
    unfit = [value for name in checked for value in answer[name] if type(value) is dict]
    for name in checked:
        bad = next((value for value in answer[name] if type(value) is dict), None)
        answer[name] = answer[name] if bad is None else bad
    return answer | {"disturbed": [] if unfit else watch.changed(frozenset({"moments"}))}


def _made(function, case: Case) -> Any:
    """The student's object, with all the methods asked for."""
    made = function(case["scale"], case["growth"], case["backoff"], case["interval"])
    function(2.0, 3.0, 0.1, 1)  # a scaler next to this one
    for name in METHODS:
        if not callable(getattr(made, name, None)):
            raise AnswerError(f"LossScaler(...) has no method {name}().")
    return made


def _optimizer(kind: str, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    """Two groups; the last parameter, in the second, never has a gradient."""
    groups = [{"params": parameters[:1]}, {"params": parameters[1:], "lr": 0.02}]
    if kind == "adam":
        return torch.optim.Adam(groups, lr=0.05, eps=0.01)
    return torch.optim.SGD(groups, lr=0.1, momentum=0.9 if kind == "momentum" else 0.0)


def _loss(case: Case, parameters: list[nn.Parameter], slopes: list[Tensor]) -> Tensor:
    """A loss of the case's value whose gradients are the slopes; in float16 if it says so."""
    moved = (((p - p.detach()) * s).sum() for p, s in zip(parameters, slopes, strict=False))
    loss = sum(moved) + case["loss"]
    return loss.half() if case["half"] else loss


def _scaled(scaler: Any, loss: Tensor) -> Tensor:
    scaled = scaler.scaled(loss)
    if not isinstance(scaled, Tensor) or scaled.numel() != 1:
        kind = type(scaled).__name__
        raise AnswerError(f"scaled() returned a {kind}; backward() needs a tensor of one number.")
    if not scaled.requires_grad:
        raise AnswerError(
            "What scaled() returned has no graph, so backward() cannot reach the parameters."
        )
    return scaled


def _sent(parameters: list[nn.Parameter]) -> Tensor:
    if parameters[0].grad is None:
        raise AnswerError(
            "backward() on what scaled() returned gave the parameters no gradient: multiply the "
            "loss itself, not a number taken out of it."
        )
    return parameters[0].grad.detach().cpu().clone()


def _between(scaler: Any, case: Case, optimizer: Any, parameters: list, answer: Answer) -> None:
    """Between backward() and step(): unscale and clip where the case does."""
    if case["clip"] or case["unscales"]:
        scaler.unscale(optimizer)
        answer["unscaled"].append([p.grad.detach().cpu().clone() for p in parameters[:2]])
    if case["clip"] == "norm":
        nn.utils.clip_grad_norm_(parameters, 0.5)
    elif case["clip"] == "value":
        nn.utils.clip_grad_value_(parameters, 0.5)


def _told(value: Any) -> bool:
    if not isinstance(value, bool):
        kind = type(value).__name__
        raise AnswerError(f"step() returned a {kind}; return True if it stepped, else False.")
    return value


def reference(scale, growth, backoff, interval) -> LossScaler:
    """The course's own."""
    return LossScaler(scale, growth, backoff, interval)


class Plain:
    """A right answer; the wrong ones change one method of it."""

    def __init__(self, scale, growth, backoff, interval):
        self.scale, self.growth, self.backoff, self.interval = scale, growth, backoff, interval
        self.good, self.finite, self.done = 0, True, False

    def scaled(self, loss):
        return loss.float() * self.scale if loss.dtype == torch.float16 else loss * self.scale

    def parameters(self, optimizer):
        return [p for group in optimizer.param_groups for p in group["params"]]

    def is_finite(self, grad):
        return bool(torch.isfinite(grad).all())

    def unscale(self, optimizer):
        self.done, self.finite = True, True
        for p in self.parameters(optimizer):
            if p.grad is not None:
                p.grad /= self.scale
                self.finite = self.finite and self.is_finite(p.grad)

    def step(self, optimizer):
        if not self.done:
            self.unscale(optimizer)
        if self.finite:
            optimizer.step()
        return self.finite

    def update(self):
        if not self.finite:
            self.scale, self.good = self.scale * self.backoff, 0
        else:
            self.good += 1
            if self.good == self.interval:
                self.scale, self.good = self.scale * self.growth, 0
        self.done = False


class ByNorm(Plain):
    def is_finite(self, grad):
        return bool(grad.norm().isfinite())


class BySum(Plain):
    def is_finite(self, grad):
        return bool(grad.sum().isfinite())


class LookedBefore(Plain):
    def unscale(self, optimizer):
        grads = [p.grad for p in self.parameters(optimizer) if p.grad is not None]
        self.done, self.finite = True, all(map(self.is_finite, grads))
        for grad in grads:
            grad /= self.scale


class EndsAtTheFirst(Plain):
    def unscale(self, optimizer):
        self.done, self.finite = True, True
        for p in self.parameters(optimizer):
            if p.grad is not None:
                p.grad /= self.scale
                if not self.is_finite(p.grad):
                    self.finite = False
                    return


class OnlyFiniteOnes(Plain):
    def unscale(self, optimizer):
        grads = [p.grad for p in self.parameters(optimizer) if p.grad is not None]
        self.done, self.finite = True, all(self.is_finite(g / self.scale) for g in grads)
        for grad in grads if self.finite else ():
            grad /= self.scale


class SetInStep(Plain):
    def step(self, optimizer):
        stepped = super().step(optimizer)
        super().update()
        self.done = True
        return stepped

    def update(self):
        self.done = False


class GrowsAtASkip(Plain):
    def update(self):
        self.good = self.good + 1 if self.finite else 0
        if not self.finite:
            self.scale *= self.backoff
        if self.good % self.interval == 0:
            self.scale *= self.growth
        self.done = False


class GrowsByTwo(Plain):
    def __init__(self, scale, growth, backoff, interval):
        super().__init__(scale, 2.0, backoff, interval)


class BacksOffByHalf(Plain):
    def __init__(self, scale, growth, backoff, interval):
        super().__init__(scale, growth, 0.5 if backoff == 0.25 else 0.25, interval)


class BackByGrowth(Plain):
    def __init__(self, scale, growth, backoff, interval):
        super().__init__(scale, growth, 1 / growth, interval)


class CountsEveryUpdate(Plain):
    def update(self):
        self.good += 1
        if not self.finite:
            self.scale *= self.backoff
        elif self.good % self.interval == 0:
            self.scale *= self.growth
        self.done = False


class StepDoesNotUnscale(Plain):
    def step(self, optimizer):
        finite = self.finite if self.done else True
        if finite:
            optimizer.step()
        return finite


class InSixteenBits(Plain):
    def scaled(self, loss):
        return loss * self.scale


class WidenedLate(Plain):
    def scaled(self, loss):
        return (loss * self.scale).float() if loss.dtype == torch.float16 else loss * self.scale


class ScaledInPlace(Plain):
    def scaled(self, loss):
        return super().scaled(loss) if loss.dtype == torch.float16 else loss.mul_(self.scale)


class AlwaysFloat32(Plain):
    def scaled(self, loss):
        return loss.float() * self.scale


class NotScaled(Plain):
    def scaled(self, loss):
        return loss * 1.0


class NeverUnscaled(Plain):
    def unscale(self, optimizer):
        self.scale, scale = 1.0, self.scale
        super().unscale(optimizer)
        self.scale = scale


class UnscaledTwice(Plain):
    def step(self, optimizer):
        self.unscale(optimizer)
        return super().step(optimizer)


class FirstGroup(Plain):
    def parameters(self, optimizer):
        return optimizer.param_groups[0]["params"]


class NeverSkips(Plain):
    def is_finite(self, grad):
        return True


class InfAlone(Plain):
    def is_finite(self, grad):
        return not bool(grad.isinf().any())


class NanAlone(Plain):
    def is_finite(self, grad):
        return not bool(grad.isnan().any())


class UpwardsAlone(Plain):
    def is_finite(self, grad):
        return not bool((grad == math.inf).any() or grad.isnan().any())


class LastGradient(Plain):
    """Forgets that an earlier gradient was not finite."""

    def unscale(self, optimizer):
        super().unscale(optimizer)
        grads = [p.grad for p in self.parameters(optimizer) if p.grad is not None]
        self.finite = self.is_finite(grads[-1])


class SumOfSquares(Plain):
    """Asks the sum of all squares instead of the gradients."""

    def unscale(self, optimizer):
        grads = [p.grad for p in self.parameters(optimizer) if p.grad is not None]
        finite = math.isfinite(sum(grad.square().sum().item() for grad in grads))
        super().unscale(optimizer)
        self.finite = finite


class ForgetsInStep(Plain):
    """Forgets in step() what update() has to know."""

    def step(self, optimizer):
        stepped = super().step(optimizer)
        self.done, self.finite = False, True
        return stepped


class Zeroes(Plain):
    """Steps with gradients of 0 where they were not finite."""

    def step(self, optimizer):
        if not self.done:
            self.unscale(optimizer)
        for p in self.parameters(optimizer) if not self.finite else ():
            if p.grad is not None:
                p.grad.zero_()
        optimizer.step()
        return self.finite


class LooksAtStep(Plain):
    """Looks when it steps, after a ceiling has cut inf down to a number."""

    def step(self, optimizer):
        if not self.done:
            self.unscale(optimizer)
        grads = [p.grad for p in self.parameters(optimizer) if p.grad is not None]
        self.finite = all(self.is_finite(grad) for grad in grads)
        return super().step(optimizer)


class NeverBacksOff(Plain):
    def update(self):
        self.good = self.good if self.finite else 0
        super().update() if self.finite else setattr(self, "done", False)


class NeverGrows(Plain):
    def update(self):
        self.interval = 10**9
        super().update()


class SkipKeepsCount(Plain):
    def update(self):
        good = self.good
        super().update()
        self.good = self.good if self.finite else good


class GrowsOnAndOn(Plain):
    """The count is not begun again after a growth."""

    def update(self):
        if not self.finite:
            self.scale, self.good = self.scale * self.backoff, 0
        else:
            self.good += 1
            self.scale *= self.growth if self.good >= self.interval else 1.0
        self.done = False


class OneTooLate(Plain):
    def __init__(self, scale, growth, backoff, interval):
        super().__init__(scale, growth, backoff, interval + 1)


class DividesByBackoff(Plain):
    def __init__(self, scale, growth, backoff, interval):
        super().__init__(scale, growth, 1 / backoff, interval)


class FixedFactors(Plain):
    """torch's usual factors, whatever is asked."""

    def __init__(self, scale, growth, backoff, interval):
        super().__init__(scale, 2.0, 0.5, interval)


class TellsNothing(Plain):
    def step(self, optimizer):
        super().step(optimizer)


class TellsTheSkip(Plain):
    def step(self, optimizer):
        return not super().step(optimizer)


class NeverForgets(Plain):
    """Notes an overflow and never forgets it."""

    def unscale(self, optimizer):
        before = self.finite
        super().unscale(optimizer)
        self.finite = self.finite and before


class DoneForGood(Plain):
    """Never forgets that unscale() was called."""

    def update(self):
        done = self.done
        super().update()
        self.done = done


class UnscaledOnce(DoneForGood):
    """Never forgets it, and then unscale() itself does nothing."""

    def unscale(self, optimizer):
        if not self.done:
            super().unscale(optimizer)


class GrowsOnce(Plain):
    """The count goes on after a growth, and equals the interval only once."""

    def update(self):
        self.good = self.good + 1 if self.finite else 0
        if not self.finite:
            self.scale *= self.backoff
        elif self.good == self.interval:
            self.scale *= self.growth
        self.done = False


class StepsAnyway(Plain):
    def step(self, optimizer):
        if not self.done:
            self.unscale(optimizer)
        optimizer.step()
        return self.finite


class BacksOffTwice(Plain):
    def step(self, optimizer):
        stepped = super().step(optimizer)
        self.scale *= 1.0 if stepped else self.backoff
        return stepped


class LooksAtTheLoss(Plain):
    def scaled(self, loss):
        self.seen = bool(loss.isfinite())
        return super().scaled(loss)

    def is_finite(self, grad):
        return self.seen


class StepsWithNothing(Plain):
    """Clears the gradients where they were not finite, and steps."""

    def step(self, optimizer):
        if not self.done:
            self.unscale(optimizer)
        if not self.finite:
            optimizer.zero_grad()
        optimizer.step()
        return self.finite


class Capped(Plain):
    """Keeps the scale within limits that nobody asked for."""

    def update(self):
        super().update()
        self.scale = min(max(self.scale, 1.0), 2.0**24)


class ScalesTheRate(Plain):
    """Divides the learning rate instead of the gradients."""

    def unscale(self, optimizer):
        self.done, self.finite = True, True
        for group in optimizer.param_groups:
            group["lr"] /= self.scale
            for p in group["params"]:
                self.finite = self.finite and (p.grad is None or self.is_finite(p.grad))


class SharedByAll(Plain):
    """Settings of the class, so that the last scaler made decides for all."""

    def __init__(self, scale, growth, backoff, interval):
        super().__init__(scale, growth, backoff, interval)
        type(self).factors = growth, backoff

    def update(self):
        self.growth, self.backoff = type(self).factors
        super().update()


class WithInverse:
    """In other words: one joint look at all gradients, a set of counters."""

    def __init__(self, scale, growth, backoff, interval):
        self.scale, self.up, self.down, self.every = float(scale), growth, backoff, interval
        self.streak, self.state = 0, None

    def scaled(self, loss):
        return torch.mul(loss, torch.tensor(self.scale, dtype=torch.float32, device=loss.device))

    @torch.no_grad()
    def unscale(self, optimizer):
        grads = [p.grad for g in optimizer.param_groups for p in g["params"] if p.grad is not None]
        for grad in grads:
            grad.mul_(1.0 / self.scale)
        self.state = all(math.isfinite(grad.abs().max().item()) for grad in grads)

    def step(self, optimizer):
        self.state is None and self.unscale(optimizer)
        if not self.state:
            return False
        optimizer.step()
        return True

    def update(self):
        self.streak = (self.streak + 1) if self.state else 0
        if self.state is False:
            self.scale = self.scale * self.down
        if self.streak and self.streak % self.every == 0:
            self.scale, self.streak = self.scale * self.up, 0
        self.state = None


class WithNewTensors:
    """Replaces each gradient by a new tensor."""

    def __init__(self, scale, growth, backoff, interval):
        self.settings, self.scale = (growth, backoff, interval), scale
        self.history, self.bad = [], None

    def scaled(self, loss):
        wide = loss.to(torch.promote_types(loss.dtype, torch.float32))
        return wide * self.scale

    def unscale(self, optimizer):
        self.bad = False
        for group in optimizer.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.grad = p.grad / self.scale
                    if p.grad.isnan().any() or p.grad.isinf().any():
                        self.bad = True

    def step(self, optimizer):
        if self.bad is None:
            self.unscale(optimizer)
        if self.bad:
            return False
        optimizer.step()
        return True

    def update(self):
        growth, backoff, interval = self.settings
        self.history.append(not self.bad)
        if self.bad:
            self.scale, self.history = self.scale * backoff, []
        if len(self.history) == interval:
            self.scale, self.history = self.scale * growth, []
        self.bad = None


class WithTensors:
    """The scale is a tensor, read as a number; gradients are divided all at once."""

    def __init__(self, scale, growth, backoff, interval):
        self.now, self.factors, self.left = torch.tensor(float(scale)), (backoff, growth), interval
        self.interval, self.bad = interval, None

    @property
    def scale(self):
        return self.now.item()

    def scaled(self, loss):
        return loss * self.now.to(loss.device)

    def unscale(self, optimizer):
        grads = [p.grad for g in optimizer.param_groups for p in g["params"] if p.grad is not None]
        torch._foreach_div_(grads, self.scale)
        self.bad = not all(bool(grad.isfinite().all()) for grad in grads)

    def step(self, optimizer):
        if self.bad is None:
            self.unscale(optimizer)
        if not self.bad:
            optimizer.step()
        return not self.bad

    def update(self):
        self.left = self.interval if self.bad else self.left - 1
        if self.bad or not self.left:
            self.now, self.left = self.now * self.factors[not self.bad], self.interval
        self.bad = None


EXERCISE = Exercise(
    id="03d.loss-scaler",
    title="a loss scaler",
    source='Annotated-loop essay, "Mixed precision"',
    kind="class",
    ledger=("X64", "N34", "F114", "F116", "C08"),
    minutes=20,
    difficulty=3,
    read=("N34", "F114", "F116"),
    hints=(
        "For each method, write down what it needs to know that another one found out.",
        "unscale() notes that it was called and whether all gradients are finite; step() asks for "
        "both; update() reads the second and forgets the first.",
        "update(): after a skip, scale *= backoff and the count is 0; else count one more, and "
        "when it reaches interval, scale *= growth and the count is 0.",
    ),
    signature="LossScaler(scale, growth, backoff, interval)",
    parts=(
        Part("loss", "the scaled loss, of each dtype", points=0.5, cases=3,
             fields=("loss", "dtype", "sent", "left")),
        Part("unscaled", "true gradients at the step, in every group", points=1,
             fields=("unscaled", "weights", "disturbed")),
        Part("skipped", "an update skipped for inf, -inf or nan", points=1, cases=3,
             fields=("stepped", "told", "weights")),
        Part("scale", "how the scale shrinks and grows", points=1, fields=("scales", "early")),
        Part("clip", "clipping between unscale() and step()", points=0.5,
             fields=("weights", "stepped")),
        Part("long", "a longer run with all of it", points=1, hidden=True,
             fields=("weights", "scales", "stepped")),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={
        "loss": "the scaled loss",
        "dtype": "the dtype of the scaled loss",
        "left": "the loss itself, after scaled(),",
        "sent": "after backward() on it, the gradient at",
        "unscaled": "after unscale(), at update (counted from 0), parameter and place, the "
        "gradient",
        "weights": "after update (counted from 0), parameter and place, the weight",
        "stepped": "the number of optimizer.step() calls in update (counted from 0)",
        "told": "what step() returned in update (counted from 0)",
        "scales": "the scale after update (counted from 0)",
        "early": "the scale after step(), before update(), in update (counted from 0)",
        "disturbed": "what else it changed",
    },
    by_hand=(
        torch.amp.GradScaler.scale, torch.amp.GradScaler.unscale_, torch.amp.GradScaler.step,
        torch.amp.GradScaler.update, torch.amp.GradScaler._unscale_grads_,
        "torch.distributed.fsdp.sharded_grad_scaler", LossScaler.update,
    ),
    wrong=(
        Wrong("in-sixteen-bits", InSixteenBits,
              "The scaled loss is inf for a float16 loss: the product was computed in float16, "
              "whose largest number is 65,504. Convert such a loss to float32 first.", sure=True),
        Wrong("in-sixteen-bits", WidenedLate, sure=True),
        Wrong("always-float32", AlwaysFloat32,
              "A float64 loss came back as float32. Only a float16 loss should change its dtype.",
              sure=True),
        Wrong("scaled-in-place", ScaledInPlace,
              "The loss itself was multiplied by the scale, so a log would show the wrong value. "
              "loss * scale makes a new tensor; mul_() and *= do not.", sure=True),
        Wrong("not-scaled", NotScaled,
              "The loss came back unscaled. Multiply it by the scale.", sure=True),
        Wrong("never-unscaled", NeverUnscaled,
              "The weights moved by gradients that were still multiplied by the scale. Divide each "
              ".grad by it before optimizer.step()."),
        Wrong("unscaled-twice", UnscaledTwice,
              "When unscale() was called before step(), the gradients were divided twice. Remember "
              "that it was called, and reset this in update()."),
        Wrong("first-group", FirstGroup,
              "Only the first group's gradients were divided. Go through all of "
              "optimizer.param_groups."),
        Wrong("never-skips", NeverSkips,
              "It stepped with gradients that are not finite. Apply isfinite() to every gradient."),
        Wrong("inf-alone", InfAlone,
              "It stepped with a gradient that holds nan, though not with one that holds inf. "
              "isfinite() is False for nan, inf and -inf.", sure=True),
        Wrong("nan-alone", NanAlone,
              "It stepped with a gradient that holds inf, though not with one that holds nan. "
              "isfinite() is False for nan, inf and -inf."),
        Wrong("upwards-alone", UpwardsAlone,
              "It stepped with a gradient that holds -inf, though not with inf. isfinite() is "
              "False for nan, inf and -inf.", sure=True),
        Wrong("last-gradient", LastGradient,
              "It stepped with a gradient that is not finite when the last gradient was finite. "
              "Each one overwrote what was noted about those before."),
        Wrong("sum-overflows", ByNorm),
        Wrong("sum-overflows", BySum),
        Wrong("looked-before", LookedBefore,
              "Gradients that became inf when divided by a scale below 1 counted as finite. Divide "
              "first, then check.", sure=True),
        Wrong("ends-at-the-first", EndsAtTheFirst,
              "Gradients after the first one that is not finite were not divided. Divide every "
              "one: note what is not finite, and continue.", sure=True),
        Wrong("only-finite-ones", OnlyFiniteOnes,
              "When one gradient was not finite, none was divided. Divide them anyway.",
              sure=True),
        Wrong("set-in-step", SetInStep,
              "The scale had already changed after step(). Only update() should set "
              "it.", sure=True),
        Wrong("grows-at-a-skip", GrowsAtASkip,
              "After a skipped update the scale was also multiplied by growth: 0 % interval is 0. "
              "Grow only after a good update.", sure=True),
        Wrong("growth-ignored", GrowsByTwo,
              "The scale was doubled when it grew. Multiply it by growth.", sure=True),
        Wrong("other-backoff", BacksOffByHalf),
        Wrong("back-by-growth", BackByGrowth,
              "After a skip the scale was divided by growth. Multiply it by backoff.", sure=True),
        Wrong("counts-every-update", CountsEveryUpdate),
        Wrong("sum-overflows", SumOfSquares,
              "It skipped an update whose gradients are large but finite. Their sum, or that of "
              "their squares, overflows before they do: apply isfinite() to the gradients "
              "themselves."),
        Wrong("step-does-not-unscale", StepDoesNotUnscale,
              "When unscale() was not called before step(), it stepped with gradients that were "
              "still scaled. Call it in step(), unless it has already been called.", sure=True),
        Wrong("forgets-in-step", ForgetsInStep,
              "After a skip the scale stayed, and the update was counted as a good one. What "
              "unscale() noted must be kept until update()."),
        Wrong("zeroes", Zeroes,
              "optimizer.step() was called in an update with gradients that are not finite, and "
              "the weights moved as if those gradients were 0: momentum, averages and counters "
              "moved, too. Do not step at all.", sure=True),
        Wrong("looks-at-step", LooksAtStep,
              "It stepped after clipping by value had turned an inf into a finite number. Check "
              "the gradients in unscale(), and remember the result.", sure=True),
        Wrong("never-backs-off", NeverBacksOff,
              "The scale stayed where it was after an update that overflowed. Multiply it by "
              "backoff."),
        Wrong("never-grows", NeverGrows,
              "The scale never grew. After interval good updates in a row, multiply it by growth."),
        Wrong("skip-keeps-count", SkipKeepsCount,
              "A skipped update did not reset the count: interval counts good updates in a row."),
        Wrong("grows-on-and-on", GrowsOnAndOn,
              "After a growth the scale grew again in the next update. Count from 0 after each "
              "growth."),
        Wrong("grows-once", GrowsOnce,
              "After one growth the scale did not grow again until an update was skipped. Count "
              "from 0 after each growth."),
        Wrong("one-too-late", OneTooLate,
              "The scale grew one good update late: with interval 3 it grows in the update() after "
              "the third."),
        Wrong("divides-by-backoff", DividesByBackoff,
              "After an overflow the scale became larger. backoff is a factor below 1: multiply "
              "by it."),
        Wrong("fixed-factors", FixedFactors,
              "The scale grew by 2 and shrank by 0.5. Use growth and backoff."),
        Wrong("tells-nothing", TellsNothing),
        Wrong("tells-the-skip", TellsTheSkip,
              "step() returned True when it skipped and False when it stepped. It should be the "
              "other way round."),
        Wrong("never-forgets", NeverForgets,
              "After one update was skipped, every later one was skipped, too, though its "
              "gradients were finite. Reset in update() what unscale() noted.", sure=True),
        Wrong("done-for-good", DoneForGood,
              "The first update is right. From the second on, if unscale() was not called first, "
              "step() used gradients that were still scaled. Reset in update() that unscale() was "
              "called."),
        Wrong("unscaled-once", UnscaledOnce,
              "The first update is right. From the second on nothing was divided, as if its "
              "gradients had been unscaled already. Reset in update() that unscale() was called."),
        Wrong("steps-anyway", StepsAnyway,
              "optimizer.step() was called in an update with gradients that are not finite, though "
              "step() returned False. Call it only if unscale() found all of them finite."),
        Wrong("backs-off-twice", BacksOffTwice,
              "After an overflow the scale was multiplied by backoff twice. Leave it to update()."),
        Wrong("looks-at-the-loss", LooksAtTheLoss,
              "It stepped with a gradient that is not finite, when the loss was finite. Check the "
              "gradients, not the loss.", sure=True),
        Wrong("steps-with-nothing", StepsWithNothing,
              "optimizer.step() was called in an update with gradients that are not finite, though "
              "no weight moved. Do not call it at all: weight decay could move weights, and a "
              "counter could advance.",
              sure=True),
        Wrong("capped", Capped),
        Wrong("scales-the-rate", ScalesTheRate),
        Wrong("shared-by-all", SharedByAll),
    ),
    right=(Plain, WithInverse, WithNewTensors, WithTensors),
)  # fmt: skip
