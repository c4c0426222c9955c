// The transactions of each task: how often it commits, and when it did so last.

import { el, show } from "../dom.js";
import { UNKNOWN, badge, brief, count, duration, processorLink, rate } from "../format.js";
import { table } from "../table.js";

export function transactionsPage(main) {
  return {
    render(data) {
      const rows = [...data.tasks].sort((one, other) => age(other) - age(one));
      show(main,
        el("h2", null, "Transactions"),
        el("p", { class: "quiet" }, "A task without records commits nothing, so its last commit may be long ago. "
          + "A task that is fenced, or whose transaction is aborted, starts again; the restarts count that."),
        table("Transactions of each task, the longest without one first", COLUMNS, rows, "The pipeline has no tasks yet."));
    },
  };
}

const age = (task) => task.last_commit_age_ms ?? Infinity;

const COLUMNS = [
  ["Task", (task) => processorLink(task.processor, task.id)],
  ["State", (task) => badge(task.state)],
  ["TaskManager", (task) => (task.owner === null ? UNKNOWN : String(task.owner)), "number"],
  ["Commits", (task) => count(task.transactions), "number"],
  ["Rate", (task) => rate(task.per_s), "number"],
  ["Records each", (task) => brief(task.records_per_transaction), "number"],
  ["Last commit", (task) => (task.last_commit_age_ms === null ? UNKNOWN : `${duration(task.last_commit_age_ms)} ago`), "number"],
  ["Lag", (task) => count(task.lag), "number"],
  ["Restarts", (task) => count(task.restarts), "number"],
  ["Reason", (task) => task.reason, "text"],
];
