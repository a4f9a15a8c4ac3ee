"""Probes on what is scored: the model that is trained, by the loss it claims to be."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from course.debug.probes.modes import close
from course.debug.probes.report import Finding
from course.debug.probes.session import STEPS as LONGEST
from course.debug.probes.session import NotChecked, Session, as_metrics, clone, pair

STEPS = 6
ROUNDS = 2


def another_model(session: Session) -> Iterator[Finding]:
    """What evaluate() scores follows training, directly or as an average.

    The weights are moved far away, a few steps are made, and the model is scored again. Only done
    if evaluate() does not call the model itself; a copy that follows it moves too.
    """
    seen = session.evaluation
    if seen.error is not None or seen.tape.called_parts:
        raise NotChecked("evaluate() raises, or calls the model itself or a part of it")
    if session.setup.train_step is None and session.setup.train is None:
        raise NotChecked("no train_step or train")
    told = {k: v for k, v in seen.first.items() if math.isfinite(v) and _counts(k)}
    if not told or any(not close(v, seen.second.get(k, math.nan)) for k, v in told.items()):
        raise NotChecked("no metric that stays the same from call to call")
    for number in range(ROUNDS):
        after = _score_far_away(session, number)
        if any(not close(v, after.get(k, math.nan)) for k, v in told.items()):
            return
    if _keeps_the_best(session, told):
        return
    name = next(iter(told))
    yield Finding(
        "evaluates-another-model", "error",
        f"evaluate() never calls the model that is trained, and {name} = {told[name]:.4g} stays "
        "exactly the same whatever training does: it scores a copy that is never updated.",
        {"metrics_unchanged": len(told), name: told[name], "steps": STEPS},
        "ema.update_parameters(model)  # after every optimizer.step(); then score ema\n"
        "# AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.999))",
    )  # fmt: skip


def _keeps_the_best(session: Session, told: dict[str, float]) -> bool:
    """An epoch of train() moves the score: a copy of the best is scored, and replaced by better."""
    if session.setup.train is None or session.setup.train_step is None:
        return False
    with session.observe():
        try:
            session.setup.train(min(len(session.epoch.batches), LONGEST) + 1)
            after = as_metrics(session.setup.evaluate())
        except Exception as error:
            raise NotChecked(f"training raised {type(error).__name__}") from error
    return any(not close(v, after.get(k, math.nan)) for k, v in told.items())


def _counts(name: str) -> bool:
    return not any(word in name.lower() for word in ("time", "sec", "epoch", "step", "lr"))


def _score_far_away(session: Session, seed: int) -> dict[str, float]:
    """Metrics after the weights were thrown away and a few steps were made from there."""
    own = torch.Generator().manual_seed(seed)
    with session.observe():
        with torch.no_grad():
            for p in session.model.parameters():
                if p.requires_grad:
                    noise = torch.randn(p.shape, generator=own).to(p.device, p.dtype)
                    p.add_(noise, alpha=1 + float(p.std(correction=0)))
        session.model.train()
        try:
            if session.setup.train_step is not None:
                for i in range(STEPS):
                    batches = session.epoch.batches
                    session.setup.train_step(clone(batches[i % len(batches)]))
            else:
                session.setup.train(STEPS)
            return as_metrics(session.setup.evaluate())
        except Exception as error:
            raise NotChecked(f"training raised {type(error).__name__}") from error


def smoothed_loss(session: Session) -> Iterator[Finding]:
    """The validation loss is reported without the label smoothing used in training."""
    share = float(getattr(session.setup.loss_fn, "label_smoothing", 0.0) or 0.0)
    if not share:
        raise NotChecked("loss_fn has no label_smoothing")
    if not session.val_epoch.whole:
        raise NotChecked("the val_loader cannot be read whole")
    seen = session.evaluation
    told = {k: v for k, v in seen.first.items() if "loss" in k.lower()}
    if not told or seen.error is not None:
        raise NotChecked("evaluate() returns no loss")
    smooth = plain = count = 0.0
    for batch in session.val_epoch.batches:
        inputs, targets = pair(batch)
        outputs, targets = session.predict(inputs), session.place(targets)
        smooth += float(session.loss(outputs, targets)) * len(targets)
        plain += float(torch.nn.functional.cross_entropy(outputs, targets)) * len(targets)
        count += len(targets)
    for name, value in told.items():
        if close(value, smooth / count, 1e-3) and not close(value, plain / count, 1e-2):
            yield Finding(
                "label-smoothing-in-eval", "note",
                f"{name} = {value:.4g} contains label smoothing of {share:g}: it cannot come near "
                f"0, and is not the plain cross-entropy ({plain / count:.4g}) that can be compared "
                "with other runs.",
                {name: value, "cross_entropy": plain / count, "label_smoothing": share},
                "val_loss = F.cross_entropy(logits, targets)  # smoothing only in training",
            )  # fmt: skip
