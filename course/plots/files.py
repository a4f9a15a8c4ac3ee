"""The file that a command's --plot names: checked before the work, written after it."""

from __future__ import annotations

from pathlib import Path


def check_figure_file(file: Path, *, example: str) -> None:
    """Refuse a file to which no figure can be written, before anything is computed.

    Args:
        file: As the user typed it.
        example: A valid name, for the message.

    Raises:
        ValueError: It is a directory, its directory does not exist, or matplotlib cannot write this
        file type. (A name without an ending would silently get one, next to the requested file.)
    """
    from matplotlib.figure import Figure

    kinds = Figure().canvas.get_supported_filetypes()
    if file.is_dir():
        raise ValueError(
            f"--plot {file}: this is a directory. Name a file in it, e.g. {file / example}."
        )
    if not file.absolute().parent.is_dir():
        raise ValueError(
            f"--plot {file}: there is no directory {file.parent}. Create it first: mkdir -p "
            f"{file.parent}"
        )
    if file.suffix.removeprefix(".").lower() not in kinds:
        raise ValueError(
            f"--plot {file}: figures can be written as {', '.join(sorted(kinds))}. Try a name such "
            f"as {example}."
        )
