// Canvas plots: a painter is asked again on every change of theme, size or pixel ratio.
// Colours go by name and differ in lightness; classes and curves differ in marker or dash too.

const LIGHT = {
  blue: "#0072B2", red: "#C24E00", green: "#00795A", purple: "#A8478A", orange: "#9A6A00",
  sky: "#2B86BD", grey: "#6B6B6B",
};
const DARK = {
  blue: "#56B4E9", red: "#FF8A4C", green: "#2FC99B", purple: "#E59FCB", orange: "#F2B53C",
  sky: "#9AD4F5", grey: "#A8A8A8",
};
export const ORDER = ["blue", "red", "green", "purple", "orange", "sky", "grey"];
export const MARKERS = ["o", "s", "^", "D", "x", "v", "+"];

const GROUPED = new Intl.NumberFormat("en-US");  // made once: toLocaleString makes one per number

// A number for people: four digits, thousands apart, powers of ten where it needs them.
export function fmt(value, digits = 4) {
  if (typeof value === "string" && !/^-?Infinity$|^NaN$/.test(value)) return value;
  value = Number(value);
  if (Number.isNaN(value)) return "nan";
  if (!Number.isFinite(value)) return value > 0 ? "inf" : "−inf";
  const size = Math.abs(value);
  let text;
  if (Number.isInteger(value) && size < 1e9) text = GROUPED.format(size);
  else if (size >= 1e6 || size < 1e-3) {
    const [front, back] = size.toExponential(digits - 2).split("e");
    text = `${front.replace(/\.?0+$/, "")}e${Number(back)}`;
  } else text = String(Number(size.toPrecision(digits)));
  return (value < 0 ? "−" : "") + text;
}

export function ticks(low, high, count = 5) {
  const rough = (high - low) / Math.max(1, count);
  if (!(rough > 0) || !Number.isFinite(rough)) return [low];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= rough * 0.999);
  const made = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k += 1) {
    made.push(Number((k * step).toPrecision(12)));
  }
  return made;
}

export function logTicks(low, high, count = 5) {
  const first = Math.ceil(Math.log10(low) - 1e-9), last = Math.floor(Math.log10(high) + 1e-9);
  if (last - first < 1) return ticks(low, high, count).filter((v) => v > 0);
  const every = Math.max(1, Math.ceil((last - first) / count));
  const made = [];
  for (let k = first; k <= last; k += every) made.push(Number(`1e${k}`));
  return made;
}

// Lowest and highest finite number, with a margin; a range of no width gets one.
export function span(values, margin = 0.05, log = false) {
  let low = Infinity, high = -Infinity;
  for (const one of values) {
    const value = Number(one);
    if (!Number.isFinite(value) || (log && value <= 0)) continue;
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  if (low > high) return log ? [0.1, 1] : [0, 1];
  if (log) {
    const pad = Math.max((high / low) ** margin, 1.05);
    return [low / pad, high * pad];
  }
  const pad = (high - low || Math.abs(high) || 1) * margin;
  return [low - pad, high + pad];
}

export function scale(low, high, from, to, log = false) {
  const of = log ? Math.log10 : (v) => v;
  const a = of(low), width = of(high) - a || 1;
  return (value) => from + ((of(value) - a) / width) * (to - from);
}

export class Painter {
  // `kept` outlives the painter: what `still` has drawn.
  constructor(context, width, height, theme, kept = {}) {
    Object.assign(this, { c: context, width, height, theme, kept });
    this.ops = [];
    this.named = [];
    this.a = { x: [0, 1], y: [0, 1] };
  }

  color(name) {
    return { fg: this.theme.fg, muted: this.theme.muted, line: this.theme.line, bg: this.theme.bg,
      ...this.theme.palette }[name] ?? name;
  }

  axes(options) { this.a = options; }

  // kind: line | area | o s ^ D x v +, as the legend shows it
  add(options, kind, op) {
    const color = this.color(options.color ?? ORDER[this.named.length % ORDER.length]);
    if (options.name) this.named.push({ name: options.name, color, kind, dash: options.dash });
    this.ops.push(() => op(color));
  }

  line(xs, ys, options = {}) {
    this.add(options, options.marker ?? "line", (color) => {
      const { c } = this;
      Object.assign(c, { strokeStyle: color, lineWidth: options.width ?? 2, lineJoin: "round" });
      c.setLineDash(options.dash ?? []);
      c.beginPath();
      let pen = false;
      for (let i = 0; i < ys.length; i += 1) {
        const x = this.x(Number(xs[i])), y = this.y(Number(ys[i]));
        if (!Number.isFinite(x) || !Number.isFinite(y)) { pen = false; continue; }
        if (pen && options.stairs) c.lineTo(x, this.y(Number(ys[i - 1])));
        c[pen ? "lineTo" : "moveTo"](x, y);
        pen = true;
      }
      c.stroke();
      c.setLineDash([]);
      if (options.marker) {
        for (let i = 0; i < ys.length; i += 1) {
          this.mark(options.marker, this.x(Number(xs[i])), this.y(Number(ys[i])), 4, color);
        }
      }
    });
  }

  points(xs, ys, options = {}) {
    this.add(options, options.marker ?? "o", (color) => {
      for (let i = 0; i < xs.length; i += 1) {
        const at = [this.x(Number(xs[i])), this.y(Number(ys[i]))];
        this.mark(options.marker ?? "o", ...at, options.size ?? 4, color, options.rim);
      }
    });
  }

  // What `draw` adds looks the same while `what` is the same object: drawn once, then copied.
  still(what, draw) {
    const first = this.ops.length;
    draw();
    const ops = this.ops.splice(first);
    this.ops.push(() => {
      const { c, kept, box } = this, { width, height } = c.canvas;
      const key = [width, height, box.l, box.t, box.r, box.b, ...this.a.x, ...this.a.y].join();
      if (kept.what !== what || kept.key !== key || kept.theme !== this.theme) {
        const layer = Object.assign(document.createElement("canvas"), { width, height });
        this.c = layer.getContext("2d");
        this.c.setTransform(c.getTransform());
        ops.forEach((op) => op());
        this.c = c;
        Object.assign(kept, { what, key, layer, theme: this.theme });
      }
      c.drawImage(kept.layer, 0, 0, this.width, this.height);
    });
  }

  mark(kind, x, y, size, color, rim) {
    if (!Number.isFinite(x) || !Number.isFinite(y)) return;
    const { c } = this, s = size;
    c.beginPath();
    if (kind === "o") c.arc(x, y, s, 0, 7);
    else if (kind === "s") c.rect(x - s * 0.9, y - s * 0.9, s * 1.8, s * 1.8);
    else if (kind === "x" || kind === "+") {
      const [p, q] = kind === "x" ? [s, s] : [s * 1.2, 0];
      c.moveTo(x - p, y - q); c.lineTo(x + p, y + q);
      c.moveTo(x - q, y + p); c.lineTo(x + q, y - p);
      Object.assign(c, { strokeStyle: color, lineWidth: 2 });
      c.stroke();
      return;
    } else {
      const corners = {
        "^": [[0, -1.2], [1.1, 0.8], [-1.1, 0.8]],
        v: [[0, 1.2], [1.1, -0.8], [-1.1, -0.8]],
        D: [[0, -1.3], [1.1, 0], [0, 1.3], [-1.1, 0]],
      }[kind];
      corners.forEach(([u, w], i) => c[i ? "lineTo" : "moveTo"](x + u * s, y + w * s));
      c.closePath();
    }
    c.fillStyle = color;
    c.fill();
    if (rim) { Object.assign(c, { strokeStyle: this.color(rim), lineWidth: 1 }); c.stroke(); }
  }

  arrow(x0, y0, x1, y1, options = {}) {
    this.add(options, "line", (color) => {
      const { c } = this, a = [this.x(x0), this.y(y0)], b = [this.x(x1), this.y(y1)];
      const angle = Math.atan2(b[1] - a[1], b[0] - a[0]), long = Math.hypot(b[0] - a[0], b[1] - a[1]);
      const head = Math.min(11, long / 2);
      Object.assign(c, { strokeStyle: color, fillStyle: color, lineWidth: options.width ?? 3 });
      c.setLineDash(options.dash ?? []);
      c.beginPath();
      c.moveTo(...a);
      c.lineTo(b[0] - head * 0.8 * Math.cos(angle), b[1] - head * 0.8 * Math.sin(angle));
      c.stroke();
      c.setLineDash([]);
      c.beginPath();
      c.moveTo(...b);
      for (const turn of [0.42, -0.42]) {
        c.lineTo(b[0] - head * Math.cos(angle + turn), b[1] - head * Math.sin(angle + turn));
      }
      c.fill();
    });
  }

  rule({ x, y, ...options }) {
    const { a } = this;
    if (x !== undefined) this.line([x, x], a.y, { width: 1.5, dash: [5, 4], color: "grey", ...options });
    else this.line(a.x, [y, y], { width: 1.5, dash: [5, 4], color: "grey", ...options });
  }

  rect(x0, y0, x1, y1, options = {}) {
    this.add(options, "area", (color) => {
      const { c } = this, x = this.x(x0), y = this.y(y0);
      c.globalAlpha = options.alpha ?? 1;
      c.fillStyle = color;
      c.fillRect(x, y, this.x(x1) - x, this.y(y1) - y);
      c.globalAlpha = 1;
      if (options.rim) {
        Object.assign(c, { strokeStyle: this.color(options.rim), lineWidth: 1 });
        c.strokeRect(x, y, this.x(x1) - x, this.y(y1) - y);
      }
    });
  }

  bars(xs, ys, { width = 0.7, ...options } = {}) {
    const base = this.a.yLog ? this.a.y[0] : 0;
    xs.forEach((x, i) => this.rect(x - width / 2, base, x + width / 2, Number(ys[i]),
      { ...options, name: i ? undefined : options.name }));
  }

  circle(x, y, radius, options = {}) {
    this.add(options, "line", (color) => {
      const { c } = this;
      Object.assign(c, { strokeStyle: color, lineWidth: options.width ?? 2 });
      c.setLineDash(options.dash ?? []);
      c.beginPath();
      c.ellipse(this.x(x), this.y(y), Math.abs(this.x(x + radius) - this.x(x)),
        Math.abs(this.y(y + radius) - this.y(y)), 0, 0, 7);
      c.stroke();
      c.setLineDash([]);
    });
  }

  text(x, y, words, { color = "fg", align = "center", bold = false, dx = 0, dy = 0, size = 12 } = {}) {
    this.ops.push(() => {
      this.write(words, this.x(x) + dx, this.y(y) + dy, { color, align, bold, size });
    });
  }

  write(words, x, y, { color = "fg", align = "center", base = "middle", bold = false, size = 12 } = {}) {
    const { c } = this;
    c.font = `${bold ? "600 " : ""}${size}px ${this.theme.font}`;
    Object.assign(c, { fillStyle: this.color(color), textAlign: align, textBaseline: base });
    c.fillText(words, x, y);
  }

  // A picture of cells: rgba(index) gives [r, g, b, a] of a cell, row by row from the top.
  image(columns, rows, rgba) {
    this.ops.push(() => {
      const cells = document.createElement("canvas");
      Object.assign(cells, { width: columns, height: rows });
      const data = new ImageData(columns, rows);
      for (let i = 0; i < columns * rows; i += 1) data.data.set(rgba(i), 4 * i);
      cells.getContext("2d").putImageData(data, 0, 0);
      const { a, c } = this;
      c.imageSmoothingEnabled = true;
      c.drawImage(cells, this.x(a.x[0]), this.y(a.y[1]),
        this.x(a.x[1]) - this.x(a.x[0]), this.y(a.y[0]) - this.y(a.y[1]));
    });
  }

  // Where the legend's entries go: rows of at most `width` pixels.
  legendRows(width) {
    this.c.font = `12px ${this.theme.font}`;
    const rows = [];
    let x = Infinity;
    for (const entry of this.named) {
      const wide = 30 + this.c.measureText(entry.name).width + 14;
      if (x + wide > width) { rows.push([]); x = 0; }
      rows.at(-1).push({ ...entry, x });
      x += wide;
    }
    return rows;
  }

  finish() {
    const { c, a, width, height } = this;
    const rows = this.legendRows(width - 10);
    const bare = a.bare, top = rows.length * 19 + 8;
    c.font = `12px ${this.theme.font}`;
    const yTicks = a.yTicks ?? (a.yLog ? logTicks : ticks)(...a.y, Math.max(2, height / 50));
    const name = (v, names) => names?.[v] ?? fmt(v, 3);
    const wide = Math.max(0, ...yTicks.map((v) => c.measureText(name(v, a.yNames)).width));
    const box = bare ? { l: 4, r: width - 4, t: top, b: height - 4 } : {
      l: (a.yLabel ? 24 : 8) + (a.noY ? 0 : wide + 6), r: width - 14, t: top + 6,
      b: height - (a.xLabel ? 42 : 24),
    };
    if (a.equal) {
      const unit = Math.min((box.r - box.l) / (a.x[1] - a.x[0]), (box.b - box.t) / (a.y[1] - a.y[0]));
      const spare = (box.r - box.l) - unit * (a.x[1] - a.x[0]);
      box.l += spare / 2; box.r -= spare / 2;
      box.t = box.b - unit * (a.y[1] - a.y[0]);
    }
    this.box = box;
    this.x = scale(...a.x, box.l, box.r, a.xLog);
    this.y = scale(...a.y, box.b, box.t, a.yLog);
    rows.forEach((row, i) => row.forEach((entry) => this.legendEntry(entry, 6, 12 + 19 * i)));
    const xTicks = a.xTicks ?? (a.xLog ? logTicks : ticks)(...a.x, Math.max(2, (box.r - box.l) / 75));
    if (!bare) {
      Object.assign(c, { strokeStyle: this.theme.line, lineWidth: 1 });
      c.beginPath();
      if (!a.noY) for (const v of yTicks) { c.moveTo(box.l, this.y(v)); c.lineTo(box.r, this.y(v)); }
      if (!a.noX && !a.noGrid) for (const v of xTicks) { c.moveTo(this.x(v), box.t); c.lineTo(this.x(v), box.b); }
      c.stroke();
    }
    c.save();
    c.beginPath();
    c.rect(box.l - 1, box.t - 1, box.r - box.l + 2, box.b - box.t + 2);
    if (!a.spill) c.clip();
    for (const op of this.ops) op();
    c.restore();
    if (bare) return;
    Object.assign(c, { strokeStyle: this.theme.muted, lineWidth: 1 });
    c.strokeRect(box.l, box.t, box.r - box.l, box.b - box.t);
    if (!a.noX) for (const v of xTicks) this.write(name(v, a.xNames), this.x(v), box.b + 11, { color: "muted" });
    if (!a.noY) for (const v of yTicks) this.write(name(v, a.yNames), box.l - 6, this.y(v), { color: "muted", align: "right" });
    if (a.xLabel) this.write(a.xLabel, (box.l + box.r) / 2, Math.min(height - 9, box.b + 30));
    if (a.yLabel) {
      c.save();
      c.translate(Math.max(10, box.l - wide - 20), (box.t + box.b) / 2);
      c.rotate(-Math.PI / 2);
      this.write(a.yLabel, 0, 0);
      c.restore();
    }
  }

  legendEntry({ name, color, kind, dash, x }, left, y) {
    const { c } = this;
    x += left;
    Object.assign(c, { strokeStyle: color, fillStyle: color, lineWidth: 2.5 });
    if (kind === "area") c.fillRect(x, y - 5, 20, 10);
    else if (kind === "line" || dash) {
      c.setLineDash(dash ?? []);
      c.beginPath(); c.moveTo(x, y); c.lineTo(x + 22, y); c.stroke();
      c.setLineDash([]);
    }
    if (kind !== "area" && kind !== "line") this.mark(kind, x + 11, y, 4.5, color);
    this.write(name, x + 28, y, { align: "left" });
  }

  // Pixels back to the data's units, for dragging.
  unscale(px, py) {
    const { a, box } = this;
    return [a.x[0] + ((px - box.l) / (box.r - box.l)) * (a.x[1] - a.x[0]),
      a.y[0] + ((box.b - py) / (box.b - box.t)) * (a.y[1] - a.y[0])];
  }
}

export function themeOf(root) {
  const style = getComputedStyle(root);
  const rgb = (style.backgroundColor.match(/[\d.]+/g) ?? [255, 255, 255]).map(Number);
  const dark = rgb[0] * 0.299 + rgb[1] * 0.587 + rgb[2] * 0.114 < 128 && rgb[3] !== 0;
  const of = (name) => style.getPropertyValue(name).trim();
  return {
    dark, bg: style.backgroundColor, fg: style.color, muted: of("--cw-muted"),
    line: of("--cw-line"), font: style.fontFamily, palette: dark ? DARK : LIGHT,
  };
}
