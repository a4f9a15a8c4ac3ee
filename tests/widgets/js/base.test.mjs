import assert from "node:assert/strict";
import test from "node:test";

import * as base from "../../../course/widgets/base/base.js";
import * as page from "../../../course/widgets/base/page.js";
import * as plot from "../../../course/widgets/base/plot.js";

test("numbers read as people write them", () => {
  assert.deepEqual([0, 7, 1234567, -3, 0.5, 0.000123, 12345.678, "NaN", "Infinity", "word"].map((v) => plot.fmt(v)),
    ["0", "7", "1,234,567", "−3", "0.5", "1.23e-4", "12350", "nan", "inf", "word"]);
});

test("ticks are round and inside", () => {
  assert.deepEqual(plot.ticks(0, 1, 5), [0, 0.2, 0.4, 0.6, 0.8, 1]);
  assert.deepEqual(plot.ticks(-3, 7, 4), [-2.5, 0, 2.5, 5]);
  assert.deepEqual(plot.logTicks(0.002, 300, 5), [0.01, 0.1, 1, 10, 100]);
  assert.equal(plot.ticks(NaN, NaN).length, 1);
});

test("a scale maps the ends of a range to the ends of the axis", () => {
  const x = plot.scale(10, 1000, 0, 200, true);
  assert.deepEqual([x(10), x(100), x(1000)], [0, 100, 200]);
});

test("a range leaves out what is no number and is never empty", () => {
  assert.deepEqual(plot.span(["NaN", 1, 3, "Infinity"], 0), [1, 3]);
  const [low, high] = plot.span([2, 2]);
  assert.ok(low < 2 && high > 2);
  assert.deepEqual(plot.span([]), [0, 1]);
});

test("what stays is drawn once for each size and theme, and copied after", () => {
  const context = (canvas) => new Proxy({ canvas, measureText: () => ({ width: 10 }) },
    { get: (held, name) => held[name] ?? ((...of) => calls.push([name, ...of])), set: () => true });
  const calls = [], points = {}, theme = { palette: {} };
  globalThis.document = { createElement: () => ({ getContext() { return context(this); } }) };
  const drawn = (kept, what, size, colors) => {
    calls.length = 0;
    const g = new plot.Painter(context({ width: size, height: size }), size, size, colors, kept);
    g.still(what, () => g.points([0.2, 0.4], [0.5, 0.5], { name: "class 0" }));
    g.finish();
    assert.equal(calls.filter(([name]) => name === "drawImage").length, 1);
    return calls.filter(([name]) => name === "arc").length - 1;  // one is the legend's
  };
  const kept = {};
  assert.deepEqual([drawn(kept, points, 200, theme), drawn(kept, points, 200, theme)], [2, 0]);
  assert.equal(drawn(kept, {}, 200, theme), 2);
  assert.equal(drawn(kept, points, 300, theme), 2);
  assert.equal(drawn(kept, points, 300, { palette: {} }), 2);
  delete globalThis.document;
});

test("a slider's place is the nearest value", () => {
  const control = { values: [0.001, 0.01, 0.1], unit: "s" };
  assert.deepEqual([0.001, 0.0100001, 5].map((v) => base.placeOf(control, v)), [0, 1, 2]);
  assert.equal(base.nameOf(control, 0.1), "0.1 s");
  assert.equal(base.nameOf({ values: ["a"], names: ["first"] }, "a"), "first");
});

test("one message is under way, and the newest values wait for its answer", () => {
  const sent = [];
  const sender = base.sender((message) => sent.push(message.changes));
  sender.set({ a: 1 });
  sender.set({ a: 2 });
  sender.set({ a: 3, b: 1 });
  assert.deepEqual(sent, [{ a: 1 }]);
  assert.ok(sender.holds("a") && sender.busy);
  sender.answered();
  assert.deepEqual(sent, [{ a: 1 }, { a: 3, b: 1 }]);
  sender.answered();
  assert.ok(!sender.busy);
});

test("the live region speaks at most every two seconds and says the last thing", () => {
  const said = [], timers = [];
  let now = 0;
  const speak = base.speaker((text) => said.push(text), 2000, () => now, (f, ms) => timers.push([now + ms, f]));
  speak("one");
  now = 100; speak("two");
  now = 200; speak("three");
  assert.deepEqual(said, ["one"]);
  const [[when, fire]] = timers;
  assert.equal(when, 2000);
  now = 2000; fire();
  assert.deepEqual(said, ["one", "three"]);
});

test("bytes and tensors come as they went", () => {
  assert.deepEqual([...base.bytesOf("AAH/")], [0, 1, 255]);
  assert.deepEqual([base.rowsOf(3), base.rowsOf([1, 2]), base.rowsOf([[1, 2], [3, 4]]), base.rowsOf(null)],
    [[[3]], [[1], [2]], [[1, 2], [3, 4]], [["none"]]]);
});

test("a page looks up the state that its controls say, and keeps its own where one is refused", () => {
  const data = {
    about: { controls: [{ name: "a", values: [1, 2] }, { name: "b", values: ["x", "y", "z"] }] },
    start: { a: 1, b: "y" }, fixed: { c: 5 }, keys: ["v", "says", "scene", "fixed"],
    table: ["s", {}, {}, 10, 11, 12, 13, 14],
    states: [[3, 0, 1, 2], [4, 0, 1, 2], [5, 0, 1, 2], [6, 0, 1, 2], [7, 0, 1, 2], "a and z do not fit"],
  };
  data.table[1] = 2;
  const model = page.pageModel(data, (f) => f());
  let heard = 0;
  model.on("change:view", () => { heard += 1; });
  assert.equal(model.get("view").frame.v, 11);
  model.send({ type: "set", changes: { a: 2 } });
  assert.equal(model.get("view").frame.v, 14);
  assert.deepEqual(model.get("view").settings, { c: 5, a: 2, b: "y" });
  model.send({ type: "set", changes: { b: "z" } });
  assert.equal(model.get("view").note, "a and z do not fit");
  assert.equal(model.get("view").settings.b, "y");
  assert.equal(heard, 2);
});
