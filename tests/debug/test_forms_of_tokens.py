"""Token models: what an output sees, what it is compared with, and which places count."""

import torch
from torch import nn
from torch.nn import functional as F

from course.debug.relations import ahead, counted, model, parts
from tests.debug.faulty.eighth.kit import gen
from tests.debug.faulty.eleventh.kit import Columns
from tests.debug.faulty.twelfth.kit import loader, markov, pack
from tests.debug.told import cases, said

V, T = 12, 10


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


@cases(
    faulty=["data and loss", "data and model", "classes in the middle", "three"],
    sound=["loss alone", "data alone", "model alone", "two heads", "one more head", "every other",
           "both directions", "the same again", "a separator in the middle"],
)  # fmt: skip
def test_targets_are_not_shifted_twice(kind, is_told):
    torch.manual_seed(0)
    x = markov(V, 160, T + 1, gen(1))[0]
    if kind == "the same again":
        x = x[:, :1].expand(-1, T + 1)
    if "separator" in kind:
        x[:, T // 2] = 0
    by = {"loss alone": 0, "model alone": 0, "three": 2}.get(kind, 1)
    ids, labels = x[:, : T + 1 - by], x[:, by:].clone()
    in_model = {"data and model": 1, "model alone": 1}.get(kind, 0)
    net = Reader(both=kind == "both directions", moved=in_model)
    if kind == "one more head":
        net.e.requires_grad_(False)
        net.r.requires_grad_(False)
    if kind == "every other":
        labels[:, ::2] = -100
    second = nn.Linear(V + 1, V + 1)
    if kind == "two heads":
        net.add_module("second", second)

    def loss_of(m, b):
        out, y = m(b[0]), b[1]
        if in_model or kind in ("data alone", "a separator in the middle"):
            return cost(out, y)
        if kind == "classes in the middle":
            return F.cross_entropy(out[:, :-1].transpose(1, 2), y[:, 1:])
        loss = cost(out[:, :-1], y[:, 1:])
        return loss + cost(second(out), y) if kind == "two heads" else loss

    setup = made(net, loss_of, ids, labels)
    assert bool(said(ahead.skipped, setup)) == is_told


@cases(
    faulty=["said in evaluate", "said in the step", "said to the loss"],
    sound=["masked alone", "nobody says", "other tokens", "a place has no label", "next token"],
)
def test_a_model_of_masked_tokens_is_not_asked_for_what_it_sees(kind, is_told):
    torch.manual_seed(0)
    x = markov(V, 160, T, gen(1))[0]
    masked = torch.rand(x.shape, generator=gen(2)) < 0.15
    ids, labels = x.masked_fill(masked, V), x.clone()
    left_out = -1 if kind == "said to the loss" else -100
    if kind == "masked alone":
        labels[~masked] = left_out
    if kind == "other tokens":
        ids = torch.where(masked, x.roll(1, 0), x)
    if kind == "a place has no label":
        labels[:, 0] = left_out
    if kind == "next token":
        ids, labels = ids[:, :-1], labels[:, 1:]
    net = Reader(both=kind != "next token")

    def loss_of(m, b):
        if kind == "said in the step":
            assert bool((b[1] != left_out).any())
        return cost(m(b[0]), b[1], ignore_index=left_out)

    def evaluate():
        counts = labels != left_out if kind != "nobody says" else labels >= 0
        net.eval()
        with torch.no_grad():
            hits = net(ids).argmax(-1) == labels
        net.train()
        return {"acc": hits[counts].float().mean().item()}

    setup = made(net, loss_of, ids, labels, evaluate=evaluate)
    if kind in ("said in the step", "said to the loss"):
        del setup["evaluate"]
    assert bool(said(ahead.copied, setup)) == is_told


@cases(
    faulty=["means", "means, clipped", "means, ends cut", "means, as many at first"],
    sound=["sums", "rows are means", "as many in each", "one row each, sums", "sums, ends cut"],
)
def test_micro_batches_of_tokens_weigh_as_in_the_loss_of_a_batch_of_any_kind(kind, is_told):
    torch.manual_seed(0)
    x = markov(V, 120, T + 1, gen(1))[0]
    lengths = torch.randint(2, T, (120, 1), generator=gen(2))
    if kind == "as many in each":
        lengths[:] = T
    cut = "cut" in kind
    if "at first" in kind:
        lengths[:12] = T
    labels = x[:, 1:].where(torch.arange(T) < lengths, -100)
    data = Columns(ids=x if cut else x[:, :-1], labels=labels)
    net, rows = Reader(), 1 if "one row" in kind else 4

    def loss_of(m, b):
        ids = b["ids"][:, :-1] if cut else b["ids"]
        costs = F.cross_entropy(m(ids).mT, b["labels"], reduction="none")
        counts = (b["labels"] >= 0).float()
        if kind == "rows are means":
            return ((costs * counts).sum(1) / counts.sum(1)).mean()
        return (costs * counts).sum() / counts.sum()

    def step(b):
        opt.zero_grad()
        total = (b["labels"] >= 0).sum()
        order = range(0, len(b["ids"]), rows)
        for part in ({k: v[i : i + rows] for k, v in b.items()} for i in order):
            share = (part["labels"] >= 0).sum() / total if "sums" in kind else 1 / len(order)
            (loss_of(net, part) * share).backward()
        if kind == "means, clipped":
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        opt.step()
        return 0.0

    opt = torch.optim.Adam(net.parameters(), 3e-3)
    setup = pack(net, opt, loader(data, bs=12, shuffle="at first" not in kind), loss_of, step=step)
    assert bool(said(parts.weighed, setup)) == is_told


class Code(nn.Module):
    """Tokens that are written again from one code of the whole row."""

    def __init__(self):
        super().__init__()
        self.e, self.p = nn.Embedding(V + 2, 16), nn.Parameter(torch.randn(T, 16))
        self.r, self.o = nn.GRU(16, 16, batch_first=True), nn.Linear(16, V + 2)

    def forward(self, ids):
        return self.o(torch.tanh(self.r(self.e(ids))[1][0][:, None] + self.p[: ids.shape[1]]))


@cases(
    faulty=["shown", "shown, padded", "shown, some replaced"],
    sound=["hidden", "hidden, some kept", "code without unknown", "padding before", "padding",
           "tags with gaps", "all written again"],
)  # fmt: skip
def test_a_model_of_masked_tokens_is_asked_for_what_is_hidden(kind, is_told):
    torch.manual_seed(0)
    g, mask = gen(9), V
    x = markov(V - 2, 160, T, g)[0] + 1
    chosen = torch.rand(x.shape, generator=g) < 0.2
    ids, labels = x.masked_fill(chosen, mask), x.clone()
    labels[chosen if is_told or kind == "code without unknown" else ~chosen] = -100
    if kind in ("shown, some replaced", "hidden, some kept"):
        other = torch.randint(1, V - 1, x.shape, generator=g)
        ids = ids.where(torch.rand(x.shape, generator=g) < 0.8, other if is_told else x)
        ids = torch.where(chosen, ids, x)
    if kind == "all written again":
        labels = x
    if kind == "tags with gaps":
        labels = ((x * 5) % V).masked_fill(chosen, -100)
    if kind in ("padding", "padding before", "shown, padded"):
        pad = torch.arange(T) >= torch.randint(4, T, (len(x), 1), generator=g)
        pad = pad.flip(1) if kind == "padding before" else pad
        shown = ids if is_told else x
        ids, labels = shown.masked_fill(pad, 0), (labels if is_told else x).masked_fill(pad, -100)
    net = Code() if kind == "code without unknown" else Reader(both=True)
    setup = made(net, lambda m, b: cost(m(b[0]), b[1], ignore_index=-100), ids, labels)
    assert said(ahead.shown, setup) == ["target-in-inputs"] * is_told


@cases(
    faulty=["all places", "told by a mask"],
    sound=["left out by the label", "left out by the loss", "weighed by a mask", "no end is told",
           "blanks within rows"],
)  # fmt: skip
def test_answers_to_padding_are_not_asked_for(kind, is_told):
    torch.manual_seed(0)
    g = gen(5)
    real = torch.arange(T) < torch.randint(2, T, (96, 1), generator=g)
    ids = torch.randint(1, V, real.shape, generator=g)
    tags = (ids * 5) % 4
    if kind == "left out by the loss":
        tags = 1 + tags % 3
    if kind == "blanks within rows":
        ids[:, 0] = 0
    ids, tags = ids * real, tags * real
    if kind == "left out by the label":
        tags = tags.masked_fill(~real, -100)
    told = [] if kind == "no end is told" else [real.long()] if "mask" in kind else [real.sum(1)]

    def loss_of(m, b):
        if kind == "weighed by a mask":
            costs = F.cross_entropy(m(b[0]).transpose(1, 2), b[1], reduction="none")
            return (costs * b[2]).sum() / b[2].sum()
        return cost(m(b[0]), b[1], ignore_index=0 if kind == "left out by the loss" else -100)

    setup = made(Reader(both=True), loss_of, ids, tags, *told)
    assert said(counted.behind_the_end, setup) == ["padding-in-the-loss"] * is_told
