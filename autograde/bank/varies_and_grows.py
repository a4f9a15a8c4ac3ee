"""03e.varies-and-grows: a validation that scatters, and needs more memory with every batch."""

from autograde.kinds import Choice, Option

EXERCISE = Choice(
    id="03e.varies-and-grows", title="a validation that varies and grows",
    source="Engineering module, quiz 1 and quiz 4",
    ledger=("X15", "X18", "F46", "F79", "K17"),
    minutes=4, difficulty=2, worth=1, read=("F46", "F79"),
    hints=(
        "There are two symptoms. Look for the line behind each of them.",
        "What draws random numbers in a forward pass? What is still alive after a batch is done?",
        "Dropout in train mode makes the numbers vary. Each kept tensor of logits holds its graph.",
    ),
    question="One checkpoint, one validation set: three passes give 0.951, 0.957 and 0.948, and "
    "memory grows with every batch. The loop is `for inputs, targets in loader: logits = "
    "model(inputs); kept.append(logits); total += criterion(logits, targets).item() * "
    "len(targets)`. What is the smallest change that cures both?",
    options=(
        Option("mode-and-graph", "`model.eval()` before the loop, and the loop under "
               "`torch.no_grad()`.", right=True),
        Option("mode-alone", "`model.eval()` before the loop.",
               "That stops the scatter. The logits that are kept still hold a graph each, in eval "
               "mode as well, so memory goes on growing."),
        Option("graph-alone", "The loop under `torch.no_grad()`.",
               "That stops the growth. Dropout is still on and draws again in each pass: no_grad() "
               "does not ask layers for anything."),
        Option("seed", "A seed before each pass, and `del logits` at the end of the loop's body.",
               "A seed makes every pass wrong in the same way: dropout is still on. And `del` "
               "takes away a name, while the list still holds the tensor and its graph."),
        Option("average", "The mean of ten passes, and a smaller batch.",
               "A mean of passes with dropout is a steadier number for another model than the one "
               "that will be used. A smaller batch grows just as far, in smaller steps."),
        Option("loss", "`total += criterion(...).detach()` in place of `.item()`.",
               "`.item()` holds no graph already: it is a plain number. What holds one is the list "
               "of logits."),
    ),
)  # fmt: skip
