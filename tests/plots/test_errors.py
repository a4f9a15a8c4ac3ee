"""Names that students type do not push a figure aside, and nothing is cut or overlaps."""

from itertools import combinations

import pytest
import torch

from course.analysis.errors.mistakes import ErrorSet, Mistake
from course.analysis.scores import calibration, predictions
from course.plots.style import named

LONG = "a very long bucket name, such as a student types it in while looking at a mistake"


@pytest.fixture
def errors() -> ErrorSet:
    """Twelve mistakes; every other one in a bucket with a long name."""
    mistakes = [Mistake(place, torch.rand(1, 8, 8), 4, 9, 0.9, 0.05) for place in range(12)]
    tags = {place: LONG for place in range(0, 12, 2)} | {1: "blur"}
    return ErrorSet(mistakes, 12, 100, tuple("0123456789"), tags=tags)


def inside(figure, text) -> bool:
    box = text.get_window_extent(figure.canvas.get_renderer())
    return bool(figure.bbox.padded(1).contains(box.x0, box.y0)) and bool(
        figure.bbox.padded(1).contains(box.x1, box.y1)
    )


def drawn(figure):
    """The figure laid out, with a canvas that can measure text."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(figure).draw()
    return figure


def test_buckets_under_the_mistakes_do_not_run_into_each_other(errors):
    figure = drawn(errors.plot(12))
    labels = [ax.xaxis.label for ax in figure.axes if ax.get_visible()]
    boxes = [label.get_window_extent(figure.canvas.get_renderer()) for label in labels]
    assert len(boxes) == 12
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))


def test_no_word_of_the_buckets_is_cut(errors):
    figure = drawn(errors.table().plot())
    (ax,) = figure.axes
    assert ax.get_position().width > 0.5
    assert all(inside(figure, text) for text in [ax.xaxis.label, *ax.texts, *ax.get_yticklabels()])


def test_the_legend_of_the_reliability_diagram_covers_no_point():
    generator = torch.Generator().manual_seed(0)
    targets = torch.randint(3, (300,), generator=generator)
    logits = 0.5 * torch.nn.functional.one_hot(targets, 3) + 0.1 * torch.randn(
        300, 3, generator=generator
    )  # right nearly always and never sure: the points lie high
    figure = drawn(calibration(predictions(logits, targets)).plot())
    (ax,) = figure.axes
    legend = ax.get_legend().get_window_extent(figure.canvas.get_renderer())
    assert not legend.overlaps(ax.get_window_extent())


def test_a_name_is_put_on_few_short_lines():
    assert named("blur") == "blur"
    assert named(LONG, 28) == "a very long bucket name,\nsuch as a student types it …"
    assert max(map(len, named("x" * 100, 20).splitlines())) <= 20
