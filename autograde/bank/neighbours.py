"""02a.neighbours: which outputs depend on the other examples of the batch."""

from autograde.kinds import Choices, Option, Reason

EXERCISE = Choices(
    id="02a.neighbours", title="what depends on the other examples",
    source='Training-loop chapter, c4; annotated-loop essay, "Training mode"',
    ledger=("F23", "F25", "F134", "B05"), minutes=5, difficulty=2, worth=2, read=("F23", "F25"),
    hints=("Over which numbers does each layer take a mean: those of one example, or of one "
           "feature?",
        "Mode, gradient and freezing are three switches. Which of them does a BatchNorm look at?",
        "BatchNorm looks at its own mode alone: in train mode it uses the batch, whatever "
        "happens to gradients; LayerNorm and GroupNorm stay within an example in either mode."),
    question="A batch goes through a layer twice. The second time, example 7 has been replaced by "
    "another one. For which of these layers does the output for example 0 change?",
    options=(
        Option("bn-train", "BatchNorm in train mode.",
               "Its mean and variance are those of the batch, and example 7 is part "
               "of it.", right=True),
        Option("bn-no-grad", "BatchNorm in train mode, under `torch.no_grad()`.",
               "no_grad() records no graph; the mode chooses the statistics.", right=True),
        Option("bn-frozen", "BatchNorm in train mode, with weight and bias frozen by "
                            "requires_grad.",
               "Freezing stops the optimizer. The statistics are not parameters, and "
               "the mode does not change.", right=True),
        Option("bn-eval", "BatchNorm in eval mode, after an epoch in train mode.",
               "It uses its running statistics, which this batch does not change."),
        Option("layer-norm", "LayerNorm in train mode, with weight and bias trained.",
               "It normalises over the features of one example, in either mode."),
        Option("group-norm", "GroupNorm in train mode, with four groups of channels.",
               "It normalises over groups of channels of one example, in either mode."),
    ),
    reason=Reason(
        points=1,
        ask="Somebody validates a model with a BatchNorm and forgets eval(). What is wrong with "
            "the numbers, and what is wrong with the model afterwards? Answer in two sentences.",
        rubric=(
            (0.5, "The numbers depend on which examples share a batch, and on its size."),
            (0.5, "The running statistics have moved towards validation data: a leak."),
        ),
        solution="Each prediction depends on its neighbours in the batch, so another batch size "
                 "or order gives another score. The running mean and variance have moved towards "
                 "the validation data, which have thereby leaked into the model.",
    ),
)  # fmt: skip
