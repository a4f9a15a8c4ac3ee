"""What the programs of the fifteenth set share beside the kits of the sets before."""

import torch

from tests.debug.faulty.thirteenth.kit import Columns, gen, set_up
from tests.debug.faulty.twelfth.kit import plain_step, seed


def markov(n, T, V, g, sharp=2.0):
    P = torch.softmax(sharp * torch.randn(V, V, generator=gen(5)), -1)
    x = torch.randint(0, V, (n, 1), generator=g)
    for _ in range(T - 1):
        x = torch.cat([x, torch.multinomial(P[x[:, -1]], 1, generator=g)], 1)
    return x


def ring(n, g):
    a = torch.rand(n, generator=g) * 6.2832
    return torch.stack([a.cos(), a.sin()], 1) * 2 + 0.08 * torch.randn(n, 2, generator=g)


def energy(a, b):
    """Energy distance between two samples of points."""
    across, a_a, b_b = torch.cdist(a, b), torch.cdist(a, a), torch.cdist(b, b)
    return (2 * across.mean() - a_a.mean() - b_b.mean()).item()


def ratings(n, g, nu=40, ni=30):
    users = torch.randn(nu, 3, generator=gen(81))
    items = torch.randn(ni, 3, generator=gen(82))
    u = torch.randint(0, nu, (n,), generator=g)
    pop = 1 / (torch.arange(ni) + 1.0)
    i = torch.multinomial(pop, n, True, generator=g)
    return Columns(
        user=u, item=i, rating=(users[u] * items[i]).sum(1) + 0.1 * torch.randn(n, generator=g)
    )


def blobs(n, g, C=4, D=12, noise=1.0, k=31):
    pr = torch.randn(C, D, generator=gen(k))
    y = torch.randint(0, C, (n,), generator=g)
    return pr[y] + noise * torch.randn(n, D, generator=g), y


def table(n, g, D=8, noise=0.1):
    x = torch.randn(n, D, generator=g)
    return x, x[:, :1] * x[:, 1:2] + x[:, 2:3].sin() + noise * torch.randn(n, 1, generator=g)


def skewed(n, g, p=(0.08, 0.6, 0.02, 0.3), noise=1.5):
    y = torch.multinomial(torch.tensor(p), n, True, generator=g)
    pr = torch.randn(4, 10, generator=gen(33))
    return pr[y] + noise * torch.randn(n, 10, generator=g), y


__all__ = ["Columns", "gen", "plain_step", "seed", "set_up"]
