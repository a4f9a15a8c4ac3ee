"""A widget's page inside a page of the book: it follows the book's theme and reports its height."""

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
    """The page, able to communicate with the page around it; on its own it is unchanged."""
    head, body, tail = page.rpartition("</body>")
    assert body, "an exported page ends with </body>"
    return head + TALK + tail
