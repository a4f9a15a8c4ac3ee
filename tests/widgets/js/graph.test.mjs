import assert from "node:assert/strict";
import test from "node:test";

import { gradOf, shown } from "../../../course/widgets/graph/widget.js";

test("numbers, vectors and missing gradients read as in torch", () => {
  assert.deepEqual([-0.5, [1, -2]].map(shown), ["−0.5", "[1, −2]"]);
  const box = { grad: null, leaf: true, asks: true };
  assert.deepEqual([box, { ...box, asks: false }, { ...box, grad: [0, 3] }].map(gradOf), ["None", "not required", "[0, 3]"]);
});
