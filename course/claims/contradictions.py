"""Where the lecture's sources contradict each other, and what decides between them.

Each row cites the claims (F) and worked numbers (N) that decide it; a test checks that they exist.
If nothing that can be run decides it, the row says so and names the course's choice.
"""

from __future__ import annotations

from dataclasses import dataclass

from course.catalogue import UnknownIdError


@dataclass(frozen=True, kw_only=True)
class Contradiction:
    """Two or more positions that the sources take on one topic."""

    id: str
    """The ledger's id, e.g. `K01`."""
    topic: str
    positions: tuple[str, ...]
    """Each source's position, e.g. `source: position`."""
    decided_by: tuple[str, ...]
    """Ids of the claims and worked numbers that decide; empty if it is a matter of choice."""
    uses: str
    """What the course does."""

    def to_json(self) -> dict[str, object]:
        """As plain lists and strings."""
        return vars(self) | {"positions": [*self.positions], "decided_by": [*self.decided_by]}


def contradictions() -> dict[str, Contradiction]:
    """All contradictions by id."""
    return {row.id: row for row in _ROWS}


def find_contradiction(wanted: str) -> Contradiction:
    """The contradiction called `wanted`; `k-1` is `K01`.

    Raises:
        UnknownIdError: No such id.
    """
    number = "".join(filter(str.isdigit, wanted))
    row = contradictions().get(f"K{int(number):02d}") if number else None
    if row is None:
        raise UnknownIdError(
            f"'{wanted}' is not the id of a contradiction; they are K01 to {_ROWS[-1].id}."
        )
    return row


def _row(id: str, topic: str, *positions: str, by: str, uses: str) -> Contradiction:
    return Contradiction(
        id=id, topic=topic, positions=positions, decided_by=tuple(by.split()), uses=uses
    )


_LECTURE, _MODULE = "Lecture 3", "engineering module"
_CHAPTER, _ESSAY = "training-loop chapter", "annotated-loop essay"

_ROWS = (
    _row(
        "K01",
        "Where scheduler.step() belongs",
        f"{_CHAPTER} c3, c9: inside the batch loop",
        f"{_CHAPTER} c7: once per epoch",
        f"{_ESSAY}: inside the batch loop is wrong; later, once per step for warmup",
        by="F59 F61 N26 N27",
        uses="The schedule's unit is stated (schedule_per), and T_max counts in the same unit.",
    ),
    _row(
        "K02",
        "zero_grad() after backward()",
        f"{_ESSAY}: batches accumulate",
        f"{_CHAPTER}: any place before the next backward() will do",
        by="F27 F28 F132",
        uses="At the start of the step. Between backward() and step() it prevents all learning.",
    ),
    _row(
        "K03",
        "GradScaler with BF16",
        f"{_CHAPTER} c7, c9: yes",
        f"{_LECTURE}, {_ESSAY}: no",
        by="F115",
        uses="None with BF16: it does not change a single bit.",
    ),
    _row(
        "K04",
        "Overflow of BF16",
        f'{_LECTURE}: "almost never", and "never"',
        by="F113 N35",
        uses="Its range is nearly FP32's; FP32's maximum becomes inf.",
    ),
    _row(
        "K05",
        "dtype of gradients under autocast",
        f"{_LECTURE}: BF16",
        f"{_ESSAY}: FP16",
        f"{_CHAPTER}: FP32 updates",
        by="F112 F139",
        uses=".grad of parameters is FP32; the products of backward and the gradients of "
        "activations are 16 bit.",
    ),
    _row(
        "K06",
        "num_workers",
        f"{_LECTURE}: 4 per GPU",
        f"{_MODULE}: 0 first",
        f"{_CHAPTER}: 0, or 4 to 8",
        f"{_ESSAY}: 2 to 4",
        by="F90",
        uses="0 first, then measure: with data in memory, workers make loading slower.",
    ),
    _row(
        "K07",
        "pin_memory",
        f"{_ESSAY}: only with workers",
        "the other sources: no such condition",
        by="F92",
        uses="Pin memory if there is an accelerator, with or without workers.",
    ),
    _row(
        "K08",
        "Number of updates",
        f"{_CHAPTER}, formula: ceil(N / (B·K)) per epoch",
        f"{_CHAPTER}, printed loop: floor, and the remainder leaks into the next epoch",
        by="F44 N03 N05",
        uses="The remainder is flushed at the end of the epoch, so the formula holds.",
    ),
    _row(
        "K09",
        'The word "step"',
        f"{_CHAPTER}: says that the terms vary, and uses both",
        by="N03 F61",
        uses="A step is one update of the weights; a micro-step is one forward and one backward "
        "pass.",
    ),
    _row(
        "K10",
        "What a missing zero_grad() does",
        f"{_MODULE}: NaN",
        f"{_CHAPTER}: subtle, and also explodes",
        f"{_LECTURE}: updates in meaningless directions",
        by="F32 F74 F145 N58",
        uses="All of these, depending on the setting: squared error ends in NaN, momentum "
        "explodes, and cross-entropy with plain SGD or Adam silently stalls, having lost its "
        "direction.",
    ),
    _row(
        "K11",
        "torch.load",
        f"{_LECTURE}: weights_only=True",
        f"{_CHAPTER}: weights_only=False",
        f"{_MODULE}, {_ESSAY}: not set; the {_MODULE} warns about pickles",
        by="F106 F107",
        uses="weights_only=True, and checkpoints without NumPy objects, paths or dataclasses.",
    ),
    _row(
        "K12",
        "First epoch after a resume",
        f"{_CHAPTER}: the saved one",
        f"{_ESSAY}: the saved one + 1",
        by="F110",
        uses="The saved epoch + 1; starting at the saved one repeats an epoch.",
    ),
    _row(
        "K13",
        "Contents of a checkpoint",
        "four sources, four lists; none has the scaler, early stopping or the loader's generator",
        by="F108 F109",
        uses="Everything that the next step depends on, including these three.",
    ),
    _row(
        "K14",
        "cudnn.benchmark",
        f"{_LECTURE}, {_CHAPTER}, {_ESSAY}: False, for reproducibility",
        f"{_ESSAY}, efficient loop: True",
        by="F104",
        uses="A switch: off if runs must be repeatable bit by bit.",
    ),
    _row(
        "K15",
        "The gain from 16 bits",
        f"{_LECTURE}: 2 times, half the memory",
        f"{_CHAPTER}: 2 to 4 times, +50-100 %, −40 %",
        f"{_ESSAY}: 4 to 8 times",
        by="F118 F55",
        uses="No promise: it depends on the GPU and the size of the layers, so the course measures "
        "it.",
    ),
    _row(
        "K16",
        "Memory of the graph",
        f"{_CHAPTER}: 2 to 3 times the weights; more than 20 GB at 7 B; 28 down to 14 GB",
        f"{_ESSAY}: half",
        by="F49 F50 F58 N13",
        uses="It depends on batch size and depth; 14 GB is 7 B weights in 16 bits, and 28 GB is "
        "these with a graph of equal size, or FP32 weights alone.",
    ),
    _row(
        "K17",
        "A missing no_grad() in validation",
        f"{_CHAPTER} c3: merely wasteful",
        f"{_CHAPTER} c4, c6, c9, {_MODULE}, {_ESSAY}: out of memory",
        by="F46 F75",
        uses="It wastes one batch's graph. Memory grows only if tensors with a graph are kept.",
    ),
    _row(
        "K18",
        "One-hot targets",
        f"{_LECTURE}: break cross-entropy",
        f"{_MODULE}: crash or learn poorly",
        f"{_ESSAY}: derives the loss from one-hot targets",
        by="F08 F07",
        uses="Class indices; float one-hot targets give the same loss, and integer ones raise.",
    ),
    _row(
        "K19",
        "The batch contract",
        f"{_LECTURE}, table: inputs [B, d] are allowed",
        f"{_LECTURE}, assert: ndim == 4",
        by="F128",
        uses="The number of dimensions is a parameter of the contract.",
    ),
    _row(
        "K20",
        "The place of zero_grad()",
        f"{_CHAPTER}, cards: fifth",
        f"{_CHAPTER}, code and cheat sheet: first",
        by="F27 F132",
        uses="Both are legal; the course writes it first.",
    ),
    _row(
        "K21",
        "Cost of determinism",
        f"{_CHAPTER}: 10 to 30 %",
        f"{_ESSAY}: hardly any",
        by="F104",
        uses="No promise: measured on the GPU at hand.",
    ),
    _row(
        "K22",
        "Frozen layers",
        f"{_CHAPTER}: get updates with zero gradient, still have gradients",
        f"{_ESSAY}: parameters() leaves them out",
        by="F65 F18 F82",
        uses="parameters() returns them; they do not move as long as their .grad is None.",
    ),
    _row(
        "K23",
        "Batch size",
        f"{_CHAPTER}: the largest power of two that fits",
        f"{_MODULE}: a comfortable one, then measure",
        f"{_ESSAY}: small ones regularise",
        by="F33 F83 F146 F151",
        uses="A choice: a comfortable size, with the learning rate tuned to it.",
    ),
    _row(
        "K24",
        "When persistent workers pay",
        f"{_LECTURE}, text: short epochs",
        f"{_LECTURE}, a figure missing from its text: long epochs",
        by="F91",
        uses="With short epochs: they save starting the workers once per epoch.",
    ),
    _row(
        "K25",
        "The gradient norm",
        f"{_MODULE}: sum of the tensors' norms",
        f"{_LECTURE}, {_ESSAY}: joint L2 norm",
        by="F42 N56",
        uses="The joint L2 norm before clipping.",
    ),
    _row(
        "K26",
        "What the LR finder picks",
        f"{_LECTURE}, text: a decade before the minimum; 100 steps, and ×1.05",
        f"{_LECTURE}, a figure missing from its text: just before it diverges",
        by="N21 N22 F30 F147",
        uses="The factor follows from range and steps; every suggestion names its rule.",
    ),
    _row(
        "K27",
        "What inference_mode forbids",
        f"{_CHAPTER}: in-place changes of views",
        f"{_ESSAY}: use in backward()",
        by="F53",
        uses="In-place changes outside the block, and a backward pass that must save the tensor.",
    ),
    _row(
        "K28",
        "The loss of an epoch",
        f"{_MODULE}, {_ESSAY}: mean of batch means",
        f"{_CHAPTER}: weighted by examples",
        by="F124 F125 N55",
        uses="Weighted by examples.",
    ),
    _row(
        "K29",
        "What counts as an improvement",
        f"{_CHAPTER}, checkpoint: strictly less",
        f"{_CHAPTER}, early stopping: less by min_delta",
        by="F111 N53",
        uses="The same rule for both.",
    ),
    _row(
        "K30",
        "Why the model moves before the optimizer is built",
        f"{_ESSAY}, text and table: a change of dtype; moving alone keeps the references",
        f"{_ESSAY}, device placement: the move, since the optimizer captures references",
        by="F16 F17",
        uses="Neither loses the parameters, but Adam fails on a new dtype once it has stepped.",
    ),
    _row(
        "K31",
        "The spiral's data",
        f"{_ESSAY}, text: a spiral",
        f"{_ESSAY}, script: randn",
        by="",
        uses="A choice with nothing to measure: a spiral, as in the pictures.",
    ),
    _row(
        "K32",
        "Size of the batch to overfit",
        f"{_LECTURE}, quiz: 4",
        f"{_LECTURE}, a figure missing from its text: 8",
        f"{_MODULE}: 12",
        by="F78 N62",
        uses="A parameter of the probe; any of them must reach almost 0.",
    ),
    _row(
        "K33",
        "The seed",
        f"{_LECTURE}, {_CHAPTER}, {_ESSAY}: 42",
        f"{_MODULE}: 13",
        by="F102",
        uses="Part of the configuration, recorded with the run; no value is better than another.",
    ),
    _row(
        "K34",
        "Keys of a checkpoint",
        "model and optim; model_state_dict; optimizer; optimiser",
        by="F106",
        uses="One schema with a version number, which weights_only=True can read.",
    ),
    _row(
        "K35",
        "What clipping caps",
        f"{_LECTURE}: the step",
        f"{_ESSAY}: the gradient",
        by="F40",
        uses="The gradient; with plain SGD, also the step.",
    ),
    _row(
        "K36",
        "Training in eval mode",
        f"{_CHAPTER}: validation gets worse",
        f"{_ESSAY}: different dynamics",
        by="F80",
        uses="It depends on the data: worse with wrong labels, better on a clean spiral.",
    ),
    _row(
        "K37",
        "Factor of the squared error",
        f"{_CHAPTER}, formula: ½ · sum",
        f"{_CHAPTER}, set-up: MSE, a mean by its name",
        by="N11",
        uses="The mean; the two agree there only because there are two outputs.",
    ),
    _row(
        "K38",
        "The validation set",
        f"{_MODULE}: MNIST's test set, on which it also picks the checkpoint",
        f"{_LECTURE}: validation data; its record names training, validation and test",
        by="F99",
        uses="Three parts; the test set is used only once.",
    ),
    _row(
        "K39",
        "What it means if one batch cannot be learnt",
        f"{_LECTURE}, quiz: the wiring is wrong, not the learning rate",
        f"{_LECTURE}, checklist: among other causes, the rate may be too large or too small",
        by="F156 F157 F31 F78",
        uses="Probe with a rate known to be good, then with another one, before searching the "
        "wiring.",
    ),
)
