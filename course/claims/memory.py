"""Memory, measured with counters: what a graph keeps alive, and what switching it off saves.

On the CPU the counter is `LiveBytes` (bytes of all living tensors), on CUDA the allocator's.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from course.claims.lab import (
    LiveBytes,
    flat_grad,
    graph_nodes,
    mlp,
    peak_bytes,
    relative,
    saved_bytes,
)
from course.claims.registry import claim
from course.claims.settings import CONV, DIABETES, Setting, conv
from course.claims.trial import Measured, weigh, weigh_settings

_NETS = (
    DIABETES.but(
        model="MLP 10-256-256-1",
        make_model=lambda seed: mlp(10, 256, 256, 1, seed=seed),
        steps=20,
    ),
    CONV.but(steps=20),
)
"""Two networks that differ in model, data, loss and optimizer."""

GROWN = 1.5
"""Factor above which memory counts as grown; kept graphs exceed a factor of 2 here."""


def _val_batch(one: Setting, seed: int) -> tuple[Tensor, Tensor]:
    """A full batch of validation inputs and targets."""
    *_, inputs, targets = one.make_data(seed)
    return inputs[: one.batch_size], targets[: one.batch_size]


def _live_over_validation(
    one: Setting, model: nn.Module, seed: int, keep: str, *, no_grad: bool = False
) -> list[int]:
    """Live bytes after each of 50 validation batches that keep nothing, loss tensors or numbers."""
    inputs, targets = _val_batch(one, seed)
    kept, live_after = [], []
    with LiveBytes() as live, torch.set_grad_enabled(not no_grad):
        for _ in range(50):
            loss = one.loss_fn(model(inputs), targets)
            if keep == "losses":
                kept.append(loss)
            elif keep == "numbers":
                kept.append(loss.item())
            live_after.append(live.now)
    return live_after


def _growth(live_after: list[int]) -> float:
    """Live bytes at the end over those at the second measurement."""
    return live_after[-1] / live_after[1]


@claim(
    "F46",
    title="Validation without no_grad uses more and more memory until none is left",
    expected="does not hold",
    says="Validation without no_grad holds more memory with every batch, until none is left.",
)
def validation_without_no_grad(seed: int) -> Measured:
    growth, megabytes, held = {}, {}, {}
    for one in _NETS:
        model = one.train(100 * seed).model.eval()
        plain, losses, numbers = (
            _live_over_validation(one, model, seed, keep)
            for keep in ("nothing", "losses", "numbers")
        )
        guarded = _live_over_validation(one, model, seed, "nothing", no_grad=True)
        growth[one.data] = {
            "nothing kept": _growth(plain),
            "losses appended": _growth(losses),
            "loss.item() appended": _growth(numbers),
        }
        megabytes[one.data] = {
            "without no_grad": plain[-1] / 1e6,
            "with no_grad": guarded[-1] / 1e6,
            "losses appended": losses[-1] / 1e6,
        }
        held[one] = _growth(plain) > GROWN
    evidence = {
        "diabetes: live bytes, batch 50 / batch 2": growth["diabetes"]["nothing kept"],
        "live bytes, batch 50 / batch 2, by data": growth,
        "live MB at batch 50, by data": megabytes,
    }
    return weigh_settings(
        "diabetes: live bytes, batch 50 / batch 2",
        evidence,
        held,
        criterion=f"after batch 50, more than {GROWN} times as many bytes are alive as after batch "
        "2",
        note="It costs one batch's graph. Memory grows only if tensors are kept.",
    )


def _live_after_evaluations(one: Setting, seed: int, *, keep: bool) -> list[int]:
    """Live bytes after each of 6 evaluations of 5 batches; the network trains in between."""
    model = one.make_model(100 * seed)
    inputs, targets = _val_batch(one, seed)
    kept, live_after = [], []

    def evaluate(step: int, model: nn.Module) -> None:
        if step % 5 < 4:
            return
        model.eval()
        for _ in range(5):
            loss = one.loss_fn(model(inputs), targets)
            kept.extend([loss] if keep else [])
        live_after.append(live.now)
        model.train()

    with LiveBytes() as live:
        one.train(100 * seed, model=model, watch=evaluate)
    return live_after


@claim(
    "F75",
    title="Without no_grad memory climbs at every evaluation",
    expected="does not hold",
    says="Every evaluation without no_grad leaves more memory in use than the one before.",
)
def experiment_4(seed: int) -> Measured:
    growth, held = {}, {}
    for one in (net.but(steps=30) for net in _NETS):
        free, kept = (_live_after_evaluations(one, seed, keep=keep) for keep in (False, True))
        growth[one.data] = {"nothing kept": _growth(free), "losses kept": _growth(kept)}
        held[one] = _growth(free) > GROWN
    evidence = {
        "diabetes: live bytes, evaluation 6 / evaluation 2": growth["diabetes"]["nothing kept"],
        "live bytes, evaluation 6 / evaluation 2, by data": growth,
    }
    return weigh_settings(
        "diabetes: live bytes, evaluation 6 / evaluation 2",
        evidence,
        held,
        criterion=f"after evaluation 6, more than {GROWN} times as many bytes are alive as after "
        "evaluation 2",
        note="To show growth, a simulator must keep references.",
    )


def _bytes_a_step(
    one: Setting, seed: int, keep: Callable[[Tensor, Tensor], Tensor], *, backward: bool
) -> tuple[float, list[Tensor]]:
    """Tensor bytes that stay per step if `keep(outputs, loss)` is appended, and what was kept.

    With `backward` every step is an update; without it, this is validation that forgot no_grad.
    """
    model = one.make_model(100 * seed).train(backward)
    optimizer = one.make_optimizer(model)
    inputs, targets = _val_batch(one, seed)
    kept = []
    with LiveBytes() as live:
        for step in range(one.steps):
            outputs = model(inputs)
            loss = one.loss_fn(outputs, targets)
            if backward:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            kept.append(keep(outputs, loss))
            if step == 0:
                first = live.now
        return (live.now - first) / (one.steps - 1), kept


@claim(
    "F47",
    title="Keeping loss tensors in training leaks graphs",
    expected="holds if",
    says="Appending loss tensors instead of numbers keeps every step's graph in memory.",
    condition="if they are kept before backward(), or in validation; after backward() only the "
    "nodes of the graph are left, without the activations",
)
def keeping_losses(seed: int) -> Measured:
    found, held = {}, {}
    for one in _NETS:
        after, losses = _bytes_a_step(one, seed, lambda _, loss: loss, backward=True)
        before, _ = _bytes_a_step(one, seed, lambda _, loss: loss, backward=False)
        activations = _activations(one, seed)
        found[one.data] = {
            "after backward": after,
            "without backward": before,
            "activations of one step": activations,
            f"graph nodes reachable from the sum of {len(losses)} losses": graph_nodes(sum(losses)),
        }
        held[f"{one}, kept after backward"] = after > 0.5 * activations
        held[f"{one}, kept without backward"] = before > 0.5 * activations
    evidence = {
        "diabetes: tensor bytes kept per step, after backward": found["diabetes"]["after backward"],
        "tensor bytes kept per step, by data": found,
    }
    return weigh_settings(
        "diabetes: tensor bytes kept per step, after backward",
        evidence,
        held,
        criterion="each kept loss holds more than half the bytes of one step's activations",
        note="The scalar of a mean squared error keeps the storage of the whole batch's squares.",
    )


def _activations(one: Setting, seed: int) -> int:
    """Bytes that the graph of one batch keeps for backward."""
    model = one.make_model(100 * seed)
    inputs, targets = _val_batch(one, seed)
    return saved_bytes(
        lambda: one.loss_fn(model(inputs), targets), without=[*model.parameters(), inputs]
    )


@claim(
    "F48",
    title="Storing outputs runs out of memory; detach() fixes it",
    expected="holds if",
    says="Stored outputs fill the memory with graphs, and detach() avoids this.",
    condition="if there was no backward(), as in validation without no_grad; after backward() the "
    "output and its detached copy cost the same",
)
def storing_outputs(seed: int) -> Measured:
    ratios, found, held = {}, {}, {}
    for one in _NETS:
        for place, backward in (("training", True), ("validation", False)):
            stored, _ = _bytes_a_step(one, seed, lambda out, _: out, backward=backward)
            detached, _ = _bytes_a_step(one, seed, lambda out, _: out.detach(), backward=backward)
            name = f"{one.data}, {place}"
            found[name], ratios[name] = [stored, detached], stored / detached
            held[f"{one}, {place}"] = stored > GROWN * detached
    evidence = {
        "diabetes, training: bytes per step, stored / detached": ratios["diabetes, training"],
        "bytes a step, stored / detached": ratios,
        "bytes per step, stored and detached": found,
    }
    return weigh_settings(
        "diabetes, training: bytes per step, stored / detached",
        evidence,
        held,
        criterion=f"stored outputs hold more than {GROWN} times as many bytes as detached ones",
    )


def _peak_ratio(depth: int, device: torch.device) -> float:
    """Peak bytes of a forward pass under no_grad over those with a graph, at this depth."""
    model = mlp(*[64] * (depth + 1)).to(device)
    inputs = torch.randn(256, 64, device=device)

    def forward(grad: bool) -> int:
        def run() -> None:
            with torch.set_grad_enabled(grad):
                model(inputs)

        return peak_bytes(run, device)

    forward(True)  # warm-up
    return forward(False) / forward(True)


@claim(
    "F49",
    title="no_grad roughly halves memory",
    expected="holds if",
    says="no_grad roughly halves the memory of a forward pass.",
    condition="if the network has the right depth; no_grad saves nothing at depth 1 and nearly "
    "everything at 16",
)
def no_grad_memory(device: torch.device) -> Measured:
    ratios = {depth: _peak_ratio(depth, device) for depth in (1, 2, 4, 8, 16)}
    values = list(ratios.values())
    falling = all(later <= earlier for earlier, later in pairwise(values))
    evidence = {
        "peak ratio at depth 16": ratios[16],
        "peak with no_grad / with a graph, by depth": ratios,
    }
    return weigh(
        "peak ratio at depth 16",
        evidence,
        stated=all(0.35 < value < 0.65 for value in values),
        conditioned=falling and values[-1] < 0.5 < values[0],
    )


@claim(
    "F50",
    title="Activations grow with batch and depth",
    expected="holds",
    says="The memory of activations is proportional to batch size times depth.",
)
def activation_memory() -> Measured:
    def saved(batch: int, depth: int) -> int:
        model = mlp(*[64] * (depth + 1))
        inputs = torch.randn(batch, 64)
        return saved_bytes(lambda: model(inputs), without=[*model.parameters(), inputs])

    by_batch = [saved(batch, 5) for batch in (128, 256, 512, 1024)]
    by_depth = [saved(128, depth) for depth in (3, 5, 7, 9)]
    doubling = [later / earlier for earlier, later in pairwise(by_batch)]
    steps = [later - earlier for earlier, later in pairwise(by_depth)]
    evidence = {
        "activations, batch doubled": max(doubling),
        "MB at batch 128, 256, 512, 1024": [n / 1e6 for n in by_batch],
        "MB at depth 3, 5, 7, 9": [n / 1e6 for n in by_depth],
    }
    stated = all(abs(r - 2) < 0.02 for r in doubling) and len(set(steps)) == 1 and steps[0] > 0
    return weigh("activations, batch doubled", evidence, stated=stated)


class _Blocks(nn.Module):
    """A first layer, four blocks that can be checkpointed, and a head."""

    def __init__(self, first: nn.Module, block: Callable[[], nn.Module], head: nn.Module) -> None:
        super().__init__()
        self.first, self.head = first, head
        self.blocks = nn.ModuleList(block() for _ in range(4))
        self.saving = False
        self.forwards = 0
        self.blocks[0].register_forward_pre_hook(self._count)

    def _count(self, *_: object) -> None:
        self.forwards += 1

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.first(inputs)
        for block in self.blocks:
            hidden = (
                checkpoint(block, hidden, use_reentrant=False) if self.saving else block(hidden)
            )
        return self.head(hidden)


def _mlp_blocks(seed: int) -> _Blocks:
    torch.manual_seed(seed)
    return _Blocks(nn.Linear(10, 64), lambda: mlp(64, 128, 128, 64), nn.Linear(64, 1))


def _conv_blocks(seed: int) -> _Blocks:
    torch.manual_seed(seed)

    def layer(channels: int) -> list[nn.Module]:
        return [nn.Conv2d(channels, 8, 3, padding=1), nn.ReLU()]

    return _Blocks(
        nn.Sequential(nn.Unflatten(1, (1, 8, 8)), *layer(1)),
        lambda: nn.Sequential(*layer(8), *layer(8)),
        nn.Sequential(nn.Flatten(), nn.Linear(8 * 64, 10)),
    )


@claim(
    "F51",
    title="Activation checkpointing: less memory, one more forward pass",
    expected="holds",
    says="Activation checkpointing lowers the peak, at the price of a second forward pass.",
)
def activation_checkpointing(seed: int, device: torch.device) -> Measured:
    found, held = {}, {}
    for one in (
        DIABETES.but(model="4 MLP blocks", make_model=_mlp_blocks, batch_size=350, steps=2),
        CONV.but(model="4 conv blocks", make_model=_conv_blocks, steps=2),
    ):
        _updates(one, seed, device, saving=False)  # warm-up
        runs = [_updates(one, seed, device, saving=saving) for saving in (False, True)]
        (peak, forwards, grad), (saving_peak, saving_forwards, saving_grad) = runs
        found[one.data] = {
            "peak with / without checkpointing": saving_peak / peak,
            "forward passes of a block, without and with": [forwards, saving_forwards],
            "gradients differ by": relative(saving_grad, grad),
        }
        held[one] = (
            saving_peak < 0.9 * peak
            and [forwards, saving_forwards] == [1, 2]
            and relative(saving_grad, grad) < 1e-4  # a GPU may add in a different order
        )
    evidence = {
        "diabetes: peak with / without checkpointing": found["diabetes"][
            "peak with / without checkpointing"
        ],
        "by data": found,
    }
    return weigh_settings(
        "diabetes: peak with / without checkpointing",
        evidence,
        held,
        criterion="the peak is below 0.9 times the peak without, each block runs forward twice "
        "instead of once, and the gradients are the same",
    )


def _updates(
    one: Setting, seed: int, device: torch.device, *, saving: bool
) -> tuple[int, float, Tensor]:
    """Peak bytes of some updates, forward passes of the first block per update, last gradient."""
    model = one.make_model(100 * seed).to(device)
    model.saving = saving
    data = tuple(part.to(device) for part in one.make_data(seed))
    peak = peak_bytes(lambda: one.train(100 * seed, model=model, data=data), device)
    return peak, model.forwards / one.steps, flat_grad(model)


@claim(
    "F55",
    title="16 bits halve memory",
    expected="holds if",
    says="Mixed precision halves the memory of training (the lecture), or saves 40 % of it with "
    "BF16 activations (the chapter).",
    condition="if one counts only the saved activations of linear layers; pooling keeps 64-bit "
    "indices, and weights, gradients and optimizer state stay in FP32",
    gpu=True,
)
def half_precision_memory(seed: int, device: torch.device) -> Measured:
    inputs = {"MLP": torch.randn(4096, 32), "conv net": torch.randn(512, 64)}
    models = {"MLP": mlp(32, 256, 256, 256, 10, seed=seed), "conv net": conv(seed=seed)}
    held, activations, rest = {}, {}, {}
    for name, model in models.items():
        x = inputs[name].to(device)
        saved, state = _saved_and_kept(model.to(device), x)
        activations[name], rest[name] = saved[1] / saved[0], state
        held[f"{name}: saved activations"] = activations[name] < 0.65
        held[f"{name}: weights, gradients and optimizer state"] = state < 0.65
    evidence = {
        "saved activations, autocast / FP32": activations["MLP"],
        "the same, by network": activations,
        "weights, gradients and optimizer state, under autocast / all in FP32": rest,
    }
    if device.type == "cuda":
        model, x = models["MLP"], inputs["MLP"].to(device)
        peaks = [
            peak_bytes(lambda e=e: _autocast_loss(model, x, e).backward(), device)
            for e in (False, True)
        ]
        evidence["peak of a step on the GPU, autocast / FP32"] = peaks[1] / peaks[0]
    return weigh_settings(
        "saved activations, autocast / FP32",
        evidence,
        held,
        criterion="BF16 autocast holds at most 0.65 times the bytes of FP32",
    )


def _autocast_loss(model: nn.Module, inputs: Tensor, enabled: bool) -> Tensor:
    targets = torch.arange(len(inputs), device=inputs.device) % 10
    with torch.autocast(inputs.device.type, torch.bfloat16, enabled=enabled):
        return F.cross_entropy(model(inputs), targets)


def _saved_and_kept(model: nn.Module, inputs: Tensor) -> tuple[list[int], float]:
    """Bytes saved for backward in FP32 and under autocast, and what stays after Adam's step.

    The second: bytes of weights, gradients and state after a step under autocast, over four FP32
    numbers per weight.
    """
    weights = list(model.parameters())
    saved = [
        saved_bytes(lambda e=e: _autocast_loss(model, inputs, e), without=[*weights, inputs])
        for e in (False, True)
    ]
    optimizer = torch.optim.Adam(weights)
    _autocast_loss(model, inputs, True).backward()
    optimizer.step()
    state = [v for slots in optimizer.state.values() for v in slots.values() if v.numel() > 1]
    kept = sum(t.nbytes for t in [*weights, *(w.grad for w in weights), *state])
    return saved, kept / sum(4 * 4 * w.numel() for w in weights)


@claim(
    "F57",
    title="Adam's state for 7 B parameters is 56 GB",
    expected="holds",
    says="Adam keeps 56 GB of state for a model with 7 billion parameters.",
)
def adam_state() -> Measured:
    model = nn.Linear(100, 100)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(2, 100)).sum().backward()
    optimizer.step()
    state = [s[name] for s in optimizer.state.values() for name in s if s[name].numel() > 1]
    bytes_each = sum(t.nbytes for t in state) / sum(p.numel() for p in model.parameters())
    gigabytes = 7e9 * bytes_each / 1e9
    evidence = {"GB for 7 B parameters": gigabytes, "bytes of state per parameter": bytes_each}
    return weigh("GB for 7 B parameters", evidence, stated=gigabytes == 56)


@claim(
    "F58",
    title="no_grad takes 7 B parameters from 28 to 14 GB",
    expected="holds if",
    says="A model with 7 billion parameters takes 28 GB with a graph, and 14 GB under no_grad.",
    condition="if the weights have 16 bits and the batch's graph takes as much memory as they do; "
    "in FP32 the weights alone take 28 GB",
)
def no_grad_and_weights(seed: int) -> Measured:
    found, held = {}, {}
    for name, make, width in (
        ("MLP of 24 layers", lambda: mlp(*[64] * 25), 64),
        ("transformer of 12 layers", _transformer, 64),
    ):
        for dtype in (torch.float32, torch.bfloat16):
            for tokens in (16, width):
                torch.manual_seed(seed)
                both = _gigabytes_of_7_billion(make().to(dtype), tokens, width)
                kind = f"{name}, {str(dtype).removeprefix('torch.')}, {tokens} tokens"
                found[kind] = both
                held[kind] = abs(both[0] / 28 - 1) < 0.2 and abs(both[1] / 14 - 1) < 0.2
    alone = {kind: both[1] for kind, both in found.items() if "float32" in kind}
    evidence = {
        "GB in FP32 without a graph, at least": min(alone.values()),
        "GB with a graph and without, for 7 billion parameters": found,
    }
    return weigh_settings(
        "GB in FP32 without a graph, at least",
        evidence,
        held,
        criterion="scaled to 7 billion parameters, weights and forward pass take 28 GB with a "
        "graph and 14 GB without, each within a fifth",
        note="The size of the graph grows with the number of tokens in the batch, so no single "
        "figure holds.",
    )


def _transformer(width: int = 64, heads: int = 4) -> nn.Module:
    """Twelve encoder layers without dropout."""
    layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 12, enable_nested_tensor=False)


def _gigabytes_of_7_billion(model: nn.Module, tokens: int, width: int) -> list[float]:
    """GB of weights and one forward pass, with its graph and under no_grad, at 7 B weights."""
    weights = list(model.parameters())
    inputs = torch.randn(tokens // 16, 16, width, dtype=weights[0].dtype)
    kept = saved_bytes(lambda: model(inputs), without=weights)
    with torch.no_grad():
        passing = peak_bytes(lambda: model(inputs))
    scale = 7 / sum(p.numel() for p in weights)
    own = sum(p.nbytes for p in weights)
    return [scale * (own + kept), scale * (own + passing)]


@claim(
    "F155",
    title="A transformer's activations take two to three times its weights",
    expected="holds if",
    says="The activations that a 12-layer transformer keeps for backward take 2 to 3 times its "
    "weights.",
    condition="if the number of tokens in the batch is about two and a half times the model's "
    "width; activations grow with the tokens, but weights do not",
)
def activations_of_a_transformer(seed: int) -> Measured:
    ratios, held = {}, {}
    for width, heads in ((64, 4), (128, 8)):
        torch.manual_seed(seed)
        model = _transformer(width, heads)
        weights = sum(p.nbytes for p in model.parameters())
        for tokens in (16, 5 * width // 2, 16 * width):
            inputs = torch.randn(tokens // 16, 16, width)
            kept = saved_bytes(lambda m=model, x=inputs: m(x), without=model.parameters())
            name = f"12 layers of width {width}, {tokens} tokens"
            ratios[name] = kept / weights
            held[name] = 2 <= ratios[name] <= 3
    evidence = {
        "width 64: activations / weights at 16 tokens": next(iter(ratios.values())),
        "activations / weights": ratios,
    }
    return weigh_settings(
        "width 64: activations / weights at 16 tokens",
        evidence,
        held,
        criterion="the tensors saved for backward take 2 to 3 times the bytes of the weights",
    )
