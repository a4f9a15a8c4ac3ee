"""Ids in prose and docstrings become links to their pages; an id without a page fails the build."""

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform

from book.pages.text import pieces

PLAIN = (nodes.reference, nodes.literal, nodes.literal_block, nodes.title, nodes.raw)
"""Inside these, an id stays plain text."""


class LedgerLinks(SphinxPostTransform):
    default_priority = 700

    def run(self, **_):
        for text in list(self.document.findall(nodes.Text)):
            found = [] if _inside(text) else list(pieces(str(text)))
            if len(found) > 1:
                text.parent.replace(text, [node for piece in found for node in self._nodes(piece)])

    def _nodes(self, piece):
        if isinstance(piece, str):
            yield nodes.Text(piece)
            return
        for place, id_ in enumerate(piece):
            if place:
                yield nodes.Text("–")
            uri = self.app.builder.get_relative_uri(self.env.docname, f"id/{id_}")
            yield nodes.reference("", id_, internal=True, refuri=uri, classes=["ledger-id"])


def _inside(node):
    while node is not None:
        if isinstance(node, PLAIN):
            return True
        node = node.parent
    return False


def setup(app):
    app.add_post_transform(LedgerLinks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
