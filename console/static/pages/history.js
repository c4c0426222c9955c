// What has happened, and rates over time.

import { Chart } from "../chart.js";
import { el, show } from "../dom.js";
import { brief, when } from "../format.js";
import { table } from "../table.js";

const CHARTS_MS = 5000;

const KINDS = {
  job_manager: "JobManager",
  task_manager: "TaskManager",
  move: "move",
  failure: "failure",
  deployment: "pipeline",
  action: "action",
};

export function historyPage(main) {
  const inRate = new Chart("Records read, per second", brief);
  const inLag = new Chart("Lag in records", brief);
  const charts = el("div", { class: "charts", "data-own": true }, inRate.element, inLag.element);
  let timer = null;
  let ended = false;

  async function update() {
    try {
      const answer = await fetch("api/rates");
      if (answer.ok) {
        const data = await answer.json();
        if (ended) return;
        inRate.update(data.times_ms, data.processors, "rate_in");
        inLag.update(data.times_ms, data.processors, "lag");
      }
    } catch {
      // The line above the page says that there is no connection.
    }
    if (!ended) timer = setTimeout(update, CHARTS_MS);
  }

  return {
    render(data) {
      show(main,
        el("h2", null, "History"),
        charts,
        table("Events, the latest first", COLUMNS, data.events, "Nothing has happened yet."));
      if (timer === null) {
        timer = 0;
        update();
      }
    },
    close() {
      ended = true;
      clearTimeout(timer);
      inRate.close();
      inLag.close();
    },
  };
}

const COLUMNS = [
  ["Time", (event) => when(event.at_ms)],
  ["About", (event) => el("span", { class: event.needs_care ? "badge bad" : "badge idle" },
    event.needs_care ? "! " : "", KINDS[event.kind])],
  ["What", (event) => event.text, "text"],
  ["Tasks", (event) => tasks(event), "text"],
  ["Reason", (event) => event.reason, "text"],
];

function tasks(event) {
  const more = event.task_count - event.tasks.length;
  return event.tasks.join(", ") + (more > 0 ? ` and ${more} more` : "");
}
