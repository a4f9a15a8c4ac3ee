"""Commands that the sources print, run as printed."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile

from course.claims.registry import Measured, claim, weigh


@claim(
    "F130",
    title="The lab's first command works",
    source="Engineering module, lab step 1",
    expected="does not hold",
    says="The first command of the lab runs the virtual environment's python in a new folder.",
)
def lab_first_command() -> Measured:
    def exit_code(command: str, folder: str) -> int:
        shell = shutil.which("sh") or "/bin/sh"
        return subprocess.run([shell, "-c", command], cwd=folder, capture_output=True).returncode

    with tempfile.TemporaryDirectory() as folder:
        as_printed = exit_code(".venv/bin/python --version", folder)
        made = exit_code(f'"{sys.executable}" -m venv --without-pip .venv', folder)
        afterwards = exit_code(".venv/bin/python --version", folder)
    evidence = {
        "exit code as printed": as_printed,
        "exit code of making the environment first": made,
        "exit code afterwards": afterwards,
    }
    return weigh(
        "exit code as printed",
        evidence,
        stated=as_printed == 0,
        note="127: the shell finds no such program. The environment must be made first.",
    )
