// Asks before something is done to the job: first what it would do, then whether to do it.

import { el, show } from "./dom.js";
import { count } from "./format.js";
import { ask, signIn } from "./session.js";

const dialog = document.getElementById("act");
const title = document.getElementById("act-title");
const body = document.getElementById("act-body");
const yes = document.getElementById("act-yes");
const no = document.getElementById("act-no");
let onYes = () => {};
// Counts the questions: an answer that comes after the next one was asked is not shown.
let number = 0;

const WORDS = { pause: "Pause", resume: "Resume", restart: "Restart", redrive: "Redrive", purge: "Purge" };
const letters = (number) => `${count(number)} dead ${number === 1 ? "letter" : "letters"}`;
const tasks = (number) => `${count(number)} ${number === 1 ? "task" : "tasks"}`;

// What each action would do, by the figures of its dry run.
const WOULD = {
  pause: (found) => `${tasks(found.tasks)} of ${found.processors.join(", ")} commit what they have done, and stop until they are resumed. What comes in waits in Kafka.`,
  resume: (found) => `${tasks(found.tasks)} of ${found.processors.join(", ")} go on where they stopped.`,
  restart: (found) => `${tasks(found.tasks)} of ${found.processors.join(", ")} start again, FAILED ones too.`,
  redrive: (found, ids) => `${letters(found.count)} (${which(found, ids)}) go back to the topics and partitions that their records came from. All readers of such a topic get the records again.`,
  purge: (found, ids) => `${letters(found.count)} (${which(found, ids)}) are forgotten for good, and cannot be redriven afterwards.`,
};
const DONE = {
  pause: () => "The JobManager pauses them now.",
  resume: () => "The JobManager resumes them now.",
  restart: () => "The JobManager restarts them now.",
  redrive: (found) => `${letters(found.count)} redriven.`,
  purge: (found) => `${letters(found.count)} purged.`,
};

// The ids that were chosen: the list may have moved under the mouse.
const which = (found, ids) => ids?.join(", ")
  ?? Object.entries(found.by_processor).map(([id, number]) => `${count(number)} of ${id}`).join(", ");

// All buttons of actions, wherever they are: pages are changed rather than made again.
document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-action]");
  if (button) act(button.dataset.action, JSON.parse(button.dataset.body));
});

async function act(action, asked) {
  if (!(await signIn())) return;
  let found = await lookFirst(action, asked);
  if (found?.status === 401) {
    dialog.close();
    if (!(await signIn(found.data.error))) return;
    found = await lookFirst(action, asked);
  }
  if (found === null) return;
  if (!found.ok) return said(found.data.error, true);
  const { before } = found.data;
  if (before !== undefined && found.data.count === 0) return said("There is no such dead letter any more.");
  show(body, el("p", null, WOULD[action](found.data, asked.ids)));
  yes.hidden = false;
  yes.textContent = WORDS[action];
  yes.className = action === "purge" ? "danger" : "main";
  show(no, "Cancel");
  yes.focus();
  onYes = () => carryOut(action, { ...asked, confirmed: true, ...(before === undefined ? {} : { before }) });
}

// Returns the answer to a dry run; null if somebody has closed the dialog meanwhile.
async function lookFirst(action, asked) {
  number += 1;
  const mine = number;
  open(`${WORDS[action]}?`, "Checking what that would do…");
  const found = await ask(`api/actions/${action}`, { ...asked, dry_run: true });
  return mine === number && dialog.open ? found : null;
}

async function carryOut(action, asked) {
  const mine = number;
  title.textContent = WORDS[action];
  said("Working…");
  const found = await ask(`api/actions/${action}`, asked);
  if (mine === number) said(found.ok ? DONE[action](found.data) : found.data.error, !found.ok);
  document.dispatchEvent(new CustomEvent("acted"));
}

function open(name, text) {
  title.textContent = name;
  said(text);
  if (!dialog.open) dialog.showModal();
}

function said(text, isBad = false) {
  yes.hidden = true;
  onYes = () => {};
  show(no, "Close");
  show(body, el("p", { class: isBad ? "notice" : null, role: "status" }, text));
}

yes.addEventListener("click", () => onYes());
no.addEventListener("click", () => dialog.close());
