"""03i.order: in which order a slow run is made faster."""

from autograde.kinds import Order, Rule, Step

EXERCISE = Order(
    id="03i.order", title="what to make faster first",
    source='Engineering module, §5; Lecture 3, "Practice problems", P2', ledger=("T30", "X04"),
    minutes=4, difficulty=1, worth=2, read=("T30", "course.data.is_waiting"),
    hints=(
        "What must be known before anything is changed, and what must be right before that?",
        "What stops the device from working comes before what lets it work faster.",
        "Right, measured, fed, faster on one device, the metric compared, then more devices.",
    ),
    question="A run on one GPU is too slow: the GPU waits for batches, and is slow when it has "
    "them. BF16 and a second GPU are available. Put the steps in order; every order that makes "
    "sense is accepted.",
    steps=(
        Step("right", "Overfit one batch, and repeat the run by its seed, on one device."),
        Step("measure", "Time the loader alone, the step alone, and both as a loop."),
        Step("loader", "Workers, until the GPU no longer waits."),
        Step("half", "BF16 autocast in the step."),
        Step("metric", "Compare the BF16 run's metric with the plain run's, over seeds."),
        Step("devices", "Run it on both GPUs."),
    ),
    rules=(
        Rule("right", "measure", "A run that is wrong does other work than the right one: its "
             "times say little. First it has to be right."),
        Rule("measure", "loader", "Which side is short is what the measurement says: it comes "
             "before the change."),
        Rule("loader", "half", "While the GPU waits for batches, a faster step only waits longer."),
        Rule("half", "metric", "There is no BF16 run to compare before BF16 is on."),
        Rule("metric", "devices", "Two devices change the batch and the order of sums as well. "
             "Settle whether BF16 keeps the metric before that."),
        Rule("loader", "devices", "Two GPUs ask for twice the batches: the loader comes first."),
    ),
)  # fmt: skip
