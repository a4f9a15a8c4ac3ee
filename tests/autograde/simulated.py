"""What simulated crews do, in processes of their own: a moment's work instead of seconds.

Whatever is marked and written leaves a line in files of the class directory. Imports little, so
that a process starts fast.
"""

import json
import os
import signal
import sqlite3
import time
from pathlib import Path

from autograde.sandbox import parent


def mark(job: dict) -> dict:
    """Grade: right half of the time, as the run's seed and the submission will have it."""
    note(Path(job["path"]).parents[3] / "marked", job["student"])
    wish = json.loads(job["text"])
    try:
        time.sleep(wish.get("seconds", 0.005))
    except SystemExit:
        Path(wish["says_when_left"]).touch()
        raise
    if wish.get("raises"):
        raise ValueError(wish["raises"])
    if wish.get("dies_always"):
        os.kill(os.getpid(), signal.SIGKILL)
    if wish.get("dies_once") and not Path(wish["dies_once"]).exists():
        Path(wish["dies_once"]).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    points = (job["seed"] + wish.get("n", 0)) % 2
    return {
        "graded": True,
        "notes": [],
        "cells": [],
        "checks": [{"points": points}],
        "ended": wish.get("ended", ""),
        "not_run": 0 if job["run_all"] else wish.get("not_run", 0),
    }


def write(job: dict) -> dict:
    """Write into a gradebook of two columns, and a verdict."""
    folder, student, result = Path(job["folder"]), job["student"], job["result"]
    refuses = folder / "refuses"
    if refuses.exists() and refuses.read_text() == student:
        raise OSError(f"no room for {student}")
    with sqlite3.connect(folder / "scores.db") as db:
        if result["graded"]:
            points = result["checks"][0]["points"]
            db.execute("replace into scores values (?, ?)", (student, points))
    path = folder / "verdicts" / "a" / f"{student}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}")
    return {"reason": result.get("reason", "")}


def sleep(job: dict) -> dict:
    """Work that takes as long as the job says."""
    time.sleep(job["seconds"])
    return {}


def burn(job: dict) -> dict:
    """Work that keeps the processor busy for as long as the job says."""
    until = time.monotonic() + job["seconds"]
    while time.monotonic() < until:
        pass
    return {}


def fill(job: dict) -> dict:
    """Work that wants as much memory as the job says."""
    bytearray(job["gib"] * 2**30)
    return {}


def fork(_job: dict) -> dict:
    """Have the warm parent fork a process, as for a student."""
    process = parent.warm_context().Process(target=os._exit, args=(7,))
    process.start()
    process.join()
    return {"exit code": process.exitcode, "key": parent.key().hex()}


def note(path: Path, student: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, student.encode() + b"\n")
    os.close(descriptor)
