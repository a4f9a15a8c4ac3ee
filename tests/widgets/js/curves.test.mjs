import assert from "node:assert/strict";
import test from "node:test";

import { riseOf, upTo } from "../../../course/widgets/curves/widget.js";

test("epochs count from 1", () => {
  assert.deepEqual(upTo(3), [1, 2, 3]);
});

test("a rise is a share of the best, and none where the last is the best", () => {
  assert.deepEqual([riseOf(0.5, 0.5), riseOf(0.5, 0.79), riseOf(0.08, 0.16)], ["none", "58 %", "100 %"]);
});
