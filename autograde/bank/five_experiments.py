"""03h.experiments: what the simulator's five experiments showed."""

from autograde.kinds import Choices, Option

EXERCISE = Choices(
    id="03h.experiments", title="five experiments, as they came out",
    source="Training-loop chapter, c6, experiments 1 to 5",
    ledger=("X39", "X40", "X41", "X42", "X43", "S07"),
    minutes=8, difficulty=2, worth=2, read=("F72", "F73", "F74", "F75", "F76"),
    hints=(
        "Read the printed table: where did each end, when was it at 90 %, what was held?",
        "`live_kb` is held after an evaluation; `peak_kb` is the most that was held at a time.",
        "Four of the eight are true; of experiment 5 none is.",
    ),
    question="Which of these statements do the five experiments above bear out?",
    options=(
        Option("finite", "1: Adam at a rate of 1 ends near chance, with a finite loss.",
               "Adam's step is about the rate, however large the gradient: no nan.", right=True),
        Option("tuned", "2: SGD's rate decides more than its name: at 0.3 it reaches 90 % in 320 "
               "updates, at 0.01 it does not.", "At 0.01 SGD ends at about half.", right=True),
        Option("norm", "3: without clearing, the gradient's norm is more than ten times the "
               "healthy one's in the end.", "It is near 90, the healthy one below 1.", right=True),
        Option("peak", "4: without no_grad() the peak rises; what is held afterwards does not.",
               "The graph goes with the loss that held it.", right=True),
        Option("nan", "1: Adam at a rate of 1 jumps to nan within the first updates.",
               "All of its losses are finite. They end near ln 3 = 1.10, where guessing is."),
        Option("adds", "4: every evaluation without no_grad() adds its graph to the memory.",
               "Only where the losses are kept as tensors. Else the graph goes with its loss: the "
               "memory held after the evaluation is that with no_grad()."),
        Option("linear", "3: without clearing, the norm grows by the same amount in every update.",
               "In the curve the norm rises steeply within 50 updates, then hardly any more."),
        Option("lower", "5: the cosine ends at a lower training loss than the constant rate.",
               "Both reach 90 % after as many updates, and the constant rate's last loss is not "
               "the higher one here."),
    ),
)  # fmt: skip
