"""What `course claims` prints: lines, blocks, JSON, and a page that needs nothing else."""

import dataclasses
import io
import json
import re
from html.parser import HTMLParser

import pytest

from course import report
from course.claims import command, compute, page, show
from course.claims import registry as claims_registry

SOME = ("F05", "F26", "F32", "F42", "F123", "F129")


@pytest.fixture(scope="module")
def trials():
    return [compute(id) for id in SOME]


@pytest.fixture
def only_some(monkeypatch):
    """The command tries these few claims instead of all."""
    known = {id: claims_registry.catalogue()[id] for id in SOME}
    monkeypatch.setattr(claims_registry, "catalogue", lambda: known)
    monkeypatch.setattr(command, "catalogue", lambda: known)


def run(*args, **kwargs) -> tuple[int, str]:
    out = io.StringIO()
    code = command.run_command(*args, out=out, progress=io.StringIO(), **kwargs)
    return code, out.getvalue()


def test_a_line_holds_id_verdict_title_and_the_number_that_decides(trials):
    lines = dict(zip(SOME, map(show.line, trials), strict=True))
    assert re.match(r"F26 +holds +backward\(\) adds to \.grad: .* = 8$", lines["F26"])
    assert "does not hold" in lines["F42"] and "needs GPU" in lines["F123"]
    assert all("\n" not in line for line in lines.values())


def test_a_trial_prints_its_evidence_and_renders_in_a_notebook(trials):
    text, html = str(trials[1]), trials[1]._repr_html_()
    for shown in (text, html):
        assert "backward() adds to .grad" in shown and "torch" in shown and "seed 0" in shown
    assert "<table" in html
    assert "   > gradient after the second backward: 8" in text


def test_the_text_of_a_trial_fits_the_terminal(trials):
    assert all(len(line) <= 100 for trial in trials for line in str(trial).splitlines())


def test_a_changed_verdict_is_marked_and_makes_the_exit_code_1(trials, monkeypatch):
    changed = dataclasses.replace(trials[1], expected="does not hold")
    assert show.line(changed).endswith("<< on record: does not hold")
    monkeypatch.setattr(command, "compute", lambda *a, **k: changed)
    assert run("F26")[0] == 1


def test_one_claim_as_json_has_numbers_versions_and_seed():
    code, out = run("F26", as_json=True, seed=3)
    document = json.loads(out)
    assert code == 0 and document["id"] == "F26" and document["number"] == 8.0
    assert document["seed"] == 3 and document["versions"]["torch"]


def test_all_claims_as_json_come_with_the_contradictions(only_some):
    code, out = run(as_json=True)
    document = json.loads(out, parse_constant=pytest.fail)  # no NaN, no Infinity
    assert code == 0 and [entry["id"] for entry in document["claims"]] == list(SOME)
    assert len(document["contradictions"]) == 39


def test_all_claims_as_text_end_with_a_count_and_the_contradictions(only_some):
    code, out = run()
    assert code == 0 and "6 claims: 2 holds, 1 holds if, 1 does not hold, 1 needs GPU" in out
    assert "K17   A missing no_grad() in validation (F46, F75)" in out


def test_a_contradiction_can_be_asked_for():
    assert "wastes one batch's graph" in run("k17")[1]
    assert json.loads(run("K17", as_json=True)[1])["decided_by"] == ["F46", "F75"]


def test_the_list_has_every_id():
    lines = run(list_only=True)[1].splitlines()
    assert len(lines) == 158 and lines[0].startswith("F01 ")
    assert len(json.loads(run(list_only=True, as_json=True)[1])) == 158


class Page(HTMLParser):
    """Collects ids, links and what a browser would fetch; notes unbalanced tags."""

    VOID = ("meta", "br")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids, self.links, self.fetched, self.open = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.ids += [attrs["id"]] if "id" in attrs else []
        self.links += [attrs["href"]] if tag == "a" else []
        self.fetched += (
            [tag] if tag in ("script", "link", "img", "iframe") or "src" in attrs else []
        )
        self.open += [] if tag in self.VOID else [tag]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_whole_and_fetches_nothing(only_some, tmp_path):
    file = tmp_path / "claims.html"
    run(html=file)
    text = file.read_text("utf-8")
    read = Page(text)
    assert not read.open and not read.fetched and "url(" not in text and "@import" not in text
    assert set(SOME) <= set(read.ids) and "K39" in read.ids
    assert all(link.startswith("#") and link[1:] in read.ids for link in read.links)


def test_the_page_escapes_what_was_measured(trials):
    measured = dataclasses.replace(trials[1].measured, note="<script>alert(1)</script>")
    text = page.page([dataclasses.replace(trials[1], measured=measured)])
    assert "<script>" not in text and "&lt;script&gt;alert(1)&lt;/script&gt;" in text


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (True, "yes"),
        (101770, "101,770"),
        (0.123456, "0.1235"),
        (1e-17, "1e-17"),
        ([1.0, "a"], "[1, a]"),
        ({"x": False}, "x: no"),
    ],
)
def test_numbers_are_short(value, shown):
    assert report.short(value) == shown


def test_what_did_not_raise_is_shown_as_nothing():
    assert report.short({"long [B]": "", "bool [B]": "RuntimeError"}) == (
        "long [B]: nothing, bool [B]: RuntimeError"
    )
    assert not any(re.search(r": (,|$)", line) for line in str(compute("F07")).splitlines())


def test_a_page_that_cannot_be_written_is_refused_before_anything_is_tried(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "compute", pytest.fail)
    monkeypatch.setattr(command, "compute_all", pytest.fail)
    for html, says in ((tmp_path, "a directory"), (tmp_path / "a" / "b.html", "mkdir -p")):
        with pytest.raises(ValueError, match=says):
            run(html=html)
        with pytest.raises(ValueError, match=says):
            run("F26", html=html)
    with pytest.raises(ValueError, match=r"K17 is a contradiction. Leave out the id"):
        run("K17", html=tmp_path / "claims.html")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("id", [None, "F26", "K17"])
def test_a_seed_or_device_that_cannot_be_is_refused_before_anything_is_tried(id, monkeypatch):
    monkeypatch.setattr(command, "compute", pytest.fail)
    monkeypatch.setattr(command, "compute_all", pytest.fail)
    for seed in (-1, 2**32, 1.5, "a", True, None):
        with pytest.raises(ValueError, match="expected a whole number from 0 to 4294967295"):
            run(id, seed=seed)
    with pytest.raises(ValueError, match=r"'mars' is not a device\. Use auto, cpu"):
        run(id, device="mars")


def test_a_count_reads_with_what_it_is_counted_of(trials):
    lines = dict(zip(SOME, map(show.line, trials), strict=True))
    assert "squared error: runs that become non-finite: 3 of 3" in lines["F32"]
    assert not any(re.search(r", of [0-9]+ = ", line) for line in lines.values())
    assert "squared error: runs that become non-finite: 3 of 3" in page.page(trials)


def test_the_page_says_under_which_condition_a_claim_holds():
    text = page.page([compute("F02"), compute("F26")])
    row = text.partition("<details>")[0]
    assert "holds if</td>" in text
    assert (
        "It holds if the buffer is persistent; with persistent=False it moves but is not saved."
        in row
    )
    assert text.count("It holds if the buffer is persistent") == 2  # in the row, in the evidence


def test_sentences_stand_to_the_left_in_a_notebook(trials):
    html = trials[0]._repr_html_()
    assert html.count("<td") == html.count('<td style="text-align:left;') > 0


def test_claims_can_be_chosen_by_verdict_and_by_part_of_the_sources():
    in_museum = command.chosen(None, "chapter c5")
    assert {"F32", "F48", "F65", "F100", "F121"} <= set(in_museum) and "F30" not in in_museum
    wrong = command.chosen("does not hold", "chapter c5")
    assert wrong and set(wrong) < set(in_museum) and "F32" not in wrong
    assert "F30" in command.chosen("does not hold", "lecture lr finder")
    with pytest.raises(ValueError, match=r"--verdict 'maybe': expected one of holds, holds if"):
        command.chosen("maybe", None)
    with pytest.raises(ValueError, match=r"--part 'book 3': start with lecture, module"):
        command.chosen(None, "book 3")
    with pytest.raises(ValueError, match="No claim matches --verdict any and --part essay nowhere"):
        command.chosen(None, "essay nowhere")


def test_a_choice_is_tried_without_the_rest():
    code, out = run(verdict="not decidable")
    assert code == 0 and "1 claims: 1 not decidable" in out and "K17" not in out


def test_the_verdict_stands_before_the_evidence_in_word_and_colour(trials):
    row = page.page(trials[:1]).partition("<tbody>")[2]
    assert row.index("class='v good'>holds</td>") < row.index("<details>")
    assert "\x1b[32mholds" in show.line(trials[1], colour=True)
    assert "\x1b" not in show.line(trials[1])


def test_a_claim_names_its_code_and_what_is_in_the_same_place(trials):
    text = str(trials[2])
    assert "tested by course/claims/step_order.py: missing_zero_grad" in text
    assert re.search(r"In the same place: .*B01", text) and "N58" in text
    html = page.page(trials)
    assert "course/claims/step_order.py: missing_zero_grad" in html
    assert "<a href='#K10'>K10</a>" in html
