"""What a failure does to one job: section 8 of the design, each row provoked by the real thing."""

import hashlib

import pytest
from structlog.testing import capture_logs

from service.records import ClaimRequest, Share
from storage_backends.base import AccessDenied
from storage_backends.reference import Reference, new_uuid
from storage_backends.s3 import S3Backend
from storage_backends.s3_options import S3Options
from tests.kit.s3_servers import ENVIRONMENT, running_rclone
from tests.kit.waiting import eventually
from tests.kit.yards import QUEUE, Yard, a_yard, counted, hooked


@pytest.fixture
async def yard(redis_url, s3_server):
    async with a_yard(redis_url, s3_server) as yard:
        yield yard


@pytest.fixture
async def denial(tmp_path, monkeypatch) -> AccessDenied:
    """What the backend raises when a store that checks signatures is shown a wrong one."""
    with running_rclone(tmp_path) as store:
        options = store.options(store.new_bucket())
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
        stranger = S3Backend("s3", S3Options(**options))
        with pytest.raises(AccessDenied) as caught:
            await stranger.get(Reference("s3", QUEUE, 1, new_uuid()))
        await stranger.aclose()
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", ENVIRONMENT["AWS_SECRET_ACCESS_KEY"])
    return caught.value


async def test_a_payload_in_s3_arrives_and_is_deleted(yard: Yard):
    payloads = [b"%d" % n for n in range(40)]
    async with yard.dispatcher():
        await yard.offloaded(payloads)
        await yard.delivers(payloads)
        await yard.empty()


async def test_a_missing_payload_is_dead_at_once(yard: Yard):
    """Somebody deleted the object behind our back. Trying again would find nothing again."""
    good, gone = await yard.offloaded([b"good", b"gone"], in_ms=500)
    yard.store.client.delete_object(Bucket=yard.bucket, Key=yard.key_of(gone))
    async with yard.dispatcher() as dispatcher:
        job = await yard.dies(gone)
        assert (job.reason, job.attempts) == ("payload_missing", 0)
        await yard.delivers([b"good"])
        assert counted(dispatcher, "buried_total", kind="payload_missing") == 1
        assert dispatcher.offloading["s3"].state == "closed"
    assert await yard.job(good) is None


async def test_a_corrupt_payload_is_dead_at_once_and_kept(yard: Yard):
    """Somebody overwrote the object's bytes. A consumer must not get them, and people may want to look at them."""
    (job,) = await yard.offloaded([b"good"], in_ms=500)
    head = yard.store.client.head_object(Bucket=yard.bucket, Key=yard.key_of(job))
    yard.store.client.put_object(Bucket=yard.bucket, Key=yard.key_of(job), Body=b"evil", Metadata=head["Metadata"])
    async with yard.dispatcher():
        assert (await yard.dies(job)).reason == "payload_corrupt"
        assert await yard.ready() == []
        assert await yard.objects() == [yard.key_of(job)]


@pytest.mark.parametrize("many", [200, pytest.param(1000, marks=pytest.mark.proof)])
async def test_an_error_that_one_job_has_again_and_again_charges_it_alone(yard: Yard, many):
    """One bad object among many good ones: it is dead after its 8 attempts, and nobody else notices."""
    payloads = [b"%d" % n for n in range(many)]
    (bad,) = await yard.offloaded([b"bad"])
    await yard.offloaded(payloads)
    service = yard.service()
    backend = hooked(service)

    async def break_down(reference: Reference) -> None:
        if reference == bad:
            raise RuntimeError("no name for this")

    backend.before_get = break_down
    async with yard.dispatcher(service):
        job = await yard.dies(bad, within_s=30)
        assert (job.reason, job.attempts, job.error) == ("attempts_exhausted", 8, "unexpected")
        await yard.delivers(payloads, within_s=30)
        assert backend.gets.count(bad) == 8
        assert counted(service, "breaker_opened_total") == 0
        assert counted(service, "jobs_total", outcome="retried") == 7


async def test_denied_while_the_marker_can_be_read_is_the_jobs_own_fault(yard: Yard, denial: AccessDenied):
    """S3 says 403 for a missing key to those who may not list; it must not stop the others."""
    denied, _ = await yard.offloaded([b"denied", b"other"], in_ms=300)
    service = yard.service(RETRY__MAX_ATTEMPTS="3")
    backend = hooked(service)

    async def deny(reference: Reference) -> None:
        if reference == denied:
            raise denial

    backend.before_get = deny
    async with yard.dispatcher(service):
        job = await yard.dies(denied)
        assert (job.reason, job.error, job.attempts) == ("attempts_exhausted", "access_denied", 3)
        await yard.delivers([b"other"])
        assert service.offloading["s3"].state == "closed"


async def test_a_backend_that_nobody_configured_is_charged_and_then_dead_with_its_payload_untouched(yard: Yard):
    """In a rolling deploy this process may know the name a minute later. The payload is nobody's to touch."""
    (job,) = await yard.offloaded([b"payload"], backend="elsewhere", stored=False)
    async with yard.dispatcher(RETRY__MAX_ATTEMPTS="3") as dispatcher:
        await yard.inline([b"inline"])
        dead = await yard.dies(job)
        assert (dead.reason, dead.attempts) == ("unknown_backend", 3)
        await yard.delivers([b"inline"])
        assert counted(dispatcher, "jobs_total", outcome="retried") == 2
    assert await yard.size("trash") == 0


async def test_what_is_no_reference_is_dead_and_the_loop_goes_on(yard: Yard):
    """A loop never stops or spins on something that a hand put into the delayed set."""
    strange = [b"no reference", b"\xff\xfe", b"s3::other::1::" + new_uuid().encode(), b"redis::emails::01::x"]
    for member in strange:
        await yard.redis.zadd(yard.keys.queue(QUEUE).delayed, {member: 1})
    await yard.inline([b"good"])
    async with yard.dispatcher() as dispatcher:
        await yard.delivers([b"good"])
        dead = await yard.redis.zrange(yard.keys.queue(QUEUE).dead, 0, -1)
        assert sorted(dead) == sorted(strange)
        assert counted(dispatcher, "buried_total", kind="not_a_reference") == 4
        assert dispatcher.alive().ok


async def test_of_what_is_no_reference_the_log_holds_its_hash_alone(yard: Yard):
    """Other libraries' delayed sets hold whole payloads as members, and no payload is ever logged."""
    member = b'{"class":"Mailer","args":["secret-token"]}\xff'
    await yard.redis.zadd(yard.keys.queue(QUEUE).delayed, {member: 1})
    with capture_logs() as lines:
        async with yard.dispatcher():
            await eventually(lambda: any(line["event"] == "job is dead" for line in lines), described="it is buried")
    assert "secret" not in repr(lines)
    (line,) = [line for line in lines if line["event"] == "job is dead"]
    assert line["reference"] == hashlib.sha1(member).hexdigest()
    assert await yard.redis.hexists(yard.keys.queue(QUEUE).trouble, line["reference"])


async def test_a_dispatchers_death_counts_an_expiry_and_no_attempt(yard: Yard):
    """A claim whose dispatcher is gone: the lease runs out, and somebody else takes the job."""
    (job,) = await yard.offloaded([b"payload"])
    await a_dead_claim(yard, job)
    async with yard.dispatcher() as dispatcher:
        await yard.delivers([b"payload"])
        assert counted(dispatcher, "jobs_total", outcome="expired") == 1
        assert counted(dispatcher, "jobs_total", outcome="retried") == 0


async def test_a_job_that_kills_its_dispatchers_is_dead_in_the_end(yard: Yard):
    """A payload that brings down whoever fetches it must not bring down all of them for ever."""
    (job,) = await yard.offloaded([b"payload"])
    await a_dead_claim(yard, job)
    assert await yard.ledger.reclaim(QUEUE) == [(str(job), "delayed")]
    await a_dead_claim(yard, job)
    async with yard.dispatcher(RETRY__MAX_EXPIRIES="2") as dispatcher:
        dead = await yard.dies(job)
        assert (dead.reason, dead.expiries, dead.attempts) == ("lease_expired", 2, 0)
        assert counted(dispatcher, "buried_total", kind="lease_expired") == 1
    assert await yard.objects() == [yard.key_of(job)]


async def a_dead_claim(yard: Yard, job: Reference) -> None:
    """Somebody leases this job, for a moment, and is never heard of again."""
    claimed = await yard.ledger.claim(QUEUE, ClaimRequest(500, 10_000, None, 1, {"*": Share(1000)}))
    assert [leased.reference for leased in claimed.leased] == [job]

    async def over() -> bool:
        return await yard.now_ms() > claimed.leased[0].token

    await eventually(over, described="the lease is over")
