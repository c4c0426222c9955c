// The graph of processors and topics. dagre places them; the rest is drawn here.

import { Graph, layout } from "../vendor/dagre.esm.js";
import { el, show, svg } from "../dom.js";
import { brief, duration, rate, stateLook } from "../format.js";
import { keyWarningsList, unmetTopics } from "../key_warnings.js";
import { leftOutRecently, reasonsOf } from "../left_out.js";
import { actionButton } from "../session.js";
import { brieflyInTime, eventTime, waitsList } from "../waits.js";

const WIDE = { processor: { width: 208, height: 103 }, topic: { width: 160, height: 34 }, label: { width: 84, height: 34 } };
const NARROW = { processor: { width: 172, height: 103 }, topic: { width: 140, height: 34 }, label: { width: 64, height: 34 } };
const NARROW_PX = 700;
const MARGIN = 8;
const MARGIN_PX = 20;
const LETTER_PX = 8;
// On a phone, most graphs fit with this; larger ones scroll sideways.
const LEAST_SCALE = { LR: 0.8, TB: 0.6 };

export function graphPage(main) {
  let placed = null;
  let shape = "";

  return {
    render(data) {
      const direction = innerWidth < NARROW_PX ? "TB" : "LR";
      const wanted = JSON.stringify([direction, data.nodes.map((node) => node.id), data.arcs.map((arc) => [arc.from, arc.to])]);
      if (wanted !== shape) {
        placed = place(data, direction);
        shape = wanted;
      }
      show(main,
        el("h2", { class: "unseen" }, "Graph"),
        waitsList(data.waits),
        keyWarningsList(data.nodes),
        data.nodes.length
          ? el("div", { class: "scroll graph" }, draw(data, placed, main.clientWidth - 2 * MARGIN_PX, LEAST_SCALE[direction]))
          : el("p", { class: "quiet" }, "The JobManager has not read a pipeline yet."),
        el("div", { class: "actions" }, [["Pause all", "pause"], ["Resume all", "resume"], ["Restart all", "restart"]].map(([label, action]) =>
          actionButton(label, action, {}))),
        el("p", { class: "quiet" }, "Choose a processor for its tasks. Arcs show records per second and lag, "
          + "where the heartbeats tell them apart."));
    },
  };
}

function place(data, rankdir) {
  const sizes = rankdir === "LR" ? WIDE : NARROW;
  const graph = new Graph({ multigraph: true });
  graph.setGraph({ rankdir, nodesep: rankdir === "LR" ? 28 : 10, ranksep: rankdir === "LR" ? 24 : 26, edgesep: 12, marginx: MARGIN, marginy: MARGIN });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const node of data.nodes) {
    graph.setNode(node.id, { ...(node.kind === "processor" ? sizes.processor : sizes.topic) });
  }
  for (const arc of data.arcs) graph.setEdge(arc.from, arc.to, { ...sizes.label, labelpos: "c" }, arc.topic);
  layout(graph);
  return graph;
}

function draw(data, graph, room, least) {
  const { width, height } = graph.graph();
  const scale = Math.max(Math.min(room / width, 1), least);
  return svg("svg", { width: width * scale, height: height * scale, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Graph of the pipeline" },
    svg("defs", null, svg("marker", {
      id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 8, markerHeight: 8, orient: "auto-start-reverse",
    }, svg("path", { d: "M0 0.8 7 4 0 7.2z" }))),
    data.arcs.map((arc) => arcOf(arc, graph)),
    data.nodes.map((node) => (node.kind === "processor" ? processorOf(node, graph, data.waits) : topicOf(node, graph))));
}

function arcOf(arc, graph) {
  const edge = graph.edge(arc.from, arc.to, arc.topic);
  const [first, ...rest] = edge.points;
  const last = rest.pop();
  let path = `M${first.x} ${first.y}`;
  rest.forEach((point, index) => {
    const next = rest[index + 1] ?? last;
    const end = index + 1 < rest.length ? { x: (point.x + next.x) / 2, y: (point.y + next.y) / 2 } : last;
    path += ` Q${point.x} ${point.y} ${end.x} ${end.y}`;
  });
  const isBehind = arc.lag > 0;
  const words = [
    arc.rate === null ? "" : rate(arc.rate),
    arc.dead_letters === null ? "" : `${brief(arc.dead_letters)} sent`,
    arc.lag === null ? "" : isBehind ? `lag ${brief(arc.lag)}` : "no lag",
  ].filter(Boolean);
  const y = edge.y - (words.length - 1) * 8 + 4;
  return svg("g", { class: "arc" },
    svg("title", null, `topic ${arc.topic}: ${words.join(", ") || "its rate is not known"}`),
    svg("path", { d: path, "marker-end": "url(#arrow)" }),
    words.map((word, index) => svg("text", {
      x: edge.x, y: y + index * 16, class: isBehind && word.startsWith("lag") ? "behind" : "",
    }, word)));
}

function processorOf(node, graph, waits) {
  const { x, y, width, height } = graph.node(node.id);
  const [look, sign, word] = stateLook(node.state);
  const left = x - width / 2;
  const top = y - height / 2;
  const letters = Math.floor((width - 24) / LETTER_PX);
  const number = node.states[node.state] ?? 0;
  const state = number === node.tasks ? `${number} ${word}` : `${number} of ${node.tasks} ${word}`;
  const oldest = node.oldest_waiting_ms === null || width < WIDE.processor.width ? "" : ` · ${duration(node.oldest_waiting_ms)}`;
  const lost = node.dropped ? `, left out: ${reasonsOf(node)}` : "";
  const unmet = node.key_warnings.length ? `, keys that do not meet others: ${unmetTopics(node)}` : "";
  const label = `${node.name}: ${state}, in ${rate(node.rate_in)}, lag ${brief(node.lag)}, event time ${eventTime(node)}${lost}${unmet}`;
  const isHeld = waits.some((wait) => wait.processor === node.name);
  return svg("a", { class: `node ${look}`, href: `#/graph/${encodeURIComponent(node.name)}`, "aria-label": label },
    svg("title", null, label),
    svg("rect", { x: left, y: top, width, height, rx: 10 }),
    svg("path", { class: "edge", d: `M${left + 10} ${top}h-0a10 10 0 0 0 -10 10v${height - 20}a10 10 0 0 0 10 10z` }),
    svg("text", { x: left + 18, y: top + 22, class: "name" }, shorten(node.name, letters)),
    svg("text", { x: left + 18, y: top + 40, class: "sub" }, shorten(node.type, letters)),
    node.dropped
      ? svg("text", { x: left + width - 10, y: top + 40, class: leftOutRecently(node) ? "lost now" : "lost" }, `▼ ${brief(node.dropped)} left out`)
      : null,
    svg("text", { x: left + 18, y: top + 58, class: "state" }, `${sign} ${state}`),
    unmet ? svg("text", { x: left + width - 10, y: top + 58, class: "lost now" }, "▲ keys") : null,
    svg("text", { x: left + 18, y: top + 75, class: "sub" }, `in ${rate(node.rate_in)} · lag ${brief(node.lag)}${oldest}`),
    svg("text", { x: left + 18, y: top + 92, class: isHeld ? "held" : "sub" }, brieflyInTime(node)));
}

function topicOf(node, graph) {
  const { x, y, width, height } = graph.node(node.id);
  const kind = node.kind === "dead_letters" ? "dead letters" : "topic";
  return svg("g", { class: `topic ${node.kind}` },
    svg("title", null, `${kind} ${node.name}`),
    svg("rect", { x: x - width / 2, y: y - height / 2, width, height, rx: height / 2 }),
    svg("text", { x, y: y + 4 }, shorten(node.name, Math.floor((width - 12) / LETTER_PX))));
}

const shorten = (text, most) => (text.length <= most ? text : `${text.slice(0, most - 1)}…`);
