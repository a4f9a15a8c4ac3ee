import assert from "node:assert/strict";
import test from "node:test";

import { capped } from "../../../course/widgets/finder/widget.js";

test("losses above the picture stand at its top, lost ones too", () => {
  assert.deepEqual(capped([1, 9, "Infinity"], 4), [1, 4, 4]);
});
