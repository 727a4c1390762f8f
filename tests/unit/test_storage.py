"""Metered, Guarded and Bulkhead around a backend in memory whose faults the test chooses, in a time of its own."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from itertools import count

import pytest
from hypothesis import given, strategies as st

from service.bounded import NoRoom
from service.breaker import Policy
from service.bulkhead import Bulkhead
from service.catalogue import FAILURE_KINDS, OPERATIONS, STORAGE_OUTCOMES
from service.guarded import BreakerOpen, Guarded, Verdict
from service.storage import Metered
from storage_backends.base import (
    AccessDenied,
    Admit,
    Misconfigured,
    Ownership,
    PayloadCorrupt,
    PayloadMissing,
    Scannable,
    StorageBackend,
    StorageUnavailable,
    Stored,
)
from storage_backends.reference import Reference, new_uuid
from tests.kit.waiting import eventually


class StoppedClock:
    """Moves when the test says so."""

    def __init__(self) -> None:
        self.at_s = 1_000.0

    def now_ms(self) -> int:
        return int(self.at_s * 1_000)

    def monotonic_s(self) -> float:
        return self.at_s


class Shelf:
    """Payloads in a dict. Calls wait at `gate`, then raise what `faults` has for them."""

    name, inline, concurrency, inflight_bytes = "shelf", False, 4, 1_000

    def __init__(self) -> None:
        self.payloads: dict[Reference, bytes] = {}
        self.faults: dict[object, Exception] = {}  #: an operation, or (operation, reference) -> what it raises
        self.calls: list[str] = []
        self.gate = asyncio.Event()  #: where all calls wait
        self.gate.set()
        self.gates: dict[str, asyncio.Event] = {}  #: where calls of one operation wait
        self.owner: str | None = None  #: whose place it is; None: whoever starts it

    async def called(self, operation: str, reference: Reference | None = None) -> None:
        self.calls.append(operation)
        await self.gates.get(operation, self.gate).wait()
        fault = self.faults.get((operation, reference)) or self.faults.get(operation)
        if fault is not None:
            raise fault

    async def start(self, installation: str) -> Ownership:
        await self.called("start")
        owner = self.owner or installation
        return Ownership(owner, ours=owner == installation)

    async def put(self, reference: Reference, payload: bytes) -> None:
        await self.called("put", reference)
        self.payloads[reference] = payload

    async def get(self, reference: Reference, admit: Admit | None = None) -> bytes:
        await self.called("get", reference)
        if reference not in self.payloads:
            raise PayloadMissing("not there", backend=self.name, reference=reference)
        if admit is not None:
            await admit(len(self.payloads[reference]))
        return self.payloads[reference]

    async def delete(self, references: Sequence[Reference]) -> None:
        await self.called("delete")
        for reference in references:
            self.payloads.pop(reference, None)

    async def check(self) -> None:
        await self.called("check")

    async def aclose(self) -> None:
        self.calls.append("aclose")


class Archive(Shelf):
    """A shelf that can be scanned."""

    async def scan(self, days: Iterable[str] | None = None) -> AsyncIterator[Stored]:
        await self.called("scan")
        for reference, payload in self.payloads.items():
            yield Stored(reference, len(payload), 0)


def a_reference() -> Reference:
    return Reference("shelf", "mail", 1_764_547_200_000, new_uuid())


def away(**how: bool) -> StorageUnavailable:
    return StorageUnavailable("503", backend="shelf", **how)


def denied() -> AccessDenied:
    return AccessDenied("403", backend="shelf")


@pytest.fixture
def clock() -> StoppedClock:
    return StoppedClock()


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def changes() -> list[tuple[str, str]]:
    """State and cause, as the listener is told."""
    return []


@pytest.fixture
async def impatient(shelf, clock) -> AsyncIterator[Guarded]:
    """Gives up on what hangs at once."""
    guarded = Guarded(shelf, clock, fetch_timeout_s=0.01, put_timeout_s=0.01, check_timeout_s=0.01)
    yield guarded
    await guarded.aclose()


@pytest.fixture
async def guarded(shelf, clock, changes) -> AsyncIterator[Guarded]:
    guarded = Guarded(
        shelf,
        clock,
        on_change=lambda backend, state, cause: changes.append((state, type(cause).__name__)),
    )
    yield guarded
    await guarded.aclose()


async def failing_get(guarded: Guarded, reference: Reference | None = None) -> Verdict:
    """Fetches, which must fail, and returns the verdict: the dispatcher's two calls."""
    reference = reference or a_reference()
    with pytest.raises(Exception) as error:  # noqa: PT011  # which one is the test's affair
        await guarded.get(reference)
    return await guarded.judge(reference, error.value)


class TestVerdicts:
    async def test_a_payload_comes_through_unchanged(self, guarded):
        reference = a_reference()
        await guarded.put(reference, b"coat")
        assert await guarded.get(reference) == b"coat"

    @pytest.mark.parametrize("error", [PayloadMissing("", backend="shelf"), PayloadCorrupt("", backend="shelf")])
    async def test_missing_and_corrupt_are_buried_and_ask_no_check(self, guarded, shelf, error):
        shelf.faults["get"] = error
        for _ in range(10):
            assert await failing_get(guarded) == Verdict("bury", error.kind)
        assert guarded.state == "closed"
        assert "check" not in shelf.calls

    @pytest.mark.parametrize("error", [away(), denied(), ZeroDivisionError("ours")])
    async def test_one_bad_job_is_charged_when_the_check_is_good(self, guarded, shelf, clock, error):
        """An access denied while the marker is readable is the job's own fault, too."""
        bad = a_reference()
        shelf.faults["get", bad] = error
        for _ in range(20):
            verdict = await failing_get(guarded, bad)
            assert verdict.do == "charge"
            assert verdict.kind in FAILURE_KINDS
            clock.at_s += 2
        assert guarded.state == "closed"

    @pytest.mark.parametrize("error", [away(), denied(), ZeroDivisionError("ours")])
    async def test_a_failing_check_makes_any_failure_the_backends(self, guarded, shelf, changes, error):
        """Denied on the marker, too: as unavailable."""
        shelf.faults |= {"get": error, "check": denied()}
        verdict = await failing_get(guarded)
        assert (verdict.do, verdict.wait_s) == ("free", 30)
        assert changes == [("open", "AccessDenied")]

    async def test_throttling_is_free_and_asks_no_check_of_a_store_that_has_enough_to_do(self, guarded, shelf):
        shelf.faults["get"] = away(throttled=True)
        kinds = [await failing_get(guarded) for _ in range(5)]
        assert {(verdict.do, verdict.kind) for verdict in kinds} == {("free", "throttled")}
        assert guarded.state == "open"
        assert "check" not in shelf.calls

    async def test_the_fifth_different_job_in_a_row_is_free(self, guarded, shelf):
        shelf.faults["get"] = away()
        assert [(await failing_get(guarded)).do for _ in range(5)] == ["charge"] * 4 + ["free"]
        assert guarded.state == "open"

    async def test_a_success_between_starts_the_count_anew(self, guarded, shelf):
        good = a_reference()
        await guarded.put(good, b"coat")
        for _ in range(10):
            bad = a_reference()
            shelf.faults["get", bad] = away()
            assert (await failing_get(guarded, bad)).do == "charge"
            await guarded.get(good)
        assert guarded.state == "closed"

    async def test_a_thousand_failures_at_once_ask_one_check(self, guarded, shelf):
        shelf.faults |= {"get": away(), "check": away()}
        shelf.gate.clear()
        failures = [asyncio.create_task(failing_get(guarded)) for _ in range(1_000)]
        await asyncio.sleep(0)
        shelf.gate.set()
        verdicts = await asyncio.gather(*failures)
        assert {verdict.do for verdict in verdicts} == {"free"}
        assert shelf.calls.count("check") == 1

    async def test_an_answer_of_the_check_is_good_for_a_second(self, guarded, shelf, clock):
        shelf.faults["get"] = away()
        await failing_get(guarded)
        clock.at_s += 0.999
        await failing_get(guarded)
        assert shelf.calls.count("check") == 1
        clock.at_s += 0.001
        await failing_get(guarded)
        assert shelf.calls.count("check") == 2

    async def test_a_waiter_that_is_cancelled_does_not_end_the_check_of_the_others(self, guarded, shelf):
        reference = a_reference()
        shelf.faults["check"] = away()
        shelf.gate.clear()
        one, other = (asyncio.create_task(guarded.judge(reference, away())) for _ in range(2))
        await asyncio.sleep(0)
        one.cancel()
        shelf.gate.set()
        assert (await other).do == "free"

    async def test_a_check_that_hangs_is_a_failing_check(self, impatient, shelf):
        shelf.gate.clear()
        assert (await impatient.judge(a_reference(), away())).do == "free"
        assert impatient.state == "open"


class TestTimeouts:
    async def test_a_fetch_that_hangs_is_unavailable(self, impatient, shelf):
        shelf.gate.clear()
        with pytest.raises(StorageUnavailable, match="was not read within"):
            await impatient.get(a_reference())

    async def test_a_timeout_of_the_backends_own_is_passed_on(self, guarded, shelf):
        shelf.faults["get"] = TimeoutError("theirs")
        with pytest.raises(TimeoutError, match="theirs"):
            await guarded.get(a_reference())

    async def test_waiting_for_our_own_room_is_not_the_backends_slowness(self, impatient, shelf):
        """It ends, so that the lease holds; and it charges nobody."""
        reference = a_reference()
        shelf.payloads[reference] = b"coat"

        async def never(size_bytes: int) -> None:
            await asyncio.Event().wait()

        with pytest.raises(NoRoom) as error:
            await impatient.get(reference, never)
        assert await impatient.judge(reference, error.value) == Verdict("free", "no_room")
        assert impatient.state == "closed"
        assert "check" not in shelf.calls

    @pytest.mark.parametrize(("admit_s", "read"), [(14, True), (16, False)])
    async def test_the_fetchs_time_stands_still_while_admit_waits(self, guarded, shelf, monkeypatch, admit_s, read):
        """14 s to find it and 14 s for room: neither alone is over the 15 s of its kind."""
        loop = asyncio.get_running_loop()
        ahead_s, real_time = [0.0], loop.time
        monkeypatch.setattr(loop, "time", lambda: real_time() + ahead_s[0])

        async def pass_time(seconds: float) -> None:
            ahead_s[0] += seconds
            await asyncio.sleep(0)
            await asyncio.sleep(0)

        async def slowly(operation: str, reference: Reference | None = None) -> None:
            await pass_time(14)

        monkeypatch.setattr(shelf, "called", slowly)
        reference = a_reference()
        shelf.payloads[reference] = b"coat"
        if read:
            assert await guarded.get(reference, lambda size_bytes: pass_time(admit_s)) == b"coat"
        else:
            with pytest.raises(NoRoom):
                await guarded.get(reference, lambda size_bytes: pass_time(admit_s))


class TestOpen:
    @pytest.fixture(autouse=True)
    async def opened(self, guarded, shelf, changes):
        shelf.faults |= {"get": away(), "check": away(), "put": away(), "start": away(), "delete": away()}
        await failing_get(guarded)
        changes.clear()
        shelf.calls.clear()

    async def test_the_backend_is_not_asked(self, guarded, shelf):
        reference = a_reference()
        for call in (guarded.put(reference, b""), guarded.get(reference), guarded.delete([reference])):
            with pytest.raises(BreakerOpen):
                await call
        assert shelf.calls == []

    async def test_nor_is_it_for_somebody_to_look(self, guarded, shelf):
        asked = len(shelf.calls)
        with pytest.raises(BreakerOpen):
            await guarded.peek(a_reference())
        assert len(shelf.calls) == asked

    async def test_router_and_dispatcher_see_it(self, guarded):
        assert not guarded.available
        assert guarded.permit().kind == "nothing"
        assert guarded.permit().wait_s == 30

    async def test_who_was_refused_is_not_charged_and_told_how_long_to_wait(self, guarded, clock):
        clock.at_s += 10
        assert await failing_get(guarded) == Verdict("free", "breaker_open", 20)

    async def test_a_late_failure_is_free_and_asks_no_check(self, guarded, shelf):
        assert (await guarded.judge(a_reference(), away())).do == "free"
        assert shelf.calls == []

    async def test_no_check_is_run_before_its_time(self, guarded, shelf, clock):
        clock.at_s += 29.9
        await guarded.probe_if_due()
        assert shelf.calls == []

    async def test_a_bad_check_opens_it_for_another_term(self, guarded, shelf, clock, changes):
        clock.at_s += 30
        await guarded.probe_if_due()
        await guarded.probe_if_due()
        assert shelf.calls == ["check"]
        assert guarded.permit().wait_s == 30
        assert changes == []

    async def test_without_any_traffic_the_outage_ends_by_itself(self, guarded, shelf, clock, changes):
        """In a process that only accepts, and of which nobody asks anything."""
        shelf.faults.clear()
        for _ in range(2):
            clock.at_s += 30
            await guarded.probe_if_due()
        assert changes == [("half_open", "NoneType"), ("closed", "NoneType")]
        assert shelf.calls == ["check", "check"]


class TestHalfOpen:
    @pytest.fixture(autouse=True)
    async def half_opened(self, guarded, shelf, clock, changes):
        self.suspect = a_reference()
        shelf.faults |= {"get": away(), "check": away()}
        await failing_get(guarded, self.suspect)
        shelf.faults.clear()
        clock.at_s += 30
        await guarded.probe_if_due()
        changes.clear()
        assert guarded.state == "half_open"

    async def test_a_put_is_as_good_a_probe_as_a_job(self, guarded):
        assert guarded.available
        await guarded.put(a_reference(), b"coat")
        assert guarded.state == "closed"

    async def test_one_probe_at_a_time(self, guarded, shelf):
        reference = a_reference()
        shelf.payloads[reference] = b"coat"
        shelf.gate.clear()
        probe = asyncio.create_task(guarded.get(reference))
        await asyncio.sleep(0)
        assert not guarded.available
        assert guarded.permit().kind == "nothing"
        with pytest.raises(BreakerOpen):
            await guarded.get(a_reference())
        shelf.gate.set()
        assert await probe == b"coat"
        assert guarded.available

    async def test_the_claim_is_told_whom_to_avoid(self, guarded):
        assert (guarded.permit().kind, guarded.permit().avoid) == ("probe", str(self.suspect))

    async def test_a_probe_that_fails_after_a_good_check_is_charged_and_opens_it(self, guarded, shelf, changes):
        shelf.faults["get"] = away()
        assert await failing_get(guarded) == Verdict("charge", "storage_unavailable", 30)
        assert changes == [("open", "StorageUnavailable")]

    async def test_a_put_that_fails_as_the_probe_opens_it(self, guarded, shelf):
        shelf.faults["put"] = denied()
        with pytest.raises(AccessDenied):
            await guarded.put(a_reference(), b"coat")
        assert guarded.state == "open"

    async def test_a_missing_payload_neither_closes_nor_opens_it(self, guarded):
        for _ in range(3):
            assert (await failing_get(guarded)).do == "bury"
            assert guarded.permit().kind == "probe"

    @pytest.mark.parametrize("operation", ["get", "put"])
    async def test_a_cancelled_probe_makes_room_for_the_next(self, guarded, shelf, operation):
        shelf.gate.clear()
        call = guarded.get(a_reference()) if operation == "get" else guarded.put(a_reference(), b"")
        probe = asyncio.create_task(call)
        await asyncio.sleep(0)
        assert guarded.permit().kind == "nothing"
        probe.cancel()
        with pytest.raises(asyncio.CancelledError):
            await probe
        assert guarded.permit().kind == "probe"

    async def test_who_only_looks_is_not_the_probe_whatever_becomes_of_it(self, guarded, shelf, changes):
        """A client that polls one bad object would take probe after probe, and the outage would not end."""
        there, bad = a_reference(), a_reference()
        shelf.payloads[there] = b"coat"
        shelf.faults["get", bad] = away()
        assert await guarded.peek(there) == b"coat"
        for reference, error in ((bad, StorageUnavailable), (a_reference(), PayloadMissing)):
            with pytest.raises(error):
                await guarded.peek(reference)
        assert guarded.permit().kind == "probe"
        assert changes == []
        assert await guarded.get(there) == b"coat"
        assert guarded.state == "closed"

    async def test_a_probe_that_nobody_judges_keeps_others_out_for_a_while_and_not_for_ever(
        self, guarded, shelf, clock
    ):
        shelf.faults["get"] = away()
        with pytest.raises(StorageUnavailable):
            await guarded.get(a_reference())
        assert guarded.permit().kind == "nothing"
        clock.at_s += 30
        assert guarded.permit().kind == "probe"

    async def test_deletions_go_on_and_prove_nothing(self, guarded):
        await guarded.delete([a_reference()])
        assert guarded.state == "half_open"


class TestPuts:
    async def test_failing_puts_of_different_jobs_open_it(self, guarded, shelf):
        shelf.faults["put"] = away(maybe_done=True)
        for _ in range(5):
            with pytest.raises(StorageUnavailable) as error:
                await guarded.put(a_reference(), b"coat")
            assert error.value.maybe_done
        assert guarded.state == "open"

    async def test_a_put_whose_check_fails_opens_it_at_once(self, guarded, shelf):
        shelf.faults |= {"put": away(), "check": away()}
        with pytest.raises(StorageUnavailable):
            await guarded.put(a_reference(), b"coat")
        assert not guarded.available

    async def test_a_put_that_hangs_is_unavailable_and_may_yet_arrive(self, impatient, shelf):
        """A process that only accepts has nothing else to notice a dead network by."""
        shelf.gate.clear()
        with pytest.raises(StorageUnavailable, match="was not stored within") as error:
            await impatient.put(a_reference(), b"coat")
        assert error.value.maybe_done
        assert impatient.state == "open"

    async def test_a_caller_who_is_gone_before_the_verdict_does_not_prevent_it(self, guarded, shelf):
        """Clients hang up in an outage, and their requests are cancelled: the breaker must open all the same."""
        shelf.faults |= {"put": away(), "check": away()}
        shelf.gates["check"] = asyncio.Event()
        put = asyncio.create_task(guarded.put(a_reference(), b"coat"))
        await eventually(lambda: "check" in shelf.calls)
        put.cancel()
        with pytest.raises(asyncio.CancelledError):
            await put
        shelf.gates["check"].set()
        await guarded.aclose()
        assert guarded.state == "open"


class TestStart:
    async def test_it_tells_whose_place_it_is(self, guarded):
        assert await guarded.start("us") == Ownership("us", ours=True) == guarded.ownership
        assert guarded.state == "closed"

    @pytest.mark.parametrize("error", [away(), denied(), OSError("no route")])
    async def test_a_backend_that_is_away_is_no_obstacle(self, guarded, shelf, error, changes):
        shelf.faults["start"] = error
        assert await guarded.start("us") == Ownership(None, ours=False)
        assert changes == [("open", type(error).__name__)]

    async def test_one_that_hangs_is_no_obstacle(self, impatient, shelf):
        shelf.gate.clear()
        await impatient.start("us")
        assert impatient.state == "open"

    async def test_one_that_is_late_is_started_behind_an_open_breaker(self, shelf, clock):
        """A process that has nothing for this backend must not wait for it until it gives up."""
        guarded = Guarded(shelf, clock, policy=Policy(), start_patience_s=0.01)
        shelf.gate.clear()
        assert await guarded.start("us") == Ownership(None, ours=False)
        assert guarded.state == "open"
        shelf.gate.set()
        await eventually(lambda: guarded.ownership.ours, described="the start went on")
        assert guarded.state == "open"
        clock.at_s += 30
        await guarded.probe_if_due()
        assert guarded.state == "half_open"
        assert shelf.calls == ["start", "check"]

    async def test_one_that_can_never_work_and_says_so_late_stays_behind_its_breaker(self, shelf, clock):
        """The service runs by then, and others depend on it."""
        guarded = Guarded(shelf, clock, policy=Policy(), start_patience_s=0.01)
        shelf.faults["start"] = Misconfigured("no such bucket")
        shelf.gate.clear()
        await guarded.start("us")
        shelf.gate.set()
        clock.at_s += 30
        await guarded.probe_if_due()
        assert guarded.state == "open"

    async def test_one_that_can_never_work_refuses_the_start(self, guarded, shelf):
        shelf.faults["start"] = Misconfigured("no such bucket")
        with pytest.raises(Misconfigured):
            await guarded.start("us")

    async def test_it_is_started_when_it_recovers(self, guarded, shelf, clock):
        """Else nobody would ever have claimed the place, and the sweeper would stand still for good."""
        shelf.faults["start"] = away()
        await guarded.start("us")
        clock.at_s += 30
        await guarded.probe_if_due()
        assert guarded.state == "open"
        shelf.faults.clear()
        clock.at_s += 30
        await guarded.probe_if_due()
        assert guarded.state == "half_open"
        assert guarded.ownership == Ownership("us", ours=True)
        assert shelf.calls == ["start"] * 3

    async def test_again_it_reads_the_ownership_anew_even_beside_a_check(self, guarded, shelf):
        await guarded.start("us")
        shelf.gate.clear()
        check = asyncio.create_task(guarded.check())
        again = asyncio.create_task(guarded.start("them"))
        await asyncio.sleep(0)
        shelf.gate.set()
        await check
        assert (await again).owner == "them"

    async def test_a_new_owner_is_seen_and_told_once(self, shelf, clock):
        """Two installations on one place: the one that was there first has to learn of the other."""
        told = []
        guarded = Guarded(shelf, clock, on_ownership=lambda name, ownership: told.append((name, ownership.owner)))
        await guarded.start("us")
        shelf.owner = "them"
        for _ in range(2):
            await guarded.read_ownership()
        assert guarded.ownership == Ownership("them", ours=False)
        assert told == [("shelf", "us"), ("shelf", "them")]

    @pytest.mark.parametrize("error", [away(), denied(), Misconfigured("gone"), OSError("no route")])
    async def test_an_owner_that_cannot_be_read_stays_and_opens_nothing(self, guarded, shelf, error):
        await guarded.start("us")
        shelf.faults["start"] = error
        with pytest.raises(type(error)):
            await guarded.read_ownership()
        assert guarded.ownership == Ownership("us", ours=True)
        assert guarded.state == "closed"

    async def test_nobody_is_asked_for_the_owner_of_what_is_away(self, guarded, shelf):
        shelf.faults["start"] = away()
        await guarded.start("us")
        await guarded.read_ownership()
        assert shelf.calls == ["start"]

    async def test_a_check_is_passed_on_with_its_error(self, guarded, shelf):
        shelf.faults["check"] = denied()
        with pytest.raises(AccessDenied):
            await guarded.check()


async def test_three_dispatchers_through_twenty_minutes_of_outage_charge_nobody(shelf, clock):
    """With what the dispatcher calls, and every answer of it; the pure rules are simulated in test_breaker.py."""
    references = [a_reference() for _ in range(40)]
    shelf.payloads = dict.fromkeys(references, b"coat")
    dispatchers = [Guarded(shelf, clock, policy=Policy()) for _ in range(3)]
    verdicts: list[Verdict] = []
    delivered: set[Reference] = set()
    outage_until_s = clock.at_s + 1_200
    shelf.faults |= {"get": away(), "check": away()}
    for step in count():
        if clock.at_s >= outage_until_s:
            shelf.faults.clear()
        waiting = [reference for reference in references if reference not in delivered]
        if not waiting:
            break
        guarded = dispatchers[step % 3]
        await guarded.probe_if_due()
        permit = guarded.permit()
        candidates = [reference for reference in waiting if str(reference) != permit.avoid] or waiting
        for reference in candidates[: {"all": 3, "probe": 1, "nothing": 0}[permit.kind]]:
            try:
                await guarded.get(reference)
                delivered.add(reference)
            except StorageUnavailable as error:
                verdicts.append(await guarded.judge(reference, error))
        clock.at_s += 0.7
        assert clock.at_s < outage_until_s + 120
    assert {verdict.do for verdict in verdicts} == {"free"}
    assert shelf.calls.count("get") < 40 + 3 * 3 + 3


class Meter:
    def __init__(self) -> None:
        self.operations: list[tuple[str, str, str, float]] = []
        self.payloads: list[tuple[str, str, int]] = []

    def storage_operation(self, *seen: object) -> None:
        self.operations.append(seen)

    def storage_payload(self, *seen: object) -> None:
        self.payloads.append(seen)


class TestMetered:
    @pytest.fixture
    def meter(self) -> Meter:
        return Meter()

    async def test_every_call_is_counted_by_its_end(self, shelf, clock, meter):
        metered = Metered(shelf, meter, clock)
        reference = a_reference()
        await metered.start("us")
        await metered.put(reference, b"coat")
        await metered.get(reference)
        await metered.check()
        await metered.delete([reference])
        assert [seen[:3] for seen in meter.operations] == [
            ("shelf", operation, "ok") for operation in ("start", "put", "get", "check", "delete")
        ]
        assert {seen[1] for seen in meter.operations} <= set(OPERATIONS)
        assert meter.payloads == [("shelf", "put", 4), ("shelf", "get", 4)]

    @pytest.mark.parametrize(
        ("error", "outcome"),
        [
            (PayloadMissing("", backend="shelf"), "missing"),
            (PayloadCorrupt("", backend="shelf"), "corrupt"),
            (denied(), "denied"),
            (away(), "unavailable"),
            (away(throttled=True), "throttled"),
            (ZeroDivisionError(), "error"),
        ],
    )
    async def test_failures_are_told_apart_and_raised(self, shelf, clock, meter, error, outcome):
        shelf.faults["get"] = error
        with pytest.raises(type(error)):
            await Metered(shelf, meter, clock).get(a_reference())
        assert meter.operations == [("shelf", "get", outcome, 0.0)]
        assert outcome in STORAGE_OUTCOMES
        assert meter.payloads == []

    async def test_a_cancelled_call_is_counted(self, shelf, clock, meter):
        shelf.gate.clear()
        call = asyncio.create_task(Metered(shelf, meter, clock).get(a_reference()))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert meter.operations[0][2] == "cancelled"

    async def test_waiting_for_room_is_not_the_backends_time(self, shelf, clock, meter):
        async def admit(size_bytes: int) -> None:
            clock.at_s += 7

        reference = a_reference()
        shelf.payloads[reference] = b"coat"
        await Metered(shelf, meter, clock).get(reference, admit)
        assert meter.operations == [("shelf", "get", "ok", 0.0)]

    async def test_what_admit_raises_is_not_the_backends_failure(self, shelf, clock, meter):
        async def admit(size_bytes: int) -> None:
            raise NoRoom("full", backend="shelf")

        reference = a_reference()
        shelf.payloads[reference] = b"coat"
        with pytest.raises(NoRoom):
            await Metered(shelf, meter, clock).get(reference, admit)
        assert meter.operations[0][2] == "cancelled"

    async def test_a_scan_is_one_operation(self, clock, meter):
        archive = Archive()
        archive.payloads = {a_reference(): b"coat", a_reference(): b"hat"}
        seen = [stored.size_bytes async for stored in Metered(archive, meter, clock).scan(None)]
        assert sorted(seen) == [3, 4]
        assert [operation[1:3] for operation in meter.operations] == [("scan", "ok")]


@pytest.mark.parametrize("kind", [Shelf, Archive])
async def test_decorated_it_still_is_a_backend_and_scannable_only_if_it_was(kind, clock):
    decorated = Guarded(Metered(kind(), Meter(), clock), clock)
    assert isinstance(decorated, StorageBackend)
    assert isinstance(decorated, Scannable) == (kind is Archive)
    assert (decorated.name, decorated.inline, decorated.concurrency, decorated.inflight_bytes) == (
        "shelf",
        False,
        4,
        1_000,
    )
    await decorated.aclose()


class TestBulkheadSlots:
    def test_no_more_are_taken_than_there_are(self):
        bulkhead = Bulkhead(4, 100)
        assert (bulkhead.take(3), bulkhead.take(3), bulkhead.take(1)) == (3, 1, 0)
        bulkhead.give_back(2)
        assert bulkhead.free == 2

    def test_giving_back_twice_is_noticed(self):
        bulkhead = Bulkhead(4, 100)
        bulkhead.take(1)
        bulkhead.give_back()
        with pytest.raises(ValueError, match="given back"):
            bulkhead.give_back()


class TestBulkheadBytes:
    async def waiting(self, bulkhead: Bulkhead, *sizes: int) -> list[asyncio.Task]:
        tasks = [asyncio.create_task(bulkhead.admission()(size)) for size in sizes]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return tasks

    async def test_what_fits_is_admitted_and_the_rest_waits_for_a_release(self):
        bulkhead = Bulkhead(9, 100)
        first = bulkhead.admission()
        await first(60)
        (second,) = await self.waiting(bulkhead, 50)
        assert not second.done()
        first.release()
        await second
        assert bulkhead.held_bytes == 50

    async def test_a_payload_bigger_than_the_budget_is_admitted_alone(self):
        bulkhead = Bulkhead(9, 100)
        small = bulkhead.admission()
        await small(1)
        (big,) = await self.waiting(bulkhead, 5_000)
        assert not big.done()
        small.release()
        await big
        assert bulkhead.held_bytes == 5_000

    async def test_first_come_first_served_so_that_a_big_one_is_not_passed_for_ever(self):
        bulkhead = Bulkhead(9, 100)
        first = bulkhead.admission()
        await first(60)
        big, small = await self.waiting(bulkhead, 100, 1)
        assert not small.done()
        first.release()
        await big
        assert not small.done()
        small.cancel()

    async def test_who_stops_waiting_lets_those_behind_pass(self):
        bulkhead = Bulkhead(9, 100)
        await bulkhead.admission()(60)
        big, small = await self.waiting(bulkhead, 100, 40)
        big.cancel()
        await small
        assert bulkhead.held_bytes == 100

    async def test_who_is_cancelled_at_the_moment_of_being_admitted_keeps_nothing(self):
        bulkhead = Bulkhead(9, 100)
        first = bulkhead.admission()
        await first(60)
        (second,) = await self.waiting(bulkhead, 50)
        first.release()
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        assert bulkhead.held_bytes == 0

    async def test_a_backends_own_retry_asks_again_and_counts_once(self):
        bulkhead = Bulkhead(9, 100)
        admission = bulkhead.admission()
        for size in (60, 60, 70):
            await admission(size)
        assert bulkhead.held_bytes == 70
        admission.release()
        admission.release()
        assert bulkhead.held_bytes == 0

    @given(st.lists(st.tuples(st.integers(0, 150), st.sampled_from(["release", "cancel", "keep"])), max_size=30))
    async def test_the_budget_holds_and_everybody_gets_a_turn(self, steps):
        bulkhead = Bulkhead(9, 100)
        admissions, tasks = [], []
        for size, then in steps:
            admissions.append(bulkhead.admission())
            tasks.append(asyncio.create_task(admissions[-1](size)))
            await asyncio.sleep(0)
            done = [n for n, task in enumerate(tasks) if task.done()]
            if then == "cancel":
                tasks[-1].cancel()
            elif then == "release" and done:
                admissions[done[0]].release()
            await asyncio.sleep(0)
            assert bulkhead.held_bytes <= 100 or len([a for a in admissions if a._held_bytes]) == 1
        for task, admission in zip(tasks, admissions, strict=True):
            await asyncio.wait([task])
            admission.release()
        assert bulkhead.held_bytes == 0
        assert not bulkhead._waiting
