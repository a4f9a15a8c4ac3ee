import assert from "node:assert/strict";
import test from "node:test";

import { sentence } from "../../../course/widgets/arithmetic/widget.js";

test("a micro-batch is told in a sentence with its size, what .grad holds and what follows", () => {
  const last = { index: 313, size: 16, window: 79, held: 1, fate: "step" };
  assert.match(sentence(last, 4, 32), /^Micro-batch 313: .* 16 examples \(not 32\); .*1 of 4 micro-batches; .* update 79/);
  assert.match(sentence({ ...last, fate: "forgotten" }, 4, 16), /16 examples; .*thrown away/);
});
