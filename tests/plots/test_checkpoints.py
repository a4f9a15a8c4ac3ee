"""The figures about checkpoints show the numbers they were given, 0 at the foot of the axis."""

import pytest
from matplotlib.colors import to_hex, to_rgb

from course.plots.checkpoints import (
    FLOOR,
    FOUND,
    WORD,
    plot_distances,
    plot_instants,
    plot_repeats,
    plot_sizes,
)


def test_each_resume_is_a_line_and_zero_lies_at_the_foot():
    (ax,) = plot_distances({"nothing": [0.0, 0.0], "schedule": [0.0, 0.02]}).axes
    assert [list(line.get_ydata()) for line in ax.lines] == [[FLOOR, FLOOR], [FLOOR, 0.02]]
    assert list(ax.lines[0].get_xdata()) == [1, 2] and ax.get_yscale() == "log"
    assert ax.get_yticklabels()[0].get_text() == "0"
    with pytest.raises(ValueError, match="7 runs"):
        plot_distances({str(n): [1.0] for n in range(7)})


def test_a_repeat_with_the_same_bits_is_called_so():
    (ax,) = plot_repeats({"again": 0.0, "another seed": 0.4}).axes
    assert [bar.get_width() for bar in ax.patches] == [FLOOR, 0.4]
    assert [text.get_text() for text in ax.texts] == ["0: the same bits", "0.4"]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["again", "another seed"]


def test_sizes_are_stacked_in_units_of_the_weights():
    (ax,) = plot_sizes({"SGD": {"weights": 100, "averages": 0},
                        "Adam": {"weights": 100, "averages": 205}}).axes  # fmt: skip
    assert [bar.get_width() for bar in ax.patches] == pytest.approx([1, 0, 1, 2.05])
    assert ax.patches[3].get_x() == 1
    assert [text.get_text() for text in ax.texts] == ["1.00 times", "3.05 times"]


def test_every_look_is_a_box_with_its_word_and_colour():
    (ax,) = plot_instants({"direct": ["old", "cut off", "new"], "renamed": ["old", "new"]}).axes
    assert [text.get_text() for text in ax.texts] == ["old", "cut off", "new", "old", "new"]
    drawn = [to_hex(box.get_facecolor()).upper() for box in ax.patches]
    assert drawn == [FOUND[word][0] for word in ("old", "cut off", "new", "old", "new")]


@pytest.mark.parametrize("colour", [colour for colour, _ in FOUND.values()])
def test_words_can_be_read_on_their_colour(colour):
    def luminance(name):
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(name)]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    assert (luminance(colour) + 0.05) / (luminance(WORD) + 0.05) > 4.5
