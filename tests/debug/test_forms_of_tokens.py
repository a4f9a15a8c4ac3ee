"""Token models: what an output sees, what it is compared with, and which places count."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from course.debug.relations import model
from tests.debug.faulty.eighth.kit import gen
from tests.debug.faulty.twelfth.kit import loader, markov, pack
from tests.debug.told import said

V, T = 12, 10


def cases(**told):
    """Each case with whether it is a fault."""
    return pytest.mark.parametrize(
        ("kind", "is_told"), [(k, told == "faulty") for told, ks in told.items() for k in ks]
    )


def made(net, loss_of, *columns, **more):
    opt = torch.optim.Adam([p for p in net.parameters() if p.requires_grad], 3e-3)
    return pack(net, opt, loader(*columns, bs=24), loss_of, **more)


def cost(out, targets, **more):
    return F.cross_entropy(out.flatten(0, 1), targets.flatten(), **more)


class Reader(nn.Module):
    """Tokens [B, T] read from left to right, or in both directions."""

    def __init__(self, both=False, moved=0):
        super().__init__()
        self.e, self.moved = nn.Embedding(V + 1, 16), moved
        self.r = nn.GRU(16, 16, batch_first=True, bidirectional=both)
        self.o = nn.Linear(32 if both else 16, V + 1)

    def forward(self, ids):
        if self.moved:
            ids = torch.cat([ids.new_full((len(ids), self.moved), V), ids[:, : -self.moved]], 1)
        return self.o(self.r(self.e(ids))[0])


class Encoder(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.e, self.kind = nn.Embedding(V, 16), kind
        layer = nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True, norm_first=True)
        self.enc = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.o = nn.Linear(16, V)

    def forward(self, ids):
        later = torch.ones(ids.shape[1], ids.shape[1]).triu(1)
        minus = torch.zeros_like(later).masked_fill(later.bool(), -torch.inf)
        mask = {"ones": later, "bool": later.bool(), "minus infinity": minus, "none": None}
        return self.o(self.enc(self.e(ids), mask=mask[self.kind]))


@cases(faulty=["ones", "none"], sound=["bool", "minus infinity"])
def test_the_future_is_hidden_in_training_not_by_a_path_that_only_eval_mode_takes(kind, is_told):
    torch.manual_seed(0)
    x = markov(V, 120, T + 1, gen(1))[0]
    setup = made(Encoder(kind), lambda m, b: cost(m(b[0]), b[1]), x[:, :-1], x[:, 1:])
    before = torch.backends.mha.get_fastpath_enabled()
    assert bool(said(model.future, setup)) == is_told
    assert torch.backends.mha.get_fastpath_enabled() == before


@cases(faulty=["reads its own"], sound=["moves them on"])
def test_a_decoder_that_moves_its_targets_on_by_one_does_not_copy(kind, is_told):
    torch.manual_seed(0)
    net = Reader(moved=int(kind == "moves them on"))
    setup = made(net, lambda m, b: cost(m(b[0]), b[0]), markov(V, 120, T, gen(1))[0])
    assert bool(said(model.future, setup)) == is_told
