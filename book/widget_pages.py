"""A widget's page inside a page of the book: it takes the book's theme and says how high it is."""

TALK = """<script>
addEventListener("message", (event) => {
  if (event.data && event.data.theme) document.documentElement.dataset.theme = event.data.theme;
});
const tell = () => parent.postMessage({ height: document.documentElement.offsetHeight }, "*");
if (parent !== window) {
  parent.postMessage({ ready: true }, "*");
  new ResizeObserver(tell).observe(document.documentElement);
}
</script>
</body>"""


def framed(page: str) -> str:
    """The page, able to talk with the one that it stands in; alone it is what it was."""
    head, body, tail = page.rpartition("</body>")
    assert body, "an exported page ends with </body>"
    return head + TALK + tail
