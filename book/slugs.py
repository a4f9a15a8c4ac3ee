"""Headings and their addresses, the same in notebooks and on the pages of parts and exercises."""

import re


def headings(markdown: str) -> list[str]:
    """The headings of a Markdown text down to the third level, in order."""
    return re.findall(r"^#{1,3} (.+)$", markdown, re.MULTILINE)


def slug(heading: str) -> str:
    """`3c.2 What a batch is` becomes `at-3c-2-what-a-batch-is`."""
    letters = "".join(letter if letter.isalnum() else "-" for letter in heading.lower())
    return "at-" + "-".join(filter(None, letters.split("-")))
