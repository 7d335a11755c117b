// What the chart draws: a row for each stage and each job, with its tasks; one list, from top to bottom.

import { Lanes } from "./lanes.js";

export const STAGE = 0, INDEX = 1, JOB = 2, NODE = 3, CORES = 4, START = 5, END = 6, OUTCOME = 7;

const STAGE_TALL = 20, LEAST = 18, MOST = 60, LANE = 3, GAP = 5, HEAD = 22;

// Bars of tasks by job, with the lane of each. They are only ever added to.
export class Bars {
  constructor() {
    this.clear();
  }

  clear() {
    this.seen = 0;
    this.jobs = new Map();
  }

  // Take in the bars that are new; `names` are those of jobs, by number, `jobs` their rows.
  take(bars, names, jobs) {
    if (bars.length < this.seen) this.clear();
    for (; this.seen < bars.length; this.seen++) {
      const bar = bars[this.seen];
      const name = names[bar[JOB]];
      let found = this.jobs.get(name);
      if (!found) {
        found = { list: [], lanes: new Lanes(jobs[name]?.cores ?? 1) };
        this.jobs.set(name, found);
      }
      found.list.push({ bar, number: this.seen, lane: found.lanes.take(bar[START], bar[END], bar[CORES]) });
    }
  }

  of(name) {
    return this.jobs.get(name)?.list ?? [];
  }

  lanes(name, cores) {
    return this.jobs.get(name)?.lanes.copy() ?? new Lanes(cores);
  }
}

// Rows with their places: {kind, name, row, y, tall}.
export function layOut(tables, chosen) {
  const found = [];
  let y = 0;
  const add = (kind, name, row, tall, gap) => {
    found.push({ kind, name, row, y, tall });
    y += tall + gap;
  };
  const stages = Object.entries(tables.stages ?? {}).sort((a, b) => a[1].position - b[1].position);
  const jobs = Object.entries(tables.jobs ?? {}).sort((a, b) => a[1].submitted - b[1].submitted)
    .filter(([, job]) => chosen === null || job.for.includes(chosen));
  add("head", "Stages", null, HEAD - GAP, GAP);
  for (const [name, stage] of stages) add("stage", name, stage, STAGE_TALL - GAP, GAP);
  add("head", chosen === null ? "Jobs" : `Jobs for ${chosen}`, null, HEAD - GAP, GAP);
  for (const [name, job] of jobs) add("job", name, job, Math.min(MOST, Math.max(LEAST, LANE * job.cores)), GAP);
  return { rows: found, tall: y };
}

// Cores held and busy in each of `count` equal pieces of time from `from` to `to` [s since the run's start].
export function poolSize(tables, bars, count, { from, to, zero, now }, shown) {
  const width = (to - from) / count;
  const held = new Float64Array(count + 1), busy = new Float64Array(count + 1);
  const add = (into, start, end, cores) => {
    const first = Math.max(0, (start - from) / width), last = Math.min(count, (end - from) / width);
    if (last <= first) return;
    // Differences of a step function that is averaged over the pieces in which it begins and ends.
    const [i, j] = [Math.floor(first), Math.floor(last)];
    into[i] += cores * (1 - (first - i));
    into[Math.min(count, i + 1)] += cores * (first - i);
    into[j] -= cores * (1 - (last - j));
    if (j + 1 <= count) into[j + 1] -= cores * (last - j);
  };
  for (const job of Object.values(tables.jobs ?? {}))
    for (const [start, end] of job.runs) add(held, start - zero, (end ?? now) - zero, job.cores);
  for (let number = 0; number < shown; number++) {
    const bar = bars[number];
    add(busy, bar[START], bar[END], bar[CORES]);
  }
  for (const tasks of Object.values(tables.underway ?? {}))
    for (const [, , cores, launched] of tasks) add(busy, launched - zero, now - zero, cores);
  for (let place = 1; place <= count; place++) {
    held[place] += held[place - 1];
    busy[place] += busy[place - 1];
  }
  return { held, busy, peak: Math.max(1, ...held, ...busy) };
}
