"""How large signals and gradients are, layer by layer: the first thing to look at when debugging.

    for layer in read_signals(model, inputs, targets, criterion):
        print(layer.name, layer.std, layer.zeros, layer.grad_std)

    dead_units(model, loader)          # {"1": 3, "4": 0}: units of each ReLU that never fire

Nothing is left behind: no hooks, no `.grad`, and running statistics and modes are as before.

Source: Lecture 3, "Debug checklist · why won't loss go down?"; Glorot and Bengio 2010; ledger B20.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True, kw_only=True)
class LayerSignal:
    """What one layer put out for a batch, and the gradient that came back to it."""

    name: str
    """Name as in `model.named_modules()`."""
    kind: str
    """Class of the module, e.g. `Linear`."""
    output: Tensor
    """What the layer put out, on the CPU."""
    gradient: Tensor
    """Gradient of the loss with respect to it; zeros if none arrives."""

    @property
    def std(self) -> float:
        """Standard deviation of the output over everything."""
        return self.output.double().std(correction=0).item()

    @property
    def grad_std(self) -> float:
        """Standard deviation of the gradient over everything."""
        return self.gradient.double().std(correction=0).item()

    @property
    def zeros(self) -> float:
        """Share of the output that is exactly 0."""
        return (self.output == 0).double().mean().item()


def read_signals(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    criterion: Callable[[Tensor, Tensor], Tensor],
    *,
    kinds: tuple[type[nn.Module], ...] = (nn.Linear, nn.Conv2d),
) -> list[LayerSignal]:
    """Make one forward and backward pass and read each layer of these kinds, in the order they ran.

    Args:
        model: In any mode; it is run in train mode, as an update would.
        inputs: A batch.
        targets: What the criterion expects.
        criterion: Loss of the model's output and the targets.
        kinds: Classes of modules to look at.
    """
    seen: list[tuple[str, nn.Module, Tensor]] = []

    def look(name: str) -> Callable[..., Tensor]:
        def hook(module: nn.Module, args: object, output: Tensor) -> Tensor:
            seen.append((name, module, output))
            return output.clone()  # so that an in-place ReLU behind it does not change what is kept

        return hook

    layers = {name: m for name, m in model.named_modules() if isinstance(m, kinds)}
    with _as_it_was(model, layers, look), torch.enable_grad():
        model.train()
        loss = criterion(model(inputs), targets)
        found = torch.autograd.grad(loss, [output for *_, output in seen], allow_unused=True)
    return [
        LayerSignal(
            name=name,
            kind=type(module).__name__,
            output=output.detach().cpu(),
            gradient=torch.zeros_like(output).cpu() if grad is None else grad.cpu(),
        )
        for (name, module, output), grad in zip(seen, found, strict=True)
    ]


def dead_units(model: nn.Module, loader: Iterable[tuple[Tensor, Tensor]]) -> dict[str, int]:
    """Count the units of each ReLU that give 0 for every example of all batches, in eval mode.

    A unit is a column of [B, units]; of images [B, channels, H, W] it is a channel, dead if it is 0
    at every position of every example.

    Args:
        model: In any mode; each ReLU runs once per forward pass.
        loader: Yields pairs of inputs and targets, at least one.

    Returns:
        Name of each ReLU to the number of its dead units.
    """
    fired: dict[str, Tensor] = {}

    def look(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: object, output: Tensor) -> None:
            over = [dim for dim in range(output.dim()) if dim != 1]
            now = (output > 0).sum(over) > 0
            fired[name] = fired[name] | now if name in fired else now

        return hook

    relus = {name: m for name, m in model.named_modules() if isinstance(m, nn.ReLU)}
    with _as_it_was(model, relus, look), torch.no_grad():
        model.eval()
        for inputs, _ in loader:
            model(inputs)
    return {name: int((~fired[name]).sum()) for name in relus if name in fired}


@contextmanager
def _as_it_was(
    model: nn.Module, watched: dict[str, nn.Module], look: Callable[[str], Callable[..., object]]
) -> Iterator[None]:
    """Hooks on these modules inside; modes and buffers as before afterwards, also if it raises."""
    modes = [(module, module.training) for module in model.modules()]
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    hooks = [module.register_forward_hook(look(name)) for name, module in watched.items()]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
        for module, training in modes:
            module.training = training
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)
