// What is shown at the side of a page: one processor, or one dead letter.

import { el, show } from "./dom.js";

const dialog = document.getElementById("drawer");
const title = document.getElementById("drawer-title");
const body = document.getElementById("drawer-body");
let shown = null;
let stop = () => {};
let onClose = () => {};

// Shows a content at the side, or nothing if it is null: it has an `id`, a `title`, and `begin(body)`,
// which fills the drawer and returns what stops that. `closed` is called when somebody closes it.
export function openDrawer(content, closed) {
  onClose = closed;
  const id = content?.id ?? null;
  if (id === shown) return;
  stop();
  stop = () => {};
  shown = id;
  if (content === null) {
    dialog.close();
    return;
  }
  title.textContent = content.title;
  show(body, el("p", { class: "quiet" }, "Loading…"));
  if (!dialog.open) dialog.showModal();
  stop = content.begin(body);
}

dialog.addEventListener("close", () => {
  if (shown !== null) onClose();
});
document.getElementById("drawer-close").addEventListener("click", () => dialog.close());
dialog.addEventListener("click", (event) => {
  if (event.target === dialog) dialog.close(); // outside of what is in the dialog
});
