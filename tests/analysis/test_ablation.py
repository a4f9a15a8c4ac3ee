"""Ablations: real runs on digits, the statistics against SciPy, and a process killed half way."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn
from torch.utils.data import DataLoader, Subset, SubsetRandomSampler, TensorDataset

from course.analysis import Ablation, NotComparableError, ablate, one_at_a_time, read_ablation
from course.analysis.ablation import AblationRun, Protocol, paired_interval
from course.analysis.curves import read_curves
from course.data import load
from course.data.loading import InMemoryLoader
from course.engine import Callback, Trainer, read_run

DIGITS = load("digits")
BASELINE = {"lr": 0.02, "hidden": 16, "label_smoothing": 0.0}


def build(*, seed, lr, hidden, label_smoothing=0.0, rows=300, loaders=None):
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr, momentum=0.9)
    criterion = nn.CrossEntropyLoss(label_smoothing=label_smoothing)
    train = InMemoryLoader(DIGITS.train_inputs[:rows], DIGITS.train_targets[:rows], 32, seed=seed)
    val = InMemoryLoader(DIGITS.val_inputs, DIGITS.val_targets, 256, shuffle=False)
    return Trainer(model, criterion, optimizer), *(loaders or (train, val))


class Counting:
    """`build` that remembers for which runs it was called."""

    def __init__(self, make=build):
        self.make, self.calls = make, []

    def __call__(self, **options):
        self.calls.append(options)
        return self.make(**options)


def study(folder, make=build, changes=None, seeds=(0, 1, 2), baseline=BASELINE, **options):
    changes = changes or {"bigger": {"hidden": 64}, "tiny lr": {"lr": 1e-4}}
    options = {"epochs": 3, "progress": False} | options
    return ablate(make, baseline, changes, folder, seeds=seeds, **options)


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    changes = {
        "bigger": {"hidden": 64},
        "tiny lr": {"lr": 1e-4},
        "a little smoothing": {"label_smoothing": 0.01},
        "too large lr": {"lr": 1e30},
        "bigger and smoothed": {"hidden": 64, "label_smoothing": 0.01},
    }
    folder = tmp_path_factory.mktemp("ablation")
    return study(folder, changes=changes, seeds=range(6), epochs=4), folder


def test_known_changes_get_their_verdicts(digits):
    table, _ = digits
    verdicts = {row.name: row.verdict for row in table.rows}
    assert verdicts["bigger"] == "likely useful", str(table)
    assert verdicts["tiny lr"] == "harmful", str(table)
    assert verdicts["a little smoothing"] == "within noise", str(table)
    assert verdicts["too large lr"] == "harmful" and "diverged with 6 of 6" in str(table)
    assert table.ranked[0].name in ("bigger", "bigger and smoothed")
    assert table.ranked[-1].name == "tiny lr"


def test_the_numbers_are_scipys(digits):
    table, _ = digits
    base, bigger = table["baseline"].values, table["bigger"].values
    paired = stats.ttest_rel([bigger[s] for s in base], [base[s] for s in base])
    assert table["bigger"].difference == pytest.approx(np.mean(list(bigger.values()))
                                                       - np.mean(list(base.values())))  # fmt: skip
    alone = paired.confidence_interval(0.95)
    assert table["bigger"].interval_alone == pytest.approx((alone.low, alone.high))
    together = paired.confidence_interval(1 - 0.05 / 5)
    assert table["bigger"].interval == pytest.approx((together.low, together.high))


def test_the_interaction_is_what_both_give_beyond_the_sum(digits):
    table, _ = digits
    beyond = table["bigger and smoothed"].difference - (
        table["bigger"].difference + table["a little smoothing"].difference
    )
    assert any(f"{beyond:+.4g} beyond the sum" in note for note in table.notes)


def test_every_run_is_the_engines_own(digits):
    """A run made by hand with the same seed gives the same numbers."""
    table, folder = digits
    torch.manual_seed(2)
    trainer, train, val = build(seed=2, **BASELINE)
    trainer.seed = 2
    history = trainer.fit(train, val, epochs=4, progress=False)
    assert table["baseline"].values[2] == history[-1]["val_accuracy"]
    records = [read_run(path) for path in (folder / "runs").glob("baseline-seed2-*")]
    assert records[0].content["settings"]["variant"] == "baseline"
    assert read_curves(records[0].path).verdict


def test_an_ablation_leaves_the_random_numbers_of_its_caller_alone(tmp_path):
    before = torch.get_rng_state()
    study(tmp_path, changes={"bigger": {"hidden": 32}}, seeds=(0, 1), epochs=1)
    assert torch.equal(before, torch.get_rng_state())


def test_finished_runs_are_not_run_again_and_new_ones_join_them(tmp_path):
    first = study(tmp_path, changes={"bigger": {"hidden": 64}}, epochs=1)
    again = Counting()
    assert str(study(tmp_path, again, changes={"bigger": {"hidden": 64}}, epochs=1)) == str(first)
    assert again.calls == []
    changes = {"bigger": {"hidden": 64}, "tiny lr": {"lr": 1e-4}}
    wider = study(tmp_path, again, changes=changes, epochs=1, seeds=(0, 1, 2, 3))
    assert len(again.calls) == 3 + 3  # the new variant's three, and the new seed's three
    assert wider["bigger"].values | first["bigger"].values == wider["bigger"].values


CHILD = """
import sys, time
sys.path[:0] = [{root!r}, {here!r}]
import test_ablation as t
t.slow_study({folder!r}, log={log!r}, pause=0.1)
"""


class Pause(Callback):
    def __init__(self, pause):
        self.pause = pause

    def on_epoch_end(self, trainer):
        time.sleep(self.pause)


def slow_study(folder, *, log, pause):
    def make(**options):
        with open(log, "a") as file:
            file.write(f"{options['hidden']} {options['seed']}\n")
        trainer, *loaders = build(**options)
        trainer.callbacks.append(Pause(pause))
        return trainer, *loaders

    return study(folder, make, changes={"bigger": {"hidden": 64}}, epochs=5)


@pytest.mark.slow
def test_a_killed_ablation_goes_on_where_it_was(tmp_path):
    folder, log = tmp_path / "killed", tmp_path / "log"
    here = Path(__file__).parent
    code = CHILD.format(root=str(here.parents[1]), here=str(here), folder=str(folder), log=str(log))
    child = subprocess.Popen([sys.executable, "-c", code])
    try:
        deadline = time.monotonic() + 60
        while len(list(folder.glob("*.json"))) < 3 and time.monotonic() < deadline:
            time.sleep(0.02)
        with pytest.raises(ValueError, match="another process is running this ablation"):
            study(folder, changes={"bigger": {"hidden": 64}}, epochs=5)
        time.sleep(0.25)  # into the fourth run, past a checkpoint
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    finished = {path: path.stat().st_mtime_ns for path in folder.glob("*.json")}
    assert 3 <= len(finished) < 6
    begun = log.read_text().splitlines()
    assert len(set(begun)) == len(begun)

    whole = slow_study(folder, log=log, pause=0)
    assert {path: path.stat().st_mtime_ns for path in finished} == finished
    resumed = log.read_text().splitlines()[len(begun) :]
    assert len(resumed) == 6 - len(finished)
    never_killed = slow_study(tmp_path / "whole", log=tmp_path / "log2", pause=0)
    assert [row.values for row in whole.rows] == [row.values for row in never_killed.rows]
    cut_off = next(r for r in (folder / "runs").iterdir() if read_run(r).content["resumed"])
    assert f"seed{begun[-1].split()[1]}" in cut_off.name  # it went on inside the run


def test_a_half_written_file_counts_as_not_run(tmp_path):
    study(tmp_path, changes={"bigger": {"hidden": 64}}, seeds=(0, 1), epochs=1)
    last = next(tmp_path.glob("bigger-seed1-*.json"))
    last.rename(last.with_name(last.name + ".partial"))
    again = Counting()
    study(tmp_path, again, changes={"bigger": {"hidden": 64}}, seeds=(0, 1), epochs=1)
    assert [(call["hidden"], call["seed"]) for call in again.calls] == [(64, 1)]


def split_by_seed(*, seed, **settings):
    order = torch.randperm(len(DIGITS.train_targets))
    pool = TensorDataset(DIGITS.train_inputs, DIGITS.train_targets)
    parts = Subset(pool, order[:300].tolist()), Subset(pool, order[300:600].tolist())
    return build(seed=seed, loaders=[DataLoader(part, 64) for part in parts], **settings)


def sampled_by_seed(*, seed, **settings):
    order = torch.randperm(600)
    pool = TensorDataset(DIGITS.train_inputs, DIGITS.train_targets)
    loaders = [
        DataLoader(pool, 64, sampler=SubsetRandomSampler(part.tolist()))
        for part in (order[:300], order[300:])
    ]
    return build(seed=seed, loaders=loaders, **settings)


class Unknown(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return DIGITS.train_inputs[index], DIGITS.train_targets[index]


def of_unknown_data(*, seed, **settings):
    loader = DataLoader(Unknown(), 64)
    return build(seed=seed, loaders=[loader, loader], **settings)


@pytest.mark.parametrize("make", [split_by_seed, sampled_by_seed])
def test_a_split_that_changes_with_the_seed_is_refused_before_it_is_trained_on(make, tmp_path):
    with pytest.raises(NotComparableError, match=r"seed 1: its train data are .* Draw the split"):
        study(tmp_path, make, changes={"bigger": {"hidden": 64}}, epochs=1)
    assert not list(tmp_path.glob("*seed1*.json"))


def test_data_of_which_nothing_is_known_are_refused(tmp_path):
    with pytest.raises(NotComparableError, match="an attribute `identity`"):
        study(tmp_path, of_unknown_data, epochs=1)


def test_more_data_is_a_change_only_where_it_is_said(tmp_path):
    baseline = {"lr": 0.02, "hidden": 16, "rows": 100}
    options = {"baseline": baseline, "changes": {"more data": {"rows": 1000}}, "epochs": 2}
    with pytest.raises(NotComparableError, match="same_train=False"):
        study(tmp_path, **options)
    table = study(tmp_path, same_train=False, **options)
    assert table["more data"].verdict == "likely useful"
    with pytest.raises(NotComparableError, match="same_train=False"):
        read_ablation(tmp_path)


def test_runs_on_disk_whose_validation_data_differ_are_not_ranked(tmp_path):
    study(tmp_path, changes={"bigger": {"hidden": 64}}, seeds=(0, 1), epochs=1)
    file = next(tmp_path.glob("bigger-seed1-*.json"))
    content = json.loads(file.read_text())
    content["data"]["validation"]["hash"] = "0123456789abcdef"
    file.write_text(json.dumps(content))
    with pytest.raises(NotComparableError, match="bigger, seed 1: its validation data are 0123"):
        read_ablation(tmp_path)
    with pytest.raises(NotComparableError, match="validation data"):
        study(tmp_path, changes={"bigger": {"hidden": 64}}, seeds=(0, 1), epochs=1)


def seed_unused(*, seed, **settings):
    torch.manual_seed(0)
    trainer, *_ = build(seed=0, **settings)
    trainer.seed = seed
    return trainer, *build(seed=0, **settings)[1:]


def test_a_seed_that_build_does_not_use_is_noticed(tmp_path):
    table = study(tmp_path, seed_unused, changes={"bigger": {"hidden": 64}}, epochs=1)
    assert table["bigger"].verdict == "undecided"
    assert "does build use the seed?" in table.notes[0]


def test_a_trainer_with_a_seed_of_its_own_is_refused(tmp_path):
    def fixed(**options):
        trainer, *loaders = build(**options)
        trainer.seed = 7
        return trainer, *loaders

    with pytest.raises(
        ValueError, match="in the run with seed 0, build made a Trainer with seed 7"
    ):
        study(tmp_path, fixed)


@pytest.mark.parametrize(
    "options,message",
    [
        ({"seeds": (0,)}, "at least 2 different"),
        ({"seeds": (0, 0)}, "at least 2 different"),
        (
            {"changes": {"both": {"lr": 0.1, "hidden": 32}}},
            "could not be attributed to any one of them",
        ),
        ({"changes": {"none": {"lr": 0.02}}}, "changes nothing"),
        ({"changes": {"dropout": {"dropout": 0.5}}}, "baseline does not have"),
        ({"changes": {"baseline": {"lr": 0.1}}}, "none called 'baseline'"),
        ({"changes": {"model": {"hidden": nn.Linear(1, 1)}}}, "plain numbers, strings"),
        ({"mode": "higher"}, "mode = 'higher'"),
        ({"at": "first"}, "at = 'first'"),
        ({"epochs": 0}, "at least 1"),
        ({"metric": "val_f1"}, "no such number"),
    ],
)
def test_what_cannot_be_compared_is_said_before_it_is_run(options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        study(tmp_path, **options)


def drawn_runs(values, mode="max"):
    """Runs as files hold them, with drawn numbers: values[variant][seed]."""
    return [
        AblationRun(
            variant=name,
            settings={"change": name},
            seed=seed,
            protocol=vars(Protocol(epochs=1, mode=mode)),
            data={part: {"num_examples": 9, "hash": "a"} for part in ("train", "validation")},
            value=value,
        )
        for name, of in values.items()
        for seed, value in enumerate(of)
    ]


@pytest.mark.parametrize("num_variants", [1, 8])
def test_a_change_that_does_nothing_is_called_useful_or_harmful_as_rarely_as_promised(num_variants):
    """At 95 %, at most 5 tables of 100 should claim anything; 3 standard errors are left."""
    source, tables = np.random.default_rng(0), 300
    claimed = 0
    for _ in range(tables):
        luck = 80 + 2 * source.standard_normal(3)
        names = ["baseline", *(f"variant {i}" for i in range(num_variants))]
        table = Ablation.of(drawn_runs({n: luck + source.standard_normal(3) for n in names}))
        claimed += any(row.verdict != "within noise" for row in table.rows[1:])
    assert claimed / tables <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / tables)


def test_pairing_by_seed_finds_what_the_luck_of_seeds_would_hide():
    luck = np.array([70.0, 80.0, 90.0, 75.0])
    values = {"baseline": luck, "better": luck + np.array([1.0, 1.1, 0.9, 1.05])}
    assert Ablation.of(drawn_runs(values))["better"].verdict == "likely useful"
    assert stats.ttest_ind(values["better"], luck).pvalue > 0.5


def test_where_lower_is_better_a_fall_is_useful():
    values = {"baseline": [0.50, 0.52, 0.51], "better": [0.40, 0.43, 0.41]}
    assert Ablation.of(drawn_runs(values, "min"))["better"].verdict == "likely useful"
    assert Ablation.of(drawn_runs(values, "max"))["better"].verdict == "harmful"


def test_among_many_variants_one_that_would_count_alone_is_told_so():
    values = {"baseline": [80.0, 81.0, 82.0], "lucky": [81.0, 82.2, 82.9]}
    assert Ablation.of(drawn_runs(values))["lucky"].verdict == "likely useful"
    rest = {f"v{i}": [80.1, 80.9, 82.0] for i in range(9)}
    row = Ablation.of(drawn_runs(values | rest))["lucky"]
    assert (
        row.verdict == "within noise" and "on its own it would count as likely useful" in row.note
    )


def test_the_lectures_numbers_give_its_differences():
    values = {"baseline": [82.0] * 2, "augmentation": [84.1] * 2, "bigger": [82.4] * 2,
              "both": [84.0] * 2}  # fmt: skip
    runs = [
        replace(run, settings={"aug": run.variant in ("augmentation", "both"),
                               "big": run.variant in ("bigger", "both")})
        for run in drawn_runs(values)
    ]  # fmt: skip
    table = Ablation.of(runs)
    assert [round(row.difference, 6) for row in table.rows[1:]] == [2.1, 0.4, 2.0]  # as printed
    assert any("-0.5 beyond the sum of its parts" in note for note in table.notes)
    assert {row.verdict for row in table.rows[1:]} == {"undecided"}  # no noise, nothing to judge by


def test_the_interval_needs_no_spread_to_be_a_number():
    assert paired_interval([0.5, 0.5, 0.5], 0.95) == (0.5, 0.5)
    assert Ablation.of(drawn_runs({"baseline": [1.0, 2.0], "same": [1.0, 2.0]}))[
        "same"
    ].verdict == ("within noise")


def test_a_table_without_its_baseline_or_with_two_protocols_is_refused():
    with pytest.raises(NotComparableError, match="none of the 2 runs is the baseline"):
        Ablation.of(drawn_runs({"bigger": [1.0, 2.0]}))
    runs = drawn_runs({"baseline": [1.0, 2.0], "bigger": [1.0, 2.0]})
    with pytest.raises(NotComparableError, match="protocol"):
        Ablation.of([*runs[:3], replace(runs[3], protocol={"epochs": 2})])


def test_a_baseline_that_diverged_leaves_nothing_to_compare():
    table = Ablation.of(drawn_runs({"baseline": [1.0, None, 3.0], "other": [2.0, 3.0, 4.0]}))
    assert table["other"].verdict == "undecided" and "diverged" in table["other"].note


def test_a_table_goes_to_text_json_notebook_and_picture(digits):
    table, folder = digits
    content = json.loads(json.dumps(table.to_json(), allow_nan=False))
    assert [row["name"] for row in content["rows"]][:2] == ["baseline", "bigger"]
    assert "Bonferroni" in str(table) and "<td>likely useful</td>" in table._repr_html_()
    assert [row.verdict for row in read_ablation(folder).rows] == [r.verdict for r in table.rows]
    figure = table.plot()
    words = [text.get_text() for text in figure.axes[0].texts]
    assert words[:2] == ["likely useful", "harmful"]  # never by colour alone
    markers = {line.get_marker() for line in figure.axes[0].lines}
    assert {"^", "v", "o"} <= markers


def test_one_at_a_time_makes_a_variant_for_every_other_value():
    changes = one_at_a_time(BASELINE, lr=[0.02, 0.1], hidden=[8, 64])
    assert changes == {
        "lr = 0.1": {"lr": 0.1}, "hidden = 8": {"hidden": 8}, "hidden = 64": {"hidden": 64},
    }  # fmt: skip


def test_a_bar_shows_the_runs(tmp_path, capsys):
    study(tmp_path, changes={"bigger": {"hidden": 64}}, seeds=(0, 1), epochs=1, progress=True)
    assert "4/4" in capsys.readouterr().err
