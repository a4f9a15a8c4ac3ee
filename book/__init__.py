"""The reader's book: the whole course as pages that need no server, no network and no kernel.

    python -m book            # `make book`, `course book`; into build/book/

evidence.py runs what the pages show (numbers, claims, bugs, widgets, notebooks), each in a process
of its own and only where something that it rests on has changed; pages/ writes it as Markdown in
the lecture's order (parts.toml); Sphinx makes pages of that with site/; links.py follows every
link; build.py puts the whole in place, or nothing.
"""

from course.startup import put_off_addresses

put_off_addresses()  # before nbformat
