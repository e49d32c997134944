// A line chart over the last minutes. The arrow keys, and the pointer, read single points.

import { element, svg } from "./dom.js";

const kHeight = 150;
const kLeft = 44;
const kBottom = 18;
const kTop = 8;
const kRight = 8;

function format(value) {
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e6) return `${(value / 1e6).toFixed(1)}M`;
  if (size >= 1e4) return `${(value / 1e3).toFixed(1)}k`;
  if (size >= 100 || value === Math.round(value)) return String(Math.round(value));
  return value.toPrecision(size >= 1 ? 3 : 2);
}

// The next of 1, 2, 5, 10, ... times a power of ten.
function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].find((step) => step * power >= value * 0.999) * power;
}

export class LineChart {
  // `lines`: names of the values of each point. `max`: end of the scale where it is known.
  constructor({ title, unit, lines, max }) {
    this.unit = unit;
    this.max = max;
    this.points = [];
    this.window = 1;
    this.cursor = null;  // index of the point that is read
    this.plot = svg("svg", { tabindex: "0", role: "img", height: kHeight });
    this.values = lines.map(() => element("output", {}, "–"));
    this.when = element("span", { class: "hint" });
    const legend = lines.map((line, i) =>
      element("li", { class: `line-${i}` }, element("span", {}, line), " ", this.values[i]));
    this.title = title;
    this.root = element("section", { class: "chart" },
                        element("h3", {}, title, unit ? element("small", {}, ` ${unit}`) : ""),
                        element("ul", {}, ...legend), this.plot, this.when);
    this.plot.addEventListener("keydown", (event) => this.moveByKey(event));
    this.plot.addEventListener("pointermove", (event) => this.moveTo(event.offsetX));
    for (const name of ["pointerleave", "blur"]) {
      this.plot.addEventListener(name, () => this.setCursor(null));
    }
    new ResizeObserver(() => this.draw()).observe(this.root);
  }

  // `points`: [{seconds, values}], in order. `window`: seconds that the chart shows.
  show(points, window) {
    this.points = points;
    this.window = window;
    if (this.cursor !== null) this.cursor = Math.min(this.cursor, points.length - 1);
    this.draw();
  }

  moveByKey(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step === undefined || this.points.length === 0) return;
    event.preventDefault();
    const last = this.points.length - 1;
    this.setCursor(Math.max(0, Math.min(last, (this.cursor ?? last) + step)));
  }

  moveTo(x) {
    if (this.points.length === 0) return;
    const distances = this.points.map((point) => Math.abs(this.x(point) - x));
    this.setCursor(distances.indexOf(Math.min(...distances)));
  }

  setCursor(index) {
    this.cursor = index;
    this.draw();
  }

  x({ seconds }) {
    const age = this.points.at(-1).seconds - seconds;
    return kLeft + (1 - age / this.window) * (this.width - kLeft - kRight);
  }

  y(value) {
    return kTop + (1 - value / this.top) * (kHeight - kTop - kBottom);
  }

  draw() {
    this.width = Math.max(200, this.root.clientWidth - 24);
    this.plot.setAttribute("width", this.width);
    const shown = this.points.flatMap((point) => point.values).filter(Number.isFinite);
    this.top = this.max ?? roundUp(Math.max(...shown, 1e-9));
    if (shown.every((value) => value === 0)) this.top = this.max ?? 1;
    const paths = this.values.map((_, i) => svg("path", { class: `line-${i}`, d: this.path(i) }));
    this.plot.replaceChildren(...this.grid(), ...paths, ...this.cursorLine());
    this.showValues();
  }

  grid() {
    const parts = [];
    for (const part of [0, 0.5, 1]) {
      const y = this.y(part * this.top);
      parts.push(svg("line", { class: "scale", x1: kLeft, x2: this.width - kRight, y1: y, y2: y }));
      parts.push(svg("text", { x: kLeft - 6, y: y + 4, "text-anchor": "end" },
                     format(part * this.top)));
    }
    const begin = this.window >= 120 ? `${Math.round(this.window / 60)} min ago`
                                     : `${Math.round(this.window)} s ago`;
    parts.push(svg("text", { x: kLeft, y: kHeight - 4 }, begin));
    parts.push(svg("text", { x: this.width - kRight, y: kHeight - 4, "text-anchor": "end" }, "now"));
    return parts;
  }

  // A line with gaps where there is no value; a single value is a dot.
  path(index) {
    let path = "";
    let isOpen = false;
    for (const point of this.points) {
      const value = point.values[index];
      const x = this.x(point);
      if (!Number.isFinite(value) || x < kLeft) {
        isOpen = false;
        continue;
      }
      const at = `${x.toFixed(1)} ${this.y(Math.min(value, this.top)).toFixed(1)}`;
      path += isOpen ? `L${at}` : `M${at}h0.01`;
      isOpen = true;
    }
    return path;
  }

  cursorLine() {
    if (this.cursor === null || this.points.length === 0) return [];
    const x = this.x(this.points[this.cursor]);
    return [svg("line", { class: "cursor", x1: x, x2: x, y1: kTop, y2: kHeight - kBottom })];
  }

  showValues() {
    const point = this.points[this.cursor ?? this.points.length - 1];
    this.values.forEach((output, i) => { output.textContent = format(point?.values[i]); });
    const age = this.cursor === null || point === undefined
      ? 0 : Math.round(this.points.at(-1).seconds - point.seconds);
    this.when.textContent = age > 0 ? `${age} s ago` : "";
    const values = this.values.map((output) => output.textContent).join(", ");
    this.plot.setAttribute("aria-label", `${this.title}: ${values} ${this.unit}`);
  }
}
