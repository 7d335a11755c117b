// A queue of jobs that share cores: where each job ran, and every decision with the happiness that it was made with.

import { stateWords, table } from "./cards.js";
import { byId, h, show } from "./dom.js";
import { percent, span } from "./words.js";

const WORDS = { Start: "starts alone", StartGuest: "becomes a guest of", SetShare: "gets another share", Evict: "is evicted",
  Keep: "keeps its cores" };

// What a guest has of its host's cores.
const given = (share) => (share ? percent(share) : "stopped");
const decided = (row) => (row.decision === "SetShare" && row.share === 0 ? "is stopped" : WORDS[row.decision] ?? row.decision);

export function drawQueue(view) {
  const { tables } = view;
  const counts = Object.entries(tables.queue).map(([name, count]) => [String(count), `jobs ${name}`]);
  show(byId("figures"), JSON.stringify(counts), () => counts.map(([value, name]) => h("div", {}, h("b", {}, value),
    h("span", {}, name))));
  drawJobs(view);
  drawDecisions(tables);
}

function drawJobs(view) {
  const jobs = Object.entries(view.tables.queued);
  const whole = Math.max(1e-9, view.to - view.from);
  const now = (job) => (job.state === "running" ? job.stays.at(-1) : undefined);
  const guests = (host) => jobs.filter(([, job]) => now(job)?.host === host)
    .map(([name, job]) => `${name} (${given(now(job).share)})`).join(", ");
  show(byId("queue"), JSON.stringify([jobs, view.now, whole]), () => table(
    ["Job", "State", "Where it ran: alone, or striped as a guest", "Cores", "Share", "Its guests", "Bound", "Nodes", "Slowdown",
      "Loss", "Problem"],
    jobs.map(([name, job]) => {
      const last = now(job);
      const share = !last ? "–" : last.host === null ? "its own" :
        `${given(last.share)} ${last.share ? "of" : "on"} ${last.host}`;
      const loss = Object.entries(job.loss ?? {}).filter(([, value]) => value !== null)
        .map(([form, value]) => `${form} ${value.toFixed(2)}`).join(", ");
      return { cells: [name, stateWords(job.state), lane(job, view, whole), job.cores ?? "–", share, guests(name) || "–",
        job.bound === null ? "–" : percent(job.bound), job.nodes.join(", "),
        job.slowdown === null || job.slowdown === undefined ? "–" : job.slowdown.toFixed(2), loss || "–",
        job.problem ?? ""] };
    }), [3, 6, 8], [5, 10]));
}

function lane(job, view, whole) {
  return h("div", { class: "lane" }, job.stays.map((stay) => h("i", {
    class: stay.host === null ? null : "guest",
    title: stay.host === null ? "on cores of its own" : `guest of ${stay.host}, ${given(stay.share)}`,
    vars: { "--from": `${(100 * (stay.since - view.from)) / whole}%`,
      "--part": `${(100 * ((stay.until ?? view.now) - stay.since)) / whole}%` },
  })));
}

function drawDecisions(tables) {
  const rows = Object.entries(tables.decisions).sort((a, b) => Number(b[0]) - Number(a[0])).map(([, row]) => row);
  show(byId("decisions"), JSON.stringify(rows.length ? [rows.length, rows[0]] : []), () => rows.length ? table(
    ["At", "Job", "Decision", "Share", "Happiness of the host", "Why"],
    rows.map((row) => ({ cells: [span(row.at), row.job ?? row.host ?? "", `${decided(row)} ${
      row.decision === "StartGuest" ? row.host : ""}`, row.share === null ? "–" : `${percent(row.share)}${
      row.hard ? " (quota)" : ""}`, happiness(row), why(row.why)] })), [0, 3], [5]) :
    h("p", { class: "muted" }, "No decision yet."));
}

function happiness(row) {
  if (!row.measured) return "–";
  if (row.happiness === null) return h("span", { class: "good" }, "✓ no work is left");
  const fine = row.happiness >= 1;
  return h("span", { class: fine ? "good" : "bad" }, `${fine ? "✓" : "✕"} ${row.happiness.toFixed(2)}`);
}

// What was seen of the host and what was done, in a line; how that came about (votes, weights ...) below it.
function why(record) {
  const parts = Object.entries(record);
  if (!parts.length) return "–";
  const short = parts.filter(([, value]) => typeof value === "number" || !Object.values(value ?? {}).some(Array.isArray));
  const line = short.filter(([name]) => !["weights"].includes(name) && !Array.isArray(record[name]))
    .map(([name, value]) => (name === "state" ? words(value) : `${name} ${words(value)}`)).join("; ");
  return h("details", {}, h("summary", {}, line || "how"), h("pre", {}, parts.flatMap(([name, value]) => lines(name, value))
    .join("\n")));
}

const words = (value) => (typeof value === "number" ? String(Number(value.toPrecision(3))) :
  typeof value === "boolean" ? (value ? "yes" : "no") : Array.isArray(value) ? value.map(words).join("  ") :
    value === null ? "unlimited" : typeof value === "object" ?
      Object.entries(value).map(([name, part]) => `${name} ${words(part)}`).join(", ") : String(value));

const lines = (name, value) => (value && !Array.isArray(value) && Object.values(value).some(Array.isArray) ?
  [`${name}:`, ...Object.entries(value).map(([each, part]) => `  ${each.padEnd(12)}${words(part)}`)] :
  [`${name}: ${words(value)}`]);
