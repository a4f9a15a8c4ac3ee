"""Ablation: change one thing at a time, over several seeds, and measure what the change gains.

    changes = one_at_a_time(baseline, lr=[0.1], hidden=[256])
    study = ablate(build, baseline, changes, "ablations/first", seeds=(0, 1, 2), epochs=10)
    print(study)                      # the table, with intervals and verdicts

The split stays fixed: every run's record holds a hash of its data, and runs on different data are
not compared. Seeds are paired: a change is judged by how far it moves the metric *with the same
seed*, which removes the luck that both runs share. Every finished run is saved in its own file, so
an ablation that was killed continues where it stopped.

Source: Lecture 3, "Ablation"; ledger N23, T27.
"""

from course.analysis.ablation.comparable import NotComparableError
from course.analysis.ablation.files import AblationRun, read_one
from course.analysis.ablation.plan import BASELINE, Protocol, one_at_a_time
from course.analysis.ablation.run import ablate
from course.analysis.ablation.table import Ablation, read_ablation
from course.analysis.ablation.verdicts import LEVEL, Row, paired_interval

__all__ = [
    "BASELINE",
    "LEVEL",
    "Ablation",
    "AblationRun",
    "NotComparableError",
    "Protocol",
    "Row",
    "ablate",
    "one_at_a_time",
    "paired_interval",
    "read_ablation",
    "read_one",
]
