"""03i.path: which decisions follow from what was measured."""

from autograde.kinds import Choices, Option

EXERCISE = Choices(
    id="03i.path", title="which way to more speed",
    source="Engineering module, §5, device decision tree and execution paths",
    ledger=("S28", "T30", "T31", "F120"), minutes=6, difficulty=2, worth=3,
    read=("S28", "course.analysis.execution.advise", "F54"),
    hints=(
        "What is short here: correctness, batches, arithmetic, memory? Does the decision add to "
        "that?",
        "A path that is not short of anything gains nothing, and one on a wrong run repeats it.",
        "Memory has two parts, one that grows with the batch and one that does not. Which is full?",
    ),
    question="Six runs, what was measured of each, and what was decided next. Which decisions "
    "follow from the measurement?",
    options=(
        Option("small", "5,000 weights, a step of 0.3 ms on the CPU, a GPU is free. Decision: it "
               "stays on the CPU.", "A step of 0.3 ms is launches and Python, which a GPU does not "
               "make faster. A CPU is a valid answer.", right=True),
        Option("idle", "A step takes 14 ms on the GPU, a batch 40 ms to make, without workers. "
               "Decision: workers, then measure again.", "The GPU waits for about three quarters "
               "of the time: batches are what is short.", right=True),
        Option("micro", "A batch of 64 does not fit, one of 16 does; no BatchNorm, the rate was "
               "tuned at 64. Decision: micro-batches of 16, four to an update.", "Activations are "
               "what does not fit, and accumulation keeps the update of 64.", right=True),
        Option("more-gpus", "The run cannot overfit one batch, on one GPU. Decision: four GPUs, so "
               "that the fault shows sooner.", "Four devices repeat the fault four times, and add "
               "their own: first it has to be right on one."),
        Option("state", "Weights, gradients and Adam's state take 30 GB, the GPU has 24. Decision: "
               "smaller micro-batches.", "Smaller micro-batches save activations. Weights, "
               "gradients and state stay as they are: 30 GB."),
        Option("half", "BF16 made the step 1.8 times as fast; over five seeds accuracy fell from "
               "91.2 to 88.0 %, each time. Decision: it stays on.", "Time to a good model counts, "
               "not time per step. A path is accepted once the metric is kept."),
    ),
)  # fmt: skip
