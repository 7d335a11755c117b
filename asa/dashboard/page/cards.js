// The parts of the page that are words, numbers and bars.

import { byId, h, show } from "./dom.js";
import { kind, sign, stageColour } from "./palette.js";
import { counted, hours, percent, soon, span } from "./words.js";

const ROWS_MOST = 300;

export const stateWords = (state) => h("span", { class: kind(state) }, `${sign(state)} ${state.replaceAll("_", " ")}`);

// `numbers`, `wide` and `spare` are columns: to the right, of any width, and left out on small screens.
export function table(head, rows, numbers = [], wide = [], spare = []) {
  const cell = (name) => (text, place) => h(name, {
    class: [numbers.includes(place) && "num", wide.includes(place) && "wrap", spare.includes(place) && "spare"].filter(Boolean)
      .join(" ") || null, scope: name === "th" ? "col" : null,
  }, text);
  const body = rows.slice(0, ROWS_MOST).map(({ cells, chosen }) => h("tr", { class: chosen ? "chosen" : null },
    cells.map(cell("td"))));
  const more = rows.length - ROWS_MOST;
  return [h("table", {}, h("thead", {}, h("tr", {}, head.map(cell("th")))), h("tbody", {}, body)),
    more > 0 ? h("p", { class: "muted" }, `${counted(more, "more row")} not shown.`) : null].filter(Boolean);
}

const ordered = (tables) => Object.entries(tables.stages).sort((a, b) => a[1].position - b[1].position);

// A duration [s] that does not change faster than one reads: with one decimal below 10 s, else in whole seconds.
const steady = (seconds) => span(seconds === null ? null : seconds < 10 ? Math.round(10 * seconds) / 10 : seconds);

export function drawFigures(tables, view) {
  const run = tables.run;
  const stages = Object.values(tables.stages);
  const done = stages.reduce((sum, stage) => sum + stage.done, 0);
  const all = stages.reduce((sum, stage) => sum + (stage.tasks ?? 0), 0);
  const makespan = run.ended === null ? view.now - run.started : run.makespan_s;
  const share = run.core_hours_charged > 0 ? `, ${percent(run.core_hours_used / run.core_hours_charged)} used` : "";
  const failed = run.failed_attempts ? `, ${counted(run.failed_attempts, "failed attempt")}` : "";
  const figures = [
    [steady(Math.max(0, makespan)), run.ended === null ? "since the start" : "from start to end"],
    [`${done.toLocaleString("en")} / ${all.toLocaleString("en")}`, `tasks done${failed}`],
    run.expected === null ? null : [steady(Math.max(0, run.expected - view.now)),
      view.live ? `until the end, expected at ${soon(run.expected)}` : "until the end, as expected then"],
    [hours(run.core_hours_charged), `core-hours charged${share}`],
    [steady(run.total_perceived_wait_s), "waited while nothing ran"],
  ].filter(Boolean);
  show(byId("figures"), JSON.stringify(figures), () => figures.map(([value, name]) => h("div", {}, h("b", {}, value),
    h("span", {}, name))));
}

// What runs, in words that lead to the tasks.
export function drawRunning(tables, tasks) {
  const counts = new Map(); // what an allocation has no room for yet waits in it
  for (const [place] of Object.values(tables.underway).flat()) counts.set(place, (counts.get(place) ?? 0) + 1);
  const busy = ordered(tables).filter(([, stage]) => counts.has(stage.position));
  const jobs = Object.values(tables.jobs).filter((job) => job.ended === null && job.runs.length);
  const cores = jobs.reduce((sum, job) => sum + job.busy, 0), held = jobs.reduce((sum, job) => sum + job.cores, 0);
  const lines = busy.slice(0, ROWS_MOST).map(([name, stage]) => [name, counted(counts.get(stage.position), "task"),
    stage.done, stage.tasks]);
  show(byId("running"), JSON.stringify([lines, cores, held, tables.run.run]), () => lines.length ? [
    h("p", {}, `${cores} of ${counted(held, "core")} busy in ${counted(jobs.length, "job")}.`),
    h("ul", {}, lines.map(([name, count, done, all]) => h("li", {}, h("span", { class: "busy" }, `${sign("running")} `),
      h("a", { href: tasks({ state: "running", stage: name }) }, `${count} of ${name}`),
      ` (${done.toLocaleString("en")} of ${all?.toLocaleString("en") ?? "?"} done)`))),
  ] : h("p", { class: "muted" }, jobs.length ? `No task runs; ${counted(held, "core")} held.` : "Nothing runs."));
}

export function drawWhy(tables, chosen) {
  const open = ordered(tables).filter(([name, stage]) => name === chosen || !["done", "running"].includes(stage.state));
  const lines = open.slice(0, ROWS_MOST).map(([name, stage]) => [name, stage.state, tables.why[name] ?? stage.state]);
  const quote = tables.run.quote;
  show(byId("why"), JSON.stringify([quote, lines]), () => [
    quote ? h("p", {}, h("b", {}, "Quote: "), quote) : "",
    lines.length ? h("ul", {}, lines.map(([name, state, words]) => h("li", { "data-stage": name },
      h("span", { class: kind(state) }, `${sign(state)} `), h("b", {}, name), `: ${words}`))) :
      h("p", { class: "muted" }, "Every stage runs or is done."),
  ]);
}

// The stage that was chosen in the workflow: how it stands, and why.
export function drawStage(tables, chosen, tasks) {
  const stage = tables.stages[chosen];
  show(byId("stage"), JSON.stringify([chosen, stage, tables.why[chosen], tables.run.run]), () => !stage ?
    h("p", { class: "muted" }, "Choose a stage to see why it does not run, its tasks and its jobs.") : [
      h("p", {}, h("b", {}, chosen), ": ", stateWords(stage.state), `. ${tables.why[chosen] ?? ""}`),
      h("p", {}, `${stage.done} of ${stage.tasks === null ? "? tasks" : counted(stage.tasks, "task")} done, `,
        `${counted(stage.task_cores, "core")} each; `, h("a", { href: tasks({ stage: chosen }) }, "its tasks and their output"),
        stage.state === "failed" || stage.state === "partial" ? [", ", h("a", { href: tasks({ stage: chosen, state: "failed" }) },
          "those that failed")] : ""),
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
    ["One job (Big Job)", [[run.big_job_core_hours, "b-other", "would be charged so far"]], run.big_job_core_hours],
    ["Job per stage (Per-Stage)", [[run.per_stage_core_hours, "b-other", "would be charged so far"]], run.per_stage_core_hours],
  ];
  const most = Math.max(1e-9, ...bars.map(([, , total]) => total));
  const saved = run.big_job_core_hours - run.core_hours_charged;
  const strategy = tables.why[""];
  show(byId("hours"), JSON.stringify([bars, strategy]), () => [h("p", {}, `${hours(Math.abs(saved))} core-hours ` +
    `${saved >= 0 ? "saved against" : "more than"} one job that is large enough for every stage${run.ended === null ? ", so far" : ""}.`),
  h("dl", {}, bars.map(([name, parts, total]) => [
    h("dt", {}, name), h("dd", {}, h("div", { class: "bar" }, parts.map(([amount, look, words]) => h("i", {
      class: look, title: `${words}: ${hours(amount)} core-hours`, vars: { "--part": `${(100 * amount) / most}%` } })))),
    h("dd", { class: "num" }, hours(total))])),
  h("p", { class: "legend" }, [["b-used", "used"], ["b-early", "idle, came early"], ["b-spare", "idle otherwise"],
    ["b-other", "would be charged"]].map(([look, words]) => h("span", { class: "bar-key" }, h("i", { class: look }), words))),
  h("p", { class: "muted" }, "Big Job: the largest stage's cores for all run times so far. Per-Stage: each stage's own " +
    "cores. Tasks count as used once they have ended."),
  strategy ? h("p", {}, h("b", {}, "When jobs are asked for: "), strategy) : null]);
}

export function drawStages(tables, chosen, zero) {
  const stages = ordered(tables);
  const since = (time) => (time === null ? "–" : span(Math.max(0, time - zero)));
  show(byId("stages"), JSON.stringify([stages, chosen]), () => table(
    ["Stage", "State", "Cores", "Tasks", "Ready", "Started", "Ended", "Ran", "Wait expected", "in the queue", "until it ran",
      "Error"],
    stages.map(([name, stage]) => ({ chosen: name === chosen, cells: [
      [h("i", { class: "dot", vars: { "--colour": stageColour(stage.position) } }), name], stateWords(stage.state),
      stage.cores, `${stage.done} / ${stage.tasks ?? "?"}`, since(stage.ready), since(stage.started), since(stage.ended),
      span(stage.run_time_s), span(stage.predicted_wait_s), span(stage.wait_s), span(stage.perceived_wait_s), stage.error,
    ] })), [2, 3, 4, 5, 6, 7, 8, 9, 10], [11]));
}
