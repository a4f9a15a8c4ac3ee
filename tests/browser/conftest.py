"""A real browser, Debian's Chromium, that reaches nothing but this machine.

`make test` installs it where it may (tools/system.py); without one these tests say so and skip, but
in CI they fail: there nobody would notice that nothing was tried.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.browser.chromium import NONE_HERE, chromium, found


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    """Chromium, driven by playwright, which allows a process one at a time."""
    if found() is None and os.environ.get("CI"):
        pytest.fail(NONE_HERE)
    if found() is None:
        pytest.skip(NONE_HERE)
    with chromium() as started:
        yield started


@pytest.fixture
def page(browser) -> Iterator[object]:
    """A fresh page; what it asks of other machines is refused: it must need none."""
    context = browser.new_context(viewport={"width": 1280, "height": 1000})
    context.route("**/*", _only_loopback)
    page = context.new_page()
    page.set_default_timeout(30_000)
    yield page
    context.close()


def _only_loopback(route) -> None:
    if route.request.url.startswith(("http://127.0.0.1:", "data:", "blob:")):
        route.continue_()
    else:
        route.abort()
