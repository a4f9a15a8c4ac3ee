"""Mutants that no check can kill, since they do what the right answer does; and why."""

import re

TRAINING = (
    r"01c\.one-update|03a\.(accumulate|evaluate|train-one-epoch)"
    r"|03b\.(overfit-batch|plateau|early-freeze)"
)
BOOKKEEPING = (
    r"total|count|num_examples|losses|loss, correct|sizes|lrs|history|val|answers|queue|error"
    r"|share|correct|targets = torch\.cat|update|inputs, targets = loader"
)
EQUIVALENT: tuple[tuple[str, str, str], ...] = (
    (".*", r"strict= dropped|True to False in `.*strict=True", "the lists are of one length"),
    (".*", r"in `.*zero_grad\(set_to_none=", "cleared is cleared, to None or to zeros"),
    (".*", r"device= dropped", "everything is on the CPU here"),
    (".*", rf"`({BOOKKEEPING})\b.* one line earlier", "it needs nothing of the line above"),
    (
        TRAINING,
        r"`((optimizer|model)\.zero_grad\(|loss = |for parameter in model).* one line earlier",
        "clearing has three legal places: before forward, before backward, after the step",
    ),
    (r"03a\.train-one-epoch", r"`model\.train\(\)` one line", "above it stands a docstring"),
    (
        r"01c\.one-update",
        r"`(outputs = model|lr =|rates|report|norm =|optimizer\.step|scheduler\.step).* one line"
        r"|on_both_sides: `optimizer\.zero_grad\(\)` (dropped|one line)",
        "it changes nothing that the line above reads; what is cleared last is cleared again",
    ),
    (
        r"01c\.check-workspace",
        r"`(from itertools|def is_older|def judged|result =|installed =|older =).* one line earlier"
        r"|Lt to LtE in `return int|0 to (-1|1) in `parts = \[\*map|1000 to (999|1001)",
        "it needs nothing of the line above; equal numbers never get there; the last zero fills up "
        "what no version lacks, and any base above its numbers will do",
    ),
    (
        r"01c\.step-by-hand",
        r"`(bias|grad_b|joined)\b.* one line earlier",
        "weight and bias move apart from each other",
    ),
    (
        r"03a\.train-one-epoch|03a\.accumulate",
        r"[01] to (-1|0) in `.*(targets\.shape\[0\]|len\(batch\[1\]\))",
        "targets have one dimension, and as many rows as inputs",
    ),
    (
        r"03a\.accumulate",
        r"_accumulate: `if clear_inside:` dropped|_accumulate: `optimizer\.zero_grad\(\)` dropped",
        "the branch of a wrong answer, never entered by a right one",
    ),
    (
        r"03a\.accumulate",
        r"by_hand: `(optimizer\.zero_grad\(\)` dropped|for parameter, grad in zip)",
        "every .grad is set before the step, and may be left after it",
    ),
    (
        r"01b\.relu",
        r"`def backward\(grad_output\):` one line",
        "a function may be defined before the array that it looks at",
    ),
    (
        r"01b\.task-loss",
        r"`(targets|column|criterion) = .* one line earlier|`if task == 'one of many':` dropped"
        r"|`if task == 'a number':` one line earlier",
        "cross-entropy takes one-hot floats as well, so that branch may see either",
    ),
    (r"01b\.task-loss", r"0 to -1 in .*outputs\[:, 0\]", "there is one column"),
    (
        r"01b\.(task-loss|cross-entropy)",
        r"dim= dropped in .*log_softmax",
        "torch's old default is the last dimension of two",
    ),
    (
        r"01b\.cross-entropy",
        r"`(if weight is None|spread|log_p|w|q|divisor|safe|rows)\b.* one line earlier",
        "it needs nothing of the line above",
    ),
    (
        r"01b\.cross-entropy",
        r"dtype= dropped in .*ones|0 to -1 in `(hit = -log_p\.gather|log_p = row)",
        "float32 times float64 is float64, and there is one dimension or one column",
    ),
    (
        r"01b\.cross-entropy",
        r"dim= dropped in `spread = -\(log_p|in `safe\[mask == 0\]",
        "the sum over examples follows, and any class will do where the mask is 0",
    ),
    (
        r"03d\.recompute",
        r"`(class Twice|@staticmethod|ctx\.|outputs\.backward|def |random, packed|after =|named ="
        r"|names, values).* one line earlier|devices= dropped|in `return len\(made\) - 1`",
        "definitions have no order here; there is one device; of the second run nobody unpacks",
    ),
    (r"03a\.clip", r"Gt to GtE in `if norm > max_norm", "at the ceiling the factor is 1"),
    (r"03a\.clip", r"Add to Sub in .*1e-06", "within the tolerance, and 0 times anything is 0"),
    (
        r"03c\.collate",
        r"one line earlier|0 to -1 in .*sequences\[0\]|dtype= dropped in .*(targets|missing)",
        "lines that need nothing of each other; inner shapes are alike; ints are long, and cat "
        "takes the wider dtype",
    ),
    (
        r"03c\.loaders",
        r"(in_order|train|sampler) = .* one line earlier|(Add to Sub|17 to 1\d) in .*seed \+ 17",
        "lines that need nothing of each other; any generator that depends on the seed will do",
    ),
    (
        r"04a\.adam",
        r"(plain|with_setdefault|with_running_products): .* one line earlier",
        "the count, the two averages and their shares need nothing of each other",
    ),
    (r"03b\.baseline", r"in `label, _ = Counter", "the first of one, and of more, is the same"),
    (
        r"03b\.early-freeze",
        r"`for .* in loader:` one line earlier|0 to 1 in `if update % len",
        "the rate is the same before and after the batches of its epoch",
    ),
    (r"03b\.early-freeze", r"0 to -1 in `lrs", "where rates are compared there is one group"),
    (r"03b\.overfit-batch", r"and_max: `loss\.backward\(\)` one line", "it swaps with a note"),
    (r"03b\.inspect-batch", r"`if .* one line earlier", "the order of the names is free"),
    (r"03b\.inspect-batch", r"0 to -1 in `if .*(size\(0\)|shape\[0\])", "targets are 1-d"),
    (r"03b\.next-intervention", r"Gt to GtE|in `best, most", "no two buckets are equally large"),
    (
        r"03b\.plateau",
        r"1 to 0 in `right = logits\.gather",
        "the mean over all pairs of a row and a column is that of the differences",
    ),
    (
        r"03b\.split-by-group",
        r"GtE to Gt|Lt to LtE|dtype= dropped|0 to -1 in `(return|before)",
        "no share is met to 1e-9, and the tensors are 1-d and short",
    ),
    (
        r"03e\.calibration-error",
        r"`(edges|surplus|per_bin) = .* one line earlier|0 to -1 in `return per_bin"
        r"|dtype= dropped in `edges",
        "it needs nothing of the line above; the sums are 1-d; drawn edges are exact in float32",
    ),
    (
        r"03e\.calibration-error",
        r"Add to Sub in `sums\[place\]|0 to -1 in `place = max\(0",
        "the sums are taken by their absolute values; every confidence is above 0",
    ),
    (
        r"03e\.threshold",
        r"_points: `(scores, targets = .*|for threshold in .*)` (dropped|one line earlier)"
        r"|`(best_threshold, best_hits|hits) = .* one line earlier|0 to -1 in `for threshold"
        r"|1 to [02] in `hits = torch\.where",
        "entries of a tensor compare as floats do; scores are 1-d; what is precise enough has a "
        "hit, so any mark below 1 will do",
    ),
    (
        r"03i\.join-ranks",
        r"`(grads =|right =|for name, grad|loss, grads =).* one line earlier"
        r"|0 to (-1|1) in `.*ranks\[0\]\['grads'\]|0\.0 to -?1\.0 in `losses",
        "it needs nothing of the line above; every rank names the same parameters; the mean of no "
        "examples is multiplied by 0",
    ),
    (
        r"03i\.median-time",
        r"`times = \[\]` one line earlier|dtype= dropped in `return torch\.tensor\(readings",
        "it needs nothing of the line above; the case's eighths are exact in float32, too",
    ),
)
"""(exercise, what `tests.bench.checks` calls the mutant, the reason); the first two are regexes."""


def is_equivalent(id: str, mutant: str) -> bool:
    """Whether a mutant of an exercise's right answer is known to be right as well."""
    return any(
        re.fullmatch(exercise, id) and re.search(pattern, mutant)
        for exercise, pattern, _reason in EQUIVALENT
    )
