// Tasks of a run: a page of those that fit, from the server, and one of them with all that is known of it.

import { stateWords, table } from "./cards.js";
import { drawCurve } from "./curve.js";
import { byId, h, show } from "./dom.js";
import { address } from "./list.js";
import { ask, path } from "./session.js";
import { bytes, counted, cut, span } from "./words.js";

const PAGE = 50, AGAIN_MS = 1000;
const FIELDS = { text: "text", state: "of-state", stage: "of-stage", node: "of-node", order: "order" };
const NARROW = [3, 5, 6, 7]; // columns that small screens leave out
const OUTCOMES = { done: "returned", failed: "failed", lost: "lost with its node or job", paused: "paused, went on later" };

export const where = (run, wanted) => `${address("runs", run, "tasks")}?${new URLSearchParams(
  Object.entries(wanted).filter(([, value]) => value !== "" && value !== null && value !== undefined))}`;

export class Tasks {
  #run = null;
  #wanted = {};
  #stamp = "";
  #seen = null;
  #found = null;
  #one = null;
  #asked = 0;
  #timer = 0;
  #asking = false;
  #other = false;

  // `shown` is called with stage, index and whether only failed attempts count: whose output is wanted.
  constructor(shown) {
    this.shown = shown;
    for (const [key, id] of Object.entries(FIELDS))
      byId(id).addEventListener("input", () => this.#go({ [key]: byId(id).value, first: "", task: "" }, true));
    byId("find").addEventListener("submit", (event) => event.preventDefault());
    byId("before").addEventListener("click", () => this.#go({ first: Math.max(0, this.#first - PAGE) || "" }));
    byId("next").addEventListener("click", () => this.#go({ first: this.#first + PAGE }));
  }

  get #first() {
    return Number(this.#wanted.first ?? 0);
  }

  #go(changes, quiet = false) {
    const to = where(this.#run, { ...this.#wanted, ...changes });
    if (quiet) history.replaceState(null, "", to);
    else location.hash = to;
    if (quiet) this.open(this.#run, new URLSearchParams(to.slice(to.indexOf("?") + 1)));
  }

  // What the address says is wanted; no run where tasks are not in sight.
  open(run, parameters) {
    const wanted = Object.fromEntries(parameters ?? []);
    const other = run !== this.#run;
    if (!other && JSON.stringify(wanted) === JSON.stringify(this.#wanted) && this.#found) return;
    const task = wanted.task !== this.#wanted.task || other;
    [this.#run, this.#wanted] = [run, wanted];
    if (other) this.#found = null;
    if (task) {
      this.#one = null;
      byId("one").hidden = true;
      byId("t-one").textContent = "";
    }
    for (const [key, id] of Object.entries(FIELDS))
      if (document.activeElement !== byId(id)) this.#set(byId(id), wanted[key] ?? (key === "order" ? "number" : ""));
    if (run === null) return;
    const [stage, index] = this.#chosen();
    this.shown(stage ?? wanted.stage ?? null, index, wanted.state === "failed");
    this.#ask();
  }

  #set(field, value) {
    if (field.tagName === "SELECT" && ![...field.options].some((each) => each.value === value))
      field.append(h("option", { value }, value || "all"));
    field.value = value;
  }

  #chosen() {
    const [, stage, index] = /^(.*)\[(\d+)\]$/s.exec(this.#wanted.task ?? "") ?? [];
    return [stage, index];
  }

  // New numbers are asked for when the run, or the time that is shown, is another.
  draw(seen) {
    this.#seen = seen;
    if (this.#run === null) return;
    const stamp = JSON.stringify([seen.past && seen.now, seen.shown, Object.values(seen.tables.stages).map((stage) =>
      [stage.state, stage.running, stage.tasks, stage.done]), seen.tables.run.state]);
    if (stamp === this.#stamp) return;
    this.#stamp = stamp;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#ask(), Math.max(0, this.#asked + AGAIN_MS - performance.now()));
  }

  // One question at a time: what is typed meanwhile is asked for next, all letters at once.
  async #ask() {
    this.#other = this.#asking;
    if (this.#run === null || !this.#seen || document.hidden || this.#asking) return;
    clearTimeout(this.#timer);
    this.#asking = true;
    await this.#find().finally(() => { this.#asking = false; });
    if (this.#other) this.#ask();
  }

  async #find() {
    const [run, wanted, seen] = [this.#run, this.#wanted, this.#seen];
    this.#asked = performance.now();
    const then = seen.past ? { t: seen.now } : {};
    const { task, ...rest } = wanted;
    const [stage, index] = this.#chosen();
    try {
      const [found, one] = await Promise.all([
        ask(`${path("runs", run, "tasks")}?${new URLSearchParams({ ...rest, count: PAGE, ...then })}`),
        stage === undefined ? null : ask(`${path("runs", run, "task")}?${new URLSearchParams({ stage, index, ...then })}`)
          .then((answer) => answer.json(), (error) => ({ problem: error.message })),
      ]);
      const page = await found.json();
      if (run !== this.#run || wanted !== this.#wanted) return;
      [this.#found, this.#one] = [page, one];
    } catch (error) {
      if (run !== this.#run) return;
      byId("count").textContent = error.message;
      return;
    }
    this.#show();
    document.body.dataset.found = String(Number(document.body.dataset.found ?? 0) + 1);
  }

  #show() {
    const { rows, total, states, nodes } = this.#found;
    const { tables } = this.#seen;
    this.#options("of-state", Object.entries(states).map(([name, count]) => [name, `${name} (${count.toLocaleString("en")})`]));
    this.#options("of-stage", Object.entries(tables.stages).sort((a, b) => a[1].position - b[1].position).map(([name]) => [name, name]));
    this.#options("of-node", nodes.map((name) => [name, name]));
    const first = this.#first;
    byId("count").textContent = total ? `${(first + 1).toLocaleString("en")} to ${(first + rows.length).toLocaleString("en")} of ` +
      counted(total, "task") : "No task fits.";
    byId("before").disabled = first === 0;
    byId("next").disabled = first + rows.length >= total;
    show(byId("tasks"), JSON.stringify([rows, this.#wanted]), () => rows.length ? table(
      ["Task", "State", "Ran", "Node", "Error", "Attempts", "Started", "Memory"], rows.map((row) => this.#row(row)), [2, 5, 6, 7], [0, 4],
      NARROW) : []);
    this.#showOne();
  }

  #row(row) {
    const name = `${row.stage}[${row.index}]`;
    return { chosen: name === this.#wanted.task, cells: [
      h("a", { href: where(this.#run, { ...this.#wanted, task: name }) }, name), stateWords(row.state), span(row.ran), row.node || "–",
      row.error ? cut(row.error, 120) : "", row.tries, this.#since(row.started), bytes(row.peak)] };
  }

  #since(time) {
    return time === null || time === undefined ? "–" : span(Math.max(0, time - this.#seen.from));
  }

  #options(id, found) {
    const value = byId(id).value;
    const all = [["", "all"], ...found];
    if (!all.some(([name]) => name === value)) all.push([value, value]);
    if (document.activeElement === byId(id)) return;
    show(byId(id), JSON.stringify(all), () => all.map(([name, words]) => h("option", { value: name }, words)));
    byId(id).value = value;
  }

  #showOne() {
    const [one, name] = [this.#one, this.#wanted.task];
    byId("one").hidden = !one;
    byId("leave").href = where(this.#run, { ...this.#wanted, task: "" });
    if (!one) return;
    if (byId("t-one").textContent !== name) {
      byId("t-one").textContent = name;
      byId("t-one").focus();
    }
    const why = this.#seen.tables.why[one.stage];
    show(byId("facts"), JSON.stringify([one, why]), () => one.problem ? h("p", { class: "bad" }, one.problem) : this.#facts(one, why));
  }

  #facts(one, why) {
    const values = Object.entries(one.arguments.values);
    const facts = [
      ["State", [stateWords(one.state), one.error ? `: ${one.error}` : one.reused ? ": its result is of an earlier run" : ""]],
      ["waiting", "not run", "skipped"].includes(one.state) && why ? ["Why", why] : null,
      one.started === undefined ? null : ["Ran", `${span(one.ran)} on ${one.node || "one of its job's nodes"}, from ` +
        `${this.#since(one.started)} after the start`],
      ["Asked for", [counted(one.cores, "core"), one.memory ? `${bytes(one.memory)} of memory` : "", `${span(one.walltime_s)} at most`]
        .filter(Boolean).join(", ")],
      ["Arguments", [values.length ? h("dl", { class: "arguments" }, values.map(([key, text]) => [h("dt", {}, /^\d+$/.test(key) ? `argument ${key}` : key),
        h("dd", {}, h("code", {}, text))])) : null, one.arguments.note ? h("p", { class: "muted" }, one.arguments.note) : null]],
      ["On a terminal", h("code", {}, `asa logs ${this.#run} '${one.stage}[${one.index}]'`)],
    ].filter(Boolean);
    return [h("dl", { class: "facts" }, facts.map(([name, words]) => [h("dt", {}, name), h("dd", {}, words)])),
      one.attempts.length ? [h("h3", {}, "Attempts"), table(["#", "Ended", "Ran", "Node", "Exit code", "Memory", "CPU time", "Job", "Started"],
        one.attempts.map((each, place) => ({ cells: [place + 1, OUTCOMES[each.outcome], span(each.ran), each.node, each.exit ?? "–",
          bytes(each.peak), span(each.cpu_s), one.jobs[each.job] ?? each.job, this.#since(each.started)] })), [0, 2, 4, 5, 6, 8], [], [6, 7, 8])] : null,
      one.curves.length ? [h("h3", {}, "Memory and processor over time"), one.curves.map((each) => drawCurve(each, one.curves.length > 1))] : null,
      one.attempts.filter((each) => each.story).map((each) => h("pre", {}, each.story))].flat(Infinity).filter(Boolean);
  }
}
