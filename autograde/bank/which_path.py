"""03i.path: which decisions follow from what was measured."""

from autograde.kinds import Choices, Option

EXERCISE = Choices(
    id="03i.path", title="which path to more speed",
    source="Engineering module, §5, device decision tree and execution paths",
    ledger=("S28", "T30", "T31", "F120"), minutes=6, difficulty=2, worth=3,
    read=("S28", "course.analysis.execution.advise", "F54"),
    hints=(
        "What is the bottleneck here: correctness, batches, arithmetic or memory? Does the "
        "decision relieve it?",
        "A path that does not relieve the bottleneck gains nothing, and a path for a wrong run "
        "only repeats the error.",
        "Memory has two parts: one grows with the batch, the other does not. Which part is too "
        "large?",
    ),
    question="Here are six runs, each with a measurement and the decision that was taken. Which "
    "decisions follow from the measurement?",
    options=(
        Option("small", "5,000 weights, a step of 0.3 ms on the CPU, and a free GPU. Decision: "
               "stay on the CPU.", "A step of 0.3 ms is mostly launches and Python, which a GPU "
               "does not make faster. A CPU is a valid answer.", right=True),
        Option("idle", "Without workers, a step takes 14 ms on the GPU and a batch takes 40 ms to "
               "make. Decision: use workers, then measure "
               "again.", "The GPU waits for about three quarters of the time: the bottleneck is "
               "making batches.", right=True),
        Option("micro", "A batch of 64 does not fit, but one of 16 does; there is no BatchNorm, "
               "and the learning rate was tuned at 64. Decision: micro-batches of 16, four to an "
               "update.", "It is the activations that do not fit, and accumulation keeps the "
               "update of 64.", right=True),
        Option("more-gpus", "On one GPU the run cannot overfit one batch. Decision: use four GPUs, "
               "so that the fault shows "
               "sooner.", "Four devices repeat the fault four times and may add their own. First "
               "get it right on one."),
        Option("state", "Weights, gradients and Adam's state take 30 GB, but the GPU has 24. "
               "Decision: use smaller "
               "micro-batches.", "Smaller micro-batches save memory for activations. Weights, "
               "gradients and state still take 30 GB."),
        Option("half", "BF16 made the step 1.8 times as fast; accuracy fell from 91.2 to 88.0 % on "
               "average, and with every one of five seeds. Decision: keep it "
               "on.", "What counts is the time to a good model, not the time per step. Accept a "
               "path only if the metric is kept."),
    ),
)  # fmt: skip
