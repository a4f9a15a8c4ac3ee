import { mount } from "../base/base.js";

// How a module reaches a tensor, in the order of its life: key, what stands above the column.
const WAYS = [
  ["parameter", "listed"], ["grad", ".grad"], ["stepped", "step()"], ["moved", ".to()"], ["saved", "saved"],
];

const yes = (rows, way) => rows.filter((row) => row[way]).length;

export default mount((ui) => {
  const numbers = ui.readouts();
  const code = ui.code("The module: ▸ the lines you chose");
  const dots = ui.plot("What reaches each tensor (listed: parameters(), saved: state_dict())", { height: 250 });
  const life = ui.code("Five operations: ▸ what has just run");
  const forward = ui.text("Forward pass now");
  const tensors = ui.tensors("Every tensor that forward uses (double border: reached by the operation, dashed: not)", { wide: true });
  const parameters = ui.table("model.named_parameters()");
  const saved = ui.table("model.state_dict()");
  return (frame, settings) => {
    const { rows, numbers: count } = frame, now = settings.at - 1;
    const of = (n) => `of ${n}`;
    numbers([
      ["in parameters()", yes(rows, "parameter"), of(`${rows.length} tensors`)],
      ["numbers to learn", count.parameters, of(`${count.used} used`)],
      ["moved by step()", yes(rows, "stepped"), of(`${rows.length} tensors`)],
      ["moved by .to()", yes(rows, "moved"), of(`${rows.length} tensors`)],
      ["in state_dict()", yes(rows, "saved"), of(`${rows.length} tensors`)],
    ]);
    code(frame.code, frame.chosen);
    dots.draw((g) => {
      const last = rows.length - 1;
      const names = (list) => Object.fromEntries(list.map((name, i) => [i, name]));
      g.axes({ x: [-0.5, WAYS.length - 0.5], y: [-0.5, last + 0.5], noGrid: true,
        xTicks: WAYS.map((_, i) => i), xNames: names(WAYS.map(([, name]) => name)),
        yTicks: rows.map((_, i) => i), yNames: names(rows.map((row) => row.name).reverse()) });
      g.rect(now - 0.48, -0.48, now + 0.48, last + 0.48, { color: "orange", alpha: 0.22 });
      const at = (wanted) => rows.flatMap((row, i) => WAYS.flatMap(([way], k) => (row[way] === wanted ? [[k, last - i]] : [])));
      const [full, empty] = [at(true), at(false)];
      g.points(full.map(([x]) => x), full.map(([, y]) => y), { color: "blue", size: 8, name: "reached" });
      g.points(empty.map(([x]) => x), empty.map(([, y]) => y), { color: "grey", marker: "x", size: 5, name: "not reached" });
    });
    life(frame.operations, [now]);
    forward(frame.forward);
    tensors(frame.tensors);
    parameters({ head: ["name", "shape", "requires_grad"], rows: frame.parameters.map(([name, shape, asks]) => [name, `[${shape.join(", ")}]`, asks ? "True" : "False"]) });
    saved({ head: ["key", "shape"], rows: frame.state_dict.map(([name, shape]) => [name, `[${shape.join(", ")}]`]) });
  };
});
