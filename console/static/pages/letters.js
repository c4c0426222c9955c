// Dead letters: how many there are and why, which ones, and what to do with them.

import { el, show } from "../dom.js";
import { count, moment, processorLink } from "../format.js";
import { field, form, option, timeInput } from "../form.js";
import { actionButton, ask } from "../session.js";
import { table } from "../table.js";

const AGAIN_MS = 5000;
const ANY = "";

export function lettersPage(main) {
  const processor = el("select", null, option(ANY, "all"));
  const reason = el("input", { type: "search", placeholder: "part of the reason or error" });
  const since = timeInput();
  const until = timeInput();
  const handled = el("input", { type: "checkbox" });
  const filter = form("Filter", update,
    field("Processor", processor), field("Reason", reason), field("From", since), field("Until", until),
    field("Also redriven and purged", handled));
  filter.addEventListener("change", update);
  let timer = null;
  let number = 0;
  let ended = false;

  // What the filter says, as the body of an action.
  const chosen = () => ({
    ...(processor.value ? { processors: [processor.value] } : {}),
    ...(reason.value ? { reason: reason.value } : {}),
    ...(since.value ? { since_ms: new Date(since.value).getTime() } : {}),
    ...(until.value ? { until_ms: new Date(until.value).getTime() } : {}),
  });

  function query() {
    const found = new URLSearchParams();
    if (processor.value) found.set("processor", processor.value);
    if (reason.value) found.set("reason", reason.value);
    if (since.value) found.set("since", new Date(since.value).toISOString());
    if (until.value) found.set("until", new Date(until.value).toISOString());
    if (handled.checked) found.set("handled", "true");
    return found;
  }

  async function update() {
    clearTimeout(timer);
    number += 1;
    const mine = number;
    const found = await ask(`api/dead_letters?${query()}`);
    if (ended || mine !== number) return;
    if (found.ok) draw(found.data);
    else show(main, el("h2", null, "Dead letters"), filter, el("p", { class: "notice" }, found.data.error));
    timer = setTimeout(update, AGAIN_MS);
  }

  function draw(data) {
    for (const { id } of data.processors) {
      if (![...processor.options].some((each) => each.value === id)) processor.append(option(id, id));
    }
    const older = data.processors.reduce((sum, each) => sum + each.older_offsets, 0);
    const more = data.matching - data.letters.length;
    show(main,
      el("h2", null, "Dead letters"),
      filter,
      el("p", { class: "quiet" }, older
        ? `Only the newest dead letters are counted: about ${count(older)} older ones are left out.`
        : "Times are those of the records. The list is read again every five seconds."),
      el("section", { class: "card" }, el("h3", null, "Why"),
        table("Dead letters by processor, error and reason", ERRORS, data.errors,
          data.processors.length ? "No dead letter matches." : "No processor of this job writes dead letters.")),
      el("div", { class: "actions" },
        data.waiting ? actionButton(`Redrive ${count(data.waiting)}`, "redrive", chosen()) : null,
        data.waiting ? actionButton(`Purge ${count(data.waiting)}`, "purge", chosen()) : null,
        data.waiting ? el("span", { class: "quiet" }, "All that match the filter and were not redriven or purged.") : null),
      table("Dead letters, the newest records first", LETTERS, data.letters, data.matching ? "" : "There is nothing to show."),
      el("p", { class: "quiet" }, more > 0 ? `${count(more)} more match.` : ""));
  }

  document.addEventListener("acted", update);
  return {
    render() {
      if (number === 0) update();
    },
    close() {
      ended = true;
      clearTimeout(timer);
      document.removeEventListener("acted", update);
    },
  };
}

const ERRORS = [
  ["Processor", (row) => processorLink(row.processor)],
  ["Error", (row) => row.error || "unknown", "line"],
  ["Count", (row) => count(row.count), "number"],
  ["Newest reason", (row) => row.reason, "text"],
  ["Records from", (row) => moment(row.oldest_ms), "line"],
  ["Until", (row) => moment(row.newest_ms), "line"],
];

const LETTERS = [
  ["Dead letter", (letter) => el("a", { href: `#/letters/${encodeURIComponent(letter.id)}` }, letter.id)],
  ["Time", (letter) => moment(letter.timestamp_ms), "line"],
  ["Error", (letter) => letter.error, "line"],
  ["Reason", (letter) => letter.reason, "text"],
  ["Record", (letter) => (letter.topic === null ? "" : `${letter.topic}[${letter.partition}]@${letter.offset}`), "text"],
  ["Action", (letter) => letter.handled ?? actionButton("Redrive", "redrive", { ids: [letter.id] }), "line"],
];
