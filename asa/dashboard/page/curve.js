// What an attempt of a task took as time went on: memory and cores, as areas with their most and mean in words.

import { h, s } from "./dom.js";
import { bytes, span } from "./words.js";

const WIDE = 600, TALL = 60;

const cores = (amount) => `${Number(amount.toPrecision(2))}${amount === 1 ? " core" : " cores"}`;

// `curve` as the server sends it: see `curves` in asa/dashboard/tasks.py. `several` says that there are other attempts.
export function drawCurve({ attempt, points, memory, cores: used }, several) {
  const whose = several ? ` of attempt ${attempt}` : "";
  const shown = [["Memory", 2, memory, bytes], ["Processor", 3, used, cores]];
  return h("div", { class: "curves" }, shown.map(([name, place, [most, mean], words]) =>
    plot(`${name}${whose}`, points, place, most, `${words(most)} at most, mean ${words(mean)}`)));
}

function plot(name, points, place, most, words) {
  const length = points.at(-1)[0] || 1;
  const steps = points.map(([end, long, ...rest]) => {
    const [from, to] = [end - long, end].map((time) => ((WIDE * Math.max(0, time)) / length).toFixed(1));
    const y = (TALL * (1 - rest[place - 2] / (most || 1))).toFixed(1);
    return `L${from} ${y}H${to}`;
  }).join("");
  return h("figure", {}, h("figcaption", {}, h("b", {}, name), ` ${words}`),
    s("svg", { viewBox: `0 0 ${WIDE} ${TALL}`, preserveAspectRatio: "none", role: "img", "aria-label": `${name} over ${span(length)}: ${words}` },
      s("path", { class: "area", d: `M0 ${TALL}${steps}V${TALL}Z` }), s("path", { class: "line", d: `M${steps.slice(1)}` })),
    h("div", { class: "ends", "aria-hidden": "true" }, h("span", {}, "0"), h("span", {}, span(length))));
}
