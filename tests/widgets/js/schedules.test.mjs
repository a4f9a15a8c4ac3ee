import assert from "node:assert/strict";
import test from "node:test";

import { sentence } from "../../../course/widgets/schedules/widget.js";

test("length and calls are compared in a sentence", () => {
  assert.match(sentence({ length: 200, calls: 200, stopped: "" }), /200 steps long and is stepped 200 times, as it should/);
  assert.match(sentence({ length: 10, calls: 200, stopped: "" }), /10 steps long .* 200 times: its end comes after 10 updates/);
  assert.match(sentence({ length: 200, calls: 10, stopped: "" }), /ends 5 % of the way/);
  assert.match(sentence({ length: 10, calls: 200, rates: Array(11), stopped: "ValueError: no" }), /step 11 raised ValueError: no/);
});
