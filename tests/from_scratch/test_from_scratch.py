"""The formulas written out are torch's operators of the same name."""

import doctest
import importlib
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from course.from_scratch import activations, initialisation, layers, losses, optimizers, two_modes

DRAWN = torch.Generator().manual_seed(0)


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=DRAWN, dtype=torch.float64)


def close(ours, theirs, **tolerance) -> None:
    torch.testing.assert_close(torch.as_tensor(ours), theirs, **tolerance)


@pytest.mark.parametrize("name", ["activations", "initialisation", "losses", "optimizers", "tape"])
def test_the_examples_in_docstrings(name):
    module = importlib.import_module(f"course.from_scratch.{name}")
    tried = doctest.testmod(module)
    assert tried.attempted and not tried.failed


ACTIVATIONS = {
    "relu": (activations.relu, activations.relu_backward, torch.relu),
    "sigmoid": (activations.sigmoid, activations.sigmoid_backward, torch.sigmoid),
    "tanh": (np.tanh, activations.tanh_backward, torch.tanh),
    "softmax": (activations.softmax, activations.softmax_backward, lambda x: x.softmax(-1)),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_and_its_gradient(name):
    ours, backward, theirs = ACTIVATIONS[name]
    x, grad = drawn(4, 5).requires_grad_(), drawn(4, 5)
    x.data[0, 0] = 0.0
    y = theirs(x)
    y.backward(grad)
    close(ours(x.detach().numpy()), y.detach())
    close(backward(x.detach().numpy(), grad.numpy()), x.grad)


@given(st.lists(st.floats(-1e4, 1e4), min_size=1, max_size=6))
@settings(max_examples=50, deadline=None)
def test_logsumexp_never_overflows(values):
    theirs = torch.tensor(values, dtype=torch.float64).logsumexp(0).item()
    assert float(activations.logsumexp(values)) == pytest.approx(theirs, rel=1e-12, abs=1e-12)


def test_logsumexp_along_an_axis_and_of_minus_infinity():
    x = drawn(3, 4)
    close(activations.logsumexp(x.numpy(), axis=0), x.logsumexp(0))
    assert activations.logsumexp([-math.inf, -math.inf]) == -math.inf


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ignored", [False, True])
def test_cross_entropy_and_its_gradient(label_smoothing, weighted, ignored):
    logits = (3 * drawn(6, 4)).requires_grad_()
    targets = torch.tensor([0, 3, 1, 1, 2, 0])
    if ignored:
        targets[2] = -100
    weights = drawn(4).abs() + 0.1 if weighted else None
    loss = F.cross_entropy(logits, targets, weight=weights, label_smoothing=label_smoothing)
    loss.backward()
    given_ = {
        "label_smoothing": label_smoothing,
        "class_weights": None if weights is None else weights.numpy(),
    }
    plain = logits.detach().numpy()
    assert losses.cross_entropy(plain, targets.numpy(), **given_) == pytest.approx(loss.item())
    close(losses.cross_entropy_backward(plain, targets.numpy(), **given_), logits.grad)


def test_cross_entropy_of_ignored_targets_alone_is_nan_and_of_a_wrong_class_refused():
    assert math.isnan(losses.cross_entropy([[1.0, 2.0]], [-100]))
    with pytest.raises(ValueError, match="target 2: expected class indices from 0 to 1"):
        losses.cross_entropy([[1.0, 2.0]], [2])


@pytest.mark.parametrize(
    "name,theirs",
    [("bce_with_logits", F.binary_cross_entropy_with_logits), ("mse", F.mse_loss)],
)
def test_elementwise_losses_and_their_gradients(name, theirs):
    z, t = (20 * drawn(5, 2)).requires_grad_(), torch.rand(5, 2, dtype=torch.float64)
    loss = theirs(z, t)
    loss.backward()
    plain = z.detach().numpy(), t.numpy()
    assert getattr(losses, name)(*plain) == pytest.approx(loss.item())
    close(getattr(losses, f"{name}_backward")(*plain), z.grad)
    with pytest.raises(ValueError, match="broadcast"):
        getattr(losses, name)(np.zeros((3, 1)), np.zeros(3))


def test_linear_and_its_gradients():
    x, weight, bias = drawn(5, 3).requires_grad_(), drawn(2, 3).requires_grad_(), drawn(2)
    bias.requires_grad_()
    grad = drawn(5, 2)
    F.linear(x, weight, bias).backward(grad)
    plain = [t.detach().numpy() for t in (x, weight, bias)]
    close(layers.linear(*plain), F.linear(x, weight, bias).detach())
    for ours, theirs in zip(
        layers.linear_backward(plain[0], plain[1], grad.numpy()), (x, weight, bias), strict=True
    ):
        close(ours, theirs.grad)


def test_our_linear_draws_the_same_numbers_as_torchs():
    torch.manual_seed(3)
    ours = layers.Linear(7, 4)
    torch.manual_seed(3)
    theirs = nn.Linear(7, 4)
    assert [name for name, _ in ours.named_parameters()] == ["weight", "bias"]
    torch.testing.assert_close(dict(ours.named_parameters()), dict(theirs.named_parameters()))
    x = torch.randn(2, 7)
    torch.testing.assert_close(ours(x), theirs(x))


def test_dropout_keeps_the_mean_and_rests_in_eval():
    x = np.array([0.8, 1.2, 0.3, 0.9])
    keep = [False, True, False, True]
    assert layers.dropout(x, keep, 0.5).tolist() == [0.0, 2.4, 0.0, 1.8]  # N12
    assert layers.dropout(x, keep, 0.5, training=False).tolist() == x.tolist()
    with pytest.raises(ValueError, match="p = 1"):
        layers.dropout(x, keep, 1)


def test_batch_norm_in_both_modes():
    theirs = nn.BatchNorm1d(3, affine=False).double()
    ours = layers.BatchNorm(3)
    for _ in range(3):
        x = 2 * drawn(6, 3) + 1
        close(ours(x.numpy()), theirs(x))
    close(ours.running_mean, theirs.running_mean)
    close(ours.running_var, theirs.running_var)
    ours.training = False
    close(ours(x.numpy()), theirs.eval()(x))
    ours.training = True
    with pytest.raises(ValueError, match="at least 2"):
        ours(x[:1].numpy())


def test_layer_norm():
    x = drawn(4, 6)
    close(layers.layer_norm(x.numpy()), F.layer_norm(x, (6,)))


def test_initial_standard_deviations_are_torchs():
    weight = torch.empty(400, 300)
    for ours, theirs in (
        (initialisation.he_normal_, lambda w: nn.init.kaiming_normal_(w, nonlinearity="relu")),
        (initialisation.xavier_normal_, nn.init.xavier_normal_),
    ):
        torch.manual_seed(0)
        found = ours(weight.clone())
        torch.manual_seed(0)
        torch.testing.assert_close(found, theirs(weight.clone()))
    for name, gain in initialisation.GAIN.items():
        assert gain == pytest.approx(nn.init.calculate_gain(name))
    convolution = torch.empty(8, 3, 5, 5)
    assert initialisation.fans(convolution) == nn.init._calculate_fan_in_and_fan_out(convolution)
    with pytest.raises(ValueError, match="two dimensions"):
        initialisation.fans(torch.empty(3))


def test_a_whole_model_is_drawn_in_place_and_nothing_but_its_layers():
    inner = nn.Sequential(nn.BatchNorm2d(32), nn.Conv2d(32, 64, 3, bias=False))
    model = nn.Sequential(nn.Conv2d(16, 32, 5), inner, nn.Flatten(), nn.Linear(200, 300))
    before = list(model.parameters())
    inner[0].weight.data.fill_(3.0)
    initialisation.initialise_(model, "tanh")
    assert all(a is b for a, b in zip(before, model.parameters(), strict=True))
    assert (inner[0].weight == 3).all() and not model[0].bias.any() and not model[3].bias.any()
    for layer in (model[0], inner[1], model[3]):
        wanted = nn.init.kaiming_normal_(torch.empty_like(layer.weight), nonlinearity="tanh")
        assert layer.weight.std().item() == pytest.approx(wanted.std().item(), rel=0.05)
    with pytest.raises(ValueError, match="expected one of"):
        initialisation.initialise_(model, "rellu")


@pytest.mark.parametrize(
    "activation,residual", [("linear", False), ("relu", False), ("linear", True)]
)
def test_the_mean_square_after_many_layers_is_that_of_drawn_ones(activation, residual):
    n, depth, variance, seen = 400, 4, 0.003, []
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        x = torch.randn(20, n, generator=generator)
        for _ in range(depth):
            y = x @ (variance**0.5 * torch.randn(n, n, generator=generator))
            y = y.relu() if activation == "relu" else y
            x = x + y if residual else y
        seen.append(x.square().mean().item())
    found = initialisation.mean_square_after(
        depth, n, variance, activation=activation, residual=residual
    )
    assert found == pytest.approx(sum(seen) / len(seen), rel=0.05)


@pytest.mark.parametrize("shape", [(6, 3), (4, 3, 5), (2, 3, 4, 2)])
def test_our_batch_norm_is_torchs_in_both_modes_and_backward(shape):
    theirs = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d}[len(shape)](3, momentum=0.3)
    ours = two_modes.BatchNorm(3, momentum=0.3).double()
    theirs = theirs.double()
    for _ in range(3):
        x, grad = (2 * drawn(*shape) + 1).requires_grad_(), drawn(*shape)
        slopes = [torch.autograd.grad(norm(x), x, grad)[0] for norm in (ours, theirs)]
        close(*slopes)
    state = theirs.state_dict()
    state.pop("num_batches_tracked")
    close(ours.running_mean, state["running_mean"])
    assert list(ours.state_dict()) == list(state)
    torch.testing.assert_close(dict(ours.state_dict()), dict(state))
    close(ours.eval()(x), theirs.eval()(x))
    with pytest.raises(ValueError, match="variance 0"):
        ours.train()(drawn(1, 3))


def test_our_dropout_draws_like_torchs_and_rests_in_eval():
    x = drawn(200, 200).abs() + 0.1
    out = two_modes.dropout(x, 0.2, training=True)
    kept = out != 0
    assert kept.double().mean().item() == pytest.approx(0.8, abs=0.01)
    close(out[kept], x[kept] * 1.25)  # N40
    assert two_modes.dropout(x, 0.2, training=False) is x
    assert not two_modes.dropout(x, 1, training=True).any()
    with pytest.raises(ValueError, match="probability"):
        two_modes.dropout(x, 1.2, training=True)


def test_group_norm():
    x = drawn(3, 6, 4)
    for groups in (1, 2, 6):
        close(layers.group_norm(x.numpy(), groups), F.group_norm(x, groups))
    with pytest.raises(ValueError, match="6 channels in 4 groups"):
        layers.group_norm(x.numpy(), 4)


OPTIMIZERS = {
    "sgd": (optimizers.sgd_step, torch.optim.SGD, {}),
    "momentum": (optimizers.sgd_step, torch.optim.SGD, {"momentum": 0.9}),
    "nesterov": (optimizers.sgd_step, torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
    "decay": (optimizers.sgd_step, torch.optim.SGD, {"momentum": 0.9, "weight_decay": 0.1}),
    "adam": (optimizers.adam_step, torch.optim.Adam, {"weight_decay": 0.1}),
    "adamw": (optimizers.adamw_step, torch.optim.AdamW, {"betas": (0.8, 0.99)}),
}


@pytest.mark.parametrize("kind", ["array", "tensor"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_twenty_steps_are_torchs(name, kind):
    step, theirs, options = OPTIMIZERS[name]
    weight = nn.Parameter(drawn(3, 2))
    optimizer = theirs([weight], lr=0.05, **options)
    theta, state = weight.detach().clone(), {}
    if kind == "array":
        theta = theta.numpy()
    for _ in range(20):
        grad = drawn(3, 2)
        weight.grad = grad
        optimizer.step()
        theta, state = step(
            theta, grad.numpy() if kind == "array" else grad, state, lr=0.05, **options
        )
    close(theta, weight.detach())


def test_nesterov_without_momentum_is_refused():
    with pytest.raises(ValueError, match="give a momentum"):
        optimizers.sgd_step(1.0, 1.0, {}, lr=0.1, nesterov=True)
