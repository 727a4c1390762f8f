"""One figure, its bound, its target, and the table of all."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Literal

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Target:
    """What a figure must show: its ratio to the bound, or the figure itself, at least or at most so much."""

    of: Literal["ratio", "figure"]
    at: Literal["least", "most"]
    limit: float

    def met(self, figure: float, ratio: float | None) -> bool:
        value = ratio if self.of == "ratio" else figure
        if value is None:
            return False
        return value >= self.limit if self.at == "least" else value <= self.limit

    def __str__(self) -> str:
        sign = "≥" if self.at == "least" else "≤"
        return f"{sign} {self.limit:g}{' x' if self.of == 'ratio' else ''}"


def ratio_at_least(limit: float) -> Target:
    return Target("ratio", "least", limit)


def ratio_at_most(limit: float) -> Target:
    return Target("ratio", "most", limit)


def at_most(limit: float) -> Target:
    return Target("figure", "most", limit)


def at_least(limit: float) -> Target:
    return Target("figure", "least", limit)


@dataclass(frozen=True, slots=True)
class Figure:
    """Several runs of one piece of work, each beside a run of its bound; what counts is the median of each."""

    name: str  #: of the measure, as `--only` takes it
    work: str
    unit: str
    ours: Sequence[float]
    bound: Sequence[float] = ()
    target: Target | None = None
    best: bool = False  #: the least of the runs counts, not the median
    note: str = field(default="")

    @property
    def figure(self) -> float:
        return self._counts(self.ours)

    @property
    def bound_figure(self) -> float | None:
        return self._counts(self.bound) if self.bound else None

    @property
    def ratio(self) -> float | None:
        return self.figure / self.bound_figure if self.bound_figure else None

    @property
    def met(self) -> bool | None:
        """None without a target."""
        return None if self.target is None else self.target.met(self.figure, self.ratio)

    def _counts(self, runs: Sequence[float]) -> float:
        return min(runs) if self.best else median(runs)


def as_json(figures: Sequence[Figure], machine: dict[str, str]) -> str:
    rows = [
        {
            "name": each.name,
            "work": each.work,
            "unit": each.unit,
            "figure": each.figure,
            "bound": each.bound_figure,
            "ratio": each.ratio,
            "target": str(each.target) if each.target else None,
            "met": each.met,
            "note": each.note,
            "runs": list(each.ours),
            "bound_runs": list(each.bound),
        }
        for each in figures
    ]
    return json.dumps({"machine": machine, "figures": rows}, indent=2)


def show(figures: Sequence[Figure], machine: dict[str, str]) -> None:
    table = Table(caption=" · ".join(f"{name} {value}" for name, value in machine.items()), caption_justify="left")
    table.add_column("work")
    for column in ("figure", "bound", "ratio", "target"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("")
    for each in figures:
        table.add_row(
            f"{each.work}, {each.unit}{f' ({each.note})' if each.note else ''}",
            spelt(each.figure),
            "" if each.bound_figure is None else spelt(each.bound_figure),
            "" if each.ratio is None else f"{each.ratio:.2f}",
            "" if each.target is None else str(each.target),
            {True: "[green]ok[/]", False: "[red]missed[/]", None: ""}[each.met],
        )
    Console(width=None if Console().is_terminal else 120).print(table)


def spelt(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
