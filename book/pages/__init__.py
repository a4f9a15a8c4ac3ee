"""The pages as Markdown, each a function of what was found out: the evidence in, text out."""
