// Numbers, times and states, as people read them.

import { el } from "./dom.js";

const whole = new Intl.NumberFormat("en");
const tenth = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const calendar = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });

export const UNKNOWN = "–";

export const count = (value) => (value === null || value === undefined ? UNKNOWN : whole.format(value));

export const brief = (value) => (value === null || value === undefined ? UNKNOWN : short.format(value));

export function rate(value) {
  if (value === null || value === undefined) return UNKNOWN;
  if (value < 10) return `${tenth.format(value)}/s`;
  return `${value < 10_000 ? whole.format(Math.round(value)) : short.format(value)}/s`;
}

export function duration(ms) {
  if (ms === null || ms === undefined) return UNKNOWN;
  if (ms < 10_000) return `${tenth.format(ms / 1000)} s`;
  const units = [["s", 1000, 120], ["min", 60_000, 120], ["h", 3_600_000, 48]];
  for (const [unit, length, most] of units) if (ms < most * length) return `${Math.floor(ms / length)} ${unit}`;
  return `${whole.format(Math.floor(ms / 86_400_000))} d`;
}

// The age of the oldest record that waits: without any lag, none waits.
export function oldest({ lag, oldest_waiting_ms: age }) {
  if (age !== null) return duration(age);
  return lag === 0 ? "none" : UNKNOWN;
}

export const time = (ms) => clock.format(ms);

// Browsers' calendar ends there.
const LAST_MS = 8.64e15;
// What Kafka has for a record without a time.
const NO_TIME = -1;

// A time of a record may be anything that its producer has written.
export function moment(ms) {
  if (ms === NO_TIME) return UNKNOWN;
  if (Math.abs(ms) > LAST_MS) return count(ms);
  const rest = ((ms % 1000) + 1000) % 1000;
  return rest === 0 ? calendar.format(ms) : `${calendar.format(ms)}.${String(rest).padStart(3, "0")}`;
}

export const isToday = (ms) => new Date(ms).toDateString() === new Date().toDateString();

// As short as possible: the time of today, or also the day.
export const when = (ms) => (isToday(ms) ? time(ms) : calendar.format(ms));

const WORDS = {
  RUNNING: ["good", "●", "running"],
  STANDBY: ["good", "◐", "standby"],
  UP: ["good", "●", "up"],
  FAILED: ["bad", "✕", "failed"],
  DOWN: ["bad", "✕", "down"],
  DEAD: ["bad", "✕", "dead"],
  NOT_REPORTED: ["bad", "?", "not reported"],
  SILENT: ["busy", "?", "silent"],
  RESTARTING: ["busy", "↻", "restarting"],
  RESTORING: ["busy", "◔", "restoring"],
  STARTING: ["busy", "◌", "starting"],
  HELD: ["idle", "‖", "held"],
  LEFT: ["idle", "–", "stopped"],
  ABSENT: ["idle", "–", "absent"],
};

// A state is always a sign and a word; its colour only helps.
export const stateLook = (state) => WORDS[state] ?? ["idle", "?", state ?? "unknown"];

export function badge(state, more) {
  const [look, sign, word] = stateLook(state);
  const text = more ? `${word} ${more}` : word;
  return el("span", { class: `badge ${look}` }, el("span", { "aria-hidden": "true" }, sign), ` ${text}`);
}

export function processorLink(id, text) {
  const [shown] = location.hash.slice(2).split("/");
  const page = shown === "letters" ? "graph" : shown; // there, the drawer shows letters
  return el("a", { href: `#/${page || "graph"}/${encodeURIComponent(id)}` }, text ?? id);
}
