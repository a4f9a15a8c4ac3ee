"""03c.flags: which calls of a DataLoader are refused at once."""

from autograde.kinds import Choices, Option

EXERCISE = Choices(
    id="03c.flags", title="flags that exclude each other",
    source='Training-loop chapter, c1, and Lecture 3, "DataLoader"',
    ledger=("T09", "C17", "X30", "F93", "F98"),
    minutes=5, difficulty=2, worth=2, read=("F93", "F98", "course.data.make_loader"),
    hints=(
        "For each flag, ask what it controls: the sampler, the workers or the batches?",
        "Two flags that both decide the order cannot both be obeyed; nor can a flag about workers "
        "where there are none.",
        "Three of the calls contradict themselves. The others do as they are told, one of them "
        "silently.",
    ),
    question="`data` has 100 examples, and the machine has no accelerator. Which of these calls "
    "raise a ValueError at once, before a batch is asked for?",
    options=(
        Option("two-orders", "`DataLoader(data, 16, shuffle=True, sampler=RandomSampler(data))`",
               "shuffle=True is a sampler, too: two orders at once are refused.", right=True),
        Option("prefetch", "`DataLoader(data, 16, prefetch_factor=4)`",
               "Only workers prefetch: without num_workers the flag has nothing to act on, and "
               "raises.", right=True),
        Option("persistent", "`DataLoader(data, 16, persistent_workers=True)`",
               "There are no workers to persist: num_workers is 0, so this raises.",
               right=True),
        Option("nothing-left", "`DataLoader(data, 128, drop_last=True)`",
               "The only batch is short, so drop_last leaves it out. The loader yields no batch at "
               "all, without a warning: such a run trains nothing."),
        Option("keep-short", "`DataLoader(data, 16, shuffle=True, drop_last=True)`",
               "Allowed, and usual: 6 full batches. The 4 examples left over are skipped, "
               "different ones in each epoch."),
        Option("pinned", "`DataLoader(data, 16, pin_memory=True)`",
               "Without an accelerator pinning is skipped with a warning, not with an error."),
    ),
)  # fmt: skip
