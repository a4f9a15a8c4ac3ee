import { fmt, span } from "../base/plot.js";
import { mount } from "../base/base.js";

// Colour and marker of training and validation, of the first run and of the second.
const LOOKS = [
  { train: ["blue", "o"], val: ["red", "s"] },
  { train: ["green", "^"], val: ["purple", "D"] },
];

// 1, 2, ... count: the epochs that a curve has.
export const upTo = (count) => Array.from({ length: count }, (_, i) => i + 1);

// How far a loss is above its best, in words.
export function riseOf(best, now) {
  const share = (now - best) / best;
  return share < 0.005 ? "none" : `${fmt(100 * share, 2)} %`;
}

function drawLosses(g, shown, runs, axis) {
  const log = axis === "log";
  const values = shown.flatMap(({ name, seen }) => [...runs[name].train.slice(0, seen), ...runs[name].val.slice(0, seen)]);
  const y = span(values, 0.05, log);
  g.axes({ x: [0.5, Math.max(...shown.map((one) => one.of)) + 0.5], y: log ? y : [0, y[1]], yLog: log, xLabel: "epoch", yLabel: "mean loss" });
  shown.forEach((one, i) => {
    const { name, seen, stop } = one, { train, val } = LOOKS[i], run = runs[name];
    g.line(upTo(seen), run.train.slice(0, seen), { color: train[0], marker: train[1], width: 1.6, name: `${name}, training` });
    g.line(upTo(seen), run.val.slice(0, seen), { color: val[0], marker: val[1], dash: [5, 4], width: 1.6, name: `${name}, validation` });
    if (stop) g.rule({ x: stop, color: val[0], dash: i ? [6, 3] : [2, 4], name: `${name} stops` });
    g.points([one.best_epoch], [one.best], { color: "orange", marker: val[1], size: 7, rim: "fg", name: i ? undefined : "best validation" });
  });
}

function drawAccuracy(g, shown, runs) {
  g.axes({ x: [0.5, Math.max(...shown.map((one) => one.of)) + 0.5], y: [0, 1.04], xLabel: "epoch", yLabel: "accuracy" });
  shown.forEach(({ name, seen }, i) => {
    const [color, marker] = LOOKS[i].val, run = runs[name];
    upTo(seen).forEach((x, k) => g.rect(x - 0.5, run.low[k], x + 0.5, run.high[k], { color, alpha: 0.16 }));
    g.line(upTo(seen), run.accuracy.slice(0, seen), { color, marker, dash: [5, 4], width: 1.6, name: `${name}, ${run.num_val} images (band: 95 %)` });
  });
}

export default mount((ui) => {
  const numbers = ui.table("So far", { wide: true });
  const losses = ui.plot("Losses", { height: 300 });
  const accuracy = ui.plot("Validation accuracy", { height: 300 });
  const reasons = ui.text("", { wide: true });
  const tries = ui.table("What to try, cheapest first", { wide: true });
  return ({ shown, runs, axis }) => {
    numbers({
      head: ["run", "state", "epochs", "training loss", "validation loss", "best validation", "in epoch", "rise since", "stops in"],
      rows: shown.map((one) => [one.name, one.verdict, `${one.seen}/${one.of}`, fmt(one.train, 3), fmt(one.val, 3), fmt(one.best, 3),
        one.best_epoch, riseOf(one.best, one.val), one.stop ?? "–"]),
    });
    losses.draw((g) => drawLosses(g, shown, runs, axis));
    accuracy.draw((g) => drawAccuracy(g, shown, runs));
    reasons(shown.filter((one) => one.reason).map((one) => `Of ${one.name}: ${one.reason}`).join(" "));
    const most = Math.max(...shown.map((one) => one.tries.length));
    tries({
      head: ["", ...shown.map((one) => `${one.name}: ${one.verdict}`)],
      rows: upTo(most).map((k) => [k, ...shown.map((one) => one.tries[k - 1] ?? "")]),
    });
  };
});
