"""A ninth set, by an author who had not read the doctor, with twenty sound programs."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset

from course.debug.relations import absent, data, encoded, flips, handed, items, rebatched
from tests.debug.faulty import PAIRS, ninth
from tests.debug.faulty.sixth.kit import blobs, mlp, of_pairs, pictures, setup, stepper, trained
from tests.debug.sound import SOUND
from tests.debug.sound import ninth as odd
from tests.debug.sound import ninth_loops as odd_loops
from tests.debug.told import assert_told_apart, said
from tests.sampling import sample

HERE = {p.name: p for p in PAIRS if any(hasattr(part, p.name) for part in ninth.PARTS)}
ODD = [name for name in SOUND if hasattr(odd, name) or hasattr(odd_loops, name)]


def test_all_programs_of_the_ninth_set_are_tried():
    assert len(HERE) == 40
    assert len(ODD) == 20  # test_diagnose diagnoses them, with the others that are sound


@pytest.mark.parametrize("name", sample([*HERE], 20))
def test_the_fault_is_named_first_and_its_twin_is_left_alone(name):
    assert_told_apart(HERE[name])


class Buffered(Dataset):
    """Rows that go through an array: handed out as it is or copied, filled again or once."""

    def __init__(self, way):
        self.x, self.y = (t.numpy() for t in blobs(96))
        self.way, self.buffer = way, np.zeros(8, dtype=np.float32)
        self.cache, self.known = np.zeros_like(self.x), np.zeros(96, dtype=bool)

    def __len__(self):
        return 96

    def __getitem__(self, i):
        if self.way == "cached":
            if not self.known[i]:
                self.cache[i], self.known[i] = self.x[i] / 2, True
            return torch.from_numpy(self.cache[i]), int(self.y[i])
        if self.way == "scaled":
            self.x[i] /= 2
            return torch.from_numpy(self.x[i]), int(self.y[i])
        self.buffer[:] = self.x[i] / 2
        row = self.buffer if self.way == "shared" else self.buffer.copy()
        return torch.from_numpy(row), int(self.y[i])


def of(dataset, loss=F.cross_entropy, model=None, batch=16, **more):
    torch.manual_seed(0)
    model = model or mlp()
    loader = DataLoader(dataset, batch, shuffle=True)
    step = stepper(model, torch.optim.SGD(model.parameters(), 0.1), of_pairs(loss))
    return setup(model, torch.optim.SGD(model.parameters(), 0.1), loader, step=step, **more)


@pytest.mark.parametrize(
    ("way", "told"),
    [("shared", "memory-shared"), ("scaled", "dataset-changes-itself"), ("copied", ""),
     ("cached", "")],
)  # fmt: skip
def test_memory_that_is_filled_again_is_no_change_of_the_data(way, told):
    made = of(Buffered(way))
    assert [*said(data.stored, made), *said(items.stays, made)] == [told] * bool(told)


@pytest.mark.parametrize(("rows", "told"), [(1, []), (16, ["memory-shared"])])
def test_rows_of_a_batch_are_not_all_the_same(rows, told):
    x, y = blobs(96)
    held = [(x[i].expand(rows, 8) if rows > 1 else x[i : i + 16], y[i : i + 16]) for i in range(80)]
    assert said(items.rows_apart, of(held, batch=None)) == told


class Drawn(Dataset):
    """Noise for each row, from a generator that is made in `__getitem__` or was made before."""

    def __init__(self, way):
        self.x, self.y = blobs(96)
        self.way, self.rng = way, np.random.default_rng(7)

    def __len__(self):
        return 96

    def __getitem__(self, i):
        if self.way == "columns":
            return self.x[i][np.random.default_rng(7).permutation(8)], self.y[i]
        if self.way == "numbered":
            rng = np.random.default_rng([7, i])
        else:
            rng = np.random.RandomState(7) if self.way == "same" else self.rng
        return self.x[i] + float(rng.normal()), self.y[i]


@pytest.mark.parametrize("way", ["same", "kept", "numbered", "columns"])
def test_a_generator_made_again_for_each_item_is_told_but_not_an_order(way):
    assert said(items.seeded_alike, of(Drawn(way))) == ["same-draws"] * (way == "same")


class TwoViews(Dataset):
    """Two views of a picture, each flipped by itself."""

    def __init__(self):
        self.x = pictures(64)[0]

    def __len__(self):
        return 64

    def __getitem__(self, i):
        return tuple(self.x[i].flip(-1) if torch.rand(()) < 0.5 else self.x[i] for _ in "ab")


@pytest.mark.parametrize("reads_both", [True, False])
def test_a_second_view_may_be_flipped_by_itself(reads_both):
    model = nn.Conv2d(1, 1, 3, padding=1)
    loss_of = lambda m, b: F.mse_loss(m(b[0]), m(b[1]) if reads_both else b[1])  # noqa: E731
    loader = DataLoader(TwoViews(), 16)
    made = trained(model, torch.optim.SGD(model.parameters(), 0.1), (loader, loader), loss_of)
    assert said(flips.drawn_apart, made) == ([] if reads_both else ["augmentation-mismatch"])


@pytest.mark.parametrize(("mark", "told"), [(-1.0, ["padding-in-the-loss"]), (0.0, [])])
def test_a_mark_is_a_number_that_no_target_has(mark, told):
    g = torch.Generator().manual_seed(0)
    x, where = torch.randn(96, 8, generator=g), torch.rand(96, 4, generator=g) < 0.3
    table = torch.rand(96, 4, generator=g).masked_fill(where, mark)
    model = mlp()
    loader = DataLoader(TensorDataset(x, table, ~where), 16)
    loss_of = lambda m, b: F.mse_loss(m(b[0]), b[1])  # noqa: E731
    made = trained(model, torch.optim.SGD(model.parameters(), 0.1), (loader, loader), loss_of)
    assert said(absent.marked, made) == told


@pytest.mark.parametrize("way", ["with", "without", "steps"])
def test_a_column_of_exact_means_holds_the_rows_own_answers(way):
    g = torch.Generator().manual_seed(0)
    y, group = torch.randn(200, generator=g), torch.randint(0, 60, (200,), generator=g)
    total = torch.zeros(60).index_add(0, group, y)[group]
    count = torch.bincount(group, minlength=60)[group]
    column = {"with": total / count, "without": (total - y) / (count - 1).clamp(min=1),
              "steps": (4 * y).round()}[way]  # fmt: skip
    x = torch.cat([torch.randn(200, 3, generator=g), column[:, None]], 1)
    made = of(TensorDataset(x, y[:, None]), F.mse_loss, mlp(4, 1))
    assert said(encoded.group_means, made) == ["target-in-inputs"] * (way == "with")


@pytest.mark.parametrize(("first", "told"), [(0, ["wrong-targets"]), (1, [])])
def test_signs_behind_the_end_of_a_row_may_be_the_blank(first, told):
    g = torch.Generator().manual_seed(0)
    signs = torch.randint(first, 5, (64, 4), generator=g)
    signs[:, 3] = 0
    model = nn.Linear(6, 5)

    def loss_of(m, batch):
        scores = m(batch[0]).log_softmax(-1).transpose(0, 1)
        lengths = [torch.full((len(batch[1]),), n) for n in (12, 3)]
        return F.ctc_loss(scores, batch[1], *lengths)

    loader = DataLoader(TensorDataset(torch.randn(64, 12, 6, generator=g), signs), 16)
    made = trained(model, torch.optim.SGD(model.parameters(), 0.1), (loader, loader), loss_of)
    assert said(handed.blank, made) == told


@pytest.mark.parametrize("by_batch", [True, False])
def test_a_score_of_a_fresh_model_is_asked_with_other_answers(by_batch):
    """Where all answers are no, any way of scoring gives 0."""
    torch.manual_seed(0)
    x = torch.randn(120, 8)
    y = (x[:, :1] > 1).float()
    model = mlp(8, 1)
    nn.init.constant_(model[-1].bias, -5.0)
    held = DataLoader(TensorDataset(x, y), 8)

    def f1(out, y):
        hits = ((out > 0) & (y > 0)).sum().item()
        return 2 * hits / max(((out > 0).sum() + (y > 0).sum()).item(), 1)

    def evaluate():
        model.eval()
        with torch.no_grad():
            both = [(model(a), b) for a, b in held]
        model.train()
        scores = [f1(*pair) for pair in both]
        every = f1(*(torch.cat(part) for part in zip(*both, strict=True)))
        return {"f1": sum(scores) / len(scores) if by_batch else every}

    made = of(
        TensorDataset(x, y), F.binary_cross_entropy_with_logits, model,
        val_loader=held, evaluate=evaluate,
    )  # fmt: skip
    assert said(rebatched.in_one_batch, made) == ["metric-batch-mean"] * by_batch
