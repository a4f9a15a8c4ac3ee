"""Rungs 5 to 7: choose the learning rate, train in full, look at what is still wrong."""

from __future__ import annotations

import copy
import functools
import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from course.debug.probes.session import NotChecked, as_list, clone
from course.debug.rungs.climbing import Climb, Fall, Outcome, Scores
from course.debug.rungs.small import must_beat_the_baseline
from course.engine import History, KeepBest, NonFiniteError, Trainer

if TYPE_CHECKING:
    from course.analysis.errors import ErrorSet

TOO_LARGE, TOO_SMALL = 10.0, 1e-3
"""How far from the finder's suggestion a learning rate may lie."""
NOT_FAR_BELOW, NOT_FAR_ABOVE = 0.03, 3
"""The same without a warning: about 30 times below and 3 times above."""
NEVER_RIGHT = 5
"""Examples of a class of which one must be found."""
UNITS = {"batch": "update", "step": "update", "update": "update", "epoch": "epoch"}


def find_learning_rate(climb: Climb) -> Outcome:
    """Rung 5: the chosen learning rate lies where the finder's curve falls."""
    from course.lr_finder import lr_find

    optimizers = as_list(climb.setup.optimizer)
    if len(optimizers) != 1 or type(optimizers[0]).__name__ == "LBFGS":
        raise NotChecked("the finder needs a single optimizer that steps without a closure")
    optimizer = optimizers[0]
    with climb.from_the_start():
        curve = lr_find(
            climb.model,
            climb.setup.loss_fn,
            optimizer,
            climb.setup.train_loader,
            rule="decade",
            progress=False,
        )
    chosen = max(float(group["lr"]) for group in optimizer.param_groups)
    suggestion = curve.suggestion
    numbers: dict[str, Any] = {"chosen": chosen, "suggested": suggestion.lr}
    if suggestion.lr is None:
        raise Fall(f"the finder sees no descent: {suggestion.reason}", numbers, "curve.plot()",
                   picture=curve.plot)  # fmt: skip
    ratio = chosen / suggestion.lr
    put = f"optimizer.param_groups[0]['lr'] = {suggestion.lr:.1e}"
    if ratio > TOO_LARGE:
        raise Fall(
            f"lr = {chosen:.2g} is {ratio:.0f} times the finder's {suggestion.lr:.2g}.",
            numbers, put, cause="lr-too-large", picture=curve.plot,
        )  # fmt: skip
    if ratio < TOO_SMALL:
        raise Fall(
            f"lr = {chosen:.2g} is {1 / ratio:.0f} times smaller than the finder's "
            f"{suggestion.lr:.2g}.", numbers, put, cause="lr-too-small", picture=curve.plot,
        )  # fmt: skip
    warnings = ()
    if not NOT_FAR_BELOW <= ratio <= NOT_FAR_ABOVE:
        warnings = (f"lr = {chosen:.2g} is far from the suggestion; compare one run of each.",)
    return Outcome(
        f"lr = {chosen:.2g} was chosen; the finder suggests {suggestion.lr:.2g} "
        f"({suggestion.rule}).",
        numbers,
        warnings,
        curve.plot,
    )


def full_run(climb: Climb) -> Outcome:
    """Rung 6: all the data, with regularisation; the best epoch is kept."""
    with climb.from_the_start():
        try:
            history, weights = (_own_loop if climb.setup.train_step else _engine)(climb)
        except NonFiniteError as error:
            raise Fall(str(error), fix="report.diagnosis") from error
        if weights is None:
            raise Fall(
                "no epoch ended with a finite validation loss.",
                {"validation loss": history.column("val_loss")},
                "optimizer.param_groups[0]['lr'] /= 10",
            )
        climb.model.load_state_dict(weights)
        climb.trained = copy.deepcopy(climb.model).eval()
        scores = climb.score(*climb.val_rows)
    numbers = {
        "epochs": len(history.epochs),
        "best epoch": (history.best_index or 0) + 1,
        "training loss": history.best["train_loss"],
        "validation loss": history.best["val_loss"],
        scores.name: scores.mean,
    }
    picture = functools.partial(_curves, history)
    when = f"after {len(history.epochs)} epochs"
    must_beat_the_baseline(climb, scores, numbers, when, picture)
    return Outcome(
        f"{scores.name} {scores.mean:.4g} at epoch {numbers['best epoch']} of "
        f"{len(history.epochs)}; the baseline has {climb.baseline.mean:.3g}."
        if climb.baseline
        else f"{scores.name} {scores.mean:.4g}.",
        numbers,
        tuple(_looks(climb, history)),
        picture,
    )


def _curves(history: History) -> object:
    from course.plots.curves import plot_history

    return plot_history(history.epochs)


def _engine(climb: Climb) -> tuple[History, dict[str, Tensor] | None]:
    """Train with the course's engine."""
    said = climb.declared
    keep = KeepBest()
    trainer = Trainer(
        climb.model,
        climb.setup.loss_fn,
        as_list(climb.setup.optimizer)[0],
        scheduler=climb.setup.scheduler,
        schedule_per=UNITS.get(str(said.get("scheduler_unit", "epoch")), "epoch"),
        accum_steps=int(said.get("accumulate", 1)),
        max_norm=said.get("max_grad_norm"),
        device=next((p.device for p in climb.model.parameters()), "cpu"),
        callbacks=[keep],
    )
    history = trainer.fit(
        climb.setup.train_loader, climb.setup.val_loader, epochs=climb.epochs, progress=False
    )
    return history, keep.weights


def _own_loop(climb: Climb) -> tuple[History, dict[str, Tensor] | None]:
    """Train with the user's own step; the scheduler too, unless the step moves it."""
    scheduler, weights = climb.setup.scheduler, None
    history = History("val_loss")
    for epoch in range(climb.epochs):
        before = getattr(scheduler, "last_epoch", None)
        climb.model.train()
        total = rows = 0.0
        for batch in climb.setup.train_loader:
            size = len(batch[0])
            total += climb.step(clone(batch)) * size
            rows += size
        if not math.isfinite(total):
            raise NonFiniteError(f"the training loss of epoch {epoch + 1} is {total}.")
        val_loss = _val_loss(climb)
        history.add({"epoch": epoch + 1, "train_loss": total / rows, "val_loss": val_loss})
        if history.best_is_last:
            weights = {k: v.detach().clone() for k, v in climb.model.state_dict().items()}
        if scheduler is not None and scheduler.last_epoch == before:
            plateau = isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau)
            scheduler.step(val_loss) if plateau else scheduler.step()
    return history, weights


def _val_loss(climb: Climb) -> float:
    from course.engine import evaluate

    return evaluate(climb.model, climb.setup.val_loader, climb.setup.loss_fn)["loss"]


def _looks(climb: Climb, history: History) -> list[str]:
    """What is worth a look although the rung is passed."""
    from course.analysis.curves import read_curves

    verdict = read_curves(history)
    said = []
    if verdict.verdict not in ("sweet spot", "undecided"):
        said.append(f"curves: {verdict.verdict}. {verdict.reason}")
    if not _holds_back(climb):
        said.append("nothing limits overfitting: no weight decay, dropout or augmentation seen")
    return said


def _holds_back(climb: Climb) -> bool:
    decay = any(
        group.get("weight_decay")
        for o in as_list(climb.setup.optimizer)
        for group in o.param_groups
    )
    dropout = any(
        isinstance(m, nn.modules.dropout._DropoutNd) and m.p > 0 for m in climb.model.modules()
    )
    augmented = hasattr(getattr(climb.setup.train_loader, "dataset", None), "augment")
    return decay or dropout or augmented


def analyse_errors(climb: Climb) -> Outcome:
    """Rung 7: which examples are still wrong, and what the wrong ones have in common."""
    if climb.trained is None:
        raise NotChecked("rung 6 left no trained model")
    inputs, targets = climb.val_rows
    with climb.from_the_start():
        climb.model.load_state_dict(climb.trained.state_dict())
        scores = climb.score(inputs, targets)
        outputs = _outputs(climb, inputs)
    if climb.task == "regression":
        return _largest_residuals(scores, targets)
    if climb.task != "classification" or targets.dim() != 1:
        share = 1 - scores.mean
        return Outcome(f"{share:.1%} of the answers are wrong.", {"wrong": share})
    return _confusions(climb.answers(outputs, targets), inputs, targets, outputs)


def _outputs(climb: Climb, inputs: Tensor) -> Tensor:
    climb.model.eval()
    with torch.no_grad():
        parts = [climb.model(climb.session.place(part)).cpu() for part in inputs.split(256)]
    return torch.cat(parts)


def _confusions(answers: Tensor, inputs: Tensor, targets: Tensor, outputs: Tensor) -> Outcome:
    """The pairs mixed up most, the class found least often, the most confident mistakes."""
    from sklearn.metrics import recall_score

    counted = targets >= 0
    rows = counted.nonzero().flatten()
    answers, inputs = answers[counted], inputs[counted]
    targets, outputs = targets[counted], outputs[counted]
    labels = sorted(targets.unique().tolist())
    recall = recall_score(targets, answers, labels=labels, average=None, zero_division=0)
    found = dict(zip(labels, recall.tolist(), strict=True))
    count = {label: int((targets == label).sum()) for label in labels}
    never = [label for label in labels if found[label] == 0 and count[label] >= NEVER_RIGHT]
    worst = min(labels, key=lambda label: found[label])
    wrong = (answers != targets).nonzero().flatten()
    numbers: dict[str, Any] = {
        "mistakes": len(wrong), "examples": len(targets), "class found least often": worst,
        "its recall": found[worst],
    }  # fmt: skip
    if never:
        raise Fall(
            f"class {', '.join(map(str, never))} is never found: the mean hides it.",
            numbers,
            "nn.CrossEntropyLoss(weight=1 / class_counts)  # or a weighted sampler",
        )
    if not len(wrong):
        return Outcome(f"all {len(targets)} validation examples are right.", numbers)
    mixed = _mixed_up(answers, targets, labels)[:3]
    errors = _mistakes(answers, inputs, targets, outputs, rows)
    numbers["most mixed up"] = [f"{text}: {number}" for number, text in mixed]
    numbers["most confident mistakes (row)"] = [mistake.index for mistake in errors.mistakes[:5]]
    most = ", ".join(f"{text} ({number})" for number, text in mixed)
    return Outcome(
        f"{len(wrong)} of {len(targets)} are wrong; most often {most}. Look at the most confident "
        "first.",
        numbers,
        picture=errors.plot,
    )


def _mixed_up(answers: Tensor, targets: Tensor, labels: list[int]) -> list[tuple[int, str]]:
    """How often each class is read as each other one, the most frequent first."""
    from sklearn.metrics import confusion_matrix

    table = confusion_matrix(targets, answers, labels=labels)
    mixed = [
        (int(table[i, j]), f"{a} read as {b}")
        for i, a in enumerate(labels) for j, b in enumerate(labels) if i != j and table[i, j]
    ]  # fmt: skip
    return sorted(mixed, reverse=True)


def _mistakes(
    answers: Tensor, inputs: Tensor, targets: Tensor, outputs: Tensor, rows: Tensor
) -> ErrorSet:
    """The examples that this model gets wrong, the most confident mistakes first.

    Args:
        answers: Predicted classes [N].
        inputs: [N, ...].
        targets: Classes [N].
        outputs: Logits [N, C].
        rows: Position of each example among the validation rows [N].
    """
    from course.analysis.errors import ErrorSet, Mistake

    probabilities = outputs.softmax(dim=1)
    sure = probabilities.max(dim=1).values
    wrong = (answers != targets).nonzero().flatten()
    wrong = wrong[sure[wrong].argsort(descending=True, stable=True)]
    mistakes = [
        Mistake(int(rows[i]), inputs[i].clone(), int(targets[i]), int(answers[i]),
                float(sure[i]), float(probabilities[i, targets[i]]))
        for i in wrong.tolist()
    ]  # fmt: skip
    names = tuple(map(str, range(outputs.shape[1])))
    return ErrorSet(mistakes, len(mistakes), len(targets), names)


def _largest_residuals(scores: Scores, targets: Tensor) -> Outcome:
    order = scores.each.argsort(descending=True)
    tenth = max(1, len(order) // 10)
    share = float(scores.each[order[:tenth]].sum() / scores.each.sum().clamp(min=1e-30))
    return Outcome(
        f"the worst tenth of the examples holds {share:.0%} of the squared error.",
        {"share of the worst tenth": share, "largest residuals (row)": order[:5].tolist()},
    )
