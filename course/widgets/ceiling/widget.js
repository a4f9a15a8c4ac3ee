import { fmt } from "../base/plot.js";
import { mount } from "../base/base.js";

// The perfect stages of a combination, in words.
export const named = (replaced, names) => names.filter((_, i) => replaced[i]).join(" + ") || "none";

export const signed = (value) => `${value >= 0 ? "+" : "−"}${fmt(Math.abs(value), 3)}`;

export default mount((ui) => {
  const numbers = ui.readouts();
  const gains = ui.plot("The gain if a stage is perfect", { height: 300 });
  const whole = ui.plot("Codes read correctly", { height: 300 });
  const table = ui.table("All combinations");
  const advice = ui.text("", { wide: true });
  return (frame) => {
    const { stages } = frame, names = stages.map((stage) => stage.name);
    numbers([
      ["now", fmt(frame.now, 3), "% right"], ["as set", fmt(frame.chosen, 3), "% right"],
      ["gain", signed(frame.gain), "points"], ["single gains, summed", signed(frame.singles), "points"],
      ["beyond that sum", signed(frame.beyond), "points"],
    ]);
    gains.draw((g) => {
      const low = Math.min(0, ...stages.map((s) => Math.min(s.low, s.on_top)));
      const high = Math.max(10, ...stages.map((s) => Math.max(s.high, s.on_top)));
      g.axes({ x: [-0.6, 2.6], y: [low * 1.15, high * 1.18], xTicks: [0, 1, 2], noGrid: true,
        xNames: Object.fromEntries(names.map((name, i) => [i, name])), yLabel: "points gained" });
      stages.forEach((stage, i) => {
        g.rect(i - 0.3, 0, i + 0.3, stage.alone, { color: "blue", name: i ? undefined : "alone" });
        g.line([i, i], [stage.low, stage.high], { color: "fg", width: 2, name: i ? undefined : "95 % interval" });
        g.points([i + 0.16], [stage.on_top], { color: "orange", marker: "D", size: 6, rim: "fg",
          name: i ? undefined : "with those before it" });
        g.text(i, Math.max(stage.high, stage.on_top), signed(stage.alone), { dy: -9, bold: true });
      });
      g.rule({ y: 0, dash: [], color: "line" });
    });
    whole.draw((g) => {
      const all = frame.combinations.at(-1).points;
      const bars = [["now", frame.now, "grey"], ["as set", frame.chosen, "green"], ["all perfect", all, "blue"]];
      g.axes({ x: [-0.6, 2.6], y: [0, 112], xTicks: [0, 1, 2], noGrid: true,
        xNames: Object.fromEntries(bars.map(([name], i) => [i, name])), yLabel: "% of 200 codes" });
      bars.forEach(([, value, color], i) => {
        g.rect(i - 0.3, 0, i + 0.3, value, { color });
        g.text(i, value, fmt(value, 3), { dy: -9, bold: i === 1 });
      });
    });
    table({
      head: ["perfect", "codes read correctly, %", "gain, points"],
      rows: frame.combinations.map((row) => [named(row.replaced, names), row.points, signed(row.points - frame.now)]),
      mark: (i) => frame.combinations[i].on,
    });
    advice(`Advice from the intervals: ${frame.advice}.`);
  };
});
