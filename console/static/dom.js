// Makes elements, and changes a page into another one. Text gets in as text only, never as HTML.

const SVG = document.querySelector("svg").namespaceURI;

// What is not printed, as the logs and the commands define it: characters of direction or without
// width can show one word in place of another.
const UNPRINTED = /[\p{C}\p{Zl}\p{Zp}]/gu;

function escaped(character) {
  if (character === "\n" || character === "\t") return character;
  const code = character.codePointAt(0);
  if (code < 0x100) return `\\x${code.toString(16).padStart(2, "0")}`;
  return code < 0x10000 ? `\\u${code.toString(16).padStart(4, "0")}` : `\\U${code.toString(16).padStart(8, "0")}`;
}

function text(value) {
  return document.createTextNode(String(value).replace(UNPRINTED, escaped));
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === true) element.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  for (const child of children.flat()) {
    if (child === null || child === undefined || child === "") continue;
    element.append(child instanceof Node ? child : text(child));
  }
  return element;
}

export function el(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

// Gives `parent` these children. What is there already is changed rather than replaced, so that the
// focus, what is selected and how far things are scrolled stay.
export function show(parent, ...children) {
  const wanted = children.flat().filter((child) => child !== null && child !== undefined && child !== "");
  wanted.forEach((child, index) => {
    const node = child instanceof Node ? child : text(child);
    const present = parent.childNodes[index];
    if (!present) parent.append(node);
    else become(present, node);
  });
  while (parent.childNodes.length > wanted.length) parent.lastChild.remove();
}

function become(present, wanted) {
  if (present === wanted) return;
  if (present.nodeName !== wanted.nodeName) {
    present.replaceWith(wanted);
    return;
  }
  if (present.nodeType === Node.TEXT_NODE) {
    if (present.data !== wanted.data) present.data = wanted.data;
    return;
  }
  // Charts change by themselves.
  const isOwn = [present, wanted].map((node) => node.hasAttribute("data-own"));
  if (isOwn[0] || isOwn[1]) {
    if (!(isOwn[0] && isOwn[1])) present.replaceWith(wanted);
    return;
  }
  for (const { name } of [...present.attributes]) {
    if (!wanted.hasAttribute(name)) present.removeAttribute(name);
  }
  for (const { name, value } of wanted.attributes) {
    if (present.getAttribute(name) !== value) present.setAttribute(name, value);
  }
  show(present, [...wanted.childNodes]);
}
