"""Draw the lecture's road with the notebooks over it: docs/pictures/road.svg.

A station is what happens to a batch; below it stands the room of `course` that does it, above it
the notebooks that teach it. The picture follows a reader's light or dark theme.
"""

from html import escape
from pathlib import Path

from autograde.kit.overview import overviews

TARGET = Path(__file__).resolve().parent.parent / "docs" / "pictures" / "road.svg"
STATIONS = {
    "data": "data/", "contract": "data/contract", "micro-batches": "engine/batches",
    "forward": "from_scratch/", "loss": "engine/loss_of", "backward": "from_scratch/tape",
    "clip": "engine/clipping", "step": "engine/step", "schedule": "engine/schedules",
    "evaluate": "engine/evaluation", "record": "engine/record", "curves": "analysis/curves",
    "errors": "analysis/errors",
}  # fmt: skip
TAUGHT = {
    "01a": ("forward", "backward"), "01b": ("forward", "loss"), "01c": ("contract", "step"),
    "02a": ("forward", "backward"), "03a": ("data", "curves"), "03b": ("data", "errors"),
    "03c": ("data", "micro-batches"), "03d": ("micro-batches", "step"),
    "03e": ("evaluate", "evaluate"), "03f": ("curves", "errors"), "03g": ("record", "record"),
    "03h": ("data", "errors"), "03i": ("data", "step"), "04a": ("step", "schedule"),
    "05": ("data", "errors"),
}  # fmt: skip
"""From which station to which, by the number of a notebook."""
COLUMN, LANE, EDGE = 92, 24, 8
LETTER = 6.2
"""Width of a letter of a label, at most."""
STYLE = """\
text { font: 12px system-ui, sans-serif; fill: #1f2328 }
.room { font: 10px ui-monospace, monospace; fill: #57606a }
.stop { font-size: 11.5px }
.station { fill: #ddf4ff; stroke: #0969da } .bar { fill: #0072b2 } .road { stroke: #57606a }
.on { fill: #ffffff }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .room { fill: #9ea7b3 } .station { fill: #0c2d4a; stroke: #58a6ff }
  .road { stroke: #9ea7b3 } .on { fill: #ffffff }
}
"""


def road() -> str:
    """The picture as SVG text."""
    rows = [(row.name.partition("-")[0], row.title) for row in overviews()]
    width = 2 * EDGE + COLUMN * len(STATIONS)
    top = EDGE + LANE * len(rows) + 10
    drawn = [_bar(lane, *row, width) for lane, row in enumerate(rows)]
    middle = top + 17
    drawn.append(
        f'<line class="road" x1="{EDGE}" y1="{middle}" x2="{width - EDGE}" y2="{middle}"/>'
    )
    drawn += [_station(column, *item, top) for column, item in enumerate(STATIONS.items())]
    height = top + 72
    about = (
        "The road of a batch from data to error analysis, and the notebooks that teach each part."
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{about}">\n<style>\n{STYLE}</style>\n' + "\n".join(drawn) + "\n</svg>\n"
    )


def _bar(lane: int, number: str, title: str, width: int) -> str:
    """A notebook over its stations; a label that is too long for it goes on beside it."""
    names = list(STATIONS)
    first, last = (names.index(name) for name in TAUGHT[number])
    x, y = EDGE + COLUMN * first + 3, EDGE + LANE * lane
    size = COLUMN * (last - first + 1) - 6
    label = f"{number} {title}"
    need = LETTER * len(label)
    kind, at, anchor = ' class="on"', x + 7, "start"
    if need > size - 10:
        kind = ""
        at, anchor = (x + size + 6, "start") if x + size + need < width else (x - 6, "end")
    return (
        f'<rect class="bar" x="{x}" y="{y}" width="{size}" height="{LANE - 5}" rx="4"/>'
        f'<text{kind} x="{at}" y="{y + 14}" text-anchor="{anchor}">{escape(label)}</text>'
    )


def _station(column: int, name: str, room: str, top: int) -> str:
    x, middle = EDGE + COLUMN * column + 3, EDGE + COLUMN * column + COLUMN / 2
    folder, _, module = room.partition("/")
    rooms = "".join(
        f'<text class="room" x="{middle}" y="{top + y}" text-anchor="middle">{part}</text>'
        for y, part in ((50, f"{folder}/"), (63, module))
        if part
    )
    return (
        f'<rect class="station" x="{x}" y="{top}" width="{COLUMN - 6}" height="34" rx="17"/>'
        f'<text class="stop" x="{middle}" y="{top + 21}" text-anchor="middle">{name}</text>'
        f"{rooms}"
    )


if __name__ == "__main__":
    TARGET.write_text(road(), "utf-8")
