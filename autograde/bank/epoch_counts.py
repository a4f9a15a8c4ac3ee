"""03c.counts: the last batch, and the updates by two loops that treat an epoch's rest otherwise."""

from math import ceil

from autograde.exercise import Part, Wrong
from autograde.kinds import Number

EXERCISE = Number(
    id="03c.counts", title="an epoch, counted", minutes=8, difficulty=2,
    source='Training-loop chapter, c0 and c9, quizzes',
    ledger=("N01", "N02", "N03", "N04", "N05", "X29", "X36", "T12", "T13", "K08"),
    read=("N01", "N05", "course.data.arithmetic.training_arithmetic"),
    hints=("Draw an epoch's micro-batches as a row: M - 1 full ones and a last one.",
           "Divide the row into groups of K. Loop B does not step for a group that is not full.",
           "M = ceil(n / b); A steps ceil(M / K) times per epoch, B floor(M / K) times."),
    question="A run has {n:,} examples in micro-batches of {b}, K = {k} micro-batches per update, "
    "and {e} epochs. Loop A also steps at the end of an epoch, with whatever is left. Loop B steps "
    "only when `(i + 1) % K == 0`, and its i starts at 0 in each epoch.",
    inputs={"n": (3_000, 9_999), "b": [24, 32, 48, 64], "k": (3, 8), "e": (3, 12)},
    answer=lambda n, b, k, e: {"all": ceil(n / b), "last": (n - 1) % b + 1,
                               "a": e * ceil(ceil(n / b) / k), "b": e * (ceil(n / b) // k),
                               "one": e * n},
    parts=(Part("all", "micro-batches in an epoch", points=0.5),
           Part("last", "examples in an epoch's last micro-batch", points=0.5),
           Part("a", "updates by loop A in the run", points=1),
           Part("b", "updates by loop B in the run", points=1),
           Part("one", "updates in a run of the same epochs with one example per update "
                "(stochastic)", points=0.5)),
    wrong=(
        Wrong("missing", lambda n, b, k, e: {"last": b - ((n - 1) % b + 1)},
              "That is how many it is short of being full. How many does it hold?"),
        Wrong("full", lambda n, b, k, e: {"last": b},
              "The others hold {b}. The last one gets what they leave of the {n:,}."),
        Wrong("across-epochs", lambda n, b, k, e: {
            "a": ceil(e * ceil(n / b) / k), "b": e * ceil(n / b) // k},
              "That lets groups of {k} continue across the ends of epochs. Each epoch starts a new "
              "group."),
        Wrong("other-loop", lambda n, b, k, e: {
            "a": e * (ceil(n / b) // k), "b": e * ceil(ceil(n / b) / k)},
              "That is the other loop's count. Which one steps for a group that is not full?"),
        Wrong("one-epoch", lambda n, b, k, e: {
            "a": ceil(ceil(n / b) / k), "b": ceil(n / b) // k, "one": n},
              "That is one epoch's count. The run has {e}."),
        Wrong("k-forgotten", lambda n, b, k, e: {"a": e * ceil(n / b), "b": e * ceil(n / b)},
              "That counts micro-batches; it takes {k} of them to make an update."),
        Wrong("of-the-last-group", lambda n, b, k, e: {"last": (ceil(n / b) - 1) % k + 1},
              "That is how many micro-batches the last group has. How many examples does the last "
              "micro-batch hold?"),
        Wrong("rest-of-the-group", lambda n, b, k, e: {"last": (n - 1) % (b * k) + 1},
              "That is how many examples the last group of up to {k} micro-batches holds. How many "
              "of them are in the last micro-batch?"),
        Wrong("short-left-out", lambda n, b, k, e: {"a": ceil(e * (n // b) / k)},
              "That leaves out each epoch's short last micro-batch, which loop A uses, and lets "
              "groups of {k} continue across the ends of epochs."),
        Wrong("whole-micro-batches", lambda n, b, k, e: {
            "all": n // b},
              "That leaves out each epoch's short last micro-batch. Nothing here drops it."),
        Wrong("whole-run", lambda n, b, k, e: {"all": e * ceil(n / b)},
              "Those are the micro-batches of the whole run of {e} epochs. How many has one?"),
        Wrong("micro-batches", lambda n, b, k, e: {"one": e * ceil(n / b)},
              "That counts micro-batches of {b}. Here every single example makes an update."),
        Wrong("one-of-k", lambda n, b, k, e: {"one": e * ceil(n / k)},
              "That divides the {n:,} examples by K = {k}. Here every single example makes an "
              "update, so nothing is divided."),
        Wrong("full-batch", lambda n, b, k, e: {"one": e},
              "That is a full-batch run, which updates once per epoch.")))  # fmt: skip
