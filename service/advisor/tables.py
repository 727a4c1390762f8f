"""The report for a terminal: rows of texts, by column."""

from service.advisor import figures
from service.advisor.distribution import DELAY_BANDS, Cell, row
from service.advisor.grid import Outcome
from service.advisor.report import Report
from service.units import format_duration

Row = dict[str, str]


def summary(report: Report) -> Row:
    """What it is about, and how sure it is."""
    memory, sample = report.survey.memory, report.survey.sample
    used = max(1, memory.used_bytes)
    most = f" of at most {figures.size(memory.max_bytes)}" if memory.max_bytes else ""
    unrecorded = figures.spread(report.unrecorded, figures.count)
    return {
        "Redis_memory": f"{figures.size(memory.used_bytes)}{most}",
        "delayed_jobs": f"{figures.spread(report.delayed_jobs, figures.count)} in {len(report.survey.sets):,} sets",
        "sample": f"{sample.size:,} of {sample.population:,}; in brackets stands what is 95% sure",
        "delayed_payload": figures.spread(report.payload_bytes, figures.size),
        "share_of_memory": figures.spread(report.payload_bytes.times(1 / used), figures.percent),
        "with_overhead": f"{figures.spread(report.held_bytes, figures.size)}, "
        f"{figures.spread(report.held_bytes.times(1 / used), figures.percent)}",
        "costs_a_month": figures.spread(report.dollars, figures.money),
        "delay_not_recorded": f"{unrecorded} jobs, taken for what is left of it"
        if report.unrecorded.high
        else "0 jobs",
    }


def sets(report: Report, most: int) -> list[Row]:
    """The longest."""
    return [
        {
            "layout": it.layout,
            "queue": figures.name(it.queue),
            "key": figures.name(it.key),
            "jobs": f"{it.jobs:,}",
            "read": f"{read:,}",
        }
        for it, read in report.survey.sets[:most]
    ]


def distribution(report: Report) -> list[Row]:
    """A row for each band of delays, a column for each of sizes: bytes and jobs. Bands that are empty are left out."""
    some = [cell for cell in report.cells if cell.jobs.point]
    delays, sizes = {cell.delay_ms for cell in some}, {cell.size_bytes for cell in some}
    return [
        {"delay": figures.delays(delay)}
        | {figures.sizes(it.size_bytes): _cell(it) for it in row(report.cells, delay) if it.size_bytes in sizes}
        for delay in DELAY_BANDS
        if delay in delays
    ]


def _cell(cell: Cell) -> str:
    if not cell.jobs.point:
        return ""
    return f"{figures.size(cell.payload_bytes.point)} · {figures.count(cell.jobs.point)}"


def grid(report: Report) -> list[Row]:
    """A row for each pair of thresholds, the chosen one marked."""
    return [{"": "►" if it is report.advice.outcome else ""} | _outcome(it) for it in (report.inline, *report.grid)]


def _outcome(outcome: Outcome) -> Row:
    pair = outcome.thresholds
    return {
        "inline_max_bytes": figures.threshold(pair.inline_max_bytes) if pair else "all in Redis",
        "inline_max_delay": format_duration(pair.inline_max_delay_ms) if pair else "",
        "left_in_Redis": figures.spread(outcome.redis_bytes, figures.size),
        "PUT_and_GET_a_month,_each": figures.spread(outcome.offloaded_a_month, figures.count),
        "$_a_month": figures.spread(outcome.dollars, figures.money),
    }


def advice(report: Report) -> str:
    """The settings, ready to paste, and what they would save."""
    if report.nothing_read:
        return "# None of these jobs could be read: there is nothing to go by."
    chosen = report.advice
    saving = figures.spread(chosen.outcome.saving, figures.money)
    if chosen.outcome.thresholds is None:
        told = "# Offloading would not pay: it is cheapest to keep these payloads in Redis."
    elif not chosen.fits:
        told = "# No pair of the grid leaves as little in Redis as asked for; this one leaves least."
    else:
        told = f"# The cheapest of the grid; saves {saving} a month."
    unsure = "" if chosen.sure else "\n# The sample is too small to be sure of that: take a larger --sample."
    return "\n".join([told + unsure, *(f"export {name}={value}" for name, value in chosen.settings.items())])
