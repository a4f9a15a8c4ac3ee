"""03i.epoch-time: how long an epoch takes, with workers, and with a faster step."""

from math import ceil

from autograde.exercise import Part, Wrong
from autograde.kinds import Number
from course.analysis.overlap import seconds_per_batch as pace


def inputs(draw):  # the step sets the pace; once it is faster, the loader does
    w, f, s = draw.integer(3, 6), draw.integer(3, 5), draw.integer(12, 30)
    m = w * s * draw.integer(45, 80) // 100
    return {"n": draw.integer(400, 1900), "m": m, "s": s, "w": w, "f": f}


def epochs(n, m, s, w, f):
    return {"serial": n * pace(m, s, 0) / 1000, "workers": n * pace(m, s, w) / 1000,
            "faster": n * pace(m, s / f, w) / 1000, "enough": ceil(m * f / s)}  # fmt: skip


EXERCISE = Number(
    id="03i.epoch-time", title="how long an epoch takes", minutes=6, difficulty=2,
    source='Lecture 3, "Practice problems", P2', ledger=("X04", "T08", "T31"), inputs=inputs,
    hints=("Without workers one thing happens after the other. With them, what happens meanwhile?",
           "Workers make batches side by side: how many ms apart are finished batches then?",
           "With workers, a batch costs the larger of (making time / workers) and (step time)."),
    question="{n:,} batches per epoch. Making one takes {m} ms in one process, and the training "
    "step takes {s} ms. {w} workers, with enough cores, make batches while the step runs; ignore "
    "start-up and copies. Later the step becomes {f} times as fast.", read=("T08", "X04"),
    answer=epochs, units={"serial": "s", "workers": "s", "faster": "s"}, parts=(
        Part("serial", "an epoch without workers", points=0.5),
        Part("workers", "an epoch with the workers", points=1),
        Part("faster", "an epoch with the workers and the faster step", points=1),
        Part("enough", "the fewest workers with which the faster step never waits", points=1)),
    wrong=(
        Wrong("added-up", lambda n, m, s, w, f: {"workers": n * (m / w + s) / 1000, "faster":
              n * (m / w + s / f) / 1000}, "That adds the step; here both run at once."),
        Wrong("loader-only", lambda n, m, s, w, f: {"serial": n * m / 1000, "workers":
              n * m / w / 1000}, "That is only making batches; the step is not hidden here."),
        Wrong("step-only", lambda n, m, s, w, f: {"serial": n * s / 1000, "faster":
              n * s / f / 1000}, "That is only the steps; here they wait for batches."),
        Wrong("one-worker", lambda n, m, s, w, f: {"workers": n * m / 1000, "faster":
              n * m / 1000}, "That is the pace of one worker; {w} make batches side by side."),
        Wrong("all-divided", lambda n, m, s, w, f: {"workers": n * (m + s) / w / 1000, "faster":
              n * (m + s / f) / w / 1000}, "That divides the step by {w} too. The workers make "
              "batches, but only one model trains."),
        Wrong("as-before", lambda n, m, s, w, f: {"faster": n * pace(m, s, w) / 1000},
              "That is the time before the step became faster."),
        Wrong("without-workers", lambda n, m, s, w, f: {"workers": n * (m + s) / 1000, "faster":
              n * (m + s / f) / 1000}, "That is without workers: here {w} of them make batches "
              "while the step runs."),
        Wrong("in-ms", lambda n, m, s, w, f: {key: 1000 * value for key, value in
              epochs(n, m, s, w, f).items() if key != "enough"},
              "That is in ms; give seconds."),
        Wrong("slow-step", lambda n, m, s, w, f: {"enough": ceil(m / s)},
              "That is enough for the old step. The faster one needs a batch every {s}/{f} ms."),
        Wrong("one-less", lambda n, m, s, w, f: {"enough": ceil(m * f / s) - 1},
              "That is one worker too few, so the step waits. Round up."),
        Wrong("one-more", lambda n, m, s, w, f: {"enough": ceil(m * f / s) + 1},
              "With one worker fewer the step would still never wait.")),
)  # fmt: skip
