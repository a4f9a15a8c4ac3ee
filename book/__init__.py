"""The book: the whole course as pages that need no server, network or kernel.

    python -m book            # `make book`, `course book`; into build/book/

evidence.py runs what the pages show (numbers, claims, bugs, widgets, notebooks), each in its own
process and only if something it depends on has changed; pages/ writes it as Markdown in the
lecture's order (parts.toml); Sphinx turns that into pages with site/; links.py checks every link;
build.py puts the complete book in place, or nothing.
"""

from course.startup import put_off_addresses

put_off_addresses()  # before nbformat
