"""Commands that the sources print, run as printed."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile

from course.claims.registry import claim
from course.claims.trial import Measured, weigh


@claim(
    "F130",
    title="The lab's first Python command works",
    expected="does not hold",
    says="In a new folder, the lab creates its virtual environment with that environment's own "
    "python.",
)
def lab_first_command() -> Measured:
    def exit_code(command: str, folder: str) -> int:
        shell = shutil.which("sh") or "/bin/sh"
        return subprocess.run([shell, "-c", command], cwd=folder, capture_output=True).returncode

    make = "-m venv --without-pip .venv"  # pip is not part of the test, and takes seconds
    with tempfile.TemporaryDirectory() as folder:
        as_printed = exit_code(f".venv/bin/python {make}", folder)
        with_another = exit_code(f'"{sys.executable}" {make}', folder)
        afterwards = exit_code(".venv/bin/python --version", folder)
    evidence = {
        "exit code as printed, in a new folder": as_printed,
        "exit code with an existing python": with_another,
        "exit code of the new python, afterwards": afterwards,
    }
    return weigh(
        "exit code as printed, in a new folder",
        evidence,
        stated=as_printed == 0,
        note="127: the command needs the python inside the environment that it should create. Use "
        "python3.",
    )
