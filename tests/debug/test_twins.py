"""Programs and their healthy twins: which of them use gradients of an earlier step."""

import pytest
import torch

from course.debug.twins import BUGGY, HEALTHY, KINDS, program

BATCHES = [(torch.randn(n, 3, generator=torch.Generator().manual_seed(i)), torch.arange(n) % 3)
           for i, n in enumerate((6, 6, 4))]  # fmt: skip


def used(make) -> list[torch.Tensor]:
    """Per step, the gradients that step() found less those of this batch alone."""
    torch.manual_seed(0)
    step, model, optimizer = make()
    rest = []

    def compare(*_):
        found = [p.grad.clone() for p in model.parameters()]
        loss = torch.nn.functional.cross_entropy(model(inputs), targets)
        own = torch.autograd.grad(loss, list(model.parameters()))
        rest.append(max(float((a - b).abs().max()) for a, b in zip(found, own, strict=True)))

    optimizer.register_step_pre_hook(compare)
    for inputs, targets in BATCHES:
        step((inputs, targets))
    return rest


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cleared", [*HEALTHY, *BUGGY])
def test_a_program_uses_old_gradients_exactly_where_its_name_says(cleared, kind):
    first, second, third = used(program(cleared, kind=kind))
    assert first == pytest.approx(0, abs=1e-6)
    if cleared in HEALTHY:
        assert max(second, third) == pytest.approx(0, abs=1e-6)
    else:
        assert third > 1e-3 and (second > 1e-3) == (cleared not in ("third", "short"))


@pytest.mark.parametrize("how", [{"norm": True}, {"dropout": 0.5}, {"halves": True}])
def test_every_call_makes_the_same_program_and_leaves_the_generator_alone(how):
    make, ends = program("start", **how), []
    for _ in range(2):
        torch.manual_seed(4)
        before = torch.get_rng_state()
        step, model, _ = make()
        assert torch.equal(torch.get_rng_state(), before)
        losses = [step(batch) for batch in BATCHES]
        ends.append([*losses, *(p.sum().item() for p in model.parameters())])
    assert ends[0] == ends[1]


def test_two_halves_give_the_loss_and_the_step_of_the_whole_batch():
    ends = []
    for halves in (False, True):
        step, model, _ = program("start", halves=halves)()
        ends.append((step(BATCHES[0]), [p.detach().clone() for p in model.parameters()]))
    assert ends[0][0] == pytest.approx(ends[1][0], rel=1e-5)
    torch.testing.assert_close(ends[0][1], ends[1][1])


def test_an_unknown_way_to_clear_is_refused():
    with pytest.raises(ValueError, match="cleared = 'never ever': there are start, zeros"):
        program("never ever")
