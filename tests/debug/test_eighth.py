"""An eighth set, by an author who had not read the doctor, with twenty sound programs."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

from course.debug import diagnose
from course.debug.relations import loss
from tests.debug.faulty import PAIRS, eighth
from tests.debug.faulty.dresses import setup, trained_by
from tests.debug.faulty.fourth.kit import batches, blobs, mlp
from tests.debug.sound import SOUND
from tests.debug.sound import eighth as odd
from tests.debug.sound import eighth_loops as odd_loops
from tests.debug.told import assert_told_apart, said
from tests.sampling import sample

HERE = {p.name: p for p in PAIRS if any(hasattr(part, p.name) for part in eighth.PARTS)}
TOLD = [name for name in HERE if name not in eighth.MISSED]
ODD = [name for name in SOUND if hasattr(odd, name) or hasattr(odd_loops, name)]


def test_all_programs_of_the_eighth_set_are_tried():
    assert len(HERE) == 40 and len(HERE) - len(TOLD) == len(eighth.MISSED)
    assert len(ODD) == 20  # test_diagnose diagnoses them, with the others that are sound


@pytest.mark.parametrize("name", sample(TOLD, 40))
def test_the_fault_is_named_first_and_its_twin_is_left_alone(name):
    assert_told_apart(HERE[name])


@pytest.mark.parametrize("name", sample([*eighth.MISSED], 5))
def test_what_is_missed_is_not_said_to_be_another_fault(name):
    faulty = diagnose(HERE[name].make(True))
    assert faulty.ok, f"{eighth.MISSED[name]}: {faulty}"


@pytest.mark.parametrize("name", ["pads_with_the_end_sign", "weighs_by_frequency"])
def test_a_twin_that_was_alarmed_at_first_sight_is_left_alone(name):
    report = diagnose(HERE[name].make(False))
    assert report.ok, str(report)


def test_a_step_made_of_transforms_of_torch_func_is_left_alone():
    torch.manual_seed(0)
    report = diagnose(SOUND["private_gradients"]())
    assert report.ok and "stepping.stepping" in report.checked, str(report)


@pytest.mark.parametrize("is_cut", [True, False])
def test_a_term_without_a_gradient_is_seen_in_a_step_of_several_backwards(is_cut):
    """Micro-batches, each with a price on the answers' size."""
    torch.manual_seed(0)
    x, y = blobs(96)

    model = mlp(10, 8, 3)
    found = setup(model, batches(x, y))

    def train_step(batch):
        found["optimizer"].zero_grad()
        for inputs, targets in zip(*(t.chunk(2) for t in batch), strict=True):
            out = model(inputs)
            price = (out.detach() if is_cut else out).pow(2).mean()
            ((F.cross_entropy(out, targets) + 0.1 * price) / 2).backward()
        found["optimizer"].step()

    told = said(loss.terms, found | {"train_step": train_step})
    assert told == (["loss-without-gradient"] if is_cut else [])


class Shy(nn.Sequential):
    """Cannot be run under a function mode, as some compiled code cannot."""

    def forward(self, x):
        if torch._C._len_torch_function_stack():
            raise RuntimeError("not while somebody listens")
        return super().forward(x)


def test_what_only_listening_breaks_is_no_fault_of_the_loop():
    x, y = blobs(90)
    cost = lambda m, b: F.cross_entropy(m(b[0]), b[1])  # noqa: E731
    report = diagnose(trained_by(cost, Shy(*mlp(10, 8, 3)), batches(x, y)))
    assert report.ok, str(report)
    assert "recorded" in report.not_checked["numbers.raises"]


def scored_by(metric):
    torch.manual_seed(0)
    x, y = blobs(130)
    model, held = mlp(10, 8, 3), batches(x[90:], y[90:], shuffle=False)

    def evaluate():
        model.eval()
        with torch.no_grad():
            out = torch.cat([model(inputs) for inputs, _ in held])
        model.train()
        return {"accuracy": metric(out, y[90:])}

    return setup(model, batches(x[:90], y[:90]), loss_fn=nn.CrossEntropyLoss(), val_loader=held,
                 num_classes=3, evaluate=evaluate)  # fmt: skip


def recalls(out, y):
    hits = out.argmax(1) == y
    return torch.stack([hits[y == k].float().mean() for k in range(3)]).mean().item()


@pytest.mark.parametrize(
    "metric",
    [
        recalls,
        lambda out, y: 100 * recalls(out, y),
        lambda out, y: (recalls(out, y) - 1 / 3) / (2 / 3),
        lambda out, y: (out.topk(2).indices == y[:, None]).any(1).float().mean().item(),
    ],
)
def test_what_is_usually_called_an_accuracy_is_left_alone(metric):
    assert diagnose(scored_by(metric)).ok


def test_an_accuracy_that_nobody_knows_is_told():
    found = diagnose(scored_by(lambda out, y: (out.argmin(1) == y).float().mean().item() / 2 + 0.3))
    assert [a.id for a in found.alarms] == ["metric-wrong"], str(found)


def ended(end, behind):
    """Sentences of any length, each with the sign of its end; the batch is filled up with
    `behind`."""
    torch.manual_seed(0)
    ids = [torch.cat([torch.randint(2, 9, (int(n),)), torch.tensor([end])])
           for n in torch.randint(4, 12, (80,))]  # fmt: skip

    def collate(rows):
        lengths = torch.tensor([len(row) for row in rows])
        return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=behind), lengths

    return DataLoader(ids, 16, collate_fn=collate)


@pytest.mark.parametrize("counts_padding", [False, True])
def test_padding_by_the_sign_of_the_end_begins_behind_the_first(counts_padding):
    model = nn.Sequential(nn.Embedding(9, 8), nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 9))

    def loss_of(m, batch):
        ids, lengths = batch
        targets = ids[:, 1:].clone()
        if not counts_padding:
            behind = torch.arange(ids.shape[1])[None] >= lengths[:, None]
            targets[behind[:, 1:]] = -100
        return F.cross_entropy(m(ids[:, :-1]).transpose(1, 2), targets)

    report = diagnose(setup(model, ended(1, 1), loss_of=loss_of))
    told = [a.id for a in report.alarms]
    assert told == (["padding-in-the-loss"] if counts_padding else []), str(report)
