"""Relation on a resumed run: it still knows how good its best was."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from course.debug.probes.modes import close
from course.debug.probes.report import Finding
from course.debug.probes.session import STEPS, NotChecked, Session, as_metrics, clone, same
from course.debug.probes.tape import Tape
from course.debug.probes.traces import called, wants


def best(session: Session) -> Iterator[Finding]:
    """After load(), weights that score worse do not replace the best.

    Two runs train an epoch, save, have their weights disturbed and train another epoch at a rate of
    0; one of them loads in between. Both end with the same weights, and evaluate() scores what they
    keep as the best.
    """
    setup, number = session.setup, len(session.epoch.batches)
    if any(own is None for own in (setup.save, setup.load, setup.train, setup.evaluate)):
        raise NotChecked("no save, load, train and evaluate")
    if not session.epoch.whole or number >= STEPS:
        raise NotChecked("an epoch is too long")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "checkpoint.pt"
        (weights, scores), (_, again) = (_run(session, file, False) for _ in range(2))
        same_weights, loaded = _run(session, file, True)
    if not all(map(same, weights, same_weights)):
        raise NotChecked("the weights differ after loading, which another probe reports")
    for name, value in scores.items():
        if close(value, again.get(name, math.nan)) and not close(value, loaded.get(name, math.nan)):
            yield Finding(
                "checkpoint-incomplete", "warning",
                f"A resumed run trains to the same weights, but evaluate() gives {name} = "
                f"{loaded.get(name, math.nan):.4g} instead of {value:.4g}: what is kept as the "
                "best was replaced by worse weights, because load() does not restore how good it "
                "was.",
                {"uninterrupted": value, "loaded": loaded.get(name, math.nan)},
                'checkpoint["best_loss"] = best_loss  # next to the best weights',
            )  # fmt: skip
            return


def _run(session: Session, file: Path, load: bool) -> tuple[list[Tensor], dict[str, float]]:
    """Weights and scores at the end.

    Raises:
        NotChecked: train() scores nothing while it runs, or something raises.
    """
    setup, epoch = session.setup, len(session.epoch.batches) + 1
    tape = Tape(session.model, session.optimizers, setup.scheduler)
    with session.observe():
        try:
            with tape.running():
                torch.manual_seed(0)
                setup.train(epoch)
            if not any(not e.grad for e in tape.of("forward")):
                raise NotChecked("train() scores nothing while it runs")
            saved = called(setup.save, file, "save")
            if load:
                given = file if saved is None or wants(setup.load) == "path" else clone(saved)
                called(setup.load, given, "load")
            torch.manual_seed(1)
            _throw_off(session)
            setup.train(epoch)
            scores = as_metrics(setup.evaluate())
        except NotChecked:
            raise
        except Exception as error:
            raise NotChecked(f"training and loading raise {type(error).__name__}") from error
        return [p.detach().clone() for p in session.model.parameters()], scores


def _throw_off(session: Session) -> None:
    """Weights that score badly, the same each time, and stay where they are."""
    own = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in session.model.parameters():
            if p.requires_grad:
                noise = torch.randn(p.shape, generator=own).to(p.device, p.dtype)
                p.add_(noise, alpha=1 + float(p.std(correction=0)))
    for group in (g for o in session.optimizers for g in o.param_groups):
        group["lr"] = 0.0 * group["lr"]  # a tensor stays one
