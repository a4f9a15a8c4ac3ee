"""03c.cures: two changes to the loader of a GPU that waits, and which to test first."""

from autograde.kinds import Choice, Option, Reason

EXERCISE = Choice(
    id="03c.cures", title="a GPU that is busy 30 % of the time",
    source='Lecture 3, "Practice problems", P2', ledger=("X04", "T08", "F90", "F92"),
    minutes=6, difficulty=2, worth=1, read=("T08", "F90", "course.data.is_waiting"),
    hints=("The GPU is idle 70 % of the time. What is it waiting for in most of that time?",
           "Compare what one flag can win: the time to make a batch, or the time to copy one.",
           "Which of 35, 2 and 15 ms can be hidden behind another, and by what?"),
    question="Decoding and augmenting take 35 ms per batch in the main process, the copy to the "
    "GPU 2 ms, the step 15 ms; eight cores are idle. Which plan do you follow?",
    options=(
        Option("workers-first", "num_workers=4 and persistent_workers=True, measure; then "
               "pin_memory=True and non_blocking copies, measure again.", right=True),
        Option("pin-first", "pin_memory=True and non_blocking copies, measure; then workers.",
               "Pinning speeds up the copy, 2 of 52 ms: even a copy that takes no time leaves the "
               "GPU idle for 35 of 50. It is those 35 ms that workers hide."),
        Option("all-at-once", "Workers, pinning and prefetch_factor=8 in one change, measure.",
               "Whether it is faster or slower, you do not know by which of them. One change, one "
               "measurement."),
        Option("bigger-batch", "A batch twice as large, so that the GPU has more to do.",
               "The loader has twice as much to do as well, 70 ms for a step of about 30: the GPU "
               "waits for as large a share."),
    ),
    reason=Reason(
        points=2, ask="Why in this order? Say what each flag can win at most here, and how you "
        "would see that it has.",
        rubric=(
            (1, "Workers hide up to 35 ms behind the step; pinning at most the 2 ms of the copy."),
            (0.5, "A faster copy counts only once batches lie ready: prefetch first."),
            (0.5, "Loader alone, step alone and both as a loop, after each single change."),
        ),
        solution="Making a batch takes 35 of 52 ms; four workers make one about every 9 ms, less "
        "than the step, so the GPU hardly waits. Pinning can win 2 ms at most, and only where the "
        "next batch lies ready. It has won if the loop is nearly as fast as the step alone.",
    ),
)  # fmt: skip
