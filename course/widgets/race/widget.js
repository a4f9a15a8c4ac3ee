import { fmt } from "../base/plot.js";
import { bytesOf, mount, num } from "../base/base.js";

const LOOKS = [["blue", [], "o"], ["red", [7, 4], "s"]];
const BANDS = 12;

// Heights from 0 to 255 as bands, every other one darker: a surface seen from above, like a map.
export const bands = (heights) => Array.from(heights, (height) => Math.floor((height * BANDS) / 256));

// What became of a racer, in a word or two.
export function fate(path, updates) {
  if (path.x.length <= updates) return `diverged at update ${path.x.length}`;
  return path.there === null ? `not within ${updates} updates` : `at update ${path.there}`;
}

export default mount((ui) => {
  const standing = ui.table("Where both are", { wide: true });
  const plane = ui.plot("The surface from above, and where it is lowest", { height: 340 });
  const losses = ui.plot("Loss of each update", { height: 340 });
  return (frame, { update }) => {
    const { surface, at, updates } = frame, paths = [frame.first, frame.second], [left, right, bottom, top] = surface.box;
    const name = (path) => `${path.name}, ${fmt(path.lr)}`;
    standing({
      head: ["racer", "weights", "last step", "loss", "below a hundredth of the first loss"],
      rows: paths.map((path, i) => [`${i ? "second" : "first"}: ${name(path)}`,
        at[i].lost ? "diverged" : `${fmt(num(at[i].x), 3)}, ${fmt(num(at[i].y), 3)}`,
        at[i].lost ? "–" : fmt(num(at[i].step), 2), at[i].lost ? "–" : fmt(num(at[i].loss), 2), fate(path, updates)]),
    });
    const shades = bands(bytesOf(surface.heights));
    plane.draw((g) => {
      g.axes({ x: [left, right], y: [bottom, top], xLabel: "weight 1", yLabel: "weight 2", noGrid: true });
      g.image(surface.columns, shades.length / surface.columns, (i) => [128, 128, 128, shades[i] * 11 + (shades[i] % 2) * 10]);
      paths.forEach((path, i) => {
        const [color, dash, marker] = LOOKS[i], upto = at[i].updates + 1;
        g.line(path.x.slice(0, upto), path.y.slice(0, upto), { color, dash, width: 2, name: name(path) });
        if (!at[i].lost) g.points([num(at[i].x)], [num(at[i].y)], { color, marker, size: 6, rim: "bg" });
      });
      g.points(surface.minima.map((one) => one[0]), surface.minima.map((one) => one[1]), { color: "green", marker: "D", size: 5, rim: "bg", name: "minimum" });
    });
    losses.draw((g) => {
      const shown = paths.flatMap((path, i) => path.losses.slice(0, at[i].updates + 1)).map(num).filter((loss) => loss > 0);
      const high = Math.min(1e6, Math.max(...shown)), low = Math.max(1e-8, Math.min(...shown, high / 100));
      g.axes({ x: [0, updates], y: [low / 2, high * 2], yLog: true, xLabel: "update", yLabel: "loss" });
      g.rule({ x: update, color: "grey", dash: [3, 4] });
      paths.forEach((path, i) => {
        const [color, dash] = LOOKS[i];
        const part = path.losses.slice(0, at[i].updates + 1).map((loss) => Math.max(num(loss), 1e-12));
        g.line(part.map((_, k) => k), part, { color, dash, width: 2.5, name: name(path) });
      });
    });
  };
});
