"""03d.faster-worse: throughput has risen, the metric has fallen."""

from autograde.kinds import Choice, Option, Reason

EXERCISE = Choice(
    id="03d.faster-worse", title="faster, and worse",
    source="Engineering module, quiz 7", ledger=("X21", "F118", "F55"),
    minutes=6, difficulty=2, worth=1, read=("F118", "F113", "course.engine.precision"),
    hints=(
        "What was the purpose of the run: examples per second, or a model?",
        "A change that costs quality is not yet a success, and not yet a failure: its cause is "
        "unknown.",
        "Which option names the deciding measure, and a test that finds the cause?",
    ),
    question="A team switches from FP32 to 16 bits. Examples per second rise by 70 %. After the "
    "same number of updates, the validation accuracy is 91.3 % instead of 93.9 %, and 2 to 3 "
    "points lower on each of five seeds. What do you do?",
    options=(
        Option("quality-first", "Keep FP32 as the reference, and change one thing at a time in the "
               "16-bit run until the gap is explained.", right=True),
        Option("accept", "Adopt it: 70 % more examples per second are worth 2 to 3 points, which a "
               "longer run will win back.",
               "Nobody has asked why the points were lost, or whether a longer run would recover "
               "them. Correct mixed precision is within the noise of FP32."),
        Option("noise", "Ignore the gap: with a different seed, accuracies change by 2 to 3 points "
               "in either precision.",
               "It is 2 to 3 points lower on each of five seeds; noise would go both ways."),
        Option("reject", "Give up 16 bits for good and stay with FP32: fewer bits cost quality.",
               "Weights or a loss in 16 bits, or a missing scaler, would each do that, and each "
               "can be fixed. The cause is not known yet."),
        Option("train-loss", "Look at the training loss of the 16-bit runs: if it falls as "
               "fast as it does in FP32, everything is fine.",
               "It falls in worse runs, too. The validation metric is what the run is for."),
    ),
    reason=Reason(points=2, ask="Which two comparisons would you show before the team adopts 16 "
        "bits, and what in each would make you say no?", rubric=(
            (1, "the metric after the same number of updates, over seeds; no, if the gap exceeds "
                "their spread"),
            (1, "the metric at equal time, or time to a metric; no, if that is not better")),
        solution="The validation metric after the same number of updates, over several seeds: no, "
        "if the gap is larger than their spread. And the time to the metric we need: if 16 bits do "
        "not get there sooner, more examples per second are worth nothing."),
)  # fmt: skip
