"""Debian packages that tests use: install what is missing where we may, else say what to install.

    python tools/system.py

Called by `make test`. It never fails: the tests themselves say, by a skip or in CI by a failure,
what they could not try.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

LIMIT_S = 300


def missing() -> dict[str, str]:
    """Package: what it is for. Nothing is started to find out, so this takes no time."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    found = {
        "chromium": chromium is not None,
        "bubblewrap": shutil.which("bwrap") is not None,
        "dataset-fashion-mnist": Path("/usr/share/datasets/fashion-mnist").is_dir(),
    }
    uses = {
        "chromium": "tests in a real browser",
        "bubblewrap": "isolation of notebooks run in a kernel",
        "dataset-fashion-mnist": "claims on real pictures",
    }
    return {name: uses[name] for name, is_there in found.items() if not is_there}


def install(packages: list[str]) -> str:
    """Install packages one by one, so that one that cannot be had keeps no other away.

    Returns:
        apt-get's last words where something failed; empty if all went well.
    """
    quiet = {"check": True, "capture_output": True, "text": True, "timeout": LIMIT_S}
    quiet["env"] = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    words = ""
    for command in (["update"], *(["install", package] for package in packages)):
        try:
            subprocess.run(
                ["apt-get", "-qq", "--yes", "--no-install-recommends", *command], **quiet
            )
        except subprocess.CalledProcessError as fault:
            words = (fault.stderr.strip().splitlines() or ["apt-get gave no reason"])[-1]
        except subprocess.TimeoutExpired:
            words = f"apt-get {' '.join(command)} took more than {LIMIT_S} s"
    return words


def main() -> int:
    """Exit 0 whatever could be had."""
    lacking = missing()
    if not lacking:
        return 0
    may = hasattr(os, "geteuid") and os.geteuid() == 0 and Path("/etc/debian_version").exists()
    reason = ""
    if may and shutil.which("apt-get"):
        print(f"installing {', '.join(lacking)}", flush=True)
        reason = install(list(lacking))
    if left := missing():
        what = ", ".join(f"{name} ({use})" for name, use in left.items())
        print(
            f"not installed: {what}. On Debian: apt-get install {' '.join(left)}", file=sys.stderr
        )
        if reason:
            print(f"apt-get said: {reason}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
