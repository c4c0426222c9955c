// Whether the page may act, and the token for it. It is kept for this tab only, and sent by us only.

import { el, show } from "./dom.js";

const KEY = "console-token";
const dialog = document.getElementById("sign-in");
const form = document.getElementById("sign-in-form");
const field = document.getElementById("sign-in-token");
const problem = document.getElementById("sign-in-problem");
const button = document.getElementById("session");

let may = { actions: false, records: false };
let decide = () => {};

export const mayAct = () => may.actions;
export const mayRead = () => may.records;
export const isSignedIn = () => sessionStorage.getItem(KEY) !== null;

// Asks once what the console offers.
export async function begin() {
  const answer = await ask("api/access");
  if (answer.ok) may = answer.data;
  look();
}

// Returns the answer to a request: `ok`, `status`, and its JSON as `data`, which has an `error` if it
// is not ok. It has the token if there is one; a wrong token is forgotten.
export async function ask(path, body) {
  const token = sessionStorage.getItem(KEY);
  const headers = token === null ? {} : { Authorization: `Bearer ${token}` };
  const request = body === undefined ? { headers } : {
    method: "POST", headers: { ...headers, "Content-Type": "application/json" }, body: JSON.stringify(body),
  };
  try {
    const answer = await fetch(path, request);
    if (answer.status === 401) {
      sessionStorage.removeItem(KEY);
      look();
    }
    return { ok: answer.ok, status: answer.status, data: await answer.json() };
  } catch {
    return { ok: false, status: 0, data: { error: "The JobManager does not answer." } };
  }
}

// Asks for the token unless the page has it; returns whether it has it then.
export function signIn(reason = "") {
  if (isSignedIn()) return Promise.resolve(true);
  problem.textContent = reason;
  field.value = "";
  dialog.showModal();
  return new Promise((resolve) => {
    decide = resolve;
  });
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const token = field.value.trim();
  if (!/^[!-~]+$/.test(token)) {
    // Such a header cannot be sent at all.
    problem.textContent = "A token has ASCII characters only, without spaces.";
    return;
  }
  problem.textContent = "Looking…";
  sessionStorage.setItem(KEY, token);
  const answer = await ask("api/sign_in", {});
  if (answer.ok) {
    look();
    decide(true);
    dialog.close();
    return;
  }
  sessionStorage.removeItem(KEY);
  problem.textContent = answer.data.error;
  field.select();
});
document.getElementById("sign-in-cancel").addEventListener("click", () => dialog.close());
dialog.addEventListener("close", () => decide(isSignedIn()));
button.addEventListener("click", () => {
  if (isSignedIn()) sessionStorage.removeItem(KEY);
  else signIn();
  look();
});

function look() {
  button.hidden = !may.actions;
  show(button, isSignedIn() ? "Sign out" : "Sign in to act");
}

// A button that does something to the job, or nothing if the console is read-only.
export function actionButton(label, action, body) {
  if (!may.actions) return null;
  return el("button", { type: "button", "data-action": action, "data-body": JSON.stringify(body) }, label);
}
