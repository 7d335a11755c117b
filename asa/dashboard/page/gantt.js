// The chart of stages, jobs and tasks on a canvas that shows a part of a longer picture.

import { byId, h, style } from "./dom.js";
import { kind, sign, stageColour } from "./palette.js";
import { Bars, CORES, END, INDEX, layOut, NODE, OUTCOME, poolSize, STAGE, START } from "./rows.js";
import { about } from "./tips.js";
import { counted, cut, span, step, tick } from "./words.js";

let LABELS = 190; // as wide as there is room for
const LABELS_MOST = 190, AXIS = 22, RIGHT = 14, POOL = 76, MOST_TALL = 600, ZOOM_MOST = 5000;
const LEGEND = [["l-wait", "waits"], ["l-held", "cores held"], ["l-task", "tasks, in their stage's colour"],
  ["l-fail", "failed"], ["l-early", "held too early"], ["l-mark", "expected start"]];

export class Gantt {
  constructor(choose) {
    this.choose = choose;
    this.place = byId("gantt");
    this.canvas = h("canvas", { "aria-hidden": true });
    this.spacer = h("div", {});
    this.place.append(this.canvas, this.spacer);
    this.bars = new Bars();
    this.zoom = 1;
    this.left = 0; // what is at the left edge, as a share of the whole span
    this.hatches = new Map();
    byId("legend").append(...LEGEND.map(([name, text]) => h("span", {}, h("i", { class: name }), text)));
    this.listen();
  }

  reset() {
    this.bars.clear();
    [this.zoom, this.left] = [1, 0];
  }

  // ---------------------------------------------------- what is shown

  draw(view) {
    this.view = view;
    const { tables } = view;
    this.bars.take(view.bars, tables.names?.jobs ?? [], tables.jobs ?? {});
    const { rows, tall } = layOut(tables, view.chosen);
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    if (dark !== this.dark) this.hatches.clear();
    Object.assign(this, { rows, tall, dark });
    this.paint();
  }

  get span() {
    const { from, to } = this.view;
    const jobs = Object.values(this.view.tables.jobs ?? {});
    const foreseen = this.view.live ? jobs.filter((job) => !job.runs.length && !job.ended).map((job) => job.predicted ?? 0) : [];
    return Math.max(1e-3, 1.01 * (Math.max(to, ...foreseen) - from));
  }

  x(time) { // of a time [s since the run's start]
    return LABELS + (time / this.span - this.left) * this.zoom * this.room;
  }

  time(x) {
    return ((x - LABELS) / this.room / this.zoom + this.left) * this.span;
  }

  paint() {
    if (!this.view) return;
    const width = this.place.clientWidth, ratio = devicePixelRatio || 1;
    const height = Math.min(MOST_TALL, this.tall + POOL + AXIS), foot = height - POOL - AXIS;
    LABELS = Math.round(Math.min(LABELS_MOST, 0.34 * width));
    this.room = Math.max(50, width - LABELS - RIGHT);
    this.left = Math.min(Math.max(0, this.left), 1 - 1 / this.zoom);
    if (this.canvas.width !== Math.round(width * ratio) || this.canvas.height !== Math.round(height * ratio)) {
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(height * ratio);
      this.canvas.style.width = `${width}px`;
      this.canvas.style.height = `${height}px`;
      this.hatches.clear();
    }
    this.spacer.style.height = `${Math.max(0, this.tall - foot)}px`;
    const pen = (this.pen = this.canvas.getContext("2d"));
    this.colours = Object.fromEntries(["card", "ink", "soft", "line", "hold", "bad", "early", "mark", "spare"].map(
      (name) => [name, style(`--${name}`)]));
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.font = "12px system-ui, 'DejaVu Sans', sans-serif";
    pen.textBaseline = "middle";
    this.grid(height);
    pen.save();
    pen.beginPath();
    pen.rect(0, 0, width, foot);
    pen.clip();
    const top = this.place.scrollTop;
    for (const row of this.rows) if (row.y + row.tall >= top && row.y <= top + foot) this.paintRow(row, row.y - top);
    pen.restore();
    this.paintPool(foot + 10, POOL - 12);
    this.nowLine(height);
  }

  grid(height) {
    const { pen, colours } = this;
    const [from, to] = [this.time(LABELS), this.time(LABELS + this.room)];
    const size = step(to - from, this.room / 90);
    pen.textAlign = "center";
    for (let at = Math.ceil(from / size) * size; at <= to; at += size) {
      const x = Math.round(this.x(at)) + 0.5;
      pen.fillStyle = colours.line;
      pen.fillRect(x - 0.5, 0, 1, height - AXIS);
      pen.fillStyle = colours.soft;
      pen.fillText(tick(at), x, height - AXIS / 2);
    }
  }

  nowLine(height) {
    const { pen, view } = this;
    const x = this.x(view.now - view.from);
    if (x < LABELS || x > LABELS + this.room + 1) return;
    pen.fillStyle = this.colours.mark;
    pen.fillRect(Math.round(x), 0, 1, height - AXIS);
  }

  paintRow(row, y) {
    if (row.kind === "head") return this.label(row.name, y, row.tall, true);
    const { pen } = this;
    const stage = row.kind === "stage";
    const text = stage ? row.name : this.jobName(row.name, row.row);
    this.label(`${sign(row.row.state)} ${cut(text, 21)}`, y, Math.min(row.tall, 20), false, kind(row.row.state));
    pen.save();
    pen.beginPath();
    pen.rect(LABELS, y - 2, this.room + RIGHT, row.tall + 4);
    pen.clip();
    if (stage) this.paintStage(row.row, y, row.tall);
    else this.paintJob(row.name, row.row, y, row.tall);
    pen.restore();
  }

  jobName(token, job) {
    const what = job.lender ? `lent by ${job.lender}` : job.for.length === 1 ? job.for[0] : counted(job.for.length, "stage");
    return `${job.id ?? token.slice(-8)} · ${what}`;
  }

  label(text, y, tall, head, tone) {
    const { pen, colours } = this;
    pen.textAlign = "left";
    pen.fillStyle = tone === "bad" ? colours.bad : head ? colours.soft : colours.ink;
    pen.font = `${head ? "600 " : ""}12px system-ui, 'DejaVu Sans', sans-serif`;
    pen.fillText(text, 2, y + tall / 2, LABELS - 8);
  }

  // ---------------------------------------------------- shapes

  rect(start, end, y, tall, fill) { // times [s since the epoch]
    const zero = this.view.from;
    this.box(start - zero, end - zero, y, tall, fill);
  }

  box(start, end, y, tall, fill) { // times [s since the run's start]
    const x1 = Math.max(this.x(start), LABELS - 5), x2 = Math.min(this.x(end), LABELS + this.room + RIGHT + 5);
    if (x2 < LABELS - 5 || x1 > LABELS + this.room + RIGHT + 5) return;
    this.pen.fillStyle = fill;
    this.pen.fillRect(x1, y, Math.max(1, x2 - x1), tall);
  }

  hatch(colour, turned) {
    const key = `${colour}${turned}`;
    if (!this.hatches.has(key)) {
      const tile = h("canvas", { width: 6, height: 6 });
      const pen = tile.getContext("2d");
      pen.strokeStyle = colour;
      pen.lineWidth = 1;
      for (const shift of [-6, 0, 6]) {
        pen.moveTo(shift, turned ? 0 : 6);
        pen.lineTo(shift + 6, turned ? 6 : 0);
      }
      pen.stroke();
      this.hatches.set(key, this.pen.createPattern(tile, "repeat"));
    }
    return this.hatches.get(key);
  }

  paintStage(stage, y, tall) {
    const { now } = this.view;
    const colour = stageColour(stage.position);
    const over = stage.started ?? stage.ended ?? now;
    if (stage.ready !== null && over > stage.ready) this.rect(stage.ready, over, y + 4, tall - 8, this.hatch(this.colours.soft));
    const job = this.view.tables.jobs[stage.job];
    if (stage.started === null && job && job.predicted !== null) this.paintPredicted(job, y, tall, job.runs[0]?.[0] ?? null);
    if (stage.started === null) return;
    const end = stage.ended ?? now;
    this.pen.globalAlpha = 0.35;
    this.rect(stage.started, end, y, tall, colour);
    this.pen.globalAlpha = 1;
    const share = stage.tasks ? stage.done / stage.tasks : 1;
    this.rect(stage.started, stage.started + share * (end - stage.started), y, tall, colour);
  }

  paintJob(name, job, y, tall) {
    const { view, pen, colours } = this;
    const started = job.runs.length ? job.runs[0][0] : null;
    const waited = started ?? job.ended ?? view.now;
    const low = Math.min(tall, 20) / 2;
    this.rect(job.submitted, waited, y + (tall - low) / 2, low, this.hatch(colours.soft));
    for (const [start, end] of job.runs) this.rect(start, end ?? view.now, y, tall, colours.hold);
    const ready = job.for.map((stage) => view.tables.stages[stage]?.ready).filter((time) => time !== null && time !== undefined);
    const needed = job.lender ? -Infinity : ready.length ? Math.min(...ready) : Infinity;
    for (const [start, end] of job.runs)
      if (start < needed) this.rect(start, Math.min(needed, end ?? view.now), y, tall, this.hatch(colours.early, true));
    this.paintTasks(name, job, y, tall);
    if (job.predicted !== null) this.paintPredicted(job, y, tall, started);
    if (kind(job.state) === "bad") {
      pen.fillStyle = colours.bad;
      pen.textAlign = "left";
      const end = (job.ended ?? view.now) - view.from;
      pen.fillText(` ${sign(job.state)} ${job.state.replaceAll("_", " ")}`, this.x(end) + 2, y + tall / 2);
    }
  }

  paintTasks(name, job, y, tall) {
    const { view, colours } = this;
    const lane = tall / job.cores;
    const stages = view.tables.names?.stages ?? [];
    const places = stages.map((stage) => view.tables.stages[stage]?.position ?? 0);
    const gap = lane >= 3 ? 0.6 : 0;
    for (const { bar, number, lane: place } of this.bars.of(name)) {
      if (number >= view.shown) break;
      const well = bar[OUTCOME] === 0 || bar[OUTCOME] === 3;
      const colour = well ? stageColour(places[bar[STAGE]]) : colours.card;
      const [top, high] = [y + place * lane, Math.max(1, lane * Math.min(bar[CORES], job.cores) - gap)];
      this.box(bar[START], bar[END], top, high, colour);
      if (!well) this.box(bar[START], bar[END], top, high, this.hatch(colours.bad, bar[OUTCOME] === 2));
    }
    const lanes = this.bars.lanes(name, job.cores);
    this.pen.globalAlpha = 0.6;
    for (const [stage, , cores, launched] of view.tables.underway?.[name] ?? []) {
      const place = lanes.take(launched - view.from, Infinity, cores);
      this.rect(launched, view.now, y + place * lane, Math.max(1, lane * cores - gap), stageColour(stage));
    }
    this.pen.globalAlpha = 1;
  }

  paintPredicted(job, y, tall, started) {
    const { pen, view, colours } = this;
    const x = this.x(job.predicted - view.from);
    pen.fillStyle = colours.mark;
    pen.fillRect(Math.round(x) - 1, y - 1, 2, tall + 2);
    if (started !== null || job.ended !== null || job.predicted <= view.now) return;
    pen.strokeStyle = colours.mark;
    pen.setLineDash([3, 3]);
    pen.beginPath();
    pen.moveTo(this.x(view.now - view.from), y + tall / 2);
    pen.lineTo(x, y + tall / 2);
    pen.stroke();
    pen.setLineDash([]);
  }

  paintPool(y, tall) {
    const { pen, view, colours } = this;
    const [from, to] = [this.time(LABELS), this.time(LABELS + this.room)];
    const count = Math.max(10, Math.floor(this.room));
    const times = { from, to, zero: view.from, now: view.now };
    const { held, busy, peak } = poolSize(view.tables, view.bars, count, times, view.shown);
    for (const [level, fill] of [[held, colours.spare], [busy, stageColour(0)]]) {
      pen.fillStyle = fill;
      pen.beginPath();
      pen.moveTo(LABELS, y + tall);
      for (let place = 0; place < count; place++) {
        const x = LABELS + (place * this.room) / count, top = y + tall * (1 - level[place] / peak);
        pen.lineTo(x, top);
        pen.lineTo(x + this.room / count, top);
      }
      pen.lineTo(LABELS + this.room, y + tall);
      pen.fill();
    }
    pen.fillStyle = colours.line;
    pen.fillRect(0, y - 8, LABELS + this.room + RIGHT, 1);
    this.label("Cores of the pool", y - 2, 20, true);
    this.label(`at most ${Math.round(peak)}`, y + 16, 20);
    for (const [fill, words, x] of [[stageColour(0), "busy", 2], [colours.spare, "idle", 60]]) {
      pen.fillStyle = fill;
      pen.fillRect(x, y + 39, 10, 10);
      pen.fillStyle = colours.ink;
      pen.fillText(words, x + 15, y + 44.5);
    }
  }

  // ---------------------------------------------------- hands

  zoomBy(factor, x = LABELS + this.room / 2) {
    const time = this.time(x) / this.span;
    this.zoom = Math.min(ZOOM_MOST, Math.max(1, this.zoom * factor));
    this.left = time - (x - LABELS) / this.room / this.zoom;
    this.paint();
  }

  showAll() {
    [this.zoom, this.left] = [1, 0];
    this.paint();
  }

  move(share) {
    this.left += share / this.zoom;
    this.paint();
  }

  listen() {
    const { place } = this;
    byId("in").addEventListener("click", () => this.zoomBy(1.6));
    byId("out").addEventListener("click", () => this.zoomBy(1 / 1.6));
    byId("all").addEventListener("click", () => this.showAll());
    place.addEventListener("scroll", () => this.paint());
    new ResizeObserver(() => this.paint()).observe(place);
    place.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      this.zoomBy(Math.exp(-event.deltaY / 300), event.offsetX);
    }, { passive: false });
    place.addEventListener("keydown", (event) => {
      const moves = { ArrowLeft: -0.1, ArrowRight: 0.1 };
      if (!(event.key in moves)) return;
      event.preventDefault();
      this.move(moves[event.key]);
    });
    place.addEventListener("pointerdown", (event) => {
      this.grip = { x: event.clientX, left: this.left, moved: false };
    });
    addEventListener("pointerup", () => {
      this.grip = null;
      place.classList.remove("moving");
    });
    place.addEventListener("pointermove", (event) => this.point(event));
    place.addEventListener("pointerleave", () => about(null));
    place.addEventListener("click", (event) => {
      const row = this.rowAt(event);
      if (row?.kind === "stage" && event.clientX - place.getBoundingClientRect().left < LABELS) this.choose(row.name);
    });
  }

  rowAt(event) {
    if (event.clientY - this.place.getBoundingClientRect().top > this.canvas.clientHeight - POOL - AXIS) return undefined;
    const y = event.clientY - this.place.getBoundingClientRect().top + this.place.scrollTop;
    return this.rows?.find((row) => y >= row.y && y <= row.y + row.tall);
  }

  point(event) {
    if (!this.view) return;
    if (this.grip && event.buttons) {
      const moved = (event.clientX - this.grip.x) / this.room;
      if (Math.abs(moved) > 0.003) this.place.classList.add("moving");
      this.left = this.grip.left - moved / this.zoom;
      return this.paint();
    }
    const row = this.rowAt(event);
    if (!row?.row) return about(null);
    about(this.words(row, event), event);
  }

  words(row, event) {
    const box = this.place.getBoundingClientRect();
    const time = this.time(event.clientX - box.left);
    if (row.kind === "stage") return stageWords(row.name, row.row);
    const top = event.clientY - box.top + this.place.scrollTop - row.y;
    const lane = Math.floor((top / row.tall) * row.row.cores);
    const { shown, tables } = this.view;
    const found = this.bars.of(row.name).find(({ bar, number, lane: place }) => number < shown && bar[START] <= time &&
      time <= bar[END] && place <= lane && lane < place + bar[CORES]);
    if (!found) return jobWords(row.name, row.row);
    const { bar } = found;
    const outcome = ["done", "failed", "lost with its node or job", "paused, and went on later"][bar[OUTCOME]];
    return [`${tables.names.stages[bar[STAGE]]} ${bar[INDEX]}: ${outcome}`, `ran ${span(bar[END] - bar[START])} on ` +
      `${tables.names.nodes[bar[NODE]]}`, `from ${span(bar[START])} after the start`].join("\n");
  }
}

function stageWords(name, stage) {
  const tasks = stage.tasks === null ? "? tasks" : counted(stage.tasks, "task");
  return [`${name}: ${stage.state}, ${counted(stage.cores, "core")}, ${stage.done} of ${tasks} done`,
    `ready for ${span(stage.perceived_wait_s)} until it ran; its job waited ${span(stage.wait_s)}, expected ` +
    span(stage.predicted_wait_s), `ran ${span(stage.run_time_s)}`, stage.error].filter(Boolean).join("\n");
}

function jobWords(token, job) {
  return [`${job.lender ? "lease" : "job"} ${job.id ?? token} for ${job.for.join(", ") || job.lender}`,
    `${job.state.replaceAll("_", " ")}, ${counted(job.cores, "core")}, ${job.nodes.slice(0, 6).join(", ")}`,
    `waited ${span(job.wait_s)}`, job.queue, job.reason].filter(Boolean).join("\n");
}
