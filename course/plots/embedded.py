"""A figure embedded in a page, so that nothing is loaded from elsewhere."""

from __future__ import annotations

import base64
import io
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def embedded(figure: Figure, alt: str) -> str:
    """An `<img>` that contains the picture itself.

    Args:
        figure: Any Figure.
        alt: What it shows, in a sentence.
    """
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=80)
    source = base64.b64encode(picture.getvalue()).decode()
    return f'<img alt="{escape(alt)}" src="data:image/png;base64,{source}">'
