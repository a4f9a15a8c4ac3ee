"""torch.compile and the GPU: the cost of the first call, and where there is speed to gain."""

from __future__ import annotations

import statistics

import torch
from torch import nn

from course.claims.lab import interleaved, mlp
from course.claims.registry import claim
from course.claims.trial import Measured, needs_gpu, weigh
from course.data.stopwatch import seconds, waiter


@claim(
    "F119",
    title="torch.compile is 10 to 30 % faster after a slow first call",
    expected="needs GPU",
    says="A compiled model is slow on its first call and 10 to 30 % faster afterwards.",
    gpu=True,
)
def compile_gain(seed: int, device: torch.device) -> Measured:
    on_gpu = device.type == "cuda"
    width, batch_size = (512, 8192) if on_gpu else (8, 8)
    blocks = [(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU()) for _ in range(4)]
    model = nn.Sequential(*(layer for block in blocks for layer in block)).to(device)
    inputs = torch.randn(batch_size, width, device=device)
    torch.compiler.reset()
    # Without a GPU only the tracing is tested: generating C++ would take most of a minute.
    compiled = torch.compile(model, backend="inductor" if on_gpu else "eager")

    with torch.no_grad():
        try:
            first = seconds(lambda: compiled(inputs), synchronize=waiter(device))
        except Exception as fault:  # no compiler available: any of several errors
            evidence = {"first calls that worked": 0, "raises": type(fault).__name__}
            return needs_gpu("first calls that worked", evidence, "torch.compile fails here.")
        steady = statistics.median(
            seconds(lambda: compiled(inputs), synchronize=waiter(device)) for _ in range(20)
        )
        ratio = interleaved(lambda: compiled(inputs), lambda: model(inputs), device=device)
    in_place = mlp(seed=seed)
    in_place.compile(backend="eager")
    evidence = {
        "first call / steady call": first / steady,
        "time, compiled / eager": ratio.median,
        "quartiles": ratio.as_list(),
        "keys with _orig_mod.": sum("_orig_mod." in key for key in compiled.state_dict()),
        "keys with _orig_mod. after module.compile()": sum(
            "_orig_mod." in key for key in in_place.state_dict()
        ),
        "backend": "inductor" if on_gpu else "eager (tracing only)",
    }
    torch.compiler.reset()
    if not on_gpu:
        note = "Tracing alone makes the first call slow; only a GPU can show the gain."
        return needs_gpu("first call / steady call", evidence, note)
    slow_first = first > 10 * steady
    return weigh(
        "time, compiled / eager",
        evidence,
        stated=slow_first and 0.7 <= ratio.median <= 0.91,
        conditioned=slow_first and ratio.median < 0.97,
        note="The gain depends on the model; here it is LayerNorm, Linear and GELU.",
    )


@claim(
    "F120",
    title="Small matrix products gain little from a GPU",
    expected="needs GPU",
    says="Small matrix products gain little from a GPU, large ones a lot.",
    gpu=True,
)
def small_matmul(device: torch.device) -> Measured:
    def product(n: int, place: torch.device | str):
        a, b = (torch.randn(n, n, device=place) for _ in range(2))
        return lambda: a @ b

    doubling = interleaved(product(512, "cpu"), product(256, "cpu"), rounds=9)
    evidence = {
        "CPU: time of 512³ / 256³ (8 times the FLOPs)": doubling.median,
        "quartiles": doubling.as_list(),
    }
    if device.type != "cuda":
        return needs_gpu("CPU: time of 512³ / 256³ (8 times the FLOPs)", evidence)

    def gain(n: int) -> float:
        on_cpu, on_gpu = product(n, "cpu"), product(n, device)
        for _ in range(3):
            on_cpu(), seconds(on_gpu, synchronize=waiter(device))
        times = [(seconds(on_cpu), seconds(on_gpu, synchronize=waiter(device))) for _ in range(9)]
        return statistics.median(cpu / gpu for cpu, gpu in times)

    gains = {n: gain(n) for n in (32, 128, 512, 2048)}
    evidence = {
        "CPU time / GPU time at 32": gains[32],
        "CPU time / GPU time by size": gains,
        "threads on the CPU": torch.get_num_threads(),
    } | evidence
    return weigh(
        "CPU time / GPU time at 32", evidence, stated=gains[32] < 2 and gains[2048] > 5 * gains[32]
    )
