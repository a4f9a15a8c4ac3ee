"""Sphinx configuration of the book: offline, light and dark, nothing executed (see evidence.py)."""

import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))  # the folder is copied into what is built, with what lies in it
ABOUT = json.loads((HERE / "about.json").read_text("utf-8"))

project = "Training deep networks in practice"
author = ""
html_title = "Deep training"
language = "en"
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "plain_docstrings",
    "ledger_links",
    "linked_code",
    "mathml",
]
exclude_patterns = ["_static", "_templates", "extra"]
default_role = "py:obj"  # a docstring's `name` leads to its reference where there is one
nitpicky = False

nb_execution_mode = "off"
nb_ipywidgets_js = {}
nb_merge_streams = True
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
myst_heading_slug_func = "book.slugs.slug"

autodoc_inherit_docstrings = False  # torch's own are on torch's pages
autodoc_typehints = "signature"
autodoc_default_options = {"exclude-members": "__init__, __post_init__, __new__"}
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_custom_sections = ["Returns", "Yields"]  # a sentence with a colon in it, not a type
python_use_unqualified_type_names = True
# Docstrings are read as plain prose; what a terminal shows as it is need not be markup.
suppress_warnings = [
    "docutils",
    "ref.python",
    "myst.header",
    "myst.xref_missing",
    "autodoc",
    "misc.highlighting_failure",
]

html_theme = "pydata_sphinx_theme"
html_math_renderer = "mathml"
html_static_path = ["_static"]
templates_path = ["_templates"]
html_extra_path = ["extra"]  # copied as it is
html_css_files = ["book.css"]
html_js_files = [("book.js", {"defer": "defer"})]
html_show_sourcelink = False
html_copy_source = False
html_show_search_summary = False
ALONE = ("index", "about", "bugs", "claims", "numbers", "verdicts", "id/*", "api/*")
"""Pages without others beside them in a section: a sidebar would be empty."""
html_sidebars = {page: [] for page in ALONE}
html_context = {"default_mode": "auto", "made_on": ABOUT}
html_theme_options = {
    "navbar_center": ["navbar-nav"],
    "header_links_before_dropdown": 6,
    "show_prev_next": True,
    "footer_start": ["made-on"],
    "footer_end": [],
    "secondary_sidebar_items": {
        f"{folder}/*": ["page-toc"] for folder in ("parts", "notebooks", "exercises")
    },
    "back_to_top_button": False,
    "navigation_with_keys": False,
}
