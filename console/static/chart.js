// A chart of one line for each processor, with uPlot.

import { el, show } from "./dom.js";
import { time } from "./format.js";

const HEIGHT = 220;
const MOST_LINES = 8;
const DASHES = [[], [6, 4], [2, 3], [10, 4, 2, 4]];

export class Chart {
  constructor(title, format) {
    this.title = title;
    this.format = format;
    this.plot = null;
    this.names = [];
    this.body = el("div", { class: "plot" });
    this.note = el("p", { class: "quiet" }, "");
    this.element = el("figure", { class: "card" }, el("figcaption", null, title), this.body, this.note);
    this.sizes = new ResizeObserver(() => this.plot?.setSize(this.size()));
    this.sizes.observe(this.body);
    this.scheme = matchMedia("(prefers-color-scheme: dark)");
    this.onScheme = () => this.reset();
    this.scheme.addEventListener("change", this.onScheme);
  }

  // Shows the lines of the processors with the largest last values.
  update(times, processors, figure) {
    const last = (name) => processors[name][figure].findLast((value) => value !== null) ?? -1;
    const names = Object.keys(processors).sort((one, other) => last(other) - last(one)).slice(0, MOST_LINES).sort();
    const left = Object.keys(processors).length - names.length;
    this.note.textContent = left > 0 ? `The ${MOST_LINES} processors with the largest values; ${left} are left out.` : "";
    this.data = [times.map((ms) => ms / 1000), ...names.map((name) => processors[name][figure])];
    if (times.length < 2) {
      show(this.body, el("p", { class: "quiet" }, "The first points come in a few seconds."));
      return;
    }
    if (this.plot === null || names.join("\n") !== this.names.join("\n")) {
      this.names = names;
      this.reset();
    } else {
      this.plot.setData(this.data);
    }
  }

  reset() {
    if (!this.data || this.data[0].length < 2) return;
    this.plot?.destroy();
    show(this.body);
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const axis = {
      stroke: colour("--quiet"),
      grid: { stroke: colour("--line"), width: 1 },
      ticks: { stroke: colour("--line"), width: 1 },
      font: "12px system-ui",
    };
    const series = this.names.map((name, index) => ({
      label: name,
      stroke: colour(`--line-${index % MOST_LINES}`),
      dash: DASHES[index % DASHES.length],
      width: 2,
      points: { show: false },
      value: (_, value) => (value === null ? "–" : this.format(value)),
    }));
    this.plot = new window.uPlot({
      ...this.size(),
      scales: { y: { range: (_, low, high) => [Math.min(low ?? 0, 0), Math.max(high ?? 1, 1) * 1.05] } },
      axes: [{ ...axis, space: 72, values: (_, seconds) => seconds.map((each) => time(each * 1000)) }, { ...axis, size: 56, values: (_, values) => values.map(this.format) }],
      series: [{ label: "Time", value: (_, seconds) => (seconds === null ? "–" : time(seconds * 1000)) }, ...series],
    }, this.data, this.body);
    this.body.setAttribute("role", "img");
    this.body.setAttribute("aria-label", `${this.title}: ${this.names.join(", ")}`);
  }

  size() {
    return { width: Math.max(this.body.clientWidth, 240), height: HEIGHT };
  }

  close() {
    this.plot?.destroy();
    this.sizes.disconnect();
    this.scheme.removeEventListener("change", this.onScheme);
  }
}
