// All about one processor, at the side of the page.

import { el, show } from "./dom.js";
import { UNKNOWN, badge, count, oldest, rate } from "./format.js";
import { keyWarningsList } from "./key_warnings.js";
import { lately, leftOut, leftOutLine } from "./left_out.js";
import { follow } from "./live.js";
import { actionButton, mayAct } from "./session.js";
import { table } from "./table.js";
import { behind, eventTime, waitsList } from "./waits.js";

export function processorContent(id) {
  return {
    id: `processor ${id}`,
    title: id,
    begin: (body) => follow(`processors/${id}`, (data) => render(body, data), (state) => {
      if (state === "gone") show(body, el("p", { class: "notice" }, "The pipeline does not have this processor."));
    }),
  };
}

function render(body, data) {
  const figures = data.figures;
  const lines = [
    ["Type", data.type],
    ["Reads", data.reads.join(", ")],
    ["Writes", data.writes.join(", ")],
    ["State in", data.state_topics.join(", ")],
    ["On an error", onError(data)],
  ];
  const tiles = [
    ["In", rate(figures.rate_in)],
    ["Out", rate(figures.rate_out)],
    ["Lag", figures.lag === null ? UNKNOWN : count(figures.lag)],
    ["Oldest waits", oldest(figures)],
    ["Event time", eventTime(figures)],
    ["Behind", behind(figures)],
    ["Restarts", count(figures.restarts)],
    ["Dead letters", lately(figures.dead_letters, figures.dead_letters_per_minute)],
    ["Skipped", count(figures.skipped)],
    ["Left out", leftOut(figures)],
    ["Late", lately(figures.late, figures.late_per_minute)],
  ];
  show(body,
    el("p", null, badge(figures.state), el("span", { class: "quiet" }, ` ${count(figures.tasks)} tasks`)),
    el("dl", { class: "tiles" }, tiles.map(([term, value]) => el("div", null, el("dt", null, term), el("dd", null, value)))),
    el("div", { class: "actions" }, [["Pause", "pause"], ["Resume", "resume"], ["Restart", "restart"]].map(([label, action]) =>
      actionButton(label, action, { processors: [data.id] }))),
    waitsList(data.waits),
    leftOutLine(figures),
    keyWarningsList([figures]),
    reasons(data.tasks),
    table("Tasks", mayAct() ? [...COLUMNS, ACTION] : COLUMNS, data.tasks, "This processor has no tasks."),
    el("dl", { class: "lines" }, lines.filter(([, value]) => value).map(([term, value]) =>
      el("div", null, el("dt", null, term), el("dd", null, value)))));
}

const COLUMNS = [
  ["Task", (task) => task.id],
  ["State", (task) => state(task)],
  ["TaskManager", (task) => (task.owner === null ? UNKNOWN : count(task.owner)), "number"],
  ["Thread", (task) => (task.thread === null ? UNKNOWN : count(task.thread)), "number"],
  ["Lag", (task) => count(task.lag), "number"],
  ["Oldest", (task) => oldest(task), "number"],
  ["Behind", (task) => behind(task), "number"],
  ["In", (task) => rate(task.rate_in), "number"],
  ["Out", (task) => rate(task.rate_out), "number"],
  ["Restarts", (task) => count(task.restarts), "number"],
  ["Dead letters", (task) => count(task.dead_letters), "number"],
];
const ACTION = ["Actions", (task) => (task.state === "HELD" ? RESUME : PAUSE).map(([label, action]) =>
  actionButton(label, action, { processors: [task.id] }))];
const PAUSE = [["Pause", "pause"], ["Restart", "restart"]];
const RESUME = [["Resume", "resume"]];

function state(task) {
  const more = task.restore_percent === null ? "" : `${task.restore_percent}%`;
  return badge(task.state ?? "NOT_REPORTED", more);
}

function reasons(tasks) {
  const told = tasks.filter((task) => task.reason || task.activity);
  return el("ul", { class: "reasons" }, told.map((task) =>
    el("li", null, el("strong", null, task.id), " ", [task.reason, task.activity].filter(Boolean).join(" — "))));
}

function onError(data) {
  const all = data.on_error.endsWith(": all") ? ", also after mistakes in the code" : "";
  if (data.dead_letter_topic) return `records go to ${data.dead_letter_topic}${all}`;
  return data.on_error.startsWith("skip") ? `records are skipped${all}` : "the task fails";
}
