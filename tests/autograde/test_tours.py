"""Notebooks without exercises: the gallery of widgets, in step with source and catalogue."""

import re

import nbformat
import pytest

import course.widgets as widgets
from autograde.authoring import tour_notebook
from autograde.kit.outline import outlines
from autograde.prose_lint import lint
from autograde.sources import NOTEBOOKS, read_source, source_paths, tour_paths

NAMES = list(tour_paths())


@pytest.fixture(params=NAMES)
def name(request):
    return request.param


def committed(name: str) -> nbformat.NotebookNode:
    return nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)


def test_the_committed_notebook_is_made_from_its_source_and_is_no_chapter(name):
    assert (NOTEBOOKS / f"{name}.ipynb").read_text("utf-8") == tour_notebook(name), "make notebooks"
    assert name not in source_paths() and name not in outlines()
    assert lint(name, read_source(tour_paths()[name])) == []
    for cell in committed(name).cells:
        assert cell.get("outputs", []) == [] and "nbgrader" not in cell.metadata


def test_the_gallery_shows_every_widget_in_the_lectures_order():
    cells = committed("gallery").cells
    shown = [re.search(r"^(\w+)\(\)$", cell.source, re.MULTILINE) for cell in cells]
    entries = list(widgets.catalogue().values())
    assert [one[1] for one in shown if one] == [entry.name for entry in entries]
    titles = [cell.source[3:].split("\n")[0] for cell in cells if cell.source.startswith("## ")]
    assert titles == [entry.title for entry in entries]


@pytest.mark.slow
def test_the_gallery_runs_through_and_every_widget_comes_with_a_picture():
    from nbclient import NotebookClient

    notebook = committed("gallery")
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    shown = [out for cell in notebook.cells for out in cell.get("outputs", [])]
    pictures = [out for out in shown if "image/png" in out.get("data", {})]
    assert len(pictures) == len(shown) == len(widgets.catalogue())
