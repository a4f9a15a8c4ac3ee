"""03d.memory: bytes of weights, gradients, moments and activations, and the batch that fits."""

from autograde.exercise import Part, Wrong
from autograde.kinds import Number


def counted(p: int, g: int, a: int, *, each: int = 16, kept: int = 2) -> dict[str, float]:
    """GB of p million parameters at `each` bytes; examples at `kept` bytes an activation."""
    fixed = p * each / 1000
    return {"fixed": fixed, "batch": int((g - fixed) * 1000 // (a * kept))}


EXERCISE = Number(
    id="03d.memory", title="what fits in memory", source="Training-loop chapter, c4",
    ledger=("N13", "N48", "F55", "F57", "F58"), read=("N13", "N48"), minutes=8, difficulty=2,
    hints=("Autocast changes what forward computes. In which format are the weights themselves?",
        "Each parameter needs a weight, a gradient and Adam's two averages, of four bytes each.",
        "What is left of the GPU's memory is for activations, two bytes per number: divide, and "
        "round down."),
    question="A model of {p} million parameters trains with AdamW under BF16 autocast on a GPU of "
    "{g} GB. Weights, gradients and both moments are in FP32. For every example, {a} million "
    "activations are kept for backward, all in BF16. Ignore everything else, autocast's 16-bit "
    "copies included. 1 GB is 10^9 bytes.",
    inputs={"p": (210, 790), "g": [24, 40, 48, 80], "a": (21, 95)},
    answer=lambda p, g, a: {"moments": 8 * p / 1000, **counted(p, g, a)},
    units={"moments": "GB", "fixed": "GB"}, parts=(
        Part("moments", "AdamW's two moments together", points=1),
        Part("fixed", "weights, gradients and moments", points=1),
        Part("batch", "the largest batch size that fits", points=2)), wrong=(
        Wrong("one-missing", lambda p, g, a: {"moments": 4 * p / 1000, **counted(p, g, a, each=12)},
              "That is 4 bytes per parameter too few. Either one number is missing (weight, "
              "gradient, and the averages m and v), or two were counted at 2 bytes: all four are "
              "in FP32."),
        Wrong("half-weights", lambda p, g, a: counted(p, g, a, each=14),
              "That is 14 bytes per parameter. Under autocast the weights stay in FP32, too: 16."),
        Wrong("all-half", lambda p, g, a: counted(p, g, a, each=8), "That is 8 bytes per "
              "parameter: two FP32 numbers, or four 16-bit ones. There are four in FP32."),
        Wrong("one-number", lambda p, g, a: counted(p, g, a, each=4),
              "That is 4 bytes per parameter: the weights alone, or one of the four numbers."),
        Wrong("in-gib", lambda p, g, a: {k: p * n * 1e6 / 2**30 for k, n in
              (("moments", 8), ("fixed", 16))}, "That is in GiB, units of 2^30 bytes; 1 GB is 10^9 "
                                                "bytes."),
        Wrong("in-bytes", lambda p, g, a: {"moments": 8e6 * p, "fixed": 16e6 * p},
              "That is in bytes; the answer is in GB, units of 10^9 bytes."),
        Wrong("in-megabytes", lambda p, g, a: {"moments": 8 * p, "fixed": 16 * p},
              "That is in MB; the answer is in GB, units of 10^9 bytes."),
        Wrong("in-bits", lambda p, g, a: {"moments": 64 * p / 1000, "fixed": 128 * p / 1000},
              "That counts bits. FP32 has 32 bits, which are 4 bytes."),
        Wrong("full-activations", lambda p, g, a: {"batch": counted(p, g, a, kept=4)["batch"]},
              "That counts 4 bytes per activation; these are BF16, 2 bytes."),
        Wrong("byte-each", lambda p, g, a: {"batch": counted(p, g, a, kept=1)["batch"]},
              "That counts 1 byte per activation; a BF16 number takes 2."),
        Wrong("whole-gpu", lambda p, g, a: {"batch": counted(p, g, a, each=0)["batch"]},
              "That gives all {g} GB to activations. Subtract the fixed part first."),
        Wrong("rounded-up", lambda p, g, a: {"batch": counted(p, g, a)["batch"] + 1},
              "That is one more than fits: round down.")))  # fmt: skip
