import { fmt } from "../base/plot.js";
import { mount } from "../base/base.js";

// A number or a vector, short.
export const shown = (value) => (Array.isArray(value) ? `[${value.map(shown).join(", ")}]` : fmt(value, 3));

// What stands under ".grad": nothing can come, nothing has come, or the sum.
export const gradOf = (box) => (box.grad !== null ? shown(box.grad) : box.leaf && !box.asks ? "not required" : "None");

const savedOf = (box) => (!box.reached || box.leaf ? "" : box.saved === null ? "freed" : box.saved.length ? `${box.saved.join(", ")} kept` : "nothing");

function drawGraph(g, { boxes, edges, handed, event }) {
  const at = Object.fromEntries(boxes.map((box) => [box.name, box.at]));
  const right = Math.max(...boxes.map((box) => box.at[0]));
  g.axes({ x: [-0.55, right + 0.55], y: [-1.75, 0.95], bare: true, spill: true });
  const cell = (g.width - 8) / (right + 1.1), tall = (g.height - 16) / 2.7;
  const cut = (a, b) => {
    const [dx, dy] = [(b[0] - a[0]) * cell, (b[1] - a[1]) * tall];
    const by = Math.min(0.45, 21 / Math.hypot(dx, dy));
    return [a[0] + (b[0] - a[0]) * by, a[1] + (b[1] - a[1]) * by];
  };
  edges.forEach(({ from, to, taped }) => {
    const [a, b] = [at[from], at[to]];
    const back = event && to === event.name && handed.includes(from);
    const ends = back ? [...cut(b, a), ...cut(a, b)] : [...cut(a, b), ...cut(b, a)];
    g.arrow(...ends, back ? { color: "orange", width: 4 } : { color: taped ? "blue" : "grey", width: 1.5, dash: taped ? [] : [3, 3] });
  });
  boxes.forEach((box) => {
    const [x, y] = box.at, up = y >= 0;
    const color = box.running ? "orange" : box.ran ? "line" : "bg";
    g.points([x], [y], { marker: box.leaf ? "s" : "o", size: 17, color, rim: !box.reached ? "muted" : box.running ? "orange" : "blue" });
    g.text(x, y, box.symbol, { bold: true, color: box.running ? "bg" : box.reached ? "fg" : "muted", size: box.symbol.length > 3 ? 11 : 14 });
    const value = shown(box.value), narrow = cell < 62;
    const lines = box.leaf ? [[value]] : narrow ? [[box.name], [value]] : [[`${box.name} ${value}`]];
    if (box.arrived !== null) lines.push([`← ${shown(box.arrived)}`, "orange", true]);
    if (box.grad !== null) lines.push([`.grad ${shown(box.grad)}`, "fg", true]);
    else if (box.leaf && box.asks && !narrow) lines.push([".grad None", "muted"]);
    if (!box.leaf && !box.reached) lines.push(["not on it", "muted"]);
    const side = x === 0 && cell < 100 ? { align: "left", dx: 1 - 0.55 * cell } : {};
    lines.forEach(([words, shade, bold], i) => g.text(x, y, words,
      { color: shade, bold, ...side, dy: up ? -27 - 15 * (lines.length - 1 - i) : 28 + 15 * i }));
  });
}

export default mount((ui) => {
  const numbers = ui.readouts();
  const graph = ui.plot("The graph: ■ leaf, ● operation; ← the gradient that has flowed back; dashed: no gradient flows there", { height: 270, wide: true });
  const does = ui.text("", { wide: true });
  const code = ui.code("The code: ▸ the line that the node belongs to");
  const tensors = ui.table("Every tensor and its node");
  return (frame) => {
    const { event, boxes } = frame;
    const gives = event?.handed.map(([, value]) => shown(value)).join(" and ");
    numbers([
      ["backward pass", event ? event.round : "not begun"], ["node", event?.number ?? 0, `of ${frame.of}`],
      ["receives", event ? shown(event.received) : "nothing"],
      ["passes on", event?.error ? "error" : gives || "nothing"],
    ]);
    does(frame.does);
    graph.draw((g) => drawGraph(g, frame));
    code(frame.code, frame.line === null ? [] : [frame.line]);
    tensors({
      head: ["tensor", "made by", "saves", ".grad"],
      rows: boxes.map((box) => [box.name, box.node || "a leaf", savedOf(box), gradOf(box)]),
      mark: (i) => boxes[i].running,
    });
  };
});
