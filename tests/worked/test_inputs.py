"""Other inputs than the lecture's: no lecture's number beside them, no traceback, no nonsense."""

import inspect
import re

import numpy as np
import pytest
import torch

from course.worked import catalogue, compute

IDS = list(catalogue())
BAD = (-1, 0, float("nan"), float("inf"), "abc", None, [], 1.5, True, (1,), (0, 0), ("a", "b"))


def signature_of(id: str) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(catalogue()[id].load()).parameters)


@pytest.mark.parametrize("id", IDS)
def test_the_lectures_numbers_stand_beside_its_own_inputs_only(id):
    numeric = catalogue()[id].load()
    other = numeric(**numeric.perturb)
    assert other.verdict == "lecture silent" and not other.reconstructed
    assert not any(step.printed is not None or step.correction for step in other.steps)
    assert set(other.lecture_inputs) == set(numeric.perturb)
    for text in (str(other), other._repr_html_()):
        assert "so its numbers are not compared with these" in " ".join(text.split())
    assert not numeric().lecture_inputs and "not compared with these" not in str(numeric())


def test_the_lectures_own_inputs_written_out_are_still_the_lectures():
    assert compute("N20", g=[3, 4], max_norm=1).verdict == "rebuilt"
    assert compute("N20", g=torch.tensor([3.0, 4.0]), max_norm=np.float64(1)).verdict == "rebuilt"


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("id", IDS)
def test_a_bad_input_is_refused_by_name_or_computed(id):
    for name, parameter in signature_of(id).items():
        for value in BAD:
            if parameter.default == value and not isinstance(value, bool):
                continue
            try:
                numeric = compute(id, **{name: value})
            except ValueError as error:
                assert f"{id}: {name}" in str(
                    error
                ) or f"{id} cannot be computed with {name}" in str(error)
            else:
                assert str(numeric) and not isinstance(value, bool)


@pytest.mark.parametrize("id", IDS)
def test_no_input_may_be_nan_or_a_word(id):
    for name, parameter in signature_of(id).items():
        for value in (float("nan"), float("inf"), True, *([] if name == "seed" else [None])):
            with pytest.raises(ValueError, match=f"^{id}: {name} = .*expected"):
                compute(id, **{name: value})
        if not isinstance(parameter.default, str):
            with pytest.raises(ValueError, match=f"^{id}: {name} = 'abc': expected"):
                compute(id, **{name: "abc"})


@pytest.mark.parametrize(
    "id, inputs, says",
    [
        ("N20", {"max_norm": -1}, r"N20: max_norm = -1: expected above 0\."),
        ("N01", {"batch_size": 2.5}, r"N01: batch_size = 2.5: expected a whole number"),
        ("N12", {"p": 1}, r"N12: p = 1: expected from 0 to below 1: a chance"),
        ("N47", {"wanted": (256,)}, r"N47: wanted = \[256\]: 1 items, expected 2\."),
        ("N24", {"buckets": (("blur", 0),)}, r"N24: buckets\[0\]\[1\] = 0: expected 1 or more"),
        ("N61", {"seed": -1}, r"N61: seed = -1: expected a whole number from 0 to"),
        ("N61", {"seed": 2**70}, r"N61: seed = .*: expected a whole number from 0 to"),
        ("N09", {"t": (1.0,)}, r"N09 cannot be computed with t = \[1.0\].*t has 1; each row"),
        (
            "N21",
            {"losses": (1.0, 2.0)},
            r"N21 cannot be computed with .*must fit together.*rates =",
        ),
    ],
)
def test_what_is_expected_is_said(id, inputs, says):
    with pytest.raises(ValueError, match=says):
        compute(id, **inputs)


@pytest.mark.parametrize("id", IDS)
def test_names_and_formulas_do_not_keep_a_number_that_was_changed(id):
    """Where a step shows an input's value of at least two digits, it shows the value it got."""
    for name, parameter in signature_of(id).items():
        value = parameter.default
        if name == "seed" or not isinstance(value, (int, float)) or len(f"{value:g}") < 2:
            continue
        other = value * 3 if isinstance(value, int) else value * 0.75
        try:
            numeric = compute(id, **{name: other})
        except ValueError:
            continue  # 3 times the classes, say, do not fit the rest
        rest = {f"{v:g}" for n, v in numeric.inputs.items() if n != name for v in numbers_in(v)}
        for old, new in zip(compute(id).steps, numeric.steps, strict=False):
            for text in (old.what, old.formula):
                if shows(f"{value:g}", text) and f"{value:g}" not in rest and text not in TRUE:
                    assert not shows(f"{value:g}", new.what + " " + new.formula), (name, text)


TRUE = {
    "factor for 100 points to 10",
    "loss after 100 steps",
    "loss · factor^100",
    "100 · padding / all",
    "100 · W / T",
}
"""Numbers that are not the input of the same value."""


def numbers_in(value) -> list[float]:
    if isinstance(value, tuple):
        return [number for item in value for number in numbers_in(item)]
    return [value] if isinstance(value, (int, float)) else []


def shows(number: str, text: str) -> bool:
    return re.search(rf"(?<![\d.]){re.escape(number)}(?![\d.])", text.replace(",", "")) is not None
