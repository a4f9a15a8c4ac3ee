import assert from "node:assert/strict";
import test from "node:test";

import { size } from "../../../course/widgets/device/widget.js";

test("memory reads in GB or in MB", () => {
  assert.deepEqual([21.6, 0.158, 0.0046].map(size), ["21.6 GB", "0.158 GB", "4.6 MB"]);
});
