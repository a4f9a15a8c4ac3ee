"""Run the baseline and every variant with every seed, using the engine.

Source: Lecture 3, "Ablation"; ledger N23, T27.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from course.analysis.ablation.comparable import check_same
from course.analysis.ablation.files import AblationRun, Place, alone_in
from course.analysis.ablation.plan import Protocol, Settings, variants_of
from course.analysis.ablation.table import Ablation
from course.engine.errors import NonFiniteError
from course.engine.record import code_identity, data_identity, versions
from course.state import seed_everything, undisturbed

if TYPE_CHECKING:
    from course.engine.trainer import Trainer

Build = Callable[..., "tuple[Trainer, Any, Any]"]


def ablate(
    build: Build,
    baseline: Settings,
    changes: Mapping[str, Settings],
    folder: Path | str,
    *,
    seeds: Sequence[int] = (0, 1, 2),
    epochs: int,
    metric: str = "val_accuracy",
    mode: str = "max",
    at: str = "last",
    metrics: Mapping[str, Any] | None = None,
    same_train: bool = True,
    progress: bool = True,
) -> Ablation:
    """Run the baseline and every variant with every seed, and compare them.

    Args:
        build: Called as `build(seed=seed, **settings)` after all generators are seeded; returns
            `(trainer, train_loader, val_loader)`. It must not draw the split from the seed.
        baseline: Settings by name, with values that strict JSON can hold.
        changes: What each variant changes, by its name: one setting each. A variant that changes
            several must combine other variants in the table, like "both" in the lecture's.
        folder: Where the finished runs are saved, one file each. Existing ones are not run again.
        seeds: At least 2, since one run says nothing about the noise; the lecture asks for 3.
        epochs: Passes over the data, the same for every run.
        metric: The metric in the history that decides.
        mode: `"max"` if higher is better, else `"min"`.
        at: Take the metric of the `"last"` epoch, or the `"best"`, which flatters noisy runs.
        metrics: Further validation metrics, as for `Trainer.fit`.
        same_train: False if a variant is meant to change the training data ("more data"); the
            validation data must be the same in any case.
        progress: Show a progress bar.

    Raises:
        ValueError: Settings cannot be compared or recorded; nothing was run.
        NotComparableError: A run's data differ from those of earlier runs; it was not trained.

    Source: Lecture 3, "Ablation"; ledger N23, T27.
    """
    protocol = Protocol(epochs=epochs, metric=metric, mode=mode, at=at)
    variants = variants_of(baseline, changes, seeds)
    folder = Path(folder)
    planned = [(name, seed) for seed in seeds for name in variants]  # seed by seed
    done: list[AblationRun] = []
    with alone_in(folder), _bar(len(planned), progress) as bar:
        for name, seed in planned:
            bar.set_postfix_str(f"{name}, seed {seed}")
            place = Place(folder, name, variants[name], seed, protocol)
            run = place.read()
            if run is None:
                expected = done[0].data if done else None
                run = _run(build, place, metrics, expected, same_train)
                place.write(run)
            done.append(run)
            bar.update()
    return Ablation.of(done, changes=changes, same_train=same_train)


def _run(
    build: Build, place: Place, metrics: Any, expected: dict | None, same_train: bool
) -> AblationRun:
    """Train one variant with one seed, or continue if it was interrupted."""
    protocol, started = place.protocol, time.perf_counter()
    with undisturbed():
        seed_everything(place.seed)
        trainer, train_loader, val_loader = build(seed=place.seed, **place.settings)
        if trainer.seed not in (None, place.seed):
            raise ValueError(
                f"in the run with seed {place.seed}, build made a Trainer with seed "
                f"{trainer.seed}: leave it out, or pass on the seed that build receives."
            )
        data = {"train": data_identity(train_loader), "validation": data_identity(val_loader)}
        check_same(place.title, data, expected, same_train)
        trainer.seed, trainer.run_dir = place.seed, place.run_dir
        value, reason = None, ""
        try:
            trainer.fit(
                train_loader,
                val_loader,
                epochs=protocol.epochs,
                monitor=protocol.metric,
                mode=protocol.mode,
                metrics=metrics,
                progress=False,
                resume="auto",
                config={"variant": place.name, **place.settings},
            )
            value, reason = _value(trainer.history, protocol)
        except NonFiniteError as error:
            reason = str(error)
    return AblationRun(
        variant=place.name,
        settings=place.settings,
        seed=place.seed,
        protocol=vars(protocol),
        data=data,
        value=value,
        reason=reason,
        epochs=[_plain(epoch) for epoch in trainer.history],
        seconds=round(time.perf_counter() - started, 3),
        code=code_identity(),
        versions=versions(),
    )


def _value(history: Any, protocol: Protocol) -> tuple[float | None, str]:
    epoch = history[-1]
    if protocol.at == "best" and history.best_index is not None:
        epoch = history.best
    value = float(epoch[protocol.metric])
    if math.isfinite(value):
        return value, ""
    return None, f"{protocol.metric} is {value} in epoch {epoch['epoch']}."


def _plain(epoch: Mapping[str, Any]) -> dict[str, Any]:
    """An epoch with values that strict JSON can hold."""
    return {
        key: str(value) if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in epoch.items()
    }


@contextmanager
def _bar(total: int, progress: bool) -> Iterator[Any]:
    from tqdm import tqdm  # text, because a reopened notebook cannot show a widget

    with tqdm(total=total, desc="ablation", unit="run", disable=not progress) as bar:
        yield bar
