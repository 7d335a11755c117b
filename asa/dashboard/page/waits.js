// Queue waits: what was predicted and what came of it, and what the estimator believes.

import { byId, h, s, show } from "./dom.js";
import { stageColour } from "./palette.js";
import { counted, span } from "./words.js";

const SIDE = 250, LEFT = 58, BOTTOM = 32, TOP = 22;
const TICKS = [[1, "1 s"], [60, "1 min"], [3600, "1 h"], [86400, "1 d"], [604800, "7 d"]];
const BELIEFS_MOST = 12;

// Both axes are logarithmic, with 0 at the place of 0.3 s.
const place = (wait) => Math.log10(Math.max(0.3, wait) / 0.3);

export function drawWaits(tables) {
  const known = Object.values(tables.waits);
  const points = known.filter((wait) => wait.predicted_s !== null);
  show(byId("waits"), JSON.stringify(points), () => {
    if (!points.length) return h("p", { class: "muted" }, known.length ?
      `${counted(known.length, "wait")} became known; none of these jobs was planned with a prediction.` :
      "No wait is known yet.");
    return [scatter(points, tables.stages), summary(points)];
  });
}

function scatter(points, stages) {
  const most = place(Math.max(60, ...points.flatMap((wait) => [wait.wait_s, wait.predicted_s])) * 1.3);
  const x = (wait) => LEFT + (SIDE * place(wait)) / most;
  const y = (wait) => TOP + SIDE - (SIDE * place(wait)) / most;
  const svg = s("svg", { class: "plot", width: LEFT + SIDE + 90, height: TOP + SIDE + BOTTOM, role: "img",
    "aria-label": `${counted(points.length, "wait")}, predicted and real` });
  for (const [at, name] of TICKS.filter(([time]) => place(time) <= most)) {
    svg.append(s("line", { class: "axis", x1: x(at), x2: x(at), y1: TOP, y2: TOP + SIDE }),
      s("line", { class: "axis", x1: LEFT, x2: LEFT + SIDE, y1: y(at), y2: y(at) }),
      s("text", { x: x(at), y: TOP + SIDE + 14, "text-anchor": "middle" }, name),
      s("text", { x: LEFT - 5, y: y(at) + 4, "text-anchor": "end" }, name));
  }
  svg.append(s("line", { class: "same", x1: LEFT, y1: TOP + SIDE, x2: LEFT + SIDE, y2: TOP }),
    s("text", { x: LEFT + SIDE, y: TOP + SIDE + 29, "text-anchor": "end" }, "predicted wait →"),
    s("text", { x: LEFT - 5, y: 11 }, "↑ real wait"),
    s("text", { x: LEFT + 6, y: TOP + 16 }, "waited longer"),
    s("text", { x: LEFT + SIDE - 4, y: TOP + SIDE - 6, "text-anchor": "end" }, "came early"));
  for (const wait of points) {
    const colour = stageColour(stages[wait.stage]?.position ?? 0);
    svg.append(s("circle", { class: "dotted", cx: x(wait.predicted_s), cy: y(wait.wait_s), r: 5, stroke: colour,
      fill: wait.censored ? "none" : colour, "fill-opacity": 0.55 },
    s("title", {}, `${wait.stage} (${wait.geometry}): predicted ${span(wait.predicted_s)}, waited ${span(wait.wait_s)}` +
      (wait.censored ? "; held by a dependency: it taught nothing" : ""))));
  }
  return svg;
}

function summary(points) {
  const taught = points.filter((wait) => !wait.censored);
  const errors = taught.map((wait) => Math.abs(wait.wait_s - wait.predicted_s)).sort((a, b) => a - b);
  const middle = errors.length ? `; half of them were wrong by less than ${span(errors[errors.length >> 1])}` : "";
  const held = points.length - taught.length;
  return h("p", { class: "muted" }, `${counted(taught.length, "wait")} of the queue${middle}` +
    (held ? `; ${held} more held by a dependency (hollow)` : "") + ".");
}

const WIDE = 420, TALL = 54;

export function drawBeliefs(rows, tables) {
  const mine = new Set(Object.values(tables.waits).map((wait) => wait.geometry));
  const sorted = [...(rows ?? [])].sort((a, b) => mine.has(b.geometry) - mine.has(a.geometry)).slice(0, BELIEFS_MOST);
  show(byId("beliefs"), JSON.stringify([rows === null, sorted]), () => [
    h("p", { class: "muted" }, "From all runs, by now: how likely each wait is thought to be, by site, partition, cores " +
      "and class of wall time. The line is what a job would be planned with."),
    ...(sorted.length ? sorted.map(belief) : [h("p", { class: "muted" }, "Nothing has been learned about this queue yet.")]),
  ]);
}

function belief(row) {
  const words = `${row.geometry} · ${row.estimator} · ${counted(row.jobs, "job")} · predicts ${span(row.predicted_s)}, ` +
    `last wait ${span(row.last_wait_s)}`;
  return h("div", { class: "belief" }, h("div", {}, words), row.weights.length ? bars(row) : null);
}

function bars(row) {
  const most = place(86400 * 7);
  const x = (wait) => (WIDE * place(wait)) / most;
  const high = Math.max(...row.weights.map(([, weight]) => weight));
  const svg = s("svg", { class: "plot", width: WIDE, height: TALL + 16, role: "img", "aria-label": `Distribution: ${row.geometry}` });
  for (const [at, name] of TICKS) {
    svg.append(s("line", { class: "axis", x1: x(at), x2: x(at), y1: 0, y2: TALL }),
      s("text", { x: x(at), y: TALL + 12, "text-anchor": at === TICKS.at(-1)[0] ? "end" : "middle" }, name));
  }
  for (const [wait, weight] of row.weights) {
    const tall = Math.max(1, (TALL * weight) / high);
    svg.append(s("rect", { class: "weight", x: x(wait), y: TALL - tall, width: 5, height: tall },
      s("title", {}, `${span(wait)}: ${(100 * weight).toFixed(1)} %`)));
  }
  if (row.predicted_s !== null)
    svg.append(s("line", { class: "predicted", x1: x(row.predicted_s) + 2.5, x2: x(row.predicted_s) + 2.5, y1: 0, y2: TALL }));
  return svg;
}
