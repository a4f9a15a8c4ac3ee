"""03c.drawn: what weighted and distributed samplers draw, skip and repeat."""

from autograde.exercise import Part, Wrong
from autograde.kinds import Number

EXERCISE = Number(
    id="03c.drawn", title="drawn, skipped and repeated", minutes=8, difficulty=2,
    source='Training-loop chapter, c2',
    ledger=("N07", "N52", "T10", "X31", "C18", "F87", "F88"),
    read=("N07", "N52", "course.data.count_draws"),
    hints=("A plain batch is a random sample: on average, each class keeps its share.",
           "Weights of 1 / class size give both classes the same total weight. How likely is one "
           "draw to miss a given example, and how likely are all draws to miss it?",
           "One draw picks a given majority example with probability 0.5 / its class size; each "
           "rank gets ceil(items / ranks)."),
    question="Two classes have {big} and {small} examples. One loader shuffles them into batches "
    "of {b}. A weighted sampler, with weights 1 / class size, draws {big} + {small} examples per "
    "epoch with replacement. A DistributedSampler with its defaults distributes {big} + {small} + "
    "1 examples over {r} ranks.",
    inputs={"big": (500, 950), "small": (40, 200), "b": [32, 48, 64], "r": [7, 9, 11, 13]},
    answer=lambda big, small, b, r: {
        "plain": b * small / (big + small), "seen": big * (1 - (1 - 0.5 / big) ** (big + small)),
        "twice": -(big + small + 1) % r},
    parts=(Part("plain", "expected minority examples in a shuffled batch", points=0.5),
           Part("seen", "expected majority examples drawn in a weighted epoch, each counted once",
                points=1),
           Part("twice", "examples that are given to two ranks in an epoch", points=1)),
    wrong=(
        Wrong("balanced", lambda big, small, b, r: {"plain": b / 2},
              "That is the weighted sampler's half. A shuffled batch holds each class's share."),
        Wrong("of-the-majority", lambda big, small, b, r: {"plain": b * small / big},
              "That divides by the majority alone. The share is out of all {big} + {small}."),
        Wrong("a-share", lambda big, small, b, r: {"plain": small / (big + small)},
              "That is the minority's share. A batch has {b} examples."),
        Wrong("same-chance", lambda big, small, b, r: {
              "seen": big * (1 - (1 - 1 / (big + small)) ** (big + small))},
              "That gives every example the same chance. Half of the weight is on {big} examples: "
              "a draw picks a given one of them with probability 0.5 / {big}."),
        Wrong("of-the-minority", lambda big, small, b, r: {
              "seen": small * (1 - (1 - 0.5 / small) ** (big + small))},
              "That is right for the minority. The question is about the {big} of the majority."),
        Wrong("fewer-draws", lambda big, small, b, r: {"seen": big * (1 - (1 - 0.5 / big) ** big)},
              "That assumes as many draws as the majority has examples. An epoch has more."),
        Wrong("per-rank", lambda big, small, b, r: {"twice": -(-(big + small + 1) // r)},
              "That is what each rank gets. How many do all get together, and how many are there?"),
        Wrong("one-left-out", lambda big, small, b, r: {"twice": -(big + small) % r},
              "One example is missing: there is one more than both classes have together."),
        Wrong("draws", lambda big, small, b, r: {"seen": (big + small) / 2},
              "That counts draws, and many of them repeat an example."),
        Wrong("never", lambda big, small, b, r: {"seen": big * (1 - 0.5 / big) ** (big + small)},
              "That is how many are never drawn."),
        Wrong("left-over", lambda big, small, b, r: {"twice": (big + small + 1) % r},
              "That is the remainder after equal shares. The sampler drops nothing: it fills the "
              "shares up to equal size with examples that another rank has, too."),
        Wrong("disjoint", lambda big, small, b, r: {"twice": 0},
              "Shards are disjoint only if {r} divides the number of examples.")))  # fmt: skip
