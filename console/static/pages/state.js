// The state of the job's tasks, for those who have the token: a key, or entries of a partition.

import { el, show } from "../dom.js";
import { count, moment } from "../format.js";
import { field, form, option, timeInput } from "../form.js";
import { ask, isSignedIn, mayRead, signIn } from "../session.js";
import { table } from "../table.js";

const ON_A_PAGE = 20;

export function statePage(main) {
  const opened = form("Stores", list, el("button", { type: "submit", class: "main" }, "Show stores"));
  const store = el("select", null);
  const which = el("select", null, option("get", "a key"), option("scan", "entries of a partition"));
  const key = el("input", { type: "search" });
  const partition = el("input", { type: "number", min: 0 });
  const prefix = el("input", { type: "search" });
  const first = el("input", { type: "search" });
  const last = el("input", { type: "search" });
  const from = timeInput();
  const to = timeInput();
  const asOf = timeInput();
  const hex = el("input", { type: "checkbox" });
  const fields = {
    key: field("Key", key), partition: field("Partition", partition),
    prefix: field("Keys begin with", prefix), first: field("From key", first), last: field("Up to key", last),
    from: field("From", from), to: field("To", to), asOf: field("As of", asOf),
  };
  const lookup = form("Lookup", () => read(""), field("Store", store), field("Show", which), ...Object.values(fields),
    field("Keys in hexadecimal", hex), el("button", { type: "submit", class: "main" }, "Look up"));
  const result = el("div", { class: "card", hidden: true, "data-own": true });
  let stores = [];
  let problem = null;
  let asked = null;
  let number = 0;
  store.addEventListener("change", look);
  which.addEventListener("change", look);
  result.addEventListener("click", (event) => {
    const next = event.target.closest("button[data-next]");
    if (next) read(next.dataset.next);
  });

  const chosen = () => stores[Number(store.value)];

  function look() {
    const type = chosen()?.type;
    const isKey = which.value === "get";
    const hasTimes = isKey && (type === "window" || type === "session");
    const visible = {
      key: isKey, partition: true, prefix: !isKey, first: !isKey, last: !isKey,
      from: hasTimes, to: hasTimes, asOf: isKey && type === "versioned-key-value",
    };
    for (const [name, element] of Object.entries(fields)) element.hidden = !visible[name];
    partition.placeholder = isKey ? "all" : "0";
  }

  async function list() {
    if (!(await signIn())) return;
    number += 1;
    const mine = number;
    draw(el("p", { class: "quiet", role: "status" }, "Asking the TaskManagers…"));
    const found = await ask("api/state");
    if (mine !== number) return;
    if (!found.ok) {
      draw(opened, el("p", { class: "notice" }, found.data.error));
      return;
    }
    ({ stores, problem } = found.data);
    store.replaceChildren(...stores.map((each, index) => option(index, `${each.processor} · ${each.store} (${each.type})`)));
    look();
    drawStores();
  }

  function drawStores() {
    draw(
      problem ? el("p", { class: "notice" }, problem) : null,
      stores.length ? lookup : null,
      result,
      el("section", { class: "card" }, el("h3", null, "Stores"),
        table("Stores, and who has their partitions", STORES, stores, "No running task has a store.")));
  }

  function draw(...content) {
    show(main, el("h2", null, "State"),
      el("p", { class: "quiet" }, "What tasks have committed. Each lookup is logged."), ...content);
  }

  // What the form says, as the query of an address.
  function query() {
    const isKey = which.value === "get";
    const found = new URLSearchParams({ processor: chosen().processor, store: chosen().store });
    const named = isKey ? { key } : { prefix, from_key: first, to_key: last };
    for (const [name, input] of Object.entries(named)) {
      if (isKey || input.value !== "") found.set(hex.checked ? `${name}_hex` : name, input.value);
    }
    if (partition.value !== "") found.set("partition", partition.value);
    for (const [name, input, element] of [["from", from, fields.from], ["to", to, fields.to], ["as_of", asOf, fields.asOf]]) {
      if (!element.hidden && input.value) found.set(name, new Date(input.value).toISOString());
    }
    if (!isKey) found.set("limit", ON_A_PAGE);
    return `api/state/${which.value}?${found}`;
  }

  // Looks up what the form says, or the next page of what was shown last.
  async function read(page) {
    if (!(await signIn())) return;
    number += 1;
    const mine = number;
    if (page === "") asked = query();
    result.hidden = false;
    show(result, el("p", { class: "quiet", role: "status" }, "Looking…"));
    const found = await ask(page === "" ? asked : `${asked}&page=${page}`);
    if (mine !== number) return;
    if (!found.ok) {
      show(result, el("p", { class: "notice" }, found.data.error));
      return;
    }
    const { entries, next, more } = found.data;
    const hasTimes = entries.some((row) => when(row) !== "");
    show(result,
      el("p", { class: found.data.standby ? "notice" : "quiet", role: "status" }, source(found.data)),
      table("Entries", [ENTRIES.key, ...(hasTimes ? [ENTRIES.time] : []), ENTRIES.value], entries,
        next ? "This page is empty; there is a next one." : "There is nothing."),
      more ? el("p", { class: "quiet" }, "There are more: give a shorter time.") : null,
      next ? el("div", { class: "actions" }, el("button", { type: "button", "data-next": next }, "Next page")) : null);
  }

  return {
    render() {
      if (number > 0) return;
      if (!mayRead()) draw(el("p", { class: "quiet" }, "The console shows state only with console_records in config.yaml."));
      else if (isSignedIn()) list();
      else draw(opened);
    },
    close() {
      number += 1;
    },
  };
}

const lag = (row) => (row.lag === null ? "lag unknown" : `lag ${count(row.lag)}`);

const source = (answer) => answer.standby
  ? `Partition ${answer.partition}, from a standby on TaskManager ${answer.task_manager}, ${lag(answer)}: the task itself does not answer.`
  : `Partition ${answer.partition}, from its task on TaskManager ${answer.task_manager}, ${lag(answer)}.`;

const STORES = [
  ["Store", (row) => `${row.processor} · ${row.store}`],
  ["Type", (row) => row.type, "line"],
  ["Keys", (row) => serde(row.key_serde, row.keys_readable), "line"],
  ["Values", (row) => serde(row.value_serde, row.values_readable), "line"],
  ["Partitions", (row) => places(row.partitions), "text"],
];

function places(partitions) {
  const managers = new Map();
  for (const each of partitions) {
    const copy = each.standby ? ` (standby, ${lag(each)})` : "";
    managers.set(each.task_manager, [...(managers.get(each.task_manager) ?? []), `${each.partition}${copy}`]);
  }
  return [...managers].sort(([one], [other]) => one - other)
    .map(([id, numbers]) => el("div", null, `TaskManager ${id}: ${numbers.join(", ")}`));
}

const serde = (name, isReadable) => (isReadable ? name : `${name} (not decoded)`);

const ENTRIES = {
  key: ["Key", (row) => el("code", null, row.key), "text"],
  time: ["Time", when, "line"],
  value: ["Value", (row) => el("code", null, row.value), "text"],
};

function when(row) {
  if (row.window) return `${moment(row.window.start_ms)} to ${moment(row.window.end_ms)}`;
  if (row.valid_from_ms !== undefined) {
    return `from ${moment(row.valid_from_ms)}${row.valid_to_ms === null ? "" : ` to ${moment(row.valid_to_ms)}`}`;
  }
  return row.timestamp_ms >= 0 ? moment(row.timestamp_ms) : "";
}
