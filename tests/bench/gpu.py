"""What waits for a GPU, in one place: `make gpu`.

    tests     every test marked `gpu`
    claims    those that only a GPU can decide, into course/claims/gpu_verdicts.json
    engine    an epoch of the trainer beside the same loop written out, on the GPU
    grading   a class graded on the GPU and on the CPU: time, and the same points

Prints one page and writes `build/bench/gpu.json`. Without a CUDA device nothing is run.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import nbformat
import torch
from torch import nn

from course.claims.registry import record_gpu_verdicts
from course.data import load
from course.engine import Trainer
from tests.bench.harness import FOLDER, interleaved

ASSIGNMENT = "01a-tensors-and-autograd"
SUBMISSIONS = 4
BATCH = 64
WIDTH = 256
PROCESSES = 8
"""Of the tests, which share the GPU: each keeps about half a GiB of it."""


def tests(folder: Path) -> dict[str, int]:
    """How many of the tests marked `gpu` passed, failed and were skipped."""
    found = folder / "gpu-tests.xml"
    command = [sys.executable, "-m", "pytest", "-m", "gpu", f"--junitxml={found}"]
    command += ["-n", str(min(PROCESSES, os.cpu_count() or 1))]
    with (folder / "gpu-tests.txt").open("w") as log:
        subprocess.run(command, stdout=log, stderr=log, check=False)
    suite = ElementTree.parse(found).getroot().find("testsuite")
    counts = {name: int(suite.get(name)) for name in ("tests", "failures", "errors", "skipped")}
    failed = counts["failures"] + counts["errors"]
    passed = counts["tests"] - failed - counts["skipped"]
    return {"passed": passed, "failed": failed, "skipped": counts["skipped"]}


def claims() -> dict[str, str]:
    """The verdict on each claim that asks for a GPU."""
    return {id: trial["verdict"] for id, trial in record_gpu_verdicts()["claims"].items()}


def engine(device: torch.device, *, rounds: int = 7, epochs: int = 3) -> dict[str, Any]:
    """The trainer's time in terms of the loop written out, on the device, and both final losses."""
    data = load("digits")
    whole = len(data.train_targets) // BATCH * BATCH
    inputs, targets = data.train_inputs[:whole].to(device), data.train_targets[:whole].to(device)
    batches = list(zip(inputs.split(BATCH), targets.split(BATCH), strict=True))
    ended: dict[str, float] = {}

    def parts() -> tuple[nn.Module, nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(0)
        wide = nn.Linear(64, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10)
        model = nn.Sequential(nn.Flatten(), *wide).to(device)
        return model, nn.CrossEntropyLoss(), torch.optim.Adam(model.parameters())

    def trainer() -> None:
        model, criterion, optimizer = parts()
        history = Trainer(model, criterion, optimizer, device=device).fit(
            batches, epochs=epochs, progress=False
        )
        ended["trainer"] = history[-1]["train_loss"]

    def loop() -> None:
        model, criterion, optimizer = parts()
        for _ in range(epochs):
            losses = []
            for batch, labels in batches:
                optimizer.zero_grad()
                loss = criterion(model(batch), labels)
                loss.backward()
                optimizer.step()
                losses.append(loss.detach())
            ended["loop"] = torch.stack(losses).mean().item()

    ratios = interleaved(
        {"loop": loop, "trainer": trainer}, base="loop", rounds=rounds,
        units=epochs * len(batches),
    )  # fmt: skip
    return {"ratio": ratios["trainer"].median, "losses": ended}


def grading(device: str, *, trusted: bool = False) -> dict[str, Any]:
    """Seconds of a class run on the CPU and on the device, and whether the points are the same."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as place:
        folder = _class(Path(place) / "class")
        for name in ("cpu", device):
            started = time.perf_counter()
            command = [sys.executable, "-m", "autograde.cli", "grade", ASSIGNMENT, "--force"]
            command += ["--dir", str(folder), "--device", name]
            command += ["--trust-submissions"] if trusted else []
            ran = subprocess.run(command, capture_output=True, text=True, check=False)
            files = sorted((folder / "verdicts" / ASSIGNMENT).glob("*.json"))
            verdicts = [json.loads(path.read_text("utf-8")) for path in files]
            found[name] = {
                "seconds": round(time.perf_counter() - started, 1),
                "points": [
                    sum(check["points"] for check in verdict["checks"])
                    if verdict.get("graded")
                    else verdict.get("reason")
                    for verdict in verdicts
                ],
                "said": ran.stderr.strip(),
            }
    here, there = found["cpu"]["points"], found[device]["points"]
    graded = all(isinstance(points, int | float) for points in [*here, *there])
    return {**found, "same": graded and here == there}


def _class(folder: Path) -> Path:
    from autograde.classroom.release import release
    from tests.short_class import hand_in, short_class

    short_class(folder, ASSIGNMENT)
    solved = nbformat.read(folder / "source" / ASSIGNMENT / f"{ASSIGNMENT}.ipynb", as_version=4)
    release(folder, ASSIGNMENT)
    for number in range(SUBMISSIONS):
        hand_in(folder, f"student-{number}", ASSIGNMENT, solved)
    return folder


def page(document: dict[str, Any]) -> str:
    """All results on one page."""
    ran, graded = document["tests"], document["grading"]
    device = next(name for name in graded if name not in ("cpu", "same"))
    lines = [
        f"{document['device']} · torch {document['torch']} · Python {document['python']}",
        "",
        f"tests     {ran['passed']} passed, {ran['failed']} failed, {ran['skipped']} skipped",
        "claims    " + ", ".join(f"{id} {verdict}" for id, verdict in document["claims"].items()),
        f"engine    {document['engine']['ratio']:.3f} times the loop written out",
        f"grading   {SUBMISSIONS} submissions in {graded['cpu']['seconds']} s on the CPU, "
        f"{graded[device]['seconds']} s on {device}; points "
        + ("the same" if graded["same"] else "NOT the same"),
    ]
    return "\n".join(lines)


def main() -> int:
    """Run all, print the page; exit 2 where there is no GPU, 1 where something failed."""
    if not torch.cuda.is_available():
        print(
            "make gpu: torch sees no CUDA device here, so nothing was run. `make test` runs what a "
            "second device on the CPU can show.",
            file=sys.stderr,
        )
        return 2
    FOLDER.mkdir(parents=True, exist_ok=True)
    document = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "tests": tests(FOLDER),
        "claims": claims(),
        "engine": engine(torch.device("cuda")),
        "grading": grading("cuda", trusted=bool(os.environ.get("TRUSTED"))),
    }
    (FOLDER / "gpu.json").write_text(json.dumps(document, indent=2), "utf-8")
    print(page(document))
    return int(bool(document["tests"]["failed"]) or not document["grading"]["same"])


if __name__ == "__main__":
    sys.exit(main())
