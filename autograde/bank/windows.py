"""03a.windows: how many micro-batches and updates a run makes."""

from math import ceil

from autograde.exercise import Part, Wrong
from autograde.kinds import Number


def across_and_rounded_down(n, b, k, e):
    """All micro-batches of the run over K; nothing where that is another mistake's number."""
    all_of_them, per_epoch = e * ceil(n / b), ceil(n / b) // k
    updates = all_of_them // k
    others = (all_of_them / k, e * per_epoch)  # `across-epochs`, `rest-left-out`
    return {} if updates in others else {"updates": updates}


EXERCISE = Number(
    id="03a.windows", title="count the updates of a run", minutes=5, difficulty=1,
    source='Chapter 3, "Basic vocabulary", and its quiz', ledger=("N03", "N05", "T12"),
    read=("N01", "N03"),
    hints=("How many micro-batches does one epoch have? A short last one counts, too.",
        "An update takes K micro-batches. What happens to those left over at the end of an epoch?",
        "Per epoch: ceil(examples / batch size) micro-batches, in ceil(that / K) updates."),
    question="A run has {n:,} examples in micro-batches of {b}, K = {k} micro-batches per update, "
    "and {e} epochs. The last micro-batch of an epoch may be short; so may its last update, which "
    "takes what is left.",
    inputs={"n": (2_000, 9_999), "b": [24, 32, 48, 64], "k": (3, 8), "e": (3, 12)},
    answer=lambda n, b, k, e: {"batches": ceil(n / b), "updates": e * ceil(ceil(n / b) / k)},
    parts=(
        Part("batches", "micro-batches per epoch", points=1),
        Part("updates", "updates in the whole run", points=2),
    ),
    wrong=(
        Wrong("rest-left-out",
              lambda n, b, k, e: {"batches": n // b, "updates": e * (ceil(n / b) // k)},
              "A micro-batch with fewer than {b} examples, or an update with fewer than {k} "
              "micro-batches, was left out. Round up."),
        Wrong("whole-updates", lambda n, b, k, e: {"batches": ceil(n / (b * k))},
              "That is the number of updates per epoch, of {k} micro-batches each."),
        Wrong("across-epochs", lambda n, b, k, e: {"updates": ceil(e * ceil(n / b) / k)},
              "That lets an update continue into the next epoch. Count those of one epoch, then "
              "multiply."),
        Wrong("across-epochs-rest-left-out", across_and_rounded_down,
              "That lets an update continue into the next epoch, and leaves out the last, short "
              "one. Count those of one epoch, rounded up, then multiply."),
        Wrong("times-k", lambda n, b, k, e: {"updates": e * ceil(n / b) * k},
              "That multiplies by K. {k} micro-batches make one update, so there are fewer."),
        Wrong("k-forgotten", lambda n, b, k, e: {"updates": e * ceil(n / b)},
              "That counts micro-batches: it takes {k} of them to make an update."),
        Wrong("epochs-mixed-up",
              lambda n, b, k, e: {"batches": e * ceil(n / b), "updates": ceil(ceil(n / b) / k)},
              "One is asked for per epoch, the other for the whole run of {e} epochs."),
        Wrong("not-rounded", lambda n, b, k, e: {  # where it is not whole by chance
            key: x for key, x in (("batches", n / b), ("updates", e * n / b / k)) if x % 1},
              "That is not rounded. A short micro-batch and a short update count as whole ones."),
    ),
)  # fmt: skip
