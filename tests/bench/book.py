"""What the book costs: seconds to make it, again with nothing changed, its size, its first paint.

    python -m tests.bench.book                  # some minutes, the notebooks run

Goals: a whole book in ten minutes on 2 cores, nothing changed in 20 s, 60 MB, a first paint of one
page of each kind within 1 s.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import time
from pathlib import Path

from book import evidence
from book.build import build
from tests.bench.harness import FOLDER
from tests.browser.chromium import chromium

GOALS = {"fresh_s": 600.0, "again_s": 20.0, "megabytes": 60.0, "first_paint_ms": 1000.0}
PAGES = (
    "index.html", "parts/03c.html", "id/N19.html", "id/F26.html", "id/B08.html", "verdicts.html",
    "notebooks/03a-training-recipe.html", "exercises/03a.html", "widgets/simulator.html",
)  # fmt: skip
TIMES = 5
PAINTED = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"


def main() -> None:
    """Measure, print and keep; the evidence is run from nothing."""
    target = Path("build/bench/book-made")
    shutil.rmtree(target, ignore_errors=True)
    shutil.rmtree(evidence.CACHE, ignore_errors=True)
    fresh, again = _seconds(target), _seconds(target)
    size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file()) / 1e6
    found = {
        "fresh_s": round(fresh, 1),
        "again_s": round(again, 2),
        "megabytes": round(size, 1),
        "first_paint_ms": max((paints := first_paints(target)).values()),
        "first_paints": paints,
        "cores": os.cpu_count(),
        "goals": GOALS,
    }
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "book.json").write_text(json.dumps(found, indent=2), "utf-8")
    for name, goal in GOALS.items():
        mark = "reached" if found[name] <= goal else "missed"
        print(f"{name:<16} {found[name]:>9}   goal {goal:g} {mark}")


def _seconds(target: Path) -> float:
    began = time.perf_counter()
    build(target)
    return time.perf_counter() - began


def first_paints(target: Path) -> dict[str, float]:
    """The median of several first paints of each page, milliseconds."""
    found = {}
    with chromium() as browser:
        for name in PAGES:
            seen = []
            for _ in range(TIMES):
                page = browser.new_page()
                page.goto((target / name).absolute().as_uri())
                page.wait_for_function(f"{PAINTED} !== undefined")
                seen.append(page.evaluate(PAINTED))
                page.close()
            found[name] = round(statistics.median(seen), 1)
    return found


if __name__ == "__main__":
    main()
