"""01a.coordinates: three bugs in a function that makes tensors: device, dtype, dimension."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from autograde.exercise import Answer, AnswerError, Case, Draw, Exercise, Part, Wrong
from autograde.kinds.fix import change_size, variant

GIVEN = """
def with_coordinates(images):
    batch, channels, height, width = images.shape
    rows = torch.linspace(0, 1, height).view(1, 1, 1, height)
    columns = torch.linspace(0, 1, width).view(1, 1, 1, width)
    rows = rows.expand(batch, 1, height, width)
    columns = columns.expand(batch, 1, height, width)
    return torch.cat([images, rows, columns], dim=1)
"""
MOST = 5
"""Lines that may differ: three bugs sit in two lines, and may be fixed where the tensors meet."""


def draw(source: Draw, part: str) -> Case:
    """Images of every dtype a network computes in; square ones hide the wrong dimension."""
    height = source.choice([4, 6])  # thirds and fifths, which 16 bits do not hold
    width = height + (source.choice([-1, 1, 2]) if part == "oblong" else 0)
    shape = [source.integer(1, 3), source.integer(1, 3), height, width]
    dtype = ("bfloat16", "float16", "float64")[source.index] if part == "dtype" else "float32"
    return {"images": source.normal(*shape), "dtype": dtype, "meta": part == "device"}


def run(function, case: Case, device: torch.device) -> Answer:
    """The stacked channels, and where and what they are; `meta` stands for another device."""
    place = torch.device("meta") if case["meta"] else device
    images = case["images"].to(place, getattr(torch, case["dtype"]))
    before = None if case["meta"] else images.clone()
    made = function(images)
    if not isinstance(made, Tensor):
        raise AnswerError(f"It returned a {type(made).__name__}; return the images as a tensor.")
    kept = before is None or torch.equal(before, images)
    inside = "not looked at"
    if made.ndim == 4 and not made.is_meta and before is not None:
        inside = "as given"
        if not torch.equal(made[:, : images.shape[1]].to(images), before):
            inside = "changed"
    return {
        "values": [] if made.is_meta else made.detach().cpu().float(),
        "inside": inside,
        "shape": str(list(made.shape)),
        "dtype": str(made.dtype),
        "device": "the images' own" if made.device.type == place.type else str(made.device),
        "disturbed": [] if kept else ["the images that were handed over"],
        "changed": change_size(GIVEN, function, most=MOST),
    }


ROWS = "torch.linspace(0, 1, height)"
COLUMNS = "torch.linspace(0, 1, width)"
LIKE = ", dtype=images.dtype, device=images.device)"
AXIS = (".view(1, 1, 1, height)", ".view(1, 1, height, 1)")
FIXED = GIVEN.replace(ROWS, ROWS[:-1] + LIKE).replace(COLUMNS, COLUMNS[:-1] + LIKE).replace(*AXIS)
PLACE, KIND = ", device=images.device", ", dtype=images.dtype"

fixed = partial(variant, FIXED, __file__)
reference = fixed()
unplaced = fixed((ROWS[:-1] + LIKE, ROWS[:-1] + KIND + ")"),
                 (COLUMNS[:-1] + LIKE, COLUMNS[:-1] + KIND + ")"))  # fmt: skip
rows_unplaced = fixed((ROWS[:-1] + LIKE, ROWS[:-1] + KIND + ")"))
untyped = fixed((ROWS[:-1] + LIKE, ROWS[:-1] + PLACE + ")"),
                (COLUMNS[:-1] + LIKE, COLUMNS[:-1] + PLACE + ")"))  # fmt: skip
columns_untyped = fixed((COLUMNS[:-1] + LIKE, COLUMNS[:-1] + PLACE + ")"))
images_cast = fixed((ROWS[:-1] + LIKE, ROWS[:-1] + PLACE + ")"),
                    (COLUMNS[:-1] + LIKE, COLUMNS[:-1] + PLACE + ")"),
                    ("cat([images,", "cat([images.float(),"))  # fmt: skip
same_way = fixed(AXIS[::-1])
same_way_squeezed = fixed((".view(1, 1, height, 1)", ""))
rows_like_columns = fixed(
    (ROWS[:-1] + LIKE + AXIS[1], COLUMNS[:-1] + LIKE + ".view(1, 1, 1, width)")
)
same_way_down = fixed((".view(1, 1, 1, width)", ".view(1, 1, width, 1)"))
views_swapped = fixed(AXIS[::-1], (".view(1, 1, 1, width)", ".view(1, 1, width, 1)"))
coordinates_first = fixed(("[images, rows, columns]", "[rows, columns, images]"))
swapped = fixed(("[images, rows, columns]", "[images, columns, rows]"))
turned = fixed((AXIS[1], ".view(1, 1, height, 1).flip(2)"))
centred = fixed(("linspace(0, 1, height", "linspace(-1, 1, height"),
                ("linspace(0, 1, width", "linspace(-1, 1, width"))  # fmt: skip
counted = fixed(("linspace(0, 1, height", "linspace(0, height - 1, height"),
                ("linspace(0, 1, width", "linspace(0, width - 1, width"))  # fmt: skip
below_one = fixed((ROWS[:-1] + LIKE, f"(torch.arange(height{LIKE} / height)"),
                  (COLUMNS[:-1] + LIKE, f"(torch.arange(width{LIKE} / width)"))  # fmt: skip
stacked_as_images = fixed(
    ("rows.expand(batch, 1,", "rows.expand(batch, channels,"),
    ("columns.expand(batch, 1,", "columns.expand(batch, channels,"),
    ("dim=1", "dim=0"),
)  # fmt: skip

moved_where_they_meet = fixed(
    (ROWS[:-1] + LIKE, ROWS), (COLUMNS[:-1] + LIKE, COLUMNS),
    ("[images, rows, columns]", "[images, rows.to(images), columns.to(images)]"),
)  # fmt: skip
like_the_images = fixed(
    ("rows = " + ROWS[:-1] + LIKE, "rows = " + ROWS + ".type_as(images).to(images.device)"),
    ("columns = " + COLUMNS[:-1] + LIKE, "columns = " + COLUMNS + ".to(images)"),
)
with_reshape = fixed(
    (AXIS[1], ".reshape(-1, 1)"), (".view(1, 1, 1, width)", ".reshape(1, -1)"),
    ("dim=1", "1"),
)  # fmt: skip


EXERCISE = Exercise(
    id="01a.coordinates",
    title="coordinates as channels: three bugs",
    source='Module 2, "From NumPy to tensors", quiz 5',
    kind="fix",
    ledger=("X19", "T01", "T02", "T03"),
    minutes=10,
    difficulty=2,
    read=("F15", "F21", "N35"),
    hints=(
        "Print the shape, dtype and device of every tensor made inside, and compare them with "
        "images.",
        "Two bugs are in the call of linspace, which appears twice. The third shows with an image "
        "that is bright in its top half only: which coordinate should tell top from bottom?",
        "linspace takes dtype=images.dtype and device=images.device; rows vary along dimension 2, "
        "so their view is (1, 1, height, 1).",
    ),
    signature="with_coordinates(images)",
    parts=(
        Part("device", "images on another device", points=1, fields=("device", "shape")),
        Part(
            "dtype",
            "images in bfloat16, float16 and float64",
            points=1,
            cases=3,
            fields=("shape", "dtype", "inside"),
        ),
        Part(
            "square",
            "both coordinates, square images",
            points=1,
            fields=("shape", "values", "disturbed"),
        ),
        Part("oblong", "images that are not square", points=0.5, fields=("shape", "values")),
        Part(
            "few", f"at most {MOST} lines changed", points=0.5, cases=1, fields=("shape", "changed")
        ),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={
        "values": "the images with their coordinates:",
        "shape": "the shape",
        "dtype": "the dtype",
        "device": "the device",
        "inside": "the channels of the images themselves",
        "changed": "the number of lines changed",
    },
    wrong=(
        Wrong(
            "left-on-the-cpu",
            unplaced,
            "A tensor made inside stayed on the CPU while the images were on another device. "
            "Create it on theirs: device=images.device.",
            raises="(expected|same) device",
        ),
        Wrong("left-on-the-cpu", rows_unplaced, raises="(expected|same) device"),
        Wrong(
            "made-in-float32",
            untyped,
            "The 16-bit images came back as float32: cat() takes the wider type, and a tensor "
            "made inside was float32. Make it with dtype=images.dtype.",
        ),
        Wrong("made-in-float32", columns_untyped),
        Wrong(
            "images-cast",
            images_cast,
            "The images were converted to float32. The new channels should take the images' "
            "dtype, not the other way round.",
        ),
        Wrong(
            "same-way",
            same_way,
            "Both coordinates run along the width. Rows differ from top to bottom, which is "
            "dimension 2: view(1, 1, height, 1).",
            raises="expand|size of the tensor|must match",
        ),
        Wrong("same-way", same_way_squeezed, raises="expand|size of the tensor|must match"),
        Wrong("same-way", rows_like_columns),
        Wrong(
            "same-way-down",
            same_way_down,
            "Both coordinates run along the height. Columns differ from left to right, which is "
            "dimension 3: leave their view(1, 1, 1, width) as it was given.",
            raises="expand|size of the tensor|must match",
        ),
        Wrong(
            "views-swapped",
            views_swapped,
            "In square images the two coordinates are swapped, and in others they do not fit: rows "
            "run along the width, columns along the height. Rows differ along dimension 2, "
            "view(1, 1, height, 1), and columns along dimension 3, view(1, 1, 1, width).",
            raises="expand|size of the tensor|must match",
        ),
        Wrong(
            "swapped",
            swapped,
            "The two coordinates are right but swapped: rows come first, then columns.",
            sure=True,
        ),
        Wrong(
            "coordinates-first",
            coordinates_first,
            "The coordinates came before the images' own channels. Those come first, then rows, "
            "then columns.",
            sure=True,
        ),
        Wrong(
            "upside-down",
            turned,
            "The row coordinate runs from the bottom up. Row 0 is the top, with coordinate 0.",
            sure=True,
        ),
        Wrong(
            "centred",
            centred,
            "The coordinates run from -1 to 1. They should run from 0 to 1, as in the given code.",
            sure=True,
        ),
        Wrong(
            "counted",
            counted,
            "The coordinates count pixels. They should run from 0 to 1, whatever the image size.",
            sure=True,
        ),
        Wrong(
            "below-one",
            below_one,
            "The last row and column have coordinates below 1: a height of 4 has three steps. "
            "linspace(0, 1, height) divides by height - 1.",
            sure=True,
        ),
        Wrong(
            "stacked-as-images",
            stacked_as_images,
            "The coordinates were added as extra images. Channels are dimension 1.",
        ),
    ),
    right=(moved_where_they_meet, like_the_images, with_reshape),
)
