"""What is called printed is printed: each value, where its source has it, in the source's digits.

`printed_values.txt` lists them for readers without the sources. After a change:

    python -m tests.worked.test_provenance
"""

import re
from pathlib import Path

import pytest

from course.ledger import find_row
from course.ledger.rows import place_of
from course.report import short
from course.worked import Step, compute_all
from course.worked.production import count_lines
from tests.sources import passage, raw_text

LIST = Path(__file__).with_name("printed_values.txt")


def printed_steps() -> list[tuple[str, Step]]:
    return [
        (numeric.entry.id, step)
        for numeric in compute_all()
        for step in numeric.steps
        if step.provenance == "printed"
    ]


def place(id_: str, step: Step) -> tuple[str, str]:
    return place_of(step.at) if step.at else find_row(id_).places[0]


def written(step: Step) -> str:
    """The value in the source's digits: as the step says, or as the number itself is written."""
    return step.as_printed or "; ".join(_digits(step.printed))


def _digits(value: object) -> list[str]:
    if isinstance(value, list):
        return [text for item in value for text in _digits(item)]
    return [short(value, 10)]


def lines() -> list[str]:
    found = []
    for id_, step in printed_steps():
        source, where = place(id_, step)
        found.append(f"{id_} | {written(step)} | {source} {where} | {step.what}")
    return found


def forms(text: str) -> set[str]:
    """Ways of writing a number that say the same: 1,000 or 1000, 2.0 or 2, −8 or -8."""
    found = {text, text.replace(",", ""), text.replace("-", "−"), text.replace("-", "−").strip()}
    found |= {f"{form}.0" for form in found if re.fullmatch(r"[-−]?\d+", form)}
    return found


def stands_in(text: str, where: str) -> bool:
    """The text as a whole: 16 does not stand in 160."""
    return any(
        re.search(rf"(?<![\d.]){re.escape(form)}(?![\d]|\.\d)", where) for form in forms(text)
    )


def test_the_list_of_printed_values_is_in_step():
    assert LIST.read_text("utf-8").splitlines() == lines(), "python -m tests.worked.test_provenance"


@pytest.mark.parametrize("line", LIST.read_text("utf-8").splitlines() if LIST.exists() else [])
def test_a_value_called_printed_stands_in_its_place(line):
    _, digits, where, _ = line.split(" | ")
    text = passage(*place_of(where))
    absent = [part for part in digits.split("; ") if not stands_in(part, text)]
    assert not absent, f"{absent} not in {where}"


def test_only_printed_values_are_compared_and_rebuilt_ones_say_how():
    for numeric in compute_all():
        kinds = {step.provenance for step in numeric.steps}
        assert bool(numeric.reconstructed) >= ("rebuilt" in kinds), numeric.entry.id
        for step in numeric.steps:
            assert (step.provenance == "rebuilt") == (step.verdict == "rebuilt"), step
            assert (step.provenance == "printed") == (
                step.verdict in ("agrees", "lecture differs")
            ), step


def test_the_chapters_script_has_as_many_lines_as_n59_says():
    text = raw_text("chapter")
    text = text[text.index("def train(config):") : text.index("That's 45 lines")]
    assert count_lines(text.replace("\N{NO-BREAK SPACE}", " ")) == (43, 38)


if __name__ == "__main__":
    LIST.write_text("\n".join(lines()) + "\n", "utf-8")
