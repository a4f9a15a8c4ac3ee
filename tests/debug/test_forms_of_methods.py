"""Pairs, tables, draws, critics, members and modes: sound makes, beside slips in them."""

import copy

import pytest
import torch
from torch import nn
from torch.distributions import Bernoulli, Categorical, Normal
from torch.nn import functional as F

from course.debug.probes import answers, modes
from course.debug.probes.session import Session
from course.debug.probes.setup import as_setup
from course.debug.relations import (
    handed,
    lookups,
    members,
    networks,
    policy,
    written,
)
from tests.debug.faulty.eighth.kit import gen
from tests.debug.faulty.sixth.kit import (
    blobs,
    loaders,
    mlp,
    numbers,
    of_pairs,
    setup,
    trained,
)
from tests.debug.told import said


def of(loss_of, *columns, model=None, **more):
    torch.manual_seed(0)
    model = model or mlp()
    opt = torch.optim.Adam(model.parameters(), 1e-3)
    return trained(model, opt, loaders(*columns), loss_of, **more)


@pytest.mark.parametrize(
    ("way", "told"),
    [("signs", False), ("ties", False), ("all alike", False), ("both signs and ties", False),
     ("hinge", True), ("soft margin", True), ("ranks", True)],
)  # fmt: skip
def test_pairs_are_told_apart_by_signs(way, told):
    """The second row is far from the first, or near it."""
    g = gen(1)
    a, same = torch.randn(128, 8, generator=g), torch.rand(128, generator=g) < 0.5
    b = torch.where(same[:, None], a + 0.1 * torch.randn(128, 8, generator=g), a.flip(0))
    rare = torch.rand(128, generator=g) < 0.08
    answers = {
        "ties": torch.where(rare, 0.0, 1.0), "all alike": torch.ones(128),
        "both signs and ties": torch.where(rare, 0.0, torch.where(same, 1.0, -1.0)),
        "signs": torch.where(same, 1.0, -1.0),
    }.get(way, same.float())  # fmt: skip

    def loss_of(m, batch):
        one, other = m(batch[0]), m(batch[1])
        if way in ("signs", "all alike"):
            return F.cosine_embedding_loss(one, other, batch[2])
        if way == "hinge":
            return F.hinge_embedding_loss((one - other).norm(dim=1), batch[2])
        if way == "soft margin":
            return F.soft_margin_loss((one * other).sum(1), batch[2])
        return F.margin_ranking_loss(one[:, 0], other[:, 0], batch[2], margin=0.5)

    assert said(handed.signs, of(loss_of, a, b, answers)) == ["wrong-targets"] * told


class Tables(nn.Module):
    """Hours, days and weather: rows of one table, or of tables of their own."""

    def __init__(self, way, sizes):
        super().__init__()
        rows = {"a vocabulary": 40, "teams": 24}.get(way, sum(sizes))
        self.table = nn.Embedding(rows, 8)
        self.others = nn.ModuleList(nn.Embedding(n, 8) for n in sizes)
        self.head = nn.Linear(8 * len(sizes), 1)
        self.way, self.offsets = way, torch.tensor([0, *sizes[:-1]]).cumsum(0)

    def forward(self, ids):
        if self.way == "apart":
            found = [table(ids[:, n]) for n, table in enumerate(self.others)]
            return self.head(torch.cat(found, 1))
        if self.way == "moved":
            ids = ids + self.offsets
        return self.head(self.table(ids).flatten(1))


@pytest.mark.parametrize(
    ("way", "sizes", "told"),
    [("moved", (24, 7, 3), False), ("apart", (24, 7, 3), False), ("teams", (24, 24), False),
     ("a vocabulary", (24, 7, 3), False), ("shared", (24, 7, 3), True), ("shared", (7, 24), True)],
)  # fmt: skip
def test_columns_have_rows_of_their_own_in_a_table(way, sizes, told):
    g = gen(2)
    ids = torch.stack([torch.randint(n, (400,), generator=g) for n in sizes], 1)
    y = torch.randn(24, generator=g)[ids].sum(1, keepdim=True)
    made = of(of_pairs(F.mse_loss), ids, y, model=Tables(way, sizes))
    assert said(lookups.shared, made) == ["rows-mixed"] * told


@pytest.mark.parametrize(
    ("way", "told"),
    [("copied", False), ("put back", False), ("labels copied", False), ("one class", False),
     ("told by zeros", False), ("filled", True), ("in a view", True)],
)  # fmt: skip
def test_what_is_hidden_in_the_inputs_is_not_hidden_in_the_labels(way, told):
    ids = torch.randint(1, 12, (96, 10), generator=gen(3))
    model = nn.Sequential(nn.Embedding(13, 16), nn.Linear(16, 13))
    columns = [ids]
    if way in ("one class", "told by zeros"):
        model = mlp(10, 2)
        columns = [torch.randn(96, 10, generator=gen(3)), torch.zeros(96, dtype=torch.long)]

    def loss_of(m, batch):
        x = batch[0]
        mask = torch.rand(x.shape) < 0.3
        if way == "one class":  # inputs are dropped where they lie; all labels are 0
            x[mask] = 0
            return F.cross_entropy(m(x), batch[1])
        if way == "told by zeros":  # the tensor of labels is filled again for what is made
            batch[1].fill_(0)
            real = F.cross_entropy(m(x), batch[1] + 1)
            return real + F.cross_entropy(m(torch.randn_like(x)), batch[1])
        if way == "copied":
            x = x.clone()
        labels = x.clone() if way == "labels copied" else batch[0]
        kept = x.clone()
        if way == "in a view":
            x.flatten()[mask.flatten()] = 12
        else:
            x.masked_fill_(mask, 12)
        out = m(x)
        if way == "put back":
            x.copy_(kept)
        return F.cross_entropy(out.transpose(1, 2), torch.where(mask, labels, -100))

    assert said(written.overwritten, of(loss_of, *columns, model=model)) == (
        ["wrong-targets"] * told
    )


@pytest.mark.parametrize(
    ("way", "told"),
    [("once", False), ("the batch's", False), ("both", False), ("a drawn baseline", False),
     ("a baseline drawn before", False), ("twice", True), ("twice, of numbers", True),
     ("twice, of yes and no", True)],
)  # fmt: skip
def test_the_action_that_is_played_gets_the_credit(way, told):
    g = gen(4)
    states, old = torch.randn(160, 8, generator=g), torch.randint(0, 4, (160,), generator=g)

    def loss_of(m, batch):
        out = m(batch[0])
        best = batch[0][:, :4].argmax(1)
        if way == "twice, of numbers":
            law = Normal(out[:, 0], 1.0)
            won = -(law.sample() - batch[0][:, 0]).square()
            return -(law.log_prob(law.sample()) * won).mean()
        if way == "twice, of yes and no":
            law = Bernoulli(logits=out[:, 0])
            won = (law.sample() == (batch[0][:, 0] > 0).float()).float()
            return -(law.log_prob(law.sample()) * (won - 0.5)).mean()
        law = Categorical(logits=out)
        if way == "the batch's":
            return -(law.log_prob(batch[1]) * (batch[1] == best)).mean()
        before = law.sample() if way == "a baseline drawn before" else None
        action = law.sample()
        won = (action == best).float()
        if way == "once":
            return -(law.log_prob(action) * won).mean()
        if way == "a baseline drawn before":
            return -(law.log_prob(action) * (won - (before == best).float())).mean()
        other = law.sample()
        won_too = (other == best).float()
        if way == "a drawn baseline":
            return -(law.log_prob(action) * (won - won_too)).mean()
        if way == "both":
            return -(law.log_prob(action) * won + law.log_prob(other) * won_too).mean()
        return -(law.log_prob(other) * won).mean()

    assert said(policy.played, of(loss_of, states, old)) == ["wrong-formula"] * told


@pytest.mark.parametrize(
    ("way", "told"),
    [("apart", False), ("a head twice as often", False), ("a trunk and two heads", False),
     ("an actor that holds its critic", True), ("a generator", True)],
)  # fmt: skip
def test_an_optimizer_does_not_hold_the_network_of_another(way, told):
    """An actor is told by a critic what its actions are worth; a generator is told by one."""
    torch.manual_seed(0)
    acts = way in ("apart", "an actor that holds its critic")
    actor, critic = (mlp(8, 2), mlp(10, 1)) if acts else (mlp(8, 8), mlp(8, 1))
    both = nn.ModuleDict({"actor": actor, "critic": critic, "more": mlp(8, 1)})
    held = {
        "apart": actor, "a trunk and two heads": nn.ModuleList([actor, both["more"]]),
    }.get(way, both)  # fmt: skip
    opt_a, opt_c = (torch.optim.Adam(p.parameters(), 1e-3) for p in (held, critic))

    def step(batch):
        x, y = batch
        if way == "a generator":
            real, fake = critic(x), actor(torch.randn_like(x))
            cost = F.softplus(-real).mean() + F.softplus(critic(fake.detach())).mean()
        elif way in ("a trunk and two heads", "a head twice as often"):
            cost = F.mse_loss(critic(actor(x).detach()), y)
        else:
            cost = F.mse_loss(critic(torch.cat([x, y.expand(-1, 2)], 1)), y)
        opt_c.zero_grad()
        cost.backward()
        opt_c.step()
        if way == "a generator":
            gain = F.softplus(-critic(fake)).mean()
        elif way == "a trunk and two heads":
            gain = F.mse_loss(both["more"](actor(x)), y.abs())
        elif way == "a head twice as often":
            gain = F.mse_loss(critic(actor(x)), y) + F.mse_loss(both["more"](actor(x)), y.abs())
        else:
            gain = -critic(torch.cat([x, actor(x)], 1)).mean()
        opt_a.zero_grad()
        gain.backward()
        opt_a.step()
        return cost.item() + gain.item()

    made = setup(both, [opt_a, opt_c], loaders(*numbers(160))[0], step=step)
    assert said(networks.holds_another, made) == ["optimizer-holds-another"] * told


class Members(nn.Module):
    def __init__(self, members):
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, x):
        return torch.stack([m(x) for m in self.members]).mean(0)


@pytest.mark.parametrize(
    ("way", "told"),
    [("drawn apart", False), ("rows of their own", False), ("dropout", False), ("frozen", False),
     ("one layer in use", False), ("copies", True), ("times three", True)],
)  # fmt: skip
def test_members_of_a_list_learn_their_own(way, told):
    torch.manual_seed(0)
    first = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.5 * (way == "dropout")),
                          nn.Linear(16, 4))  # fmt: skip
    made = {"times three": lambda: [first] * 3, "drawn apart": lambda: [mlp() for _ in range(3)],
            "one layer in use": lambda: [first, mlp()]}  # fmt: skip
    model = Members(made.get(way, lambda: [copy.deepcopy(first) for _ in range(3)])())
    if way == "frozen":
        model.members.requires_grad_(False)
        model.head = nn.Linear(4, 4)

    def loss_of(m, batch):
        x, y = batch
        if way == "frozen":
            return F.cross_entropy(m.head(m(x)), y)
        total = 0.0
        for member in m.members:
            rows = torch.randint(len(x), (len(x),)) if way == "rows of their own" else slice(None)
            total = total + F.cross_entropy(member(x[rows]), y[rows])
        return total

    assert said(members.apart, of(loss_of, *blobs(), model=model)) == ["bad-start"] * told


def alarms(relation, made):
    """Classes of a relation's alarms, without its notes."""
    return [f.id for f in relation(Session(as_setup(made))) if f.is_alarm]


@pytest.mark.parametrize(
    ("way", "told"),
    [("tokens", False), ("tokens of the place before", False), ("codes", True),
     ("yes and no", True), ("numbers", True)],
)  # fmt: skip
def test_a_token_may_be_asked_for_but_no_column_is_the_answer(way, told):
    x = torch.randint(4, (240, 6), generator=gen(9))
    if way == "codes":
        x = x * torch.tensor([1, 2, 1, 3, 1, 5])
    elif way == "yes and no":
        x = x % 2
    elif way == "numbers":
        x = x.float()
    y = x[:, 2].long()
    if way == "tokens of the place before":
        y = (x[:, 2] + x[:, 3]) % 4

    class Looking(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.net = nn.Embedding(16, 8), mlp(48, 4)

        def forward(self, ids):
            return self.net(self.embed(ids).flatten(1))

    class Plain(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = mlp(6, 4)

        def forward(self, x):
            return self.net(x.float())

    model = Looking() if "tokens" in way else Plain()
    made = of(of_pairs(F.cross_entropy), x, y, model=model)
    assert alarms(answers.target_in_inputs, made) == ["target-in-inputs"] * told


@pytest.mark.parametrize(
    ("way", "told"),
    [("each epoch", False), ("put back", False), ("batch norm alone", False), ("no dropout", False),
     ("scored apart", False), ("before the loop", True), ("in the first epoch", True)],
)  # fmt: skip
def test_a_model_is_awake_in_the_second_epoch(way, told):
    torch.manual_seed(0)
    train, held = loaders(*blobs())
    asleep = nn.BatchNorm1d(32) if way == "batch norm alone" else nn.Dropout(0.2)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), asleep, nn.Linear(32, 4))
    if way == "no dropout":
        model = mlp()
    opt = torch.optim.Adam(model.parameters(), 1e-3)
    loss_of = of_pairs(F.cross_entropy)

    def step(batch):
        loss = loss_of(model, batch)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.item()

    def score():
        scored = copy.deepcopy(model) if way == "scored apart" else model
        scored.eval()
        with torch.no_grad():
            hits = [scored(x).argmax(1) == y for x, y in held]
        if way == "put back":
            model.train()
        return {"accuracy": torch.cat(hits).float().mean().item()}

    def train_for(steps):
        model.train()
        done = epoch = 0
        while True:
            if way in ("each epoch", "batch norm alone") or epoch == 0:
                model.train()
            if way == "batch norm alone" and epoch:
                asleep.eval()
            for batch in train:
                step(batch)
                done += 1
                if done == steps:
                    return
            score()
            epoch += 1

    def one(batch):
        model.train()
        return step(batch)

    made = setup(model, opt, train, held, step=one, evaluate=score, loss_fn=F.cross_entropy)
    made["train"] = train_for
    if way == "before the loop":
        del made["train_step"]
    assert said(modes.eval_in_training, made) == ["eval-mode-in-training"] * told


WORSE = {"sign steps": False, "sign steps by backward": False, "smoothed": False, "voted": False,
         "logged": False, "all asleep": True, "by hand": True, "in two parts": True}  # fmt: skip


@pytest.mark.parametrize(("way", "told"), WORSE.items())
def test_a_forward_counts_whose_graph_an_update_comes_from(way, told):
    """What is looked for in eval mode before the update, in train mode, is no training."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4))
    opt = torch.optim.SGD(model.parameters(), 0.1)
    weights = [*model.parameters()]

    def worst(x, y):
        push = torch.zeros_like(x)
        for _ in range(3):
            push.requires_grad_()
            loss = F.cross_entropy(model(x + push), y)
            if way == "smoothed":
                loss = F.kl_div(model(x + push).log_softmax(1), model(x).softmax(1).detach())
            if way == "sign steps by backward":
                loss.backward()
            slope = push.grad if push.grad is not None else torch.autograd.grad(loss, push)[0]
            push = (push + 0.1 * slope.sign()).detach()
        return x + push

    def step(batch):
        x, y = batch
        model.eval()
        if way in ("sign steps", "sign steps by backward", "smoothed", "all asleep"):
            x = worst(x, y)
        votes = sum(model(x) for _ in range(3)).detach() if way == "voted" else None
        model.train(not told)
        opt.zero_grad()
        if way == "by hand":
            slopes = torch.autograd.grad(F.cross_entropy(model(x), y), weights)
            for p, slope in zip(weights, slopes, strict=True):
                p.grad = slope
        for part in (0, 1) if way == "in two parts" else (slice(None),) * (way != "by hand"):
            rows = slice(part, None, 2) if isinstance(part, int) else part
            loss = F.cross_entropy(model(x[rows]), y[rows])
            if votes is not None:
                loss = loss + F.cross_entropy(model(x), votes.softmax(1))
            loss.backward()
        opt.step()
        model.eval()
        for _ in range(3 * (way == "logged")):
            model(x).argmax(1)
        return 1.0

    made = setup(model, opt, *loaders(*blobs()), step=step)
    assert said(modes.eval_in_training, made) == ["eval-mode-in-training"] * told
