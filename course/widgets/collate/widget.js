import { fmt } from "../base/plot.js";
import { mount, num } from "../base/base.js";

const CLASSES = [["blue", "common class", 0.3], ["orange", "rare class", 0.5]];

export const percent = (share) => `${Math.round(100 * num(share))} %`;

const list = (numbers) => (numbers.length ? numbers.join(", ") : "none");

export default mount((ui) => {
  const compared = ui.table("The four orders, this epoch", { wide: true });
  const road = ui.plot("The epoch: example numbers, one row per batch", { height: 360 });
  const cells = ui.plot("The batch shown: real cells and padding", { height: 360 });
  const note = ui.text("", { wide: true });
  const draws = ui.plot("How often each example is drawn in this epoch", { height: 190, wide: true });
  return (frame, settings) => {
    const { batches, at, rows, data: { targets, lengths } } = frame;
    compared({
      head: ["order", "rare class per batch", "different examples", "most often drawn", "share of padding"],
      rows: frame.compared.map((one) => [one.strategy, one.rare_per_batch.join(" to "), `${one.distinct} of ${targets.length}`, `${one.most}×`, percent(one.padding)]),
      mark: (i) => frame.compared[i].strategy === settings.strategy,
    });
    road.draw((g) => {
      const size = settings.batch_size, count = batches.length;
      g.axes({ x: [-0.1, size + 0.1], y: [-count - 0.6, -0.4], noX: true, noGrid: true, yLabel: "batch",
        yTicks: batches.map((_, i) => -i - 1), yNames: Object.fromEntries(batches.map((_, i) => [-i - 1, String(i + 1)])) });
      const named = new Set();
      batches.forEach((batch, i) => {
        if (i === at - 1) g.rect(-0.08, -i - 1.48, size + 0.08, -i - 0.52, { color: "fg", alpha: 0.16 });
        batch.forEach((index, k) => {
          const [color, name, alpha] = CLASSES[targets[index]];
          g.rect(k + 0.04, -i - 1.4, k + 0.96, -i - 0.6, { color: "bg" });
          g.rect(k + 0.04, -i - 1.4, k + 0.96, -i - 0.6, { color, alpha, rim: targets[index] ? "fg" : undefined, name: named.has(name) ? undefined : name });
          named.add(name);
          g.text(k + 0.5, -i - 1, String(index), { size: size > 8 ? 10 : 12, bold: Boolean(targets[index]) });
        });
      });
    });
    cells.draw((g) => {
      const batch = batches[at - 1], width = Math.max(...rows), most = Math.max(...lengths);
      g.axes({ x: [0, most], y: [-batch.length + 0.45, 0.55], noGrid: true, xLabel: "token", yLabel: "example",
        xTicks: [0, 4, 8, 12, 16, 20, 24], yTicks: batch.map((_, i) => -i), yNames: Object.fromEntries(batch.map((index, i) => [-i, String(index)])) });
      const named = new Set();
      const once = (name) => (named.has(name) ? undefined : (named.add(name), name));
      batch.forEach((index, i) => {
        const [color, name] = CLASSES[targets[index]];
        for (let t = 0; t < width; t += 1) {
          const real = t < rows[i];
          if (real) g.rect(t + 0.06, -i - 0.38, t + 0.94, -i + 0.38, { color: "bg" });
          g.rect(t + 0.06, -i - 0.38, t + 0.94, -i + 0.38, real ? { color, alpha: 0.75, name: once(name) } : { color: "bg", rim: "muted" });
        }
        if (rows[i] < width) g.line([rows[i] + 0.1, width - 0.1], [-i, -i], { color: "muted", width: 1.5, dash: [3, 3], name: once("padding") });
      });
    });
    const batch = batches[at - 1], longest = batch[rows.indexOf(Math.max(...rows))];
    note(`Batch ${at}: ${batch.length} examples, the longest is example ${longest} with ${Math.max(...rows)} tokens; ` +
      `${fmt(rows.reduce((a, b) => a + b))} of ${fmt(batch.length * Math.max(...rows))} cells are real, ${percent(frame.padding)} padding.` +
      (settings.drop_last ? ` Dropped at the end of the epoch: ${list(frame.left_out)}.` : ""));
    draws.draw((g) => {
      const top = Math.max(2, ...frame.draws);
      g.axes({ x: [-1, targets.length], y: [0, top + 0.4], yTicks: [...Array(top + 1).keys()].filter((v) => top < 7 || v % 2 === 0), noGrid: true,
        xLabel: "example (× : not drawn)", yLabel: "times drawn" });
      CLASSES.forEach(([color, name], which) => {
        const of = targets.flatMap((one, i) => (one === which ? [i] : []));
        g.bars(of, of.map((i) => frame.draws[i]), { color, name, width: 0.75 });
      });
      const never = targets.flatMap((_, i) => (frame.draws[i] ? [] : [i]));
      g.points(never, never.map(() => top * 0.06), { color: "fg", marker: "x", size: 3.5 });
    });
  };
});
