"""What the programs of the seventh set have beside those of the sixth: series, texts, a save()."""

import copy

import torch

from tests.debug.faulty.sixth.kit import chain


def texts(n, vocab=12, seed=0):
    """n sentences of `chain`'s language, of 15 places, no two alike (nor but for the last
    place)."""
    x = chain(4 * n, 15, vocab, seed)
    seen, kept = set(), []
    for i, row in enumerate(x[:, :-1].tolist()):
        if tuple(row) not in seen and row[7] > 0:
            seen.add(tuple(row))
            kept.append(i)
    return x[kept[:n]]


def wave(n=320, seed=0, noise=0.15, walk=0.12):
    """A season on a wandering level: [n]."""
    g = torch.Generator().manual_seed(seed)
    t = torch.arange(n)
    level = (walk * torch.randn(n, generator=g)).cumsum(0)
    return torch.sin(2 * torch.pi * t / 20) + level + noise * torch.randn(n, generator=g)


def windows(series, width=12):
    """Each window and the number after it: [n - width, width], [n - width, 1]."""
    x = series.unfold(0, width, 1)[:-1]
    return x, series[width:][:, None]


def saved(**parts):
    """save() -> state and load(state) of whatever has a state dict."""

    def save():
        return {name: copy.deepcopy(part.state_dict()) for name, part in parts.items()}

    def load(state):
        for name, part in parts.items():
            part.load_state_dict(copy.deepcopy(state[name]))

    return {"save": save, "load": load}
