"""A claim: an experiment that tests something the lecture asserts, and judges what it measured.

    @claim("F26", title="backward() adds to .grad", expected="holds", says="...")
    def backward_adds() -> Measured:
        ...
        return weigh("grad after the second backward", evidence, stated=grad == 8.0)

The function measures, then judges by a criterion written next to the measurement: `stated` says
whether the assertion is true as the lecture makes it, `conditioned` whether it is true if its
condition is met. Only the registry holds `expected`: no experiment sees it, and a test compares it
with the verdict measured on the installed torch.
"""

from __future__ import annotations

import random
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any

from course.catalogue import Entry, UnknownIdError, find_entry, read_catalogue
from course.claims.trial import (
    GPU_VERDICTS,
    VERDICTS,
    Measured,
    Trial,
    Verdict,
    versions,
)
from course.ledger.rows import with_sources
from course.whole import check_seed


def claim(
    id: str,
    *,
    title: str,
    expected: Verdict,
    says: str,
    condition: str = "",
    gpu: bool = False,
) -> Callable[[Callable[..., Measured]], Callable[..., Trial]]:
    """Register an experiment as the test of a claim.

    The experiment may take `seed` and `device`, and is called with those that it names. It runs
    under that seed, on one thread, with warnings muted; random generators are restored afterwards.

    Args:
        id: The ledger's id, e.g. `F26`.
        title: One line for the table.
        expected: The verdict on record for a machine without a GPU.
        says: What the lecture asserts, in one sentence.
        condition: For `holds if`: the condition under which the claim holds.
        gpu: A GPU adds evidence, or is needed to decide; it is used if there is one.
    """
    import inspect

    assert expected in VERDICTS, f"{id}: '{expected}' is not one of {VERDICTS}"
    assert bool(condition) == (expected == "holds if"), f"{id}: a condition belongs to 'holds if'"

    def register(experiment: Callable[..., Measured]) -> Callable[..., Trial]:
        words = set(inspect.signature(experiment).parameters)
        assert words <= {"seed", "device"}, (
            f"{id}: an experiment takes seed and device, not {words}"
        )

        @wraps(experiment)
        def run(seed: int = 0, device: Any = None) -> Trial:
            from course.state.fresh import fresh_settings  # torch: not for a mere list

            check_seed(seed)
            asked = place_of(device, gpu=gpu)  # even if the experiment takes none
            place = asked if "device" in words else place_of("cpu")
            arguments = {"seed": seed, "device": place}
            start = time.perf_counter()
            with fresh_settings(), _quiet_and_seeded(seed):
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


@lru_cache
def catalogue() -> dict[str, Entry]:
    """All registered claims by id, without importing torch."""
    return with_sources(read_catalogue("course.claims", Path(__file__).parent, "claim"))


_ELSEWHERE = {
    "K": "contradictions are looked up by course.claims.contradictions.find_contradiction, or on "
    "the command line by course claims K17",
    "N": "worked numbers are computed by course.worked.compute, or on the command line by course "
    "worked N20",
}
"""The command for ids that start with another letter."""


def compute(id: str, *, seed: int = 0, device: Any = None) -> Trial:
    """Test one claim.

    Args:
        id: A ledger id, e.g. `F26`; `f-26` works too.
        seed: Seeds every random draw of the experiment; the verdict must not depend on it.
        device: Where torch computes. None: the GPU for claims that ask for one, else the CPU.

    Raises:
        UnknownIdError: No such id; the message names the nearest one, or the command that knows it.
        ValueError: The seed is invalid, or this torch cannot compute on the device.
    """
    if not isinstance(id, str):
        raise UnknownIdError(f"{id!r} is not the id of a claim: expected a string, e.g. 'F26'.")
    if elsewhere := _ELSEWHERE.get(id.strip()[:1].upper()):
        raise UnknownIdError(
            f"'{id}' is not the id of a claim (F01 to {[*catalogue()][-1]}); {elsewhere}."
        )
    return find_entry(catalogue(), id, kind="a claim").load()(seed=seed, device=device)


def compute_all(*, seed: int = 0, device: Any = None) -> Iterator[Trial]:
    """Test every claim, in the order of the ids."""
    for entry in catalogue().values():
        yield entry.load()(seed=seed, device=device)


def record_gpu_verdicts(path: Path | None = None, *, seed: int = 0) -> dict[str, Any]:
    """Test the claims that use a GPU on this machine's GPU, and write the results to `path`.

    By default that is `gpu_verdicts.json` next to this module, which `course claims` shows.

    Raises:
        RuntimeError: There is no CUDA device; nothing is written.
    """
    import json

    import torch

    if not torch.cuda.is_available():
        raise RuntimeError(
            "torch.cuda.is_available() is False: GPU verdicts can only be recorded on a machine "
            "with a CUDA device. `course claims` shows what the CPU can decide."
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


def place_of(device: Any = None, *, gpu: bool = False) -> Any:
    """`device`; if it is None, the GPU for a claim that uses one, if there is one, else the CPU.

    Raises:
        ValueError: This torch cannot compute there.
    """
    import torch

    from course.engine.placement import choose_device

    if device is None:
        device = "cuda" if gpu and torch.cuda.is_available() else "cpu"
    return choose_device(device)


@contextmanager
def _quiet_and_seeded(seed: int) -> Iterator[None]:
    """Seed Python, NumPy and torch, mute warnings, use one thread; restore everything on exit.

    Tensors are made on the CPU, as in a fresh process, unless the experiment says otherwise. One
    thread, because the tensors are small: more threads would wait for each other on a busy machine.
    """
    import numpy
    import torch

    from course.state import on_the_cpu, undisturbed

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with undisturbed(), warnings.catch_warnings(), on_the_cpu():
        warnings.simplefilter("ignore")
        random.seed(seed)
        numpy.random.seed(seed)
        torch.manual_seed(seed)
        try:
            yield
        finally:
            torch.set_num_threads(threads)
