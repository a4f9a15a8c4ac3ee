"""A widget as one HTML page without a kernel or other files, for a book, a slide or an e-mail.

The page has the widget's own module and, instead of a kernel, the frames of all its states: every
combination of its settings, or recorded runs with their frames. Equal values are stored once and
the whole is compressed, so that some thousand states fit. Without JavaScript, or in print if the
page could not start, the twin's picture is shown.
"""

from __future__ import annotations

import base64
import gzip
import html
import json
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from course.widgets.base.bundle import bundle, module, style
from course.widgets.base.frames import as_frame

if TYPE_CHECKING:
    from course.widgets.base.widget import CourseWidget

LARGEST = 500_000
"""Largest size of a page in bytes."""
MOST_STATES = 6000

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
{colours}
{style}
</style>
</head>
<body>
<main id="widget"><img src="data:image/png;base64,{picture}" alt="{says}"></main>
<script type="module">
{script}
$page.start(widget, document.getElementById("widget"), "{data}");
</script>
</body>
</html>
"""

COLOURS = """
:root { color-scheme: light dark; --jp-layout-color1: #ffffff; --jp-ui-font-color1: #1c1c1c; }
@media (prefers-color-scheme: dark) {
:root:not([data-theme=light]) { --jp-layout-color1: #16181c; --jp-ui-font-color1: #eceff1; }
}
:root[data-theme=light] { color-scheme: light; }
:root[data-theme=dark] {
color-scheme: dark; --jp-layout-color1: #16181c; --jp-ui-font-color1: #eceff1;
}
@media print {
:root:not([data-theme]) {
color-scheme: light; --jp-layout-color1: #ffffff; --jp-ui-font-color1: #1c1c1c;
}
}
body {
margin: 0; padding: 8px; background: var(--jp-layout-color1); color: var(--jp-ui-font-color1);
}
main { max-width: 1040px; margin: 0 auto; }
main > img { max-width: 100%; background: white; }
"""


def export(widget: CourseWidget, path: Path) -> Path:
    """Write the page.

    Raises:
        ValueError: The page would be too large; the message says what to leave out.
    """
    text = page_of(widget)
    if (size := len(text.encode())) > LARGEST:
        raise ValueError(
            f"{widget.id} as a page takes {size / 1000:.0f} kB, more than {LARGEST / 1000:.0f}. "
            "List fewer values in its `exported`, or record fewer frames."
        )
    path.write_text(text, "utf-8")
    return path


def page_of(widget: CourseWidget) -> str:
    """The page's text."""
    packed = gzip.compress(json.dumps(page_data(widget), ensure_ascii=False).encode(), 9, mtime=0)
    own = bundle(widget.script()).replace("export default ", "const widget = ")
    return PAGE.format(
        title=html.escape(widget.title),
        colours=COLOURS.strip(),
        style=style(),
        picture=base64.b64encode(widget.picture()).decode(),
        says=html.escape(widget.view["says"], quote=True),
        script=own + "\n" + module("page"),
        data=base64.b64encode(packed).decode(),
    )


def page_data(widget: CourseWidget) -> dict[str, Any]:
    """All states of the page; `table` stores equal values once, and rows hold their indices."""
    controls, states = widget.pages()
    table: dict[str, int] = {}

    def place(value: Any) -> int:
        return table.setdefault(json.dumps(value, ensure_ascii=False), len(table))

    keys: list[str] = []
    rows: list[list[int] | str] = []
    for state in states:
        if isinstance(state, str):
            rows.append(state)
            continue
        state["scene"] = place(state["scene"])
        keys = keys or list(state)
        rows.append([place(state[key]) for key in keys])
    settings = as_frame(widget.state.to_json(), digits=9)
    names = [control["name"] for control in controls]
    return {
        "about": {**widget.about, "controls": controls, "buttons": [], "level": 1}
        | ({"player": "moment"} if "moment" in names else {}),
        "start": {control["name"]: control["start"] for control in controls},
        "fixed": {name: value for name, value in settings.items() if name not in names},
        "keys": keys,
        "table": [json.loads(text) for text in table],
        "states": rows,
    }


def enumerated(widget: CourseWidget) -> tuple[list[dict[str, Any]], list[dict[str, Any] | str]]:
    """Controls and states of a widget whose frame depends only on its settings.

    Raises:
        ValueError: There are too many states.
    """
    controls = widget.settings_type.controls()
    values = {name: tuple(widget.exported.get(name, controls[name].values)) for name in controls}
    if widget.exported:
        values = {name: values[name] for name in controls if name in widget.exported}
    count = 1
    for several in values.values():
        count *= len(several)
    if count > MOST_STATES:
        raise ValueError(
            f"{widget.id} has {count} states, more than {MOST_STATES}. List in `exported` the "
            "settings that its page should have, and their values."
        )
    now, states = widget.state.to_json(), []
    for chosen in product(*values.values()):
        changes = dict(zip(values, chosen, strict=True))
        try:
            settings = widget.state.changed(**changes)
        except ValueError as fault:
            states.append(str(fault))
            continue
        frame = type(widget).frame_of(settings)
        states.append(one_state(widget, settings, frame, fixed={}))
    shown = []
    for name, several in values.items():
        control = controls[name].to_json(name)
        if control.get("names"):
            all_values = controls[name].values
            control["names"] = [control["names"][all_values.index(value)] for value in several]
        start = now[name] if now[name] in several else several[0]
        shown.append(control | {"values": list(several), "start": start})
    return shown, states


def one_state(
    widget: CourseWidget, settings: Any, frame: dict[str, Any], *, fixed: dict[str, Any]
) -> dict[str, Any]:
    """What the page's model needs of one state."""
    plain = as_frame(frame, digits=5)
    fast = {key: value for key, value in plain.items() if key not in widget.slow}
    slow = {key: plain[key] for key in widget.slow}
    says = type(widget).says(settings, plain)
    return {**fast, "scene": slow, "says": says, "fixed": fixed}


def recorded(widget: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any] | str]]:
    """Controls and states of a widget that trains: a recording to choose, and its frames."""
    moments, steps = widget.moments
    names, states = list(widget.recordings), []
    for changes in widget.recordings.values():
        settings = widget.state.changed(**changes)
        run = widget.run_type(settings)
        for moment in range(moments):
            for _ in range(steps if moment else 0):
                if not run.stopped:
                    run.step()
            fixed = as_frame(settings.to_json(), digits=9)
            states.append(one_state(widget, settings, run.frame(), fixed=fixed))
    controls = [
        {"name": "recording", "kind": "choice", "label": "recorded run",
         "values": list(range(len(names))), "names": names, "start": 0},
        {"name": "moment", "kind": "slider", "label": "after", "unit": "updates",
         "values": [moment * steps for moment in range(moments)],
         "start": (moments // 3) * steps},
    ]  # fmt: skip
    return controls, states
