"""03g.size: how much room the checkpoints of a run take."""

from autograde.exercise import Part, Wrong
from autograde.kinds import Number


def room(p: int, *, full: int = 12, best: int = 4) -> dict[str, float]:
    """GB by part, from the bytes per parameter of a whole checkpoint and of the best epoch's."""
    sizes = {"full": full, "folder": 2 * full + best, "peak": 3 * full + best}
    return {key: p * size / 1000 for key, size in sizes.items()}


EXERCISE = Number(
    id="03g.size", title="room for checkpoints", source="Training-loop chapter, c7, costs",
    ledger=("N49", "F56"), read=("N49", "F56", "course.engine.checkpoint"), minutes=5, difficulty=1,
    hints=("What does Adam keep for each parameter besides the weight itself?",
        "Everything is kept for the last and the previous checkpoint, only the weights for the "
        "best.",
        "12 bytes per parameter twice, 4 bytes once; while the next checkpoint is written, 12 "
        "more."),
    question="A model of {p} million parameters trains in FP32 with Adam. Its folder keeps the "
    "last checkpoint and the one before it, whole, and the best epoch's weights. A new checkpoint "
    "is written next to them before any is replaced. Count only the parameters and Adam's two "
    "averages, at 4 bytes each. 1 GB is 10^9 bytes.",
    inputs={"p": (110, 990)}, answer=room,
    units={"full": "GB", "folder": "GB", "peak": "GB"}, parts=(
        Part("full", "one whole checkpoint", points=1),
        Part("folder", "the folder between two saves", points=1),
        Part("peak", "the most needed, while a checkpoint is written", points=1)), wrong=(
        Wrong("weights-alone", lambda p: room(p, full=4),
              "That is only the weights. Adam keeps two averages for each of them."),
        Wrong("one-average", lambda p: {"full": 8 * p / 1000, "folder": 20 * p / 1000},
              "That is 8 bytes per parameter for a whole checkpoint: two numbers of 4 bytes. There "
              "are three: the weight and two averages."),
        Wrong("gradients-too", lambda p: {"full": 16 * p / 1000, "peak": 52 * p / 1000},
              "That is 16 bytes per parameter for a whole checkpoint, as in memory during "
              "training. Gradients are not in the file."),
        Wrong("best-whole", lambda p: {"folder": 36 * p / 1000, "peak": 48 * p / 1000},
              "That counts the best epoch as a whole checkpoint. Only its weights are kept."),
        Wrong("no-room-to-write", lambda p: {"peak": room(p)["folder"]}, "That is what "
              "the folder needs between two saves. The new file is written next to the old ones."),
        *(Wrong(f"best-left-out-of-{part}", lambda p, k=k, part=part: {part: 12 * k * p / 1000},
                f"That is {k} whole checkpoints. The best epoch's weights are in the folder too.")
          for part, k in (("folder", 2), ("peak", 3))),
        Wrong("weights-of-the-new", lambda p: {"peak": 32 * p / 1000}, "That adds 4 "
              "bytes per parameter to the folder. The new file is a whole checkpoint."),
        Wrong("best-written-too", lambda p: {"peak": 44 * p / 1000}, "That adds 16 bytes per "
              "parameter to the folder. Only a whole checkpoint is being written; the best "
              "epoch's weights are not written again."),
        Wrong("one-before-replaced", lambda p: {"peak": 24 * p / 1000}, "That is two whole "
              "checkpoints. No file is replaced before the new one is complete: count everything "
              "in the folder plus the new one."),
        Wrong("one-whole", lambda p: {"folder": 16 * p / 1000}, "That is one whole checkpoint and "
              "the best epoch's weights. The folder keeps the previous checkpoint too."),
        *(Wrong(f"in-{unit}", lambda p, by=by: {k: v * by for k, v in room(p).items()},
                f"That is in {unit}, of {size} bytes; 1 GB is 10^9.")
          for unit, by, size in (("GiB", 1e9 / 2**30, "2^30"), ("MB", 1000, "10^6"))),
        Wrong("in-bytes", lambda p: {k: v * 1e9 for k, v in room(p).items()},
              "That is in bytes; give GB, of 10^9 bytes each."),
    ),
    carried={"one-whole": lambda p: {"peak": 28 * p / 1000},
             "one-average": lambda p: {"peak": 28 * p / 1000},
             "gradients-too": lambda p: {"folder": 36 * p / 1000}},
)  # fmt: skip
