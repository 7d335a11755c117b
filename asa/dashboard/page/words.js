// Numbers and times as people say them.

const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

// A duration [s]: the two largest units.
export function span(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  const sign = seconds < 0 ? "−" : "";
  const size = Math.abs(seconds);
  if (size < 0.0005) return "0 s";
  if (size < 10) return `${sign}${Number(size.toPrecision(2))} s`;
  let rest = Math.round(size);
  const parts = [];
  for (const [unit, name] of UNITS) {
    const count = Math.floor(rest / unit);
    rest -= count * unit;
    if (count) parts.push(`${count} ${name}`);
    else if (parts.length) break;
    if (parts.length === 2) break;
  }
  return sign + parts.join(" ");
}

export function hours(amount) {
  if (amount === null || amount === undefined) return "–";
  const size = Math.abs(amount);
  if (size >= 100) return Math.round(amount).toLocaleString("en");
  if (size >= 10) return amount.toFixed(1);
  return String(Number(amount.toPrecision(2)));
}

const SIZES = [[1 << 30, "GiB"], [1 << 20, "MiB"], [1 << 10, "KiB"]];

export function bytes(amount) {
  if (!amount) return "–";
  const [size, name] = SIZES.find(([each]) => amount >= each) ?? SIZES.at(-1);
  return `${Number((amount / size).toPrecision(2))} ${name}`;
}

export const percent = (part) => `${Math.round(100 * part)} %`;

export const counted = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;

// To make one takes longer than all else that is drawn.
const formats = {};
const format = (name, options) => (formats[name] ??= new Intl.DateTimeFormat(undefined, options));
const moment = () => format("moment", { dateStyle: "medium", timeStyle: "short" });

export const clock = (seconds) => (seconds === null ? "–" : moment().format(1000 * seconds));

// The time of day, with the date where that is another than today's.
export function soon(seconds) {
  const at = new Date(1000 * seconds);
  const today = at.toDateString() === new Date().toDateString();
  return (today ? format("time", { timeStyle: "short" }) : moment()).format(at);
}

export const cut = (text, most) => (text.length <= most ? text : `${text.slice(0, most - 1)}…`);

// Steps of an axis from 0 on: so many that about `count` of them fill `length` [s].
const STEPS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800,
  3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800];

export function step(length, count) {
  return STEPS.find((each) => length / each <= count) ?? 604800 * Math.ceil(length / count / 604800);
}

export function tick(seconds) {
  if (Math.abs(seconds) < 1e-9) return "0";
  if (Math.abs(seconds) < 60) return `${Number(seconds.toFixed(3))} s`;
  return span(seconds);
}

// SITE/PARTITION/CORES/CLASS as people say it.
export function asked(geometry) {
  const [site, partition, cores, wall] = geometry.split("/");
  return `${counted(Number(cores), "core")} for ${wall}${site && ` on ${[site, partition].filter(Boolean).join(" ")}`}`;
}
