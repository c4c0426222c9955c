// Which TaskManager runs which task, on which thread.

import { el, show } from "../dom.js";
import { badge, duration, processorLink, stateLook } from "../format.js";
import { table } from "../table.js";

export function tasksPage(main) {
  return {
    render(data) {
      show(main,
        el("h2", null, "Tasks"),
        failures(data.failures),
        data.without_owner.length
          ? el("section", { class: "card" }, el("h3", null, "Without a TaskManager"), chips(data.without_owner))
          : el("span", { hidden: true }),
        el("div", { class: "managers" }, data.task_managers.map(manager)));
    },
  };
}

function failures(tasks) {
  if (tasks.length === 0) return el("span", { hidden: true });
  return el("section", { class: "card" }, el("h3", null, "Failures"),
    table("Tasks that FAILED, or start again", [
      ["Task", (task) => processorLink(task.processor, task.id)],
      ["State", (task) => badge(task.state)],
      ["TaskManager", (task) => String(task.owner ?? "none"), "number"],
      ["Reason", (task) => task.reason, "text"],
    ], tasks, ""));
}

function manager(info) {
  const facts = [info.host, info.pid === null ? "" : `process ${info.pid}`,
    info.age_ms === null ? "" : `heartbeat ${duration(info.age_ms)} ago`].filter(Boolean).join(" · ");
  const rows = [
    ...info.threads.map((thread) => ({ name: `thread ${thread.number}`, state: thread.state, tasks: thread.tasks })),
    ...(info.not_reported.length ? [{ name: "on no thread yet", state: null, tasks: info.not_reported }] : []),
  ];
  return el("section", { class: "card" },
    el("h3", null, `TaskManager ${info.id} `, badge(info.state)),
    el("p", { class: "quiet" }, facts || "It has not sent a heartbeat."),
    table(`Threads of TaskManager ${info.id}`, [
      ["Thread", (row) => row.name],
      ["State", (row) => (row.state === null ? "" : badge(row.state))],
      ["Tasks", (row) => chips(row.tasks), "text"],
    ], rows, "It runs nothing."));
}

function chips(tasks) {
  if (tasks.length === 0) return el("span", { class: "quiet" }, "none");
  return el("ul", { class: "chips" }, tasks.map((task) => {
    const [look, sign, word] = stateLook(task.state);
    const link = processorLink(task.processor, "");
    link.className = `chip ${look}`;
    link.title = [word, task.reason, task.activity].filter(Boolean).join(": ");
    link.append(el("span", { "aria-hidden": "true" }, sign), ` ${task.id}`);
    link.append(el("span", { class: task.state === "RUNNING" ? "unseen" : "" }, ` ${word}`));
    return el("li", null, link);
  }));
}
