"""The result table: prints, renders in a notebook, exports to JSON, and plots itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from course.analysis.ablation.comparable import check_comparable
from course.analysis.ablation.files import AblationRun, read_one
from course.analysis.ablation.plan import BASELINE, Settings
from course.analysis.ablation.verdicts import LEVEL, Row, mean_of, notes_on, row_of
from course.tables import boxed

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True)
class Ablation:
    """The result table: prints, renders in a notebook, exports to JSON, and plots itself."""

    rows: list[Row]
    """The baseline, then the variants in the given order."""
    metric: str
    mode: str
    notes: list[str]
    """Remarks to keep in mind when reading the verdicts."""
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
            runs: Runs of the baseline and of the variants, with the same seeds.
            changes: As given to `ablate`; inferred from the settings if left out.
            same_train: False if a variant is meant to change the training data.

        Raises:
            NotComparableError: They differ in data, split or protocol, or the baseline is missing.
        """
        check_comparable(runs, same_train)
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
        rows = [Row(name=BASELINE, change="", values=reference, mean=mean_of(reference),
                    differences={})]  # fmt: skip
        rows += [
            row_of(name, changes[name], of, reference, mode, len(by_name))
            for name, of in by_name.items()
        ]
        return cls(
            rows=rows,
            metric=base[0].protocol["metric"],
            mode=mode,
            notes=list(notes_on(runs, rows, changes)),
            runs=list(runs),
        )

    def __getitem__(self, name: str) -> Row:
        """The row of one variant."""
        found = next((row for row in self.rows if row.name == name), None)
        if found is None:
            raise KeyError(
                f"no variant {name!r}; the variants are {', '.join(r.name for r in self.rows)}"
            )
        return found

    @property
    def ranked(self) -> list[Row]:
        """The variants that have a difference, best first."""
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
        """The difference of every variant with its interval, and one dot per seed."""
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
        table = boxed(f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")
        return f"{table}<ul>{notes}</ul>"


def read_ablation(folder: Path | str, **options: Any) -> Ablation:
    """The table of all runs in a folder that are finished so far.

    Args:
        folder: The folder given to `ablate`.
        options: As for `Ablation.of`.

    Raises:
        NotComparableError: As for `Ablation.of`; also if the folder has no baseline.
        ValueError: There is no such folder, or no run in it.
    """
    if not Path(folder).is_dir():
        raise ValueError(f"{folder}: no such directory. Give the one that you gave to ablate().")
    files = sorted(Path(folder).glob("*.json"), key=lambda file: (file.stat().st_mtime_ns, file))
    return Ablation.of([read_one(file) for file in files], **options)


def _cells(row: Row) -> list[str]:
    def number(value: float | None, form: str) -> str:
        return "–" if value is None else format(value, form)

    interval = "–" if row.interval is None else "{:+.4g} to {:+.4g}".format(*row.interval)
    return [row.name, row.change or "–", number(row.mean, ".4g"), number(row.difference, "+.4g"),
            interval, str(len(row.values)), row.verdict]  # fmt: skip
