// The page: who looks, what is looked at, and when everything is drawn.

import { drawActions } from "./actions.js";
import { drawBeliefs } from "./beliefs.js";
import { drawFigures, drawHours, drawPool, drawRunning, drawStage, drawStages, drawWhy } from "./cards.js";
import { drawContainers } from "./containers.js";
import { byId, h, show } from "./dom.js";
import { Feed } from "./feed.js";
import { Gantt } from "./gantt.js";
import { Graph } from "./graph.js";
import { address, drawList } from "./list.js";
import { Output } from "./output.js";
import { kind, sign } from "./palette.js";
import { drawQueue } from "./queue.js";
import { ask, enter, known, path } from "./session.js";
import { Tasks, where } from "./tasks.js";
import { Time } from "./time.js";
import { drawWaits } from "./waits.js";

const SOON_MS = 300; // after what matters more
const ASIDE_MS = 4000, LIST_MS = 5000, SECOND_MS = 1000;
const VIEWS = { now: "Overview", tasks: "Tasks", why: "Why" };

// The server sends no tables without rows.
const EMPTY = { stages: {}, jobs: {}, underway: {}, nodes: {}, waits: {}, why: {}, names: {}, queued: {}, decisions: {},
  beliefs: {}, containers: {} };

const state = { feed: null, view: "now", past: null, lost: "", chosen: null, beliefs: null, containers: null,
  used: new Map() };
const graph = new Graph(choose);
const gantt = new Gantt(choose);
const output = new Output();
const tasks = new Tasks((...which) => output.choose(...which));
const time = new Time(travel);
let drawing = false;

// ------------------------------------------------------ drawing

function redraw() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    draw();
    document.body.dataset.drawn = String(Number(document.body.dataset.drawn ?? 0) + 1);
  });
}

// What is shown: as of now, or as of the time that was chosen.
function view() {
  const { feed, past, chosen } = state;
  const now = past ? past.when : feed.time();
  return { tables: { ...EMPTY, ...(past ? past.tables : feed.tables) }, bars: feed.bars, shown: past ? past.bars : feed.bars.length, now,
    from: feed.from, to: Math.max(feed.to, feed.time()), live: feed.live && !past, past: past !== null,
    tells: feed.tables.run?.tells ?? [], chosen, kind: feed.kind };
}

function draw() {
  if (!state.feed || !Object.keys(state.feed.tables).length) return;
  const seen = view();
  byId("live").hidden = !seen.live;
  time.draw(seen);
  if (seen.kind === "queues" && seen.tables.queue) drawQueue(seen);
  if (seen.kind === "runs" && seen.tables.run) drawRun(seen);
}

function drawRun(seen) {
  const { tables } = seen;
  const { run } = tables;
  document.title = `${sign(run.state)} ${run.run}`;
  byId("state").textContent = `${sign(run.state)} ${run.state}${run.held ? ", held" : ""}`;
  byId("state").className = `badge ${kind(run.state)}`;
  byId("about").textContent = [run.workflow, [run.site, run.partition].filter(Boolean).join(" "),
    run.resumes ? `resumed ${run.resumes} times` : ""].filter(Boolean).join(" · ");
  trouble([run.trouble && `the batch system does not answer: ${run.trouble}`, run.message].filter(Boolean).join("\n"));
  drawActions(state.feed.tables.run);
  DRAW[state.view](seen, tables);
}

const DRAW = {
  now(seen, tables) {
    const to = (wanted) => where(state.feed.name, wanted);
    drawFigures(tables, seen);
    drawRunning(tables, to);
    drawWhy(tables, state.chosen);
    if (!state.feed.begun) { // words are seen before pictures, which take longer
      state.feed.begun = true;
      return setTimeout(redraw);
    }
    gantt.draw(seen);
    graph.draw(tables.stages, state.chosen);
    drawStage(tables, state.chosen, to);
    drawPool(seen);
    drawContainers(seen, state.containers);
  },
  tasks(seen) {
    tasks.draw(seen);
    output.draw(seen);
  },
  why(seen, tables) {
    drawHours(tables);
    drawWaits(tables);
    drawBeliefs(seen, state.beliefs);
    drawStages(tables, state.chosen, seen.from);
  },
};

function trouble(words) {
  const shown = [state.feed?.trouble, state.lost, words].filter(Boolean).join("\n");
  byId("trouble").textContent = shown;
  byId("trouble").hidden = !shown;
}

function choose(name) {
  state.chosen = name === state.chosen ? null : name;
  redraw();
}

// ------------------------------------------------------ time

let wanted, asking = false;

// One question at a time; of those asked meanwhile, the last.
async function travel(when) {
  wanted = when;
  if (when === null) {
    Object.assign(state, { past: null, lost: "" });
    return redraw();
  }
  if (asking) return;
  asking = true;
  try {
    while (wanted !== null && wanted !== state.past?.when) {
      const [asked, feed] = [wanted, state.feed];
      const found = await feed.at(asked);
      if (feed !== state.feed || wanted === null) break;
      Object.assign(state, { past: { when: asked, ...found }, lost: "" });
      redraw();
    }
  } catch (error) {
    if (error.name === "AbortError") return;
    state.lost = `the page as it was then cannot be shown: ${error.message}`;
    redraw();
  } finally {
    asking = false;
  }
}

// ------------------------------------------------------ what is looked at

// The address says what is shown: #/ all runs, #/runs/NAME, #/runs/NAME/VIEW?WHICH, #/queues/NAME.
function route() {
  if (!known()) return shut();
  const [place, which] = location.hash.slice(1).split(/\?(.*)/s);
  const [, of, name, view] = place.split("/").map(decodeURIComponent);
  byId("door").hidden = true;
  byId("main").hidden = false;
  byId("home").hidden = false;
  if (!of || !name) return lookAtList();
  state.view = of === "runs" && view in VIEWS ? view : "now";
  sections(of, state.view);
  if (state.feed?.kind !== of || state.feed.name !== name) look(of, name);
  show(byId("views"), JSON.stringify([of, name, state.view]), () => Object.entries(VIEWS).map(([each, words]) => h("a", {
    href: address("runs", name, each), "aria-current": each === state.view && "page" }, words)));
  byId("views").hidden = of !== "runs";
  byId("time").hidden = false;
  tasks.open(state.view === "tasks" ? name : null, new URLSearchParams(which));
  redraw();
}

function sections(of, view) {
  for (const card of document.querySelectorAll("[data-page]"))
    card.hidden = card.dataset.page !== of || Boolean(card.dataset.view && card.dataset.view !== view) ||
      (card.id === "one" && card.hidden); // that is shown once it is there
}

function lookAtList() {
  leave();
  byId("name").textContent = document.title = "ASA";
  sections("list");
  for (const id of ["views", "time", "home"]) byId(id).hidden = true;
  list();
}

function leave() {
  state.feed?.close();
  Object.assign(state, { feed: null, past: null, lost: "", chosen: null, beliefs: null, containers: null });
  time.stop();
  time.when = null;
  gantt.reset();
  tasks.open(null);
  for (const id of ["state", "about"]) byId(id).textContent = "";
  byId("live").hidden = true;
  drawActions(null);
  trouble("");
}

function look(of, name) {
  leave();
  byId("name").textContent = document.title = name;
  const feed = new Feed(of, name, {
    changed: (tables) => {
      if (tables.has("waits")) setTimeout(aside, SOON_MS, "beliefs");
      redraw();
    },
    troubled: (words) => {
      state.feed.trouble = words;
      trouble("");
      redraw();
    },
    refused: shut,
  });
  state.feed = feed;
  output.open(of === "runs" ? name : null);
}

// What is asked for beside the log: what is not in it, and of beliefs those of the whole queue.
async function aside(what) {
  const { feed } = state;
  if (feed?.kind !== "runs") return;
  try {
    const { rows, at } = await (await ask(path("runs", feed.name, what))).json();
    if (feed !== state.feed) return;
    state[what] = what === "containers" ? withUse(rows, at) : rows;
    redraw();
  } catch {
    // the stream says that nothing answers
  }
}

// Cores in use, from the CPU times of two looks.
function withUse(rows, at) {
  if (rows === null) return null;
  const before = state.used;
  state.used = new Map(rows.map((row) => [row.container, { at, cpu: row.cpu_s }]));
  return rows.map((row) => {
    const last = before.get(row.container);
    const known = last && row.cpu_s !== null && last.cpu !== null && at > last.at;
    return { ...row, used: known ? Math.max(0, row.cpu_s - last.cpu) / (at - last.at) : null,
      throttled_share: row.periods ? row.throttled / row.periods : null };
  });
}

async function list() {
  if (!known() || state.feed || document.hidden) return;
  try {
    const { rows } = await (await ask("/api/list")).json();
    if (!state.feed) drawList(rows);
    trouble("");
  } catch (error) {
    if (!known()) return shut(error.message);
    trouble(`the dashboard does not answer (${error.message}); trying again`);
  }
}

// ------------------------------------------------------ who looks

function shut(words) {
  leave();
  for (const id of ["main", "time", "views", "home"]) byId(id).hidden = true;
  byId("door").hidden = false;
  byId("said").textContent = words ?? "";
  byId("code").focus();
}

async function come(code) {
  try {
    const { kind: of, name } = await enter(code);
    history.replaceState(null, "", name ? address(of, name) : "#/");
    route();
  } catch (error) {
    shut(error.message);
  }
}

function begin() {
  const mark = location.hash.slice(1);
  if (mark.startsWith("/")) return route();
  history.replaceState(null, "", "/"); // the code is not to stay in sight
  if (mark) come(mark);
  else route();
}

// ------------------------------------------------------ hands

const KEYS = {
  " ": () => time.play(), l: () => time.go(null), End: () => time.go(null), "<": () => time.step(-1), ",": () => time.step(-1),
  ">": () => time.step(1), ".": () => time.step(1), "+": () => gantt.zoomBy(1.6), "=": () => gantt.zoomBy(1.6),
  "-": () => gantt.zoomBy(1 / 1.6), 0: () => gantt.showAll(), "?": () => byId("keys").showModal(),
  Escape: () => choose(state.chosen), "/": () => {
    if (state.feed.kind !== "runs") return;
    location.hash = address("runs", state.feed.name, "tasks");
    setTimeout(() => byId("text").focus(), SOON_MS);
  },
};

addEventListener("keydown", (event) => {
  const busy = ["INPUT", "SELECT"].includes(event.target.tagName) && event.target.type !== "range";
  if (!state.feed || busy || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (["BUTTON", "A"].includes(event.target.tagName) && [" ", "Enter"].includes(event.key)) return;
  const act = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (!act) return;
  event.preventDefault();
  act();
});
byId("help").addEventListener("click", () => byId("keys").showModal());
byId("close").addEventListener("click", () => byId("keys").close());
byId("door").addEventListener("submit", (event) => {
  event.preventDefault();
  const words = byId("code").value.trim();
  byId("code").value = "";
  come(words.slice(words.lastIndexOf("#") + 1));
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
addEventListener("hashchange", begin);
setInterval(() => {
  if (state.feed?.live && !state.past) redraw();
}, SECOND_MS);
setInterval(() => {
  if (state.feed?.live && !state.past && !document.hidden && !state.feed.tables.run?.tells.includes("containers"))
    aside("containers");
}, ASIDE_MS);
setInterval(list, LIST_MS);
begin();
