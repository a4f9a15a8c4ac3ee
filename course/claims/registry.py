"""What a claim is: an experiment that tries something the lecture asserts, and weighs what it saw.

    @claim("F26", title="backward adds into .grad", source="...", expected="holds", says="...")
    def backward_adds() -> Measured:
        ...
        return weigh("grad after the second backward", evidence, stated=grad == 8.0)

The function measures, then judges by a criterion written out beside the measurement: `stated` is
whether the assertion came out true as the lecture makes it, `conditioned` whether it came out true
where its condition is met. `expected` stands in the registry alone; no experiment sees it, and a
test compares it with the verdict measured on the torch that is installed.
"""

from __future__ import annotations

import math
import platform
import random
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Literal, get_args

from course.catalogue import Entry, UnknownIdError, find_entry, read_catalogue
from course.worked.surroundings import torch_as_it_comes

Verdict = Literal["holds", "holds if", "does not hold", "needs GPU", "not decidable"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
GPU_VERDICTS = Path(__file__).with_name("gpu_verdicts.json")


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What an experiment saw, and what it concludes from that."""

    verdict: Verdict
    deciding: str
    """Key of the number in `evidence` that decides."""
    evidence: dict[str, Any]
    """Everything measured: numbers, booleans, short strings, lists of them."""
    note: str = ""
    """What a reader must know besides, as why nothing can decide it."""

    def __post_init__(self) -> None:
        assert self.verdict in VERDICTS, self.verdict
        assert isinstance(self.evidence[self.deciding], (int, float)), self.deciding

    @property
    def number(self) -> float:
        """The number that decides."""
        return self.evidence[self.deciding]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One claim, tried: prints as text, renders in a notebook, goes to JSON."""

    entry: Entry
    says: str
    """What the lecture asserts, in one sentence."""
    condition: str
    """Under which condition it holds; empty where it needs none or never holds."""
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
        """What was measured here."""
        return self.measured.verdict

    @property
    def as_expected(self) -> bool:
        """Same verdict as on record; where a GPU was needed and found, any decision."""
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
            "number": _json_value(self.measured.number),
            "evidence": _json_value(self.measured.evidence),
            "note": self.measured.note,
            "seed": self.seed,
            "device": self.device,
            "seconds": round(self.seconds, 3),
            "versions": self.versions,
        }

    def __str__(self) -> str:
        from course.claims.show import as_text

        return as_text(self)

    def _repr_html_(self) -> str:
        from course.claims.show import as_html

        return as_html(self)


def judge(*, stated: bool, conditioned: bool = False) -> Verdict:
    """The verdict from two findings.

    Args:
        stated: The assertion came out true as the lecture makes it, in every case tried.
        conditioned: It came out true in the cases that meet its condition.

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
    return Measured(
        verdict=verdict, deciding=deciding, evidence=_json_value(evidence, keep=True), note=note
    )


def needs_gpu(deciding: str, evidence: dict[str, Any], note: str = "") -> Measured:
    """A `Measured` that leaves the decision to a machine with a GPU."""
    evidence = _json_value(evidence, keep=True)
    return Measured(verdict="needs GPU", deciding=deciding, evidence=evidence, note=note)


def claim(
    id: str,
    *,
    title: str,
    source: str,
    expected: Verdict,
    says: str,
    condition: str = "",
    gpu: bool = False,
) -> Callable[[Callable[..., Measured]], Callable[..., Trial]]:
    """Register an experiment as the trial of a claim.

    The experiment may take `seed` and `device`; it is called with those that it names, under that
    seed, on one thread, with warnings muted; random generators are put back afterwards.

    Args:
        id: The ledger's id, as `F26`.
        title: One line for the table.
        source: Lecture and slide, or chapter.
        expected: The verdict on record for a machine without a GPU.
        says: What the lecture asserts, in one sentence.
        condition: For `holds if`: under which condition it holds.
        gpu: A GPU adds evidence, or is needed to decide; it is used where there is one.
    """
    import inspect

    assert expected in VERDICTS, f"{id}: '{expected}' is none of {VERDICTS}"
    assert bool(condition) == (expected == "holds if"), f"{id}: a condition belongs to 'holds if'"

    def register(experiment: Callable[..., Measured]) -> Callable[..., Trial]:
        words = set(inspect.signature(experiment).parameters)
        assert words <= {"seed", "device"}, (
            f"{id}: an experiment takes seed and device, not {words}"
        )

        @wraps(experiment)
        def run(seed: int = 0, device: Any = None) -> Trial:
            check_seed(seed)
            asked = choose_device(device, gpu=gpu)  # also where the experiment takes none
            place = asked if "device" in words else choose_device("cpu")
            arguments = {"seed": seed, "device": place}
            start = time.perf_counter()
            with torch_as_it_comes(), _quiet_and_seeded(seed):
                measured = experiment(**{word: arguments[word] for word in words})
            return Trial(
                entry=catalogue()[id],
                says=says,
                condition=condition,
                expected=expected,
                gpu=gpu,
                measured=measured,
                seed=seed,
                device=str(place),
                seconds=time.perf_counter() - start,
                versions=versions(place),
            )

        run.gpu = gpu  # type: ignore[attr-defined]
        run.expected = expected  # type: ignore[attr-defined]
        return run

    return register


def catalogue() -> dict[str, Entry]:
    """All registered claims by id, without importing torch."""
    return read_catalogue("course.claims", Path(__file__).parent, "claim")


_ELSEWHERE = {
    "K": "contradictions are read by course.claims.contradictions.find_contradiction, or on the "
    "command line by course claims K17",
    "N": "worked numbers are computed by course.worked.compute, or on the command line by course "
    "worked N20",
}
"""Who knows ids of other letters."""


def compute(id: str, *, seed: int = 0, device: Any = None) -> Trial:
    """Try one claim.

    Args:
        id: A ledger id, as `F26`; `f-26` will do.
        seed: Seeds every random draw of the experiment; the verdict must not depend on it.
        device: Where torch computes. None: the GPU for claims that ask for one, else the CPU.

    Raises:
        UnknownIdError: No such id; the message names the nearest, or who knows it.
        ValueError: No seed, or a device on which this torch cannot compute.
    """
    if not isinstance(id, str):
        raise UnknownIdError(f"{id!r} is not the id of a claim: expected a text, as 'F26'.")
    if elsewhere := _ELSEWHERE.get(id.strip()[:1].upper()):
        raise UnknownIdError(f"'{id}' is not the id of a claim (F01 to F138); {elsewhere}.")
    return find_entry(catalogue(), id, kind="a claim").load()(seed=seed, device=device)


def compute_all(*, seed: int = 0, device: Any = None) -> Iterator[Trial]:
    """Try every claim, in the order of their ids."""
    for entry in catalogue().values():
        yield entry.load()(seed=seed, device=device)


def record_gpu_verdicts(path: Path | None = None, *, seed: int = 0) -> dict[str, Any]:
    """Try the claims that ask for a GPU on this machine's, and write what they found to `path`.

    By default that is `gpu_verdicts.json` beside this module, which `course claims` shows.

    Raises:
        RuntimeError: There is no CUDA device; nothing is written.
    """
    import json

    import torch

    if not torch.cuda.is_available():
        raise RuntimeError(
            "torch.cuda.is_available() is False: GPU verdicts are recorded on a machine with a "
            "CUDA device only. `course claims` shows what the CPU can decide."
        )
    loaded = [entry.load() for entry in catalogue().values()]
    trials = [run(seed=seed, device="cuda") for run in loaded if run.gpu]
    document = {
        "device": torch.cuda.get_device_name(),
        "versions": versions(torch.device("cuda")),
        "seed": seed,
        "claims": {trial.entry.id: trial.to_json() for trial in trials},
    }
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    Path(path or GPU_VERDICTS).write_text(text + "\n", "utf-8")
    return document


def recorded_gpu_verdicts(path: Path | None = None) -> dict[str, Any]:
    """The GPU verdicts on record; empty where none were recorded."""
    import json

    file = Path(path or GPU_VERDICTS)
    return json.loads(file.read_text("utf-8")) if file.exists() else {}


def check_seed(seed: Any) -> None:
    """A seed that Python, NumPy and torch all take.

    Raises:
        ValueError: It is no whole number from 0 to 2**32 - 1.
    """
    whole = isinstance(seed, int) and not isinstance(seed, bool)
    if not whole or not 0 <= seed < 2**32:
        raise ValueError(
            f"seed = {seed!r}: expected a whole number from 0 to {2**32 - 1}, as NumPy takes it."
        )


def choose_device(device: Any = None, *, gpu: bool = False) -> Any:
    """`device`, or for None the GPU where the claim asks for one and there is one.

    Raises:
        ValueError: This torch cannot compute there.
    """
    import torch

    if device is None:
        return torch.device("cuda" if gpu and torch.cuda.is_available() else "cpu")
    try:
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError, TypeError) as fault:
        raise ValueError(
            f"device '{device}': this torch ({torch.__version__}) cannot compute there "
            f"({str(fault).splitlines()[0]}). Use cpu."
        ) from fault
    return torch.device(device)


def versions(device: Any) -> dict[str, str]:
    """Of torch, NumPy and Python, and the GPU's name where one computes."""
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


@contextmanager
def _quiet_and_seeded(seed: int) -> Iterator[None]:
    """Seed Python, NumPy and torch, mute warnings, use one thread; put all back on leaving.

    Tensors are made on the CPU, as in a fresh process, unless the experiment says otherwise. One
    thread, since the tensors are small: more would wait for each other on a busy machine.
    """
    import numpy
    import torch

    before = random.getstate(), numpy.random.get_state()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    elsewhere = torch.get_default_device().type != "cpu"  # entering a device slows small calls
    with (
        torch.random.fork_rng(),
        warnings.catch_warnings(),
        torch.device("cpu") if elsewhere else nullcontext(),
    ):
        warnings.simplefilter("ignore")
        random.seed(seed)
        numpy.random.seed(seed)
        torch.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(before[0])
            numpy.random.set_state(before[1])
            torch.set_num_threads(threads)


def _json_value(value: Any, *, keep: bool = False) -> Any:
    """Plain Python values; with `keep`, inf and nan stay numbers."""
    if hasattr(value, "tolist"):  # a torch tensor or a NumPy value
        value = value.detach().tolist() if hasattr(value, "detach") else value.tolist()
    if isinstance(value, dict):
        return {str(key): _json_value(item, keep=keep) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json_value(item, keep=keep) for item in value]
    if isinstance(value, float) and not keep and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)
