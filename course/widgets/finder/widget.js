import { fmt } from "../base/plot.js";
import { mount, num } from "../base/base.js";

// Losses above the top stand at the top, so that their rate still shows.
export const capped = (losses, top) => losses.map((loss) => (num(loss) <= top ? num(loss) : top));

export default mount((ui) => {
  const numbers = ui.readouts();
  const sweep = ui.plot("Loss over the learning rate: the sweep, and the loss after training with each rate", { height: 330, wide: true });
  const run = ui.plot("Training with the chosen rate", { height: 270 });
  const table = ui.table("The loss that each rate reaches");
  const reason = ui.text("", { wide: true });
  return (frame, { rate }) => {
    const top = 1.6 * num(frame.start), suggestion = num(frame.suggestion);
    numbers([
      ["lowest smoothed loss at", fmt(frame.lowest, 2)], ["suggested, a decade below", fmt(suggestion, 2)],
      ["lowest final loss with", fmt(frame.best, 2)], ["loss at the start", fmt(frame.start, 3)],
      [`loss with ${fmt(rate, 2)}`, fmt(num(frame.end), 3)], ["the chosen rate", frame.zone],
    ]);
    sweep.draw((g) => {
      const small = g.width < 500;
      g.axes({ x: [frame.lrs[0], 12], y: [0, top], xLog: true, xLabel: "learning rate", yLabel: "loss",
        xTicks: small ? [1e-5, 1e-3, 0.1, 10] : [1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 1, 10], xNames: { 1e-4: "1e-4", 1e-5: "1e-5", 1e-6: "1e-6" } });
      g.line(frame.lrs, frame.losses, { color: "grey", width: 1, name: "sweep" });
      g.line(frame.lrs, frame.smoothed, { color: "blue", width: 2.5, name: "smoothed" });
      g.line(frame.rates, capped(frame.worth, top), { color: "green", marker: "D", dash: [2, 4], name: "trained with it" });
      if (!Number.isNaN(suggestion)) g.rule({ x: suggestion, color: "orange", dash: [], width: 2, name: "suggested" });
      g.rule({ x: rate, color: "red", dash: [6, 4], width: 2, name: "chosen" });
    });
    run.draw((g) => {
      const steps = (losses) => losses.map((_, i) => i + 1);
      g.axes({ x: [0, frame.best_run.length + 1], y: [0, top], xLabel: "update", yLabel: "loss of the batch" });
      g.line(steps(frame.best_run), frame.best_run, { color: "purple", name: `${fmt(frame.best, 2)}, ends lowest` });
      g.line(steps(frame.run), frame.run, { color: "red", dash: [6, 4], name: `${fmt(rate, 2)}, chosen` });
    });
    table({
      head: ["rate", "loss at the end", ""],
      rows: frame.rates.map((one, i) => [fmt(one, 2), fmt(num(frame.worth[i]), 3), one === frame.best ? "lowest" : ""]),
      mark: (i) => frame.rates[i] === rate,
    });
    reason(`The suggestion: ${frame.reason}`);
  };
});
