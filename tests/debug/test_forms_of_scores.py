"""Scores of several makes, beside slips in them: by name, of boxes, of orders, drawn at random."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from course.debug.probes import metric, rescored
from course.debug.relations import direction, rebatched, scores, scoring, targets
from tests.debug.faulty.eighth.kit import gen, predict
from tests.debug.faulty.sixth.kit import blobs, loaders, mlp, numbers, of_pairs, trained
from tests.debug.told import said


def of(columns, loss, evaluate, model=None, val=40, **more):
    """A program whose evaluate() is made for its model and its validation loader."""
    torch.manual_seed(0)
    model = model or mlp(8, 1)
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    train, held = loaders(*columns, val=val)
    score = evaluate(model, held)
    return trained(model, opt, (train, held), of_pairs(loss), evaluate=score, **more)


def yes_or_no(n=200):
    y = (torch.rand(n, 1, generator=gen(4)) < 0.3).float()
    return torch.randn(n, 8, generator=gen(5)) + y, y


def precision(p, y):
    return ((p > 0) & (y == 1)).sum() / (p > 0).sum().clamp(min=1)


def recall(p, y):
    return ((p > 0) & (y == 1)).sum() / (y == 1).sum()


def area(p, y):
    above = p[y == 1][:, None] - p[y == 0][None]
    return ((above > 0).float() + 0.5 * (above == 0).float()).mean()


@pytest.mark.parametrize(
    ("name", "score", "told"),
    [("precision_at_1", lambda p, y: torch.tensor(1.0), False),
     ("val_auc", area, False), ("auc_of_shares", lambda p, y: area(p.sigmoid(), y), False),
     ("precision", precision, False), ("recall", recall, False), ("average_precision", area, False),
     ("recall_at_0.2", lambda p, y: recall(p + 1.4, y), False),
     ("roc-auc", lambda p, y: area(-p, y), True), ("precision", recall, True),
     ("val_recall", precision, True), ("AUC", lambda p, y: area((p > 0).float(), y), True)],
)  # fmt: skip
def test_a_score_of_answers_is_what_its_name_says(name, score, told):
    def make(model, held):
        return lambda: {name: float(score(*predict(model, held)))}

    made = of(yes_or_no(), F.binary_cross_entropy_with_logits, make)
    assert said(scores.named, made) == ["metric-wrong"] * told


def explained(p, y):
    return 1 - (p - y).square().sum() / (y - y.mean()).square().sum()


@pytest.mark.parametrize(
    ("name", "score", "told"),
    [("rmse", lambda p, y: F.mse_loss(p, y).sqrt(), False),
     ("rmse_in_euros", lambda p, y: 90 * F.mse_loss(p, y).sqrt(), False), ("r2", explained, False),
     ("mape", lambda p, y: ((p - y) / y).abs().mean(), False),
     ("val_mape", lambda p, y: ((p - y) / y).abs().clamp(max=1).mean(), False),
     ("val_rmse", F.mse_loss, True), ("R2", lambda p, y: explained(y, p), True),
     ("mape", lambda p, y: ((p - y) / p).abs().mean(), True)],
)  # fmt: skip
def test_a_score_of_numbers_is_what_its_name_says(name, score, told):
    def make(model, held):
        return lambda: {name: float(score(*predict(model, held)))}

    made = of(numbers(200), F.mse_loss, make)
    assert said(scores.named, made) == ["metric-wrong"] * told


def overlap(a, b, least=0.0):
    """Of boxes by their corners, whose sides are at least so long."""
    inside = (torch.minimum(a[:, 2:], b[:, 2:]) - torch.maximum(a[:, :2], b[:, :2])).clamp(min=0)
    areas = [(q[:, 2:] - q[:, :2]).clamp(min=least).prod(1) for q in (a, b)]
    return inside.prod(1) / (sum(areas) - inside.prod(1) + 1e-6)


def of_centres(b):
    return torch.cat([b[:, :2] - b[:, 2:] / 2, b[:, :2] + b[:, 2:] / 2], 1)


def of_first_corners(b):
    return torch.cat([b[:, :2], b[:, :2] + b[:, 2:]], 1)


@pytest.mark.parametrize(
    ("kind", "read_as", "least", "told"),
    [("centres", of_centres, 0.0, False), ("corners", torch.clone, 0.0, False),
     ("first corners", of_first_corners, 0.0, False), ("logarithms", torch.exp, 0.0, False),
     ("centres", torch.clone, 0.0, True), ("centres", torch.clone, -torch.inf, True)],
)  # fmt: skip
def test_boxes_are_read_as_what_they_are(kind, read_as, least, told):
    centre = 0.3 + 0.4 * torch.rand(160, 2, generator=gen(1))
    side = 0.1 + 0.4 * torch.rand(160, 2, generator=gen(2))
    y = {
        "centres": torch.cat([centre, side], 1),
        "corners": torch.cat([centre - side / 2, centre + side / 2], 1),
        "first corners": torch.cat([centre - side / 2, side], 1),
        "logarithms": torch.cat([centre, side], 1).log(),
    }[kind]
    x = torch.cat([y, torch.randn(160, 4, generator=gen(3))], 1)

    def make(model, held):
        def evaluate():
            p, y = predict(model, held)
            return {"val_iou": overlap(read_as(p), read_as(y), least).mean().item()}

        return evaluate

    model = mlp(8, 4)
    if kind != "logarithms":
        model = nn.Sequential(model, nn.Sigmoid())
    made = of((x, y), F.smooth_l1_loss, make, model=model)
    assert said(scores.of_boxes, made) == ["metric-wrong"] * told


def gain(scores, relevance):
    """What an order reaches of the best one, by the ranks of what is relevant."""
    ranks = relevance.argsort(1).argsort(1).float()
    discount = 1 / torch.log2(torch.arange(ranks.shape[1]) + 2.0)
    reached = (ranks.gather(1, scores.argsort(1, True)) * discount).sum(1)
    return (reached / (ranks.sort(1, True)[0] * discount).sum(1)).mean().item()


def first_place(scores, relevance):
    """1 over the place of the most relevant."""
    places = scores.argsort(1, True).argsort(1).gather(1, relevance.argmax(1, True)) + 1
    return (1 / places).mean().item()


@pytest.mark.parametrize(
    ("way", "told"),
    [("margin", False), ("in pairs", False), ("unrelated", False), ("swapped", True),
     ("in pairs, swapped", True), ("in pairs, swapped, by the first", True)],
)  # fmt: skip
def test_an_order_is_learned_and_not_its_reverse(way, told):
    """Two items of which the first is more relevant; lists of ten are scored."""
    g = gen(3)
    w = torch.randn(10, generator=g)
    a, b = torch.randn(2, 320, 10, generator=g)
    first = (a @ w > b @ w)[:, None]
    better, worse = torch.where(first, a, b), torch.where(first, b, a)
    lists = torch.randn(80, 10, 10, generator=g)
    relevance = torch.randn(80, 10, generator=g) if way == "unrelated" else lists @ w
    torch.manual_seed(0)
    model = mlp(10, 1)
    opt = torch.optim.Adam(model.parameters(), 3e-3)

    def loss_of(m, batch):
        yes, no = m(batch[0]), m(batch[1])
        if "swapped" in way:
            yes, no = no, yes
        if "pairs" in way:
            return -F.logsigmoid(yes - no).mean()
        return F.margin_ranking_loss(yes, no, torch.ones_like(yes), margin=1.0)

    def evaluate():
        model.eval()
        with torch.no_grad():
            scores = model(lists)[..., 0]
        model.train()
        if "first" in way:
            return {"mrr@10": first_place(scores, relevance)}
        return {"val_ndcg": gain(scores, relevance)}

    train = DataLoader(TensorDataset(better, worse), 32, shuffle=True)
    made = trained(model, opt, (train, train), loss_of, evaluate=evaluate)
    assert said(direction.follows, made) == ["loss-negated"] * told


@pytest.mark.parametrize("way", ["own noise", "drawn rows", "drawn answers", "by batch"])
def test_a_score_that_is_drawn_at_random_is_no_mean_of_batches(way):
    """72 rows to score in batches of 16; the last is short, and its targets are further out."""
    x, y = numbers(240)
    y = torch.where(torch.arange(240)[:, None] >= 232, y + 2, y)

    def make(model, held):
        def evaluate():
            model.eval()
            means, errors = [], []
            with torch.no_grad():
                for x, y in held:
                    if way == "own noise":
                        x = x + torch.randn_like(x)
                    elif way == "drawn rows":
                        kept = torch.rand(len(x)) < 0.7
                        x, y = x[kept], y[kept]
                    p = model(x)
                    if way == "drawn answers":
                        p = p + torch.randn_like(p)
                    means.append((p - y).abs().median())
                    errors.append((p - y).square())
            model.train()
            mean = torch.stack(means).mean() if way == "by batch" else torch.cat(errors).mean()
            return {"error": mean.item()}

        return evaluate

    made = of((x, y), F.mse_loss, make, val=72)
    assert said(rebatched.in_one_batch, made) == ["metric-batch-mean"] * (way == "by batch")


@pytest.mark.parametrize(
    ("way", "told"),
    [("both", False), ("teacher alone", False), ("members", False), ("wrong", True)],
)
def test_an_accuracy_of_another_network_is_not_compared_with_the_models(way, told):
    torch.manual_seed(0)
    model = mlp()
    teacher, other = copy.deepcopy(model), mlp()

    def make(model, held):
        def right(*networks):
            hits = [torch.stack([m(x) for m in networks]).mean(0).argmax(1) == y for x, y in held]
            if way == "wrong":
                hits = [h.float() * len(h) / 16 for h in hits]
            return torch.cat(hits).float().mean().item()

        def evaluate():
            model.eval()
            with torch.no_grad():
                found = {"teacher_acc": right(teacher)} if "teacher" in way else {}
                if way == "both":
                    found = {"teacher_acc": right(other), "student_acc": right(model)}
                elif way == "members":
                    found = {"val_acc": right(model, other), "member_acc": right(model)}
                elif way == "wrong":
                    found = {"val_acc": right(model)}
            model.train()
            return found

        return evaluate

    made = of(
        blobs(200), F.cross_entropy, make, model=model, num_classes=4, loss_fn=F.cross_entropy
    )
    assert said(metric.accuracy, made) == ["metric-wrong"] * told


def of_neighbours(z, y):
    """A loss of the farthest alike and the nearest unlike."""
    z = F.normalize(z, dim=1)
    far, alike = torch.cdist(z, z), y[:, None] == y[None]
    nearest = far.masked_fill(alike, 9.0).min(1).values
    return F.softplus((far * alike).max(1).values - nearest + 0.2).mean()


def of_means(z, y):
    """The cross-entropy of distances to the mean of each class in the batch."""
    means = torch.stack([z[y == k].mean(0) if (y == k).any() else z.mean(0) for k in range(4)])
    return F.cross_entropy(-torch.cdist(z, means), y)


def told_by(kind, z, y, known, known_y):
    """Which held-out rows are answered rightly, by rows of training or by each other."""
    far = torch.cdist(z, known)
    if kind == "neighbours":
        votes = F.one_hot(known_y[far.topk(5, largest=False).indices], 4).sum(1)
        return votes.argmax(1) == y
    if kind == "means":
        means = torch.stack([known[known_y == k].mean(0) for k in range(4)])
        return torch.cdist(z, means).argmin(1) == y
    if kind == "probe":
        line = torch.linalg.lstsq(known, F.one_hot(known_y, 4).float()).solution
        return (z @ line).argmax(1) == y
    if kind == "pairs":
        own = torch.cdist(z, z)
        return (own < own.median()) == (y[:, None] == y[None])
    if kind == "retrieved":
        return y[torch.cdist(z, z).fill_diagonal_(9e9).argmin(1)] == y
    fixed = torch.randn(4, z.shape[1], generator=gen(3))  # learned elsewhere
    return (z @ fixed.T).argmax(1) == y


@pytest.mark.parametrize("loss", [of_neighbours, of_means, F.cross_entropy])
@pytest.mark.parametrize(
    ("kind", "name"),
    [("neighbours", "val_acc"), ("means", "accuracy"), ("probe", "probe_acc"),
     ("pairs", "pair_acc"), ("retrieved", "recall_at_1_acc"), ("elsewhere", "fixed_acc")],
)  # fmt: skip
def test_an_accuracy_of_places_is_not_that_of_the_largest_column(kind, name, loss):
    """Outputs are places to which rows of training come near; the model gets these rows, too. If
    it does not, the name tells, or that no loss reads the columns as classes."""
    name = "val_acc" if loss is of_neighbours else name
    x, y = blobs(200)

    def make(model, held):
        def evaluate():
            model.eval()
            with torch.no_grad():
                apart = kind in ("pairs", "retrieved", "elsewhere")
                known = torch.randn(160, 4) if apart else torch.cat(
                    [model(part) for part in x[:160].split(80)])  # fmt: skip
                z = torch.cat([model(b[0]) for b in held])
                right = told_by(kind, z, y[160:], known, y[:160])
            model.train()
            return {name: float(right.float().mean())}

        return evaluate

    made = of((x, y), loss, make, model=mlp(), num_classes=4)
    relations = metric.accuracy, rescored.accuracy, scoring.accuracy, scores.named
    assert [said(r, made) for r in (*relations, targets.own_label)] == [[]] * 5


def counted(way, z, y):
    """Right answers of outputs, read or counted in one way."""
    shares = z.softmax(1)
    if way == "sure ones":
        sure = shares.amax(1) > 0.4
        return ((z.argmax(1) == y) & sure).sum() / sure.sum().clamp_min(1)
    if way == "votes of two":  # rows 2i and 2i + 1 are of one person
        return (z.log_softmax(1).view(-1, 2, 4).mean(1).argmax(1) == y[::2]).float().mean()
    if way == "families":
        return (shares.view(-1, 2, 2).sum(2).argmax(1) == y // 2).float().mean()
    if way == "known shares":
        return ((z + torch.tensor([3.0, 0, 0, -3])).argmax(1) == y).float().mean()
    if way == "mean grade":
        return ((shares * torch.arange(4)).sum(1).round() == y).float().mean()
    if way == "within one":
        return ((z.argmax(1) - y).abs() <= 1).float().mean()
    hits = (z.argmax(1) == y).float()
    if way == "last batch":
        return hits[-8:].mean()
    if way == "first batch":
        return hits[:16].mean()
    if way == "full batches":
        return hits.sum() / (16 * -(-len(y) // 16))
    return (z.argmax(0)[:, None] == y[:4]).float().mean()  # "over the rows"


@pytest.mark.parametrize(
    ("way", "told"),
    [("sure ones", False), ("votes of two", False), ("families", False), ("known shares", False),
     ("mean grade", False), ("within one", False), ("last batch", True), ("first batch", True),
     ("full batches", True), ("over the rows", True)],
)  # fmt: skip
def test_an_accuracy_may_be_of_answers_that_are_read_in_another_way(way, told):
    """Of ideal outputs it is all, and less where those of a batch are wrong; a count that is wrong
    is not."""
    x, y = blobs(200)
    if way == "votes of two":
        y = y.view(-1, 2)[:, :1].expand(-1, 2).flatten()

    def make(model, held):
        def evaluate():
            model.eval()
            with torch.no_grad():
                z = torch.cat([model(part) for part, _ in held])
            model.train()
            return {"accuracy": float(counted(way, z, y[160:]))}

        return evaluate

    made = of((x, y), F.cross_entropy, make, model=mlp(), num_classes=4)
    found = said(metric.accuracy, made) + said(rescored.accuracy, made)
    assert set(found) == ({"metric-wrong"} if told else set())
