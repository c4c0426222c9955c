// Records that a processor leaves out of its results, by reason.

import { el } from "./dom.js";
import { count } from "./format.js";

const sum = (found, name) => found.reduce((total, each) => total + each[name], 0);

export function lately(total, recent) {
  return recent === 0 ? count(total) : `${count(total)} (${count(recent)}/min)`;
}

export const leftOutRecently = ({ left_out: found }) => sum(found, "per_minute");

export const leftOut = ({ left_out: found }) => lately(sum(found, "records"), sum(found, "per_minute"));

export const reasonsOf = ({ left_out: found }) =>
  found.map((each) => `${each.reason} ${lately(each.records, each.per_minute)}`).join(", ");

export function leftOutLine(figures) {
  if (!figures.left_out.length) return null;
  return el("p", { class: "lost" }, `Left out of the results: ${reasonsOf(figures)}`);
}
