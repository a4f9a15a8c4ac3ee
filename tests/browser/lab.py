"""A JupyterLab of the test's own on loopback, as a student has it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from course.desk import LAB
from tests.browser.server import started

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def jupyter_lab(folder: Path, home: Path, *options: str) -> Iterator[str]:
    """Address of a JupyterLab that serves `folder`; its settings live in `home`."""
    # Every cell stays in the page, so that cells can be counted while it is scrolled.
    _set(home, "notebook-extension", "tracker", '{"windowingMode": "none"}')
    environment = {
        "PYTHONPATH": str(ROOT),
        "JUPYTERLAB_SETTINGS_DIR": str(home / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
    }
    words = [*LAB, *options]
    with started(folder, home, words, environment, "/api/status") as address:
        yield address


def _set(home: Path, extension: str, name: str, settings: str) -> None:
    folder = home / "settings" / "@jupyterlab" / extension
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.jupyterlab-settings").write_text(settings)
