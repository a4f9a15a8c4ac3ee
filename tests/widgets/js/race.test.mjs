import assert from "node:assert/strict";
import test from "node:test";

import { bands, fate } from "../../../course/widgets/race/widget.js";

test("heights become twelve bands", () => {
  assert.deepEqual(bands([0, 255, 128]), [0, 11, 6]);
});

test("a racer arrives, does not, or diverges", () => {
  assert.equal(fate({ x: Array(101), there: 24 }, 100), "at update 24");
  assert.equal(fate({ x: Array(101), there: null }, 100), "not within 100 updates");
  assert.equal(fate({ x: Array(34), there: null }, 100), "diverged at update 34");
});
