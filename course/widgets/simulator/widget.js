import { fmt, span } from "../base/plot.js";
import { bytesOf, mount, num } from "../base/base.js";

const LEVELS = 8, CELLS = 36, REACH = 1.15;
const CLASSES = ["blue", "red", "green"], MARKERS = ["o", "s", "^"];
const NOTES = {
  nothing: ["", ""],
  "adam 1": ["The chapter: Adam at rate 1 gives NaN at once.",
    "Measured: it stays finite in every run, since an Adam step is about as long as the rate, whatever the gradient. " +
    "The loss jumps into the hundreds, then stays near ln 3 = 1.099: the network predicts all classes equally."],
  sgd: ["The chapter: at rate 0.01 Adam needs 3 to 5 times fewer updates than SGD.",
    "Measured: Adam reaches 90 % after about 100 updates, plain SGD not within 1,000. Equal rates are not a fair race."],
  "sgd 0.3": ["The chapter: Adam needs 3 to 5 times fewer updates than SGD.",
    "Measured: with its own rate, SGD comes much closer. Each optimizer has its own best rate."],
  uncleared: ["The chapter: without zero_grad() the norm grows, the loss oscillates, then explodes.",
    "Measured: the norm grows tens of times by update 100 and the loss dips, then stalls. It rarely becomes NaN: the bug is silent."],
  graph: ["The chapter: without no_grad() memory climbs at every evaluation.",
    "Measured: it does not. Each evaluation builds a graph and frees it, so only the peak is higher."],
  "graph kept": ["The chapter: without no_grad() memory climbs at every evaluation.",
    "Measured: it climbs if the losses are kept, each with its graph. Keep loss.item() instead, and it stays flat."],
  cosine: ["The chapter: cosine ends at a lower loss than a constant rate.",
    "Measured at Adam 0.01: it rarely does. Cosine helps stability if the rate is too high; try 0.1."],
};

// The byte of a cell: its class and how sure the network is, from 0 to 1.
export const cellOf = (byte) => [Math.floor(byte / LEVELS), (byte % LEVELS) / (LEVELS - 1)];

const rgbOf = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

function drawRegions(g, one, points) {
  g.axes({ x: [-REACH, REACH], y: [-REACH, REACH], equal: true, xLabel: "first input", yLabel: "second input",
    xTicks: [-1, 0, 1], yTicks: [-1, 0, 1], noGrid: true });
  const bytes = bytesOf(one.boundary), colors = CLASSES.map((name) => rgbOf(g.color(name)));
  g.image(CELLS, CELLS, (i) => {
    const [which, sure] = cellOf(bytes[i]);
    return [...colors[which], 30 + 110 * sure];
  });
  g.still(points, () => CLASSES.forEach((color, which) => {
    const of = points.class.flatMap((one, i) => (one === which ? [i] : []));
    g.points(of.map((i) => points.x[i]), of.map((i) => points.y[i]),
      { color, marker: MARKERS[which], size: 3, rim: "bg", name: `class ${which}` });
  }));
}

function drawCurves(g, learners, { at, of, yLabel, log = true, floor = 0 }) {
  const last = Math.max(10, ...learners.map((one) => one.updates));
  const all = learners.flatMap((one) => one[of].map(num));
  const y = all.length ? span(all, 0.06, log) : (log ? [0.1, 10] : [0, 1]);
  if (!log) y[0] = floor;
  if (log && y[1] / y[0] < 10) y[1] = y[0] * 10;
  g.axes({ x: [0, last], y, yLog: log, xLabel: "update", yLabel });
  learners.forEach((one, i) => {
    g.line(one[at], one[of], { color: i ? "red" : "blue", dash: i ? [6, 4] : [], width: 1.6, name: one.name });
  });
  if (!all.length) g.text(last / 2, log ? Math.sqrt(y[0] * y[1]) : (y[0] + y[1]) / 2, "press Play", { color: "muted" });
}

export default mount((ui) => {
  const note = ui.text("", { wide: true });
  const numbers = ui.table("Current state", { wide: true });
  const maps = [ui.plot("Predictions of the network", { height: 330 }), ui.plot("The second network", { height: 330 })];
  const loss = ui.plot("Loss of the batch", { height: 230 });
  const norm = ui.plot("Gradient norm", { height: 230 });
  const accuracy = ui.plot("Validation accuracy", { height: 230 });
  const memory = ui.plot("Live memory after an evaluation", { height: 230 });
  return (frame, settings) => {
    const { learners, points } = frame, [one, two] = learners;
    const short = (value) => (value === null || Number.isNaN(num(value)) && !frame.updates ? "–" : fmt(value, 3));
    numbers({
      head: ["network", "epoch", "update", "learning rate", "loss", "val. accuracy (%)", "90 % after (updates)",
        "gradient norm", "live memory (kB)", "peak (kB)"],
      rows: learners.map((part) => [part.name, Math.round(frame.epoch * 10) / 10, part.updates, short(part.lr), short(part.loss),
        Math.round(100 * part.accuracy), short(part.reached), short(part.norm), Math.round(part.live_kb), Math.round(part.peak_kb)]),
    });
    maps.forEach((map, i) => {
      map.panel.hidden = !learners[i];
      if (!learners[i]) return;
      map.panel.querySelector("figcaption").textContent = `${i ? "Compared" : "As set"}: ${learners[i].name}`;
      map.draw((g) => drawRegions(g, learners[i], points));
    });
    loss.draw((g) => drawCurves(g, learners, { at: "loss_at", of: "losses", yLabel: "cross-entropy" }));
    norm.draw((g) => drawCurves(g, learners, { at: "norm_at", of: "norms", yLabel: "joint L2 norm" }));
    accuracy.draw((g) => {
      drawCurves(g, learners, { at: "seen_at", of: "accuracies", yLabel: "accuracy", log: false });
      g.a.y = [0, 1.02];
      g.rule({ y: 0.9, color: "grey", name: "90 %" });
    });
    memory.draw((g) => drawCurves(g, learners, { at: "seen_at", of: "live", yLabel: "kB", log: false }));
    const [said, found] = NOTES[settings.other];
    note(two ? `${said} ${found}` : "");
    if (two?.stopped) note(`${said} ${found} The second has stopped: ${two.stopped}`);
  };
});
