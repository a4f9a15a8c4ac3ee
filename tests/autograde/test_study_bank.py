"""03f.study: a turned sign is seen where a change is known to help."""

from autograde.bank.study import HELPS, IMAGE, in_images
from course.analysis.study import CHANGES, points
from course.data import load


def test_a_change_that_is_said_to_help_does_and_its_turned_sign_is_seen():
    data = load("digits", val_share=0.8)
    baseline = points(data, 0)
    for change in HELPS:
        gain = points(data, 0, **CHANGES[change]) - baseline
        assert gain > 0
        differences = [gain + images * IMAGE for images in range(6)]
        assert in_images({"change": change, "differences": differences}) == ""
        turned = in_images({"change": change, "differences": [-gain for gain in differences]})
        assert "variant minus baseline" in turned
