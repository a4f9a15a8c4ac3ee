import assert from "node:assert/strict";
import test from "node:test";

import { percent } from "../../../course/widgets/collate/widget.js";
import { bytes } from "../../../course/widgets/modes/widget.js";

test("bytes and shares read as people write them", () => {
  assert.deepEqual([0, 640, 1216, 18496].map(bytes), ["0 B", "640 B", "1.22 kB", "18.5 kB"]);
  assert.deepEqual([0, 0.496, 1].map(percent), ["0 %", "50 %", "100 %"]);
});
