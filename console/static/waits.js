// Event time: how far processors are, and which tasks hold others back.

import { el } from "./dom.js";
import { UNKNOWN, count, duration, isToday, moment, processorLink, stateLook, time } from "./format.js";

export function waitsList(waits) {
  if (!waits.length) return null;
  return el("ul", { class: "reasons" }, waits.map((wait) => {
    const names = wait.is_whole ? wait.processor : wait.tasks.join(", ");
    const verb = wait.is_whole || wait.tasks.length === 1 ? "waits" : "wait";
    const at = wait.event_time_ms === null ? "" : ` at ${moment(wait.event_time_ms)}`;
    const unread = wait.unread === null ? "unread unknown" : `${count(wait.unread)} unread`;
    return el("li", null, el("strong", null, names), ` ${verb}${at} for `,
      processorLink(wait.holder_processor, wait.holder), ` (${stateLook(wait.holder_state)[2]}, ${unread})`);
  }));
}

export const eventTime = ({ event_time_ms: ms }) => (ms === null ? UNKNOWN : moment(ms));

// Whoever has read everything is not behind.
export const behind = ({ event_time_lag_ms: ms }) => (ms === null ? UNKNOWN : duration(ms));

// As short as possible: the time of today, or another day.
export function brieflyInTime(figures) {
  const { event_time_ms: ms, event_time_lag_ms: lag } = figures;
  if (ms === null) return "";
  return `${isToday(ms) ? time(ms) : moment(ms).split(", ")[0]}${lag === null ? "" : ` · ${duration(lag)} behind`}`;
}
