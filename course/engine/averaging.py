"""Averaged weights: the mean of the weights during training often generalises better than the last.

`EMA` keeps an exponential running mean, `SWA` the plain mean from some epoch on, both with
`torch.optim.swa_utils`. Training continues with its own weights; validation and `best.pt` use the
averaged ones, and a resumed run keeps them. What else a model holds, e.g. a plain factor that a
callback changes, is not averaged: each validation takes it as it is then.

    Trainer(..., callbacks=[EMA(decay=0.999)])

Source: Izmailov et al. 2018 (arXiv:1803.05407); ledger C11, B39.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from course.engine.callbacks import Callback
from course.engine.errors import EngineError
from course.engine.module_state import ModuleState
from course.state.generators import put_back, state_of

if TYPE_CHECKING:
    from course.engine.trainer import Trainer


class WeightAverage(Callback):
    """Averages the weights; its two subclasses say how, and from when.

    The trainer validates the `model` of such a callback, and of no other.
    """

    def __init__(self) -> None:
        self.averaged: AveragedModel | None = None
        self._remembered: dict[str, Any] | None = None

    def reset(self) -> None:
        """Forget an earlier run."""
        self.averaged = self._remembered = None

    def _make(self, model: nn.Module) -> AveragedModel:
        raise NotImplementedError

    def rehearse(self, trainer: Trainer) -> None:
        """Check before the first update that the model can be copied."""
        try:
            copy.deepcopy(trainer.model)
        except Exception as error:
            raise EngineError(
                f"{type(self).__name__} averages into a copy of the model, but it cannot be copied "
                f"({type(error).__name__}: {str(error).splitlines()[0][:120]}). Keep no tensor "
                "with a graph as an attribute; instead of torch.nn.utils.weight_norm use "
                "torch.nn.utils.parametrizations.weight_norm."
            ) from error

    @property
    def model(self) -> nn.Module | None:
        """The model with the averaged weights; None before the first average."""
        return None if self.averaged is None else self.averaged.module

    def on_fit_start(self, trainer: Trainer) -> None:
        if self._remembered is not None:
            self.averaged = self._make(trainer.model)
            self.averaged.load_state_dict(self._remembered)
            self._remembered = None

    def _update(self, trainer: Trainer) -> None:
        if self.averaged is None:
            self.averaged = self._make(trainer.model)
        self.averaged.update_parameters(trainer.model)

    def on_validation_start(self, trainer: Trainer) -> None:
        """Let the averaged model have what the trained one holds beside its weights, e.g. a factor
        that a callback anneals: a copy of the model keeps what was there when it was made."""
        if self.model is None:
            return
        here, there = (ModuleState({"model": model}) for model in (self.model, trainer.model))
        here.put_back(there.now())
        for own, theirs in zip(here.generators(), there.generators(), strict=False):
            put_back(own, state_of(theirs))

    def state_dict(self) -> dict[str, Any]:
        return {"averaged": None if self.averaged is None else self.averaged.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._remembered = state["averaged"]


class EMA(WeightAverage):
    """Exponential moving average of weights and buffers, after each update.

    Args:
        decay: Weight of the past average; 0.999 looks back about 1,000 updates.
    """

    compared_settings = ("decay",)

    def __init__(self, decay: float = 0.999) -> None:
        super().__init__()
        if not isinstance(decay, Real) or not 0 <= decay < 1:
            raise EngineError(
                f"decay = {decay!r}: expected a number from 0 to below 1, such as 0.999."
            )
        self.decay = decay

    def _make(self, model: nn.Module) -> AveragedModel:
        average = get_ema_multi_avg_fn(self.decay)
        return AveragedModel(model, multi_avg_fn=average, use_buffers=True)

    def on_update_end(self, trainer: Trainer) -> None:
        self._update(trainer)


class SWA(WeightAverage):
    """The mean of the weights at the ends of whole epochs, from epoch `start` on.

    Running statistics of BatchNorm are averaged with the weights. That needs no further pass, but
    it is not what the averaged weights themselves would measure: `torch.optim.swa_utils.update_bn`
    measures that in one pass over the training data, and either may validate better.

    Args:
        start: The first epoch that counts, from 1.
    """

    compared_settings = ("start",)

    def __init__(self, start: int) -> None:
        super().__init__()
        if not isinstance(start, int) or isinstance(start, bool) or start < 1:
            raise EngineError(f"start = {start!r}: expected an epoch, counted from 1.")
        self.start = start
        self.counted = 0
        """The last epoch in the mean."""

    def _make(self, model: nn.Module) -> AveragedModel:
        return AveragedModel(model, use_buffers=True)

    def check(self, trainer: Trainer, names: Sequence[str]) -> None:
        """Say where the run ends before the first epoch that counts."""
        epochs = trainer.plan.epochs
        if epochs is not None and epochs < self.start:
            warnings.warn(
                f"SWA(start={self.start}) in a run of {epochs} epochs averages nothing. Start "
                "earlier, e.g. after three quarters of the epochs.",
                stacklevel=5,
            )

    def on_validation_start(self, trainer: Trainer) -> None:
        epoch = trainer.progress.epoch
        if epoch >= self.start and trainer.progress.epoch_is_whole and epoch > self.counted:
            self._update(trainer)
            self.counted = epoch  # once, also where its validation is repeated in a resumed run
        super().on_validation_start(trainer)

    def reset(self) -> None:
        """Forget an earlier run."""
        super().reset()
        self.counted = 0

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "counted": self.counted}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.counted = state.get("counted", 0)
