"""The file that a command's --plot names: looked at before the work, written after it."""

from __future__ import annotations

from pathlib import Path


def check_figure_file(file: Path, *, example: str) -> None:
    """Refuse a file that no figure can be written to, before anything is computed for it.

    Args:
        file: As the user typed it.
        example: A name that would do, for the message.

    Raises:
        ValueError: A directory, in a directory that does not exist, or of no kind that matplotlib
            draws. (A name without an ending would silently get one, next to the file asked for.)
    """
    from matplotlib.figure import Figure

    kinds = Figure().canvas.get_supported_filetypes()
    if file.is_dir():
        raise ValueError(f"--plot {file}: a directory. Name a file in it, as {file / example}.")
    if not file.absolute().parent.is_dir():
        raise ValueError(
            f"--plot {file}: no directory {file.parent}. Make it first: mkdir -p {file.parent}"
        )
    if file.suffix.removeprefix(".").lower() not in kinds:
        raise ValueError(
            f"--plot {file}: figures are written as {', '.join(sorted(kinds))}. Try a name such as "
            f"{example}."
        )
