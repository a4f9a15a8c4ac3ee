"""Relations on optimizer settings: two numbers that are swapped, a name that nothing reads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from difflib import SequenceMatcher
from typing import Any

from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session, clone

WORDS = {
    "lr": ("learningrate", "learnrate"),
    "weight_decay": ("weightdecay", "wdecay", "wd"),
    "momentum": ("momentum",),
}
"""How a setting is called elsewhere, without case, hyphens and underscores."""
ALIKE = 0.9
"""Share of letters in order from which a name is one of these with a slip: two letters of
`weight_decay` in the wrong order leave 0.92, and `max_momentum` has 0.84 of `momentum`."""
LOOKED_AT = 2
"""Steps in which a name that nobody reads would have been read by a loop of the author's own."""


class Watched(dict):
    """A parameter group that notes which of its settings are read one by one or all at once."""

    def __init__(self, group: dict[str, Any]) -> None:
        super().__init__(group)
        self.asked: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        self.asked.add(key)
        return super().__getitem__(key)

    def get(self, key: str, *default: Any) -> Any:
        self.asked.add(key)
        return super().get(key, *default)

    def pop(self, key: str, *default: Any) -> Any:
        self.asked.add(key)
        return super().pop(key, *default)

    def __contains__(self, key: object) -> bool:
        self.asked.add(str(key))
        return super().__contains__(key)

    def items(self) -> Any:
        self.asked.update(self.keys())
        return super().items()

    def values(self) -> Any:
        self.asked.update(self.keys())
        return super().values()


def betas(session: Session) -> Iterator[Finding]:
    """The average of gradients does not reach further back than that of their squares."""
    groups = [g for o in session.optimizers for g in o.param_groups if "betas" in g]
    if not groups:
        raise NotChecked("no optimizer has two betas")
    for group in groups:
        first, second = (float(beta) for beta in group["betas"][:2])
        if first > second:
            yield Finding(
                "wrong-formula", "warning",
                f"betas = ({first:g}, {second:g}): the gradient's average reaches back "
                f"{1 / (1 - first):.3g} steps and that of its squares {1 / (1 - second):.3g}. The "
                "two betas are swapped.",
                {"betas": [first, second]},
                f"betas=({second:g}, {first:g})",
            )  # fmt: skip
            return


def names(session: Session) -> Iterator[Finding]:
    """A setting of a parameter group has a name that something reads.

    Only of torch's own optimizers, which read no other name than their defaults have; one of the
    author's may. A loop may set the rate by a key of its own, so the setting has to be the default
    still, in all steps, and no step may read the key.
    """
    found = [
        (o, i, key, setting)
        for o in session.optimizers if type(o).__module__.startswith("torch.optim.")
        for i, group in enumerate(o.param_groups)
        for key in group if (setting := _meant(key, o, group))
    ]  # fmt: skip
    if not found:
        raise NotChecked("no group holds a key that is almost a setting's name")
    optimizer, i, key, setting = found[0]
    group = optimizer.param_groups[i]
    if setting == "lr" and not _rests(session, optimizer, i):
        raise NotChecked("the group's rate moves: the loop may set it")
    if key in _asked(session, optimizer, i):
        raise NotChecked(f"a step reads the group's {key}")
    said, held = group[key], optimizer.defaults[setting]
    yield Finding(
        _class(setting, said, held), "warning",
        f"Parameter group {i} holds {key} = {said:g}, which {type(optimizer).__name__} does not "
        f"read: its {setting} is the default one, {held:g}.",
        {"group": i, "key": key, "said": said, setting: held},
        f'{{"params": ..., "{setting}": {said:g}}}',
    )  # fmt: skip


def _meant(key: Any, optimizer: Any, group: dict[str, Any]) -> str | None:
    """The setting that a key is meant for, where the group has no other than the default of it."""
    if not isinstance(key, str) or key in optimizer.defaults or key == "params":
        return None
    plain = "".join(letter for letter in key.lower() if letter not in "-_ ")
    for setting, words in WORDS.items():
        if setting in optimizer.defaults and any(_are_alike(plain, word) for word in words):
            default = optimizer.defaults[setting]
            held = group.get("initial_lr", group["lr"]) if setting == "lr" else group[setting]
            if _is_number(group[key]) and held == default and group[key] != default:
                return setting
    return None


def _are_alike(name: str, word: str) -> bool:
    return name == word or (name.isalpha() and SequenceMatcher(None, name, word).ratio() >= ALIKE)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _rests(session: Session, optimizer: Any, i: int) -> bool:
    """The group's rate stays as it is, or a schedule moves it."""
    if session.setup.scheduler is not None:
        return True
    steps = [e for e in session.loop.tape.of("step") if e.optimizer is optimizer]
    rate = float(optimizer.param_groups[i]["lr"])
    return bool(steps) and all(len(e.lrs) > i and e.lrs[i] == rate for e in steps)


def _asked(session: Session, optimizer: Any, i: int) -> set[str]:
    """Settings of the group that some steps read."""
    step = session.setup.train_step
    if step is None and session.setup.train is not None:
        raise NotChecked("no single step of the loop can be made")
    batches = session.epoch.batches[:LOOKED_AT]  # first: they are read from a snapshot as well
    if not batches:
        raise NotChecked("the train_loader is empty")
    with session.observe(), _watching(optimizer, i) as watched:
        for batch in batches:
            (step or session.plain_step)(clone(batch))
    return watched.asked


@contextmanager
def _watching(optimizer: Any, i: int) -> Iterator[Watched]:
    """The group notes what is read; afterwards the one from before is back."""
    group = optimizer.param_groups[i]
    optimizer.param_groups[i] = watched = Watched(group)
    try:
        yield watched
    finally:
        optimizer.param_groups[i] = group


def _class(setting: str, said: float, held: float) -> str:
    if setting == "weight_decay":
        return "weight-decay-misplaced"
    if setting == "momentum":
        return "wrong-formula"
    return "lr-too-small" if said > held else "lr-too-large"
