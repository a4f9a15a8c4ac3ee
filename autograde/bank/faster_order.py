"""03i.order: in which order a slow run is made faster."""

from autograde.kinds import Order, Rule, Step

EXERCISE = Order(
    id="03i.order", title="what to make faster first",
    source='Engineering module, §5; Lecture 3, "Practice problems", P2', ledger=("T30", "X04"),
    minutes=4, difficulty=1, worth=2, read=("T30", "course.data.is_waiting"),
    hints=(
        "What must you know before you change anything, and what must be right before that?",
        "Remove what stops the device from working before you make it work faster.",
        "Correct, measured, fed, faster on one device, the metric compared, then more devices.",
    ),
    question="A run on one GPU is too slow: the GPU waits for batches, and it is slow even when it "
    "has them. BF16 and a second GPU are available. Put the steps in order; every order that makes "
    "sense is accepted.",
    steps=(
        Step("right", "Overfit one batch, and repeat the run with the same seed, on one device."),
        Step("measure", "Time the loader alone, the step alone, and both together in the loop."),
        Step("loader", "Add workers until the GPU no longer waits."),
        Step("half", "Switch on BF16 autocast in the step."),
        Step("metric", "Compare the BF16 run's metric with the plain run's, over several seeds."),
        Step("devices", "Run it on both GPUs."),
    ),
    rules=(
        Rule("right", "measure", "A wrong run does different work from a correct one, so its times "
             "say little. First get it right."),
        Rule("measure", "loader", "The measurement tells you which side is the bottleneck, so it "
             "comes before the change."),
        Rule("loader", "half", "While the GPU waits for batches, a faster step only waits longer."),
        Rule("half", "metric", "There is no BF16 run to compare before BF16 is on."),
        Rule("metric", "devices", "Two devices also change the batch and the order of sums. Before "
             "that, settle whether BF16 keeps the metric."),
        Rule("loader", "devices", "Two GPUs need batches twice as fast, so the loader comes "
                                  "first."),
    ),
)  # fmt: skip
