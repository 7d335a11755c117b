// The workflow: stages in layers, from left to right, with their states.

import { byId, s } from "./dom.js";
import { kind, sign } from "./palette.js";
import { counted, cut } from "./words.js";

const WIDE = 136, TALL = 46, GAP_X = 30, GAP_Y = 16, EDGE = 8;
const STAGES_MOST = 400, LEAST = 0.75;

// Layer of each stage: one more than the last of those before it.
function layers(stages) {
  const found = new Map();
  const layer = (name) => {
    if (!found.has(name)) {
      found.set(name, 0); // for a stage that is not there, and against going round
      const before = stages.get(name)?.after.filter((other) => stages.has(other)) ?? [];
      found.set(name, Math.max(-1, ...before.map(layer)) + 1);
    }
    return found.get(name);
  };
  for (const name of stages.keys()) layer(name);
  return found;
}

// Places by layer; in a layer, stages stand near the mean height of those before them.
function places(stages) {
  const columns = [];
  for (const [name, layer] of layers(stages)) (columns[layer] ??= []).push(name);
  const rows = new Map();
  const tallest = Math.max(1, ...columns.map((column) => column.length));
  for (const column of columns) {
    const height = (name) => {
      const before = stages.get(name).after.filter((other) => rows.has(other)).map((other) => rows.get(other));
      return before.length ? before.reduce((sum, row) => sum + row, 0) / before.length : 0;
    };
    const first = (tallest - column.length) / 2;
    column.map((name, place) => [height(name), place, name]).sort((a, b) => a[0] - b[0] || a[1] - b[1])
      .forEach(([, , name], place) => rows.set(name, first + place));
  }
  const found = new Map();
  columns.forEach((column, x) => column.forEach((name) => found.set(name,
    { x: EDGE + x * (WIDE + GAP_X), y: EDGE + rows.get(name) * (TALL + GAP_Y) })));
  return { at: found, width: 2 * EDGE + columns.length * (WIDE + GAP_X) - GAP_X,
    height: 2 * EDGE + tallest * (TALL + GAP_Y) - GAP_Y };
}

function edge(from, to) {
  const [x1, y1, x2, y2] = [from.x + WIDE, from.y + TALL / 2, to.x - 5, to.y + TALL / 2];
  const bend = (x2 - x1) / 2;
  return [s("path", { class: "edge", d: `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}` }),
    s("path", { class: "tip", d: `M${x2 + 5} ${y2}l-7 -4v8z` })];
}

export class Graph {
  constructor(choose) {
    this.place = byId("graph");
    this.choose = choose;
    this.nodes = new Map();
  }

  draw(rows, chosen) {
    const stages = new Map(Object.entries(rows).sort((a, b) => a[1].position - b[1].position).slice(0, STAGES_MOST));
    const shape = JSON.stringify([...stages].map(([name, stage]) => [name, stage.after]));
    if (shape !== this.shape) {
      this.shape = shape;
      this.build(stages);
    }
    for (const [name, stage] of stages) this.update(name, stage, name === chosen);
  }

  build(stages) {
    const { at, width, height } = places(stages);
    const svg = s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Workflow" });
    for (const [name, stage] of stages)
      for (const before of stage.after) if (at.has(before)) svg.append(...edge(at.get(before), at.get(name)));
    this.nodes.clear();
    for (const name of stages.keys()) svg.append(this.node(name, at.get(name)));
    svg.style.minWidth = `${Math.round(LEAST * width)}px`; // smaller, it could not be read
    this.place.replaceChildren(svg);
  }

  node(name, { x, y }) {
    const parts = {
      filled: s("rect", { class: "filled", width: 0, height: TALL, rx: 6 }),
      sign: s("text", { class: "sign", x: 9, y: 19 }),
      detail: s("text", { class: "small", x: 9, y: 36 }),
      title: s("title", {}),
    };
    const choose = () => this.choose(name);
    const node = s("g", {
      transform: `translate(${x} ${y})`, tabindex: 0, role: "button", "data-stage": name,
      on: { click: choose, keydown: (event) => {
        if (event.key === "Enter" || event.key === " ") {
          event.preventDefault();
          event.stopPropagation();
          choose();
        }
      } },
    }, parts.title, s("rect", { class: "box", width: WIDE, height: TALL, rx: 6 }), parts.filled, parts.sign,
    s("text", { x: 26, y: 19 }, cut(name, 16)), parts.detail);
    this.nodes.set(name, { node, ...parts });
    return node;
  }

  update(name, stage, chosen) {
    const { node, filled, sign: mark, detail, title } = this.nodes.get(name);
    const share = stage.tasks ? stage.done / stage.tasks : stage.state === "done" ? 1 : 0;
    const tasks = stage.tasks === null ? "? tasks" : `${stage.done}/${stage.tasks} done`;
    node.setAttribute("class", `node ${kind(stage.state)}${chosen ? " chosen" : ""}`);
    node.setAttribute("aria-label", `${name}: ${stage.state}, ${tasks}`);
    node.setAttribute("aria-pressed", chosen);
    filled.setAttribute("width", WIDE * share);
    mark.textContent = sign(stage.state);
    detail.textContent = `${tasks.replace(" done", "")} · ${counted(stage.cores, "core")}`;
    title.textContent = `${name}: ${stage.state}`;
  }
}
