"""Formulas as MathML, which browsers render themselves, without scripts or extra fonts."""

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml


def inline(translator, node):
    translator.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def block(translator, node):
    translator.body.append(f"<div class='math'>{tex2mathml(node.astext(), as_block=True)}</div>")
    raise nodes.SkipNode


def setup(app):
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
