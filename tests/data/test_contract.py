"""Each breach is named alone, torch agrees on labels, and no loader of ours raises an alarm."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from course.data.contract import BatchReport, Breach, ContractError, check_batch
from course.data.datasets import load

x = torch.randn(8, 5, generator=torch.Generator().manual_seed(1))
images = torch.randn(8, 3, 16, 16, generator=torch.Generator().manual_seed(2))
y = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])


def holed(tensor, value):
    tensor = tensor.clone()
    tensor.view(-1)[3] = value
    return tensor


@pytest.mark.parametrize(
    ("expected", "batch", "options"),
    [
        ("not-a-pair", x, {}),
        ("not-a-pair", (x, y, y), {}),
        ("not-a-pair", {"inputs": x, "targets": y}, {}),
        ("not-a-pair", (x, [0] * 8), {}),
        ("empty-batch", (x[:0], y[:0]), {}),
        ("size-mismatch", (x, y[:5]), {}),
        ("missing-batch-dimension", (x[0], y[0]), {}),
        ("missing-batch-dimension", (images[0], y[:1]), {}),
        ("missing-batch-dimension", (images[0], y[:3]), {"ndim": 4}),
        ("wrong-input-shape", (images, y), {"ndim": 2}),
        ("channels-last", (images.permute(0, 2, 3, 1), y), {}),
        ("uint8-arithmetic", ((images.abs() * 50).byte(), y), {}),
        ("wrong-input-dtype", (x.double(), y), {}),
        ("wrong-input-dtype", (y.reshape(8, 1).expand(8, 4), y), {}),
        ("range-not-normalised", (images.abs().clamp(0, 2) * 127, y), {}),
        ("range-not-normalised", (x, y), {"value_range": (0.0, 1.0)}),
        ("non-finite-values", (holed(x, torch.nan), y), {}),
        ("non-finite-values", (holed(x, torch.inf), y), {}),
        ("non-finite-values", (x, holed(x[:, 0], torch.nan)), {"task": "regression"}),
        ("one-hot-labels", (x, F.one_hot(y)), {"num_classes": 3}),
        ("one-hot-labels", (x, F.one_hot(y).float()), {}),
        ("one-hot-labels", (x, F.one_hot(y % 2).float()), {"task": "binary"}),
        ("wrong-label-dtype", (x, y.float()), {}),
        ("wrong-label-dtype", (x, y.int()), {}),
        ("wrong-label-dtype", (x, torch.full((8, 3), 1 / 3)), {}),
        ("wrong-label-dtype", (x, y % 2), {"task": "binary"}),
        ("wrong-label-dtype", (x, x[:, 0].double()), {"task": "regression"}),
        ("wrong-label-shape", (x, y[:, None]), {"num_classes": 3}),
        ("wrong-label-shape", (x, (y % 2).float()), {"task": "multilabel"}),
        ("label-out-of-range", (x, y + 1), {"num_classes": 3}),
        ("label-out-of-range", (x, y - 1), {"num_classes": 3}),
        ("label-out-of-range", (x, (y % 2).float() * 2 - 1), {"task": "binary"}),
        ("label-out-of-range", (x, torch.ones(8, 3)), {"class_probabilities": True}),
        ("all-targets-ignored", (x, y * 0 - 100), {}),
    ],
)
def test_a_breach_is_the_only_one_named(expected, batch, options):
    report = check_batch(batch, **options)
    assert report.ids == [expected]
    assert not report.ok
    assert report[0].seen and report[0].contract and report[0].fix


@pytest.mark.parametrize("name", ["digits", "spirals", "moons"])
def test_our_own_loaders_keep_the_contract(name):
    data = load(name, num_examples=300)
    for loader in data.loaders(32):
        for batch in loader:
            assert check_batch(batch, num_classes=data.num_classes) == BatchReport()


def test_declared_token_ids_and_class_probabilities_are_no_breach():
    ids = torch.randint(0, 50_000, (8, 12))
    tags = torch.randint(0, 3, (8, 12))
    tags[:, 9:] = -100
    assert check_batch((ids, tags), num_classes=3, input_dtype=torch.long).ok
    assert check_batch((x, torch.rand(8, 3).softmax(1)), class_probabilities=True).ok


@pytest.mark.parametrize(
    ("task", "targets", "loss"),
    [
        ("binary", (y % 2).float(), lambda z, t: F.binary_cross_entropy_with_logits(z[:, 0], t)),
        ("multilabel", (x > 0).float(), F.binary_cross_entropy_with_logits),
        ("regression", x * 40, F.mse_loss),
    ],
)
def test_sound_float_targets_pass_and_torch_takes_them(task, targets, loss):
    assert check_batch((x, targets), task=task).ok
    assert torch.isfinite(loss(x, targets))


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 9), st.integers(2, 7), st.integers(-3, 9), st.integers(1, 6))
def test_labels_pass_exactly_where_cross_entropy_takes_them(size, num_classes, label, width):
    targets = torch.zeros(size, dtype=torch.long)
    targets[-1] = label
    try:
        F.cross_entropy(torch.zeros(size, num_classes), targets)
        taken = True
    except (IndexError, RuntimeError):
        taken = False
    report = check_batch((torch.zeros(size, width), targets), num_classes=num_classes)
    assert ("label-out-of-range" not in report.ids) == taken
    assert taken == report.ok


def test_several_breaches_come_in_one_error():
    report = check_batch((holed(x, torch.nan), y + 1), num_classes=3)
    with pytest.raises(ContractError, match=r"(?s)nan or inf.*labels from 1 to 3.*targets - 1"):
        report.raise_if_broken()
    assert check_batch((x, y)).raise_if_broken() is None


def test_html_is_escaped():
    shown = BatchReport([Breach("a", "inputs", "<script>", "b", "c < d")])._repr_html_()
    assert "<script>" not in shown and "&lt;script&gt;" in shown and "c &lt; d" in shown


def test_an_unknown_task_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"task = 'ranking'.*regression"):
        check_batch((x, y), task="ranking")


def test_a_batch_on_the_device_is_checked(device):
    assert check_batch((x.to(device), y.to(device)), num_classes=3).ok
    assert check_batch((x.to(device), y.to(device)), num_classes=2).ids == ["label-out-of-range"]


@pytest.mark.parametrize(
    ("shape", "layout", "expected"),
    [
        ([8, 30, 17, 3], None, ["channels-last"]),  # a guess; the fix says how to declare it
        ([8, 30, 17, 3], "BCHW", []),
        ([8, 30, 17, 3], "BHWC", []),
        ([8, 28, 28, 1], None, ["channels-last"]),
        ([8, 64, 8, 3], None, []),  # 64 maps of 8 x 3, no image of 64 x 8
        ([8, 128, 9, 4], None, []),
        ([8, 32, 7, 3], None, []),
        ([8, 3, 30, 17], None, []),
        ([8, 3, 30, 17], "BHWC", ["channels-first"]),
        ([8, 3, 9, 3], "BHWC", []),
        ([8, 30, 3], "BCHW", []),
    ],
)
def test_a_declared_layout_is_not_guessed_at(shape, layout, expected):
    inputs = torch.randn(shape, generator=torch.Generator().manual_seed(3))
    report = check_batch((inputs, y), layout=layout)
    assert report.ids == expected
    if expected == ["channels-last"]:
        assert "layout='BCHW'" in report[0].fix


def test_an_unknown_layout_is_refused():
    with pytest.raises(ValueError, match="layout = 'NCHW': choose from BCHW, BHWC"):
        check_batch((images, y), layout="NCHW")


@pytest.mark.parametrize("shape", [(6,), (6, 5), (6, 4, 5)], ids=["[B]", "[B, T]", "[B, H, W]"])
@pytest.mark.parametrize(
    "dtype",
    [torch.long, torch.uint8, torch.int8, torch.int16, torch.int32, torch.bool, torch.uint16,
     torch.uint64, torch.float32, torch.complex64],
    ids=str,
)  # fmt: skip
def test_label_dtypes_are_refused_where_cross_entropy_refuses_them(dtype, shape):
    labels = torch.zeros(shape, dtype=dtype)
    logits = torch.randn(6, 3, *shape[1:])
    try:
        F.cross_entropy(logits, labels)
        taken = True
    except (RuntimeError, NotImplementedError):
        taken = False
    seen = check_batch((torch.randn(6, 2, *shape[1:]), labels), num_classes=3)
    assert seen.ok == taken
    assert taken or seen.ids == ["wrong-label-dtype"]


def test_a_uint8_label_of_156_is_no_ignored_one():
    """As uint8, -100 would be 156; torch's cross-entropy counts 156 as the class it is."""
    labels = torch.full((4,), 156, dtype=torch.uint8)
    logits = torch.randn(4, 200)
    assert F.cross_entropy(logits, labels) == F.cross_entropy(logits, labels.long())
    assert check_batch((torch.randn(4, 2), labels), num_classes=200).ok
    assert check_batch((torch.randn(4, 2), labels), num_classes=10).ids == ["label-out-of-range"]


@pytest.mark.parametrize("task", ["classification", "binary", "multilabel", "regression"])
@pytest.mark.parametrize(
    "odd,breaches",
    [
        (lambda: torch.randn(4, 2, dtype=torch.complex64), ["wrong-input-dtype"]),
        (lambda: torch.randn(4, 2).to(torch.float8_e4m3fn), ["wrong-input-dtype"]),
        (lambda: torch.ones(4, 2, dtype=torch.uint64), ["wrong-input-dtype"]),
        (lambda: torch.rand(4, 2) > 0.5, ["wrong-input-dtype"]),
        (lambda: torch.full((4, 2), 2**62), ["wrong-input-dtype"]),
        (lambda: torch.randn(4, 2).bfloat16(), []),
        (lambda: torch.eye(4).to_sparse(), []),
        (lambda: torch.eye(4).to_sparse_csr(), []),
        (lambda: torch.full((4, 2), torch.nan).to_sparse(), ["non-finite-values"]),
        (lambda: torch.nested.nested_tensor([torch.randn(n) for n in (1, 2, 3, 4)]), []),
        (lambda: torch.nested.nested_tensor([torch.randn(n) for n in (1, 2)]), ["size-mismatch"]),
        (lambda: torch.empty(4, 2, device="meta"), ["no-values"]),
    ],
    ids=["complex", "float8", "uint64", "bool", "huge", "bfloat16", "sparse", "csr", "sparse nan",
         "nested", "nested too few", "meta"],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support", "ignore:The PyTorch API of nested")
def test_no_kind_of_inputs_raises_a_bare_error(odd, breaches, task):
    targets = torch.tensor([0, 1, 1, 0])
    targets = {"binary": targets.float(), "multilabel": torch.rand(4, 3).round(),
               "regression": torch.randn(4)}.get(task, targets)  # fmt: skip
    assert check_batch((odd(), targets), task=task).ids == breaches


@pytest.mark.parametrize("task", ["classification", "binary", "multilabel", "regression"])
@pytest.mark.parametrize(
    "odd",
    [
        torch.ones(4, dtype=torch.complex64),
        torch.ones(4).to(torch.float8_e4m3fn),
        torch.ones(4, dtype=torch.uint64),
        torch.ones(4).to_sparse(),
        torch.ones(4, device="meta"),
    ],
    ids=["complex", "float8", "uint64", "sparse", "meta"],
)
def test_no_kind_of_targets_raises_a_bare_error(odd, task):
    seen = check_batch((torch.randn(4, 2), odd), task=task)
    assert seen.ids[0] == ("no-values" if odd.is_meta else "wrong-label-dtype")
