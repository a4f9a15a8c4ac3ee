"""03h.experiments: what the simulator's five experiments showed."""

from autograde.kinds import Choices, Option

EXERCISE = Choices(
    id="03h.experiments", title="five experiments, as they came out",
    source="Training-loop chapter, c6, experiments 1 to 5",
    ledger=("X39", "X40", "X41", "X42", "X43", "S07"),
    minutes=8, difficulty=2, worth=2, read=("F72", "F73", "F74", "F75", "F76"),
    hints=(
        "Read the printed table: where did each run end, when did it reach 90 %, how much memory "
        "was in use?",
        "`live_kb` is the memory in use after an evaluation; `peak_kb` is the most in use at any "
        "time.",
        "Four of the eight are true; none of them is about experiment 5.",
    ),
    question="Which of these statements do the five experiments above support?",
    options=(
        Option("finite", "1: Adam with a learning rate of 1 ends near chance, with a finite loss.",
               "Adam's step is about as large as the learning rate, however large the gradient, so "
               "there is no nan.", right=True),
        Option("tuned", "2: SGD's learning rate matters more than its name: at 0.3 it reaches 90 % "
               "in 320 updates, at 0.01 it does "
               "not.", "At 0.01 SGD ends with about half of the points right.", right=True),
        Option("norm", "3: without clearing, the gradient norm ends at more than ten times the "
               "healthy norm.", "It ends near 90, the healthy one below 1.", right=True),
        Option("peak", "4: without no_grad() the peak memory rises, but the memory in use "
                       "afterwards does not.",
               "The graph is freed with the loss that held it.", right=True),
        Option("nan", "1: Adam with a learning rate of 1 jumps to nan within the first updates.",
               "All of its losses are finite. They end near ln 3 = 1.10, the loss of guessing."),
        Option("adds", "4: every evaluation without no_grad() adds its graph to the memory.",
               "Only if the losses are kept as tensors. Otherwise the graph is freed with its "
               "loss, and the memory in use after the evaluation is the same as with no_grad()."),
        Option("linear", "3: without clearing, the norm grows by the same amount in every update.",
               "In the curve the norm rises steeply within 50 updates, then less, with jumps: not "
               "by the same amount in each."),
        Option("lower", "5: the cosine ends at a lower training loss than the constant rate.",
               "Both reach 90 % after equally many updates, and the cosine's last loss is higher."),
    ),
)  # fmt: skip
