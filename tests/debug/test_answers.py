"""Labels that do not belong to their inputs: found where they are shuffled, never where not."""

import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import LeaveOneOut, cross_val_predict
from sklearn.neighbors import KNeighborsClassifier
from torch.utils.data import DataLoader, TensorDataset

from course.data import load
from course.debug import diagnose
from course.debug.probes import answers, relation
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.setup import as_setup
from tests.debug.faulty.kit import nn, parts
from tests.debug.sound import SOUND


def table(loader):
    found = loader()
    x = torch.tensor(found.data, dtype=torch.float32)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    x, y = x[order], torch.tensor(found.target)[order]
    train = x[: int(0.75 * len(x))]
    return (x - train.mean(0)) / train.std(0), y


def digits():
    data = load("digits")
    return data.train_inputs.flatten(1)[:400], data.train_targets[:400]


DATA = {
    "digits": digits,
    "iris": lambda: table(load_iris),
    "wine": lambda: table(load_wine),
    "breast cancer": lambda: table(load_breast_cancer),
}


def setup_of(x, y, shuffle_train=False, shuffle_val=False, seed=0):
    """A classifier on rows; labels of either side in another order where asked."""
    own = torch.Generator().manual_seed(seed)
    cut, classes = int(0.75 * len(x)), int(y.max()) + 1
    sides = []
    for part, shuffled in ((slice(cut), shuffle_train), (slice(cut, None), shuffle_val)):
        labels = y[part]
        sides.append(
            (x[part], labels[torch.randperm(len(labels), generator=own)] if shuffled else labels)
        )
    model = nn.Sequential(nn.Linear(x.shape[1], 32), nn.ReLU(), nn.Linear(32, classes))
    train, val = (DataLoader(TensorDataset(*side), 16, shuffle=i == 0)
                  for i, side in enumerate(sides))  # fmt: skip
    return {
        "model": model, "loss_fn": nn.CrossEntropyLoss(), "task": "classification",
        "optimizer": torch.optim.SGD(model.parameters(), 0.05), "num_classes": classes,
        "train_loader": train, "val_loader": val,
    }  # fmt: skip


def named(setup, severity=("error", "warning")):
    return [f.id for f in diagnose(setup).findings if f.severity in severity]


@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize("both", [False, True])
def test_shuffled_labels_of_real_data_are_named_first(name, both):
    x, y = DATA[name]()
    found = named(setup_of(x, y, shuffle_train=True, shuffle_val=both))
    if both and int(y.max()) == 1:  # pairs of the same or not look so too: a note
        assert found == []
        assert "labels-shuffled" in named(setup_of(x, y, True, True), ("note",))
    else:
        assert found[:1] == ["labels-shuffled"]


@pytest.mark.parametrize("name", DATA)
def test_the_same_data_unshuffled_give_no_alarm(name):
    assert named(setup_of(*DATA[name]())) == []


def test_guesses_are_those_of_scikit_learn():
    x, y = table(load_wine)
    found = relation.relate(x, y)
    near = KNeighborsClassifier(1, algorithm="brute")
    assert found.agreement == pytest.approx(
        (cross_val_predict(near, x.numpy(), y.numpy(), cv=LeaveOneOut()) == y.numpy()).mean()
    )
    line = cross_val_predict(RidgeClassifier(), x.numpy(), y.numpy(), cv=LeaveOneOut())
    assert (line == y.numpy()).mean() > 0.95 and found.line > 10


def test_labels_drawn_at_random_pass_for_learned_no_more_often_than_their_threshold_says():
    """z > 4 in one of two guesses; by chance about 1 in 16 000."""
    own = torch.Generator().manual_seed(1)
    strongest = []
    for seed in range(25):
        x, y = torch.randn(120, 6, generator=own), torch.randint(3, (120,), generator=own)
        found = relation.relate(x, y, seed)
        strongest.append(found.strongest)
        ratio, _ = relation.structure(x, seed)
        assert ratio > answers.CLUSTERED
    assert max(strongest) < answers.LEARNED
    assert 0 < sum(z > 0 for z in strongest) <= 25


@pytest.mark.parametrize("seed", range(6))
def test_random_stand_in_data_are_left_alone(seed):
    own = torch.Generator().manual_seed(seed)
    x, y = torch.rand(240, 3, 8, 8, generator=own), torch.randint(5, (240,), generator=own)
    assert named(setup_of(x.flatten(1), y)) == []


def test_no_sound_program_raises_the_alarm_and_the_probes_did_look_at_most_of_them():
    looked = {probe.__name__: 0 for probe in PROBES}
    alarms = []
    for name, make in list(SOUND.items())[::12]:  # all of them: test_diagnose
        session = Session(as_setup(make()))
        for probe in PROBES:
            try:
                alarms += [(name, f.id) for f in probe(session) if f.is_alarm]
                looked[probe.__name__] += 1
            except NotChecked:
                continue
        session.kept.restore()
    assert alarms == []
    assert min(looked.values()) >= 2, looked


PROBES = (
    answers.shuffled_in_step, answers.shuffled_between_epochs, answers.unrelated,
    answers.target_in_inputs,
)  # fmt: skip


def test_pairing_drawn_anew_each_epoch_is_told_from_a_few_drawn_labels():
    x, y = digits()

    class Drawn(torch.utils.data.Dataset):
        def __init__(self, share):
            self.share = share

        def __len__(self):
            return len(x)

        def __getitem__(self, i):
            other = int(torch.randint(len(y), ()))
            return x[i], y[other if torch.rand(()) < self.share else i]

    for share, wanted in ((0.1, []), (0.4, []), (1.0, ["labels-shuffled"])):
        setup = setup_of(x, y) | {"train_loader": DataLoader(Drawn(share), 16, shuffle=True)}
        assert [i for i in named(setup) if i == "labels-shuffled"] == wanted


def test_the_message_says_what_was_seen_what_it_means_and_the_fix():
    x, y = digits()
    report = diagnose(setup_of(x, y, shuffle_train=True))
    finding = report.alarms[0]
    assert "nearest-neighbour" in finding.message and "shuffled" in finding.message
    assert finding.evidence["deviations_validation"] > answers.LEARNED
    assert finding.evidence["neighbour_agrees"] == pytest.approx(0.1, abs=0.06)
    assert "order" in finding.fix


def test_a_column_that_is_the_target_up_to_scale_is_named():
    s = parts("regression", model=nn.Linear(9, 1))
    for loader in (s["train_loader"], s["val_loader"]):
        x, y = loader.dataset.tensors
        loader.dataset.tensors = (torch.cat([x[:, :4], 3 - 2 * y, x[:, 4:]], 1), y)
    finding = next(f for f in diagnose(s).alarms if f.id == "target-in-inputs")
    assert finding.evidence["columns"] == [4] and "axis=1" in finding.fix
