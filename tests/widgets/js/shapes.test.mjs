import assert from "node:assert/strict";
import test from "node:test";

import { bytes, named } from "../../../course/widgets/shapes/widget.js";

test("shapes read with the names of their dimensions, bytes with a unit", () => {
  assert.deepEqual([named([64, 1, 28, 28], ["B", "C", "H", "W"]), named([], [])], ["[B 64, C 1, H 28, W 28]", "[]"]);
  assert.deepEqual([4, 32768, 51380224].map(bytes), ["4 B", "32.8 kB", "51.4 MB"]);
});
