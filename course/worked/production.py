"""The production loop in one function, and how long it is: the chapter says 45 lines."""

from __future__ import annotations

import ast
import inspect
import math
import random
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_
from torch.optim.lr_scheduler import CosineAnnealingLR

from course.worked.registry import worked
from course.worked.step import Step


def production_loop(
    model: nn.Module,
    train_loader: Any,
    evaluate: Callable[[nn.Module], float],
    config: dict[str, Any],
    log: Callable[[dict[str, float]], None],
) -> float:
    # reproducibility
    random.seed(config["seed"])
    np.random.seed(config["seed"])
    torch.manual_seed(config["seed"])
    device = torch.device(config["device"])
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config["lr"])
    scheduler = CosineAnnealingLR(optimizer, config["epochs"])
    parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
    start, best, bad_epochs = 0, math.inf, 0
    # resume
    if Path(config["checkpoint"]).exists():
        state = torch.load(config["checkpoint"], map_location=device, weights_only=True)
        for name, part in parts.items():
            part.load_state_dict(state[name])
        start, best = state["epoch"] + 1, state["best"]
    for epoch in range(start, config["epochs"]):
        model.train()
        optimizer.zero_grad()
        for i, (inputs, targets) in enumerate(train_loader):
            # accumulation: each window is divided by the number of its micro-batches
            first = i - i % config["accum_steps"]
            window = min(config["accum_steps"], len(train_loader) - first)
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=config["bf16"]):
                logits = model(inputs.to(device))
                loss = nn.functional.cross_entropy(logits, targets.to(device)) / window
            loss.backward()
            if i + 1 == first + window:
                clip_grad_norm_(model.parameters(), config["max_norm"])
                optimizer.step()
                optimizer.zero_grad()
        scheduler.step()
        val_loss = evaluate(model)
        log({"epoch": epoch, "val_loss": val_loss, "lr": scheduler.get_last_lr()[0]})
        # early stopping and the best checkpoint follow one rule
        if val_loss < best - config["min_delta"]:
            best, bad_epochs = val_loss, 0
            state = {name: part.state_dict() for name, part in parts.items()}
            torch.save(state | {"epoch": epoch, "best": best}, config["checkpoint"])
        else:
            bad_epochs += 1
            if bad_epochs >= config["patience"]:
                break
    return best


COSTS = (
    ("checkpoint", 10),
    ("early stopping", 8),
    ("accumulation", 4),
    ("mixed precision", 5),
    ("seeding", 6),
    ("logging", 3),
    ("clipping", 2),
)


@worked(
    "N59",
    title="How long is the production script?",
    perturb={"code_lines": 40},
)
def script_length(
    code_lines: int = 38,
    comment_lines: int = 5,
    minimal: int = 6,
    costs: tuple[tuple[str, int], ...] = COSTS,
    script: str = "production_loop",
) -> Iterator[Step]:
    """Lines of the chapter's script as printed and by its own table, and of our version.

    The script itself is not reprinted here: a test counts its lines where the text is at hand.
    """
    from course.worked.stopping import stop_index

    yield Step(
        "non-blank lines of the chapter's script",
        code_lines + comment_lines,
        45,
        formula="lines of code and of comments",
        correction=(
            "The script as printed has 43 non-blank lines, five of them comments; 45 is a rounded "
            "figure. By the chapter's own table, the parts add 38 lines to a loop of 6."
        ),
    )
    added = sum(lines for _, lines in costs)
    yield Step("lines of the parts, by the cost table", added, formula="Σ lines")
    yield Step("minimal loop plus parts", minimal + added, formula="by the table")
    function = {"production_loop": production_loop, "stop_index": stop_index}[script]
    non_blank, code = count_lines(inspect.getsource(function))
    yield Step("ours, with every part: non-blank lines", non_blank)
    yield Step("ours: lines of code", code, formula="neither blank nor comment nor docstring")


def count_lines(source: str) -> tuple[int, int]:
    """Number of non-blank lines, and number of lines of code."""
    source = textwrap.dedent(source)
    lines = [line.strip() for line in source.splitlines()]
    documentation: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and ast.get_docstring(node) is not None:
            text = node.body[0]
            documentation |= set(range(text.lineno, text.end_lineno + 1))
    non_blank = [number for number, line in enumerate(lines, start=1) if line]
    code = [
        number
        for number in non_blank
        if number not in documentation and not lines[number - 1].startswith("#")
    ]
    return len(non_blank), len(code)
