"""Known mistakes are refused and named at a student's first check, which asks shown parts alone.

A mistake that is refused without its name ends with failing(), however good its message is.
"""

from collections import defaultdict

import pytest

from autograde import bank
from autograde.words import message
from tests.autograde.remembering import put_to, remembered
from tests.sampling import THOROUGH, sample

IDS = list(bank.asks_for_code())
SEEDS = range(3) if THOROUGH else range(1, 2)
"""On the first one `test_bank.py` asks all parts."""
IN_A_HIDDEN_PART = {
    "01a.saliency": "needs-recording",
    "01b.cross-entropy": "weight-of-the-target zero-for-nothing either-or "
    "ignored-class-in-the-divisor ignored-are-spread smoothed-divisor spread-unweighted "
    "nan-of-its-own clamped-from-below above-the-ignored",
    "01b.linear": "zero-for-no-bias float32-only casts-to-float32 bias-of-zeros-saved",
    "01b.relu": "looks-later of-the-last-call",
    "01b.softmax": "ruled-out-left-in",
    "01b.task-loss": "squeezed shape-lost labels-squeezed",
    "01c.check-workspace": "suffix-kept suffix-counted shorter-decides",
    "02a.batch-norm": "plain-tensors frozen-parameters weight-is-a-buffer one-image-refused "
    "silent-alone silent-pixel moves-then-raises not-saved other-error constant-refused",
    "02a.dead-units": "numbered zero-left-out last-part-of-the-name without-the-model-itself",
    "02a.dropout": "mask-in-float32 detached-in-training mask-in-float64",
    "02a.initialise": "new-parameters thawed",
    "03a.clip": "zero-over-zero",
    "03a.early-stopping": "nan-skipped nan-improves nan-stops nan-raises",
    "03b.early-freeze": "not-after-the-last",
    "03b.inspect-batch": "nan-only no-minus-inf finite-sum",
    "03b.next-intervention": "unsorted-counts without-the-unknown unknown-shared-out the-second "
    "unknown-removed looks-first unknown-added",
    "03b.plateau": "cleared-after-the-step",
    "03b.split-by-group": "one-at-least",
    "03c.collate": "without-empty empty-with-a-cell squeezed",
    "03d.recompute": "random-rewound all-parameters not-detached",
    "03e.threshold": "read-from-float32 strictly-more none-is-the-top none-is-one none-raises",
    "03f.buckets": "empty-is-none",
    "03f.paired": "all-seeds-in-the-mean every-seed-of-the-baseline missing-as-zero "
    "by-sorted-place n-of-the-baseline",
    "03g.best-file": "loaded-at-the-end first-left-out later-of-equals",
    "03g.load": "not-strict missing-accepted",
    "03g.save": "new-file-only",
    "03g.stopper": "settings-too",
    "03h.best": "later-of-equals",
    "03h.clipping": "far-above-alone",
    "03i.join-ranks": "empties-removed",
    "04a.adamw": "decay-fixed state-of-the-class",
    "04a.groups": "head-by-place head-alone-skipped shared-twice only-of-modules body-first "
    "both-sides head-of-one-layer unless-one",
    "04a.warmup-cosine": "nothing-after-the-end rise-from-the-floor not-below-the-floor "
    "divides-by-no-warmup",
    "05.errors": "fails-without-mistakes",
    "05.whole": "starts-again never-told caught set-up-made-again split-drawn-again "
    "never-trained far-too-fast validates-on-training",
}
"""What a hidden part alone asks for: the statement says it, and the message of a first check that
passes says that cases of another kind come when it is graded."""


def first_check(exercise, wrong, seed):
    """What a student with the mistake is told: `named`, `refused` or `accepted`."""
    verdict = put_to(exercise, wrong.function, seed, parts="shown")
    if verdict.passed:
        return "accepted"
    known = {other.name for other in exercise.wrong if other.message}
    name = wrong.name if wrong.name in known else ""
    assert verdict.misconception in (name, ""), message(verdict, exercise)
    return "named" if verdict.misconception == name else "refused"


@pytest.mark.parametrize("id", sample(IDS, 10))
def test_a_known_mistake_is_named_at_the_first_check(id):
    exercise, told = remembered(id), defaultdict(set)
    for seed in SEEDS:
        for wrong in exercise.wrong:
            told[wrong.name].add(first_check(exercise, wrong, seed))
    later = IN_A_HIDDEN_PART.get(id, "").split()
    for name, answers in told.items():
        assert "accepted" not in answers or name in later, name
        assert "refused" not in answers, name
    if THOROUGH:
        assert [name for name in later if "accepted" not in told[name]] == [], "listed for nothing"


def test_what_is_excepted_is_in_the_bank():
    for id, names in IN_A_HIDDEN_PART.items():
        exercise = bank.load(id)
        assert set(names.split()) <= {wrong.name for wrong in exercise.wrong}, id
        assert any(part.hidden for part in exercise.parts), id
