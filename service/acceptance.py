"""Accepting: how a job's life in Redis begins, and where a payload goes whose job never began one."""

from collections.abc import Iterable, Sequence
from typing import Any

from service.clock import ServerClock
from service.errors import OutcomeUnknown, RedisFull, RedisUnavailable, RetryLater
from service.keys import Keys
from service.records import Entry, Idempotency, Outcome, Scheduled
from service.runner import Runner, chunks
from service.transport import Encodable, Interrupted
from storage_backends.reference import Reference


class Acceptance:
    """The part of the ledger that a producer needs: `Ledger` is this, and all that comes after."""

    def __init__(
        self, runner: Runner, keys: Keys, clock: ServerClock, *, idempotency_ttl_ms: int, stale_after_ms: int
    ) -> None:
        self._runner = runner
        self._keys = keys
        self.clock = clock
        self._idempotency_ttl_ms = idempotency_ttl_ms
        self._stale_after_ms = stale_after_ms

    async def now_ms(self) -> int:
        """Redis's time. Asks Redis if it has not told its time for 5 s; otherwise costs nothing."""
        if self.clock.known_for_s() > 5:
            seconds, micros = (await self._runner.read([("TIME",)]))[0]
            self.clock.learn(int(seconds) * 1000 + int(micros) // 1000)
        return self.clock.now_ms()

    async def schedule(self, queue: str, entries: Sequence[Entry]) -> list[Scheduled | RetryLater]:
        """- -> delayed. The answers in the entries' order; a RetryLater where Redis refused or did not answer.

        Takes the time of one outage, however many entries: behind a chunk for which Redis was away, none is sent.
        """
        answers: list[Scheduled | RetryLater] = []
        away: RetryLater | None = None
        for chunk in chunks(entries, lambda entry: len(entry.body or b"")):
            if away is None:
                some, away = await self._schedule_chunk(queue, chunk)
                answers += some
            else:
                answers += [_not_sent(away)] * len(chunk)
        return answers

    async def _schedule_chunk(
        self, queue: str, entries: Sequence[Entry]
    ) -> tuple[Sequence[Scheduled | RetryLater], RetryLater | None]:
        """The answers, and the error, if any, that says that Redis is still away."""
        try:
            return await self._schedule(queue, entries, repeat=False), None
        except Interrupted:
            return await self._settled(queue, entries)
        except RetryLater as error:
            return [error] * len(entries), error if isinstance(error, RedisUnavailable) else None

    async def _settled(
        self, queue: str, entries: Sequence[Entry]
    ) -> tuple[Sequence[Scheduled | RetryLater], RetryLater | None]:
        """After an answer that was not seen: the keyed are repeated, the others looked up; none while Redis is away."""
        keyed = [entry for entry in entries if entry.idempotency]
        bare = [entry for entry in entries if not entry.idempotency]
        found: dict[Reference, Scheduled | RetryLater] = {}
        away: RetryLater | None = None
        try:
            found |= await self._again(queue, keyed) if keyed else {}
            found |= await self._found(queue, bare) if bare else {}
        except RedisUnavailable as error:
            away = error
        return [found.get(entry.reference) or unknown(entry.reference, away) for entry in entries], away

    async def _again(self, queue: str, keyed: Sequence[Entry]) -> dict[Reference, Scheduled | RetryLater]:
        """A key that holds the entry's own reference is success, so that these can be repeated."""
        try:
            answers = await self._schedule(queue, keyed, repeat=True)
        except RedisFull as error:  # by now: the first try may have been carried out
            return {entry.reference: unknown(entry.reference, error) for entry in keyed}
        return {entry.reference: answer for entry, answer in zip(keyed, answers, strict=True)}

    async def _found(self, queue: str, entries: Sequence[Entry]) -> dict[Reference, Scheduled | RetryLater]:
        """Found = done; not found = unknown: it may be delivered already, or the request may still be on its way."""
        stand = await self._runner.run("standing", queue, [str(entry.reference) for entry in entries])
        return {
            entry.reference: Scheduled(Outcome.SCHEDULED, entry.reference, entry.reason)
            for entry, stands in zip(entries, stand, strict=True)
            if stands
        }

    async def _schedule(self, queue: str, entries: Sequence[Entry], *, repeat: bool) -> list[Scheduled]:
        keys = self._keys.queue(queue)
        markers: list[str] = []
        arguments: list[Encodable] = ["", queue, self._keys.wake, self._idempotency_ttl_ms, self._stale_after_ms]
        for entry in entries:
            reference, idempotency = entry.reference, entry.idempotency
            markers.append(keys.cancelled(reference.uuid))
            if idempotency:
                markers.append(idempotency.key)
            arguments += (
                str(reference),
                reference.uuid,
                reference.ts_ms,
                "" if entry.put_at_ms is None else entry.put_at_ms,
                entry.body or b"",
                entry.reason,
                idempotency.fingerprint if idempotency else "",
            )
        now, *outcomes = await self._runner.run("schedule", queue, arguments, more_keys=markers, repeat=repeat)
        self.clock.learn(now)
        return [_scheduled(entry, outcome) for entry, outcome in zip(entries, outcomes, strict=True)]

    async def idempotent(self, keys: Sequence[Idempotency]) -> list[Scheduled | None]:
        """What each key holds: the first job, REPLAYED or REUSED; None if it is free. Looks only: schedule decides."""
        held: list[bytes | None] = []
        for chunk in chunks(keys):
            held += await self._runner.read([("GET", each.key) for each in chunk])
        return [_first(each, text) if text else None for each, text in zip(keys, held, strict=True)]

    async def discard(self, queue: str, references: Iterable[Reference], *, wait_ms: int = 0) -> None:
        """- -> trash, or later in the trash: payloads that no job needs, tried in `wait_ms`. Others are left alone."""
        for chunk in chunks(list(references)):
            await self._runner.run("discard", queue, ["", queue, wait_ms, *map(str, chunk)])


def _scheduled(entry: Entry, outcome: Any) -> Scheduled:
    if isinstance(outcome, bytes):
        return Scheduled(Outcome(outcome.decode()), entry.reference, entry.reason)
    kind, held = (part.decode() for part in outcome)
    reference, reason, _ = held.split("\n", 2)
    return Scheduled(Outcome(kind), Reference.parse(reference), reason)


def _first(idempotency: Idempotency, held: bytes) -> Scheduled:
    reference, reason, fingerprint = held.decode().split("\n", 2)
    outcome = Outcome.REPLAYED if fingerprint == idempotency.fingerprint else Outcome.REUSED
    return Scheduled(outcome, Reference.parse(reference), reason)


def _not_sent(cause: Exception) -> RedisUnavailable:
    error = RedisUnavailable("Redis was away a moment ago; this was not sent")
    error.__cause__ = cause
    return error


def unknown(reference: Reference, cause: Exception | None) -> OutcomeUnknown:
    error = OutcomeUnknown("Redis did not answer; the request may have been carried out", reference=reference)
    error.__cause__ = cause
    return error
