"""What `inspect` found, for people and for machines. Times are the user's own, and how far away they are."""

from collections.abc import Mapping, Sequence
from textwrap import indent
from typing import Any

from service.cli import show
from service.inspector.answers import Entry, Fact, JobDetail, Problem, QueueDetail, QueueSummary, StateDetail, plain
from service.inspector.causes import CAUSES, cause_of
from service.inspector.inspector import Found, Overview, QueueProblems
from service.inspector.payloads import Payload, text_cut
from service.inspector.times import Moment, local, relative


class Shown:
    """Writes one look to standard output."""

    def __init__(self, now_ms: int, *, as_json: bool, redraws: bool = False) -> None:
        self._now_ms = now_ms
        self._as_json = as_json
        self._redraws = redraws

    def overview(self, told: Overview) -> None:
        found = told.found
        if self._as_json:
            more = {"keys_looked_at": found.keys, "keys": found.total_keys, "unlisted": found.unlisted}
            show.as_json({"now": str(told.now), **more, "queues": plain(list(told.summaries))})
            return
        self._begin()
        for layout in dict.fromkeys(each.layout for each in told.summaries):
            summaries = [each for each in told.summaries if each.layout == layout]
            show.line(layout)
            self._summaries(summaries)
        if not told.summaries:
            show.line("No queue was found.")
        self._incomplete(found)

    def queues(self, told: Sequence[QueueDetail], queue: str) -> None:
        if self._nothing(told, f"no such queue: {text_cut(queue)}; `coatcheck inspect` lists those that there are"):
            return
        for detail in told:
            self._queue(detail)

    def jobs(self, told: Sequence[JobDetail], queue: str, id_: str) -> None:
        """A job that is nowhere was delivered, finished or removed, or never was: Redis does not tell which."""
        nowhere = "delivered, finished or removed, or it never was there: Redis does not tell which"
        if self._nothing(told, f"no job {text_cut(id_)} in {text_cut(queue)}; {nowhere}"):
            return
        for job in told:
            self._job(job)

    def problems(self, told: Sequence[QueueProblems], queue: str | None, found: Found | None = None) -> None:
        """`found`: among which queues these were sought, if all were."""
        if self._as_json:
            show.as_json([{**plain(each), "problems": list(map(_explained, each.problems))} for each in told])
        else:
            self._begin()
            self._problems(told, queue)
        if found is not None:
            self._incomplete(found)

    # ---- parts -----------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        if self._redraws:
            show.clear()
            show.line(local(self._now_ms))

    def _incomplete(self, found: Found) -> None:
        """What was not looked at, beside the result."""
        if found.keys < found.total_keys:
            show.note(
                f"Names of {found.keys:,} of {found.total_keys:,} keys were looked at; a small queue that is in no "
                "registry may be missing. --all-keys looks at all."
            )
        if found.unlisted:
            show.note(
                f"{found.unlisted:,} queues more were found, and not looked at: name one, or a --layout, to see them."
            )

    def _nothing(self, told: Sequence[Any], what: str) -> bool:
        """Whether that was all. Otherwise, for machines, it is all told."""
        if not told:
            show.problem({"title": "Not here", "detail": what}, as_json=self._as_json)
        elif self._as_json:
            show.as_json(plain(list(told)))
        else:
            self._begin()
        return not told or self._as_json

    def _summaries(self, summaries: Sequence[QueueSummary]) -> None:
        states = list(dict.fromkeys(_column(state) for each in summaries for state in each.states))
        rows = [
            {
                "queue": text_cut(each.queue),
                **{_column(state): "?" if count is None else count for state, count in each.states.items()},
                "paused": each.paused,
                "oldest_due": self._text(each.oldest_due),
                "next_due": self._text(each.next_due),
                "problems": "; ".join(dict.fromkeys(f"{it.kind}: {it.detail}" for it in each.problems)),
            }
            for each in summaries
        ]
        columns = ["queue", *states, "paused", "oldest_due", "next_due", "problems"]
        show.table([name for name in columns if name != "problems" or any(row["problems"] for row in rows)], rows)

    def _problems(self, told: Sequence[QueueProblems], queue: str | None) -> None:
        rows = [
            {"layout": each.layout, "queue": text_cut(each.queue), **self._problem(problem)}
            for each in told
            for problem in each.problems
        ]
        if not rows:
            show.line("Nothing was found that does not fit." if queue is None else f"{text_cut(queue)}: all fits.")
            return
        show.table(["layout", "queue", "problem", "count", "detail", "since", "ids"], rows)
        self._explain([problem for each in told for problem in each.problems])

    def _queue(self, detail: QueueDetail) -> None:
        show.line(f"{detail.summary.layout}: {text_cut(detail.summary.queue)}")
        self._summaries([detail.summary])
        show.fields({name: self._text(fact) for name, fact in detail.facts.items()}, machine=False)
        for state in detail.states:
            count = "cannot be counted" if state.count is None else f"{state.count:,}"
            show.line(f"\n{state.state}: {count}   {text_cut(state.key)}")
            if state.head or state.tail:
                self._state(state)
        self._listed(detail.problems)

    def _state(self, state: StateDetail) -> None:
        shown = len(state.head) + len(state.tail)
        rows = [self._entry(each, state) for each in state.head]
        if state.count is not None and state.count > shown and state.tail:
            rows.append({"id": f"… {state.count - shown:,} more …"})
        rows += [self._entry(each, state) for each in state.tail]
        columns = list(dict.fromkeys(name for row in rows for name in row))
        show.table(columns, rows)

    def _entry(self, entry: Entry, state: StateDetail) -> dict[str, Any]:
        at = {} if state.at_is is None else {state.at_is: self._text(entry.at) if entry.at else "no time"}
        return {"id": text_cut(entry.id), **at, **{name: self._text(fact) for name, fact in entry.facts.items()}}

    def _job(self, job: JobDetail) -> None:
        show.line(f"{job.layout}: {text_cut(job.queue)}: {text_cut(job.id)}")
        agree = {None: "nothing to compare", True: "agree", False: "DISAGREE"}[job.agrees]
        told = {
            "state": job.state or "in nothing that was looked at",
            "record says": job.record_state,
            "place and record": agree,
        }
        times = {name: self._text(at) for name, at in job.times.items()}
        record = {name: self._text(fact) for name, fact in job.record.items()}
        show.fields(
            {name: value for name, value in (told | times | record).items() if value is not None}, machine=False
        )
        for place in job.places:
            at = f"   {place.at_is or ''} {self._text(place.at)}" if place.at else ""
            position = "" if place.position is None else f"   number {place.position + 1:,} from the end that is taken"
            show.line(f"in {place.state}: {text_cut(place.key)}{at}{position}")
        for unsought in job.unsought:
            show.line(f"in {unsought.state}: {text_cut(unsought.key)}   {unsought}")
        for name, payload in job.payloads.items():
            show.line(f"\n{name}: {_described(payload)}")
            if payload.shown:
                show.line(_set_apart(payload.shown))
        self._listed(job.problems)

    def _listed(self, problems: Sequence[Problem]) -> None:
        if problems:
            show.line("")
            show.table(["problem", "count", "detail", "since", "ids"], map(self._problem, problems))
            self._explain(problems)

    def _problem(self, problem: Problem) -> dict[str, Any]:
        since = self._text(problem.since)
        ids = ", ".join(map(text_cut, problem.ids))
        return {"problem": problem.kind, "count": problem.count, "detail": problem.detail, "since": since, "ids": ids}

    def _explain(self, problems: Sequence[Problem]) -> None:
        for kind in dict.fromkeys(problem.kind for problem in problems):
            cause = cause_of(kind)
            show.line(f"{kind}: {cause.means}\n    Usually: {cause.usually}")

    def _text(self, fact: Fact) -> Any:
        """A cell."""
        if isinstance(fact, Moment):
            return f"{local(fact.ms)} ({relative(fact.ms, self._now_ms)})"
        if isinstance(fact, Payload):
            return f"{text_cut(fact.shown, 60)} [{_described(fact)}]"
        if isinstance(fact, Mapping):
            return " · ".join(f"{text_cut(name)} {self._text(each)}" for name, each in fact.items())
        return text_cut(fact) if isinstance(fact, str) else fact


def _described(payload: Payload) -> str:
    kind = {"unread": "too large to be read", "binary": "binary, in hexadecimal"}.get(payload.kind, payload.kind)
    return f"{kind}, {payload.size_bytes:,} bytes{', cut' if payload.cut and payload.shown else ''}"


def _set_apart(shown: str) -> str:
    """Indented, so that no line of a payload passes for one of ours; a carriage return would write over another."""
    return indent(shown.replace("\r\n", "\n").replace("\r", "\\r"), "  ", lambda _: True)


def _column(state: str) -> str:
    """BullMQ has a list `paused`, which holds ids whether or not the queue is paused."""
    return f"in {state}" if state == "paused" else state


def _explained(problem: Problem) -> dict[str, Any]:
    cause = CAUSES[problem.kind]
    return {**plain(problem), "means": cause.means, "usually": cause.usually}
