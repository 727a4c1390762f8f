"""The report as one HTML file: nothing is loaded from anywhere, and no script runs. Names are escaped."""

from collections.abc import Sequence
from html import escape
from math import log1p
from typing import Final

from service.advisor import figures
from service.advisor.distribution import DELAY_BANDS, SIZE_BANDS, Cell, row
from service.advisor.grid import Outcome
from service.advisor.report import Report
from service.units import format_duration

_WIDE, _HIGH, _LEFT, _TOP = 104, 40, 92, 30  #: of a cell of the heat map, and of its heads, px
_SETS: Final = 50  #: in the table of sets at most

_STYLE: Final = """
:root { color-scheme: light dark; --ink: light-dark(#1b1f24, #e6e9ee); --dim: light-dark(#5c6670, #9aa5b1);
  --line: light-dark(#d5dae0, #3a424c); --heat: light-dark(#c2410c, #fb923c); --page: light-dark(#fff, #14171b) }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page); max-width: 72rem;
  margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.1rem; margin-top: 2rem }
table { border-collapse: collapse } th, td { padding: .25rem .8rem .25rem 0; text-align: right;
  border-bottom: 1px solid var(--line); font-variant-numeric: tabular-nums }
th:first-child, td:first-child { text-align: left } tr.chosen { font-weight: 700 }
small, .dim { color: var(--dim) } pre { border: 1px solid var(--line); padding: .8rem; overflow-x: auto }
.wide { overflow-x: auto } svg text { fill: var(--ink); font: 12px system-ui, sans-serif } svg .dim { fill: var(--dim) }
svg rect { fill: var(--heat); stroke: var(--line) }
"""


def page(report: Report) -> str:
    """All of it."""
    parts = [
        "<h1>Delayed payloads in Redis</h1>",
        _summary(report),
        "<h2>Delay and size</h2>",
        f'<p class="dim">Payload bytes by delay (down) and size (across). {_sureness(report)}</p>',
        f'<div class="wide">{heat_map(report.cells)}</div>',
        "<h2>Thresholds</h2>",
        f'<div class="wide">{_grid(report)}</div>',
        "<h2>Settings</h2>",
        f"<pre>{_settings(report)}</pre>",
        "<h2>Delayed sets</h2>",
        f'<div class="wide">{_sets(report)}</div>',
    ]
    if report.problems:
        parts += ["<h2>What does not fit</h2>", _list(report.problems)]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>Coatcheck: delayed payloads</title><style>{_STYLE}</style></head><body>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def heat_map(cells: Sequence[Cell]) -> str:
    """An SVG: the more bytes in a cell, the darker; its interval shows when the pointer rests on it."""
    most = max((cell.payload_bytes.point for cell in cells), default=0.0)
    wide, high = _LEFT + _WIDE * len(SIZE_BANDS), _TOP + _HIGH * len(DELAY_BANDS)
    drawn = [f'<svg viewBox="0 0 {wide} {high}" width="{wide}" height="{high}" role="img" aria-label="delay by size">']
    for at, size in enumerate(SIZE_BANDS):
        drawn.append(_text(_LEFT + _WIDE * (at + 0.5), _TOP - 10, figures.sizes(size), "middle"))
    for down, delay in enumerate(DELAY_BANDS):
        drawn.append(_text(_LEFT - 10, _TOP + _HIGH * (down + 0.6), figures.delays(delay), "end"))
        drawn += [_cell(cell, across, down, most) for across, cell in enumerate(row(cells, delay))]
    return "".join([*drawn, "</svg>"])


def _cell(cell: Cell, across: int, down: int, most: float) -> str:
    x, y, value = _LEFT + _WIDE * across, _TOP + _HIGH * down, cell.payload_bytes.point
    shade = 0.75 * log1p(999 * value / most) / log1p(999) if most else 0.0
    told = (
        f"{figures.spread(cell.payload_bytes, figures.size)} in {figures.spread(cell.jobs, figures.count)} jobs, "
        f"delay {figures.delays(cell.delay_ms)}, size {figures.sizes(cell.size_bytes)}"
    )
    drawn = f'<rect x="{x}" y="{y}" width="{_WIDE}" height="{_HIGH}" fill-opacity="{shade:.3f}"/>'
    if cell.jobs.point:
        drawn += _text(x + _WIDE / 2, y + _HIGH * 0.45, figures.size(value), "middle")
        drawn += _text(x + _WIDE / 2, y + _HIGH * 0.85, f"{figures.count(cell.jobs.point)} jobs", "middle", dim=True)
    return f"<g><title>{escape(told)}</title>{drawn}</g>"


def _text(x: float, y: float, text: str, anchor: str, *, dim: bool = False) -> str:
    kind = ' class="dim"' if dim else ""
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}"{kind}>{escape(text)}</text>'


def _summary(report: Report) -> str:
    memory = report.survey.memory
    used = max(1, memory.used_bytes)
    share = figures.spread(report.payload_bytes.times(1 / used), figures.percent)
    return (
        f"<p>Redis uses {figures.size(memory.used_bytes)}. "
        f"{figures.spread(report.delayed_jobs, figures.count)} delayed jobs hold "
        f"{figures.spread(report.held_bytes, figures.size)} of it; their payloads are "
        f"{figures.spread(report.payload_bytes, figures.size)}, <strong>{share}</strong> of its memory.</p>"
    )


def _sureness(report: Report) -> str:
    sample = report.survey.sample
    return f"{sample.size:,} of {sample.population:,} jobs were read; in brackets stands what is 95% sure."


def _grid(report: Report) -> str:
    heads = ("inline_max_bytes", "inline_max_delay", "left in Redis", "PUT and GET a month, each", "$ a month")
    rows = [_row(it, chosen=it is report.advice.outcome) for it in (report.inline, *report.grid)]
    return f"<table><tr>{''.join(f'<th>{head}</th>' for head in heads)}</tr>{''.join(rows)}</table>"


def _row(outcome: Outcome, *, chosen: bool) -> str:
    pair = outcome.thresholds
    cells = [
        figures.threshold(pair.inline_max_bytes) if pair else "all in Redis",
        format_duration(pair.inline_max_delay_ms) if pair else "",
        figures.spread(outcome.redis_bytes, figures.size),
        figures.spread(outcome.offloaded_a_month, figures.count),
        figures.spread(outcome.dollars, figures.money),
    ]
    return f"<tr{' class=chosen' if chosen else ''}>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"


def _settings(report: Report) -> str:
    return escape("\n".join(f"{name}={value}" for name, value in report.advice.settings.items()))


def _sets(report: Report) -> str:
    rows = [
        f"<tr><td>{escape(it.layout)}</td><td>{_name(it.queue)}</td><td>{_name(it.key)}</td><td>{it.jobs:,}</td><td>{read:,}</td></tr>"
        for it, read in report.survey.sets[:_SETS]
    ]
    more = len(report.survey.sets) - _SETS
    rows += [f'<tr><td colspan="5">and {more:,} more</td></tr>'] if more > 0 else []
    return f"<table><tr><th>layout</th><th>queue</th><th>key</th><th>jobs</th><th>read</th></tr>{''.join(rows)}</table>"


def _name(text: str) -> str:
    return escape(figures.name(text))


def _list(lines: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{_name(line)}</li>' for line in lines)}</ul>"
