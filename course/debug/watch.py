"""Watch a loop while it runs: the doctor's checks on the user's own training, at a small cost.

    with watch(model, optimizer) as seen:
        train(...)              # the user's loop, unchanged
    print(seen.report)

Only some steps are looked at (`every`); between them, only one hook that counts the optimizer's
steps is installed.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import nn

from course.debug.diagnose import SYMPTOMS, _ordered
from course.debug.probes import (
    accumulation,
    clearing,
    clipping,
    modes,
    numbers,
    schedule,
    stepping,
    structure,
)
from course.debug.probes.report import Finding, Report
from course.debug.probes.session import Loop, NotChecked, Session
from course.debug.probes.setup import Setup
from course.debug.probes.tape import Tape
from course.debug.relations import loss

WATCHABLE = (
    clearing.clearing, stepping.erased, stepping.stepping, clipping.clip_place,
    accumulation.accumulation, schedule.schedule, modes.eval_in_training,
    structure.membership, loss.broadcast, numbers.finite, numbers.dead_units,
)  # fmt: skip
LEAST_EVERY = 10
"""Updates from one look to the next, at least: 4 of them are looked at."""


class watch:
    """Watch a training loop inside a `with` block; the findings are in `report`.

    Args:
        model: The model that is trained.
        optimizer: Its optimizer, or a list of them.
        scheduler: Its learning-rate scheduler, if there is one.
        first: How many updates to look at from the start, one by one.
        every: After those, 4 updates in a row are looked at once in every `every` updates.
        declared: What is intended, as in `diagnose`.

    The model, the optimizer and the random number generators are not touched.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Any,
        scheduler: Any = None,
        *,
        first: int = 8,
        every: int = 2000,
        declared: dict[str, Any] | None = None,
    ) -> None:
        if every < LEAST_EVERY:
            raise ValueError(
                f"every = {every}: below {LEAST_EVERY}, watching takes too much time. Try "
                "every=2000."
            )
        if optimizer is None:
            raise ValueError(
                "optimizer is None, expected a torch.optim.Optimizer: its steps are what is "
                "counted and watched."
            )
        self.model, self.every, self.first = model, every, first
        self.setup = Setup(
            model=model, loss_fn=_no_loss, optimizer=optimizer, train_loader=(),
            scheduler=scheduler, train_step=_no_loss, declared=declared or {},
        )  # fmt: skip
        self.updates = 0
        self.found: dict[str, Finding] = {}
        self.checked: set[str] = set()
        self._running: Any = None
        self._late: Any = None
        self._tape: Tape | None = None
        self._started = 0.0

    def __enter__(self) -> watch:
        self._started = time.perf_counter()
        optimizers = self.setup.optimizer
        self._optimizers = list(optimizers) if isinstance(optimizers, list) else [optimizers]
        self._handle = self._optimizers[0].register_step_post_hook(self._count)
        self._open()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._close()
        self._handle.remove()

    @property
    def report(self) -> Report:
        """Findings so far."""
        findings = _ordered(list(self.found.values()))
        unseen = {"data, split, evaluation": "watch sees only the loop; use diagnose"}
        return Report(findings, sorted(self.checked), unseen, time.perf_counter() - self._started)

    def _count(self, *_: Any) -> None:
        self.updates += 1
        place = self.updates % self.every
        length = self.first if self.updates <= self.first else 4
        if self._running is not None and (place == length or self.updates == self.first):
            if torch._C._len_torch_function_stack():
                self._close()
            elif self._late is None:  # a step inside backward: torch has put the mode aside
                self._late = self.model.register_forward_pre_hook(self._close_late)
        elif self._running is None and place == 0:
            self._open()

    def _close_late(self, *_: Any) -> None:
        self._close()

    def _open(self) -> None:
        self._tape = Tape(self.model, self._optimizers, self.setup.scheduler)
        self._start = self._tape.weights()
        self._running = self._tape.running()
        self._running.__enter__()

    def _close(self) -> None:
        if self._late is not None:
            self._late.remove()
            self._late = None
        if self._running is None or self._tape is None:
            return
        self._running.__exit__(None, None, None)
        self._running, tape = None, self._tape
        self._judge(tape)
        self._tape = None

    def _judge(self, tape: Tape) -> None:
        losses = [e.loss for e in tape.of("backward")]
        loop = Loop(tape, losses, [], self._start, tape.weights(), [], unit="train")
        session = Session.of_a_loop(self.setup, loop)
        for probe in WATCHABLE:
            try:
                for finding in probe(session):
                    if finding.id not in SYMPTOMS or not self.found:
                        self.found.setdefault(finding.id, finding)
                self.checked.add(probe.__name__)
            except NotChecked:
                continue
            except Exception as error:
                if isinstance(error, torch.OutOfMemoryError):
                    raise
                continue


def _no_loss(*_: Any) -> Any:
    raise NotChecked("watch is not given a loss_fn")
