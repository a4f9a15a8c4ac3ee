import assert from "node:assert/strict";
import test from "node:test";

import { topOf } from "../../../course/widgets/ladder/widget.js";

test("the loss axis holds both curves, and of one that blows up only a part", () => {
  assert.ok(Math.abs(topOf([2, 0.1], [2.5, 2.4]) - 2.7) < 1e-9);
  assert.ok(Math.abs(topOf([2, 0.1], [2.5, 900]) - 6.48) < 1e-9);
});
