"""Relation on the best weights: worse-scoring weights do not replace them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from course.debug.probes.report import SPENT, Finding
from course.debug.probes.session import NotChecked, Session, same
from course.debug.probes.tape import Tape
from course.debug.relations.kept import _ended, _loaded_last
from course.state.snapshot import reached

EPOCHS = 3
"""Times that the loop scores: the one in the middle is neither the first weights nor the last."""
MOST_STEPS = 120
"""Steps in so many epochs, up to which they are made twice."""
BUSY = 0.6
"""Share of the budget after which an experiment of so many steps is not begun."""


def by_score(session: Session) -> Iterator[Finding]:
    """Weights that are disturbed while train() scores them are not kept as its best.

    The loop is run twice and scores three times; in the second run the weights are disturbed at the
    second scoring, and restored before the next step. A loop that keeps just these prefers the
    worse.
    """
    setup, number = session.setup, len(session.epoch.batches)
    if setup.train is None:
        raise NotChecked("no train(n_steps)")
    if not session.epoch.whole or EPOCHS * number > MOST_STEPS:
        raise NotChecked("an epoch is too long")
    ended = _ended(session)
    if _loaded_last(ended.tape) is None and not _states(session):
        raise NotChecked("train() loads no weights at its end, and no kept weights can be found")
    if session.is_spent(BUSY):
        raise NotChecked(SPENT)
    plain = _run(session, EPOCHS * number, throw=False)
    if len(plain.moments) < EPOCHS or plain.moment_kept() in (None, 1):
        raise NotChecked(
            "train() keeps none of the weights that it scores, or already the second ones"
        )
    thrown = _run(session, EPOCHS * number, throw=True)
    if thrown.moment_kept() == 1:
        yield Finding(
            "keeps-worse-weights", "error",
            "If the weights are disturbed only while train() scores them, it keeps these instead "
            "of others: it takes a worse score for a better one.",
            {"times_scored": len(thrown.moments), "kept": 2},
            'if score["loss"] < best:  # mode="min" for a loss, "max" for an accuracy\n'
            "    best, kept = score[\"loss\"], copy.deepcopy(model.state_dict())",
        )  # fmt: skip


class _Scored(Tape):
    """A tape that keeps the weights of each scoring, and may throw off those of the second."""

    def __init__(self, session: Session, throw: bool) -> None:
        super().__init__(session.model, session.optimizers, session.setup.scheduler)
        self.throw, self.moments, self.kept = throw, [], []
        self._scoring, self._put_back = False, None

    def moment_kept(self) -> int | None:
        """The one scoring whose weights the run ended with or keeps."""
        found = {n for n, m in enumerate(self.moments) for k in self.kept if all(map(same, k, m))}
        return found.pop() if len(found) == 1 else None

    def _before_forward(self, module: nn.Module, args: Any) -> None:
        if module is self.model:
            if torch.is_grad_enabled():
                self._go_on()
            elif not self._scoring and self.of("stepped"):
                self._scoring = True
                if self.throw and len(self.moments) == 1:
                    self._put_back = _copy(self.model)
                    _throw_off(self.model)
                self.moments.append(_copy(self.model))
        super()._before_forward(module, args)

    def _before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._go_on()
        super()._before_step(optimizer, args, kwargs)

    def _go_on(self) -> None:
        self._scoring = False
        if self._put_back is not None:
            with torch.no_grad():
                for p, old in zip(self.model.parameters(), self._put_back, strict=True):
                    p.copy_(old)
            self._put_back = None


def _run(session: Session, steps: int, *, throw: bool) -> _Scored:
    """Made from the snapshot.

    Raises:
        NotChecked: train() raises.
    """
    tape, model = _Scored(session, throw), session.model
    names = [name for name, _ in model.named_parameters()]
    with session.observe():
        torch.manual_seed(0)
        try:
            with tape.running():
                session.setup.train(steps)
        except Exception as error:
            raise NotChecked(f"train() raises {type(error).__name__} then") from error
        loaded = [e for e in tape.events if e.kind in ("stepped", "load")]
        if loaded and loaded[-1].kind == "load":
            tape.kept.append(_copy(model))
        else:
            tape.kept += [[t[n].detach().clone() for n in names] for t in _states(session)]
    return tape


def _states(session: Session) -> list[Mapping]:
    """Weights of the model by name that somebody keeps, other than its own."""
    own = session.model.state_dict(keep_vars=True)
    names = [name for name, _ in session.model.named_parameters()]
    return [
        thing for thing in reached(vars(session.setup))
        if isinstance(thing, Mapping) and names
        and all(isinstance(thing.get(n), Tensor) and thing[n] is not own[n] for n in names)
    ]  # fmt: skip


def _copy(model: nn.Module) -> list[Tensor]:
    return [p.detach().clone() for p in model.parameters()]


def _throw_off(model: nn.Module) -> None:
    """Weights that score badly, whatever is scored, and the same ones each time."""
    own = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in model.parameters():
            noise = torch.randn(p.shape, generator=own).to(p.device, p.dtype)
            p.add_(noise, alpha=1 + float(p.std(correction=0)))
