"""03d.three-clips: what clipping by norm, by layer and by value leave of observed gradients."""

from autograde.kinds import Choices, Option, Reason

EXERCISE = Choices(
    id="03d.three-clips", title="by norm, by layer, by value",
    source='Lecture 3, "Practice problems"',
    ledger=("X08", "X51", "X61", "N20", "N51", "F40"), minutes=7, difficulty=2, worth=2,
    read=("N51", "N20", "F40"), hints=(
        "For each of the three methods, write down the factor by which each layer is multiplied.",
        "By norm: one factor for all. By layer: one per layer. By value: each number separately.",
        "By norm the factor is 1 / √(30² + 0.4² + 0.3²); by layer they are 1/30, 1 and 1."),
    question="A network has three layers, each with one weight tensor of 10,000 numbers. The norms "
    "of their gradients are 30, 0.4 and 0.3, and every number in the first is 0.3 or −0.3. The "
    "ceiling is 1 for each of the three methods. Which statements are true?",
    options=(
        Option("norm-starves", "By norm: the second layer's gradient ends with a norm of about "
               "0.013.", "One factor, about 1/30, for all layers: 0.4 / 30.", right=True),
        Option("layer-joint", "By layer: all gradients together end with a norm of about 1.12.",
               "√(1² + 0.4² + 0.3²): the ceiling applies to each layer separately.", right=True),
        Option("value-nothing", "By value: nothing changes, though the joint norm is 30.",
               "No number is above 1; with n numbers the norm may reach √n times the "
               "ceiling.", right=True),
        Option("layer-direction", "By layer: the update keeps the direction of the gradient.",
               "One layer is divided by 30, the others are not, so the update as a whole points in "
               "another direction."),
        Option("value-direction", "By value, when something is cut: the direction stays the same, "
               "as each number keeps its "
               "sign.", "[3, 4] becomes [1, 1]: same signs, another direction."),
        Option("norm-longer", "By norm: a loss ten times as large makes the clipped gradients ten "
               "times as long.", "Their joint norm is the ceiling, 1, either way."),
    ),
    reason=Reason(points=2, ask="Why does clipping by norm keep the direction and by value not? "
        "And which method would you choose if only the first two of twelve layers blow up?",
        rubric=((1, "one positive factor for all numbers, against a factor for each"),
                (1, "by layer: the others keep their step; names the lost direction or the "
                    "remaining cause as the price")),
        solution="A single factor for every number changes only the length; by value, only large "
        "numbers shrink, so the ratios change. For two bad layers: by layer, since otherwise their "
        "factor stops the other ten. But the direction changes, and the cause remains."),
)  # fmt: skip
