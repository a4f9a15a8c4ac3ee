import { fmt, span } from "../base/plot.js";
import { mount, num } from "../base/base.js";

const LOOKS = { passed: ["green", "✓"], failed: ["red", "×"], "not tried": ["grey", "–"] };

// The top of the loss axis: of the healthy curve and, within reason, of the broken one.
export function topOf(healthy, broken) {
  const high = Math.max(...healthy), other = Math.max(...broken);
  return 1.08 * Math.min(Math.max(high, other), 3 * high);
}

function drawRungs(g, rungs, stopped) {
  const small = g.width < 420;
  g.axes({ x: [0, 1], y: [0.45, rungs.length + 0.6], bare: true });
  [0.035, 0.965].forEach((x) => g.line([x, x], [0.45, rungs.length + 0.6], { color: "muted", width: 4 }));
  rungs.forEach(({ title, state }, i) => {
    const y = i + 1, [color, sign] = LOOKS[state] ?? ["line", ""];
    g.rect(0.035, y - 0.34, 0.965, y + 0.34, { color, alpha: state === "not climbed" ? 0.25 : 0.3, rim: y === stopped ? "fg" : undefined });
    g.text(0.06, y, `${y}  ${title}`, { align: "left", bold: y === stopped, size: small ? 11 : 13 });
    if (sign) g.text(0.945, y, small ? sign : `${sign} ${state}`, { align: "right", bold: y === stopped, size: small ? 13 : 12 });
  });
}

function drawCurves(g, { fixed, broken }) {
  const [healthy, other] = [fixed, broken].map((one) => one.losses.map(num));
  const top = topOf(healthy, other);
  g.axes({ x: [0, span([...fixed.steps], 0)[1]], y: [0, top], xLabel: "step on the same batch", yLabel: "loss of the batch" });
  g.line(fixed.steps, healthy, { color: "blue", width: 2.5, name: "fixed" });
  g.line(broken.steps, other, { color: "red", dash: [6, 4], width: 2.5, name: "broken" });
  if (Math.max(...other) > top) g.text(fixed.steps.at(-1), top, `broken: up to ${fmt(Math.max(...other), 3)}`, { align: "right", dx: -6, dy: 14, color: "red" });
}

export default mount((ui) => {
  const numbers = ui.readouts();
  const ladder = ui.plot("The ladder, from the bottom up", { height: 300 });
  const curves = ui.plot("The same batch, again and again", { height: 300 });
  const rungs = ui.table("What each rung found", { wide: true });
  const batches = ui.table("The one batch in numbers", { wide: true });
  const named = ui.text("", { wide: true });
  const code = ui.code("The bug: − as broken, + as fixed", { wide: true });
  const fix = ui.code("What the report says to try first", { wide: true });
  return (frame, settings) => {
    const { stopped, cause } = frame;
    numbers([
      ["rungs passed", frame.climbed, "of 7"], ["stopped at rung", stopped ?? "–"],
      ["this batch", frame.batches[settings.fixed ? "fixed" : "broken"].shape],
      ["class of the bug", cause || "–"],
    ]);
    ladder.draw((g) => drawRungs(g, frame.rungs, stopped));
    curves.draw((g) => drawCurves(g, frame.batches));
    rungs({
      head: ["rung", "", "finding"],
      rows: frame.rungs.map((one, i) => [`${i + 1} ${one.title}`, one.state, one.message]),
      mark: (i) => i + 1 === stopped,
    });
    batches({
      head: ["set-up", "first loss", "lowest", "last", "accuracy on the batch", "weights moved (× their size)", "the curve"],
      rows: ["broken", "fixed"].map((name) => {
        const one = frame.batches[name];
        return [name, one.start, one.lowest, one.last, `${fmt(100 * one.right, 3)} %`, fmt(num(one.moved), 3), one.shape];
      }),
      mark: (i) => (i === 1) === settings.fixed,
    });
    named(`The bug: ${frame.title}.`);
    code(frame.code.length ? frame.code : ["(hidden: tick “name the bug”)"]);
    fix(frame.fix ? frame.fix.split("\n") : ["–"]);
  };
});
