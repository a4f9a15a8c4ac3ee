"""02a.neighbours: which outputs depend on the other examples of the batch."""

from autograde.kinds import Choices, Option, Reason

EXERCISE = Choices(
    id="02a.neighbours", title="what depends on the neighbours",
    source='Training-loop chapter, c4; annotated-loop essay, "Training mode"',
    ledger=("F23", "F25", "F134", "B05"), minutes=5, difficulty=2, worth=2, read=("F23", "F25"),
    hints=("Over which numbers does each one take a mean: of one example, or of one feature?",
        "Mode, gradient and freezing are three switches. Which of them does a BatchNorm ask?",
        "BatchNorm asks its own mode alone: in train mode it looks at the batch, whatever happens "
        "to gradients; LayerNorm and GroupNorm stay within an example in either mode."),
    question="A batch goes through a layer twice. The second time, example 7 has been replaced by "
    "another one. For which of these layers does the output for example 0 change?",
    options=(
        Option("bn-train", "BatchNorm in train mode.",
               "Its mean and variance are the batch's, of which example 7 is a part.", right=True),
        Option("bn-no-grad", "BatchNorm in train mode, under `torch.no_grad()`.",
               "no_grad() records no graph; the mode chooses the statistics.", right=True),
        Option("bn-frozen", "BatchNorm in train mode, weight and bias frozen by requires_grad.",
               "Freezing stops the optimizer. The statistics are not parameters, and the mode is "
               "as it was.", right=True),
        Option("bn-eval", "BatchNorm in eval mode.",
               "It uses what it remembers, which this batch does not change."),
        Option("layer-norm", "LayerNorm in train mode.",
               "It goes over the features of one example, in either mode."),
        Option("group-norm", "GroupNorm in train mode.",
               "It goes over groups of channels of one example, in either mode."),
    ),
    reason=Reason(
        points=1,
        ask="Somebody validates without eval(), with a BatchNorm in the model. What is wrong with "
        "the numbers, and what with the model afterwards? Two sentences.",
        rubric=(
            (0.5, "The numbers depend on which examples share a batch, and on its size."),
            (0.5, "The running statistics have moved towards validation data: a leak."),
        ),
        solution="Each prediction depends on its neighbours in the batch, so that another batch "
        "size or order gives another score. The running mean and variance have moved towards the "
        "validation data, which have thereby leaked into the model.",
    ),
)  # fmt: skip
