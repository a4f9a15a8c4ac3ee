// The page's side of every widget: controls from their description, panels, keys, names, frames.
import { Painter, fmt, themeOf } from "./plot.js";

// "NaN" and "Infinity" of a frame are numbers again.
export const num = (value) => (value === null ? NaN : Number(value));

export const bytesOf = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));

// The slider's place of a value: the nearest of the control's values.
export function placeOf(control, value) {
  let best = 0;
  control.values.forEach((one, i) => {
    if (Math.abs(one - value) < Math.abs(control.values[best] - value)) best = i;
  });
  return best;
}

export function nameOf(control, value) {
  const i = control.values.indexOf(value);
  const name = control.names?.[i] ?? (typeof value === "number" ? fmt(value) : String(value));
  return control.unit ? `${name} ${control.unit}` : name;
}

// Says at most one thing every `every` milliseconds, and the last one always.
export function speaker(say, every = 2000, clock = Date.now, later = setTimeout) {
  let next = 0, words = null, waiting = false;
  const speak = () => {
    waiting = false;
    next = clock() + every;
    say(words);
  };
  return (text) => {
    if (text === words) return;
    words = text;
    if (waiting) return;
    waiting = true;
    if (clock() >= next) speak();
    else later(speak, next - clock());
  };
}

// One message under way at a time; what is touched meanwhile goes with the next one.
export function sender(send) {
  let pending = {}, busy = false;
  const flush = () => {
    busy = Object.keys(pending).length > 0;
    if (busy) {
      const changes = pending;
      pending = {};
      send({ type: "set", changes });
    }
  };
  return {
    set(changes) {
      Object.assign(pending, changes);
      if (!busy) flush();
    },
    answered: flush,
    holds: (name) => name in pending,
    get busy() { return busy; },
  };
}

// A number, vector or matrix as rows of cells; a vector is a column.
export function rowsOf(values) {
  if (values === null) return [["none"]];
  return [values].flat().map((row) => [row].flat());
}

export function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== ""));
  return node;
}

// Numbers stand right in a table, words left.
const sideOf = (cell) => (/[a-z]{2}/.test(cell) && !/^-?Infinity$/.test(cell) ? "cw-word" : undefined);

const LABELS = { play: "Play", pause: "Pause", step: "Step", epoch: "Epoch", reset: "Reset" };
let made = 0;

class Ui {
  constructor(model, el) {
    this.model = model;
    this.about = model.get("about");
    this.plots = [];
    this.undo = [];
    this.key = `cw${(made += 1)}`;
    this.sender = sender((message) => model.send(message));
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
    const { about } = this;
    this.note = make("p", { class: "cw-note", role: "alert" });
    const said = make("p", { class: "cw-said", role: "status" });
    this.speak = speaker((text) => { said.textContent = text; });
    this.panels = make("div", { class: "cw-panels" });
    this.controls = make("div", { class: "cw-controls" });
    this.root = make("section", {
      class: "course-widget", "aria-label": about.title, tabindex: "-1", "data-lm-suppress-shortcuts": "true",
    },
      make("header", {}, make(`h${about.level}`, { class: "cw-title" }, about.title), make("small", {}, about.source)),
      make("p", { class: "cw-try" }, make("b", {}, "Try"), ` ${about.tries[0]} `, make("br"),
        make("b", {}, "See"), ` ${about.tries[1]}`),
      this.controls, this.note, this.panels, said);
    for (const kind of ["keydown", "keyup", "keypress"]) {
      this.root.addEventListener(kind, (event) => event.stopPropagation());
    }
    el.append(this.root);
    this.inputs = new Map(about.controls.map((control) => [control.name, this.control(control)]));
    this.buttons();
    this.watch();
  }

  control(control) {
    const id = `${this.key}-${control.name}`;
    const tell = (value) => this.set({ [control.name]: value });
    const out = make("output", { for: id });
    let input, show;
    if (control.kind === "slider") {
      input = make("input", { type: "range", id, min: 0, max: control.values.length - 1, step: 1,
        oninput: () => { tell(control.values[input.value]); show(control.values[input.value]); } });
      show = (value) => {
        input.value = placeOf(control, value);
        out.textContent = nameOf(control, value);
        input.setAttribute("aria-valuetext", out.textContent);
      };
    } else if (control.kind === "choice") {
      input = make("select", { id, onchange: () => tell(control.values[input.selectedIndex]) },
        ...control.values.map((value) => make("option", {}, nameOf(control, value))));
      show = (value) => { input.selectedIndex = control.values.indexOf(value); };
    } else {
      input = make("input", { type: "checkbox", id, onchange: () => tell(input.checked) });
      show = (value) => { input.checked = value; };
    }
    const label = make("label", { for: id, title: control.hint }, control.label);
    const parts = control.kind === "toggle" ? [input, label] : [label, input, control.kind === "slider" ? out : ""];
    const row = make("div", { class: `cw-control cw-${control.kind}` }, ...parts);
    this.controls.append(row);
    return { show, row, input };
  }

  buttons() {
    const { player, buttons, controls } = this.about;
    const bar = make("div", { class: "cw-buttons", role: "group", "aria-label": "Run" });
    const button = (name, act) => make("button", { type: "button", "data-do": name, onclick: act }, LABELS[name] ?? name);
    if (player) {
      const { values } = controls.find((control) => control.name === player);
      const at = () => placeOf({ values }, this.settings[player]);
      const to = (place) => this.set({ [player]: values[Math.min(place, values.length - 1)] });
      let timer = 0;
      const stop = () => { clearInterval(timer); timer = 0; play.textContent = LABELS.play; };
      const play = button("play", () => {
        if (timer) { stop(); return; }
        if (at() === values.length - 1) to(0);
        play.textContent = LABELS.pause;
        timer = setInterval(() => (at() < values.length - 1 ? to(at() + 1) : stop()), this.about.pace);
      });
      this.undo.push(stop);
      bar.append(play, button("step", () => { stop(); to((at() + 1) % values.length); }), button("reset", () => { stop(); to(0); }));
    }
    for (const name of buttons) {
      bar.append(button(name, () => this.do(name === "play" && this.view.running ? "pause" : name)));
    }
    this.play = buttons.includes("play") ? bar.querySelector("[data-do=play]") : null;
    if (bar.children.length) this.controls.append(bar);
    this.bar = bar;
  }

  set(changes) { this.sender.set(changes); }

  do(command) { this.model.send({ type: "do", command }); }

  // --- panels ----------------------------------------------------------------------------------

  panel(title, body, kind = "") {
    const node = make("figure", { class: `cw-panel ${kind}` }, title ? make("figcaption", {}, title) : "", body);
    this.panels.append(node);
    return node;
  }

  // A plot; `describe` is added to its name for screen readers after each drawing.
  plot(title, { height = 240, wide = false } = {}) {
    const canvas = make("canvas", { role: "img", "aria-label": title, style: `height:${height}px` });
    const panel = this.panel(title, canvas, wide ? "cw-wide" : "");
    const plot = {
      canvas, panel, g: null, size: null, kept: {},
      draw: (painter) => { plot.painter = painter; this.paint(plot); },
      drag: (moved) => {
        canvas.classList.add("cw-drag");
        const move = (event) => {
          const at = canvas.getBoundingClientRect();
          if (plot.g && event.buttons) moved(...plot.g.unscale(event.clientX - at.left, event.clientY - at.top));
        };
        canvas.addEventListener("pointerdown", (event) => { canvas.setPointerCapture(event.pointerId); move(event); });
        canvas.addEventListener("pointermove", move);
      },
    };
    this.plots.push(plot);
    this.sizes.observe(canvas);
    return plot;
  }

  paint(plot) {
    const [width, height] = plot.size ?? [plot.canvas.clientWidth, plot.canvas.clientHeight];
    if (!plot.painter || !width) return;
    const dots = window.devicePixelRatio || 1;
    const pixels = [Math.round(width * dots), Math.round(height * dots)];
    if (plot.canvas.width !== pixels[0] || plot.canvas.height !== pixels[1]) {
      [plot.canvas.width, plot.canvas.height] = pixels;
    }
    const context = plot.canvas.getContext("2d");
    context.setTransform(dots, 0, 0, dots, 0, 0);
    context.clearRect(0, 0, width, height);
    plot.g = new Painter(context, width, height, this.theme, plot.kept);
    plot.painter(plot.g);
    plot.g.finish();
  }

  // Numbers that stand beside the picture: show([[label, value, unit], ...]).
  readouts(title = "") {
    const list = make("dl", { class: "cw-readouts" });
    this.panel(title, list, "cw-wide cw-bare");
    return (rows) => list.replaceChildren(...rows.map(([label, value, unit = ""]) =>
      make("div", {}, make("dt", {}, label), make("dd", {}, fmt(value), unit ? make("span", {}, ` ${unit}`) : ""))));
  }

  // A table: show({ head, rows, mark }), mark(row number) true for the row that counts now.
  table(title, { wide = false } = {}) {
    const table = make("table", {});
    this.panel(title, make("div", { class: "cw-scroll", tabindex: "0", role: "region", "aria-label": title }, table), wide ? "cw-wide" : "");
    let before = "";
    return ({ head = [], rows, mark = () => false }) => {
      const marked = rows.map((_, i) => mark(i)), texts = rows.flat().map((one) => fmt(one));
      const shape = JSON.stringify([head, marked, rows.map((row) => row.map(sideOf))]);
      if (shape === before) {  // only the texts that differ: a new table is laid out as a whole
        table.querySelectorAll("tbody > tr > *").forEach((cell, i) => {
          if (cell.textContent !== texts[i]) cell.textContent = texts[i];
        });
        return;
      }
      before = shape;
      let at = 0;
      table.replaceChildren(
        ...(head.length ? [make("thead", {}, make("tr", {}, ...head.map((one, k) => make("th", { scope: "col", class: sideOf(rows[0]?.[k]) }, one))))] : []),
        make("tbody", {}, ...rows.map((row, i) => make("tr", marked[i] ? { class: "cw-on" } : {}, ...row.map((one, k) =>
          (k ? make("td", { class: sideOf(one) }, texts[at++]) : make("th", { scope: "row" }, texts[at++])))))));
    };
  }

  // Lines of code: show(lines, numbers of those that run now).
  code(title, { wide = false } = {}) {
    const pre = make("pre", { class: "cw-code", tabindex: "0", "aria-label": title });
    this.panel(title, pre, wide ? "cw-wide" : "");
    return (lines, now = []) => pre.replaceChildren(...lines.map((line, i) =>
      make("code", now.includes(i) ? { class: "cw-on" } : {}, `${now.includes(i) ? "▸ " : "  "}${line}\n`)));
  }

  // Tensors as grids: show([{ name, shape, values, state }]), state new, changed, same or none.
  tensors(title, { wide = false } = {}) {
    const box = make("div", { class: "cw-tensors" });
    this.panel(title, box, wide ? "cw-wide" : "");
    return (several) => box.replaceChildren(...several.map(({ name, note = "", values, state = "same" }) =>
      make("div", { class: `cw-tensor cw-${state}` }, make("b", {}, name), make("small", {}, note),
        make("table", { "aria-label": `${name}, ${state}` }, make("tbody", {}, ...rowsOf(values).map((row) =>
          make("tr", {}, ...row.map((one) => make("td", {}, fmt(one))))))))));
  }

  text(title = "", { wide = false } = {}) {
    const p = make("p", {});
    const panel = this.panel(title, p, `${wide ? "cw-wide" : ""} cw-bare`);
    return (words) => {
      p.textContent = words;
      panel.hidden = !words;
    };
  }

  // --- theme, size, pixel ratio ----------------------------------------------------------------

  watch() {
    const again = () => {
      this.look();
      this.plots.forEach((plot) => this.paint(plot));
    };
    const soon = () => [0, 150, 600].forEach((ms) => setTimeout(again, ms));
    this.look();
    this.sizes = new ResizeObserver((entries) => {
      for (const { target, contentRect } of entries) {  // asking the canvas would lay out the page
        const plot = this.plots.find((one) => one.canvas === target);
        plot.size = [contentRect.width, contentRect.height];
        this.paint(plot);
      }
    });
    const seen = new MutationObserver(soon);
    const attributes = { attributes: true };
    [document.documentElement, document.body].forEach((node) => seen.observe(node, attributes));
    const dark = matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", soon);
    let dots;
    const zoomed = () => {
      dots?.removeEventListener("change", zoomed);
      dots = matchMedia(`(resolution: ${window.devicePixelRatio}dppx)`);
      dots.addEventListener("change", zoomed);
      if (this.plots.length) again();
    };
    zoomed();
    this.undo.push(() => {
      this.sizes.disconnect();
      seen.disconnect();
      dark.removeEventListener("change", soon);
      dots.removeEventListener("change", zoomed);
    });
  }

  look() {
    this.theme = themeOf(this.root);
    this.root.style.colorScheme = this.theme.dark ? "dark" : "light";
  }

  // --- frames ----------------------------------------------------------------------------------

  get view() { return this.model.get("view"); }

  get settings() { return this.view.settings; }

  show(draw) {
    const { view } = this;
    const { settings, running, note } = view;
    this.inputs.forEach(({ show }, name) => { if (!this.sender.holds(name)) show(settings[name]); });
    if (this.note.textContent !== note) this.note.textContent = note;
    if (this.play) this.play.textContent = running ? LABELS.pause : LABELS.play;
    this.root.classList.toggle("cw-running", running);
    draw({ ...this.model.get("scene"), ...view.frame }, settings, view);
    this.plots.forEach((plot) => plot.canvas.setAttribute("aria-label",
      `${plot.panel.querySelector("figcaption")?.textContent ?? this.about.title}. ${view.says}`));
    this.speak(view.says);
  }
}

// build(ui) makes the panels once and returns draw(frame, settings, view).
export function mount(build) {
  return {
    render({ model, el }) {
      const ui = new Ui(model, el);
      const draw = build(ui);
      let waiting = false;
      const drawn = () => {
        waiting = false;
        const { n } = ui.view;
        try {
          ui.show(draw);
        } finally {
          const tell = () => model.send({ type: "drawn", n });
          if (ui.still.matches) setTimeout(tell, 400);
          else tell();
        }
      };
      const changed = () => {
        ui.sender.answered();
        if (!waiting) { waiting = true; requestAnimationFrame(drawn); }
      };
      model.on("change:view", changed);
      drawn();
      return () => {
        model.off("change:view", changed);
        ui.undo.forEach((undo) => undo());
        model.send({ type: "gone" });
      };
    },
  };
}
