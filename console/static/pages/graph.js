// The graph of processors and topics, with the figures of all tasks.

import { el, show, svg } from "../dom.js";
import { arcClass, arcLegend, arcLine, arcTitle, frame, place, processorBox, topicOf } from "../drawing.js";
import { brief, duration, rate, stateLook } from "../format.js";
import { keyWarningsList, unmetTopics } from "../key_warnings.js";
import { leftOutRecently, reasonsOf } from "../left_out.js";
import { actionButton } from "../session.js";
import { brieflyInTime, eventTime, waitsList } from "../waits.js";

const WIDE = { processor: { width: 208, height: 103 }, topic: { width: 160, height: 34 }, label: { width: 84, height: 34 } };
const NARROW = { processor: { width: 172, height: 103 }, topic: { width: 140, height: 34 }, label: { width: 64, height: 34 } };
const NARROW_PX = 700;
const MARGIN_PX = 20;
const ARROW = "arrow";
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
        placed = place(data, direction, direction === "LR" ? WIDE : NARROW);
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
          + "where the heartbeats tell them apart.", arcLegend(data.arcs)));
    },
  };
}

function draw(data, graph, room, least) {
  return frame(graph, { room, least, name: "Graph of the pipeline", arrow: ARROW },
    data.arcs.map((arc) => arcOf(arc, graph)),
    data.nodes.map((node) => (node.kind === "processor" ? processorOf(node, graph, data.waits) : topicOf(node, graph))));
}

function arcOf(arc, graph) {
  const edge = graph.edge(arc.from, arc.to, arc.topic);
  const isBehind = arc.lag > 0;
  const words = [
    arc.rate === null ? "" : rate(arc.rate),
    arc.dead_letters === null ? "" : `${brief(arc.dead_letters)} sent`,
    arc.lag === null ? "" : isBehind ? `lag ${brief(arc.lag)}` : "no lag",
  ].filter(Boolean);
  const y = edge.y - (words.length - 1) * 8 + 4;
  return svg("g", { class: arcClass(arc.kind) },
    svg("title", null, `${arcTitle(arc)}: ${words.join(", ") || "its rate is not known"}`),
    arcLine(edge, ARROW),
    words.map((word, index) => svg("text", {
      x: edge.x, y: y + index * 16, class: isBehind && word.startsWith("lag") ? "behind" : "",
    }, word)));
}

function processorOf(node, graph, waits) {
  const box = graph.node(node.id);
  const { x, y, width, height } = box;
  const [look, sign, word] = stateLook(node.state);
  const left = x - width / 2;
  const top = y - height / 2;
  const number = node.states[node.state] ?? 0;
  const state = number === node.tasks ? `${number} ${word}` : `${number} of ${node.tasks} ${word}`;
  const oldest = node.oldest_waiting_ms === null || width < WIDE.processor.width ? "" : ` · ${duration(node.oldest_waiting_ms)}`;
  const lost = node.dropped ? `, left out: ${reasonsOf(node)}` : "";
  const unmet = node.key_warnings.length ? `, keys that do not meet others: ${unmetTopics(node)}` : "";
  const label = `${node.name}: ${state}, in ${rate(node.rate_in)}, lag ${brief(node.lag)}, event time ${eventTime(node)}${lost}${unmet}`;
  const isHeld = waits.some((wait) => wait.processor === node.name);
  return svg("a", { class: `node ${look}`, href: `#/graph/${encodeURIComponent(node.name)}`, "aria-label": label },
    svg("title", null, label),
    processorBox(node, box),
    node.dropped
      ? svg("text", { x: left + width - 10, y: top + 40, class: leftOutRecently(node) ? "lost now" : "lost" }, `▼ ${brief(node.dropped)} left out`)
      : null,
    svg("text", { x: left + 18, y: top + 58, class: "state" }, `${sign} ${state}`),
    unmet ? svg("text", { x: left + width - 10, y: top + 58, class: "lost now" }, "▲ keys") : null,
    svg("text", { x: left + 18, y: top + 75, class: "sub" }, `in ${rate(node.rate_in)} · lag ${brief(node.lag)}${oldest}`),
    svg("text", { x: left + 18, y: top + 92, class: isHeld ? "held" : "sub" }, brieflyInTime(node)));
}
