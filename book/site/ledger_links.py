"""Ids in prose and docstrings become links to their pages; an id without a page fails the build."""

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform

from book.pages.text import known
from course.ledger.homes import ID, named

PLAIN = (nodes.reference, nodes.literal, nodes.literal_block, nodes.title, nodes.raw)
"""Inside these an id stays text."""


class LedgerLinks(SphinxPostTransform):
    default_priority = 700

    def run(self, **_):
        here = self.env.docname
        for text in list(self.document.findall(nodes.Text)):
            if _inside(text) or not ID.search(text):
                continue
            pieces = list(self._pieces(str(text), here))
            if any(isinstance(piece, nodes.reference) for piece in pieces):
                text.parent.replace(text, pieces)

    def _pieces(self, text, here):
        last = 0
        for found in ID.finditer(text):
            ids = named(found[0])
            ends = [ids[0], ids[-1]] if len(ids) > 1 else ids
            if not set(ends) <= known():
                continue
            yield nodes.Text(text[last : found.start()])
            for place, id_ in enumerate(ends):
                if place:
                    yield nodes.Text("–")
                uri = self.app.builder.get_relative_uri(here, f"id/{id_}")
                yield nodes.reference("", id_, internal=True, refuri=uri, classes=["ledger-id"])
            last = found.end()
        yield nodes.Text(text[last:])


def _inside(node):
    while node is not None:
        if isinstance(node, PLAIN):
            return True
        node = node.parent
    return False


def setup(app):
    app.add_post_transform(LedgerLinks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
