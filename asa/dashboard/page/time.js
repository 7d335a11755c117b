// The slider: any time of the log, replay, and back to now.

import { byId } from "./dom.js";
import { clock, span } from "./words.js";

const FRAME_MS = 60, STEP = 1 / 100;

export class Time {
  // `moved` is called with a time [s], or with null for now.
  constructor(moved) {
    this.moved = moved;
    this.when = null;
    this.playing = false;
    byId("slider").addEventListener("input", (event) => this.go(Number(event.target.value)));
    byId("play").addEventListener("click", () => this.play());
    byId("now").addEventListener("click", () => this.go(null));
  }

  draw({ from, to, now, kind }) {
    Object.assign(this, { from, to });
    const slider = byId("slider");
    [slider.min, slider.max] = [from, to];
    const value = this.when ?? to;
    if (document.activeElement !== slider || Number(slider.value) !== value) slider.value = value;
    const words = `${span(Math.max(0, now - from))} after the start`;
    byId("when").textContent = this.when === null ? words : `${words} (of ${span(to - from)})`;
    byId("when").title = kind === "runs" ? clock(now) : "";
    slider.setAttribute("aria-valuetext", words);
    byId("now").disabled = this.when === null;
  }

  go(when) {
    this.when = when === null || when >= this.to ? null : Math.max(this.from, when);
    if (this.when === null) this.stop();
    this.moved(this.when);
  }

  step(direction) {
    this.go((this.when ?? this.to) + direction * STEP * (this.to - this.from));
  }

  play() {
    if (this.playing) return this.stop();
    this.playing = true;
    byId("play").textContent = "❚❚";
    byId("play").setAttribute("aria-label", "Stop");
    if (this.when === null) this.go(this.from);
    let last = performance.now();
    this.timer = setInterval(() => {
      const passed = (performance.now() - last) / 1000;
      last = performance.now();
      this.go((this.when ?? this.from) + (passed / Number(byId("speed").value)) * (this.to - this.from));
    }, FRAME_MS);
  }

  stop() {
    clearInterval(this.timer);
    this.playing = false;
    byId("play").textContent = "▶";
    byId("play").setAttribute("aria-label", "Replay");
  }
}
