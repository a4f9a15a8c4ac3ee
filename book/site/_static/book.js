// Frames take the page's theme and their own height; a printed page is light and unfolded.
const frames = () => [...document.querySelectorAll("iframe.widget")];
const theme = () => document.documentElement.dataset.theme || "light";

addEventListener("message", (event) => {
  const frame = frames().find((one) => one.contentWindow === event.source);
  if (!frame || !event.data) return;
  if (event.data.ready) frame.contentWindow.postMessage({ theme: theme() }, "*");
  if (event.data.height) frame.style.height = `${Math.ceil(event.data.height) + 2}px`;
});

new MutationObserver(() => {
  for (const frame of frames()) frame.contentWindow.postMessage({ theme: theme() }, "*");
}).observe(document.documentElement, { attributeFilter: ["data-theme"] });

addEventListener("beforeprint", () => {
  document.documentElement.dataset.theme = "light";
  for (const one of document.querySelectorAll("details")) one.open = true;
});

// A link to an id that stands in a fold opens the fold.
const unfold = () => {
  const there = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (there) for (let one = there; one; one = one.parentElement) if (one.tagName === "DETAILS") one.open = true;
};
addEventListener("hashchange", unfold);
unfold();

document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
  const button = document.querySelector(".search-button__button");
  if (button) { event.preventDefault(); button.click(); }
});

// What scrolls by itself can be reached by keyboard, at every width.
const reachable = () => {
  for (const one of document.querySelectorAll("article pre, article [style*=overflow-x]")) one.tabIndex = 0;
};
addEventListener("load", () => setTimeout(reachable));
addEventListener("resize", () => setTimeout(reachable));
