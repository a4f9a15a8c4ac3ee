import assert from "node:assert/strict";
import test from "node:test";

import { number, percent } from "../../../course/widgets/detector/widget.js";

test("a run without an update has no numbers", () => {
  assert.deepEqual([percent("NaN"), number("NaN"), percent(0.8125), number(39.504)], ["–", "–", "81.3 %", "39.5"]);
});
