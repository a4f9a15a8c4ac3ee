"""Callbacks: eight points of a run at which you can add code without touching the loop.

    on_fit_start
        on_epoch_start
            on_update_end      after each weight update: the hot path
            on_log             every `log_every` updates, with that line's numbers
            on_checkpoint      after `last.pt` is written
        on_validation_start    after an epoch's last update, before it is evaluated
        on_epoch_end           after validation; early stopping decides here
    on_fit_end                 after the last update, also where the run failed

A callback with `state_dict` and `load_state_dict` goes into checkpoints; one with `reset` forgets
its last run when a new one begins. `check(trainer, names)` is called before the first update, with
the names of the numbers that an epoch will have.

Source: the training-loop chapter, "A production loop"; ledger C32.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from course.engine.distributed import rank
from course.engine.errors import EngineError

if TYPE_CHECKING:
    from course.engine.trainer import Trainer

HOOKS = (
    "on_fit_start",
    "on_epoch_start",
    "on_update_end",
    "on_log",
    "on_checkpoint",
    "on_validation_start",
    "on_epoch_end",
    "on_fit_end",
)
ALSO_CALLED = {
    "check": ("trainer", "names"),
    "reset": (),
    "state_dict": (),
    "load_state_dict": ("state",),
}
"""What else a callback may have, and what it is called with."""
DURING_EPOCHS = ("on_update_end", "on_log", "on_checkpoint")


class Callback:
    """Does nothing at eight points of a run; override those you need.

    Each hook gets the trainer: `progress` says where the run is, `history` what it measured, and
    `stop(reason)` ends it after the current update.
    """

    compared_settings: tuple[str, ...] = ()
    """Attributes of which a resumed run says when they are others than in its checkpoint."""

    def on_fit_start(self, trainer: Trainer) -> None:
        """Before the first update, when everything is checked and resumed."""

    def on_epoch_start(self, trainer: Trainer) -> None:
        """Before the first window of an epoch, or of the rest of it after resuming."""

    def on_update_end(self, trainer: Trainer) -> None:
        """After each weight update. Reading a tensor here makes the loop wait for the device."""

    def on_log(self, trainer: Trainer, line: dict[str, Any]) -> None:
        """Every `log_every` updates, with loss, gradient norm and learning rate since then."""

    def on_checkpoint(self, trainer: Trainer) -> None:
        """After `last.pt` was written."""

    def on_validation_start(self, trainer: Trainer) -> None:
        """After an epoch's last update, before it is evaluated."""

    def on_epoch_end(self, trainer: Trainer) -> None:
        """After validation; `trainer.history[-1]` is this epoch. `last.pt` is written later.

        Also where a run ends inside an epoch: `trainer.progress.epoch_is_whole` is then False.
        """

    def on_fit_end(self, trainer: Trainer) -> None:
        """After the last update, also where the run failed."""


class Callbacks:
    """Calls the hooks of all callbacks, but only those that were overridden."""

    def __init__(
        self, callbacks: Sequence[Callback], trainer: Trainer, progress: bool | str
    ) -> None:
        self.trainer = trainer
        callbacks = list(callbacks)
        if rank() == 0 and (progress is True or (progress == "auto" and somebody_is_watching())):
            callbacks.append(ProgressBar())
        self.calls = {name: [] for name in HOOKS}
        self.during_epochs = any(
            type(callback) is not ProgressBar and _is_called(callback, name)
            for callback in callbacks
            for name in DURING_EPOCHS
        )
        """Somebody's code runs between two updates of an epoch; a bar only shows them."""
        for callback in callbacks:
            for name in HOOKS:
                if _is_called(callback, name):
                    self.calls[name].append(getattr(callback, name))

    def __getattr__(self, name: str) -> Any:
        if name not in HOOKS:
            raise AttributeError(name)
        calls, trainer = self.calls[name], self.trainer

        def call(*arguments: Any) -> None:
            for hook in calls:
                hook(trainer, *arguments)

        setattr(self, name, call)
        return call


def _is_called(callback: Any, name: str) -> bool:
    """Whether a callback has a hook of its own."""
    of_its_class = getattr(type(callback), name, None) is not getattr(Callback, name)
    return hasattr(callback, name) and (of_its_class or name in getattr(callback, "__dict__", ()))


def check_callbacks(callbacks: Any) -> list[Any]:
    """The callbacks as a list, if each can be called at some point.

    Raises:
        EngineError: One is a class, has no hook or a misspelt one, or a hook with the wrong
        arguments.
    """
    if not isinstance(callbacks, (list, tuple)):
        raise EngineError(
            f"callbacks = {callbacks!r:.60}: expected a list, such as "
            "callbacks=[EarlyStopping(patience=3)]."
        )
    for callback in callbacks:
        if isinstance(callback, type):
            raise EngineError(
                f"callback {callback.__name__} is a class. Create an instance: "
                f"{callback.__name__}()."
            )
        named = [name for name in dir(callback) if name.startswith("on_")]
        if not set(named) & set(HOOKS):
            raise EngineError(
                f"callback {callback!r} has none of the hooks {', '.join(HOOKS)}. "
                "Give an object, not a class or function; subclass course.engine.Callback."
            )
        for name in named:
            if isinstance(callback, Callback) and name not in HOOKS:
                close = get_close_matches(name, HOOKS, n=1)
                raise EngineError(
                    f"callback {type(callback).__name__} has {name}, which is never called. "
                    + (f"Is {close[0]} meant?" if close else f"The hooks are {', '.join(HOOKS)}.")
                )
            if name in HOOKS:
                _check_arguments(callback, name, ("trainer", "line")[: 1 + (name == "on_log")])
        for name in [name for name in ALSO_CALLED if hasattr(callback, name)]:
            _check_arguments(callback, name, ALSO_CALLED[name])
        if hasattr(callback, "state_dict") and not hasattr(callback, "load_state_dict"):
            raise EngineError(
                f"callback {type(callback).__name__} has state_dict but no load_state_dict, so a "
                "resumed run could not put its state back. Write def load_state_dict(self, state)."
            )
    return list(callbacks)


def _check_arguments(callback: Any, name: str, given: Sequence[str]) -> None:
    """A method takes what it is called with."""
    signature = ", ".join(["self", *given])
    try:
        inspect.signature(getattr(callback, name)).bind(*given)
    except TypeError as error:
        raise EngineError(
            f"callback {type(callback).__name__}: {name} is called with ({', '.join(given)}), "
            f"which fails: {error}. Write def {name}({signature})"
            + (", or give it another name." if name in ALSO_CALLED else ".")
        ) from None
    except ValueError:  # a function of C without a signature
        return


class ProgressBar(Callback):
    """A tqdm bar over the updates of each epoch, in a terminal or a notebook."""

    def __init__(self) -> None:
        self.bar = None

    def on_epoch_start(self, trainer: Trainer) -> None:
        from tqdm import tqdm  # text: a widget would be an error when the notebook is reopened

        progress = trainer.progress
        self.bar = tqdm(
            total=progress.updates_per_epoch,
            initial=progress.update_in_epoch,
            desc=f"epoch {progress.epoch}",
            unit="update",
            leave=False,
            file=sys.stdout if _in_a_notebook() else None,  # there stderr is red, and costs marks
        )

    def on_update_end(self, trainer: Trainer) -> None:
        self.bar.update()

    def on_log(self, trainer: Trainer, line: dict[str, Any]) -> None:
        if line["train_loss"] is not None:
            self.bar.set_postfix(loss=f"{line['train_loss']:.4g}", refresh=False)

    def on_epoch_end(self, trainer: Trainer) -> None:
        self.bar.close()

    def on_fit_end(self, trainer: Trainer) -> None:
        if self.bar is not None:
            self.bar.close()


def somebody_is_watching() -> bool:
    """Whether standard error is a terminal, or this is a notebook."""
    return (sys.stderr is not None and sys.stderr.isatty()) or _in_a_notebook()


def _in_a_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return type(shell).__name__ == "ZMQInteractiveShell"


class TensorBoard(Callback):
    """Write every log line and every epoch as TensorBoard scalars.

    Args:
        directory: Where the event files go; `tensorboard/` in the run directory by default.
    """

    def __init__(self, directory: Path | str | None = None) -> None:
        self.directory = directory
        self.writer = None

    def on_fit_start(self, trainer: Trainer) -> None:
        if rank() != 0:
            return
        from torch.utils.tensorboard import SummaryWriter

        if self.directory is None and trainer.run_dir is None:
            raise EngineError(
                "TensorBoard: give a directory, such as TensorBoard('runs/tb'), or a run_dir=..."
            )
        directory = self.directory or trainer.run_dir / "tensorboard"
        # What a killed run wrote after its last checkpoint is hidden when it is resumed.
        self.writer = SummaryWriter(str(directory), purge_step=trainer.progress.update + 1)

    def on_log(self, trainer: Trainer, line: dict[str, Any]) -> None:
        self._write("update", line, trainer.progress.update)

    def on_epoch_end(self, trainer: Trainer) -> None:
        self._write("epoch", trainer.history[-1], trainer.progress.update)

    def on_fit_end(self, trainer: Trainer) -> None:
        if self.writer is not None:
            self.writer.close()

    def _write(self, kind: str, line: dict[str, Any], update: int) -> None:
        if self.writer is None:
            return
        for name, value in line.items():
            if isinstance(value, (int, float)) and name not in ("epoch", "update", "updates"):
                self.writer.add_scalar(f"{kind}/{name}", value, update)
