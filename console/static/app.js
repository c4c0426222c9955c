// The frame of all pages: which one is shown, the line above them, and the connection.

import "./act.js";
import { openDrawer } from "./drawer.js";
import { el, show } from "./dom.js";
import { badge, brief, count, oldest, stateLook, when } from "./format.js";
import { letterContent } from "./letter.js";
import { follow } from "./live.js";
import { graphPage } from "./pages/graph.js";
import { historyPage } from "./pages/history.js";
import { lagPage } from "./pages/lag.js";
import { lettersPage } from "./pages/letters.js";
import { movesPage } from "./pages/moves.js";
import { recordsPage } from "./pages/records.js";
import { rehearsalPage } from "./pages/rehearsal.js";
import { statePage } from "./pages/state.js";
import { tasksPage } from "./pages/tasks.js";
import { transactionsPage } from "./pages/transactions.js";
import { processorContent } from "./processor.js";
import { begin, mayRead } from "./session.js";

// Each page has a name, what makes it, and the view that it follows if that has another name.
const PAGES = {
  graph: ["Graph", graphPage],
  tasks: ["Tasks", tasksPage],
  lag: ["Lag", lagPage],
  transactions: ["Transactions", transactionsPage],
  moves: ["Moves", movesPage],
  letters: ["Dead letters", lettersPage, "summary"],
  records: ["Records", recordsPage, "topics"],
  state: ["State", statePage, "summary"],
  rehearsal: ["Rehearsal", rehearsalPage, "summary"],
  history: ["History", historyPage],
};

// They are left out unless the console shows contents.
const CONTENTS = new Set(["records", "state"]);

const main = document.getElementById("page");
const connections = document.querySelectorAll(".connection");
let shown = null;
let leave = () => {};
let last = null;

function route() {
  const [page, id] = location.hash.replace(/^#\//, "").split("/");
  return { page: Object.hasOwn(PAGES, page) ? page : "graph", id: id ? decoded(id) : null };
}

// Somebody may have typed the address, with a "%" that means itself.
function decoded(id) {
  try {
    return decodeURIComponent(id);
  } catch {
    return id;
  }
}

function navigate() {
  const { page, id } = route();
  if (page !== shown) {
    leave();
    shown = page;
    show(main, el("p", { class: "quiet" }, "Loading…"));
    const [name, make, view] = PAGES[page];
    const { render, close } = make(main);
    const stop = follow(view ?? page, (data) => {
      last = data;
      header(data.summary, name);
      render(data);
    }, said);
    leave = () => {
      stop();
      close?.();
    };
  }
  nav(page);
  const content = page === "letters" ? letterContent : processorContent;
  openDrawer(id === null ? null : content(id), () => {
    location.hash = `#/${shown}`;
  });
}

function nav(page) {
  const pages = Object.entries(PAGES).filter(([id]) => !CONTENTS.has(id) || mayRead());
  show(document.getElementById("nav"), pages.map(([id, [name]]) =>
    el("a", { href: `#/${id}`, "aria-current": id === page ? "page" : null }, name)));
  document.querySelector("nav [aria-current]").scrollIntoView({ block: "nearest", inline: "nearest" });
}

function said(state) {
  const since = last ? ` This is the state of ${when(last.summary.at_ms)}.` : "";
  for (const connection of connections) {
    connection.classList.toggle("lost", state !== "live");
    connection.textContent = state === "live" ? "" : `No connection to the JobManager.${since} Trying again…`;
  }
}

function header(summary, page) {
  const name = summary.job_name ?? "Job without a name";
  document.getElementById("job").textContent = name;
  document.title = `${page} · ${name}`;
  const manager = summary.job_manager;
  const epoch = manager.epoch === null ? "" : `epoch ${manager.epoch}`;
  const managers = summary.task_managers;
  const facts = [
    ["JobManager", [badge(manager.state), el("span", { class: "quiet" }, ` ${epoch}`)]],
    ["Version", version(summary.deployment)],
    ["TaskManagers", `${managers.up} of ${managers.expected} up`],
    ["Tasks", tasks(summary.tasks)],
    ["Lag", summary.lag === null ? "unknown" : `${brief(summary.lag)} records`],
    ["Oldest waits", oldest(summary)],
  ];
  show(document.getElementById("summary"), facts.map(([term, value]) =>
    el("div", null, el("dt", null, term), el("dd", null, value))));
  show(document.getElementById("findings"), manager.findings.map((text) => el("li", null, text)));
}

function version(deployment) {
  if (!deployment) return "none yet";
  const more = [
    deployment.next === null ? "" : `changing to ${deployment.next}`,
    deployment.drains ? "drains" : "",
    deployment.stop ? `stopped for a ${deployment.stop.purpose} by ${deployment.stop.by}` : "",
    deployment.paused.length ? `${count(deployment.paused.length)} paused` : "",
  ].filter(Boolean);
  return [`${deployment.version}`, more.length ? ` (${more.join(", ")})` : ""];
}

function tasks({ states, count: all }) {
  const order = Object.entries(states).sort((one, other) => other[1] - one[1]);
  if (order.length === 0) return "none";
  if (order.length === 1 && order[0][0] === "RUNNING") return [badge("RUNNING", `${all} of ${all}`)];
  return order.map(([state, number]) => el("span", { class: `badge ${stateLook(state)[0]}` },
    el("span", { "aria-hidden": "true" }, stateLook(state)[1]), ` ${number} ${stateLook(state)[2]} `));
}

addEventListener("hashchange", navigate);
// A link of a skip or of the same page must not leave the page.
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
await begin();
navigate();
