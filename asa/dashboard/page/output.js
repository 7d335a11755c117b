// The last lines that tasks have printed: of the chosen stage, of one task, or of failed attempts alone.

import { byId, h, show } from "./dom.js";
import { ask, path } from "./session.js";

const LINES_MOST = 400, AGAIN_MS = 2000, NEAR_PX = 30;
const ALL = "";

// Asks while it is in sight, and once more when the run is over.
export class Output {
  #name = null;
  #lines = null;
  #seen = false;
  #asking = false;
  #live = false;
  #stale = false;
  #trouble = "";

  constructor(choose) {
    new IntersectionObserver(([entry]) => {
      this.#seen = entry.isIntersecting;
      this.#ask();
    }).observe(byId("output"));
    setInterval(() => this.#live && this.#ask(), AGAIN_MS);
    byId("of-stage").addEventListener("change", (event) => {
      byId("of-task").value = "";
      this.#anew();
      choose(event.target.value || null);
    });
    for (const id of ["of-task", "of-failed"]) byId(id).addEventListener("change", () => this.#anew());
    byId("which").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#anew();
    });
  }

  open(name) {
    this.#name = name;
    byId("of-task").value = "";
    byId("of-failed").checked = false;
    byId("of-stage").replaceChildren();
    this.#anew();
  }

  draw({ tables, live }, chosen) {
    const names = [ALL, ...Object.entries(tables.stages).sort((a, b) => a[1].position - b[1].position).map(([name]) => name)];
    show(byId("of-stage"), JSON.stringify(names), () => names.map((name) => h("option", { value: name }, name || "all")));
    if (byId("of-stage").value !== (chosen ?? ALL)) {
      byId("of-stage").value = chosen ?? ALL;
      byId("of-task").value = "";
      this.#anew();
    }
    if (this.#live !== live) this.#anew(false);
    this.#live = live;
    this.#draw();
  }

  #anew(cleared = true) {
    if (cleared) this.#lines = null;
    this.#stale = true;
    this.#ask();
  }

  async #ask() {
    if (this.#name === null || !this.#seen || document.hidden || this.#asking || !(this.#stale || this.#live)) return;
    this.#asking = true;
    this.#stale = false;
    const name = this.#name;
    try {
      const { rows } = await (await ask(`${path("runs", name, "output")}?${this.#which()}`)).json();
      if (name === this.#name && !this.#stale) [this.#lines, this.#trouble] = [rows, ""];
    } catch (error) {
      this.#trouble = error.message;
    } finally {
      this.#asking = false;
    }
    this.#draw();
    if (this.#stale) this.#ask();
  }

  #which() {
    const [stage, task] = [byId("of-stage").value, byId("of-task").value.trim()];
    return new URLSearchParams({ ...(stage && { stage }), ...(task && { index: task }), ...(byId("of-failed").checked && { failed: 1 }) });
  }

  #draw() {
    const place = byId("output");
    const atEnd = place.scrollTop + place.clientHeight > place.scrollHeight - NEAR_PX;
    show(place, JSON.stringify([this.#lines, this.#trouble]), () => this.#shown());
    if (atEnd) place.scrollTop = place.scrollHeight;
  }

  #shown() {
    if (this.#trouble) return h("p", { class: "bad" }, this.#trouble);
    if (this.#lines === null) return h("p", { class: "muted" }, "…");
    if (!this.#lines.length) return h("p", { class: "muted" }, "Nothing was printed.");
    const more = this.#lines.length >= LINES_MOST ?
      h("p", { class: "muted" }, `The last ${LINES_MOST} lines; all of them: asa logs ${this.#name}`) : null;
    return [more, ...this.#lines.map(([task, text, note]) =>
      h("div", { class: note ? "bad" : null }, h("span", { class: "muted" }, task), ` ${text}`))];
  }
}
