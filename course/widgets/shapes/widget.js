import { fmt } from "../base/plot.js";
import { mount, num } from "../base/base.js";

// Each dimension's colour, the same wherever it stands.
const COLORS = { B: "blue", T: "red", C: "orange", H: "green", W: "green", F: "purple" };
const WORDS = { B: "batch", T: "time", C: "channels", H: "rows and columns", F: "features" };

// Bytes for people.
export function bytes(count) {
  const [size, unit] = count >= 1e6 ? [1e6, "MB"] : count >= 1e3 ? [1e3, "kB"] : [1, "B"];
  return `${fmt(count / size, 3)} ${unit}`;
}

// [64, 784] as [B 64, F 784]; the scalar's shape is [].
export const named = (shape, names) => `[${shape.map((size, i) => `${names[i]} ${fmt(size)}`).join(", ")}]`;

export default mount((ui) => {
  const numbers = ui.readouts();
  const path = ui.plot("One batch through the classifier: the memory of each station", { height: 270, wide: true });
  const ladder = ui.plot("Six ranks: dimension by dimension", { height: 290 });
  const answers = ui.table("torch's answers for this rank");
  const table = ui.table("Station by station", { wide: true });
  return (frame, settings) => {
    const { stations, rungs, now } = frame;
    const station = stations[now], rung = rungs[settings.rank];
    numbers([
      [`after ${station.name}`, `[${station.shape.join(", ")}]`], ["rank", station.shape.length],
      ["parameters here", station.parameters], ["parameters in all", frame.parameters],
      ["parameters take", bytes(frame.parameter_bytes)], ["the batch's tensors", bytes(frame.tensor_bytes)],
    ]);
    path.draw((g) => {
      const narrow = g.width < 420, short = { flatten: "flat", dropout: "drop" };
      const top = Math.max(...stations.flatMap((one) => [one.bytes, one.parameter_bytes]).map(num));
      g.axes({ x: [-0.5, stations.length - 0.5], y: [1, top * 30], yLog: true, noGrid: true, yLabel: "bytes",
        yTicks: [1, 1e3, 1e6], yNames: { 1: "1 B", 1000: "1 kB", 1000000: "1 MB" },
        xTicks: stations.map((_, i) => i), xNames: Object.fromEntries(stations.map((one, i) => [i, (narrow && short[one.name]) || one.name])) });
      g.rect(now - 0.48, 1, now + 0.48, top * 30, { color: "grey", alpha: 0.15 });
      stations.forEach((one, i) => {
        const two = one.parameters > 0;
        g.rect(i - (two ? 0.38 : 0.25), 1, i + (two ? 0 : 0.25), one.bytes, { color: "blue", alpha: one.view ? 0.45 : 1, name: i ? undefined : "output" });
        if (one.view) g.text(i, one.bytes, "a view", { dy: -9 });
        if (two) g.rect(i, 1, i + 0.38, one.parameter_bytes, { color: "orange", name: i === 2 ? "parameters" : undefined });
      });
      g.text(now, top * 12, narrow ? bytes(station.bytes) : named(station.shape, station.names), { bold: true, ...(now ? {} : { align: "left", dx: -0.45 * (g.width - 80) / stations.length }) });
    });
    ladder.draw((g) => {
      g.axes({ x: [-0.5, 6.4], y: [-0.6, 5.6], noGrid: true, xTicks: [0, 1, 2, 3, 4],
        xNames: Object.fromEntries([0, 1, 2, 3, 4].map((i) => [i, `dim ${i}`])),
        yTicks: [0, 1, 2, 3, 4, 5], yNames: Object.fromEntries(rungs.map((one, i) => [i, `${i} ${one.short}`])) });
      g.rect(-0.5, settings.rank - 0.48, 6.4, settings.rank + 0.48, { color: "grey", alpha: 0.15 });
      const seen = new Set();
      [...rungs].reverse().forEach((one) => {
        const y = one.names.length;
        one.names.forEach((name, x) => {
          const word = seen.has(name) ? undefined : WORDS[name];
          seen.add(name);
          g.rect(x - 0.46, y - 0.36, x + 0.46, y + 0.36, { color: COLORS[name], name: word });
          const whole = `${name} ${one.shape[x]}`;
          g.text(x, y, g.width < 420 && whole.length > 5 ? String(one.shape[x]) : whole, { color: "bg", bold: true, size: 11 });
        });
        g.text(one.names.length - 0.4, y, bytes(one.bytes), { align: "left", bold: y === settings.rank });
      });
    });
    answers({ rows: [
      ["rank", `${settings.rank}: ${rung.what}`], ["shape", named(rung.shape, rung.names)],
      [frame.answers.right[0], frame.answers.right[1]],
      ["common mistake", frame.answers.mistake], frame.answers.wrong,
    ] });
    table({
      head: ["station", "shape after", "parameters", "bytes", "weight and bias"],
      rows: stations.map((one) => [one.line, `[${one.shape.join(", ")}]`, one.parameters, one.view ? "a view" : bytes(one.bytes),
        one.weights.map((shape) => `[${shape.join(", ")}]`).join(" and ") || "none"]),
      mark: (i) => i === now,
    });
  };
});
