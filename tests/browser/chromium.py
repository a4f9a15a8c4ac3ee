"""Debian's Chromium, found and started the same way by every test and benchmark."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

NONE_HERE = (
    "no Chromium is installed, so nothing was tried in a browser. On Debian: "
    "apt-get install chromium; or put a `chromium` on the PATH"
)


def found() -> str | None:
    """Its path; None where there is none."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


@contextmanager
def chromium() -> Iterator[object]:
    """A browser, driven by playwright, that is closed afterwards."""
    from playwright.sync_api import sync_playwright

    assert found(), NONE_HERE
    options = ["--no-proxy-server", "--disable-dev-shm-usage", "--disable-gpu"]
    if os.geteuid() == 0:  # its own sandbox refuses root
        options.append("--no-sandbox")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found(), args=options)
        yield browser
        browser.close()
