"""03c.drawn: what weighted and distributed samplers draw, skip and repeat."""

from autograde.exercise import Part, Wrong
from autograde.kinds import Number

EXERCISE = Number(
    id="03c.drawn", title="drawn, skipped and repeated", minutes=8, difficulty=2,
    source='Training-loop chapter, c2',
    ledger=("N07", "N52", "T10", "X31", "C18", "F87", "F88"),
    read=("N07", "N52", "course.data.count_draws"),
    hints=("A plain batch is a sample of the data set: it holds each class at its share.",
           "Weights of 1 / class size give both classes the same mass. How likely is it that one "
           "draw misses a given example, and that all draws do?",
           "One draw is a given majority example with the chance 0.5 / its class size; ranks get "
           "ceil(items / ranks) each."),
    question="Two classes of {big} and {small} examples. A shuffle cuts batches of {b}; a weighted "
    "sampler, weights 1 / class size, draws {big} + {small} examples per epoch with replacement. A "
    "DistributedSampler with its defaults deals {big} + {small} + 1 examples to {r} ranks.",
    inputs={"big": (500, 950), "small": (40, 200), "b": [32, 48, 64], "r": [7, 9, 11, 13]},
    answer=lambda big, small, b, r: {
        "plain": b * small / (big + small), "seen": big * (1 - (1 - 0.5 / big) ** (big + small)),
        "twice": -(big + small + 1) % r},
    parts=(Part("plain", "minority examples expected in a batch of the shuffle", points=0.5),
           Part("seen", "majority examples expected in a weighted epoch, each counted once",
                points=1),
           Part("twice", "examples that two ranks get in an epoch", points=1)),
    wrong=(
        Wrong("balanced", lambda big, small, b, r: {"plain": b / 2},
              "That is the weighted sampler's half. A shuffle holds each class at its share."),
        Wrong("of-the-majority", lambda big, small, b, r: {"plain": b * small / big},
              "That divides by the majority alone: a share is of all {big} + {small}."),
        Wrong("a-share", lambda big, small, b, r: {"plain": small / (big + small)},
              "That is the minority's share. A batch has {b} examples."),
        Wrong("same-chance", lambda big, small, b, r: {
              "seen": big * (1 - (1 - 1 / (big + small)) ** (big + small))},
              "That gives every example the same chance. Half of all weight lies on {big} "
              "examples: a draw is a given one of them with the chance 0.5 / {big}."),
        Wrong("fewer-draws", lambda big, small, b, r: {"seen": big * (1 - (1 - 0.5 / big) ** big)},
              "That is for as many draws as the majority has examples. An epoch has more."),
        Wrong("per-rank", lambda big, small, b, r: {"twice": -(-(big + small + 1) // r)},
              "That is what each rank gets. How many are dealt in all, and how many are there?"),
        Wrong("one-left-out", lambda big, small, b, r: {"twice": -(big + small) % r},
              "One example is left out: there is one more than both classes have together."),
        Wrong("draws", lambda big, small, b, r: {"seen": (big + small) / 2},
              "That counts draws, of which many repeat an example."),
        Wrong("never", lambda big, small, b, r: {"seen": big * (1 - 0.5 / big) ** (big + small)},
              "That is how many are never drawn."),
        Wrong("left-over", lambda big, small, b, r: {"twice": (big + small + 1) % r},
              "That is what equal shares leave over. The sampler drops nothing: it fills up to "
              "equal shares with examples that another rank has."),
        Wrong("disjoint", lambda big, small, b, r: {"twice": 0},
              "Shards are disjoint only where {r} divides the number of examples."),
    ),
)  # fmt: skip
