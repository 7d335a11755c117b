// The workflow: stages in layers with their states. Where they stand, and how edges go around them, says dagre.

import { Graph as Layout, layout } from "./dagre.js";
import { byId, s } from "./dom.js";
import { kind, sign } from "./palette.js";
import { counted, cut } from "./words.js";

const WIDE = 136, TALL = 46, EDGE = 8, TIP = 7;
const STAGES_MOST = 400, LEAST = 0.75, LARGE = 100, NARROW = 600;

function placed(stages, narrow) {
  const found = new Layout();
  const ranker = stages.size > LARGE ? "longest-path" : "network-simplex";
  found.setGraph({ rankdir: narrow ? "TB" : "LR", nodesep: 16, ranksep: narrow ? 30 : 36, marginx: EDGE, marginy: EDGE, ranker });
  const number = new Map([...stages.keys()].map((name, place) => [name, String(place)])); // names may be any
  for (const place of number.values()) found.setNode(place, { width: WIDE, height: TALL });
  for (const [name, stage] of stages)
    for (const before of stage.after) if (number.has(before)) found.setEdge(number.get(before), number.get(name), {});
  layout(found);
  return { found, at: (name) => found.node(number.get(name)) };
}

// An edge bends between layers only: straight from side to side it passes the boxes of a layer, at the height, or, upright,
// the place, that the library has kept free for it there: every other of its points.
function edge(from, to, points, narrow) {
  const [along, across, half] = narrow ? ["y", "x", TALL / 2] : ["x", "y", WIDE / 2];
  const spot = (point, shift) => ({ ...point, [along]: point[along] + shift });
  const passed = points.slice(1, -1).filter((_, place) => place % 2).flatMap((point) => [spot(point, -half), spot(point, half)]);
  const [first, ...rest] = [spot(from, half), ...passed, spot(to, -half - TIP)];
  let last = first;
  const parts = rest.map((point, place) => {
    const middle = (last[along] + point[along]) / 2;
    const bend = [last, point].map((end) => narrow ? `${end[across]} ${middle}` : `${middle} ${end[across]}`);
    last = point;
    return place % 2 ? `L${point.x} ${point.y}` : `C${bend.join(" ")} ${point.x} ${point.y}`;
  });
  return [s("path", { class: "edge", d: `M${first.x} ${first.y}${parts.join("")}` }),
    s("path", { class: "tip", transform: `translate(${last.x} ${last.y}) rotate(${narrow ? 90 : 0})`, d: `M${TIP} 0l${-TIP} -4v8z` })];
}

export class Graph {
  constructor(choose) {
    this.place = byId("graph");
    this.choose = choose;
    this.nodes = new Map();
  }

  draw(rows, chosen) {
    const stages = new Map(Object.entries(rows).sort((a, b) => a[1].position - b[1].position).slice(0, STAGES_MOST));
    const narrow = this.place.clientWidth < NARROW;
    const shape = JSON.stringify([narrow, ...[...stages].map(([name, stage]) => [name, stage.after])]);
    if (shape !== this.shape) {
      this.shape = shape;
      this.build(stages, narrow);
    }
    for (const [name, stage] of stages) this.update(name, stage, name === chosen);
  }

  build(stages, narrow) {
    const { found, at } = placed(stages, narrow);
    const { width, height } = found.graph();
    const svg = s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Workflow" });
    for (const which of found.edges())
      svg.append(...edge(found.node(which.v), found.node(which.w), found.edge(which).points, narrow));
    this.nodes.clear();
    for (const name of stages.keys()) {
      const { x, y } = at(name);
      svg.append(this.node(name, { x: x - WIDE / 2, y: y - TALL / 2 }));
    }
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
