import { fmt, span } from "../base/plot.js";
import { mount, num } from "../base/base.js";

const LOOKS = [["blue", [], "o"], ["red", [7, 4], "s"]];

// What the second scheduler's length and its calls make of each other.
export function sentence(run) {
  if (run.stopped) return `The second is ${fmt(run.length)} steps long, and step ${fmt(run.rates.length)} raised ${run.stopped}`;
  if (run.calls > run.length) return `The second is ${fmt(run.length)} steps long and is stepped ${fmt(run.calls)} times: its end comes after ${fmt(run.length)} updates.`;
  if (run.calls < run.length) return `The second is ${fmt(run.length)} steps long and is stepped ${fmt(run.calls)} times: the run ends ${fmt(100 * run.calls / run.length)} % of the way along it.`;
  return `The second is ${fmt(run.length)} steps long and is stepped ${fmt(run.calls)} times, as it should be.`;
}

export default mount((ui) => {
  const summary = ui.table("Both runs: the same start, the same batches, one seed", { wide: true });
  const rates = ui.plot("Learning rate at each update", { height: 290 });
  const losses = ui.plot("Training loss, mean of each epoch", { height: 290 });
  const note = ui.text("", { wide: true });
  return (frame, settings) => {
    const { runs, updates } = frame;
    const at = (run, update) => num(run.rates[update - 1] ?? "NaN");
    summary({
      head: ["run", "first rate", "rate halfway", "last rate", "mean rate / highest", "last epoch's loss", "validation accuracy"],
      rows: runs.map((run, i) => [`${i ? "second" : "first"}: ${run.name}`.replaceAll(" ", "\u00a0"), at(run, 1), at(run, updates / 2), num(run.rates.at(-1)), num(run.share),
        num(run.losses.at(-1)), `${fmt(num(run.accuracy) * 100, 3)} %`]).map((row) => row.map((one) => (typeof one === "number" ? (Number.isNaN(one) ? "–" : fmt(one, 3).replace("e-", "e\u2011")) : one))),
    });
    rates.draw((g) => {
      g.axes({ x: [0, updates], y: [0, settings.lr * 1.08], xLabel: "update", yLabel: "learning rate" });
      runs.forEach((run, i) => {
        const [color, dash] = LOOKS[i];
        g.line(run.rates.map((_, k) => k + 1), run.rates, { color, dash, width: 2.5, name: `${i ? "second" : "first"}: ${run.name}` });
        if (run.stopped) g.points([run.rates.length], [num(run.rates.at(-1))], { color, marker: "x", size: 6, name: "raises" });
      });
    });
    losses.draw((g) => {
      const epochs = updates / 20, y = span(runs.flatMap((run) => run.losses), 0.08, true);
      const yTicks = [0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2].filter((v) => v >= y[0] && v <= y[1]);
      g.axes({ x: [0.7, epochs + 0.3], y, yLog: true, yTicks, xTicks: [...Array(epochs).keys()].map((k) => k + 1), xLabel: "epoch", yLabel: "loss" });
      runs.forEach((run, i) => {
        const [color, dash, marker] = LOOKS[i];
        g.line(run.losses.map((_, k) => k + 1), run.losses, { color, dash, marker, name: `${i ? "second" : "first"}: ${run.name}` });
      });
    });
    note(sentence(runs[1]));
  };
});
