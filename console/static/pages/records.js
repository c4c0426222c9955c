// The records of a topic, for those who have the token.

import { el, show } from "../dom.js";
import { UNKNOWN, moment } from "../format.js";
import { field, form, option, timeInput } from "../form.js";
import { ask, mayRead, signIn } from "../session.js";
import { table } from "../table.js";

const DEFAULT_LIMIT = 20;
const MOST = 100;

export function recordsPage(main) {
  const topic = el("select", null);
  const partition = el("input", { type: "number", min: 0, placeholder: "all" });
  const start = el("select", null, option("last", "the last"), option("first", "the first"),
    option("offset", "from an offset"), option("time", "from a time"));
  const place = el("input", { type: "number", min: 0 });
  const time = timeInput();
  const limit = el("input", { type: "number", min: 1, max: MOST, value: DEFAULT_LIMIT });
  const key = el("select", null);
  const value = el("select", null);
  const placeField = field("Offset", place);
  const timeField = field("Time", time);
  const reading = form("Records", read, field("Topic", topic), field("Partition", partition),
    field("Which", start), placeField, timeField, field("Records", limit), field("Keys are", key), field("Values are", value),
    el("button", { type: "submit", class: "main" }, "Read"));
  const result = el("div", { class: "card", hidden: true, "data-own": true });
  let number = 0;
  start.addEventListener("change", look);
  look();

  function look() {
    placeField.hidden = start.value !== "offset";
    timeField.hidden = start.value !== "time";
  }

  // Where to begin, as `pipeline topic read --from` has it, or the newest records.
  function from() {
    if (start.value === "time") return time.value ? new Date(time.value).toISOString() : "earliest";
    return { last: "last", first: "earliest", offset: place.value || "0" }[start.value];
  }

  async function read() {
    if (!(await signIn())) return;
    number += 1;
    const mine = number;
    const most = Math.min(Math.max(Number(limit.value) || DEFAULT_LIMIT, 1), MOST);
    const query = new URLSearchParams({ topic: topic.value, from: from(), limit: most, key: key.value, value: value.value });
    if (partition.value !== "") query.set("partition", partition.value);
    result.hidden = false;
    show(result, el("p", { class: "quiet", role: "status" }, "Reading…"));
    const found = await ask(`api/records?${query}`);
    if (mine !== number) return;
    if (!found.ok) {
      show(result, el("p", { class: "notice" }, found.data.error));
      return;
    }
    const rows = [...found.data.records].sort((one, other) => other.timestamp_ms - one.timestamp_ms);
    show(result, table(`Records of ${topic.value}`, RECORDS, rows, "There are no such records."));
  }

  return {
    render(data) {
      if (!mayRead()) {
        show(main, el("h2", null, "Records"), el("p", { class: "quiet" }, "The console shows records only with console_records in config.yaml."));
        return;
      }
      for (const each of data.topics) {
        if (![...topic.options].some((known) => known.value === each.name)) topic.append(option(each.name, `${each.name} (${each.kind})`));
      }
      for (const choice of [key, value]) {
        if (choice.options.length === 0) {
          choice.append(...data.serdes.map((name) => option(name, name)));
          choice.value = "string";
        }
      }
      show(main,
        el("h2", null, "Records"),
        el("p", { class: "quiet" }, "Committed records, the newest first. Each read is logged."),
        reading,
        result);
    },
    close() {
      number += 1;
    },
  };
}

const RECORDS = [
  ["Record", (record) => `${record.partition}@${record.offset}`],
  ["Time", (record) => moment(record.timestamp_ms), "line"],
  ["Key", (record) => content(record.key), "text"],
  ["Value", (record) => content(record.value), "text"],
  ["Headers", (record) => record.headers.map(([name, value]) => `${name}=${typeof value === "string" ? value : JSON.stringify(value)}`).join(", "), "text"],
];

function content(value) {
  if (value === null) return UNKNOWN;
  return el("code", null, typeof value === "string" ? value : JSON.stringify(value));
}
