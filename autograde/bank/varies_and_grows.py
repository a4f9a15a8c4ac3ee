"""03e.varies-and-grows: a validation that scatters, and needs more memory with every batch."""

from autograde.kinds import Choice, Option

EXERCISE = Choice(
    id="03e.varies-and-grows", title="a validation whose score varies and whose memory grows",
    source="Engineering module, quiz 1 and quiz 4",
    ledger=("X15", "X18", "F46", "F79", "K17"),
    minutes=4, difficulty=2, worth=1, read=("F46", "F79"),
    hints=(
        "There are two symptoms. Look for the line that causes each of them.",
        "What draws random numbers in a forward pass? What is still in memory after a batch is "
        "done?",
        "Dropout in train mode makes the numbers vary. Each kept tensor of logits holds its graph.",
    ),
    question="A network with dropout is validated. With one checkpoint and one validation set, "
    "three passes give 0.951, 0.957 and 0.948, and each batch adds far more memory than its "
    "logits take. The loop is `for inputs, targets in loader: logits = model(inputs); "
    "kept.append(logits); total += criterion(logits, targets).item() * len(targets)`. What is the "
    "smallest change after which the passes agree and memory grows only by what the logits take?",
    options=(
        Option("mode-and-graph", "`model.eval()` before the loop, and the loop under "
               "`torch.no_grad()`.", right=True),
        Option("mode-alone", "`model.eval()` before the loop.",
               "That stops the score from varying. But each kept tensor of logits still holds its "
               "graph, in eval mode too, so memory grows as fast as before."),
        Option("graph-alone", "The loop under `torch.no_grad()`.",
               "That stops the fast growth: now bare logits are kept, without their graphs. But "
               "dropout is still on and draws again in each pass: no_grad() does not switch any "
               "layer."),
        Option("seed", "A seed before each pass, and `del logits` at the end of the loop's body.",
               "A seed makes every pass wrong in the same way: dropout is still on. And `del` "
               "removes only a name; the list still holds the tensor and its graph."),
        Option("average", "The mean of ten passes, and a smaller batch.",
               "A mean over passes with dropout is a steadier number, but for a different model "
               "than the one that will be used. With smaller batches memory grows just as far, in "
               "smaller steps."),
        Option("loss", "`total += criterion(...).detach()` in place of `.item()`.",
               "`.item()` already holds no graph: it is a plain number. It is the list of logits "
               "that holds the graphs."),
    ),
)  # fmt: skip
