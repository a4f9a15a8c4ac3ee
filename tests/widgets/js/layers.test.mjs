import assert from "node:assert/strict";
import test from "node:test";

import { apartBy, colorOf, differing } from "../../../course/widgets/layers/widget.js";

test("places of other bits", () => {
  assert.deepEqual([differing("0110", "0110"), differing("0110", "1100")], [[], [0, 2]]);
});

test("a float32 has a sign, eight exponent and twenty-three mantissa bits", () => {
  const colors = [...Array(32).keys()].map(colorOf);
  assert.deepEqual(["purple", "orange", "blue"].map((one) => colors.filter((c) => c === one).length), [1, 8, 23]);
});

test("a distance reads as people count", () => {
  assert.deepEqual([0, 1, 3544].map(apartBy), ["the same bits", "1 float32 number apart", "3,544 float32 numbers apart"]);
});
