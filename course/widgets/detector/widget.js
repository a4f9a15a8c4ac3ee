import { fmt, span } from "../base/plot.js";
import { mount, num } from "../base/base.js";

const LOOKS = [["red", "s", [6, 4]], ["blue", "o", []]];

// A share in percent; a run that never got so far has none.
export const percent = (share) => (Number.isNaN(num(share)) ? "–" : `${fmt(100 * num(share), 3)} %`);

export const number = (value) => (Number.isNaN(num(value)) ? "–" : fmt(num(value), 3));

// One panel: both runs over the updates, the run beside below the run as set.
function drawBoth(g, { runs, updates }, { of, at, yLabel, y, marks = false }) {
  const values = runs.flatMap((one) => one[of].map(num)), top = span([...values, 0], 0.06)[1];
  g.axes({ x: [0, updates + 1], y: y ?? [0, top], xLabel: "update", yLabel });
  [1, 0].forEach((i) => {
    const one = runs[i], [color, marker, dash] = LOOKS[i];
    const xs = at ? one[at] : one[of].map((_, k) => k + 1);
    g.line(xs, one[of], { color, dash, marker: marks ? marker : undefined, width: 2, name: one.name });
  });
  if (runs[0].error) g.text((updates + 1) / 2, (y ?? [0, top])[1] / 2, "as set: no updates", { color: "red" });
}

export default mount((ui) => {
  const verdict = ui.text("", { wide: true });
  const numbers = ui.table("At the end", { wide: true });
  const loss = ui.plot("Loss of each batch", { height: 230 });
  const norm = ui.plot("Gradient norm", { height: 230 });
  const memory = ui.plot("Held after a validation", { height: 230 });
  const accuracy = ui.plot("Validation accuracy (dotted: unseen images)", { height: 230 });
  const code = ui.code("The loop as set", { wide: true });
  return (frame) => {
    const { runs, same, marked } = frame, [own, other] = runs;
    const look = frame.looks_fine ? "Its loss alone would not make anyone suspicious." : "Its loss alone shows that something is wrong.";
    verdict(same ? `As set and ${other.name}: equal in every number.`
      : own.error ? `As set: ${own.error}.` : `${marked.length ? look : "No switch is on."} It differs from the ${other.name}.`);
    numbers({
      head: ["run", "loss", "gradient norm", "held (kB)", "validation", "unseen images", "validation − unseen (points)"],
      rows: runs.map((one) => [one.name, number(one.loss), number(one.norm), number(one.held), percent(one.accuracy), percent(one.unseen),
        number(100 * (num(one.accuracy) - num(one.unseen)))]),
    });
    loss.draw((g) => drawBoth(g, frame, { of: "losses", yLabel: "cross-entropy" }));
    norm.draw((g) => drawBoth(g, frame, { of: "norms", yLabel: "joint L2 norm" }));
    memory.draw((g) => drawBoth(g, frame, { of: "kilobytes", at: "val_at", yLabel: "kB", marks: true }));
    accuracy.draw((g) => {
      drawBoth(g, frame, { of: "accuracies", at: "val_at", yLabel: "accuracy", y: [0, 1.04], marks: true });
      runs.forEach((one, i) => { if (!Number.isNaN(num(one.unseen))) g.rule({ y: num(one.unseen), color: LOOKS[i][0], dash: [2, 3] }); });
    });
    code(frame.code, marked);
  };
});
