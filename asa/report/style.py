"""The page's style sheet: light or dark as the reader's system is set; nothing is loaded from anywhere."""

from __future__ import annotations

from asa.report.palette import DARK, LIGHT
from asa.report.svg import LABEL_WIDTH, ZOOMS

_BASE = """
:root { color-scheme: light dark; --ground: #ffffff; --card: #f6f7f9; --line: #d9dce1; --text: #1b1e23;
  --muted: #5d6570; --hatch: #8b93a0; --held: #e3e6eb; --early: #b35900; --busy: #2b6cb0; --idle: #f0c27b;
  --good: #13703c; --bad: #b3261e; --other: #aab2bd; }
@media (prefers-color-scheme: dark) { :root { --ground: #14161a; --card: #1d2025; --line: #363b43; --text: #e8eaed;
  --muted: #a0a8b3; --hatch: #7d8693; --held: #2b3037; --early: #ffad5c; --busy: #6fb1f0; --idle: #8a6427;
  --good: #6fd39a; --bad: #ff8a80; --other: #565e69; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1240px; padding: 24px; background: var(--ground); color: var(--text);
  font: 14px/1.45 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
h1 { font-size: 22px; margin: 0 0 4px; } h2 { font-size: 16px; margin: 32px 0 10px; }
p { margin: 4px 0; } .muted { color: var(--muted); fill: var(--muted); } .bad { color: var(--bad); fill: var(--bad); }
.badge { font-size: 13px; font-weight: 600; padding: 2px 10px; border-radius: 10px; border: 1px solid;
  vertical-align: 3px; margin-left: 8px; }
.succeeded, .done, .completed { color: var(--good); } .failed-state, .cancelled { color: var(--bad); }
.message { white-space: pre-wrap; border-left: 3px solid var(--bad); padding: 6px 12px; margin: 12px 0;
  background: var(--card); font: 12px/1.5 ui-monospace, "DejaVu Sans Mono", monospace; overflow-x: auto; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 10px; margin: 16px 0; }
.figures div { background: var(--card); border: 1px solid var(--line); border-radius: 6px; padding: 10px 12px; }
.figures b { display: block; font-size: 18px; font-variant-numeric: tabular-nums; }
.figures span { color: var(--muted); font-size: 12px; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: 13px; }
th { text-align: left; font-weight: 600; color: var(--muted); font-size: 12px; vertical-align: bottom; }
th, td { padding: 5px 10px 5px 0; border-bottom: 1px solid var(--line); white-space: nowrap; }
td.wide { white-space: normal; min-width: 160px; overflow-wrap: anywhere; }
.num { text-align: right; } .scroll { overflow-x: auto; }
svg { display: block; } svg text { font-size: 12px; fill: var(--text); } svg .muted { fill: var(--muted); }
svg .bad { fill: var(--bad); } svg text.heading { font-weight: 600; font-size: 13px; } .end { text-anchor: end; }
.middle { text-anchor: middle; } svg text.tick { font-size: 11px; fill: var(--muted); }
.grid line { stroke: var(--line); stroke-width: 1; } .grid { display: none; }
.hatch { stroke: var(--hatch); stroke-width: 2.4; } .early-hatch { stroke: var(--early); stroke-width: 1.8; }
rect.wait { fill: url(#wait); stroke: var(--hatch); stroke-width: .8; }
rect.held { fill: var(--held); stroke: var(--hatch); stroke-width: .6; }
.predicted { stroke: var(--text); stroke-width: 1; }
rect.early { fill: url(#early); }
.idle { fill: var(--idle); } .busy { fill: var(--busy); } .other { fill: var(--other); }
.early-fill { fill: var(--early); } .faint { opacity: .3; }
rect.task { stroke: var(--ground); stroke-width: .5; } rect.failed { fill: var(--bad); }
.key { display: inline-block; width: 16px; height: 11px; margin: 0 5px 0 16px; vertical-align: -1px; }
.legend { color: var(--muted); font-size: 12px; margin: 6px 0; } .legend svg { display: inline-block; }
.chart { display: flex; border: 1px solid var(--line); border-radius: 6px; padding: 8px; }
.chart > svg { flex: none; } .chart .scroll { flex: 1; min-width: 0; }
.zoom { position: absolute; opacity: 0; } .zooms { display: flex; justify-content: space-between;
  align-items: baseline; color: var(--muted); font-size: 13px; } .zooms h2 { color: var(--text); }
.zooms label { border: 1px solid var(--line); padding: 1px 9px; margin-left: 4px; border-radius: 4px; cursor: pointer; }
.unit { display: none; } details { margin: 6px 0; } summary { cursor: pointer; }
pre { background: var(--card); padding: 10px; overflow-x: auto; font-size: 12px; margin: 6px 0; }
@media print { .zooms span { display: none; } body { max-width: none; } }
"""


def style_sheet() -> str:
    """All of it as CSS text."""
    parts = [_BASE, f".chart > svg {{ width: {LABEL_WIDTH}px; }}"]
    parts += [f".s{number} {{ fill: {colour}; }}" for number, colour in enumerate(LIGHT)]
    dark = " ".join(f".s{number} {{ fill: {colour}; }}" for number, colour in enumerate(DARK))
    parts.append(f"@media (prefers-color-scheme: dark) {{ {dark} }}")
    for zoom in ZOOMS:
        chosen = f"#zoom{zoom}:checked ~"
        parts.append(f"{chosen} .chart .scroll > svg {{ width: {100 * zoom}%; }}")
        parts.append(f"{chosen} .chart .z{zoom}, {chosen} .legend .z{zoom} {{ display: inline; }}")
        parts.append(f"{chosen} .zooms label[for=zoom{zoom}] {{ border-color: var(--text); color: var(--text); }}")
        parts.append(f"#zoom{zoom}:focus-visible ~ .zooms label[for=zoom{zoom}] {{ outline: 2px solid var(--busy); }}")
    return "\n".join(parts)
