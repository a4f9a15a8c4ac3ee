import { fmt } from "../base/plot.js";
import { mount, num } from "../base/base.js";

const percent = (share) => `${Math.round(100 * num(share))} %`;

// Where the number of a batch is written: the narrowest bar, in pixels, that holds it.
const NARROWEST = 20;

export default mount((ui) => {
  const numbers = ui.readouts();
  const clock = ui.plot("The first batches on the clock: who works when", { height: 300, wide: true });
  const epochs = ui.plot("Seconds per epoch", { height: 260 });
  const table = ui.table("The epoch with each number of workers");
  const stages = ui.table("The way of a batch of 4 digits: what each stage passes on", { wide: true });
  return (frame, settings) => {
    const { now, lanes, rows } = frame;
    numbers([
      ["epoch", Number(num(now.epoch_s).toPrecision(3)), "s"], ["model idle", percent(now.model_idle)],
      ["waiting", frame.waits],
      ["than without workers", Number(num(frame.gain).toPrecision(3)), "× as fast"],
      ["enough workers", frame.enough], ["batches ready", now.held, "at most"],
    ]);
    clock.draw((g) => {
      const names = ["model", ...lanes], end = num(frame.steps.at(-1)[1]);
      g.axes({ x: [0, end], y: [-0.6, names.length - 0.4], noGrid: true, xLabel: "milliseconds",
        yTicks: names.map((_, i) => i), yNames: Object.fromEntries(names.map((name, i) => [i, name])) });
      const bar = (lane, from, to, color, number, name) => {
        g.rect(num(from), lane - 0.36, num(to), lane + 0.36, { color, rim: "bg", name });
        if (((num(to) - num(from)) / end) * (g.width - 90) > NARROWEST) {
          g.text((num(from) + num(to)) / 2, lane, String(number), { color: "bg", bold: true });
        }
      };
      frame.loads.forEach(([worker, from, to], i) => bar(worker + 1, from, to, "blue", i, i ? undefined : "loads"));
      frame.steps.forEach(([from, to], i) => bar(0, from, to, "green", i, i ? undefined : "computes"));
      frame.gaps.forEach(([from, to], i) => {
        g.rect(num(from), -0.36, num(to), 0.36, { color: "red", alpha: 0.28, rim: "red", name: i ? undefined : "model idle" });
      });
    });
    epochs.draw((g) => {
      const top = Math.max(...rows.map((row) => num(row.epoch_s)));
      g.axes({ x: [-0.6, 4.6], y: [0, top * 1.15], xTicks: rows.map((_, i) => i), noGrid: true, xLabel: "num_workers", yLabel: "seconds" });
      rows.forEach((row, i) => {
        const on = i === settings.num_workers;
        g.rect(i - 0.34, 0, i + 0.34, num(row.epoch_s), { color: on ? "green" : "grey" });
        g.text(i, num(row.epoch_s), fmt(num(row.epoch_s), 3), { dy: -9, bold: on });
      });
      g.rule({ y: num(frame.floor_s), color: "fg", name: "the model alone" });
    });
    table({
      head: ["workers", "epoch, s", "closed form, s", "model idle", "workers idle", "ready, at most"],
      rows: rows.map((row) => [row.num_workers, row.epoch_s, row.formula_s ?? "–", percent(row.model_idle),
        row.workers_idle === null ? "–" : percent(row.workers_idle), row.held]),
      mark: (i) => i === settings.num_workers,
    });
    stages({ head: ["stage", "done by", "passes on"], rows: frame.stages.map(({ name, who, gives }) => [name, who, gives]) });
  };
});
