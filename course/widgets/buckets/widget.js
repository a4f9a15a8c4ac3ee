import { fmt } from "../base/plot.js";
import { bytesOf, mount } from "../base/base.js";

const SIDE = 8, CELL = SIDE + 1;

// Where each bucket's rows begin, in rows of cells: a row of words, then its images.
export function blocks(rows, across) {
  let y = 0;
  return rows.map((row) => {
    const at = y;
    y += 1 + Math.ceil(row.count / across);
    return { ...row, at, end: y };
  });
}

const rgbOf = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

// All images in one picture, dark ink on the theme's ground.
function drawBoard(g, rows, images) {
  const across = Math.max(8, Math.min(26, Math.floor(g.width / 26))), laid = blocks(rows, across);
  const down = laid.at(-1).end;
  g.axes({ x: [0, across], y: [0, down], bare: true });
  const width = across * CELL, cells = new Uint8Array(width * down * CELL);
  laid.forEach(({ at, mistakes }) => mistakes.forEach(([index], k) => {
    const pixels = bytesOf(images[index]), x = (k % across) * CELL, y = (at + 1 + Math.floor(k / across)) * CELL;
    pixels.forEach((value, i) => { cells[(y + Math.floor(i / SIDE)) * width + x + (i % SIDE)] = value; });
  }));
  const ink = rgbOf(g.color("blue"));
  g.image(width, down * CELL, (i) => [...ink, cells[i]]);
  laid.forEach(({ name, count, at }) => g.text(0, down - at - 0.55, `${name}: ${count}`, { align: "left", bold: true }));
}

export default mount((ui) => {
  const numbers = ui.readouts();
  const verdict = ui.text("", { wide: true });
  const board = ui.plot("The mistakes looked at, by bucket", { height: 330 });
  const bars = ui.plot("The most that each bucket could gain", { height: 330 });
  const table = ui.table("The buckets, largest first", { wide: true });
  return ({ rows, images, seen, num_mistakes: all, num_examples: examples, accuracy, decision }) => {
    const [first, second] = rows;
    numbers([
      ["accuracy", fmt(accuracy, 3), "%"], ["mistakes", all, `of ${fmt(examples)}`], ["looked at", seen],
      ["all mistakes together", fmt(100 - accuracy, 3), "points"],
    ]);
    verdict(second ? `Of the ${first.count + second.count} in the first two buckets ${fmt(100 * decision.share, 3)} % are in the first, at least ${fmt(100 * decision.low, 3)} % (95 %): `
      + (decision.apart ? "it is certainly the larger one." : "the difference is not significant. Look at more, or choose the cheaper remedy.") : "One bucket holds them all.");
    board.draw((g) => drawBoard(g, rows, images));
    bars.draw((g) => {
      const top = 1.08 * Math.max(...rows.map((row) => row.high)), names = Object.fromEntries(rows.map((row, i) => [-i, row.name]));
      g.axes({ x: [0, top], y: [-rows.length + 0.4, 0.6], yTicks: rows.map((_, i) => -i), yNames: names, xLabel: "points of accuracy", noGrid: true });
      rows.forEach((row, i) => {
        g.rect(0, -i - 0.3, row.points, -i + 0.3, { color: "blue", name: i ? undefined : "ceiling" });
        g.line([row.low, row.high], [-i, -i], { color: "fg", name: i ? undefined : "95 % interval" });
        g.points([row.low, row.high], [-i, -i], { color: "fg", marker: "+", size: 5 });
      });
    });
    table({
      head: ["bucket", "mistakes", "share (%)", "most points to gain", "from", "to", "most often"],
      rows: rows.map((row) => [row.name, row.count, fmt(100 * row.share, 3), ...["points", "low", "high"].map((key) => row[key].toFixed(2)), row.pair]),
      mark: (i) => i === 0,
    });
  };
});
