"""03d.formats: what FP16 and BF16 hold, and what they lose."""

from autograde.kinds import Choices, Option, Reason

EXERCISE = Choices(
    id="03d.formats", title="what a format holds",
    source='Lecture 3, "Mixed precision · why BF16 > FP16"',
    ledger=("N35", "X64", "T35", "F113", "F114", "F115", "K03"), minutes=6, difficulty=2, worth=2,
    read=("N35", "F114", "F115"), hints=(
        "Ask two questions about each: is it within the range, and is the gap to the next number "
        "small?",
        "FP16 holds 6e-8 to 65,504 with 10 bits after the leading one; BF16 has FP32's range, and "
        "7 bits. A sum is rounded to the nearest number that the format has.",
        "Below 1, BF16's numbers are 0.0039 apart: a change of less than half of that is lost."),
    question="Each statement is about computing in the one format it names, rounding as torch "
    "does. Which are true?",
    options=(
        Option("bf16-large", "BF16 can hold 70,000 with an error of less than 1 %.",
               "It becomes 70,144: BF16 has FP32's range, with gaps of under 1 %.", right=True),
        Option("fp16-scaled", "FP16 can hold a gradient of 1e-8 once it is multiplied by 65,536.",
               "The product, 6.6e-4, is well within FP16's range.", right=True),
        Option("bf16-small", "BF16 can hold an unscaled gradient of 1e-8: it does not become 0.",
               "BF16's smallest normal number is 1.2e-38: no loss scale is needed.", right=True),
        Option("fp16-large", "FP16 can hold 70,000 with an error of less than 1 %.",
               "FP16's largest number is 65,504, so 70,000 becomes inf."),
        Option("bf16-step", "A BF16 weight of 1 ends near 0.9 after 0.001 is subtracted from it "
               "100 times.", "Each 0.999 is rounded back to 1, so the weight never moves: weights "
               "that an optimizer moves in small steps stay in FP32."),
        Option("fp16-gradient", "FP16 can hold an unscaled gradient of 1e-8: it does not become 0.",
               "FP16's smallest positive number is 6.0e-8: anything below half of that becomes 0."),
    ),
    reason=Reason(points=2, ask="Why does training in FP16 need a loss scaler, and in BF16 not? "
        "What does BF16 give up in return, and where in a training step does this matter?",
        rubric=((1, "range: FP16's 5 exponent bits lose small gradients; BF16 has FP32's 8"),
                (1, "BF16 has 7 bits of precision: small updates of weights vanish")),
        solution="With five exponent bits FP16 turns gradients below 3e-8 into 0, so the loss is "
        "scaled up and the gradients down again. BF16 has FP32's eight. It keeps 7 bits, so a "
        "weight loses updates below 1/512 to 1/256 of itself: weights stay in FP32."),
)  # fmt: skip
