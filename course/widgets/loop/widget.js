import { fmt } from "../base/plot.js";
import { mount, num } from "../base/base.js";

const LINES = { "bare loop": ["grey", "^", [2, 4]], "legal order": ["green", "s", [7, 4]], "as written": ["blue", "o", []] };

// What torch warned of, and what an order lacks to be written at all.
export const remark = ({ lacking, warned, log, updates, batches }) => [
  updates < batches ? `${updates} updates per epoch instead of ${batches}, at the same learning rate, so it learns less than the bare loop.` : "",
  lacking.length ? `This order differs from the legal one only with ${lacking.join(" and ")}.` : "",
  warned ? `torch warns: ${warned}.` : "",
  log ? `The log's last line: ${log}.` : "",
].filter(Boolean).join(" ");

export default mount((ui) => {
  const numbers = ui.readouts();
  const code = ui.code("The code that runs: ▸ lines of the chosen parts", { wide: true });
  const note = ui.text("", { wide: true });
  const losses = ui.plot("Its run on 100 digits: validation loss after each epoch", { height: 280, wide: true });
  const parts = ui.table("The cost of each part (marked: chosen)", { wide: true });
  return (frame) => {
    const runs = frame.losses, last = (name) => fmt(num(runs[name].at(-1)), 3);
    numbers([
      ["lines", frame.code.length, `bare: ${frame.bare_lines}`], ["updates per epoch", frame.updates],
      ["last validation loss", last("as written")], ["of the bare loop", last("bare loop")],
      ["gap to the legal order", fmt(num(frame.order_gap), 2), "in a weight"],
      ["gap to a second run", fmt(num(frame.repeat_gap), 2), "in a weight"],
    ]);
    code(frame.code, frame.marked);
    note(remark(frame));
    losses.draw((g) => {
      const all = Object.values(runs).flat().map(num);
      g.axes({ x: [0.5, Math.max(...Object.values(runs).map((one) => one.length)) + 0.5], y: [0, 1.1 * Math.max(...all)],
        xTicks: [2, 4, 6, 8], xLabel: "epoch", yLabel: "validation loss" });
      for (const [name, [color, marker, dash]] of Object.entries(LINES)) {
        g.line(runs[name].map((_, i) => i + 1), runs[name], { color, marker, dash, name });
      }
    });
    parts({
      head: ["part", "lines (chapter)", "costs", "prevents"],
      rows: frame.parts.map((one) => [one.name, `${one.lines} (${one.chapter_lines})`, one.costs, one.prevents]),
      mark: (i) => frame.parts[i].on,
    });
  };
});
