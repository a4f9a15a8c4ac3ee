import assert from "node:assert/strict";
import test from "node:test";

import { bitAt, fieldOf } from "../../../course/widgets/precision/widget.js";

test("a half's bits are one sign, five of the exponent, ten of the mantissa", () => {
  const fields = [...Array(16).keys()].map((place) => fieldOf(place, [1, 5, 10]));
  assert.deepEqual([0, 1, 2].map((one) => fields.filter((field) => field === one).length), [1, 5, 10]);
  assert.deepEqual([fields[0], fields[1], fields[5], fields[6]], [0, 1, 1, 2]);
});

test("a click finds the row and the bit under it, and nothing between rows or behind the last bit", () => {
  const rows = [{ format: "FP32", bits: "0".repeat(32) }, { format: "FP16", bits: "0".repeat(16) }];
  assert.deepEqual(bitAt(rows, 3.7, 0.1), { row: rows[0], place: 3 });
  assert.deepEqual(bitAt(rows, 15.2, -1.2), { row: rows[1], place: 15 });
  assert.equal(bitAt(rows, 3.7, -0.5), null);
  assert.equal(bitAt(rows, 16.5, -1), null);
  assert.equal(bitAt(rows, 3, -5), null);
});
