import { fmt, span } from "../base/plot.js";
import { mount, num } from "../base/base.js";

const LINES = { CPU: ["blue", "o", []], GPU: ["red", "s", [6, 4]], loader: ["green", "^", [2, 4]] };

// Bytes in GB, or in MB where that reads better.
export const size = (gb) => (gb >= 0.1 ? `${fmt(gb, 3)} GB` : `${fmt(gb * 1000, 3)} MB`);

export default mount((ui) => {
  const answer = ui.text("The answer", { wide: true });
  const questions = ui.table("Three questions; the first “no” decides", { wide: true });
  const numbers = ui.readouts();
  const times = ui.plot("Time per example", { height: 280 });
  const memory = ui.plot("Memory of the step on the GPU", { height: 280 });
  const parts = ui.table("What the memory holds");
  return (frame, settings) => {
    answer(frame.answer.says);
    questions({
      head: ["question", "", "the numbers"],
      rows: frame.questions.map((one) => [one.asks, one.yes ? "✓ yes" : "× no", one.says]),
      mark: (i) => i === frame.answer.stops,
    });
    numbers([
      ["weights", frame.parameters], ["operations in a step", frame.operations],
      ["arithmetic in a step", Number((num(frame.flops) / 1e9).toPrecision(3)), "GFLOP"],
      ["GPU against CPU, step", fmt(num(frame.gain), 3), "×"], ["with the loader", fmt(num(frame.loop_gain), 3), "×"],
      ["largest batch that fits", frame.largest, "examples"],
    ]);
    const { batches, curves } = frame;
    const across = (g) => ({ x: [batches[0] / 1.4, batches.at(-1) * 1.4], xLog: true, yLog: true, xTicks: g.width < 420 ? [1, 16, 256, 4096] : batches,
      xNames: { 1024: "1,024", 4096: "4,096" }, xLabel: "batch size, examples" });
    times.draw((g) => {
      const all = Object.values(curves).flat().map(num);
      g.axes({ ...across(g), y: span(all, 0.08, true), yLabel: "ms per example" });
      g.rule({ x: settings.batch_size, color: "fg", dash: [], width: 1, name: `batch of ${fmt(settings.batch_size)}` });
      Object.entries(LINES).forEach(([name, [color, marker, dash]]) =>
        g.line(batches, curves[name], { color, marker, dash, name: name === "GPU" ? settings.gpu : name }));
    });
    memory.draw((g) => {
      g.axes({ ...across(g), y: span([...frame.needs, frame.without_batch, frame.capacity].map(num), 0.08, true), yLabel: "GB on the GPU" });
      g.rule({ x: settings.batch_size, color: "fg", dash: [], width: 1 });
      g.rule({ y: num(frame.without_batch), color: "orange", dash: [8, 3, 2, 3], width: 2, name: "weights, gradients, optimizer" });
      g.rule({ y: num(frame.capacity), color: "fg", name: "usable" });
      g.line(frame.batches, frame.needs, { color: "purple", marker: "D", name: "needed" });
    });
    parts({
      head: ["part", "size", "share"],
      rows: Object.entries(frame.memory).map(([name, gb]) => [name, size(num(gb)), `${fmt(100 * num(gb) / num(frame.needed), 3)} %`]),
    });
  };
});
