// The last lines that tasks have printed: of all, of a stage, of one task, or of failed attempts alone.

import { byId, h, show } from "./dom.js";
import { ask, path } from "./session.js";

const LINES_MOST = 400, AGAIN_MS = 2000, NEAR_PX = 30;

// Asks while it is in sight, and once more when the run is over.
export class Output {
  #name = null;
  #which = {};
  #lines = null;
  #seen = false;
  #asking = false;
  #live = false;
  #stale = false;
  #trouble = "";

  constructor() {
    new IntersectionObserver(([entry]) => {
      this.#seen = entry.isIntersecting;
      this.#ask();
    }).observe(byId("output"));
    setInterval(() => this.#live && this.#ask(), AGAIN_MS);
  }

  open(name) {
    this.#name = name;
    this.choose(null, undefined, false);
  }

  // Whose: of a stage and a task of it, or of all; whether only of failed attempts.
  choose(stage, index, failed) {
    this.#which = { ...(stage !== null && { stage }), ...(index !== undefined && { index }), ...(failed && { failed: 1 }) };
    const whose = stage === null ? "all tasks" : index === undefined ? `stage ${stage}` : `${stage}[${index}]`;
    byId("t-output").textContent = `Output of ${whose}${failed ? ", failed attempts only" : ""}`;
    this.#anew();
  }

  draw({ live }) {
    if (this.#live !== live) this.#anew(false);
    this.#live = live;
  }

  #anew(cleared = true) {
    if (cleared) this.#lines = null;
    this.#stale = true;
    this.#draw();
    this.#ask();
  }

  async #ask() {
    if (this.#name === null || !this.#seen || document.hidden || this.#asking || !(this.#stale || this.#live)) return;
    this.#asking = true;
    this.#stale = false;
    const name = this.#name;
    try {
      const { rows } = await (await ask(`${path("runs", name, "output")}?${new URLSearchParams(this.#which)}`)).json();
      if (name === this.#name && !this.#stale) [this.#lines, this.#trouble] = [rows, ""];
    } catch (error) {
      this.#trouble = error.message;
    } finally {
      this.#asking = false;
    }
    this.#draw();
    if (this.#stale) this.#ask();
  }

  #draw() {
    const place = byId("output");
    const hidden = place.closest("[hidden]"); // where it is, to ask how tall it is would have the browser lay out the page
    const atEnd = hidden || place.scrollTop + place.clientHeight > place.scrollHeight - NEAR_PX;
    show(place, JSON.stringify([this.#lines, this.#trouble]), () => this.#shown());
    if (atEnd && !hidden) place.scrollTop = place.scrollHeight;
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
