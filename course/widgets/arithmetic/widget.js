import { fmt } from "../base/plot.js";
import { mount } from "../base/base.js";

const FATES = {
  adds: ["blue", "adds to .grad"],
  step: ["green", "adds, then the optimizer steps"],
  carried: ["orange", "kept for the next epoch's first window"],
  forgotten: ["grey", "its gradient is discarded"],
  "never used": ["grey", "no step uses it"],
};

// What happens at one micro-batch, in a sentence.
export function sentence(one, k, batchSize) {
  const short = one.size < batchSize ? ` (not ${batchSize})` : "";
  const grad = `.grad holds ${one.held} of ${k} micro-batch${k > 1 ? "es" : ""}`;
  const then = {
    adds: `${grad}; the weights stay.`,
    step: `${grad}; the optimizer makes update ${one.window} and .grad is cleared.`,
    carried: `${grad}; the epoch is over, and the next one completes the window.`,
    forgotten: `${grad}; the epoch ends before the window is full, so it is thrown away.`,
    "never used": `${grad}; the run is over, and no update uses it.`,
  }[one.fate];
  return `Micro-batch ${fmt(one.index)}: forward and backward over ${one.size} examples${short}; ${then}`;
}

export default mount((ui) => {
  const numbers = ui.readouts();
  const end = ui.plot("The end of the first epoch, micro-batch by micro-batch", { height: 260 });
  const sweep = ui.plot("The whole run, by batch size", { height: 260 });
  const step = ui.text("", { wide: true });
  const counts = ui.table("Three ways to count updates", { wide: true });
  return (frame, settings) => {
    const { batch_size: size, accum_steps: k, epochs } = settings;
    numbers([
      ["forward passes", frame.iterations], ["updates", frame.updates],
      ["per epoch", `${fmt(frame.iterations_per_epoch)} / ${fmt(frame.updates_per_epoch)}`, "passes / updates"],
      ["last batch", frame.last_batch, "examples"], ["in an update", frame.effective_batch, "examples"],
      ["examples seen", frame.examples_seen],
      ["left out per epoch", frame.unseen, "examples"],
    ]);
    end.draw((g) => {
      const { tail } = frame, named = new Set();
      const xNames = Object.fromEntries(tail.map((one) => [one.index, fmt(one.index)]));
      g.axes({
        x: [tail[0].index - 0.6, tail.at(-1).index + 0.6], y: [0, size * 1.22], noGrid: true,
        xTicks: tail.filter((_, i) => tail.length < 5 || (tail.length - 1 - i) % 2 === 0).map((one) => one.index),
        xNames, xLabel: "micro-batch", yLabel: "examples",
      });
      tail.forEach((one) => {
        const [color, name] = FATES[one.fate];
        const now = one.index === frame.now.index;
        g.rect(one.index - 0.4, 0, one.index + 0.4, one.size, {
          color, name: named.has(name) ? undefined : name, rim: now ? "fg" : undefined, alpha: now ? 1 : 0.55,
        });
        named.add(name);
        g.text(one.index, one.size, String(one.size), { dy: -9, bold: now });
        if (one.fate === "step") g.text(one.index, one.size / 2, "step", { color: "bg", bold: true, size: 11 });
      });
    });
    sweep.draw((g) => {
      const { batch_size: sizes, iterations, updates } = frame.sweep;
      const low = Math.min(...updates.filter((v) => v > 0)), high = Math.max(...iterations);
      g.axes({
        x: [sizes[0] / 1.3, sizes.at(-1) * 1.3], y: [Math.max(low, 1) / 1.8, high * 1.8], xLog: true, yLog: true,
        xTicks: sizes, xLabel: "batch size B (examples)", yLabel: "count",
      });
      g.rule({ x: size });
      g.line(sizes, iterations, { color: "blue", marker: "o", name: "forward passes" });
      g.line(sizes, updates, { color: "green", marker: "s", dash: [6, 4], name: `updates (K = ${k})` });
    });
    step(sentence(frame.now, k, size));
    counts({
      head: ["way to count", "updates", "what happens to the remainder"],
      rows: [
        [`formula E·⌈N / (B·K)⌉`, frame.formula_updates, "counts a short window as an update"],
        ["printed loop", frame.loop_updates, frame.leftover && epochs > 1
          ? `never steps on ${frame.leftover}: they leak into a window of ${frame.loop_largest_window}`
          : "steps only where (i + 1) mod K = 0"],
        ["as set above", frame.updates, { flush: "steps with what there is", drop: "discards it",
          carry: "completes it in the next epoch" }[settings.remainder]],
      ],
      mark: (i) => i === 2,
    });
  };
});
