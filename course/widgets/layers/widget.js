import { fmt } from "../base/plot.js";
import { mount } from "../base/base.js";

const ZERO = 0.1; // where a distance of 0 is drawn on a logarithmic axis
const FIELDS = [["sign", 1, "purple"], ["exponent", 8, "orange"], ["mantissa", 23, "blue"]];

// Places of the bits in which two numbers differ.
export const differing = (first, second) => [...first].flatMap((bit, i) => (bit === second[i] ? [] : [i]));

// The colour of a bit of a float32, 0 being the sign.
export const colorOf = (place) => FIELDS[place < 1 ? 0 : place < 9 ? 1 : 2][2];

// How far apart two losses are, in words.
export const apartBy = (count) => (count ? `${fmt(count)} float32 number${count === 1 ? "" : "s"} apart` : "the same bits");

function drawBits(g, runs) {
  const [first, second] = runs, small = g.width < 500, other = differing(first.bits, second.bits);
  g.axes({ x: [-0.1, 32.1], y: [-2, 0.75], bare: true });
  FIELDS.forEach(([name, , color]) => g.rect(-9, -9, -9, -9, { color, alpha: 0.6, name }));
  runs.forEach((run, i) => {
    g.text(0.06, 0.48 - i * 1.2, `${i ? "second" : "first"} run: ${run.loss}`, { align: "left", bold: true });
    [...run.bits].forEach((bit, place) => {
      const changed = other.includes(place);
      g.rect(place + 0.06, -i * 1.2 - 0.24, place + 0.94, -i * 1.2 + 0.24,
        { color: colorOf(place), alpha: bit === "1" ? 0.45 : 0.14, rim: changed ? "fg" : undefined });
      g.text(place + 0.5, -i * 1.2, bit, { size: small ? 9 : 12, bold: changed });
      if (changed && i) g.text(place + 0.5, -1.2 - 0.42, "▲", { size: 10 });
    });
  });
}

export default mount((ui) => {
  const layers = ui.table("The five layers", { wide: true });
  const numbers = ui.readouts();
  const losses = ui.plot("Loss of each batch", { height: 260 });
  const apart = ui.plot("How far apart the two losses are", { height: 260 });
  const bits = ui.plot("The bits of the loss at the update shown (▲: different bit)", { height: 165, wide: true });
  const hex = ui.text("", { wide: true });
  return (frame, { at }) => {
    const [first, second] = frame.runs, updates = frame.apart.map((_, i) => i + 1);
    layers({
      head: ["layer", "recorded", "first run", "second run"],
      rows: [...frame.layers.map((one) => [one.name, one.recorded ? "yes" : "no", one.first, one.second === one.first ? "the same" : one.second]),
        ["run id", "all five, hashed", `run ${first.id}`, second.id === first.id ? "the same" : `run ${second.id}`]],
      mark: (i) => frame.layers[i]?.recorded === false,
    });
    const never = "never";
    numbers([
      ["losses differ from update", frame.parts_at ?? never], ["weights differ after update", frame.weights_part_after ?? never],
      [`weights that differ after ${at}`, frame.weights_apart, `of ${fmt(frame.num_weights)}`],
      ["accuracy, first run", fmt(100 * first.accuracy, 4), "%"], ["accuracy, second run", fmt(100 * second.accuracy, 4), "%"],
    ]);
    losses.draw((g) => {
      g.axes({ x: [0, updates.length + 1], y: [0, 1.06 * Math.max(...first.losses, ...second.losses)], xLabel: "update", yLabel: "cross-entropy" });
      g.rule({ x: at, color: "fg", dash: [], width: 1, name: `update ${at}` });
      g.line(updates, first.losses, { color: "blue", width: 3, name: "first run" });
      g.line(updates, second.losses, { color: "red", dash: [5, 4], name: "second run" });
    });
    apart.draw((g) => {
      g.axes({ x: [0, updates.length + 1], y: [0.03, 3e8], yLog: true, yTicks: [ZERO, 1, 1e2, 1e4, 1e6, 1e8],
        yNames: { [ZERO]: "0", 1e6: "1e6", 1e8: "1e8", 1e4: "1e4" }, xLabel: "update", yLabel: "float32 numbers apart" });
      g.rule({ x: at, color: "fg", dash: [], width: 1 });
      const of = (same) => updates.filter((_, i) => (frame.apart[i] === 0) === same);
      g.points(of(true), of(true).map(() => ZERO), { color: "blue", marker: "o", size: 3, name: "same bits" });
      g.points(of(false), of(false).map((x) => frame.apart[x - 1]), { color: "red", marker: "s", size: 3, name: "different bits" });
    });
    bits.draw((g) => drawBits(g, frame.runs));
    hex(`Update ${at} in hexadecimal: ${first.hex} and ${second.hex}, ${apartBy(frame.apart[at - 1])}.`);
  };
});
