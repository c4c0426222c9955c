// Fields to fill in. They are made once per page, so what is typed stays while the page changes.

import { el } from "./dom.js";

export const option = (value, text) => el("option", { value }, text);

export const field = (label, input) => el("label", { class: "field" }, el("span", null, label), input);

// The years of ISO 8601, which is how it is sent, have four digits.
export const timeInput = () => el("input", { type: "datetime-local", step: 1, max: "9999-12-31T23:59:59" });

// A form that calls `submitted` instead of being sent.
export function form(name, submitted, ...fields) {
  const found = el("form", { class: "fields", "aria-label": name, "data-own": true }, fields);
  found.addEventListener("submit", (event) => {
    event.preventDefault();
    submitted();
  });
  return found;
}
