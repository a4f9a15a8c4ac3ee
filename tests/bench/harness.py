"""Side-by-side timing: variants take turns in one run, and what is reported are ratios.

A shared machine is now fast, now slow; two variants timed one after the other measure the machine.
Here every round times each variant once, in turn, and a round gives one ratio a variant. Median and
quartiles of the ratios go to `build/bench/NAME.json`.
"""

from __future__ import annotations

import gc
import json
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

FOLDER = Path("build/bench")


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """How a variant's time compares with the base's, round by round."""

    median: float
    low: float
    """First quartile."""
    high: float
    """Third quartile."""
    microseconds: float
    """Median time of one unit of work."""

    def __str__(self) -> str:
        return f"{self.median:.3f}  [{self.low:.3f}, {self.high:.3f}]  {self.microseconds:9.1f} µs"


def interleaved(
    variants: dict[str, Callable[[], object]], *, base: str, rounds: int, units: int
) -> dict[str, Ratio]:
    """Time each variant once a round, after one round to warm up.

    Args:
        variants: What to call; each call does the same `units` of work, such as 460 updates.
        base: The variant that counts as 1.
        rounds: How often all take their turn; the order turns round each time.
    """
    seconds = {name: [] for name in variants}
    for variant in variants.values():
        variant()
    for number in range(rounds):
        names = list(variants) if number % 2 == 0 else list(reversed(variants))
        for name in names:
            gc.collect()
            started = time.perf_counter()
            variants[name]()
            seconds[name].append(time.perf_counter() - started)
    return {name: ratio(times, seconds[base], units) for name, times in seconds.items()}


def ratio(times: list[float], base: list[float], units: int) -> Ratio:
    ratios = [mine / its for mine, its in zip(times, base, strict=True)]
    low, median, high = statistics.quantiles(ratios, n=4)
    return Ratio(
        median=median, low=low, high=high, microseconds=statistics.median(times) / units * 1e6
    )


def report(name: str, groups: dict[str, dict[str, Ratio]], **more: object) -> Path:
    """Print the groups and write them, with what they ran on, to `build/bench/NAME.json`."""
    for title, ratios in groups.items():
        print(f"\n{title}")
        for variant, ratio in ratios.items():
            print(f"  {variant:<38} {ratio}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    document = {
        "versions": {"python": platform.python_version(), "torch": str(torch.__version__)},
        "threads": torch.get_num_threads(),
        "ratios": {
            title: {variant: asdict(ratio) for variant, ratio in ratios.items()}
            for title, ratios in groups.items()
        },
        **more,
    }
    path = FOLDER / f"{name}.json"
    path.write_text(json.dumps(document, indent=2) + "\n")
    print(f"\nwritten to {path}")
    return path
