"""The worked numerics keep the contract of course/worked/registry.py, present and future ones."""

import inspect
import json
import subprocess
import sys

import pytest
import torch

from course.catalogue import UnknownIdError
from course.ledger import rows
from course.worked import Step, Worked, catalogue, compute, compute_all
from course.worked.show import as_page, grouped
from course.worked.step import close

IDS = list(catalogue())
LEDGER_IDS = [id for id in rows() if id.startswith("N")]
LECTURE_DIFFERS = ["N13", "N59"]
WITH_FIGURE = ["N07", "N15", "N21", "N22", "N24", "N25", "N26", "N27", "N28", "N35"]
SEEDED = [id for id in IDS if "seed" in inspect.signature(catalogue()[id].load()).parameters]


def moved(before: Worked, after: Worked) -> set[str]:
    """Names, as in the first, of steps whose value is another in the second; row by row."""
    rows = zip(before.steps, after.steps, strict=False)
    return {old.what for old, new in rows if old.computed != new.computed}


def test_every_row_of_the_ledger_is_registered_and_nothing_else():
    assert IDS == LEDGER_IDS


def test_the_lecture_differs_where_the_ledger_says_so():
    assert [id for id in IDS if compute(id).verdict == "lecture differs"] == LECTURE_DIFFERS


@pytest.mark.parametrize("id", IDS)
def test_every_numeric_agrees_or_explains_where_the_lecture_differs(id):
    numeric = compute(id)
    assert numeric.steps
    assert [step.what for step in numeric.steps if step.verdict == "differs"] == []


@pytest.mark.parametrize("id", IDS)
def test_no_numeric_prints_its_own_answer_back(id):
    """Other inputs, other results: a step that both computations have must move."""
    numeric = catalogue()[id].load()
    assert moved(numeric(), numeric(**numeric.perturb))


@pytest.mark.filterwarnings("ignore")  # some variations make odd shapes
@pytest.mark.parametrize("id", IDS)
def test_every_printed_value_is_computed_from_the_inputs(id):
    """Varying the inputs one by one moves every step that the lecture prints a value for."""
    numeric = catalogue()[id].load()
    before = numeric()
    printed = {step.what for step in before.steps if step.printed is not None}
    still = printed - moved_by_some_variation(numeric, before) - INVARIANTS.get(id, set())
    assert not still


# True of every input, so no variation moves them: identities, and constants of torch itself.
INVARIANTS = {
    "N07": {"weighted batch"},
    "N14": {"dL/db"},
    "N34": {
        "torch's first scale",
    },
    "N35": {
        *("FP32: bits", "FP16: bits", "FP16: largest", "BF16: largest, power of ten"),
        *(f"{name}: decimal digits, as a range" for name in ("FP16", "BF16")),
    },
}


def moved_by_some_variation(numeric, before: Worked) -> set[str]:
    found = set()
    for name, parameter in inspect.signature(numeric).parameters.items():
        for value in variations(parameter.default):
            try:
                found |= moved(before, numeric(**{name: value}))
            except ValueError:
                continue  # an input that makes no example
    return found


def variations(value):
    """Nearby inputs: numbers a little larger or doubled, one element of a tuple at a time."""
    if isinstance(value, (bool, str)):
        return ["stop_index"] if value == "production_loop" else []
    if isinstance(value, int):
        return [value + 1, 2 * value, 1]
    if isinstance(value, float):
        return [value * 1.25 + 0.01, -value]
    if isinstance(value, tuple):
        return [
            (*value[:place], other, *value[place + 1 :])
            for place, item in enumerate(value)
            for other in variations(item)
        ] + [value[:-1]]
    return []


@pytest.mark.parametrize("id", SEEDED)
def test_another_seed_gives_the_same_verdicts(id):
    numeric = catalogue()[id].load()
    first = {step.what: step.verdict for step in numeric().steps}
    second = {step.what: step.verdict for step in numeric(seed=1).steps}
    assert second == first


def test_all_can_be_computed_with_one_seed():
    assert [numeric.inputs.get("seed", 7) for numeric in compute_all(seed=7)] == [7] * len(IDS)


def test_an_example_can_be_computed_with_other_inputs():
    assert compute("N50", larger=128).steps[0].computed == 4.0
    with pytest.raises(ValueError, match="N50 has no input 'big'; it takes batch_size, larger"):
        compute("N50", big=128)


@pytest.mark.parametrize("id", SEEDED)
def test_seeds_are_kept_to_oneself(id):
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    compute(id)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize("id", IDS)
def test_every_numeric_has_the_same_verdicts_on_a_gpu(id):
    with torch.device("cuda"):
        on_gpu = compute(id)
    assert [s.verdict for s in on_gpu.steps] == [s.verdict for s in compute(id).steps]


def test_figures_are_there_where_the_ledger_names_one():
    assert [id for id in IDS if compute(id).figure] == WITH_FIGURE


@pytest.mark.parametrize("id", WITH_FIGURE)
def test_every_figure_draws(id):
    figure = compute(id).plot()
    figure.draw_without_rendering()
    assert any(ax.has_data() or ax.texts for ax in figure.axes)


def test_a_numeric_without_a_figure_says_so():
    with pytest.raises(ValueError, match="N17 has no figure"):
        compute("N17").plot()


@pytest.mark.parametrize("id", IDS)
def test_every_numeric_prints_renders_and_goes_to_json(id):
    numeric = compute(id)
    assert numeric.entry.title in str(numeric)
    html = numeric._repr_html_()
    assert "<table" in html and html.count("<td") == html.count('<td style="text-align:left;')
    document = json.loads(json.dumps(numeric.to_json(), allow_nan=False))
    assert document["id"] == id and len(document["steps"]) == len(numeric.steps)


def test_a_printed_value_that_we_do_not_reach_is_our_fault_unless_explained():
    assert Step("loss", 1.0, 2.0).verdict == "differs"
    assert Step("loss", 1.0, 2.0, correction="The slide adds twice.").verdict == "lecture differs"
    assert Step("loss", 1.0).verdict == "lecture silent"
    assert Step("loss", 1.004, 1.0, tolerance=0.005).verdict == "agrees"


def test_closeness_looks_into_lists_and_at_their_shape():
    assert close([[1.0, 2.0]], [[1.0, 2.0 + 1e-12]], 1e-9)
    assert not close([1.0], [1.0, 2.0], 1e-9)
    assert not close([1.0], 1.0, 1e-9)
    assert close(float("nan"), float("nan"), 0.0) and not close(float("inf"), 1.0, 1e9)


@pytest.mark.parametrize("typed", ["n20", "N-20", "N 20"])
def test_an_id_may_be_typed_loosely(typed):
    assert compute(typed).entry.id == "N20"


def test_an_unknown_id_suggests_the_nearest():
    with pytest.raises(UnknownIdError, match=r"'N119' is not the id .*nearest: N19"):
        compute("N119")


@pytest.mark.parametrize(
    "id, says",
    [
        ("F26", "course claims F26"),
        ("k17", "course claims k17"),
        (20, "e.g. 'N20'"),
        (None, "a string"),
    ],
)
def test_an_id_of_another_kind_is_told_where_to_go(id, says):
    with pytest.raises(UnknownIdError, match=says):
        compute(id)


@pytest.mark.parametrize(
    "words, says",
    [
        ("worked --json --markdown", "--json and --markdown: use one at a time"),
        ("worked N20 --list", "--list shows all of them, but N20 is only one"),
        ("worked N20 --markdown", "--markdown shows all of them, but N20 is only one"),
        ("worked --seed -1", "seed = -1: expected a whole number"),
        ("claims F26 --markdown", "--markdown shows all of them, but F26 is only one"),
        ("claims --list --markdown", "--list and --markdown: use one at a time"),
        ("claims F26 --html /", "--html /: a directory"),
    ],
)
def test_options_that_would_be_lost_in_silence_are_refused(words, says, monkeypatch, capsys):
    from course import cli

    monkeypatch.setattr(sys, "argv", ["course", *words.split()])
    with pytest.raises(SystemExit) as left:
        cli.main()
    shown = capsys.readouterr()
    assert left.value.code == 2 and not shown.out
    assert shown.err.startswith(f"course: {says}") and shown.err.count("\n") == 1


def run_course(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "course.cli", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_the_command_prints_one_numeric_as_json():
    result = run_course("worked", "N10", "--json")
    assert result.returncode == 0, result.stderr
    steps = {step["what"]: step["computed"] for step in json.loads(result.stdout)["steps"]}
    assert steps["loss after one step"] == pytest.approx(1.96601, abs=5e-6)


def test_an_unknown_id_on_the_command_line_is_one_line_and_exit_2():
    result = run_course("worked", "N999")
    assert result.returncode == 2
    assert result.stderr.startswith("course: 'N999' is not the id of a worked number")
    assert result.stderr.count("\n") == 1


def test_listing_does_not_import_torch():
    code = (
        "import sys; from course.cli import app\n"
        "from typer.testing import CliRunner\n"
        "out = CliRunner().invoke(app, ['worked', '--list']).output\n"
        "assert 'N19' in out and 'torch' not in sys.modules, sorted(sys.modules)[:5]"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_overview_begins_with_what_a_reader_can_look_up():
    found = grouped(map(compute, ("N05", "N14", "N01", "N10")))
    ids = {group: [worked.entry.id for worked in members] for group, members in found.items()}
    assert ids == {"printed": ["N01", "N10"], "rebuilt": ["N14"], "derived": ["N05"]}


@pytest.mark.parametrize("id", IDS)
def test_the_step_that_matters_is_one_of_its_own(id):
    numeric = compute(id)
    assert not numeric.tells or numeric.tells in [step.what for step in numeric.steps]


def test_the_page_of_all_numbers_is_whole_and_says_what_computes_each():
    text = as_page([compute("N05"), compute("N59")])
    assert text.index("id='N59'") < text.index("id='N05'")  # printed first
    assert "<td>790</td>" in text and "lecture differs</td>" in text
    assert "course/worked/production.py: script_length" in text
    assert "<script" not in text and "http" not in text
