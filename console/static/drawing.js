// How graphs are drawn: dagre places nodes and arcs, and these are their shapes.

import { Graph, layout } from "./vendor/dagre.esm.js";
import { svg } from "./dom.js";

export const LETTER_PX = 8;
const MARGIN = 8;
const GAPS = { LR: { nodesep: 28, ranksep: 24 }, TB: { nodesep: 10, ranksep: 26 } };

// Places nodes and arcs; `sizes` are those of a processor, a topic and the label of an arc.
export function place({ nodes, arcs }, rankdir, sizes) {
  const graph = new Graph({ multigraph: true });
  graph.setGraph({ rankdir, ...GAPS[rankdir], edgesep: 12, marginx: MARGIN, marginy: MARGIN });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const node of nodes) {
    graph.setNode(node.id, { ...(node.kind === "processor" ? sizes.processor : sizes.topic) });
  }
  for (const arc of arcs) graph.setEdge(arc.from, arc.to, { ...sizes.label, labelpos: "c" }, arc.topic);
  layout(graph);
  return graph;
}

// A graph of these shapes; `arrow` is the id of its arrow heads, which must be its own.
export function frame(graph, { room, least, name, arrow }, ...shapes) {
  const { width, height } = graph.graph();
  const scale = Math.max(Math.min(room / width, 1), least);
  return svg("svg", { width: width * scale, height: height * scale, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": name },
    svg("defs", null, svg("marker", {
      id: arrow, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 8, markerHeight: 8, orient: "auto-start-reverse",
    }, svg("path", { d: "M0 0.8 7 4 0 7.2z" }))),
    ...shapes);
}

export function arcLine(edge, arrow) {
  const [first, ...rest] = edge.points;
  const last = rest.pop();
  let path = `M${first.x} ${first.y}`;
  rest.forEach((point, index) => {
    const next = rest[index + 1] ?? last;
    const end = index + 1 < rest.length ? { x: (point.x + next.x) / 2, y: (point.y + next.y) / 2 } : last;
    path += ` Q${point.x} ${point.y} ${end.x} ${end.y}`;
  });
  return svg("path", { d: path, "marker-end": `url(#${arrow})` });
}

// The box of a processor, with an edge in the colour of its state, and its name and type.
export function processorBox(node, { x, y, width, height }) {
  const left = x - width / 2;
  const top = y - height / 2;
  const letters = Math.floor((width - 24) / LETTER_PX);
  return [
    svg("rect", { x: left, y: top, width, height, rx: 10 }),
    svg("path", { class: "edge", d: `M${left + 10} ${top}h-0a10 10 0 0 0 -10 10v${height - 20}a10 10 0 0 0 10 10z` }),
    svg("text", { x: left + 18, y: top + 22, class: "name" }, shorten(node.name, letters)),
    svg("text", { x: left + 18, y: top + 40, class: "sub" }, shorten(node.type, letters)),
  ];
}

// What an arc carries that does not carry plain records: its name, its line, and what that means.
const KINDS = {
  upserts: ["upserts by key", "thick", "each record replaces the former one of its key"],
  updates: ["updates", "dotted", "records replace former ones, but no key says which"],
};

// The class of an arc of a kind, which may be unknown.
export const arcClass = (kind) => (kind in KINDS ? `arc ${kind}` : "arc");

export const arcTitle = ({ topic, kind }) => (kind in KINDS ? `topic ${topic}, ${KINDS[kind][0]}` : `topic ${topic}`);

// Which lines mean what, of those that the arcs have.
export function arcLegend(arcs) {
  const found = Object.keys(KINDS).filter((kind) => arcs.some((arc) => arc.kind === kind));
  return found.map((kind) => {
    const [name, line, meaning] = KINDS[kind];
    return ` A ${line} arc carries ${name}: ${meaning}.`;
  }).join("");
}

export function topicOf(node, graph) {
  const { x, y, width, height } = graph.node(node.id);
  const kind = node.kind === "dead_letters" ? "dead letters" : "topic";
  return svg("g", { class: `topic ${node.kind}` },
    svg("title", null, `${kind} ${node.name}`),
    svg("rect", { x: x - width / 2, y: y - height / 2, width, height, rx: height / 2 }),
    svg("text", { x, y: y + 4 }, shorten(node.name, Math.floor((width - 12) / LETTER_PX))));
}

export const shorten = (text, most) => (text.length <= most ? text : `${text.slice(0, most - 1)}…`);
