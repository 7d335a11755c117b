// Queue waits: what was predicted and what came of it.

import { byId, h, s, show } from "./dom.js";
import { stageColour } from "./palette.js";
import { asked, counted, span } from "./words.js";

const SIDE = 250, LEFT = 58, BOTTOM = 32, TOP = 22;
export const TICKS = [[1, "1 s"], [60, "1 min"], [3600, "1 h"], [86400, "1 d"], [604800, "7 d"]];

// Both axes are logarithmic, with 0 at the place of 0.3 s.
export const place = (wait) => Math.log10(Math.max(0.3, wait) / 0.3);

export function drawWaits(tables) {
  const known = Object.values(tables.waits);
  const points = known.filter((wait) => wait.predicted_s !== null);
  show(byId("waits"), JSON.stringify(points), () => {
    if (!points.length) return h("p", { class: "muted" }, known.length ?
      `${counted(known.length, "wait")} became known; none of these jobs was planned with an expected wait.` :
      "No wait is known yet.");
    return [scatter(points, tables.stages), summary(points)];
  });
}

function scatter(points, stages) {
  const most = place(Math.max(60, ...points.flatMap((wait) => [wait.wait_s, wait.predicted_s])) * 1.3);
  const x = (wait) => LEFT + (SIDE * place(wait)) / most;
  const y = (wait) => TOP + SIDE - (SIDE * place(wait)) / most;
  const [width, height] = [LEFT + SIDE + 90, TOP + SIDE + BOTTOM];
  const svg = s("svg", { class: "plot", width, height, viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": `${counted(points.length, "wait")}, expected and real` });
  for (const [at, name] of TICKS.filter(([time]) => place(time) <= most)) {
    svg.append(s("line", { class: "axis", x1: x(at), x2: x(at), y1: TOP, y2: TOP + SIDE }),
      s("line", { class: "axis", x1: LEFT, x2: LEFT + SIDE, y1: y(at), y2: y(at) }),
      s("text", { x: x(at), y: TOP + SIDE + 14, "text-anchor": "middle" }, name),
      s("text", { x: LEFT - 5, y: y(at) + 4, "text-anchor": "end" }, name));
  }
  svg.append(s("line", { class: "same", x1: LEFT, y1: TOP + SIDE, x2: LEFT + SIDE, y2: TOP }),
    s("text", { x: LEFT + SIDE, y: TOP + SIDE + 29, "text-anchor": "end" }, "expected wait →"),
    s("text", { x: LEFT - 5, y: 11 }, "↑ real wait"),
    s("text", { x: LEFT + 6, y: TOP + 16 }, "waited longer"),
    s("text", { x: LEFT + SIDE - 4, y: TOP + SIDE - 6, "text-anchor": "end" }, "came early"));
  for (const wait of points) {
    const colour = stageColour(stages[wait.stage]?.position ?? 0);
    svg.append(s("circle", { class: "dotted", cx: x(wait.predicted_s), cy: y(wait.wait_s), r: 5, stroke: colour,
      fill: wait.censored ? "none" : colour, "fill-opacity": 0.55 },
    s("title", {}, `${wait.stage} (${asked(wait.geometry)}): expected ${span(wait.predicted_s)}, waited ${span(wait.wait_s)}` +
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
