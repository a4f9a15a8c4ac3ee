"""Memory by counters: what a graph keeps alive, and what switching it off saves.

On the CPU the counter is `LiveBytes` (bytes of all living tensors), on CUDA the allocator's own.
"""

from __future__ import annotations

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
    saved_bytes,
)
from course.claims.registry import claim
from course.claims.settings import conv
from course.claims.trial import Measured, weigh, weigh_settings


def _live_over_validation(
    keep: str, seed: int, batches: int = 50, *, no_grad: bool = False
) -> list[int]:
    """Live bytes after every batch of a validation pass that keeps nothing, losses or logits."""
    model = mlp(32, 256, 256, 10, seed=seed).eval()
    inputs, targets = torch.randn(128, 32), torch.randint(0, 10, (128,))
    kept, live_after = [], []
    with LiveBytes() as live, torch.set_grad_enabled(not no_grad):
        for _ in range(batches):
            logits = model(inputs)
            loss = F.cross_entropy(logits, targets)
            if keep == "losses":
                kept.append(loss)
            elif keep == "logits":
                kept.append(logits)
            elif keep == "numbers":
                kept.append(loss.item())
            live_after.append(live.now)
    return live_after


def _growth(live_after: list[int]) -> float:
    """Bytes alive after the last batch over those after the second."""
    return live_after[-1] / live_after[1]


@claim(
    "F46",
    title="Validation without no_grad grows until memory is out",
    expected="does not hold",
    says="Validation without no_grad holds more memory with every batch, until it is out.",
)
def validation_without_no_grad(seed: int) -> Measured:
    plain = _live_over_validation("nothing", seed)
    losses, numbers = (_live_over_validation(keep, seed) for keep in ("losses", "numbers"))
    guarded = _live_over_validation("nothing", seed, no_grad=True)
    evidence = {
        "live bytes, batch 50 / batch 2": _growth(plain),
        "same, losses appended": _growth(losses),
        "same, loss.item() appended": _growth(numbers),
        "live MB at batch 50, without and with no_grad": [plain[-1] / 1e6, guarded[-1] / 1e6],
        "live MB at batch 50, losses appended": losses[-1] / 1e6,
    }
    return weigh(
        "live bytes, batch 50 / batch 2",
        evidence,
        stated=_growth(plain) > 1.5,
        note="It costs one batch's graph. Only tensors that are kept make it grow.",
    )


@claim(
    "F75",
    title="Without no_grad memory climbs at every evaluation",
    expected="does not hold",
    says="Every evaluation without no_grad leaves more memory occupied than the one before.",
)
def experiment_4(seed: int) -> Measured:
    model = mlp(32, 256, 256, 10, seed=seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs, targets = torch.randn(128, 32), torch.randint(0, 10, (128,))

    def epochs(keep: bool) -> list[int]:
        kept, after = [], []
        with LiveBytes() as live:
            for _ in range(6):
                optimizer.zero_grad()
                F.cross_entropy(model(inputs), targets).backward()
                optimizer.step()
                for _ in range(5):
                    loss = F.cross_entropy(model(inputs), targets)
                    kept += [loss] if keep else []
                after.append(live.now)
        return after

    free, kept = epochs(False), epochs(True)
    evidence = {
        "live bytes, evaluation 6 / evaluation 2": free[-1] / free[1],
        "same, losses kept": kept[-1] / kept[1],
    }
    return weigh(
        "live bytes, evaluation 6 / evaluation 2",
        evidence,
        stated=free[-1] > 1.5 * free[1],
        note="A simulator must keep references to show growth.",
    )


@claim(
    "F47",
    title="Keeping loss tensors in training leaks graphs",
    expected="holds if",
    says="Appending loss tensors instead of numbers keeps every step's graph in memory.",
    condition="if they are kept before backward, or in validation; after backward only the nodes "
    "of the graph are left, without the activations",
)
def keeping_losses(seed: int) -> Measured:
    model = mlp(32, 256, 256, 10, seed=seed)
    inputs, targets = torch.randn(128, 32), torch.randint(0, 10, (128,))

    def bytes_a_step(backward: bool) -> tuple[float, Tensor]:
        kept, total = [], torch.zeros(())
        with LiveBytes() as live:
            for step in range(20):
                loss = F.cross_entropy(model(inputs), targets)
                if backward:
                    loss.backward()
                kept.append(loss)
                total = total + loss
                if step == 0:
                    first = live.now
            grown = (live.now - first) / 19
        return grown, total

    after, total = bytes_a_step(backward=True)
    before, _ = bytes_a_step(backward=False)
    model.zero_grad()
    activations = saved_bytes(
        lambda: F.cross_entropy(model(inputs), targets), without=[*model.parameters(), inputs]
    )
    evidence = {
        "tensor bytes kept a step, after backward": after,
        "tensor bytes kept a step, without backward": before,
        "activations of one step": activations,
        "graph nodes that hang on the sum of 20 losses": graph_nodes(total),
    }
    return weigh(
        "tensor bytes kept a step, after backward",
        evidence,
        stated=after > 0.5 * activations,
        conditioned=before > 0.5 * activations,
    )


@claim(
    "F48",
    title="Storing outputs runs out of memory; detach fixes it",
    expected="holds if",
    says="Stored outputs fill the memory with graphs, and detach() avoids it.",
    condition="if there was no backward, as in validation without no_grad; after backward the "
    "output and its detached copy cost the same",
)
def storing_outputs(seed: int) -> Measured:
    model = mlp(32, 256, 256, 10, seed=seed)
    inputs, targets = torch.randn(256, 32), torch.randint(0, 10, (256,))

    def bytes_a_step(*, backward: bool, detach: bool) -> float:
        model.zero_grad()
        kept = []
        with LiveBytes() as live:
            for step in range(11):
                logits = model(inputs)
                if backward:
                    F.cross_entropy(logits, targets).backward()
                kept.append(logits.detach() if detach else logits)
                if step == 0:
                    first = live.now
            return (live.now - first) / 10

    train = [bytes_a_step(backward=True, detach=detach) for detach in (False, True)]
    val = [bytes_a_step(backward=False, detach=detach) for detach in (False, True)]
    evidence = {
        "training: bytes a step, stored / detached": train[0] / train[1],
        "validation: bytes a step, stored / detached": val[0] / val[1],
        "training: bytes a step": train,
        "validation: bytes a step": val,
    }
    return weigh(
        "training: bytes a step, stored / detached",
        evidence,
        stated=train[0] > 1.5 * train[1],
        conditioned=val[0] > 1.5 * val[1],
    )


def _peak_ratio(depth: int, device: torch.device) -> float:
    """Peak bytes of a forward under no_grad over those with a graph, at this depth."""
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
    condition="if the network is of the right depth; it saves nothing at depth 1 and nearly all "
    "at 16",
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


@claim(
    "F51",
    title="Activation checkpointing: less memory, one more forward",
    expected="holds",
    says="Activation checkpointing lowers the peak, at the price of a second forward.",
)
def activation_checkpointing(seed: int, device: torch.device) -> Measured:
    blocks = nn.ModuleList(mlp(64, 256, 256, 64, seed=seed + i) for i in range(4)).to(device)
    inputs = torch.randn(512, 64, device=device)
    calls = [0]
    blocks[0].register_forward_pre_hook(lambda *_: calls.__setitem__(0, calls[0] + 1))

    def run(saving: bool) -> None:
        hidden = inputs
        for block in blocks:
            hidden = checkpoint(block, hidden, use_reentrant=False) if saving else block(hidden)
        hidden.square().mean().backward()

    peaks, forwards, grads = {}, {}, {}
    run(False)  # warm-up
    for saving in (False, True):
        blocks.zero_grad()
        calls[0] = 0
        peaks[saving] = peak_bytes(lambda saving=saving: run(saving), device)
        forwards[saving], grads[saving] = calls[0], flat_grad(blocks)
    evidence = {
        "peak with / without checkpointing": peaks[True] / peaks[False],
        "forwards of a block": [forwards[False], forwards[True]],
        "gradients differ by": (grads[True] - grads[False]).abs().max(),
    }
    stated = (
        peaks[True] < 0.9 * peaks[False]
        and [forwards[False], forwards[True]] == [1, 2]
        and torch.allclose(grads[True], grads[False], atol=1e-7)
    )
    return weigh("peak with / without checkpointing", evidence, stated=stated)


@claim(
    "F55",
    title="16-bit halves memory",
    expected="holds if",
    says="Mixed precision halves the memory of training (the lecture), or takes 40 % off it by "
    "BF16 activations (the chapter).",
    condition="if one counts the saved activations of linear layers; pooling keeps 64-bit indices, "
    "and weights, gradients and optimizer state stay FP32",
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
        criterion="under BF16 autocast at most 0.65 of the bytes in FP32 are held",
    )


def _autocast_loss(model: nn.Module, inputs: Tensor, enabled: bool) -> Tensor:
    targets = torch.arange(len(inputs), device=inputs.device) % 10
    with torch.autocast(inputs.device.type, torch.bfloat16, enabled=enabled):
        return F.cross_entropy(model(inputs), targets)


def _saved_and_kept(model: nn.Module, inputs: Tensor) -> tuple[list[int], float]:
    """Bytes saved for backward in FP32 and under autocast, and what stays after Adam's step.

    The second: bytes of weights, gradients and state after a step under autocast, over four FP32
    numbers a weight.
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
    says="Adam keeps 56 GB of state for a model of 7 billion parameters.",
)
def adam_state() -> Measured:
    model = nn.Linear(100, 100)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(2, 100)).sum().backward()
    optimizer.step()
    state = [s[name] for s in optimizer.state.values() for name in s if s[name].numel() > 1]
    bytes_each = sum(t.nbytes for t in state) / sum(p.numel() for p in model.parameters())
    gigabytes = 7e9 * bytes_each / 1e9
    evidence = {"GB for 7 B parameters": gigabytes, "bytes of state a parameter": bytes_each}
    return weigh("GB for 7 B parameters", evidence, stated=gigabytes == 56)


@claim(
    "F58",
    title="no_grad takes 7 B parameters from 28 to 14 GB",
    expected="holds if",
    says="With a graph a model of 7 billion parameters takes 28 GB, and under no_grad 14 GB.",
    condition="if the weights are 16 bit and the batch's graph takes as much as they do; in FP32 "
    "the weights alone take 28 GB",
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
        "GB with a graph and without, of 7 billion parameters": found,
    }
    return weigh_settings(
        "GB in FP32 without a graph, at least",
        evidence,
        held,
        criterion="weights and forward pass, scaled to 7 billion parameters, take 28 GB with a "
        "graph and 14 GB without, each within a fifth",
        note="What the graph adds grows with the tokens of the batch, so no figure holds for all.",
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
    condition="if the batch holds some two and a half times as many tokens as the model is wide; "
    "activations grow with the tokens, weights do not",
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
        criterion="what backward needs takes 2 to 3 times the bytes of the weights",
    )
