"""Ablation: change one thing at a time, over several seeds, and say what the change is worth.

    changes = one_at_a_time(baseline, lr=[0.1], hidden=[256])
    study = ablate(build, baseline, changes, "ablations/first", seeds=(0, 1, 2), epochs=10)
    print(study)                      # the table, with intervals and verdicts

The split stays fixed: every run's record holds a hash of its data, and runs on different data are
not compared. Seeds are paired: a change is judged by how far it moves the metric *with the same
seed*, which takes out the luck that both runs share. Every finished run is a file of its own, so
an ablation that was killed goes on where it was.

Source: Lecture 3, "Ablation"; ledger N23, T27.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from course.engine.errors import NonFiniteError
from course.engine.record import code_identity, data_identity, read_json, versions
from course.engine.seeding import seed_everything, undisturbed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from course.engine.trainer import Trainer

BASELINE = "baseline"
FORMAT = 1
LEVEL = 0.95
"""Confidence of all intervals of a table together."""

Settings = Mapping[str, Any]
Build = Callable[..., "tuple[Trainer, Any, Any]"]


class NotComparableError(ValueError):
    """The runs differ in more than what the ablation changes; nothing is ranked."""


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """What all runs of an ablation share."""

    epochs: int
    """Passes over the data, the same for every run."""
    metric: str = "val_accuracy"
    """The number of the history that decides."""
    mode: str = "max"
    """`max` where higher is better, `min` where lower is."""
    at: str = "last"
    """The epoch whose number counts: `last`, or `best`, which flatters noisy runs."""

    def __post_init__(self) -> None:
        for name, allowed in (("mode", ("max", "min")), ("at", ("last", "best"))):
            if getattr(self, name) not in allowed:
                raise ValueError(
                    f"{name} = {getattr(self, name)!r}: expected {' or '.join(map(repr, allowed))}."
                )
        if self.epochs < 1:
            raise ValueError(f"epochs = {self.epochs}: a run needs at least 1.")


@dataclass(frozen=True, kw_only=True)
class AblationRun:
    """One run, as its file holds it."""

    variant: str
    settings: dict[str, Any]
    seed: int
    protocol: dict[str, Any]
    data: dict[str, Any]
    """Number of examples and hash, of training and of validation."""
    value: float | None
    """The metric; None where the run diverged."""
    reason: str = ""
    """Why there is no value."""
    epochs: list[dict[str, Any]] = field(default_factory=list, repr=False)
    """The history, for `read_curves`."""
    seconds: float = 0.0
    code: dict[str, Any] = field(default_factory=dict, repr=False)
    versions: dict[str, str] = field(default_factory=dict, repr=False)
    format: int = FORMAT


def one_at_a_time(baseline: Settings, **values: Sequence[Any]) -> dict[str, dict[str, Any]]:
    """A variant for every other value of every setting, each with one change.

    >>> one_at_a_time({"lr": 0.1, "hidden": 64}, lr=[0.1, 0.3], hidden=[256])
    {'lr = 0.3': {'lr': 0.3}, 'hidden = 256': {'hidden': 256}}
    """
    return {
        f"{name} = {value}": {name: value}
        for name, others in values.items()
        for value in others
        if name not in baseline or value != baseline[name]
    }


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
        build: Called as `build(seed=seed, **settings)` after all generators were seeded; makes
            `(trainer, train_loader, val_loader)`. It must not draw the split from the seed.
        baseline: Settings by name, as strict JSON holds them.
        changes: What each variant changes, by its name. One setting each; a variant that changes
            several must be put together from others in the table, as "both" in the lecture's.
        folder: Where the finished runs lie, one file each. Those that are there are not run again.
        seeds: At least 2, since one run says nothing about noise; the lecture asks for 3.
        epochs: Passes over the data, the same for every run.
        metric: The number of the history that decides.
        mode: `"max"` where higher is better, else `"min"`.
        at: `"last"` epoch's number, or the `"best"`, which flatters noisy runs.
        metrics: More numbers for validation, as `Trainer.fit` takes them.
        same_train: False where a variant is meant to change the training data ("more data"); the
            validation data must be the same in any case.
        progress: Show a bar.

    Raises:
        ValueError: Settings that cannot be compared or recorded; nothing was run.
        NotComparableError: A run's data differ from those before it; it was not trained.

    Source: Lecture 3, "Ablation"; ledger N23, T27.
    """
    protocol = Protocol(epochs=epochs, metric=metric, mode=mode, at=at)
    variants = _variants(baseline, changes, seeds)
    folder = Path(folder)
    planned = [(name, seed) for seed in seeds for name in variants]  # a whole seed, then the next
    done: list[AblationRun] = []
    with _alone_in(folder), _bar(len(planned), progress) as bar:
        for name, seed in planned:
            bar.set_postfix_str(f"{name}, seed {seed}")
            place = _Place(folder, name, variants[name], seed, protocol)
            run = place.read()
            if run is None:
                expected = done[0].data if done else None
                run = _run(build, place, metrics, expected, same_train)
                place.write(run)
            done.append(run)
            bar.update()
    return Ablation.of(done, changes=changes, same_train=same_train)


def _variants(
    baseline: Settings, changes: Mapping[str, Settings], seeds: Sequence[int]
) -> dict[str, dict[str, Any]]:
    """The settings of every variant, checked."""
    if len(set(seeds)) < 2 or len(set(seeds)) != len(seeds):
        raise ValueError(
            f"seeds = {tuple(seeds)}: at least 2 different ones are needed, since one run cannot "
            "tell a gain from luck. Take 3 or more for small gains."
        )
    if not changes or BASELINE in changes:
        raise ValueError(
            f"changes names {', '.join(changes) or 'nothing'}: expected at least one variant, none "
            f"of them called {BASELINE!r}, as {{'bigger': {{'hidden': 256}}}}."
        )
    for name, change in changes.items():
        if unknown := [key for key in change if key not in baseline]:
            raise ValueError(
                f"{name!r} changes {', '.join(unknown)}, which the baseline does not have: it has "
                f"{', '.join(baseline)}. Give the baseline its value too."
            )
        if all(baseline[key] == value for key, value in change.items()):
            raise ValueError(f"{name!r} changes nothing: it has the baseline's settings.")
        if len(change) > 1 and not _parts(name, changes):
            raise ValueError(
                f"{name!r} changes {len(change)} settings ({', '.join(change)}): its gain would "
                "belong to none of them alone. Add a variant for each, and it is their combination."
            )
    variants = {BASELINE: dict(baseline)} | {
        name: {**baseline, **change} for name, change in changes.items()
    }
    try:
        json.dumps(variants, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"settings must be plain numbers, strings, lists ({error}). Name the thing in the "
            "settings, as optimizer='AdamW', and make it inside build."
        ) from None
    return variants


def _parts(name: str, changes: Mapping[str, Settings]) -> list[str]:
    """The single changes of which a combined variant is made; empty where one is missing."""
    single = {
        (key, json.dumps(value)): other
        for other, change in changes.items()
        if other != name and len(change) == 1
        for key, value in change.items()
    }
    found = [single.get((key, json.dumps(value))) for key, value in changes[name].items()]
    return [] if None in found or len(found) < 2 else found


def _run(
    build: Build, place: _Place, metrics: Any, expected: dict | None, same_train: bool
) -> AblationRun:
    """Train one variant with one seed, or what is left of it."""
    protocol, started = place.protocol, time.perf_counter()
    with undisturbed():
        seed_everything(place.seed)
        trainer, train_loader, val_loader = build(seed=place.seed, **place.settings)
        if trainer.seed not in (None, place.seed):
            raise ValueError(
                f"build made a Trainer with seed {trainer.seed} in the run of seed {place.seed}: "
                "leave it out, or pass on the seed that build gets."
            )
        data = {"train": _identity(train_loader), "validation": _identity(val_loader)}
        _check_same(place.title, data, expected, same_train)
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


def _identity(loader: Any) -> dict[str, Any] | None:
    """The engine's hash of the examples, and of which of them a sampler with `indices` takes."""
    identity = data_identity(loader)
    indices = getattr(getattr(loader, "sampler", None), "indices", None)
    if identity and identity["hash"] and indices is not None:
        taken = f"{identity['hash']}{[int(index) for index in indices]}"
        identity |= {
            "num_examples": len(indices),
            "hash": hashlib.sha256(taken.encode()).hexdigest()[:16],
        }
    return identity


def _check_same(
    title: str, data: Mapping[str, Any], expected: Mapping[str, Any] | None, same_train: bool
) -> None:
    for part, identity in data.items():
        if identity is None or identity["hash"] is None:
            raise NotComparableError(
                f"{title}: nothing is known of its {part} data, so nobody can say that all runs "
                "had the same. Hand in a val_loader, and give a data set of your own an attribute "
                "`identity`, a string that changes when its examples do."
            )
        if expected is None or (part == "train" and not same_train):
            continue
        if identity != expected[part]:
            raise NotComparableError(
                f"{title}: its {part} data are {_named(identity)}, those of the runs before it "
                f"{_named(expected[part])}. A difference between the two would be one of data. "
                "Draw the split once, with a seed of its own"
                + (
                    ", or say same_train=False if the change is the data."
                    if part == "train"
                    else "."
                )
            )


def _named(identity: Mapping[str, Any]) -> str:
    return f"{identity['hash']} ({identity['num_examples']} examples)"


class _Place:
    """Where one run lies: its file, and the engine's run directory while it is under way."""

    def __init__(
        self, folder: Path, name: str, settings: dict[str, Any], seed: int, protocol: Protocol
    ) -> None:
        self.name, self.settings, self.seed, self.protocol = name, settings, seed, protocol
        what = json.dumps([name, settings, seed, vars(protocol)], sort_keys=True)
        slug = re.sub(r"\W+", "-", name.lower()).strip("-")[:40] or "variant"
        key = f"{slug}-seed{seed}-{hashlib.sha256(what.encode()).hexdigest()[:8]}"
        self.title = f"{name}, seed {seed}"
        self.file, self.run_dir = folder / f"{key}.json", folder / "runs" / key

    def read(self) -> AblationRun | None:
        """The finished run; None where there is none yet."""
        return read_one(self.file) if self.file.is_file() else None

    def write(self, run: AblationRun) -> None:
        """Write the run's file, whole or not at all."""
        partial = self.file.with_name(self.file.name + ".partial")
        with open(partial, "w", encoding="utf-8") as file:
            json.dump(vars(run), file, indent=1, allow_nan=False)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, self.file)


def read_one(file: Path) -> AblationRun:
    """One finished run from its file.

    Raises:
        ValueError: It is no such file, or one of a newer version.
    """
    content = read_json(file)
    if content.get("format") != FORMAT or not set(content) <= set(AblationRun.__dataclass_fields__):
        raise ValueError(
            f"{file}: is no ablation run of format {FORMAT}. Move it out of the folder and run "
            "the ablation again; only this run is repeated."
        )
    return AblationRun(**content)


def read_ablation(folder: Path | str, **options: Any) -> Ablation:
    """The table of all finished runs in a folder, as far as they have come.

    Args:
        folder: As given to `ablate`.
        options: As `Ablation.of` takes them.

    Raises:
        NotComparableError: As `Ablation.of`; also for a folder without the baseline.
    """
    files = sorted(Path(folder).glob("*.json"), key=lambda file: (file.stat().st_mtime_ns, file))
    return Ablation.of([read_one(file) for file in files], **options)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One variant against the baseline."""

    name: str
    change: str
    """What differs from the baseline's settings."""
    values: dict[int, float | None]
    """The metric by seed; None where the run diverged."""
    mean: float | None
    differences: dict[int, float]
    """By seed, variant minus baseline."""
    difference: float | None = None
    """Their mean."""
    interval: tuple[float, float] | None = None
    """Holds for all rows together with the table's confidence."""
    interval_alone: tuple[float, float] | None = None
    """The same if this were the only variant."""
    verdict: str = "baseline"
    """`likely useful`, `within noise`, `harmful` or `undecided`."""
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Ablation:
    """The result table: prints, renders in a notebook, goes to JSON, draws itself."""

    rows: list[Row]
    """The baseline, then every variant in the order given."""
    metric: str
    mode: str
    notes: list[str]
    """What to keep in mind while reading the verdicts."""
    runs: list[AblationRun] = field(repr=False)

    @classmethod
    def of(
        cls,
        runs: Sequence[AblationRun],
        *,
        changes: Mapping[str, Settings] | None = None,
        same_train: bool = True,
    ) -> Ablation:
        """Compare finished runs.

        Args:
            runs: Of the baseline and of the variants, with the same seeds.
            changes: As given to `ablate`; told from the settings where left out.
            same_train: False where a variant is meant to change the training data.

        Raises:
            NotComparableError: They differ in data, split or protocol, or the baseline is missing.
        """
        _check_comparable(runs, same_train)
        by_name: dict[str, list[AblationRun]] = {}
        for run in runs:
            by_name.setdefault(run.variant, []).append(run)
        base = by_name.pop(BASELINE)
        changes = changes or {
            name: {k: v for k, v in of[0].settings.items() if base[0].settings.get(k) != v}
            for name, of in by_name.items()
        }
        mode = base[0].protocol["mode"]
        reference = {run.seed: run.value for run in sorted(base, key=lambda run: run.seed)}
        rows = [Row(name=BASELINE, change="", values=reference, mean=_mean(reference),
                    differences={})]  # fmt: skip
        rows += [
            _row(name, changes[name], of, reference, mode, len(by_name))
            for name, of in by_name.items()
        ]
        return cls(
            rows=rows,
            metric=base[0].protocol["metric"],
            mode=mode,
            notes=list(_notes(runs, rows, changes)),
            runs=list(runs),
        )

    def __getitem__(self, name: str) -> Row:
        """The row of one variant."""
        found = next((row for row in self.rows if row.name == name), None)
        if found is None:
            raise KeyError(f"no variant {name!r}; there are {', '.join(r.name for r in self.rows)}")
        return found

    @property
    def ranked(self) -> list[Row]:
        """The variants that have a difference, the best first."""
        sign = 1 if self.mode == "min" else -1
        measured = [row for row in self.rows if row.difference is not None]
        return sorted(measured, key=lambda row: sign * row.difference)

    def to_json(self) -> dict[str, Any]:
        """Plain numbers, strings and lists."""
        return {
            "metric": self.metric,
            "mode": self.mode,
            "rows": [vars(row) for row in self.rows],
            "notes": self.notes,
        }

    def plot(self) -> Figure:
        """Every variant's difference with its interval, and a dot a seed."""
        from course.plots.ablation import plot_ablation

        return plot_ablation(self)

    def _table(self) -> tuple[list[str], list[list[str]]]:
        heads = ["variant", "change", f"mean {self.metric}", "difference",
                 f"{LEVEL:.0%} interval", "seeds", "verdict"]  # fmt: skip
        return heads, [_cells(row) for row in self.rows]

    def __str__(self) -> str:
        heads, rows = self._table()
        widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
        lines = [
            "  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip()
            for r in [heads, *rows]
        ]
        lines += [f"{row.name}: {row.note}" for row in self.rows if row.note]
        return "\n".join([*lines, *self.notes])

    def _repr_html_(self) -> str:
        heads, rows = self._table()
        head = "".join(f"<th>{escape(cell)}</th>" for cell in heads)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
        )
        said = [f"{row.name}: {row.note}" for row in self.rows if row.note] + self.notes
        notes = "".join(f"<li>{escape(note)}</li>" for note in said)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><ul>{notes}</ul>"


def _check_comparable(runs: Sequence[AblationRun], same_train: bool) -> None:
    base = next((run for run in runs if run.variant == BASELINE), None)
    if base is None:
        raise NotComparableError(
            f"{len(runs)} runs, and none of them the baseline: there is nothing to compare with."
        )
    seen: dict[tuple[str, int], AblationRun] = {}
    for run in runs:
        title = f"{run.variant}, seed {run.seed}"
        if run.protocol != base.protocol:
            raise NotComparableError(
                f"{title}: was run by {run.protocol}, the baseline by {base.protocol}. Keep each "
                "protocol in a folder of its own."
            )
        other = seen.setdefault((run.variant, run.seed), run)
        first = next(r for r in runs if r.variant == run.variant)
        if other is not run or run.settings != first.settings:
            raise NotComparableError(
                f"{title}: there are runs of this name with other settings ({first.settings} and "
                f"{run.settings}). Give one of them another name or folder."
            )
        _check_same(title, run.data, base.data, same_train)


def paired_interval(differences: Sequence[float], level: float) -> tuple[float, float]:
    """Student's confidence interval of a mean difference.

    Args:
        differences: One a seed, at least 2.
        level: Confidence, as 0.95.

    >>> low, high = paired_interval([1.0, 2.0, 3.0], 0.95)
    >>> round(low, 3), round(high, 3)  # 2 ± 4.303 · 1 / √3
    (-0.484, 4.484)
    """
    from scipy.stats import t

    mean, count = statistics.fmean(differences), len(differences)
    error = statistics.stdev(differences) / math.sqrt(count)
    if error == 0:
        return mean, mean
    low, high = t.interval(level, count - 1, loc=mean, scale=error)
    return float(low), float(high)


def _row(
    name: str,
    change: Settings,
    runs: Sequence[AblationRun],
    reference: Mapping[int, float | None],
    mode: str,
    num_variants: int,
) -> Row:
    values = {run.seed: run.value for run in sorted(runs, key=lambda run: run.seed)}
    differences = {
        seed: value - reference[seed]
        for seed, value in values.items()
        if value is not None and reference.get(seed) is not None
    }
    row = Row(
        name=name,
        change=", ".join(f"{key} = {value}" for key, value in change.items()),
        values=values,
        mean=_mean(values),
        differences=differences,
        difference=statistics.fmean(differences.values()) if differences else None,
    )
    if len(differences) < 2:
        return _judged(row, reference, mode)
    each = list(differences.values())
    return _judged(
        Row(
            **{
                **vars(row),
                "interval": paired_interval(each, 1 - (1 - LEVEL) / num_variants),
                "interval_alone": paired_interval(each, LEVEL),
            }
        ),
        reference,
        mode,
    )


def _judged(row: Row, reference: Mapping[int, float | None], mode: str) -> Row:
    verdict, note = _verdict(row, reference, mode)
    return Row(**{**vars(row), "verdict": verdict, "note": note})


def _verdict(row: Row, reference: Mapping[int, float | None], mode: str) -> tuple[str, str]:
    lost = [seed for seed, value in row.values.items() if value is None]
    if any(value is None for value in reference.values()):
        return "undecided", "the baseline itself diverged; mend it first."
    if lost:
        return "harmful", f"diverged with {len(lost)} of {len(row.values)} seeds ({lost})."
    if row.interval is None:
        return "undecided", f"{len(row.differences)} pair of runs; an interval needs 2, better 3."
    if len(set(row.differences.values())) == 1 and row.difference != 0:
        return "undecided", (
            "moved by exactly the same with every seed, so the noise cannot be told. Does build "
            "use the seed? If so, the metric is too coarse: more validation examples, more seeds."
        )
    sign = 1 if mode == "max" else -1
    verdict = _side(row.interval, sign)
    if verdict == "within noise" != (alone := _side(row.interval_alone, sign)):
        return verdict, (
            f"alone it would count as {alone}; among this many variants that may be luck. Repeat "
            "it with more seeds."
        )
    return verdict, ""


def _side(interval: tuple[float, float], sign: int) -> str:
    low, high = sorted(sign * bound for bound in interval)
    return "likely useful" if low > 0 else "harmful" if high < 0 else "within noise"


def _notes(
    runs: Sequence[AblationRun], rows: Sequence[Row], changes: Mapping[str, Settings]
) -> Iterator[str]:
    variants = rows[1:]
    if len(variants) > 1:
        alone = 1 - (1 - LEVEL) / len(variants)
        yield (
            f"{len(variants)} variants: each interval is one of {alone:.1%}, so that all hold "
            f"together with {LEVEL:.0%} (Bonferroni); the verdicts follow them."
        )
    finite = [value for value in rows[0].values.values() if value is not None]
    if len(finite) > 1 and len(set(finite)) == 1:
        yield "The baseline gave the same number with every seed: does build use the seed?"
    for name in changes:
        yield from _interaction(name, rows, changes)
    if len({json.dumps(run.code, sort_keys=True) for run in runs}) > 1:
        yield "The code changed between the runs: a difference may be the code's."
    if len({json.dumps(run.versions, sort_keys=True) for run in runs}) > 1:
        yield "The versions of the libraries changed between the runs."


def _interaction(name: str, rows: Sequence[Row], changes: Mapping[str, Settings]) -> Iterator[str]:
    """What a combination gives beyond the sum of its parts."""
    by_name = {row.name: row for row in rows}
    parts = [by_name.get(part) for part in _parts(name, changes)]
    whole = by_name.get(name)
    if parts and whole and None not in parts:
        numbers = [row.difference for row in (whole, *parts)]
        if None not in numbers:
            beyond = numbers[0] - sum(numbers[1:])
            yield f"{name}: {beyond:+.4g} beyond the sum of its parts (interaction)."


def _mean(values: Mapping[int, float | None]) -> float | None:
    finite = [value for value in values.values() if value is not None]
    return statistics.fmean(finite) if finite else None


def _cells(row: Row) -> list[str]:
    def number(value: float | None, form: str) -> str:
        return "–" if value is None else format(value, form)

    interval = "–" if row.interval is None else "{:+.4g} to {:+.4g}".format(*row.interval)
    return [row.name, row.change or "–", number(row.mean, ".4g"), number(row.difference, "+.4g"),
            interval, str(len(row.values)), row.verdict]  # fmt: skip


def _plain(epoch: Mapping[str, Any]) -> dict[str, Any]:
    """An epoch as strict JSON holds it."""
    return {
        key: str(value) if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in epoch.items()
    }


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Hold the folder: two processes at once would do every run twice. A kill releases it."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl
    except ImportError:  # Windows has no such lock
        yield
        return
    with open(folder / ".lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ValueError(
                f"{folder}: another process runs this ablation. Wait for it, or take another "
                "folder."
            ) from None
        yield


@contextmanager
def _bar(total: int, progress: bool) -> Iterator[Any]:
    from tqdm.auto import tqdm

    with tqdm(total=total, desc="ablation", unit="run", disable=not progress) as bar:
        yield bar
