import assert from "node:assert/strict";
import test from "node:test";

import { remark } from "../../../course/widgets/loop/widget.js";

test("the remark names what an order lacks, fewer updates and torch's warning, and is empty without", () => {
  const plain = { lacking: [], warned: "", log: "", updates: 13, batches: 13 };
  assert.equal(remark(plain), "");
  assert.match(remark({ ...plain, lacking: ["mixed precision", "clipping"] }), /only with mixed precision and clipping\./);
  assert.match(remark({ ...plain, updates: 4, warned: "wrong place" }), /^4 updates per epoch instead of 13.*torch warns: wrong place\.$/);
});
