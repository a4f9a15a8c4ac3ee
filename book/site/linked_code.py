"""Our names in the code of notebooks become links into the reference."""

from functools import partial

from book.pages.code_links import with_links


def linked(app, pagename, templatename, context, doctree):
    if pagename.startswith("notebooks/") and "body" in context:
        context["body"] = with_links(context["body"], partial(address, app, pagename))


def address(app, pagename, name):
    """The link from a page to a dotted name; None if the reference does not have it."""
    there = app.env.domains["py"].objects.get(name)
    if there is None:
        return None
    return f"{app.builder.get_relative_uri(pagename, there.docname)}#{there.node_id}"


def setup(app):
    app.connect("html-page-context", linked)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
