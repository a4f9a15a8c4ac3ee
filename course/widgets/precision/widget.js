import { fmt } from "../base/plot.js";
import { mount, num } from "../base/base.js";

const FIELDS = [["sign", "purple"], ["exponent", "orange"], ["mantissa", "blue"]];
const LINES = { FP32: ["blue", []], FP16: ["red", [7, 4]], BF16: ["green", [2, 4]] };

// The field of a bit, 0 the sign: its place among sign, exponent and mantissa.
export const fieldOf = (place, [sign, exponent]) => (place < sign ? 0 : place < sign + exponent ? 1 : 2);

// The row and bit under a point of the picture of bits, or nothing between the rows.
export function bitAt(rows, x, y) {
  const row = rows[Math.round(-y)];
  const place = Math.floor(x);
  return row && Math.abs(y - Math.round(y)) < 0.3 && row.bits[place] ? { row, place } : null;
}

export default mount((ui) => {
  const numbers = ui.table("The number in each format", { wide: true });
  const bits = ui.plot("The bits as stored (click one of the first 16 to flip it)", { height: 230, wide: true });
  const flipped = ui.text("", { wide: true });
  const errors = ui.plot("Range and precision: worst relative error by magnitude", { height: 300, wide: true });
  let shown = [];
  const flips = ui.about.controls.find((one) => one.name === "flip").values.length - 1;
  bits.drag((x, y) => {
    const hit = bitAt(shown, x, y);
    if (hit && hit.place < flips) ui.set({ of: hit.row.format, flip: hit.place + 1 });
  });
  return (frame, settings) => {
    const { rows, flipped: turned } = frame, exact = num(frame.exact);
    const scaled = settings.scale > 1;
    shown = rows;
    const whole = (value, digits) => fmt(num(value), digits).replace("e-", "e\u2011");
    numbers({
      head: ["format", "verdict", "relative error", scaled ? "× scale, stored" : "stored", ...(scaled ? ["÷ scale, in FP32"] : []), "gap to the next"],
      rows: rows.map((row) => [row.format, row.verdict, whole(Math.min(1, num(row.error)), 3), whole(row.stored, 7),
        ...(scaled ? [whole(row.back, 7)] : []), whole(row.gap, 3)]),
      mark: (i) => settings.flip > 0 && rows[i].format === settings.of,
    });
    bits.draw((g) => {
      g.axes({ x: [-0.1, 32.1], y: [-2.42, 0.6], bare: true });
      const small = g.width < 500;
      const named = new Set();
      rows.forEach((row, i) => {
        const on = turned && row.format === settings.of;
        const text = on ? turned.bits : row.bits;
        [...text].forEach((bit, place) => {
          const [name, color] = FIELDS[fieldOf(place, row.fields)];
          const changed = on && place === turned.place - 1;
          g.rect(place + 0.06, -i - 0.24, place + 0.94, -i + 0.24, { color, alpha: bit === "1" ? 0.45 : 0.14,
            rim: changed ? "fg" : undefined, name: named.has(name) ? undefined : name });
          named.add(name);
          g.text(place + 0.5, -i, bit, { size: small ? 9 : 12, bold: bit === "1" });
          if (changed) g.text(place + 0.5, -i - 0.36, "▲", { size: 10 });
        });
        g.text(0.06, -i + 0.37, `${row.format}: ${fmt(num(on ? turned.value : row.stored), 7)}`, { align: "left", bold: true });
      });
    });
    flipped(turned ? `Bit ${turned.place} of ${settings.of}, in the ${turned.field}: ${fmt(num(rows.find((row) => row.format === settings.of).stored), 7)} becomes ${fmt(num(turned.value), 7)}.`
      : "BF16 is the front half of FP32: the same exponent, a shorter mantissa. FP16 has a shorter exponent.");
    errors.draw((g) => {
      const { magnitude, ...curves } = frame.curves;
      const part = g.width < 500 ? [1e-40, 1e-20, 1, 1e20, 1e38] : [1e-40, 1e-30, 1e-20, 1e-10, 1, 1e10, 1e20, 1e30];
      g.axes({ x: [magnitude[0], magnitude.at(-1)], y: [1e-8, 3], xLog: true, yLog: true, xTicks: part,
        yTicks: [1e-8, 1e-6, 1e-4, 0.01, 1], yNames: { 1e-4: "1e-4" },
        xLabel: "magnitude of the number", yLabel: "relative error (1: all lost)" });
      Object.entries(LINES).forEach(([name, [color, dash]]) => g.line(magnitude, curves[name], { color, dash, name, width: 2.5 }));
      if (scaled) g.rule({ x: settings.value, color: "grey", dash: [2, 3], name: "number" });
      g.rule({ x: exact, color: "fg", dash: [], name: scaled ? "number × scale" : "number" });
    });
  };
});
