// What the estimator believes of queue waits at the time that is shown: a distribution for each geometry.

import { byId, h, s, show } from "./dom.js";
import { place, TICKS } from "./waits.js";
import { asked, counted, span } from "./words.js";

const WIDE = 420, TALL = 54, MOST = 12;

const HOW = "How likely each wait is thought to be, by site, partition, cores and class of wall time. The line is what a " +
  "job would be planned with.";
const TOLD = "As it planned at the time shown, from all runs until then.";
const REPLAYED = "This run's log does not tell what other runs had taught: replayed from its own waits alone.";
const STORED = "This run's log does not tell: as learned from all runs by now. Earlier times are replayed from its own waits.";
const NOT_YET = "This run has asked for no job yet: as learned from all runs by now.";
const NOT_ASKED = "By then the run had asked for no job.";
const NOT_TAUGHT = "By then nothing had been learned from jobs of this run.";
const NOTHING = "Nothing has been learned about this queue yet.";

// `stored` is what estimators have learned of the whole queue by now; null while that is not known.
export function drawBeliefs({ tables, past, live, tells: told }, stored) {
  const tells = told.includes("beliefs");
  const rows = Object.values(tables.beliefs).filter((row) => row.replayed !== tells)
    .sort((a, b) => a.geometry.localeCompare(b.geometry, "en", { numeric: true }));
  const known = new Set(rows.map((row) => row.geometry));
  const others = past ? [] : (stored ?? []).filter((row) => !known.has(row.geometry));
  byId("t-beliefs").textContent = past ? "What waits were expected then" :
    tells && !live ? "What waits were expected at the end" : "What waits are expected now";
  show(byId("beliefs"), JSON.stringify([past, live, tells, rows, others]), () => [
    h("p", { class: "muted" }, `${HOW} ${tells ? TOLD : past ? REPLAYED : live ? NOT_YET : STORED}`),
    ...rows.slice(0, MOST).map(belief),
    rows.length || others.length ? null : h("p", { class: "muted" }, past ? tells ? NOT_ASKED : NOT_TAUGHT : NOTHING),
    rows.length && others.length ? h("h3", {}, "Other jobs in this queue, as learned by now") : null,
    ...sorted(others, tables).slice(0, Math.max(0, MOST - rows.length)).map(belief),
  ]);
}

// Geometries of which the run has had a job come first.
function sorted(rows, tables) {
  const mine = new Set(Object.values(tables.waits).map((wait) => wait.geometry));
  return [...rows].sort((a, b) => mine.has(b.geometry) - mine.has(a.geometry));
}

function belief(row) {
  const how = `from ${counted(row.jobs, "job")}; the last waited ${span(row.last_wait_s)}`;
  return h("div", { class: "belief", "data-geometry": row.geometry }, h("div", {}, `${asked(row.geometry)}: `,
    h("b", {}, span(row.predicted_s)), " ", h("span", { class: "muted", title: `estimator ${row.estimator}` }, how)), row.weights.length ? bars(row) : null);
}

function bars(row) {
  const most = place(86400 * 7);
  const x = (wait) => (WIDE * place(wait)) / most;
  const high = Math.max(...row.weights.map(([, weight]) => weight));
  const svg = s("svg", { class: "plot", width: WIDE, height: TALL + 16, viewBox: `0 0 ${WIDE} ${TALL + 16}`, role: "img", "aria-label": `How long ${asked(row.geometry)} may wait` });
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
