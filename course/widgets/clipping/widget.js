import { fmt } from "../base/plot.js";
import { mount, num } from "../base/base.js";

const WAYS = { norm: "joint norm", value: "each number" };

// The nearest of a slider's values: where a dragged arrow comes to rest.
export const nearest = (values, value) => values.reduce((a, b) => (Math.abs(b - value) < Math.abs(a - value) ? b : a));

export default mount((ui) => {
  const numbers = ui.readouts();
  const plane = ui.plot("A gradient of two numbers (with K = 1, drag the blue arrow)", { height: 380 });
  const bars = ui.plot("The same gradient, clipped in both ways", { height: 380 });
  const ways = ui.table("Norm and direction after clipping");
  const parts = ui.table("The window, micro-batch by micro-batch", { wide: true });
  const values = Object.fromEntries(ui.about.controls.map((control) => [control.name, control.values]));
  plane.drag((x, y) => {
    if (ui.settings.accum_steps > 1) return;
    const first = nearest(values.first, x), second = nearest(values.second, y);
    if (first || second) ui.set({ first, second });
  });
  return (frame, settings) => {
    const { before, after, big, path, reach } = frame, limit = settings.max_norm;
    numbers([
      ["norm before", frame.norm_before], ["norm after", frame.norm_after], ["factor", frame.factor],
      ["cosine with before", frame.cosine], ["ceiling", limit],
      ["off the big batch", frame.error === null ? "clipped early" : Math.round(frame.error * 1e9) / 1e9],
    ]);
    plane.draw((g) => {
      g.axes({ x: [-reach, reach], y: [-reach, reach], equal: true, xLabel: "first number of the gradient", yLabel: "second number" });
      g.rule({ x: 0, dash: [], color: "line" });
      g.rule({ y: 0, dash: [], color: "line" });
      const name = `ceiling ${fmt(limit)} (${WAYS[settings.way]})`;
      if (settings.way === "norm") g.circle(0, 0, limit, { color: "grey", dash: [5, 4], name });
      else {
        g.line([-limit, limit, limit, -limit, -limit], [-limit, -limit, limit, limit, -limit],
          { color: "grey", dash: [5, 4], name });
      }
      if (path.length > 2) {
        path.slice(1).forEach((end, i) => g.arrow(...path[i], ...end,
          { color: "orange", width: 2, name: i ? undefined : "each micro-batch adds" }));
      }
      g.arrow(0, 0, ...before, { color: "blue", name: `.grad before, norm ${fmt(frame.norm_before, 3)}` });
      g.arrow(0, 0, ...after, { color: "red", width: 4, name: `after, norm ${fmt(frame.norm_after, 3)}` });
      if (path.length > 2) g.points([big[0]], [big[1]], { color: "green", marker: "D", size: 6, rim: "bg", name: "one big batch" });
    });
    bars.draw((g) => {
      const top = Math.max(limit, ...frame.ways.map((row) => row.norm)) * 1.25;
      g.axes({ x: [-0.6, 1.6], y: [0, top], xTicks: [0, 1], xNames: Object.fromEntries(Object.values(WAYS).map((one, i) => [i, one])),
        yLabel: "norm after", noGrid: true });
      frame.ways.forEach((row, i) => {
        const on = row.way === settings.way;
        g.rect(i - 0.3, 0, i + 0.3, row.norm, { color: ["blue", "orange"][i], alpha: on ? 1 : 0.5, rim: on ? "fg" : undefined });
        g.text(i, row.norm, fmt(row.norm, 3), { dy: -9, bold: on });
      });
      g.rule({ y: limit, name: "ceiling" });
    });
    ways({
      head: ["clip", "gradient", "norm", "cosine"],
      rows: frame.ways.map((row) => [WAYS[row.way], `[${row.after.map((v) => fmt(num(v), 3)).join(", ")}]`, row.norm, row.cosine]),
      mark: (i) => frame.ways[i].way === settings.way,
    });
    parts({
      head: ["micro-batch", "examples", "loss times", "adds to .grad", ".grad after it"],
      rows: frame.micro.map((one, i) => [i + 1, frame.sizes[i], frame.shares[i],
        `[${one.map((v) => fmt(v, 3)).join(", ")}]`, `[${path[i + 1].map((v) => fmt(v, 3)).join(", ")}]`]),
    });
  };
});
