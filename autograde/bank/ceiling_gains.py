"""03f.ceiling: what perfect stages of a pipeline would bring, from counts."""

from autograde.exercise import Part, Wrong
from autograde.kinds import Number

EXERCISE = Number(
    id="03f.ceiling", title="the ceiling of each stage", minutes=8, difficulty=2,
    source='Lecture 3, "Ceiling analysis — for pipelines"', ledger=("N25", "S20"),
    read=("N25", "course.analysis.ceiling_analysis"),
    hints=("A point is one percent of all codes. Which two counts do you compare each time?",
           "Alone: perfect minus now. On top of another stage: both perfect minus only the other "
           "one perfect.",
           "Beyond the sum = (both perfect minus now) minus each of the two single gains."),
    question="A pipeline of detector, reader and corrector reads {now} of {n} codes correctly. "
    "With only the detector perfect it reads {d}, with only the reader perfect {r}, with only the "
    "corrector perfect {c}; with detector and reader perfect {dr}, and with all three perfect {n}.",
    inputs={"n": [400, 500, 800], "now": (150, 199), "d": (200, 250), "r": (200, 250),
            "c": (201, 215), "dr": (262, 290)},
    answer=lambda n, now, d, r, c, dr: {"largest": 100 * (max(d, r, c) - now) / n,
        "second": 100 * (dr - d) / n, "both": 100 * (dr - d - r + now) / n},
    units={"largest": "points", "second": "points", "both": "points"},
    parts=(Part("largest", "gain of the best single stage, made perfect", points=1),
           Part("second", "gain of a perfect reader once the detector is perfect", points=1),
           Part("both", "detector and reader both perfect: gain beyond the sum of their single "
                        "gains (may be negative)", points=1)),
    wrong=(
        Wrong("codes", lambda n, now, d, r, c, dr: {"largest": float(max(d, r, c) - now),
                                                    "second": float(dr - d),
                                                    "both": float(dr - d - r + now)},
              "That is a number of codes. A point of accuracy is one percent of all {n} codes."),
        Wrong("of-the-mistakes", lambda n, now, d, r, c, dr: {
            "largest": 100 * (max(d, r, c) - now) / (n - now), "second": 100 * (dr - d) / (n - d)},
              "That is relative to the codes that were read wrongly. Accuracy is relative to all "
              "{n}."),
        Wrong("of-those-read", lambda n, now, d, r, c, dr: {
            "largest": 100 * (max(d, r, c) - now) / now, "second": 100 * (dr - d) / d,
            "both": 100 * (dr - d - r + now) / now},
              "That is relative to the codes that were already read correctly. A point is one "
              "percent of all {n}."),
        Wrong("shares", lambda n, now, d, r, c, dr: {"largest": (max(d, r, c) - now) / n,
              "second": (dr - d) / n, "both": (dr - d - r + now) / n},
              "That is a share. Give points: 100 times as many."),
        Wrong("still-missing", lambda n, now, d, r, c, dr: {
            "largest": 100 * (n - max(d, r, c)) / n},
              "That is what all three perfect gain beyond the best single stage. Give what that "
              "stage gains over {now}."),
        Wrong("accuracy", lambda n, now, d, r, c, dr: {
            "largest": 100 * max(d, r, c) / n, "second": 100 * dr / n, "both": 100 * dr / n},
              "That is the accuracy reached. Give the gain."),
        Wrong("other-sign", lambda n, now, d, r, c, dr: {"both": 100 * (d + r - now - dr) / n},
              "That has the wrong sign: it is what both gain together, minus the sum of their "
              "single gains."),
        Wrong("from-now", lambda n, now, d, r, c, dr: {"second": 100 * (dr - now) / n},
              "That is what both gain together, but the perfect detector alone already reaches "
              "{d}."),
        Wrong("singles-not-subtracted", lambda n, now, d, r, c, dr: {
            "both": 100 * (dr - now) / n},
              "That is what both gain together. Subtract the sum of the two single gains."),
        Wrong("reader-not-subtracted", lambda n, now, d, r, c, dr: {"both": 100 * (dr - d) / n},
              "Subtract the reader's single gain too, not just the detector's."),
        Wrong("detector-not-subtracted", lambda n, now, d, r, c, dr: {"both": 100 * (dr - r) / n},
              "Subtract the detector's single gain too, not just the reader's."),
        Wrong("other-way-round", lambda n, now, d, r, c, dr: {"second": 100 * (dr - r) / n},
              "That is the other way round: what the detector adds to a perfect reader."),
        Wrong("reader-alone", lambda n, now, d, r, c, dr: {"second": 100 * (r - now) / n},
              "That is the gain of a perfect reader alone, with the detector as it is now."),
    ),
)  # fmt: skip
