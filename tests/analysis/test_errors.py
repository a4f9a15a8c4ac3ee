"""Error analysis on digits and on small made-up models, against scikit-learn and closed forms."""

import csv
import io
import json
import math

import pytest
import torch
from sklearn import metrics
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from course.analysis.errors import UNTAGGED, ErrorSet, Mistake, collect_errors
from course.data.datasets import load
from course.data.loading import InMemoryLoader, make_loader
from course.worked.error_analysis import BUCKETS, ceiling_gains


@pytest.fixture(scope="module")
def digits():
    torch.manual_seed(0)
    data = load("digits")
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(15):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(data.train_inputs), data.train_targets).backward()
        optimizer.step()
    return model, data


def sequential(data, batch_size=50):
    return DataLoader(data.val_dataset, batch_size=batch_size)


def made(counts, num_examples, num_mistakes=None):
    """An error set with so many mistakes a bucket."""
    names = [name for name, count in counts for _ in range(count)]
    mistakes = [Mistake(i, torch.zeros(1), 0, 1, 0.9, 0.1) for i in range(len(names))]
    tags = dict(enumerate(names))
    return ErrorSet(mistakes, num_mistakes or len(names), num_examples, ("a", "b"), tags=tags)


def test_the_most_confident_mistakes_are_those_scikit_learn_finds(digits, device):
    model, data = digits
    model = model.to(device)
    errors = collect_errors(model, sequential(data), n=20)
    model.cpu()
    with torch.no_grad():
        probabilities = model(data.val_inputs).softmax(1)
    confidence, predicted = probabilities.max(1)
    wrong = (predicted != data.val_targets).nonzero()[:, 0]
    assert errors.num_mistakes == len(wrong) > 20
    assert errors.accuracy == pytest.approx(metrics.accuracy_score(data.val_targets, predicted))
    expected = wrong[confidence[wrong].argsort(descending=True)][:20]
    torch.testing.assert_close(
        torch.tensor([m.confidence for m in errors.mistakes]), confidence[expected]
    )
    for mistake in errors.mistakes:
        assert mistake.input.equal(data.val_inputs[mistake.index])
        assert mistake.target == data.val_targets[mistake.index]
        assert mistake.prediction == predicted[mistake.index] != mistake.target
        assert mistake.target_probability < mistake.confidence


def test_the_batch_size_changes_nothing(digits):
    model, data = digits
    few, many = (collect_errors(model, sequential(data, b), n=12) for b in (7, 360))
    assert [m.index for m in few.mistakes] == [m.index for m in many.mistakes]


def test_every_module_keeps_its_mode_also_after_an_exception():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Dropout())
    model[1].eval()
    modes = [module.training for module in model.modules()]
    running = model[1].running_mean.clone()
    collect_errors(model, [(torch.randn(4, 2), torch.tensor([0, 1, 0, 1]))])
    with pytest.raises(ValueError, match="nan"):
        collect_errors(model, [(torch.full((2, 2), math.nan), torch.tensor([0, 1]))])
    assert [module.training for module in model.modules()] == modes
    assert model[1].running_mean.equal(running)


def test_a_yes_or_no_model_with_one_logit():
    class Sign(nn.Module):
        def forward(self, inputs):
            return inputs

    inputs = torch.tensor([[3.0], [-1.0], [2.0], [-4.0]])
    errors = collect_errors(Sign(), [(inputs, torch.tensor([0.0, 0.0, 1.0, 1.0]))])
    assert [m.index for m in errors.mistakes] == [3, 0]
    assert errors[3].confidence == pytest.approx(1 / (1 + math.exp(-4)))
    assert (errors[3].target, errors[3].prediction) == (1, 0)


@pytest.mark.parametrize(
    ("loader", "said"),
    [
        ([], "yields no batch"),
        ([(torch.zeros(2, 2), torch.tensor([0, 5]))], "target 5 with 2 classes"),
        ([(torch.zeros(2, 2), torch.eye(2))], "argmax"),
        ([(torch.zeros(2, 2), torch.tensor([1]))], "expected logits"),
    ],
)
def test_what_cannot_be_judged_is_named(loader, said):
    with pytest.raises(ValueError, match=said):
        collect_errors(nn.Linear(2, 2), loader)


def test_a_shuffled_loader_is_refused_because_its_indices_lie(digits):
    model, data = digits
    before = torch.get_rng_state()
    for loader, name in (
        (DataLoader(data.val_dataset, 50, shuffle=True), "RandomSampler"),
        (make_loader(data.val_dataset, 50, shuffle=True), "ResumableBatchSampler"),
        (InMemoryLoader(data.val_inputs, data.val_targets, 50, shuffle=True), "InMemoryLoader"),
    ):
        with pytest.raises(ValueError, match=rf"{name} begins .*shuffle=False"):
            collect_errors(model, loader)
    assert torch.equal(torch.get_rng_state(), before)
    expected = [mistake.index for mistake in collect_errors(model, sequential(data))]
    for loader in (
        make_loader(data.val_dataset, 50),
        InMemoryLoader(data.val_inputs, data.val_targets, 50),
    ):
        assert [mistake.index for mistake in collect_errors(model, loader)] == expected
    with pytest.raises(ValueError, match="n = 0"):
        collect_errors(model, sequential(data), n=0)


def test_a_random_sample_is_unbiased_and_repeats(digits):
    model, data = digits
    everything = collect_errors(model, sequential(data), n=10_000)
    mean = sum(m.confidence for m in everything.mistakes) / len(everything)
    sampled = [
        collect_errors(model, sequential(data, 360), n=15, order="random", seed=s)
        for s in range(30)
    ]
    means = [sum(m.confidence for m in e.mistakes) / 15 for e in sampled]
    assert sum(means) / 30 == pytest.approx(mean, abs=0.03)
    assert sum(m.confidence for m in everything.mistakes[:15]) / 15 > mean + 0.05
    assert (
        sampled[0].to_json()
        == collect_errors(model, sequential(data, 360), n=15, order="random", seed=0).to_json()
    )


def test_the_ledgers_hundred_mistakes_have_the_ledgers_ceilings():
    accuracy, total = 82.0, sum(count for _, count in BUCKETS)
    table = made(BUCKETS, num_examples=round(total / (1 - accuracy / 100))).table()
    by_name = {row.bucket: row for row in table.rows}
    for (name, count), gain in zip(BUCKETS, ceiling_gains(BUCKETS, accuracy), strict=True):
        assert by_name[name].count == count
        assert by_name[name].ceiling.value == pytest.approx(gain, rel=2e-3)  # 555.6 examples
    assert [row.count for row in table.rows] == [32, 28, 18, 14, 8]
    assert "blur augmentation" in by_name["blur"].intervention
    assert "labels" in by_name["label noise"].intervention


def test_the_interval_of_a_ceiling_is_near_the_binomial_one():
    row = made([("a", 40), ("b", 60)], 1000).table(resamples=4000).rows[1]
    half = 196 * math.sqrt(0.04 * 0.96 / 1000)
    assert row.ceiling.value == 4.0
    assert row.ceiling.low == pytest.approx(4 - half, abs=0.25)
    assert row.ceiling.high == pytest.approx(4 + half, abs=0.25)


def test_a_sample_of_the_mistakes_is_less_sure_than_all_of_them():
    everything = made([("a", 40), ("b", 60)], 1000).table().rows[1].ceiling
    some = made([("a", 8), ("b", 12)], 1000, num_mistakes=100).table()
    assert some.rows[1].ceiling.value == pytest.approx(everything.value)
    assert some.rows[1].ceiling.high - some.rows[1].ceiling.low > 1.5 * (
        everything.high - everything.low
    )
    assert "most confident" in some.note


def test_tags_are_kept_in_the_file_and_read_back(digits, tmp_path):
    model, data = digits
    path = tmp_path / "tags" / "mistakes.json"
    errors = collect_errors(model, sequential(data), n=5, tags_path=path)
    first, second = errors.mistakes[0], errors.mistakes[1]
    errors.tag(first.index, " 4↔9 confusion ")
    errors.tag(second.index, "blur")
    errors.tag(second.index, "")
    again = collect_errors(model, sequential(data), n=30, tags_path=path)
    assert again.tags == {first.index: "4↔9 confusion"}
    again.tag(again.mistakes[20].index, "blur")
    entry = json.loads(path.read_text())[str(first.index)]
    assert entry == {"bucket": "4↔9 confusion", "target": first.target}
    assert len(json.loads(path.read_text())) == 2
    assert [file.name for file in path.parent.iterdir()] == ["mistakes.json"]


def test_a_file_of_tags_for_other_data_is_refused(digits, tmp_path):
    model, data = digits
    path = tmp_path / "tags.json"
    first = collect_errors(model, sequential(data), n=1).mistakes[0]
    wrong = {str(first.index): {"bucket": "blur", "target": (first.target + 1) % 10}}
    path.write_text(json.dumps(wrong))
    with pytest.raises(ValueError, match="other data or another split"):
        collect_errors(model, sequential(data), tags_path=path)
    path.write_text("[1, 2]")
    with pytest.raises(ValueError, match="not a file of tags"):
        collect_errors(model, sequential(data), tags_path=path)


def test_functions_fill_buckets_and_the_hand_wins(digits):
    model, data = digits
    errors = collect_errors(model, sequential(data), n=30)
    by_hand = errors.mistakes[0].index
    errors.tag(by_hand, "label noise")
    errors.assign({"sure": lambda m: m.confidence > 0.4, "from 8": lambda m: m.target == 8})
    assert errors.bucket_of(errors[by_hand]) == "label noise"
    for mistake in errors.mistakes[1:]:
        expected = (
            "sure" if mistake.confidence > 0.4 else "from 8" if mistake.target == 8 else UNTAGGED
        )
        assert errors.bucket_of(mistake) == expected
    table = errors.table({"sure": "look again"})
    assert sum(row.count for row in table.rows) == len(errors) > 20
    assert sum(row.share for row in table.rows) == pytest.approx(1)
    assert next(r for r in table.rows if r.bucket == "sure").intervention == "look again"
    with pytest.raises(ValueError, match="index -1 is not one of the "):
        errors.tag(-1, "blur")


def test_untagged_mistakes_come_last_and_no_mistake_is_no_fault():
    table = made([(UNTAGGED, 90), ("blur", 10)], 1000).table()
    assert [row.bucket for row in table.rows] == ["blur", UNTAGGED]
    model, inputs = nn.Identity(), torch.eye(2)
    none = collect_errors(model, [(inputs, torch.tensor([0, 1]))])
    assert none.accuracy == 1.0 and not none.table().rows
    assert "0 mistakes" in str(none) and none.plot().texts[0].get_text() == "no mistakes"


def test_tables_go_to_csv_json_and_html_escaped(digits):
    errors = made([("<b>a, b</b>", 3), ("c", 2)], 50)
    table = errors.table()
    rows = list(csv.DictReader(io.StringIO(table.to_csv())))
    assert rows[0]["bucket"] == "<b>a, b</b>" and float(rows[0]["ceiling_points"]) == 6.0
    assert json.loads(json.dumps(table.to_json()))["buckets"][1]["count"] == 2
    assert "<b>" not in errors._repr_html_().replace("<body>", "") and "&lt;b&gt;" in str(
        table._repr_html_()
    )
    listed = list(csv.DictReader(io.StringIO(errors.to_csv())))
    assert [row["bucket"] for row in listed].count("c") == 2
    assert len(json.loads(json.dumps(errors.to_json()))["mistakes"]) == 5


def test_the_figures_show_the_mistakes_and_the_ceilings(digits):
    model, data = digits
    errors = collect_errors(model, sequential(data), n=8)
    figure = errors.plot()
    titles = [ax.get_title() for ax in figure.axes if ax.get_visible()]
    assert len(titles) == 8 and f"#{errors.mistakes[0].index}:" in titles[0]
    bars = made([("a", 40), ("b", 60)], 1000).table().plot().axes[0].patches
    assert sorted(bar.get_width() for bar in bars) == pytest.approx([4.0, 6.0])


def test_features_that_are_no_picture_are_drawn_as_bars():
    dataset = TensorDataset(torch.randn(6, 5), torch.randint(2, (6,)))
    errors = collect_errors(nn.Linear(5, 2), DataLoader(dataset, 6), n=6)
    assert len(errors) >= 1
    assert len(errors.plot().axes[0].patches) == 5


def test_one_example_says_nothing_about_the_gain():
    errors = collect_errors(nn.Identity(), [(torch.eye(2)[:1], torch.tensor([1]))])
    ceiling = errors.table().rows[0].ceiling
    assert (ceiling.value, ceiling.low, ceiling.high) == (100, 0, 100)
