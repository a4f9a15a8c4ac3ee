import { fmt, span } from "../base/plot.js";
import { mount, num } from "../base/base.js";

const LOOKS = { train: ["red", "s", [6, 4]], eval: ["blue", "o", []] };

// Bytes for people: kB from a thousand on.
export const bytes = (count) => (count >= 1000 ? `${fmt(count / 1000, 3)} kB` : `${fmt(count)} B`);

// Example 0's units, a row per forward pass; the oldest on top.
function drawUnits(g, shown, most) {
  const rows = shown.units.length, columns = shown.units[0].length;
  g.axes({ x: [-0.5, columns - 0.5], y: [-most + 0.5, 0.5], noGrid: true, xTicks: [...Array(columns).keys()],
    yTicks: [...Array(most).keys()].map((i) => -i), yNames: Object.fromEntries([...Array(most).keys()].map((i) => [-i, String(i + 1)])),
    xLabel: "unit", yLabel: "forward pass" });
  for (let i = 0; i < rows; i += 1) {
    for (let k = 0; k < columns; k += 1) {
      const value = num(shown.units[i][k]), gone = shown.dropped[i][k];
      g.rect(k - 0.5, -i - 0.5, k + 0.5, -i + 0.5, { color: "bg" });
      if (!gone) g.rect(k - 0.47, -i - 0.45, k + 0.47, -i + 0.45, { color: value < 0 ? "orange" : "blue", alpha: Math.min(0.55, 0.12 + Math.abs(value) / 4) });
      g.text(k, -i, gone ? "×" : value.toFixed(1).replace("-0.0", "0.0").replace("-", "−"), { size: gone ? 14 : 11, color: gone ? "muted" : "fg", bold: Boolean(gone) });
    }
  }
}

export default mount((ui) => {
  const numbers = ui.table("What was measured", { wide: true });
  const grids = Object.fromEntries(Object.keys(LOOKS).map((mode) =>
    [mode, ui.plot(mode === "train" ? "Train: units of example 0 (×: dropped)" : "Eval: units of example 0", { height: 330 })]));
  const outputs = ui.plot("Output for the same example", { height: 250 });
  const memory = ui.plot("BatchNorm's running mean, one unit", { height: 250 });
  const kept = ui.plot("Kept for backward", { height: 230, wide: true });
  const most = ui.about.controls.find((one) => one.name === "passes").values.at(-1);
  return (frame, settings) => {
    const { modes } = frame;
    numbers({
      head: ["copy", "different outputs", "spread", "running mean moved by", "kept for backward"],
      rows: Object.entries(modes).map(([mode, shown]) => [`model.${mode}()`, `${shown.different} in ${settings.passes}`, num(shown.spread), num(shown.moved), bytes(frame.now[mode])]),
    });
    Object.entries(grids).forEach(([mode, plot]) => plot.draw((g) => drawUnits(g, modes[mode], most)));
    const passes = modes.train.outputs.map((_, i) => i + 1);
    outputs.draw((g) => {
      const y = span([...modes.train.outputs, ...modes.eval.outputs], 0.12);
      g.axes({ x: [0.5, most + 0.5], y: [Math.min(y[0], -1), Math.max(y[1], 1)], xTicks: [2, 4, 6, 8, 10, 12], xLabel: "forward pass", yLabel: "output" });
      Object.entries(LOOKS).forEach(([mode, [color, marker, dash]]) => g.line(passes, modes[mode].outputs, { color, marker, dash, name: mode }));
    });
    memory.draw((g) => {
      const y = span([...modes.train.means, ...modes.eval.means, frame.centre, 0], 0.12);
      g.axes({ x: [-0.5, most + 0.5], y, xTicks: [0, 2, 4, 6, 8, 10, 12], xLabel: "forward passes done", yLabel: "running mean" });
      g.rule({ y: num(frame.centre), dash: [2, 3], name: "mean of the data" });
      Object.entries(LOOKS).forEach(([mode, [color, marker, dash]]) => g.line([0, ...passes], modes[mode].means, { color, marker, dash, name: mode }));
    });
    kept.draw((g) => {
      const all = [["grad", "with a graph"], ["no_grad", "under no_grad()"]];
      const top = Math.max(...Object.values(frame.kept).map((one) => one.grad)) / 1000 * 1.45;
      g.axes({ x: [-0.6, 3.6], y: [0, top], noGrid: true, xTicks: [0, 1, 2, 3], xNames: { 0: "train", 1: "eval", 2: "train", 3: "eval" }, yLabel: "kB" });
      all.forEach(([key, words], group) => {
        const on = settings.no_grad === (key === "no_grad");
        Object.keys(LOOKS).forEach((mode, i) => {
          const x = 2 * group + i, count = frame.kept[mode][key];
          g.rect(x - 0.3, 0, x + 0.3, count / 1000, { color: LOOKS[mode][0], alpha: on ? 1 : 0.4, rim: on ? "fg" : undefined });
          g.text(x, count / 1000, bytes(count), { dy: -9, bold: on });
        });
        g.text(2 * group + 0.5, top, words, { dy: 14, bold: on });
      });
    });
  };
});
