"""Several optimizers: your own step, built from the engine's parts.

A GAN or an actor-critic moves two sets of weights with two losses, in an order that is the idea of
the method. So you decide the order, and the trainer does everything around it: one record, one
checkpoint, one resume.

    def gan_step(step, batch):
        images, _ = batch
        fake = step.models["generator"](noise_like(images))
        critic_loss = ...
        step.descend("critic", critic_loss)
        generator_loss = ...
        step.descend("generator", generator_loss)
        return {"critic": critic_loss, "generator": generator_loss}

    Trainer({"generator": G, "critic": D}, optimizer={"generator": a, "critic": b}, step=gan_step)

The optimizers move one after the other: if the second loss is nan or the code after the first
`descend` raises, the first has already stepped, and the message says so. With
`on_nonfinite="skip"` its step remains, and the batch counts as skipped.

The alternative, a list of optimizers with intervals at which each is stepped, hides that order in
settings, and every method that does not fit needs another setting.

Source: ledger C01, C06; Goodfellow et al. 2014 (arXiv:1406.2661), algorithm 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from course.engine.clipping import Ceiling, clip_, grad_norm, parameters_of
from course.engine.errors import EngineError
from course.engine.loss_of import check_value
from course.engine.nonfinite import found_nonfinite, nonfinite_error
from course.engine.precision import Precision
from course.engine.progress import StepReport
from course.engine.unprofiled import zero_grad
from course.state import moved, nested, train_mode_

OwnStep = Callable[["Step", Any], Tensor | Mapping[str, Tensor]]


class Several:
    """Optimizers or schedulers by name, treated as one: their state, groups and steps."""

    def __init__(self, parts: Mapping[str, Any]) -> None:
        self.parts = dict(parts)

    def __getitem__(self, name: str) -> Any:
        if name not in self.parts:
            raise EngineError(f"{name!r}: no such part; choose from {', '.join(self.parts)}.")
        return self.parts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.parts)

    def step(self, *metric: float) -> None:
        """Step each of them, in order; schedulers on a plateau get the monitored number."""
        for part in self.parts.values():
            part.step(*metric)

    def state_dict(self) -> dict[str, Any]:
        """The states, by name."""
        return {name: part.state_dict() for name, part in self.parts.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put the states back."""
        if state.keys() != self.parts.keys():
            raise KeyError(f"{', '.join(state)} there and {', '.join(self.parts)} here")
        for name, part in self.parts.items():
            part.load_state_dict(state[name])


class Optimizers(Several):
    """Several optimizers; `param_groups` lists those of all."""

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The groups of every optimizer, in order."""
        return [group for part in self.parts.values() for group in part.param_groups]

    @property
    def state(self) -> dict[Tensor, Any]:
        """What is remembered for each parameter."""
        return {key: value for part in self.parts.values() for key, value in part.state.items()}


class Step:
    """What the user's own step gets: models, optimizers, and `descend` to step one of them."""

    def __init__(
        self,
        models: nn.Module,
        optimizers: Optimizers,
        precision: Precision,
        *,
        max_norm: Ceiling | None,
        on_nonfinite: str,
        device: torch.device,
    ) -> None:
        self.models, self.optimizers, self.precision = models, optimizers, precision
        self.max_norm, self.on_nonfinite, self.device = max_norm, on_nonfinite, device
        self.norms: dict[str, Tensor] = {}
        self.found_nonfinite = False
        self.moved: list[str] = []
        """Optimizers stepped so far in this call of the user's function."""
        self.unscaled: set[str] = set()
        """Optimizers whose gradients were unscaled since the scale was last adapted."""

    def descend(self, name: str, loss: Tensor, *, retain_graph: bool = False) -> None:
        """Make one step with one optimizer: zero_grad, backward, unscale, clip, step.

        Args:
            name: Which optimizer.
            loss: One number with a graph.
            retain_graph: True if another loss needs the same graph.

        Raises:
            NonFiniteError: Loss or gradient is inf or nan, and the run does not skip such steps.
                This optimizer's weights are untouched; those stepped before it have moved.
        """
        optimizer: Optimizer = self.optimizers[name]
        check_value(loss)
        parameters = parameters_of(optimizer)
        zero_grad(parameters)
        if name in self.unscaled:  # a scaler wants to be updated before the same one's next step
            self._adapt_scale()
        self.unscaled.add(name)
        with self.precision.plain:
            self.precision.backward(loss, retain_graph=retain_graph)
        self.precision.unscale_(optimizer)
        norm = grad_norm(parameters)
        self.norms[name] = norm
        if bool(found_nonfinite(loss.detach(), norm, parameters)):
            self.found_nonfinite = True
            if self.on_nonfinite == "raise" and not self.precision.scaler:
                raise nonfinite_error(self.models, loss.detach(), norm, name)
            return
        if self.max_norm is not None:
            clip_(parameters, norm, self.max_norm)
        self.precision.step(optimizer, update_scale=False)
        torch.clear_autocast_cache()  # holds 16-bit copies of the weights as they were
        self.moved.append(name)

    def _adapt_scale(self) -> None:
        """Under fp16, by what was found in the gradients of all optimizers since the last time."""
        self.precision.overflowed()
        self.unscaled = set()

    def take(self, own: OwnStep, batch: Any) -> StepReport:
        """Call the user's function on one batch."""
        self.norms, self.found_nonfinite, self.moved = {}, False, []
        batch = moved(batch, self.device)
        with self.precision.autocast:
            numbers = _named(own(self, batch))
        if self.norms:
            self._adapt_scale()
        elif not self.found_nonfinite:
            raise EngineError(
                "the step moved nothing: it never called step.descend(name, loss). The optimizers "
                f"are {', '.join(self.optimizers)}."
            )
        norm = torch.stack(list(self.norms.values())).square().sum().sqrt()
        main = next(iter(numbers.values()))
        weight = nested.num_examples(batch) or 1
        return StepReport(main, weight, norm, self.found_nonfinite, numbers)


def train_mode_of_parts_(models: nn.Module, optimizers: Optimizers) -> None:
    """Train mode for each of several models that an optimizer moves; a teacher keeps its own."""
    if not isinstance(models, nn.ModuleDict):
        train_mode_(models)
        return
    moved_here = set(map(id, parameters_of(optimizers)))
    for model in models.values():
        if any(p.requires_grad and id(p) in moved_here for p in model.parameters()):
            train_mode_(model)


def _named(result: Any) -> dict[str, Tensor]:
    """The numbers that a step returned, by name, without their graphs."""
    if isinstance(result, (Tensor, float, int)):
        result = {"loss": result}
    if not isinstance(result, Mapping) or not result:
        raise EngineError(
            f"the step returned {result!r:.60}: expected its loss, or a dictionary of numbers by "
            "name such as {'critic': critic_loss, 'generator': generator_loss}. The first is "
            "recorded as train_loss."
        )
    numbers = {name: torch.as_tensor(value).detach() for name, value in result.items()}
    for name, value in numbers.items():
        if value.numel() != 1:
            raise EngineError(f"the step's {name!r} is {list(value.shape)}, expected one number.")
    return numbers
