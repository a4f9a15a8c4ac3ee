"""Addresses of headings: the same in notebooks, on parts' pages and on exercises' pages."""


def slug(heading: str) -> str:
    """`3c.2 What a batch is` becomes `at-3c-2-what-a-batch-is`."""
    letters = "".join(letter if letter.isalnum() else "-" for letter in heading.lower())
    return "at-" + "-".join(filter(None, letters.split("-")))
