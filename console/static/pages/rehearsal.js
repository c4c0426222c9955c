// A rehearsal: the version that the job runs next to the new one, and what differs in their results.

import { el, show, svg } from "../dom.js";
import { arcClass, arcLegend, arcLine, arcTitle, frame, place, processorBox, shorten, topicOf, LETTER_PX } from "../drawing.js";
import { UNKNOWN, brief, count, duration, moment, rate, stateLook } from "../format.js";
import { ask, isSignedIn, mayRead, signIn } from "../session.js";
import { table } from "../table.js";

const AGAIN_MS = 5000;
const SILENT_MS = 20_000;
const SIZES = { processor: { width: 200, height: 88 }, topic: { width: 160, height: 34 }, label: { width: 8, height: 8 } };
const LEAST_SCALE = 0.6;
const MARGIN_PX = 36;
const SIDES = ["old", "new"];
const SIDE_BY_SIDE_PX = 1000;

const CHANGES = { added: ["+", "added"], removed: ["−", "removed"], changed: ["≠", "changed"] };
const PHASES = {
  saving: ["busy", "◌", "making a savepoint of the job"],
  starting: ["busy", "◌", "making and starting the shadow"],
  comparing: ["busy", "●", "comparing"],
  failed: ["bad", "✕", "failed"],
};
const VERDICTS = {
  equal: ["good", "✓", "equal"],
  different: ["bad", "≠", "different"],
  "nothing compared": ["idle", "–", "nothing compared"],
};

export function rehearsalPage(main) {
  let timer = null;
  let number = 0;
  let ended = false;
  let nowMs = 0;
  let placed = {};
  let shape = "";

  async function update() {
    clearTimeout(timer);
    number += 1;
    const mine = number;
    const found = await ask("api/rehearsal");
    if (ended || mine !== number) return;
    if (!found.ok) show(main, el("h2", null, "Rehearsal"), el("p", { class: "notice" }, found.data.error));
    else if (found.data.rehearsal === null) show(main, el("h2", null, "Rehearsal"), nothing());
    else draw(found.data.rehearsal);
    timer = setTimeout(update, AGAIN_MS);
  }

  function draw(its) {
    const report = its.report;
    const isWide = innerWidth >= SIDE_BY_SIDE_PX;
    const room = (isWide ? main.clientWidth / 2 : main.clientWidth) - 2 * MARGIN_PX;
    // Side by side, what both versions have is at the same place.
    const graphs = isWide ? SIDES.map(() => union(its.versions)) : SIDES.map((side) => its.versions[side]);
    const wanted = JSON.stringify(graphs.map(({ nodes, arcs }) => [nodes.map((node) => node.id), arcs.map(arcKey)]));
    if (wanted !== shape) {
      placed = Object.fromEntries(SIDES.map((side, index) => [side, place(graphs[index], "TB", SIZES)]));
      shape = wanted;
    }
    show(main,
      el("h2", null, "Rehearsal"),
      el("section", { class: "card" }, facts(its), warnings(its, nowMs)),
      el("div", { class: "versions" }, SIDES.map((side) => el("section", { class: "card" },
        el("h3", null, title(side, report)),
        el("div", { class: "scroll graph" }, version(its.versions[side], placed[side], room, side))))),
      el("p", { class: "quiet" }, "+ added, − removed, ≠ changed. Topics have the names that they have in the job.",
        arcLegend(SIDES.flatMap((side) => its.versions[side].arcs))),
      report ? el("h3", { class: "part" }, "Results") : null,
      report ? table("Results of both versions", OUTPUTS, Object.entries(report.outputs), "Neither version writes anything.") : null,
      report ? el("h3", { class: "part" }, "The first differences") : null,
      ...(report ? examples(its, update) : []));
  }

  return {
    render(data) {
      nowMs = data.summary.at_ms;
      if (number === 0) update();
    },
    close() {
      ended = true;
      clearTimeout(timer);
    },
  };
}

const nothing = () => el("p", { class: "quiet" }, "No new version of this job was rehearsed, or the results were discarded. ",
  el("code", null, "pipeline rehearse CONFIG PIPELINE"), " runs one in shadow next to the job, and compares the results.");

const title = (side, report) => (side === "new" ? "The new version" : report ? `Version ${report.old_version}, which the job runs` : "The version that the job runs");

const sign = ([look, mark, word]) => el("span", { class: `badge ${look}` }, el("span", { "aria-hidden": "true" }, mark), ` ${word}`);

function facts(its) {
  const report = its.report;
  const end = its.ended_at_ms === null ? ["Compares until", its.until_ms] : ["Ended", its.ended_at_ms];
  const caughtUp = report?.catching_up ?? null;
  const lines = [
    ["State", its.phase === "ended" ? sign(VERDICTS[report.verdict]) : sign(PHASES[its.phase])],
    ["Began", `${moment(its.began_at_ms)}, by ${its.by}`],
    [end[0], end[1] === null ? UNKNOWN : moment(end[1])],
    ["Compared: what comes of records before", report?.compared_until_ms ? moment(report.compared_until_ms) : "nothing yet"],
    ["Speed of the old version", pace(report?.figures.old)],
    ["Speed of the new version", pace(report?.figures.new)],
    ["New version until it had caught up", caughtUp ? `${pace(caughtUp)}, ${duration(caughtUp.seconds * 1000)}` : UNKNOWN],
    ["The job was paused for", duration(report?.rested_ms)],
  ];
  return el("dl", { class: "facts" }, lines.map(([term, value]) => el("div", null, el("dt", null, term), el("dd", null, value))));
}

const pace = (figures) => (figures ? `${rate(figures.per_s)} · lag ${brief(figures.lag)}` : UNKNOWN);

function warnings(its, nowMs) {
  const report = its.report;
  const silentMs = nowMs - its.written_at_ms;
  const failed = SIDES.flatMap((side) => (report?.failed[side] ?? []).map((line) => `${side} version: ${line}`));
  const waiting = report ? SIDES.filter((side) => report.not_judged[side]).map((side) => `${count(report.not_judged[side])} of the ${side} version`) : [];
  const notes = [
    its.phase === "comparing" && silentMs > SILENT_MS
      ? `The command has published nothing for ${duration(silentMs)}: it was killed, or cannot reach Kafka.` : "",
    ...(report?.notes ?? []),
    report?.judged_early ? `${count(report.judged_early)} results were judged early: their counterparts may have come later.` : "",
    waiting.length ? `Results without a counterpart so far, not judged: ${waiting.join(", ")}.` : "",
  ].filter(Boolean);
  return [
    its.reason || failed.length ? el("ul", { class: "reasons" }, [its.reason, ...failed].filter(Boolean).map((line) => el("li", null, line))) : null,
    notes.length ? el("ul", { class: "reasons warnings" }, notes.map((line) => el("li", null, line))) : null,
  ].filter(Boolean);
}

const arcKey = (arc) => JSON.stringify([arc.from, arc.to, arc.topic]);

// What either version has, so that both are placed alike.
function union({ old, new: other }) {
  return {
    nodes: [...new Map([...old.nodes, ...other.nodes].map((node) => [node.id, node])).values()],
    arcs: [...new Map([...old.arcs, ...other.arcs].map((arc) => [arcKey(arc), arc])).values()],
  };
}

function version({ nodes, arcs }, graph, room, side) {
  const arrow = `arrow-${side}`;
  return frame(graph, { room, least: LEAST_SCALE, name: side === "new" ? "Graph of the new version" : "Graph of the old version", arrow },
    arcs.map((arc) => svg("g", { class: arcClass(arc.kind) },
      svg("title", null, arcTitle(arc)),
      arcLine(graph.edge(arc.from, arc.to, arc.topic), arrow))),
    nodes.map((node) => (node.kind === "processor" ? processorOf(node, graph) : topicOf(node, graph))));
}

function processorOf(node, graph) {
  const box = graph.node(node.id);
  const left = box.x - box.width / 2 + 18;
  const top = box.y - box.height / 2;
  const letters = Math.floor((box.width - 24) / LETTER_PX);
  const [mark, word] = CHANGES[node.change] ?? ["", ""];
  const change = word && [word, node.differs.join(", ")].filter(Boolean).join(": ");
  const [look, stateSign, stateWord] = node.state === null ? ["idle", "", ""] : stateLook(node.state);
  const state = node.state === null ? "" : `${node.states[node.state] ?? 0} of ${node.tasks} ${stateWord} · lag ${brief(node.lag)}`;
  const label = [node.name, change, state].filter(Boolean).join(", ");
  return svg("g", { class: `node ${look} ${node.change}`, role: "img", "aria-label": label },
    svg("title", null, label),
    processorBox(node, box),
    change ? svg("text", { x: left, y: top + 58, class: "change" }, shorten(`${mark} ${change}`, letters)) : null,
    state ? svg("text", { x: left, y: top + 76, class: "state" }, shorten(`${stateSign} ${state}`, letters + 3)) : null);
}

const OUTPUTS = [
  ["Results of", ([name]) => name],
  ["Equal", ([, found]) => count(found.equal), "number"],
  ["Different", ([, found]) => differing(found.different), "number"],
  ["Reordered", ([, found]) => differing(found.reordered), "number"],
  ["Only old", ([, found]) => differing(found.only_old), "number"],
  ["Only new", ([, found]) => differing(found.only_new), "number"],
  ["All old", ([, found]) => count(found.results.old), "number"],
  ["All new", ([, found]) => count(found.results.new), "number"],
];

const differing = (number) => (number ? el("strong", { class: "differs" }, count(number)) : "0");

function examples(its, load) {
  const rows = Object.entries(its.report.outputs).flatMap(([output, found]) => found.examples.map((example) => ({ output, ...example })));
  const withRecords = its.with_records && its.has_records;
  const columns = withRecords ? [...EXAMPLES.slice(0, 3), KEY, ...EXAMPLES.slice(3)] : EXAMPLES;
  return [
    rows.length && !withRecords ? records(its, load) : null,
    table("The first differences of each kind", columns, rows, "Nothing differs so far."),
  ];
}

function records(its, load) {
  if (!mayRead() || !its.has_records) {
    return el("p", { class: "quiet" }, "Keys and values are shown only if console_records is set in the config.yaml of both the command and the JobManager.");
  }
  const button = el("button", { type: "button", "data-own": true }, "Show keys and values");
  button.addEventListener("click", async () => {
    if (isSignedIn() || await signIn()) load();
  });
  return button;
}

const KEY = ["Key", ({ key }) => el("code", null, key), "text"];
const EXAMPLES = [
  ["Result of", ({ output }) => output],
  ["What", ({ kind }) => kind, "line"],
  ["Differs in", ({ differs }) => differs.join(", "), "text"],
  ["Old version", ({ old }) => result(old), "text"],
  ["New version", (example) => result(example.new), "text"],
];

function result(its) {
  if (its === null) return el("span", { class: "quiet" }, "none");
  return [
    el("span", { class: "quiet" }, `${its.partition}@${its.offset}, ${moment(its.timestamp_ms)}`),
    its.value === undefined ? null : el("code", null, its.value),
  ];
}
