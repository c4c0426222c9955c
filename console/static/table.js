// A table. On a narrow screen, each row becomes a card, with the name of the column in each cell.

import { el } from "./dom.js";

// `columns` are [name, cell of a row, class]. The roles stay when the style changes what a table is.
export function table(caption, columns, rows, empty) {
  if (rows.length === 0) return el("p", { class: "quiet" }, empty);
  const head = columns.map(([name, , look]) => el("th", { scope: "col", role: "columnheader", class: look }, name));
  const body = rows.map((row) =>
    el("tr", { role: "row" }, columns.map(([name, cell, look], index) => {
      const tag = index === 0 ? "th" : "td";
      const attributes = index === 0 ? { scope: "row", role: "rowheader" } : { role: "cell" };
      const content = el("span", null, cell(row));
      const isEmpty = content.childNodes.length === 0 && "yes";
      return el(tag, { ...attributes, class: look, "data-name": name, "data-empty": isEmpty }, content);
    })));
  return el("div", { class: "scroll" },
    el("table", { role: "table" },
      el("caption", null, caption),
      el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, head)),
      el("tbody", { role: "rowgroup" }, body)));
}
