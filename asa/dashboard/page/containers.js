// Containers on the run's agents at the time that is shown, with their CPU quotas and what they use of them.

import { meter, table } from "./cards.js";
import { byId, h, show } from "./dom.js";
import { percent, span } from "./words.js";

const HEAD = ["Node", "Container", "CPU quota", "Used", "Throttled", "Since"];
const NOT_TOLD = "This run's log does not tell of containers: they are shown only while it runs, and as they are now.";

const byNode = (a, b) => `${a.node} ${a.container}`.localeCompare(`${b.node} ${b.container}`, "en", { numeric: true });

// `asked` is what the pool says now; null where it was not asked, or says nothing.
export function drawContainers({ tables, now, past, tells: told }, asked) {
  const tells = told.includes("containers");
  const rows = tells ? Object.values(tables.containers).sort(byNode) :
    past ? [] : asked ?? [];
  const silent = !tells && !rows.length && tables.run.executor.startsWith("mesos");
  const key = JSON.stringify([rows, tells, silent, past, tells && Math.floor(now)]);
  show(byId("containers"), key, () => {
    if (silent) return [h("h3", {}, "Containers"), h("p", { class: "muted" }, NOT_TOLD)];
    if (!rows.length) return tells ? [h("h3", {}, "Containers"), h("p", { class: "muted" }, "There were none at this time.")] : [];
    return [h("h3", {}, tells ? "Containers" : "Containers, now"), ...table(HEAD, rows.map((row) => ({ cells: cells(row, now) })))];
  });
}

const cells = (row, now) => [row.node, row.container?.slice(0, 8) ?? "–",
  row.state !== "running" ? row.state : row.limit_cores === null ? "none" : `${row.limit_cores} cores`,
  row.used === null ? "–" : meter(row.limit_cores ? row.used / row.limit_cores : 0, "b-cpu", `${row.used.toFixed(2)} cores`),
  row.throttled_share === null ? "–" : percent(row.throttled_share),
  row.at === undefined ? "now" : `${span(Math.max(0, Math.round(now - row.at)))} ago`];
