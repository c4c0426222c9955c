// Topics whose keys do not meet those of other topics.

import { el } from "./dom.js";
import { processorLink } from "./format.js";

// Topics of the graph have no warnings; a page about one processor gives no name.
export function keyWarningsList(nodes) {
  const found = nodes.flatMap(({ name, key_warnings: warnings = [] }) => warnings.map(({ text }) =>
    el("li", null, name ? [processorLink(name), ": "] : null, text)));
  return found.length ? el("ul", { class: "reasons warnings" }, found) : null;
}

export const unmetTopics = ({ key_warnings: warnings }) => warnings.map(({ topic }) => topic).join(", ");
