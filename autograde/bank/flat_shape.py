"""01a.flat-shape: what flatten(1) makes of a batch of images, and what the batch weighs."""

from autograde.exercise import Part, Wrong
from autograde.kinds import Number

EXERCISE = Number(
    id="01a.flat-shape", title="a batch, flattened",
    source='Module 1, "From NumPy to tensors"', ledger=("X12", "T02", "T03"),
    minutes=4, difficulty=1, read=("N42", "N35"),
    hints=("Write the four sizes in a row and name each: batch, channels, height, width.",
        "flatten(1) leaves dimension 0 as it is, and joins all the others into one.",
        "Columns: channels · height · width. Bytes: how many numbers the batch has, times the "
        "bytes of one number of that dtype."),
    question="`images` has the shape [{b}, {c}, {h}, {w}]: a batch of images with {c} channels, "
             "as uint8. It is converted to float32 and flattened: `flat = "
             "images.float().flatten(1)`.",
    inputs={"b": [12, 20, 24, 40, 48], "c": [2, 3, 5], "h": (14, 37), "w": (15, 39)},
    answer=lambda b, c, h, w: {"rows": b, "columns": c * h * w, "bytes": 4 * b * c * h * w},
    parts=(Part("rows", "the size of dimension 0 of `flat`", points=1),
        Part("columns", "the size of dimension 1: the in_features of the next layer", points=1),
        Part("bytes", "how many bytes the numbers of `flat` take", points=1)),
    wrong=(
        Wrong("transposed", lambda b, c, h, w: {"rows": c * h * w, "columns": b},
              "Rows and columns are swapped: dimension 0 stays the batch."),
        Wrong("all-flat", lambda b, c, h, w: {"rows": b * c * h * w, "columns": b * c * h * w},
              "That is flatten() without the 1: all {b} images in one row. A Linear layer needs "
              "one row per image."),
        Wrong("channels-apart", lambda b, c, h, w: {"rows": b * c, "columns": h * w},
              "All {c} channels are part of the image, so they belong in its row, too."),
        Wrong("spatial-kept", lambda b, c, h, w: {"columns": c * h},
              "The last dimension, of size {w}, is joined as well: flatten(1) leaves two "
              "dimensions."),
        Wrong("one-byte", lambda b, c, h, w: {"bytes": b * c * h * w},
              "That is one byte per number, as in uint8. A float32 takes 32 bits."),
        Wrong("float64", lambda b, c, h, w: {"bytes": 8 * b * c * h * w},
              "Eight bytes per number is float64. torch's default float is float32."),
        Wrong("bits", lambda b, c, h, w: {"bytes": 32 * b * c * h * w},
              "That is in bits. A byte is eight bits, so a float32 takes 4 bytes."),
        Wrong("sizes-added", lambda b, c, h, w: {"columns": c + h + w},
              "The sizes were added. Every channel has {h} rows of {w} pixels: multiply."),
        Wrong("one-image", lambda b, c, h, w: {"bytes": 4 * c * h * w},
              "That is one image; the batch holds {b}."),
    ),
)  # fmt: skip
