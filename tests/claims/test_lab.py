"""The meters that the claims rely on, against sizes that can be counted by hand."""

import time

import pytest
import torch
from torch import nn

from course.claims.lab import (
    LiveBytes,
    cycle_batches,
    digits,
    error_of,
    fit,
    flat,
    grad_norm,
    graph_nodes,
    interleaved,
    mlp,
    peak_bytes,
    relative,
    saved_bytes,
    spirals,
    warnings_of,
)

KIB = 1024


def test_live_bytes_counts_what_is_alive_and_remembers_the_peak():
    with LiveBytes() as live:
        first = torch.zeros(KIB)  # 4 KiB
        second = torch.zeros(2 * KIB)
        assert live.now == 12 * KIB
        view = first[:10]
        assert live.now == 12 * KIB  # a view owns nothing
        del second
        assert (live.now, live.peak) == (4 * KIB, 12 * KIB)
        first.add_(1)
        del first
        assert live.now == 4 * KIB  # the view keeps it
        del view
        assert live.now == 0


def test_live_bytes_sees_what_a_graph_keeps_and_what_backward_frees():
    layer, inputs = nn.Linear(256, 256, bias=False), torch.randn(64, 256)
    output_size = 64 * 256 * 4
    with LiveBytes() as live:
        loss = layer(inputs).exp().sum()
        assert live.now == output_size + 4  # exp saved its result; the rest is gone
        loss.backward()
        assert live.now == layer.weight.nbytes + 4  # .grad, and the loss
        del loss


def test_saved_bytes_counts_each_tensor_once_and_skips_the_weights():
    model, inputs = (
        nn.Sequential(nn.Linear(8, 16), nn.Sigmoid(), nn.Linear(16, 4)),
        torch.randn(32, 8),
    )
    weights = list(model.parameters())
    hidden = 32 * 16 * 4  # sigmoid's output, saved by it and by the next layer
    assert saved_bytes(lambda: model(inputs), without=[*weights, inputs]) == hidden
    assert saved_bytes(lambda: model(inputs), without=weights) == hidden + inputs.nbytes


def test_peak_bytes_of_a_chain_is_two_links_long(device):
    def chain() -> None:
        x = torch.zeros(2**20, device=device)
        for _ in range(5):
            x = x + 1

    chain()
    assert peak_bytes(chain, device) == 2 * 4 * 2**20


def test_interleaved_times_find_a_ratio_of_work():
    def work(rounds: int) -> float:
        return sum(i * 0.5 for i in range(rounds))

    ratio = interleaved(lambda: work(60_000), lambda: work(20_000))
    assert 2 < ratio.median < 4.5 and ratio.low <= ratio.median <= ratio.high


def test_interleaved_runs_in_turn():
    calls = []
    interleaved(lambda: calls.append("a"), lambda: calls.append("b"), rounds=3)
    assert calls == ["a", "b"] * 4  # with the warm-up


def test_a_sleeping_neighbour_costs_no_processor_time():
    ratio = interleaved(lambda: time.sleep(0.01), lambda: sum(range(100_000)), rounds=3)
    assert ratio.median < 1


def test_the_gradient_norm_is_that_of_all_numbers_together():
    model = mlp(2, 3, 2, seed=0)
    model(torch.ones(1, 2)).sum().backward()
    together = torch.cat([p.grad.flatten() for p in model.parameters()]).norm().item()
    assert grad_norm(model) == pytest.approx(together, rel=1e-6)


def test_batches_cover_every_example_once_an_epoch():
    batches = cycle_batches(10, 4)
    rows = torch.cat([next(batches) for _ in range(3)])
    assert sorted(rows.tolist()) == list(range(10))


def test_fit_takes_the_steps_that_sgd_takes():
    inputs, targets = torch.randn(8, 2), torch.arange(8) % 3
    ours, theirs = mlp(seed=1), mlp(seed=1)
    fit(ours, torch.optim.SGD(ours.parameters(), 0.1), inputs, targets, steps=2, batch_size=8)
    for _ in range(2):
        loss = nn.CrossEntropyLoss()(theirs(inputs), targets)
        grads = torch.autograd.grad(loss, list(theirs.parameters()))
        with torch.no_grad():
            for parameter, grad in zip(theirs.parameters(), grads, strict=True):
                parameter -= 0.1 * grad
    torch.testing.assert_close(flat(ours), flat(theirs), rtol=1e-5, atol=1e-6)


def test_data_depends_on_the_seed_alone():
    spirals.cache_clear()
    first = spirals(3)[0].clone()
    spirals.cache_clear()
    assert torch.equal(first, spirals(3)[0]) and not torch.equal(first, spirals(4)[0])
    assert [len(part) for part in spirals(3)] == [480, 480, 120, 120]
    assert digits(0)[0].shape[1] == 64


def test_errors_and_warnings_are_named():
    import warnings

    assert error_of(lambda: 1 / 0) == "ZeroDivisionError" and error_of(lambda: 1) == ""
    assert warnings_of(warnings.warn, "mind the gap\nplease") == ["mind the gap"]


def test_relative_difference_and_graph_size():
    assert relative(torch.tensor([3.0, 4.0]), torch.tensor([0.0, 4.0])) == pytest.approx(0.75)
    x = torch.ones(1, requires_grad=True)
    assert graph_nodes(x * 2) == 2  # the product, and the leaf's accumulator
