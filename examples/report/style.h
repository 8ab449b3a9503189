// The style sheet of the report page: one set of named colours per theme, everything else refers to them.
#pragma once

#include <string_view>

namespace whence::report {

inline constexpr std::string_view style_sheet = R"css(
:root {
  color-scheme: light; --dark: 0;
  --page: #ffffff; --raised: #f6f7f9; --ink: #1b1f24; --soft: #59636e; --rule: #d5dae1; --accent: #0b57d0; --mark: #fff1b8;
  --hatch: #c3cad3; --masked: #f3f5f7;
  --c0: #0060a8; --c1: #b84a00; --c2: #00785a; --c3: #a3357f; --c4: #5b4db8; --c5: #7a6200; --c6: #1b1f24;
}
:root[data-theme="dark"] {
  color-scheme: dark; --dark: 1;
  --page: #14171b; --raised: #1d2127; --ink: #e8ebef; --soft: #a3adb9; --rule: #39414b; --accent: #8ab8ff; --mark: #4a3f12;
  --hatch: #4c5663; --masked: #14171b;
  --c0: #6cb6ff; --c1: #ff9d5c; --c2: #4fd1a5; --c3: #f08bcb; --c4: #b3a6ff; --c5: #e3c64a; --c6: #e8ebef;
}
/* The same dark colours for a reader without script, where data-theme stays unset. */
@media (prefers-color-scheme: dark) {
  :root:not([data-theme]) {
    color-scheme: dark; --dark: 1;
    --page: #14171b; --raised: #1d2127; --ink: #e8ebef; --soft: #a3adb9; --rule: #39414b; --accent: #8ab8ff; --mark: #4a3f12;
    --hatch: #4c5663; --masked: #14171b;
    --c0: #6cb6ff; --c1: #ff9d5c; --c2: #4fd1a5; --c3: #f08bcb; --c4: #b3a6ff; --c5: #e3c64a; --c6: #e8ebef;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 20px 20px 60px; max-width: 1900px; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif;
}
h1 { font-size: 26px; line-height: 1.25; margin: 0 0 8px; }
h2 { font-size: 20px; margin: 36px 0 6px; }
h3 { font-size: 16px; margin: 26px 0 4px; }
h4 { font-size: 14.5px; margin: 0; }
p { margin: 0 0 8px; max-width: 88ch; }
.soft, .note, figcaption, footer { color: var(--soft); }
.top { display: flex; gap: 24px; justify-content: space-between; align-items: flex-start; }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }

/* Result tables */
.tables { display: flex; flex-wrap: wrap; gap: 4px 40px; align-items: flex-start; }
.tables section { max-width: 100%; }
.scroll { overflow-x: auto; max-width: 100%; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 4px 14px 4px 0; text-align: left; border-bottom: 1px solid var(--rule); vertical-align: top; }
th { font-weight: 600; }
thead th { border-bottom: 2px solid var(--ink); white-space: nowrap; vertical-align: bottom; }
th.n, td.n { text-align: right; padding-left: 14px; white-space: nowrap; }

/* Plots */
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 520px), 1fr)); gap: 8px 32px; }
.plots figure { margin: 0; max-width: 820px; }
svg { display: block; width: 100%; height: auto; }
svg text { font: 12px system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif; fill: var(--ink); }
svg .tick { fill: var(--soft); font-variant-numeric: tabular-nums; }
svg .middle { text-anchor: middle; }
svg .end { text-anchor: end; }
svg .axis { stroke: var(--ink); }
svg .grid { stroke: var(--rule); }
svg .leader { stroke: var(--soft); stroke-width: .7; }
svg .curve { fill: none; stroke-width: 2; stroke-linejoin: round; }
svg .c0 { stroke: var(--c0); } svg .c1 { stroke: var(--c1); } svg .c2 { stroke: var(--c2); } svg .c3 { stroke: var(--c3); }
svg .c4 { stroke: var(--c4); } svg .c5 { stroke: var(--c5); } svg .c6 { stroke: var(--c6); }
svg .d1 { stroke-dasharray: 8 4; } svg .d2 { stroke-dasharray: 2 3; } svg .d3 { stroke-dasharray: 10 3 2 3; }
svg .d4 { stroke-dasharray: 5 2; stroke-width: 1.3; } svg .d5 { stroke-dasharray: 14 3 2 3 2 3; stroke-width: 1.5; }

/* Viewer: control bar with the value under the cursor, kept in sight while scrolling */
.bar {
  position: sticky; top: 0; z-index: 2; margin: 12px -20px 14px; padding: 8px 20px; background: var(--raised);
  border: solid var(--rule); border-width: 1px 0;
}
.controls { display: flex; flex-wrap: wrap; gap: 6px 18px; align-items: center; }
.controls label, .top label { display: inline-flex; gap: 6px; align-items: center; white-space: nowrap; }
select, input, button { font: inherit; color: inherit; }
select { padding: 2px 6px; border: 1px solid var(--rule); border-radius: 5px; background: var(--page); max-width: 60vw; }
input[type="range"] { width: 120px; accent-color: var(--accent); }
input[type="checkbox"] { accent-color: var(--accent); width: 15px; height: 15px; margin: 0; }
[hidden] { display: none !important; }
#readout { margin-top: 6px; min-height: 1.5em; font-variant-numeric: tabular-nums; }
#readout b { font-weight: 600; }
#readout span { white-space: nowrap; margin-left: 8px; }

/* Panels: the three rows of every panel (name, equation, map) line up across the grid */
.panels { display: grid; gap: 18px 16px; grid-template-columns: repeat(var(--across, 1), minmax(0, 1fr)); }
.panel { display: grid; grid-template-rows: subgrid; grid-row: span 3; gap: 2px; align-content: start; min-width: 0; }
.panel header { display: flex; justify-content: space-between; gap: 4px 12px; align-items: baseline; flex-wrap: wrap; }
.panel header output { font-weight: 600; font-variant-numeric: tabular-nums; white-space: nowrap; }
.panel figcaption { font-size: 13px; line-height: 1.4; text-wrap: pretty; }
.panel .range { white-space: nowrap; }
.frame { overflow: auto; max-width: 100%; max-height: 92vh; }
canvas { display: block; cursor: crosshair; touch-action: manipulation; }
.frame canvas:focus-visible { outline-offset: -2px; }

/* All layers and heads */
.multiples { display: grid; gap: 10px 12px; justify-content: start; overflow-x: auto; padding: 3px; }
.multiples button {
  display: block; padding: 5px; text-align: left; border: 1px solid var(--rule); border-radius: 6px; background: none; cursor: pointer;
  font-size: 13px; line-height: 1.35; font-variant-numeric: tabular-nums;
}
.multiples button[aria-pressed="true"] { border-color: var(--accent); box-shadow: 0 0 0 2px var(--accent); }
.multiples button[aria-pressed="true"] .where::after { content: " (shown above)"; font-weight: 400; }
.multiples .where { font-weight: 600; display: block; }
.multiples .what { display: block; color: var(--soft); white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }

/* The selected row */
.row { display: grid; grid-template-columns: minmax(0, 1fr) minmax(0, auto); gap: 8px 28px; align-items: start; }
.strips svg { cursor: crosshair; margin-bottom: 4px; }
.strips .stem { stroke: var(--rule); }
.strips .trace { fill: none; stroke: var(--c0); stroke-width: 1.4; }
.strips .dot { fill: var(--c0); }
.strips .follow { stroke: var(--c1); stroke-width: 1.2; stroke-dasharray: 3 2; }
.strips .now { font-weight: 600; }
.strips .token { font: 11px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; }
.list { max-height: 620px; overflow: auto; border: 1px solid var(--rule); border-radius: 6px; max-width: 100%; }
.list table { font-size: 13px; }
.list th, .list td { padding: 1px 12px; white-space: nowrap; border-bottom: 0; }
.list thead th { position: sticky; top: 0; background: var(--raised); border-bottom: 1px solid var(--rule); padding: 4px 12px; }
.list tbody tr { cursor: pointer; }
.list tbody tr[aria-current="true"] { background: var(--mark); outline: 1px solid var(--ink); outline-offset: -1px; }
code, .token { font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; }
kbd { font: 12px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; border: 1px solid var(--rule); border-radius: 4px; padding: 0 4px; }
details { margin: 14px 0; }
summary { cursor: pointer; }
footer { margin-top: 40px; border-top: 1px solid var(--rule); padding-top: 10px; font-size: 13.5px; }
@media (max-width: 1000px) { .row { grid-template-columns: minmax(0, 1fr); } .list { max-height: 360px; } }
@media (max-width: 900px) { th, td { padding-right: 8px; } th.n, td.n { padding-left: 8px; } }
@media print { .bar { position: static; } .controls, .top label { display: none; } }
)css";

}  // namespace whence::report
