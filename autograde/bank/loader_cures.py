"""03c.cures: two changes to the loader of a GPU that waits, and which to test first."""

from autograde.kinds import Choice, Option, Reason

EXERCISE = Choice(
    id="03c.cures", title="a GPU that is busy 30 % of the time",
    source='Lecture 3, "Practice problems", P2', ledger=("X04", "T08", "F90", "F92"),
    minutes=6, difficulty=2, worth=1, read=("T08", "F90", "course.data.is_waiting"),
    hints=("The GPU is idle 70 % of the time. What is it waiting for most of that time?",
           "Compare how much each flag can save: the time to make a batch, or the time to copy "
           "one.",
           "Which of 35, 2 and 15 ms can be hidden behind another of them, and how?"),
    question="For each batch, decoding and augmenting take 35 ms in the main process, the copy to "
    "the GPU takes 2 ms and the step 15 ms. Eight CPU cores are idle. Which plan do you follow?",
    options=(
        Option("workers-first", "Set num_workers=4 and persistent_workers=True, then measure. Add "
               "pin_memory=True and non_blocking copies, then measure again.", right=True),
        Option("pin-first", "Set pin_memory=True and non_blocking copies, then measure. Add "
               "num_workers=4 and persistent_workers=True, then measure again.",
               "Pinning speeds up the copy, 2 of 52 ms: even if the copy took no time, the GPU "
               "would be idle for 35 of 50 ms. Those 35 ms are what workers can hide."),
        Option("all-at-once", "Set num_workers=4, pin_memory=True, non_blocking copies and "
               "prefetch_factor=8 all at once, then measure.",
               "Whether the loop gets faster or slower, you do not know which change did it. Make "
               "one change, then measure."),
        Option("bigger-batch", "Make the batch twice as large, so that the GPU has more to do with "
               "each of them, then measure.",
               "The loader then has twice as much to do as well, 70 ms for a step of about 30 ms: "
               "the GPU waits for the same share of the time."),
    ),
    reason=Reason(
        points=2, ask="Why in this order? Say how much each flag can save at most, and how you "
        "would check it.",
        rubric=(
            (1, "Workers hide up to 35 ms behind the step; pinning at most the 2 ms of the copy."),
            (0.5, "A faster copy helps only once batches are ready in advance: prefetch first."),
            (0.5, "Measure the loader alone, the step alone and both in a loop, after each single "
                  "change."),
        ),
        solution="Making a batch takes 35 of 52 ms; four workers make one about every 9 ms, less "
        "than the step, so the GPU hardly waits. Pinning can save 2 ms at most, and only if the "
        "next batch is ready. It has worked if the loop is nearly as fast as the step alone.",
    ),
)  # fmt: skip
