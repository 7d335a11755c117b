// The parts of the page that are words, numbers and bars.

import { byId, h, show } from "./dom.js";
import { kind, sign, stageColour } from "./palette.js";
import { counted, hours, percent, span } from "./words.js";

const ROWS_MOST = 300;

export const stateWords = (state) => h("span", { class: kind(state) }, `${sign(state)} ${state.replaceAll("_", " ")}`);

export function table(head, rows, numbers = [], wide = []) {
  const cell = (name) => (text, place) => h(name, {
    class: numbers.includes(place) ? "num" : wide.includes(place) ? "wrap" : null, scope: name === "th" ? "col" : null,
  }, text);
  const body = rows.slice(0, ROWS_MOST).map(({ cells, chosen }) => h("tr", { class: chosen ? "chosen" : null },
    cells.map(cell("td"))));
  const more = rows.length - ROWS_MOST;
  return [h("table", {}, h("thead", {}, h("tr", {}, head.map(cell("th")))), h("tbody", {}, body)),
    more > 0 ? h("p", { class: "muted" }, `${counted(more, "more row")} not shown.`) : null].filter(Boolean);
}

export function drawFigures(tables, view) {
  const run = tables.run;
  const stages = Object.values(tables.stages);
  const done = stages.reduce((sum, stage) => sum + stage.done, 0);
  const all = stages.reduce((sum, stage) => sum + (stage.tasks ?? 0), 0);
  const makespan = run.ended === null ? view.now - run.started : run.makespan_s;
  const share = run.core_hours_charged > 0 ? ` (${percent(run.core_hours_used / run.core_hours_charged)})` : "";
  const saved = run.big_job_core_hours - run.core_hours_charged;
  const figures = [
    [span(Math.round(Math.max(0, makespan))), run.ended === null ? "since the start" : "makespan"],
    [`${done.toLocaleString("en")} / ${all.toLocaleString("en")}`, `tasks done, ${run.failed_attempts} failed runs`],
    [span(run.total_perceived_wait_s), "total perceived wait"],
    [hours(run.core_hours_charged), "core-hours charged"],
    [hours(run.core_hours_used), `core-hours used${share}`],
    [hours(run.overhead_core_hours), "core-hours idle, came early"],
    [hours(Math.abs(saved)), saved >= 0 ? "core-hours saved against Big Job" :
      `core-hours more than Big Job${run.ended === null ? " so far" : ""}`],
  ];
  show(byId("figures"), JSON.stringify(figures), () => figures.map(([value, name]) => h("div", {}, h("b", {}, value),
    h("span", {}, name))));
}

export function drawWhy(tables, chosen) {
  const stages = Object.entries(tables.stages).sort((a, b) => a[1].position - b[1].position);
  const open = stages.filter(([name, stage]) => name === chosen || !["done", "running"].includes(stage.state));
  const strategy = tables.why[""];
  const lines = open.slice(0, ROWS_MOST).map(([name, stage]) => [name, stage.state, tables.why[name] ?? stage.state]);
  const quote = tables.run.quote;
  show(byId("why"), JSON.stringify([quote, strategy, lines]), () => [
    quote ? h("p", {}, h("b", {}, "Quote: "), quote) : null,
    strategy ? h("p", {}, h("b", {}, "Strategy: "), strategy) : null,
    lines.length ? h("ul", {}, lines.map(([name, state, words]) => h("li", { "data-stage": name },
      h("span", { class: kind(state) }, `${sign(state)} `), h("b", {}, name), `: ${words}`))) :
      h("p", { class: "muted" }, "Every stage runs or is done."),
  ]);
}

export function drawPool(view) {
  const { tables, now } = view;
  const jobs = Object.entries(tables.jobs).filter(([, job]) => job.ended === null)
    .sort((a, b) => a[1].submitted - b[1].submitted);
  const key = JSON.stringify([jobs, Math.floor(now), tables.nodes]);
  show(byId("pool"), key, () => jobs.length ? allocations(jobs, tables, now) :
    h("p", { class: "muted" }, "The run holds no allocation, and waits for none."));
}

function allocations(jobs, tables, now) {
  const joined = new Map(jobs.map(([token]) => [token, []]));
  for (const node of Object.values(tables.nodes)) joined.get(node.job)?.push(node);
  return table(["Job", "For", "State", "Cores busy", "Nodes", "Wall time left"], jobs.map(([token, job]) => {
    const left = job.ends === null ? null : Math.max(0, job.ends - now);
    const waits = job.runs.length === 0;
    const predicted = job.predicted === null ? "" : job.predicted > now ?
      `, expected in ${span(Math.ceil(job.predicted - now))}` : `, expected ${span(Math.ceil(now - job.predicted))} ago`;
    const nodes = joined.get(token).map((node) => `${node.node} (${node.cores})`);
    const state = job.leaving ? "ends" : job.state;
    return { cells: [
      job.id ?? token.slice(-8), job.lender ? `lent by ${job.lender}` : job.for.join(", "),
      [stateWords(state), waits ? ` ${span(now - job.submitted)}${predicted}` : ""],
      waits ? counted(job.cores, "core") : meter(job.busy / job.cores, "b-cpu", `${job.busy} of ${job.cores}`),
      listed(nodes.length ? nodes : job.nodes),
      left === null ? `${span(job.walltime_s)} asked` :
        meter(left / job.walltime_s, left / job.walltime_s < 0.15 ? "b-short" : "b-left", span(Math.round(left))),
    ] };
  }), [], [1, 2, 4]);
}

const listed = (names) => h("span", { title: names.join(", ") }, names.length > 3 ?
  `${names.slice(0, 2).join(", ")} and ${names.length - 2} more` : names.join(", ") || "–");

export function meter(share, name, words) {
  const part = `${Math.round(100 * Math.min(1, Math.max(0, share)))}%`;
  return h("div", { title: words }, h("div", { class: "bar" }, h("i", { class: name, vars: { "--part": part } })), words);
}

export function drawHours(tables) {
  const run = tables.run;
  const early = run.overhead_core_hours;
  const spare = Math.max(0, run.core_hours_wasted - early);
  const own = Math.max(0, run.core_hours_used - run.core_hours_borrowed);
  const bars = [
    ["This run", [[own, "b-used", "used"], [early, "b-early", "idle, came early"], [spare, "b-spare", "idle otherwise"]],
      run.core_hours_charged],
    ["Big Job", [[run.big_job_core_hours, "b-other", "would be charged so far"]], run.big_job_core_hours],
    ["Per-Stage", [[run.per_stage_core_hours, "b-other", "would be charged so far"]], run.per_stage_core_hours],
  ];
  const most = Math.max(1e-9, ...bars.map(([, , total]) => total));
  show(byId("hours"), JSON.stringify(bars), () => [h("dl", {}, bars.map(([name, parts, total]) => [
    h("dt", {}, name), h("dd", {}, h("div", { class: "bar" }, parts.map(([amount, look, words]) => h("i", {
      class: look, title: `${words}: ${hours(amount)} core-hours`, vars: { "--part": `${(100 * amount) / most}%` } })))),
    h("dd", { class: "num" }, hours(total))])),
  h("p", { class: "legend" }, [["b-used", "used"], ["b-early", "idle, came early"], ["b-spare", "idle otherwise"],
    ["b-other", "would be charged"]].map(([look, words]) => h("span", { class: "bar-key" }, h("i", { class: look }), words))),
  h("p", { class: "muted" }, "Big Job: the largest stage's cores for all run times so far. Per-Stage: each stage's own " +
    "cores. Tasks count as used once they have ended.")]);
}

export function drawStages(tables, chosen, zero) {
  const stages = Object.entries(tables.stages).sort((a, b) => a[1].position - b[1].position);
  const since = (time) => (time === null ? "–" : span(Math.max(0, time - zero)));
  show(byId("stages"), JSON.stringify([stages, chosen]), () => table(
    ["Stage", "State", "Cores", "Tasks", "Ready", "Started", "Ended", "Ran", "Wait predicted", "in the queue", "perceived",
      "Error"],
    stages.map(([name, stage]) => ({ chosen: name === chosen, cells: [
      [h("i", { class: "dot", vars: { "--colour": stageColour(stage.position) } }), name], stateWords(stage.state),
      stage.cores, `${stage.done} / ${stage.tasks ?? "?"}`, since(stage.ready), since(stage.started), since(stage.ended),
      span(stage.run_time_s), span(stage.predicted_wait_s), span(stage.wait_s), span(stage.perceived_wait_s), stage.error,
    ] })), [2, 3, 4, 5, 6, 7, 8, 9, 10], [11]));
}
