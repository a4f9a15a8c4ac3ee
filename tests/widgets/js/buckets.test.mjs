import assert from "node:assert/strict";
import test from "node:test";

import { blocks } from "../../../course/widgets/buckets/widget.js";

test("a bucket has a row of words and then as many rows as its images need", () => {
  const laid = blocks([{ count: 19 }, { count: 8 }, { count: 9 }], 8);
  assert.deepEqual(laid.map(({ at, end }) => [at, end]), [[0, 4], [4, 6], [6, 9]]);
});
