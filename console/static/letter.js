// One dead letter, at the side of the page.

import { el, show } from "./dom.js";
import { moment } from "./format.js";
import { actionButton, ask, isSignedIn, mayRead, signIn } from "./session.js";

export function letterContent(id) {
  return {
    id: `letter ${id}`,
    title: `Dead letter ${id}`,
    begin(body) {
      let ended = false;
      async function load() {
        const found = await ask(`api/dead_letters/${encodeURIComponent(id)}`);
        if (ended) return;
        if (found.ok) render(body, found.data, load);
        else show(body, el("p", { class: "notice" }, found.data.error));
      }
      document.addEventListener("acted", load);
      load();
      return () => {
        ended = true;
        document.removeEventListener("acted", load);
      };
    },
  };
}

function render(body, letter, load) {
  const lines = [
    ["Error", letter.error],
    ["Reason", letter.reason],
    ["Processor", letter.node && letter.node !== letter.processor ? `${letter.processor}, in ${letter.node}` : letter.processor],
    ["Record", letter.topic === null ? "somebody else wrote this letter" : `${letter.topic}[${letter.partition}]@${letter.offset}`],
    ["Time of the record", moment(letter.timestamp_ms)],
    ["Handled", letter.handled ?? "no"],
  ];
  show(body,
    letter.handled === null
      ? el("div", { class: "actions" }, actionButton("Redrive", "redrive", { ids: [letter.id] }), actionButton("Purge", "purge", { ids: [letter.id] }))
      : el("span", { hidden: true }),
    el("dl", { class: "lines" }, lines.map(([term, value]) => el("div", null, el("dt", null, term), el("dd", null, value)))),
    record(letter, load),
    letter.stacktrace ? section("Stack trace", el("pre", null, letter.stacktrace)) : el("span", { hidden: true }));
}

function record(letter, load) {
  if (letter.with_record) {
    return el("div", null,
      section("Key", content(letter.key)),
      section("Value", content(letter.value)),
      section("Headers", letter.headers.length
        ? el("dl", { class: "lines" }, letter.headers.map(([name, value]) =>
          el("div", null, el("dt", null, name), el("dd", null, value ?? el("span", { class: "quiet" }, "null")))))
        : el("p", { class: "quiet" }, "The record has no headers of its own.")));
  }
  if (!mayRead()) return el("p", { class: "quiet" }, "The record is shown only with console_records in config.yaml.");
  const button = el("button", { type: "button", "data-own": true }, "Show the record");
  button.addEventListener("click", async () => {
    if (isSignedIn() || await signIn()) load();
  });
  return button;
}

const content = (text) => (text === null ? el("p", { class: "quiet" }, "null") : el("pre", null, text));
const section = (name, ...children) => el("section", { class: "part" }, el("h3", null, name), children);
