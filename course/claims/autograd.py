"""Autograd: what backward() adds, frees and needs."""

from __future__ import annotations

import torch

from course.claims.lab import error_of
from course.claims.registry import claim
from course.claims.trial import Measured, weigh


def _leaf(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


@claim(
    "F26",
    title="backward() adds to .grad",
    expected="holds",
    says="backward() adds the gradients it computes to .grad, and overwrites nothing.",
)
def backward_adds() -> Measured:
    x = _leaf(2.0)
    grads = []
    for factor in (3, 5, None, 7):
        if factor is None:
            x.grad.zero_()
            continue
        (factor * x).sum().backward()
        grads.append(x.grad.item())
    evidence = {"gradient after the second backward": grads[1], "after 3x, 5x; cleared, 7x": grads}
    return weigh("gradient after the second backward", evidence, stated=grads == [3, 3 + 5, 7])


@claim(
    "F34",
    title="backward() on a non-scalar needs an argument",
    expected="holds",
    says="backward() on a tensor of several numbers needs a gradient argument.",
)
def non_scalar_backward() -> Measured:
    x = _leaf(1.0, 2.0, 3.0)
    several = error_of(lambda: (x * x).backward())
    one = error_of(lambda: (x * x).sum().reshape(1).backward())
    x.grad = None
    given = error_of(lambda: (x * x).backward(torch.ones(3, dtype=x.dtype)))
    right = bool((x.grad == 2 * x).all())
    evidence = {
        "calls without argument that pass, of 1": int(not several),
        "3 numbers, no argument, raises": several or "nothing",
        "1 number in a vector, no argument, raises": one or "nothing",
        "with an argument the gradient is right": right,
    }
    stated = several == "RuntimeError" and not given and right
    return weigh("calls without argument that pass, of 1", evidence, stated=stated)


@claim(
    "F35",
    title="backward() frees the graph; a second one needs retain_graph",
    expected="holds if",
    says="After backward() the graph is gone, and a second backward needs retain_graph=True.",
    condition="if the graph saved tensors for backward(); a graph of sums alone can be run again",
)
def graph_is_freed() -> Measured:
    def second(make, **kept: bool) -> str:
        output = make(_leaf(1.0, 2.0))
        output.backward(**kept)
        return error_of(output.backward)

    square = second(lambda x: (x**2).sum())
    plain = second(lambda x: x.sum())
    retained = second(lambda x: (x**2).sum(), retain_graph=True)
    evidence = {
        "graphs whose second backward raises, of 2": sum(map(bool, (square, plain))),
        "x², second backward raises": square or "nothing",
        "sum, second backward raises": plain or "nothing",
        "x² with retain_graph raises": retained or "nothing",
    }
    return weigh(
        "graphs whose second backward raises, of 2",
        evidence,
        stated=bool(square and plain) and not retained,
        conditioned=bool(square) and not retained,
    )


@claim(
    "F36",
    title="create_graph gives higher derivatives",
    expected="holds",
    says="With create_graph=True a gradient can itself be differentiated.",
)
def higher_derivatives() -> Measured:
    x = _leaf(2.0)
    (first,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    x_value = x.item()
    evidence = {"second derivative of x³ at 2": second.item(), "first": first.item()}
    stated = first.item() == 3 * x_value**2 and second.item() == 6 * x_value
    return weigh("second derivative of x³ at 2", evidence, stated=stated)


@claim(
    "F37",
    title="Reverse mode needs one pass, forward mode one per input",
    expected="holds",
    says="For one output, reverse mode takes one pass, but forward mode takes one per input.",
)
def reverse_against_forward(seed: int) -> Measured:
    x = torch.randn(5, dtype=torch.float64)

    def loss(x: torch.Tensor) -> torch.Tensor:
        return (x.sin() * x).sum()

    reverse = torch.func.grad(loss)(x)
    passes = [torch.func.jvp(loss, (x,), (axis,))[1] for axis in torch.eye(5, dtype=x.dtype)]
    difference = (torch.stack(passes) - reverse).abs().max()
    one_direction_is_enough = bool((passes[0] == reverse).all())
    evidence = {"forward passes for 5 inputs": len(passes), "largest difference": difference}
    stated = difference < 1e-12 and not one_direction_is_enough
    return weigh("forward passes for 5 inputs", evidence, stated=stated)


@claim(
    "F131",
    title="Lab step 2 needs retain_graph",
    expected="does not hold",
    says="The lab passes retain_graph=True to its four backward() calls, as if they needed it.",
)
def lab_needs_retain_graph() -> Measured:
    x = _leaf(1.0, 2.0, 3.0)
    outputs = {
        "sum": x.sum(),
        "squared sum": (x**2).sum(),
        "mean": x.mean(),
        "max": x.max(),
    }
    errors, grads = {}, {}
    for name, output in outputs.items():
        x.grad = None
        errors[name] = error_of(output.backward) or "nothing"
        grads[name] = x.grad.tolist()
    failed = sum(error != "nothing" for error in errors.values())
    evidence = {"calls that raise without it, of 4": failed, "gradients": grads}
    return weigh(
        "calls that raise without it, of 4",
        evidence,
        stated=failed > 0,
        note="The four share only the leaf, so each has its own graph.",
    )
