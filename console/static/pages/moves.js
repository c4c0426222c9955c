// What is on its way: restores, starts, standbys, and the latest moves of tasks.

import { el, show } from "../dom.js";
import { UNKNOWN, badge, count, duration, processorLink, when } from "../format.js";
import { table } from "../table.js";

const TASK = ["Task", (task) => processorLink(task.processor, task.id)];
const OWNER = ["TaskManager", (task) => (task.owner === null ? "none" : String(task.owner)), "number"];
const STATE = ["State", (task) => badge(task.state)];
const REASON = ["Reason", (task) => task.reason, "text"];

export function movesPage(main) {
  return {
    render(data) {
      show(main,
        el("h2", null, "Moves"),
        section("Restoring state", table("Tasks and standbys that restore their state", [
          TASK, OWNER,
          ["Progress", progress, "text"],
          ["Offsets", (task) => `${count(task.restored)} of ${count(task.to_restore)}`, "number"],
          ["Time left", (task) => (task.eta_s === null ? UNKNOWN : duration(task.eta_s * 1000)), "number"],
        ], data.restoring, "No state is restored now.")),
        section("Starting", table("Tasks that do not run yet", [TASK, OWNER, STATE, REASON], data.starting,
          "No task is starting.")),
        section("Standbys", table("Copies of state on other TaskManagers", [
          TASK, ["Copy of", (task) => task.of], OWNER, STATE,
          ["Records applied", (task) => count(task.state_records), "number"],
          ["Lag", (task) => count(task.lag), "number"],
        ], data.standbys, "There are no standbys.")),
        section("Latest moves", table("Moves of tasks, the latest first", [
          ["Time", (event) => when(event.at_ms)],
          ["What", (event) => event.text, "text"],
          ["Tasks", (event) => event.tasks.join(", "), "text"],
        ], data.moves, "No task has moved since this JobManager started.")));
    },
  };
}

const section = (title, content) => el("section", { class: "card" }, el("h3", null, title), content);

function progress(task) {
  if (task.percent === null) return "counting";
  return [el("progress", { max: 100, value: task.percent, "aria-label": `restore of ${task.id}` }), ` ${task.percent}%`];
}
