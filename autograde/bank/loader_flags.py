"""03c.flags: which calls of a DataLoader are refused at once."""

from autograde.kinds import Choices, Option

EXERCISE = Choices(
    id="03c.flags", title="flags that exclude each other",
    source='Training-loop chapter, c1, and Lecture 3, "DataLoader"',
    ledger=("T09", "C17", "X30", "F93", "F98"),
    minutes=5, difficulty=2, worth=2, read=("F93", "F98", "course.data.make_loader"),
    hints=(
        "Ask of each flag: whom does it speak to? The sampler, the workers, or the batches?",
        "Two flags that both decide the order cannot both be obeyed; nor can a flag about workers "
        "where there are none.",
        "Three of them contradict themselves. The others do as they say, one of them silently so.",
    ),
    question="`data` has 100 examples, and the machine has no accelerator. Which of these calls "
    "raise a ValueError at once, before a batch is asked for?",
    options=(
        Option("two-orders", "`DataLoader(data, 16, shuffle=True, sampler=RandomSampler(data))`",
               "shuffle=True is a sampler, too: two orders at once are refused.", right=True),
        Option("prefetch", "`DataLoader(data, 16, prefetch_factor=4)`",
               "Prefetching is what workers do: without num_workers the flag has nobody to speak "
               "to, and raises.", right=True),
        Option("persistent", "`DataLoader(data, 16, persistent_workers=True)`",
               "There are no workers that could persist: num_workers is 0, so this raises.",
               right=True),
        Option("nothing-left", "`DataLoader(data, 128, drop_last=True)`",
               "The only batch is short, so drop_last leaves it out. The loader gives no batch at "
               "all, and says nothing: such a run trains nothing."),
        Option("keep-short", "`DataLoader(data, 16, shuffle=True, drop_last=True)`",
               "Allowed, and usual: 6 full batches. The 4 examples left over are skipped, others "
               "in each epoch."),
        Option("pinned", "`DataLoader(data, 16, pin_memory=True)`",
               "Without an accelerator pinning is skipped with a warning, not with an error."),
    ),
)  # fmt: skip
