"""The notebooks at a glance: what nbgrader's own metadata in them adds up to."""

import nbformat
from typer.testing import CliRunner

from autograde.cli import app
from autograde.kit.overview import as_markdown, overviews
from autograde.sources import NOTEBOOKS, read_source, source_paths


def test_points_are_those_of_the_graded_cells_of_each_source():
    for row in overviews():
        cells = read_source(source_paths()[row.name]).cells
        graded = [c.metadata.nbgrader for c in cells if c.metadata.get("nbgrader", {}).get("grade")]
        assert row.points == sum(about["points"] for about in graded), row.name


def test_every_notebook_has_a_line_and_the_last_adds_them_up():
    rows = overviews()
    assert [row.name for row in rows] == list(source_paths())
    table = as_markdown(rows).splitlines()
    assert len(table) == len(rows) + 3
    assert f"| {sum(row.exercises for row in rows)} |" in table[-1]
    heading = nbformat.read(NOTEBOOKS / f"{rows[0].name}.ipynb", as_version=4).cells[0].source
    assert rows[0].title in heading and rows[0].title in table[2]


def test_the_command_prints_the_kinds_too():
    printed = CliRunner().invoke(app, ["notebooks"])
    assert printed.exit_code == 0 and "kinds" in printed.stdout
