import { fmt } from "../base/plot.js";
import { mount, num } from "../base/base.js";

// Forward is blue, backward orange, the update green, as on the lecture's picture.
const STAGES = {
  zero_grad: ["clears", "grey"], forward: ["forward", "blue"], loss: ["forward", "blue"],
  backward: ["backward", "orange"], step: ["update", "green"], schedule: ["update", "green"],
};

const BOXES = [
  ["inputs", 0, 1], ["model", 1, 1], ["outputs", 2, 1], ["loss", 3, 1],
  [".grad", 1, 0], ["optimizer", 2, 0], ["scheduler", 3, 0],
];

// Which arrows an operation travels, as pairs of box names.
export const ROADS = {
  zero_grad: [["optimizer", ".grad"]],
  forward: [["inputs", "model"], ["model", "outputs"]],
  loss: [["outputs", "loss"]],
  backward: [["loss", "outputs"], ["outputs", "model"], ["model", ".grad"]],
  step: [[".grad", "optimizer"], ["optimizer", "model"]],
  schedule: [["scheduler", "optimizer"]],
};

export default mount((ui) => {
  const code = ui.code("The code: the line that has just run");
  const flow = ui.plot("What each object passes on", { height: 190 });
  const does = ui.text("", { wide: true });
  const tensors = ui.tensors("Tensors after that (thin: unchanged, blue: new, double: changed, dashed: none yet)", { wide: true });
  const loss = ui.plot("Loss with the current weights", { height: 200 });
  const numbers = ui.table("The loss, update by update");
  return (frame, settings) => {
    code(frame.code, frame.line === null ? [] : [frame.line]);
    const [stage, color] = STAGES[frame.operation] ?? ["", "grey"];
    flow.draw((g) => {
      g.axes({ x: [-0.55, 3.55], y: [-0.6, 1.6], bare: true });
      const at = Object.fromEntries(BOXES.map(([name, x, y]) => [name, [x, y]]));
      for (const [from, to] of ROADS[frame.operation] ?? []) {
        const [a, b] = [at[from], at[to]];
        const part = (end, other, by) => end + (other - end) * by;
        const by = a[1] === b[1] ? 0.4 : 0.3;
        g.arrow(part(a[0], b[0], by), part(a[1], b[1], by), part(b[0], a[0], by), part(b[1], a[1], by), { color });
      }
      const lit = new Set((ROADS[frame.operation] ?? []).flat());
      BOXES.forEach(([name, x, y]) => {
        g.rect(x - 0.38, y - 0.27, x + 0.38, y + 0.27, { color: lit.has(name) ? color : "line", alpha: lit.has(name) ? 0.25 : 0.5, rim: lit.has(name) ? color : "muted" });
        g.text(x, y, name, { bold: lit.has(name) });
      });
      if (stage) g.text(0, 0, stage, { bold: true, color, size: 14 });
    });
    does(frame.operation ? `${frame.operation}: ${frame.does}.` : "Nothing has run yet: press Step. .grad does not exist before the first backward().");
    tensors(frame.tensors);
    loss.draw((g) => {
      const losses = frame.losses.map(num), top = Math.max(...losses) * 1.15;
      g.axes({ x: [0, Math.max(2, losses.length - 1)], y: [0, top], xTicks: [...Array(Math.max(3, losses.length)).keys()],
        xLabel: "update", yLabel: "loss" });
      g.line(losses.map((_, i) => i), losses, { marker: "o", name: `lr ${fmt(settings.lr)}` });
    });
    numbers({ head: ["after update", "loss"], rows: frame.losses.map((value, i) => [i, value]), mark: (i) => i === frame.losses.length - 1 });
  };
});
