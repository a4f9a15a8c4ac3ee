"""The README's pictures: made from what runs now, and the ones shown are no heavier than agreed.

They land in build/screens/readme/; `cp build/screens/readme/* docs/pictures/` renews those shown.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from autograde import check
from autograde.classroom.page import write_page
from course.widgets import export, find
from tests.autograde.paper_class import ASSIGNMENT, Paper, make

ROOT = Path(__file__).resolve().parents[2]
SCREENS = ROOT / "build" / "screens" / "readme"
SHOWN = ROOT / "docs" / "pictures"
NAMES = ("check", "class-page", "widget")
MOST_BYTES = 300_000
"""Of all three together: the README opens on a phone."""


def divided_by_k(model, micro_batches, criterion, optimizer):
    """The mistake that the README's first picture answers."""
    total = 0.0
    optimizer.zero_grad()
    for inputs, targets in micro_batches:
        loss = criterion(model(inputs), targets) / len(micro_batches)
        loss.backward()
        total += loss.item()
    optimizer.step()
    return total


def a_check(_folder: Path) -> str:
    box = check("03a.accumulate", divided_by_k, seed=1)._repr_html_()
    return f'<body style="font-size: 15px; max-width: 56em">{box}</body>'


def a_class(folder: Path) -> str:
    why = {"03a.clip": "always-scaled", "03a.accumulate": "divided-by-k"}
    papers = {name: Paper(why=None) for name in ("ada", "emmy", "grace", "sofia")}
    papers |= {name: Paper(clip=1, accumulate=1, status=why) for name in ("alan", "kurt")}
    return write_page(make(folder / "class", papers), ASSIGNMENT).read_text("utf-8")


def a_widget(folder: Path) -> str:
    export(find("S22")(), folder / "widget.html")
    return (folder / "widget.html").read_text("utf-8")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name,made,height",
    [("check", a_check, None), ("class-page", a_class, 720), ("widget", a_widget, 760)],
)
def test_a_picture_is_made(name, made, height, page, tmp_path):
    file = tmp_path / "page.html"
    file.write_text(made(tmp_path), "utf-8")
    page.context.unroute_all()
    page.set_viewport_size({"width": 860, "height": height or 400})
    page.goto(file.as_uri())
    page.wait_for_timeout(500)
    SCREENS.mkdir(parents=True, exist_ok=True)
    target = SCREENS / f"{name}.png"
    if height:
        page.screenshot(path=target)
    else:
        page.locator("body > *").first.screenshot(path=target)
    assert target.stat().st_size > 5_000


def test_the_pictures_shown_are_there_and_light():
    sizes = {name: (SHOWN / f"{name}.png").stat().st_size for name in NAMES}
    assert sum(sizes.values()) < MOST_BYTES, sizes
    text = (ROOT / "README.md").read_text("utf-8")
    assert all(f"docs/pictures/{name}.png" in text for name in NAMES)
