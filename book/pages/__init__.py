"""The pages as Markdown, each a function of the results: evidence in, text out."""
