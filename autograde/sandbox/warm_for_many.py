"""What a warm parent does besides where a whole class is graded: it takes 4 s, once.

scikit-learn, torch's compiler and the fonts of figures are loaded for the submissions that use
them, what refuses in each exercise is found, and memory is put in order for hundreds of forks. See
`autograde.sandbox.parent.start`.
"""

import gc
import importlib
import io
import sys

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from autograde import bank
from autograde.by_hand import refusing
from autograde.sandbox import kernel

MODULES = (
    "sklearn.datasets",
    "sklearn.dummy",
    "sklearn.metrics",
    "sklearn.model_selection",
    "sklearn.neighbors",
    "torch._dynamo.config",
)


def _draw_once() -> None:
    """A figure as notebooks draw them: fonts, the reader of 10⁻², the PNG writer."""
    figure = Figure()
    canvas = FigureCanvasAgg(figure)
    plot, picture = figure.subplots(1, 2)
    plot.plot([1e-3, 1.0], label="loss")
    plot.set(xlabel="epoch", ylabel="loss", yscale="log", title="loss")
    plot.legend()
    picture.imshow([[0.0, 1.0]], cmap="gray_r")
    canvas.print_figure(io.BytesIO(), bbox_inches="tight")


for module in MODULES:
    importlib.import_module(module)
_draw_once()
for entry in bank.asks_for_code().values():
    refusing(entry.load())  # which takes a fork 4 ms to find
gc.unfreeze()
gc.collect()
gc.freeze()
if sys.platform == "linux":
    kernel.gather_into_large_pages()
