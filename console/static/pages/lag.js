// How far each task is behind its input, and when it will have caught up.

import { el, show } from "../dom.js";
import { UNKNOWN, badge, count, duration, oldest, processorLink } from "../format.js";
import { table } from "../table.js";

export function lagPage(main) {
  return {
    render(data) {
      const rows = [...data.tasks].sort((one, other) => (other.lag ?? -1) - (one.lag ?? -1));
      show(main,
        el("h2", null, "Lag"),
        el("p", { class: "quiet" }, "Offsets between what a task has committed and the end of its input, the largest first. "
          + "The forecast goes by the last minute."),
        table("Lag of each task", COLUMNS, rows, "The pipeline has no tasks yet."));
    },
  };
}

const COLUMNS = [
  ["Task", (task) => processorLink(task.processor, task.id)],
  ["Reads", (task) => task.partitions.join(", "), "text"],
  ["State", (task) => badge(task.state)],
  ["Lag", (task) => lag(task), "number"],
  ["Oldest waits", (task) => oldest(task), "number"],
  ["Change", (task) => change(task.change_per_s), "number"],
  ["Forecast", forecast, "text"],
];

function lag(task) {
  if (task.lag === null) return UNKNOWN;
  return task.lag_age_ms === null ? count(task.lag) : `${count(task.lag)} (${duration(task.lag_age_ms)} ago)`;
}

function change(perSecond) {
  if (perSecond === null) return UNKNOWN;
  const size = count(Math.round(Math.abs(perSecond)));
  if (size === "0") return "0/s";
  return `${perSecond > 0 ? "+" : "−"}${size}/s`;
}

function forecast(task) {
  const words = {
    done: "✓ no lag",
    unknown: "not known yet",
    steady: "→ stays as it is",
    growing: "↑ grows",
    shrinking: `↓ caught up in ${duration((task.eta_s ?? 0) * 1000)}`,
  };
  return el("span", { class: task.trend === "growing" ? "busy" : "" }, words[task.trend]);
}
