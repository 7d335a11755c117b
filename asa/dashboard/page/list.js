// All runs and queues of the state directory.

import { stateWords, table } from "./cards.js";
import { byId, h, show } from "./dom.js";
import { clock, counted, span } from "./words.js";

export const link = (kind, name, view, words) => h("a", { href: address(kind, name, view) }, words ?? name);
export const address = (kind, name, view = "") => `#/${kind}/${encodeURIComponent(name)}${view && `/${view}`}`;

const took = (row, now) => (row.makespan_s ?? (row.virtual || !row.started ? null : Math.max(0, Math.floor(now - row.started))));

export function drawList(rows) {
  const now = Date.now() / 1000;
  const runs = rows.filter((row) => row.kind === "runs"), queues = rows.filter((row) => row.kind === "queues");
  show(byId("runs"), JSON.stringify([rows, Math.floor(now / 15)]), () => [
    runs.length ? table(["Run", "State", "Started", "Took", "Stages", "Where", "Strategy"], runs.map((row) => ({ cells: [
      link("runs", row.name), [stateWords(row.state), row.problem ? ` ${row.problem}` : ""], row.virtual ? "in virtual time" :
        clock(row.started ?? null), span(took(row, now)), row.stages ?? "–",
      [row.site, row.partition].filter(Boolean).join(" ") || row.backend || "–", row.strategy ?? "–",
    ] })), [3, 4], [0, 1], [2, 4, 5, 6]) : h("p", {}, "There are no runs yet. Start one: ", h("code", {}, "asa run workflow.py")),
    queues.length ? h("p", {}, `${counted(queues.length, "queue")} of jobs that share cores: `,
      queues.flatMap((row, place) => [place ? ", " : "", link("queues", row.name)])) : null,
  ]);
}
