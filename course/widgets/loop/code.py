"""The code of a production loop, line by line, each with the part that it belongs to.

The names given are `train` (a data set), `make_model`, `criterion`, `evaluate`, `device`, `epochs`
and `path`; `WINDOW`, `PATIENCE`, `LR` and `MAX_NORM` are written into the lines.

Source: Training-loop chapter, c7; essay "Where the order really matters"; ledger S08, T15.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

Line = tuple[str, str]
"""Code, and the part that added or changed it; empty for the bare loop."""

PARTS = (
    "accumulation", "precision", "clipping", "schedule",
    "checkpoint", "stopping", "seeding", "logging",
)  # fmt: skip
TAGS = {
    "accumulation": "accumulate", "precision": "precision", "clipping": "clip",
    "schedule": "schedule", "checkpoint": "save", "stopping": "stop", "seeding": "seed",
    "logging": "log",
}  # fmt: skip
NEEDS = {
    "legal": (),
    "clip_early": ("precision", "clipping"),
    "clip_late": ("clipping",),
    "schedule_inside": ("schedule", "accumulation"),
}
"""Orders of the loop, and the parts without which they equal the legal one."""
WINDOW, PATIENCE, LR, MAX_NORM, BATCH_SIZE = 4, 3, 0.5, 0.5, 8
COLUMN = 74
"""The column where the names of the parts begin."""


def lines_of(parts: Collection[str], order: str = "legal") -> list[Line]:
    """The loop with these parts.

    Args:
        parts: Some of `PARTS`.
        order: One of `NEEDS`; without the parts it needs, the loop is the legal one.
    """
    if not set(NEEDS[order]) <= set(parts):
        order = "legal"
    return [*_setup(parts), *_resume(parts), *_epoch(parts, order), *_end_of_epoch(parts)]


def source_of(lines: list[Line]) -> str:
    """The code to run, without the parts' names."""
    return "\n".join(code for code, _ in lines)


def shown(lines: list[Line]) -> list[str]:
    """The code to read: each line of a part ends with the part's name."""
    return [f"{code:<{COLUMN}}# {TAGS[part]}" if part else code for code, part in lines]


def _setup(parts: Collection[str]) -> Iterator[Line]:
    seeded = "seeding" in parts
    if seeded:
        yield "torch.manual_seed(0)", "seeding"
        yield "generator = torch.Generator().manual_seed(0)", "seeding"
        loader = f"DataLoader(train, {BATCH_SIZE}, shuffle=True, generator=generator)"
        yield f"train_loader = {loader}", "seeding"
    else:
        yield f"train_loader = DataLoader(train, {BATCH_SIZE}, shuffle=True)", ""
    yield "model = make_model().to(device)", ""
    yield f"optimizer = torch.optim.SGD(model.parameters(), lr={LR})", ""
    if "precision" in parts:
        yield "scaler = torch.amp.GradScaler(device)", "precision"
    if "schedule" in parts:
        window = f" / {WINDOW}" if "accumulation" in parts else ""
        count = f"math.ceil(len(train_loader){window})" if window else "len(train_loader)"
        yield f"updates = epochs * {count}", "schedule"
        yield "scheduler = CosineAnnealingLR(optimizer, T_max=updates)", "schedule"
    if "stopping" in parts:
        yield "best, waited = math.inf, 0", "stopping"


def _resume(parts: Collection[str]) -> Iterator[Line]:
    if "checkpoint" not in parts:
        return
    kept = ["model", "optimizer"]
    kept += ["scaler"] if "precision" in parts else []
    kept += ["scheduler"] if "schedule" in parts else []
    lines = [f"kept = [{', '.join(kept)}]", "first = 0", "if os.path.exists(path):"]
    lines += ["    saved = torch.load(path, weights_only=True)"]
    lines += ["    for one, state in zip(kept, saved['states']):"]
    lines += ["        one.load_state_dict(state)"]
    lines += ["    first = saved['next']", "    torch.set_rng_state(saved['rng'])"]
    if "seeding" in parts:
        lines.append("    generator.set_state(saved['generator'])")
    if "stopping" in parts:
        lines.append("    best, waited = saved['best'], saved['waited']")
    for line in lines:
        yield line, "checkpoint"


def _epoch(parts: Collection[str], order: str) -> Iterator[Line]:
    saved = "checkpoint" in parts
    yield f"for epoch in range({'first, ' * saved}epochs):", "checkpoint" * saved
    yield "    model.train()", ""
    if "logging" in parts:
        yield "    total = 0.0", "logging"
    if "accumulation" in parts:
        yield "    batches = iter(train_loader)", "accumulation"
        yield f"    while window := list(islice(batches, {WINDOW})):", "accumulation"
        yield "        num_examples = sum(len(targets) for _, targets in window)", "accumulation"
        yield "        optimizer.zero_grad()", ""
        yield "        for inputs, targets in window:", "accumulation"
        yield from _micro_batch(parts, order, " " * 12)
    else:
        yield "    for inputs, targets in train_loader:", ""
        yield "        optimizer.zero_grad()", ""
        yield from _micro_batch(parts, order, " " * 8)
    yield from _update(parts, order, " " * 8)


def _micro_batch(parts: Collection[str], order: str, indent: str) -> Iterator[Line]:
    yield indent + "inputs, targets = inputs.to(device), targets.to(device)", ""
    if "precision" in parts:
        yield indent + "with torch.autocast(device, torch.float16):", "precision"
        yield indent + "    loss = criterion(model(inputs), targets)", "precision"
    else:
        yield indent + "loss = criterion(model(inputs), targets)", ""
    if "logging" in parts:
        yield indent + "total += loss.detach() * len(targets)", "logging"
    if "accumulation" in parts:
        yield indent + "loss = loss * len(targets) / num_examples", "accumulation"
    if "precision" in parts:
        yield indent + "scaler.scale(loss).backward()", "precision"
    else:
        yield indent + "loss.backward()", ""
    if order == "schedule_inside":
        yield indent + "scheduler.step()", "schedule"


def _update(parts: Collection[str], order: str, indent: str) -> Iterator[Line]:
    scaled = "precision" in parts
    clip = (indent + f"clip_grad_norm_(model.parameters(), {MAX_NORM})", "clipping")
    unscale = [(indent + "scaler.unscale_(optimizer)", "clipping")] if scaled else []
    step = [(indent + "optimizer.step()", "")]
    if scaled:
        step = [
            (indent + line, "precision") for line in ("scaler.step(optimizer)", "scaler.update()")
        ]
    if "clipping" not in parts:
        yield from step
    elif order == "clip_early":
        yield from (clip, *unscale, *step)
    elif order == "clip_late":
        yield from (*unscale, *step, clip)
    else:
        yield from (*unscale, clip, *step)
    if "schedule" in parts and order != "schedule_inside":
        yield indent + "scheduler.step()", "schedule"


def _end_of_epoch(parts: Collection[str]) -> Iterator[Line]:
    yield "    val_loss = evaluate(model)", ""
    if "logging" in parts:
        words = "{epoch}: train {total / len(train):.3f}, val {val_loss:.3f}"
        yield f'    print(f"{words}")', "logging"
    if "stopping" in parts:
        yield "    waited = 0 if val_loss < best else waited + 1", "stopping"
        yield "    best = min(best, val_loss)", "stopping"
    if "checkpoint" in parts:
        lines = ["saved = {'states': [one.state_dict() for one in kept]}"]
        lines += ["saved |= {'next': epoch + 1, 'rng': torch.get_rng_state()}"]
        if "seeding" in parts:
            lines.append("saved['generator'] = generator.get_state()")
        if "stopping" in parts:
            lines.append("saved |= {'best': best, 'waited': waited}")
        lines += ["torch.save(saved, path + '.new')", "os.replace(path + '.new', path)"]
        for line in lines:
            yield "    " + line, "checkpoint"
    if "stopping" in parts:
        yield f"    if waited == {PATIENCE}:", "stopping"
        yield "        break", "stopping"
