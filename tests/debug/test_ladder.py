"""The ladder: sound set-ups climb, each fault stops the climb at its own rung."""

import json
import re

import pytest
import torch
import torch.nn.functional as F
from sklearn.datasets import load_breast_cancer, load_diabetes
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from course.data import load
from course.debug import FaultHunt, climb
from tests.debug.test_diagnose import fingerprint

DIGITS = load("digits")


def mlp(inputs=64, outputs=10, *, dropout=0.2):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Flatten(), nn.Linear(inputs, 64), nn.ReLU(), nn.Dropout(dropout), nn.Linear(64, outputs)
    )


def digits(**changed):
    model = mlp()
    train_loader, val_loader = DIGITS.loaders(64)
    setup = {
        "model": model,
        "loss_fn": nn.CrossEntropyLoss(),
        "optimizer": torch.optim.AdamW(model.parameters(), lr=1e-3),
        "train_loader": train_loader,
        "val_loader": val_loader,
        "num_classes": 10,
    }
    return setup | changed


def loaders(inputs, targets, *, batch_size=32, order=None, val=0.25):
    rows = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(1))
    held_out, kept = rows[: int(val * len(rows))], rows[int(val * len(rows)) :]
    if inputs.dim() == 2:
        inputs = (inputs - inputs[kept].mean(0)) / inputs[kept].std(0)
    if order is not None:
        kept = kept[order(targets[kept])]
    train = DataLoader(
        TensorDataset(inputs[kept], targets[kept]), batch_size, shuffle=order is None
    )
    return train, DataLoader(TensorDataset(inputs[held_out], targets[held_out]), 256)


def own_step(setup, *, step=True):
    def train_step(batch):
        setup["model"].train()
        setup["optimizer"].zero_grad()
        loss = setup["loss_fn"](setup["model"](batch[0]), batch[1])
        loss.backward()
        if step:
            setup["optimizer"].step()
        return loss.item()

    return setup | {"train_step": train_step}


def table(source):
    raw = source(return_X_y=True)
    inputs = torch.tensor(raw[0], dtype=torch.float32)
    return inputs, torch.tensor(raw[1], dtype=torch.float32)


def regression():
    inputs, targets = table(load_diabetes)
    targets = (targets - targets.mean()) / targets.std()
    model = nn.Sequential(mlp(inputs.shape[1], 1, dropout=0.0), nn.Flatten(0))
    train, val = loaders(inputs, targets)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, weight_decay=0.01)
    return {"model": model, "loss_fn": nn.MSELoss(), "optimizer": optimizer,
            "train_loader": train, "val_loader": val}  # fmt: skip


def binary():
    inputs, targets = table(load_breast_cancer)
    model = nn.Sequential(mlp(inputs.shape[1], 1), nn.Flatten(0))
    train, val = loaders(inputs, targets)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=0.01)
    return {"model": model, "loss_fn": nn.BCEWithLogitsLoss(), "optimizer": optimizer,
            "train_loader": train, "val_loader": val, "task": "binary"}  # fmt: skip


def normalised(model):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), model[-1])


def batch_norm():
    model = normalised(mlp())
    return digits(model=model, optimizer=torch.optim.SGD(model.parameters(), 0.05, momentum=0.9))


SOUND = {
    "digits": digits,
    "own step": lambda: own_step(digits()),
    "label smoothing": lambda: digits(loss_fn=nn.CrossEntropyLoss(label_smoothing=0.1)),
    "batch norm": batch_norm,
    "regression": regression,
    "binary": binary,
}


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_set_up_climbs_all_seven_rungs(name):
    report = climb(SOUND[name](), epochs=8, subset=0.2)
    assert report.passed and len(report.rungs) == 7, str(report)
    assert all(rung.passed for rung in report.rungs), str(report)
    assert report[6].evidence.get("accuracy", 0.9) > 0.85
    assert report.diagnosis is None and not report.model.training


def not_a_number():
    inputs, targets = DIGITS.train_inputs.clone(), DIGITS.train_targets
    inputs[3, 0, 2, 2] = float("nan")
    return digits(train_loader=loaders(inputs, targets)[0])


def no_class_nine():
    kept = DIGITS.val_targets != 9
    val = TensorDataset(DIGITS.val_inputs[kept], DIGITS.val_targets[kept])
    return digits(val_loader=DataLoader(val, 64))


def in_both():
    val = TensorDataset(DIGITS.train_inputs[:200], DIGITS.train_targets[:200])
    return digits(val_loader=DataLoader(val, 64))


def sorted_file():
    train, _ = loaders(DIGITS.train_inputs, DIGITS.train_targets, order=lambda y: y.argsort())
    return digits(train_loader=train)


def fails_to_load():
    def generator():
        raise OSError("img_0042.png is truncated")
        yield

    class Loader:
        def __iter__(self):
            return generator()

    return digits(train_loader=Loader())


def one_class_to_find():
    ones, all_ones = DIGITS.val_targets == 1, DIGITS.train_targets == 1
    inputs, targets = DIGITS.train_inputs[all_ones], DIGITS.train_targets[all_ones]
    val = DataLoader(TensorDataset(DIGITS.val_inputs[ones], DIGITS.val_targets[ones]), 64)
    train = DataLoader(TensorDataset(inputs, targets), 4)
    return digits(train_loader=train, val_loader=val, declared={"allow": ["single-class-batches"]})


def batches_of_one_class():
    rows = [(DIGITS.train_targets == k).nonzero()[:3].flatten() for k in range(10)]
    batches = [(DIGITS.train_inputs[r], DIGITS.train_targets[r]) for r in rows] * 5
    return digits(train_loader=batches)


def contradiction():
    inputs = DIGITS.train_inputs[:1].expand(32, -1, -1, -1).clone()
    targets = DIGITS.train_targets[:32]
    return digits(train_loader=[(inputs, targets)] * 12)


def softmax_twice():
    model = nn.Sequential(mlp(), nn.Softmax(dim=1))
    return digits(model=model, optimizer=torch.optim.AdamW(model.parameters(), 1e-3))


def other_parameters():
    return digits(optimizer=torch.optim.AdamW(mlp().parameters(), 1e-3))


def shuffled_labels():
    order = torch.randperm(len(DIGITS.train_targets), generator=torch.Generator().manual_seed(0))
    return digits(train_loader=loaders(DIGITS.train_inputs, DIGITS.train_targets[order])[0])


FALLS = [
    (not_a_number, 1, "non-finite"),
    (fails_to_load, 1, "img_0042.png is truncated"),
    (lambda: digits(val_loader=None), 1, "no validation data"),
    (no_class_nine, 1, "no example of class 9"),
    (in_both, 1, "leak-overlap"),
    (sorted_file, 1, "hold only one class"),
    (one_class_to_find, 2, "right for every validation example"),
    (batches_of_one_class, 3, "holds only one target"),
    (contradiction, 3, "equal inputs have unequal targets"),
    (softmax_twice, 3, "plateau"),
    (other_parameters, 3, "does not move at all"),
    (lambda: own_step(digits(), step=False), 3, "not learned"),
    (shuffled_labels, 4, "not better"),
]


@pytest.mark.parametrize("make,number,message", FALLS, ids=lambda v: getattr(v, "__name__", None))
def test_each_fault_stops_the_climb_at_its_rung(make, number, message):
    report = climb(make(), epochs=2)
    assert report.failed and report.failed.number == number, str(report)
    assert message in report.failed.message
    assert len(report.rungs) == number and report.diagnosis is not None
    assert "Not climbed" in str(report)


def test_the_doctor_says_why_one_batch_was_not_learned():
    squeezed = digits(loss_fn=lambda out, y: F.cross_entropy(out.softmax(1), y))
    for setup in (softmax_twice(), squeezed):
        report = climb(setup)
        assert report.failed.number == 3
        assert report.diagnosis.alarms[0].id == "double-softmax", str(report)


@pytest.mark.parametrize("lr,number", [(3.0, (3, 4, 5)), (1e-7, (3, 4, 5))])
def test_a_learning_rate_far_off_does_not_reach_the_top(lr, number):
    model = mlp(dropout=0.0)
    report = climb(digits(model=model, optimizer=torch.optim.SGD(model.parameters(), lr)))
    assert report.failed and report.failed.number in number, str(report)


def planted(*, sort=True, softmax=True, first_layer_only=True, lr=1e-6):
    """A project with up to four faults."""
    torch.manual_seed(3)
    layers = [nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)]
    model = nn.Sequential(*layers, nn.Softmax(dim=1)) if softmax else nn.Sequential(*layers)
    held = model[1] if first_layer_only else model
    setup = digits(model=model, optimizer=torch.optim.SGD(held.parameters(), lr))
    return setup | ({"train_loader": sorted_file()["train_loader"]} if sort else {})


FIXES = {"single-class-batches": {"sort": False}, "lr-too-small": {"lr": 0.1},
         "double-softmax": {"softmax": False},
         "optimizer-stale-params": {"first_layer_only": False}}  # fmt: skip


@pytest.fixture(scope="module")
def hunted():
    """One climb after the other, each after the fault that the last one showed was fixed."""
    hunt, fixed, reports = FaultHunt(4), {}, []
    while len(reports) < 6:
        reports.append((hunt.climb(planted(**fixed), epochs=2), str(hunt)))
        if reports[-1][0].passed:
            break
        fixed |= FIXES[reports[-1][0].cause]
    return reports


def test_each_climb_shows_one_planted_fault_and_the_last_counts_all_four(hunted):
    assert [report.cause for report, _ in hunted] == [*FIXES, ""]
    assert [said[:22] for _, said in hunted] == [
        "1 of 4 faults found: f", "2 of 4 faults found: f", "3 of 4 faults found: f",
        "4 of 4 faults found: f", "4 of 4 faults found, a",
    ]  # fmt: skip


def test_no_fault_that_lies_ahead_is_shown(hunted):
    telling = {
        "single-class-batches": "shuffle",
        "lr-too-small": "of their size|'lr'",
        "double-softmax": "softmax",
        "optimizer-stale-params": "not hold|optimizer holds",
    }
    for number, (report, _) in enumerate(hunted[:-1]):
        for shown in (str(report), report._repr_html_()):
            assert re.search(telling[report.cause], shown)
            for ahead in list(FIXES)[number + 1 :]:
                assert not re.search(telling[ahead], shown), (report.cause, ahead)


@pytest.mark.parametrize("only", FIXES)
def test_each_of_the_four_faults_alone_stops_the_climb(only):
    fixed = {k: v for cause, fix in FIXES.items() if cause != only for k, v in fix.items()}
    assert climb(planted(**fixed), epochs=1, top=4).cause == only


def test_a_rate_far_too_small_is_said_in_sizes_of_the_weights():
    setup = planted(sort=False, softmax=False, first_layer_only=False)
    failed = climb(setup, top=3).failed
    step = failed.evidence["update per step / size of the weights"]
    model, (inputs, targets) = setup["model"], next(iter(setup["train_loader"]))
    F.cross_entropy(model(inputs[:32]), targets[:32]).backward()
    size, grad = (torch.cat([t.flatten() for t in some]).norm() for some in (
        list(model.parameters()), [p.grad for p in model.parameters()]))  # fmt: skip
    assert step == pytest.approx(1e-6 * float(grad / size), rel=0.5)  # other 32 rows, ten steps
    assert "moves the weights by" in failed.message and "grad is None" not in failed.fix
    lr = float(re.search(r"= (\S+)  # was", failed.fix)[1])
    assert lr == pytest.approx(1e-3 / step * 1e-6, rel=0.06)


def test_a_body_fixed_by_leaving_it_out_of_the_optimizer_is_worth_a_look_only():
    model = mlp(dropout=0.0)
    report = climb(digits(model=model, optimizer=torch.optim.Adam(model[-1].parameters(), 1e-2)),
                   top=3)  # fmt: skip
    assert report.passed and "declare frozen" in report[3].warnings[0]


def test_rungs_draw_what_they_saw():
    report = climb(digits(), epochs=3)
    assert all(report[n].plot().axes for n in (3, 5, 6, 7)) and report[1].picture is None
    with pytest.raises(LookupError, match="rung 1, inspect the data, has no picture"):
        report[1].plot()
    shown = [ax.get_title() for ax in report[7].plot().axes if ax.get_title()]
    with torch.no_grad():
        answers = report.model(DIGITS.val_inputs).argmax(1)
    wrong = (answers != DIGITS.val_targets).nonzero().flatten().tolist()
    assert len(wrong) == report[7].evidence["mistakes"]
    for title in shown:  # the model's own mistakes
        row, true, said = map(int, re.match(r"#(\d+): true (\d+)\npredicted (\d+)", title).groups())
        assert row in wrong and true == DIGITS.val_targets[row] and said == answers[row]
    assert report._repr_html_().count("data:image/png") == 4


def test_ladder_and_doctor_agree_on_brightened_copies():
    """One judge: `climb` failed them as a leak, and the doctor saw nothing wrong."""
    copies = (DIGITS.train_inputs[:40] * 1.2 + 0.3, DIGITS.train_targets[:40])
    val = TensorDataset(*(torch.cat(parts) for parts in zip(
        (DIGITS.val_inputs, DIGITS.val_targets), copies, strict=True)))  # fmt: skip
    report = climb(digits(val_loader=DataLoader(val, 64)))
    assert report.cause == "leak-overlap"
    assert [f.id for f in report.diagnosis.alarms] == ["leak-overlap"]


@pytest.mark.parametrize("make", [digits, lambda: own_step(digits()), softmax_twice])
def test_everything_is_given_back_as_it_came(make):
    setup = make()
    before, random = fingerprint(setup), torch.get_rng_state()
    climb(setup, epochs=1)
    assert fingerprint(setup) == before
    assert torch.equal(torch.get_rng_state(), random)


def test_the_trained_copy_reads_digits_and_the_model_handed_in_does_not():
    setup = digits()
    report = climb(setup, epochs=5)

    def accuracy(model):
        model.eval()
        with torch.no_grad():
            return (model(DIGITS.val_inputs).argmax(1) == DIGITS.val_targets).double().mean().item()

    assert accuracy(report.model) == pytest.approx(report[6].evidence["accuracy"])
    assert accuracy(report.model) > 0.9 > 0.3 > accuracy(setup["model"])


def test_the_report_goes_to_json_and_to_a_notebook():
    report = climb(softmax_twice())
    plain = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert [rung["passed"] for rung in plain["rungs"]] == [True, True, False]
    assert plain["diagnosis"]["findings"][0]["id"] == "double-softmax"
    page = report._repr_html_()
    assert "FAILED</b>" in page and "double-softmax" in page
    assert page.count("<details>") == 3  # the numbers of rung 3, and the two rungs below it


def test_names_from_the_data_are_escaped_in_a_notebook():
    class Loader:
        def __iter__(self):
            raise OSError("<script>alert(1)</script>")

    assert "<script>" not in climb(digits(train_loader=Loader()))._repr_html_()


def test_a_generator_is_refused_before_a_batch_is_drawn():
    batches = iter(digits()["train_loader"])
    with pytest.raises(ValueError, match=r"train_loader is a .*, which can be read only once"):
        climb(digits(train_loader=batches))
    assert next(batches)


def test_a_rung_that_was_not_reached_says_where_the_climb_ended():
    with pytest.raises(KeyError, match="ended at 3"):
        climb(softmax_twice())[5]


@pytest.mark.parametrize(
    "wrong,message",
    [
        ({"epochs": 0}, "at least 1"),
        ({"subset": 0.0}, "a share"),
        ({"top": 8}, "rungs 1 to 7"),
        ({"steps": 0}, "at least 1"),
    ],
)
def test_arguments_out_of_range_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        climb(digits(), **wrong)
