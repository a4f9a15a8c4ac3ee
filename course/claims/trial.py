"""The result of testing a claim: what was measured, the verdict, and the circumstances."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from course.catalogue import Entry
from course.claims.show import as_html, as_text
from course.report import json_ready

Verdict = Literal["holds", "holds if", "does not hold", "needs GPU", "not decidable"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
GPU_VERDICTS = Path(__file__).with_name("gpu_verdicts.json")


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What an experiment measured, and what it concludes."""

    verdict: Verdict
    deciding: str
    """Key of the number in `evidence` that decides."""
    evidence: dict[str, Any]
    """Everything measured: numbers, booleans, short strings, lists of them."""
    note: str = ""
    """What else a reader must know, e.g. why the claim cannot be decided."""
    criterion: str = ""
    """The result that a setting must show for the claim to hold there, written before the runs."""
    settings: dict[str, bool] = field(default_factory=dict)
    """Each setting in words, and whether the claim holds there; empty for facts of the API."""

    def __post_init__(self) -> None:
        assert self.verdict in VERDICTS, self.verdict
        assert isinstance(self.evidence[self.deciding], (int, float)), self.deciding

    @property
    def number(self) -> float:
        """The number that decides."""
        return self.evidence[self.deciding]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """The result for one claim: prints as text, renders in a notebook, exports to JSON."""

    entry: Entry
    says: str
    """What the lecture asserts, in one sentence."""
    condition: str
    """The condition under which it holds; empty if it needs none or never holds."""
    expected: Verdict
    """The verdict on record for a machine without a GPU."""
    gpu: bool
    """Whether a GPU adds evidence, or is needed to decide at all."""
    measured: Measured
    seed: int
    device: str
    seconds: float
    versions: dict[str, str]

    @property
    def verdict(self) -> Verdict:
        """The verdict measured here."""
        return self.measured.verdict

    @property
    def code(self) -> str:
        """File and function of the experiment."""
        return f"{self.entry.module.replace('.', '/')}.py: {self.entry.name}"

    @property
    def as_expected(self) -> bool:
        """Whether the verdict is as recorded; if a GPU was needed and used, any decision counts."""
        if self.expected == "needs GPU" and self.device != "cpu":
            recorded = recorded_gpu_verdicts().get("claims", {}).get(self.entry.id, {})
            return self.verdict == recorded.get("verdict", self.verdict) != "needs GPU"
        return self.verdict == self.expected

    def to_json(self) -> dict[str, Any]:
        """Plain numbers, strings and lists; non-finite numbers as strings."""
        return {
            "id": self.entry.id,
            "title": self.entry.title,
            "source": self.entry.source,
            "says": self.says,
            "condition": self.condition,
            "expected": self.expected,
            "verdict": self.verdict,
            "as_expected": self.as_expected,
            "deciding": self.measured.deciding,
            "number": json_ready(self.measured.number),
            "evidence": json_ready(self.measured.evidence),
            "note": self.measured.note,
            "criterion": self.measured.criterion,
            "settings": self.measured.settings,
            "seed": self.seed,
            "device": self.device,
            "seconds": round(self.seconds, 3),
            "versions": self.versions,
        }

    @property
    def on_record(self) -> dict[str, Any] | None:
        """The record of a machine with a GPU (with its `gpu`), if this machine could not decide."""
        if self.verdict != "needs GPU":
            return None
        record = recorded_gpu_verdicts()
        found = record.get("claims", {}).get(self.entry.id)
        return found | {"gpu": record["device"]} if found else None

    def __str__(self) -> str:
        return as_text(self)

    def _repr_html_(self) -> str:
        return as_html(self)


def judge(*, stated: bool, conditioned: bool = False) -> Verdict:
    """The verdict that follows from two findings.

    Args:
        stated: The assertion is true as the lecture makes it, in every case tested.
        conditioned: It is true in the cases that meet its condition.

    >>> judge(stated=False, conditioned=True)
    'holds if'
    """
    if stated:
        return "holds"
    return "holds if" if conditioned else "does not hold"


def weigh(
    deciding: str,
    evidence: dict[str, Any],
    *,
    stated: bool,
    conditioned: bool = False,
    note: str = "",
) -> Measured:
    """A `Measured` whose verdict is `judge(stated, conditioned)`."""
    verdict = judge(stated=bool(stated), conditioned=bool(conditioned))
    return Measured(verdict=verdict, deciding=deciding, evidence=_evidence(evidence), note=note)


def weigh_settings(
    deciding: str,
    evidence: dict[str, Any],
    held: Mapping[Any, bool],
    *,
    criterion: str,
    note: str = "",
) -> Measured:
    """A `Measured` with a verdict over settings: `holds` in all, `does not hold` in none.

    Args:
        deciding: Key of the number in `evidence` that decides.
        evidence: Everything measured.
        held: Settings (of `course.claims.settings`, or in words), and whether the claim holds in
            each.
        criterion: The result that a setting must show.
        note: What else a reader must know.
    """
    assert len(held) > 1, f"{deciding}: one setting decides nothing about training in general"
    return Measured(
        verdict=judge(stated=all(held.values()), conditioned=any(held.values())),
        deciding=deciding,
        evidence=_evidence(evidence),
        note=note,
        criterion=criterion,
        settings={str(setting): bool(holds) for setting, holds in held.items()},
    )


def needs_gpu(deciding: str, evidence: dict[str, Any], note: str = "") -> Measured:
    """A `Measured` that leaves the decision to a machine with a GPU."""
    evidence = _evidence(evidence)
    return Measured(verdict="needs GPU", deciding=deciding, evidence=evidence, note=note)


def _evidence(evidence: dict[str, Any]) -> dict[str, Any]:
    """Plain values; inf and nan stay numbers, because they may be the finding."""
    return json_ready(evidence, non_finite=float)


def recorded_gpu_verdicts(path: Path | None = None) -> dict[str, Any]:
    """The GPU verdicts on record; empty if none were recorded."""
    file = Path(path or GPU_VERDICTS)
    return json.loads(file.read_text("utf-8")) if file.exists() else {}


def versions(device: Any) -> dict[str, str]:
    """Versions of torch, NumPy and Python, and the GPU's name if it is used."""
    import numpy
    import torch

    found = {
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "python": platform.python_version(),
    }
    if device.type == "cuda":
        found |= {"cuda": torch.version.cuda or "", "gpu": torch.cuda.get_device_name(device)}
    return found
